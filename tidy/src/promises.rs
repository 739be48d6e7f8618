//! Messages that promise something leave when it is durable.

use crate::manifests::{folder, manifests};
use crate::{File, Finding};
use std::collections::BTreeSet;

/// In the words of a message that promises what its sender journals.
const MARK: &str = "Promise:";

/// A message whose words say so never leaves by `send`, `multicast` or `repeat`, which do not wait for the disk.
pub fn promises(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (manifest, _) in manifests(files) {
        let home = format!("{}/src/", folder(manifest));
        let sources: Vec<&File> = files.iter().filter(|file| file.path.starts_with(&home)).collect();
        let marked: BTreeSet<&str> = sources.iter().flat_map(|file| marked(&file.text)).collect();
        for file in sources {
            // A planted bug may be that very mistake.
            let is_planted = |at: usize| {
                file.text[..at].trim_end_matches("cx").trim_end().ends_with('{')
                    && file.text[..at].lines().rev().nth(1).is_some_and(|line| line.contains("planted!("))
            };
            for (at, sent) in sends(&file.text).into_iter().filter(|(at, _)| !is_planted(at - 1)) {
                let words = || sent.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
                let held = |name: &str| held_by(&file.text[..at], name);
                if let Some(name) = words().find_map(|word| {
                    marked
                        .get(word)
                        .copied()
                        .or_else(|| marked.iter().copied().find(|&name| held(name) == Some(word)))
                }) {
                    let line = file.text[..at].lines().count();
                    findings
                        .push(file.finding(line, format!("{name} promises, and does not wait for the disk")));
                }
            }
        }
    }
    findings
}

/// The messages of `kernel::messages!` whose words hold the mark.
fn marked(text: &str) -> Vec<&str> {
    let (mut names, mut promises) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            promises |= line.contains(MARK);
        } else {
            let name = line.split_once("=> ").and_then(|(_, rest)| rest.split([' ', '{']).next());
            names.extend(name.filter(|_| promises));
            promises = false;
        }
    }
    names
}

/// Where something is sent at once, and what stands between the parentheses.
fn sends(text: &str) -> Vec<(usize, &str)> {
    let calls = [".send(", ".multicast(", ".repeat("].into_iter().flat_map(|call| text.match_indices(call));
    let inside = calls.map(|(at, call)| {
        let from = at + call.len();
        let mut depth = 1;
        let end = text[from..].find(|letter| {
            depth += match letter {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        (at + 1, &text[from..end.map_or(text.len(), |end| from + end)])
    });
    inside.collect()
}

/// The variable that holds the latest message of this name, made in the same function.
fn held_by<'a>(before: &'a str, name: &str) -> Option<&'a str> {
    let function = &before[before.rfind("\n    fn ").max(before.rfind(") fn ")).unwrap_or(0)..];
    let line =
        function.lines().rfind(|line| line.contains("let ") && line.contains(&format!("= {name} {{")))?;
    line.split_once("let ")?.1.split([' ', ':']).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A vote that leaves before the disk has it is forgotten by a crash, and counted by others.
    #[test]
    fn promises_that_do_not_wait_are_found() {
        let messages = "//! x\nkernel::messages! {\n    pub enum In {\n        /// Promise: votes so.\n        \
                        1 => Vote {},\n        /// Asks.\n        2 => Ask {},\n    }\n}\n";
        let role = "//! x\n    fn one() {\n        cx.send(to, Ask {});\n        cx.send_durable(to, Vote {});\n        \
                    cx.send(\n            to, Vote {});\n    }\n    fn two() {\n        let vote = Vote {};\n        \
                    cx.multicast(all, vote);\n    }\n    fn three() {\n        cx.send(to, vote);\n    }\n";
        let files = crooked(&[
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/messages.rs", messages),
            ("a/src/role.rs", role),
        ]);
        assert_eq!(positions(&promises(&files)), ["a/src/role.rs:5", "a/src/role.rs:10"]);
    }
}
