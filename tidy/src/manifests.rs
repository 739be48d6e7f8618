//! What every `Cargo.toml` says of itself, where dependencies come from, and the lints of pure crates.

use crate::{File, Finding};

/// The manifests of packages (the workspace's own has none).
pub(crate) fn manifests(files: &[File]) -> impl Iterator<Item = (&File, toml::Table)> {
    let ours = files.iter().filter(|file| file.is("Cargo.toml"));
    ours.filter_map(|file| Some((file, file.text.parse::<toml::Table>().ok()?)))
        .filter(|(_, manifest)| manifest.contains_key("package"))
}

/// The folder of a manifest.
pub(crate) fn folder(manifest: &File) -> &str {
    manifest.path.trim_end_matches("Cargo.toml").trim_end_matches('/')
}

/// A crate says what it is for and under which licence.
pub fn packages(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, manifest) in manifests(files) {
        let line = file.line_with("[package]");
        let package = &manifest["package"];
        if package.get("description").and_then(toml::Value::as_str).is_none_or(|text| text.len() <= 10) {
            findings.push(file.finding(line, "the package has no description"));
        }
        if package.get("license").is_none() {
            findings.push(file.finding(line, "the package has no licence"));
        }
        if manifest.get("lints").is_none() {
            findings.push(file.finding(line, "the package has no [lints]"));
        }
    }
    findings
}

/// Dependencies come from the public registry alone.
pub fn registries(files: &[File]) -> Vec<Finding> {
    const PUBLIC: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let locks = files.iter().filter(|file| file.is("Cargo.lock"));
    let sources = locks.flat_map(|file| file.lines().map(move |(number, line)| (file, number, line)));
    sources
        .filter(|(_, _, line)| line.starts_with("source =") && *line != PUBLIC)
        .map(|(file, number, line)| file.finding(number, format!("not from the public registry: {line}")))
        .collect()
}

const BANNED: [&str; 6] = [
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread::spawn",
    "std::thread::sleep",
];

/// Crates whose behaviour is a function of their inputs.
pub(crate) fn is_pure(folder: &str) -> bool {
    matches!(folder, "kernel" | "parts" | "wire")
        || folder.starts_with("engines/")
        || folder.starts_with("services/")
}

/// Pure crates forbid clocks, threads and process-dependent iteration by their `clippy.toml`.
pub fn lints(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (manifest, _) in manifests(files).filter(|(file, _)| is_pure(folder(file))) {
        let path = format!("{}/clippy.toml", folder(manifest));
        let Some(lints) = files.iter().find(|file| file.path == path) else {
            findings.push(manifest.finding(1, "a pure crate needs a clippy.toml"));
            continue;
        };
        for banned in BANNED.iter().filter(|banned| !lints.text.contains(&format!("\"{banned}\""))) {
            findings.push(lints.finding(1, format!("a pure crate forbids {banned}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A crate without a licence cannot be used; one without lints drifts away from the rest.
    #[test]
    fn a_bare_package_is_found() {
        let files = crooked(&[("a/Cargo.toml", "# a\n[package]\nname = \"a\"\n")]);
        assert_eq!(positions(&packages(&files)), ["a/Cargo.toml:2"; 3]);
    }

    // A lock file that names a private registry builds nowhere else.
    #[test]
    fn a_foreign_source_is_found() {
        let files = crooked(&[("Cargo.lock", "name = \"a\"\nsource = \"registry+https://example.net/\"\n")]);
        assert_eq!(positions(&registries(&files)), ["Cargo.lock:2"]);
    }

    // An engine that may read the clock is not a function of its seed.
    #[test]
    fn a_pure_crate_without_bans_is_found() {
        let manifest = "[package]\nname = \"x\"\n";
        let bare = crooked(&[("engines/x/Cargo.toml", manifest), ("server/Cargo.toml", manifest)]);
        assert_eq!(positions(&lints(&bare)), ["engines/x/Cargo.toml:1"]);
        let lax = crooked(&[
            ("kernel/Cargo.toml", manifest),
            ("kernel/clippy.toml", "\"std::time::Instant\" \"std::time::SystemTime\""),
        ]);
        assert_eq!(lints(&lax).len(), 4);
    }
}
