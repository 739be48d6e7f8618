//! A crate's public types: those a crate that imports it can name.

use crate::manifests::{folder, manifests};
use crate::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// Public types by name, each with its file and line.
type Types<'a> = BTreeMap<String, (&'a File, usize)>;

/// No public type of a crate has the name of one of a crate that it imports.
pub fn public_types(files: &[File]) -> Vec<Finding> {
    let crates: BTreeMap<String, (&File, toml::Table)> = manifests(files)
        .filter_map(|(file, manifest)| {
            let name = manifest["package"].get("name")?.as_str()?.to_owned();
            Some((name, (file, manifest)))
        })
        .collect();
    let types: BTreeMap<&str, Types> = crates
        .iter()
        .map(|(name, (manifest, _))| (name.as_str(), types_of(folder(manifest), files)))
        .collect();
    let mut findings = Vec::new();
    for (name, (_, manifest)) in &crates {
        let imported = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
        for (other, theirs) in imported.filter_map(|(other, _)| Some((other, types.get(other.as_str())?))) {
            for (shared, (file, line)) in &types[name.as_str()] {
                if theirs.contains_key(shared) {
                    findings.push(file.finding(*line, format!("{other} has a public {shared} too")));
                }
            }
        }
    }
    findings
}

/// The public types of the crate in a folder: in public modules, or exported by name.
fn types_of<'a>(home: &str, files: &'a [File]) -> Types<'a> {
    let sources: BTreeMap<&str, &File> = files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(home)?.strip_prefix("/src/")?, file)))
        .collect();
    let exported: BTreeSet<&str> = sources.values().flat_map(|file| exports(&file.text)).collect();
    let mut types = Types::new();
    let mut ahead = vec![("lib.rs".to_owned(), true)];
    while let Some((path, is_public)) = ahead.pop() {
        let Some(file) = sources.get(path.as_str()) else { continue };
        for (number, line) in file.lines().take_while(|(_, line)| !line.starts_with("#[cfg(test)]")) {
            if let Some(name) = declared(line).filter(|name| is_public || exported.contains(name)) {
                types.insert(name.to_owned(), (file, number));
            }
            if let Some((module, opens)) = module(line) {
                let inside = path.trim_end_matches("lib.rs").trim_end_matches("mod.rs");
                let inside = inside.strip_suffix(".rs").map_or(inside.to_owned(), |stem| format!("{stem}/"));
                let is_public = is_public && opens;
                ahead.push((format!("{inside}{module}.rs"), is_public));
                ahead.push((format!("{inside}{module}/mod.rs"), is_public));
            }
        }
    }
    types
}

/// The words of all `pub use`.
fn exports(text: &str) -> impl Iterator<Item = &str> {
    let uses = text.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    uses.flat_map(|(tree, _)| tree.split(|letter: char| !is_of_name(letter)))
}

/// The type that a line declares, plainly or as a message of `kernel::messages!` or a list of `kernel::family!`.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let plain = ["pub struct ", "pub enum ", "pub trait ", "pub type ", "messages ", "members "];
    if let Some(rest) = plain.iter().find_map(|keyword| line.strip_prefix(keyword)) {
        return name(rest);
    }
    let (tag, rest) = line.split_once(" => ")?;
    let is_message = tag.bytes().all(|digit| digit.is_ascii_digit());
    let name = name(rest).filter(|_| is_message)?;
    rest[name.len()..].trim_start().starts_with('{').then_some(name)
}

/// The module that a line declares, and whether it is public.
fn module(line: &str) -> Option<(&str, bool)> {
    let private = line.strip_prefix("pub(crate) mod ").or_else(|| line.strip_prefix("mod "));
    let public = line.strip_prefix("pub mod ");
    let module = public.or(private)?.strip_suffix(';')?;
    Some((module, public.is_some()))
}

/// The type's name at the front.
fn name(text: &str) -> Option<&str> {
    let end = text.find(|letter| !is_of_name(letter)).unwrap_or(text.len());
    Some(&text[..end]).filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    const LOW: (&str, &str) = ("low/Cargo.toml", "[package]\nname = \"low\"\n");
    const HIGH: (&str, &str) =
        ("high/Cargo.toml", "[package]\nname = \"high\"\n[dependencies]\nlow = \"1\"\n");

    // Two types of one name in one file have to be distinguished by their paths.
    #[test]
    fn a_name_of_an_imported_crate_is_found() {
        let files = crooked(&[
            LOW,
            HIGH,
            ("low/src/lib.rs", "//! x\nmod a;\npub use a::{Row, Table};\n"),
            ("low/src/a.rs", "//! x\npub struct Row;\npub struct Hidden;\npub type Table = u8;\n"),
            ("high/src/lib.rs", "//! x\npub mod b;\n"),
            ("high/src/b/mod.rs", "//! x\npub mod c;\npub enum Row {}\npub enum Hidden {}\n"),
            ("high/src/b/c.rs", "//! x\n    7 => Table {\n    8 => Row(Row),\n    9 => Row,\n"),
        ]);
        assert_eq!(positions(&public_types(&files)), ["high/src/b/mod.rs:3", "high/src/b/c.rs:2"]);
    }

    // Crates that do not import each other never meet; what is private is nobody else's.
    #[test]
    fn names_that_never_meet_are_left_alone() {
        let files = crooked(&[
            LOW,
            ("side/Cargo.toml", "[package]\nname = \"side\"\n"),
            ("low/src/lib.rs", "//! x\npub struct Row;\n"),
            ("side/src/lib.rs", "//! x\npub struct Row;\n"),
            HIGH,
            ("high/src/lib.rs", "//! x\nmod a;\n"),
            ("high/src/a.rs", "//! x\npub struct Row;\n"),
        ]);
        assert_eq!(positions(&public_types(&files)), Vec::<String>::new());
    }
}
