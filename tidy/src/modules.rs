//! Modules of a crate import each other one way: what two of them need stands in a third.

use crate::manifests::{folder, manifests};
use crate::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// For each module, by its path in the crate, the modules that it imports, each with a line that does so.
type Imports = BTreeMap<String, BTreeMap<String, usize>>;

/// No two modules of a crate import each other, over others or not. A module and those inside it are one thing: they may.
pub fn circles(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (manifest, _) in manifests(files) {
        let home = format!("{}/src/", folder(manifest));
        let sources =
            files.iter().filter_map(|file| Some((module_of(file.path.strip_prefix(&home)?)?, file)));
        let sources: BTreeMap<String, &File> = sources.collect();
        let modules: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
        let imports: Imports = sources
            .iter()
            .map(|(module, file)| (module.clone(), imported(module, &file.text, &modules)))
            .collect();
        for (module, direct) in &imports {
            let back = direct.iter().find(|(other, _)| reachable(other, &imports).contains(module.as_str()));
            if let Some((other, &line)) = back {
                findings.push(sources[module].finding(line, format!("a circle of {module} and {other}")));
            }
        }
    }
    findings
}

/// The module that a file below `src/` holds; none is the root's name.
fn module_of(path: &str) -> Option<String> {
    let stem = path.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    (!["lib", "main"].contains(&stem)).then(|| stem.replace('/', "::"))
}

/// What can be reached by imports.
fn reachable<'a>(from: &'a str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let (mut found, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(module) = ahead.pop() {
        let next = imports.get(module).into_iter().flat_map(|direct| direct.keys());
        ahead.extend(next.map(String::as_str).filter(|&other| found.insert(other)));
    }
    found
}

/// The modules that a source imports, and those alone of whose text it is no part and which are no part of it.
fn imported(module: &str, text: &str, modules: &BTreeSet<&str>) -> BTreeMap<String, usize> {
    let mut imports = BTreeMap::new();
    let (mut open, mut began) = (String::new(), 0);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        let is_import = code.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if open.is_empty() && !is_import.starts_with("use ") {
            let words = code.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
            for path in words.filter(|word| word.starts_with("crate::") || word.starts_with("super::")) {
                note(module, path, number + 1, modules, &mut imports);
            }
            continue;
        }
        if open.is_empty() {
            began = number + 1;
        }
        open.push_str(code.trim());
        if let Some(tree) = open.strip_suffix(';') {
            let tree = tree.split_once("use ").map_or(tree, |(_, tree)| tree);
            for path in paths_of(tree) {
                note(module, &path, began, modules, &mut imports);
            }
            open.clear();
        }
    }
    imports
}

/// The paths of `a::{b, c::d}`.
fn paths_of(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or(tree).trim().to_owned()];
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut from, mut paths) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = &inner[from..at];
                from = (at + 1).min(inner.len());
                if !part.trim().is_empty() {
                    paths.extend(paths_of(part).iter().map(|path| format!("{head}{path}")));
                }
            }
            _ => {}
        }
    }
    paths
}

/// Adds the module that `path` leads into, as `module` writes it.
fn note(
    module: &str,
    path: &str,
    line: usize,
    modules: &BTreeSet<&str>,
    imports: &mut BTreeMap<String, usize>,
) {
    let mut at: Vec<&str> = module.split("::").collect();
    let mut steps = path.split("::").peekable();
    match steps.peek() {
        Some(&"crate") => {
            at.clear();
            steps.next();
        }
        Some(&"super") => {
            while steps.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        // Of another crate, or of a module inside this one.
        Some(_) | None => return,
    }
    let mut found = None;
    for step in steps {
        at.push(step);
        let here = at.join("::");
        if modules.contains(here.as_str()) {
            found = Some(here);
        }
    }
    let is_inside = |one: &str, other: &str| {
        one == other || one.strip_prefix(other).is_some_and(|rest| rest.starts_with("::"))
    };
    if let Some(found) = found.filter(|found| !is_inside(found, module) && !is_inside(module, found)) {
        imports.entry(found).or_insert(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    const MANIFEST: (&str, &str) = ("a/Cargo.toml", "[package]\nname = \"a\"\n");

    // Two files that cannot be read without each other are one file in two parts.
    #[test]
    fn modules_that_import_each_other_are_found() {
        let files = crooked(&[
            MANIFEST,
            ("a/src/lib.rs", "//! x\nmod b;\nmod c;\nuse b::B;\nuse c::C;\n"),
            (
                "a/src/b.rs",
                "//! x\nuse crate::{\n    One, // of the root\n    c::{C, D},\n};\nstruct B(C);\n",
            ),
            ("a/src/c/mod.rs", "//! x\nmod d;\nstruct C(super::b::B);\n"),
            ("a/src/c/d.rs", "//! x\nuse super::C;\n"),
        ]);
        assert_eq!(positions(&circles(&files)), ["a/src/b.rs:2", "a/src/c/mod.rs:3"]);
    }

    // A circle over a third module is as hard to read, and easier to overlook.
    #[test]
    fn a_circle_over_others_is_found() {
        let files = crooked(&[
            MANIFEST,
            ("a/src/b.rs", "//! x\nuse crate::c::C;\n"),
            ("a/src/c.rs", "//! x\nuse super::d::e::E;\n"),
            ("a/src/d/e.rs", "//! x\npub use crate::b::B;\n"),
        ]);
        assert_eq!(positions(&circles(&files)), ["a/src/b.rs:2", "a/src/c.rs:2", "a/src/d/e.rs:2"]);
    }

    // What tests import, what the root and what a module's own parts import, is no circle.
    #[test]
    fn a_module_and_its_parts_may() {
        let files = crooked(&[
            MANIFEST,
            ("a/src/lib.rs", "//! x\nuse crate::b::B;\n"),
            ("a/src/b.rs", "//! x\nmod c;\nuse crate::One;\nuse c::C;\n#[cfg(test)]\nuse crate::d::D;\n"),
            ("a/src/b/c.rs", "//! x\nuse super::B;\n"),
            ("a/src/d.rs", "//! x\nuse crate::b::{B, c::C};\n"),
        ]);
        assert_eq!(positions(&circles(&files)), Vec::<String>::new());
    }
}
