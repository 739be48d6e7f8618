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

/// The page that says what words mean, and this list.
const WITH_ALL_WORDS: [&str; 2] = ["docs/glossary.md", "tidy/src/words.rs"];

/// Words for which the field has others, alone and as parts of names.
const OUT: [&str; 21] = [
    "birth", "born", "buried", "bury", "floor", "hearsay", "homeless", "kept", "life", "lives", "newcomer",
    "stamp", "stamped", "stamps", "standing", "stirred", "tell", "tells", "told", "useless", "whoever",
];

/// Phrases for which the field has words.
const PHRASES_OUT: [&str; 15] = [
    "burial",
    "cut off",
    "cut short",
    "cut_off",
    "cut_short",
    "cuts off",
    "hand-over",
    "in its place",
    "in the place of",
    "newcomers",
    "takes the place",
    "that is none",
    "the spread",
    "under way",
    "under_way",
];

/// What may be said nevertheless: a term of the glossary, functions of the standard library, a line of a file's format.
const ALLOWED: [&str; 6] =
    ["sign of life", "sign_of_life", "signs of life", ".floor()", "floor_char_boundary", "extent-kept"];

/// Nothing is called by a word that the field does not use for it: the glossary has the field's.
pub fn words_that_are_out(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = |file: &&File| !WITH_ALL_WORDS.contains(&file.path.as_str()) && !file.is(".lock");
    for file in files.iter().filter(ours) {
        for (number, line) in file.lines() {
            if let Some(word) = word_that_is_out(line) {
                let what = format!("{word} is out; {} has the field's word", WITH_ALL_WORDS[0]);
                findings.push(file.finding(number, what));
            }
        }
    }
    findings
}

fn word_that_is_out(line: &str) -> Option<&'static str> {
    let mut line = line.to_owned();
    for allowed in
        ALLOWED.into_iter().filter(|allowed| line.to_lowercase().contains(allowed)).collect::<Vec<_>>()
    {
        line = line.replace(allowed, " ");
    }
    let lower = line.to_lowercase();
    let phrase = PHRASES_OUT.into_iter().find(|phrase| lower.contains(phrase));
    phrase.or_else(|| {
        OUT.into_iter().find(|word| lower.contains(word) && parts(&line).any(|part| part == *word))
    })
}

/// The words of a line, and the parts of its names: `TellAll` and `tell_all` are tell and all.
fn parts(line: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(line.len() + 8);
    let mut before = ' ';
    for letter in line.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if letter.is_alphabetic() { letter } else { ' ' });
        before = letter;
    }
    spaced.to_lowercase().split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
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

    // A word that only its author understands comes back with the next change: in a comment, or in a name.
    #[test]
    fn words_that_are_out_are_found() {
        let text =
            "// Whoever comes\n// untold outstanding\nfn tell_all() {}\nstruct NewBorn;\n// a sign of life\n";
        let files = crooked(&[("a.rs", text), (WITH_ALL_WORDS[0], text)]);
        assert_eq!(positions(&words_that_are_out(&files)), ["a.rs:1", "a.rs:3", "a.rs:4"]);
    }
}
