//! Names that say nothing, and files where nobody looks for them.

use crate::{File, Finding};

const EMPTY: [&str; 9] =
    ["util", "utils", "common", "misc", "helper", "helpers", "manager", "managers", "stuff"];

/// What a new reader sees first.
const ROOT: [&str; 12] = [
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

/// The repository's root holds these files and no others: everything else has a folder.
pub fn root_files(files: &[File]) -> Vec<Finding> {
    let stray = |file: &&File| !file.path.contains('/') && !ROOT.contains(&file.path.as_str());
    files
        .iter()
        .filter(stray)
        .map(|file| file.finding(1, "not a file of the root; put it where it belongs"))
        .collect()
}

/// No crate, folder, module or type is called by a name that says nothing.
pub fn names(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let stem = file.path.rsplit_once('.').map_or(file.path.as_str(), |(stem, _)| stem);
        for part in stem.split('/').filter(|part| EMPTY.contains(part)) {
            findings.push(file.finding(1, format!("{part} says nothing; name what it does")));
        }
        if file.is(".rs") {
            let said = file.lines().filter_map(|(number, line)| Some((number, empty_name(line)?)));
            findings.extend(said.map(|(number, name)| {
                file.finding(number, format!("{name} says nothing; name what it does"))
            }));
        }
    }
    findings
}

/// The name that a line declares, if it is an empty one.
fn empty_name(line: &str) -> Option<&str> {
    let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let keyword = words.find(|word| matches!(*word, "mod" | "struct" | "enum" | "trait"))?;
    let name = words.next().filter(|name| !name.is_empty())?;
    if line.trim_start().starts_with("//") {
        return None;
    }
    let is_type = keyword != "mod";
    let ends_so = ["Manager", "Helper", "Util", "Utils"].iter().any(|end| name.ends_with(end));
    ((is_type && ends_so) || (!is_type && EMPTY.contains(&name))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // Notes and logs that come in with a merge stay for ever.
    #[test]
    fn stray_files_are_found() {
        let files = crooked(&[("NOTE.txt", "x\n"), ("README.md", "x\n"), ("docs/NOTE.txt", "x\n")]);
        assert_eq!(positions(&root_files(&files)), ["NOTE.txt:1"]);
    }

    // A module for everything becomes one that everything depends on.
    #[test]
    fn empty_names_are_found() {
        let files = crooked(&[
            ("a/src/util/mod.rs", "//! x\n"),
            ("a/src/lib.rs", "mod solid;\npub(crate) mod common {\n}\nstruct LockManager;\n// mod misc\n"),
            ("a/src/commons.rs", "//! not an empty name\n"),
        ]);
        assert_eq!(positions(&names(&files)), ["a/src/util/mod.rs:1", "a/src/lib.rs:2", "a/src/lib.rs:4"]);
    }
}
