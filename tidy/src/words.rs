//! Words that belong to a machine and not to the project (private folders and hosts), and words that are out.

use crate::{File, Finding};

/// Nothing names a folder or a host that exists on one machine only.
pub fn words(files: &[File]) -> Vec<Finding> {
    // Put together here, so that this file passes.
    let folders =
        [["/wo", "rk/"], ["/ho", "me/"], ["/Us", "ers/"], ["/ro", "ot/"]].map(|halves| halves.concat());
    let hosts =
        [["artifac", "tory"], ["jfr", "og"], [".inter", "nal:"], [".inter", "nal/"], ["go", "proxy."]]
            .map(|halves| halves.concat());
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            let folder = folders.iter().find(|folder| names_folder(line, folder));
            let host = hosts.iter().find(|host| line.contains(host.as_str()));
            if let Some(word) = folder.or(host) {
                findings.push(file.finding(number, format!("{word} belongs to one machine")));
            }
        }
    }
    findings
}

/// The page that says what words mean, and which ones were given up.
const GLOSSARY: &str = "docs/glossary.md";

/// Nothing is called by a word that the field does not use for it: the glossary has the field's.
pub fn words_that_are_out(files: &[File]) -> Vec<Finding> {
    // Put together here, so that this file passes.
    let out = [
        ["who", "ever"],
        ["new", "comer"],
        ["hear", "say"],
        ["home", "less"],
        ["use", "less"],
        ["stir", "red"],
        ["bur", "ial"],
        ["hand-", "over"],
        ["under", " way"],
        ["under", "_way"],
        ["that is", " none"],
    ]
    .map(|halves| halves.concat());
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != GLOSSARY && !file.is(".lock")) {
        for (number, line) in file.lines() {
            let line = line.to_lowercase();
            if let Some(word) = out.iter().find(|word| line.contains(word.as_str())) {
                findings
                    .push(file.finding(number, format!("{word} is out; {GLOSSARY} has the field's word")));
            }
        }
    }
    findings
}

/// True if `folder` begins a path in `line`; inside a longer path it is somebody else's.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || "_$}./~-*".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A path of the author's machine fails on every other.
    #[test]
    fn private_folders_are_found() {
        let text =
            ["cd $work", "/x\ncp a /wo", "rk/b\nsrc/wo", "rk/c\nhttps://jfr", "og.example.net\n"].concat();
        assert_eq!(positions(&words(&crooked(&[("a.sh", &text)]))), ["a.sh:2", "a.sh:4"]);
    }

    // A word that only its author understands comes back with the next change.
    #[test]
    fn words_that_are_out_are_found() {
        let text = ["// Who", "ever comes\nhowever\nlet x_under", "_way = 1;\n"].concat();
        let files = crooked(&[("a.rs", &text), (GLOSSARY, &text)]);
        assert_eq!(positions(&words_that_are_out(&files)), ["a.rs:1", "a.rs:3"]);
    }
}
