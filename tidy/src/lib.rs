//! The rules of this repository. Each is a function from the repository's files to what breaks it, so that it can be
//! tried on a crooked repository of three lines as well as on the real one.
#![forbid(unsafe_code)]

mod documents;
mod layers;
mod manifests;
mod modules;
mod names;
mod promises;
mod public_types;
mod sizes;
mod sources;
mod words;

pub use documents::{dashboard, error_codes, links, metrics, named_files, wide_lines};
pub use layers::layers;
pub use manifests::{lints, packages, registries};
pub use modules::circles;
pub use names::{names, root_files};
pub use promises::promises;
pub use public_types::public_types;
pub use sizes::{long_files, long_functions};
pub use sources::{headings, stubs, unsafe_code};
pub use words::{words, words_that_are_out};

use std::fmt;
use std::path::Path;

/// One text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// From the repository's root, with `/` between folders.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// A breach of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl File {
    /// A breach in this file.
    pub fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    /// The lines, numbered from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// True if the name ends like this.
    pub fn is(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// The first line that holds `text`; 1 if none does.
    pub fn line_with(&self, text: &str) -> usize {
        self.lines().find(|(_, line)| line.contains(text)).map_or(1, |(number, _)| number)
    }
}

/// Folders that builds and tools make.
const NOT_OURS: [&str; 6] = ["target", "out", "node_modules", "__pycache__", ".git", ".venv"];

/// Every text file below `root`, in the order of paths; what is not UTF-8 is left out.
pub fn repository(root: &Path) -> std::io::Result<Vec<File>> {
    let mut files = Vec::new();
    collect(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file()
            && name != ".git"
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}

/// A repository for the tests of a rule.
#[cfg(test)]
pub(crate) fn crooked(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect()
}

/// Where the findings are, for the tests of a rule.
#[cfg(test)]
pub(crate) fn positions(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}
