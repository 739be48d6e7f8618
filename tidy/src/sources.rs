//! How a source file must look: a heading, nothing unfinished, nothing unsafe.

use crate::manifests::{folder, manifests};
use crate::{File, Finding};

/// The one crate that talks to the system directly.
const UNSAFE_ALLOWED: &str = "drivers/runtime/";

fn sources(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.is(".rs"))
}

/// Every file begins with what it is for.
pub fn headings(files: &[File]) -> Vec<Finding> {
    sources(files)
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| file.finding(1, "begins without //! and what the file is for"))
        .collect()
}

/// Nothing is left for later.
pub fn stubs(files: &[File]) -> Vec<Finding> {
    // Put together here, so that this file passes.
    let marks = [["to", "do!"], ["unimple", "mented!"], ["FIX", "ME"], ["XX", "X"], ["db", "g!"]]
        .map(|halves| halves.concat());
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is(".rs") || file.is(".sh") || file.is(".html")) {
        for (number, line) in file.lines() {
            for mark in marks.iter().filter(|mark| line.contains(mark.as_str())) {
                findings.push(file.finding(number, format!("{mark} is unfinished work")));
            }
        }
    }
    findings
}

/// Every crate but one forbids `unsafe`, and no test or example uses it.
pub fn unsafe_code(files: &[File]) -> Vec<Finding> {
    let forbids = ["#![forbid(", "unsafe_code)]"].concat();
    let mut findings = Vec::new();
    for (manifest, _) in manifests(files) {
        let home = folder(manifest);
        if format!("{home}/") == UNSAFE_ALLOWED {
            continue;
        }
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| format!("{home}/{root}"));
        for root in files.iter().filter(|file| roots.contains(&file.path)) {
            if !root.text.contains(&forbids) {
                findings.push(root.finding(1, format!("lacks {forbids}")));
            }
        }
    }
    let uses = ["{", "fn", "impl", "extern"].map(|next| ["unsafe ", next].concat());
    for file in sources(files).filter(|file| !file.path.starts_with(UNSAFE_ALLOWED)) {
        let guilty = file.lines().filter(|(_, line)| {
            let code = line.trim_start();
            !code.starts_with("//") && uses.iter().any(|used| code.contains(used.as_str()))
        });
        findings.extend(guilty.map(|(number, _)| file.finding(number, "unsafe outside of the runtime")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A file that does not say what it is for is read in vain.
    #[test]
    fn a_file_without_heading_is_found() {
        let files = crooked(&[("a.rs", "// x\n"), ("b.rs", "//! x\n"), ("c.md", "x\n")]);
        assert_eq!(positions(&headings(&files)), ["a.rs:1"]);
    }

    // A stub that compiles looks like a feature.
    #[test]
    fn unfinished_work_is_found() {
        let text = ["fn a() {}\n", "to", "do!()\n// FIX", "ME later\n"].concat();
        assert_eq!(positions(&stubs(&crooked(&[("a.rs", &text)]))), ["a.rs:2", "a.rs:3"]);
    }

    // One block that nobody reviews undoes what the compiler proves everywhere else.
    #[test]
    fn unsafe_is_found() {
        let block = ["//! x\nlet y = unsafe", " { z };\n"].concat();
        let files = crooked(&[
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", "//! x\n"),
            ("a/tests/b.rs", &block),
            ("drivers/runtime/Cargo.toml", "[package]\nname = \"runtime\"\n"),
            ("drivers/runtime/src/lib.rs", &block),
        ]);
        assert_eq!(positions(&unsafe_code(&files)), ["a/src/lib.rs:1", "a/tests/b.rs:2"]);
    }
}
