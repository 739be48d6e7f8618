//! How much a reader has to hold at once: the lines of code of a file, and of a function.

use crate::{File, Finding};

/// Lines of code of a file, unless its head says why it has more.
const FILE_LINES_MAX: usize = 500;
/// Lines of code of a function, unless it is a table.
const FUNCTION_LINES_MAX: usize = 70;
/// In the head of a longer file, before the reason.
const REASON: &str = "//! Long: ";
/// In the comment above a longer function, before what it lists.
const TABLE: &str = "Table: ";

fn sources(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.is(".rs"))
}

/// A module that is compiled for tests alone, beside the one that it tests.
fn is_tests(file: &File) -> bool {
    file.path.contains("/src/") && file.is("/tests.rs")
}

/// Neither blank nor a comment.
fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// No file has more code than can be read at once, without saying why. Tests at the bottom do not count, nor a module of tests.
pub fn long_files(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in sources(files).filter(|file| !is_tests(file)) {
        let mut code =
            file.lines().take_while(|(_, line)| *line != "mod tests {").filter(|(_, line)| is_code(line));
        let is_explained = file
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .any(|line| line.strip_prefix(REASON).is_some_and(|reason| !reason.trim().is_empty()));
        if let Some((number, _)) = code.nth(FILE_LINES_MAX).filter(|_| !is_explained) {
            let lines = FILE_LINES_MAX + 1 + code.count();
            findings.push(file.finding(number, format!("{lines} lines of code, more than {FILE_LINES_MAX}")));
        }
    }
    findings
}

/// No function has more code than can be read at once, but for tables.
pub fn long_functions(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in sources(files) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, name) in lines.iter().enumerate().filter_map(|(at, line)| Some((at, function(line)?))) {
            let code = lines[at..=end(&lines, at)].iter().filter(|line| is_code(line)).count();
            if code > FUNCTION_LINES_MAX && !is_table(&lines[..at]) {
                let what = format!("{name} has {code} lines of code, more than {FUNCTION_LINES_MAX}");
                findings.push(file.finding(at + 1, what));
            }
        }
    }
    findings
}

/// The name of the function that begins in this line.
fn function(line: &str) -> Option<&str> {
    const BEFORE: [&str; 7] = ["pub", "const", "async", "unsafe", "extern", "default", "\"C\""];
    let (before, after) = line.split_once("fn ")?;
    let mut before = before.split_whitespace();
    let is_declared =
        before.all(|word| BEFORE.contains(&word) || word.starts_with("pub(") || word.ends_with(')'));
    let end = after.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'))?;
    (is_declared && end > 0).then(|| &after[..end])
}

/// The last line of the function that begins at `at`. The code is formatted: a body closes as far in as it began.
fn end(lines: &[&str], at: usize) -> usize {
    let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
    let mut ahead = lines.iter().enumerate().skip(at);
    match ahead.find(|(_, line)| line.ends_with(['{', '}', ';'])) {
        Some((_, line)) if line.ends_with('{') => {
            ahead.find(|(_, line)| line.strip_prefix(indent) == Some("}")).map_or(at, |(end, _)| end)
        }
        Some((end, _)) => end,
        None => at,
    }
}

/// True if the comment or the attributes just above say that it is a table.
fn is_table(above: &[&str]) -> bool {
    let near = above.iter().rev().map(|line| line.trim_start());
    near.take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.trim_start_matches('/').trim_start().starts_with(TABLE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A bound that is off by one, or counts comments and tests, would refuse or admit the wrong files.
    #[test]
    fn long_files_are_found() {
        let (head, code) = ("//! x\n\n", "x();\n".repeat(500));
        let comments = "    // why\n\n".repeat(300);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        let fits = format!("{head}{comments}{code}");
        let tested = format!("{fits}{tests}").replacen("#[cfg(test)]\n", "", 1);
        let explained = format!("//! x\n//! Long: one table.\n{code}y();\n");
        let unexplained = format!("//! x\n//! Long: \n{code}y();\n");
        let exceeds = format!("{fits}y();\nz();\n");
        let files = crooked(&[
            ("a.rs", &fits),
            ("b.rs", &tested),
            ("c.rs", &explained),
            ("d.rs", &unexplained),
            ("e.rs", &exceeds),
            ("f.py", &exceeds),
            ("a/src/b/tests.rs", &exceeds),
        ]);
        let findings = long_files(&files);
        assert_eq!(positions(&findings), ["d.rs:503", "e.rs:1103"]);
        assert_eq!(findings[1].what, "502 lines of code, more than 500");
    }

    // A function that is missed for its signature, or that swallows its neighbour, makes the rule a matter of luck.
    #[test]
    fn long_functions_are_found() {
        let body = "        x();\n".repeat(68);
        let fits = format!("    fn fits() {{\n        // why\n\n{body}    }}\n");
        let exceeds = format!("    pub(crate) async fn exceeds(\n        &self,\n    ) {{\n{body}    }}\n");
        let declared = "    fn declared(\n        &self,\n    ) -> u64;\n    const fn short() {}\n";
        let table = format!(
            "    /// Names.\n    /// Table: of names.\n    #[inline]\n{}",
            exceeds.replace("exceeds", "table")
        );
        let text = format!("//! fn x\nimpl A {{\n{declared}{fits}{exceeds}{table}{declared}{fits}}}\n");
        let findings = long_functions(&crooked(&[("a.rs", &text)]));
        assert_eq!(positions(&findings), ["a.rs:79"]);
        assert_eq!(findings[0].what, "exceeds has 72 lines of code, more than 70");
    }
}
