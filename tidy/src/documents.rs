//! Documents that agree with the code: links, error codes, metrics.

use crate::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// The page that operators read.
const OPERATIONS: &str = "docs/operations.md";
const METRICS: &str = "server/src/admin/metrics.rs";

/// Metrics of the host are written in one file, those of services where they report their status.
fn has_metrics(file: &File) -> bool {
    let of_services = file.path.starts_with("server/src/services/");
    let of_a_part = [METRICS, "server/src/latency.rs", "server/src/secure.rs", "server/src/trace/mod.rs"]
        .contains(&&*file.path);
    of_a_part
        || file.path.starts_with("server/src/access/")
        || (of_services
            && ["/status.rs", "/mason.rs", "/series.rs", "/regions.rs"].iter().any(|end| file.is(end)))
}

/// Links between files of the repository lead somewhere.
pub fn links(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in file.lines() {
            for target in targets(line) {
                let path = target.split('#').next().unwrap_or("");
                if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                    continue;
                }
                let wanted = resolve(folder, path);
                let found =
                    files.iter().any(|it| it.path == wanted || it.path.starts_with(&format!("{wanted}/")));
                if !found {
                    findings.push(file.finding(number, format!("the link to {path} leads nowhere")));
                }
            }
        }
    }
    findings
}

/// The file or folder of the tree that a page names in backticks is there.
pub fn named_files(files: &[File]) -> Vec<Finding> {
    let top: BTreeSet<&str> = files.iter().filter_map(|it| it.path.split_once('/').map(|it| it.0)).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is(".md") && file.path.starts_with("docs/")) {
        for (number, line) in file.lines() {
            // Every other part stands between backticks.
            for named in line.split('`').skip(1).step_by(2) {
                let is_path =
                    named.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"/._-".contains(&letter));
                let begins = named.split_once('/').is_some_and(|(first, _)| top.contains(first));
                let wanted = named.trim_end_matches('/');
                let inside = format!("{wanted}/");
                let found = || files.iter().any(|it| it.path == wanted || it.path.starts_with(&inside));
                if is_path && begins && !found() {
                    findings.push(file.finding(number, format!("{named} is not in the tree")));
                }
            }
        }
    }
    findings
}

/// The longest line of a page, in columns.
const COLUMNS_MAX: usize = 100;
/// This page is written by a program.
const GENERATED: &str = "docs/figures.md";

/// Lines of pages wrap, but for tables, code and words that cannot be broken.
pub fn wide_lines(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is(".md") && file.path != GENERATED) {
        let mut is_code = false;
        for (number, line) in file.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let text = line.trim_start();
            let bound = is_code || text.starts_with(['|', '`', '<', '#']) || !text.contains(' ');
            if !bound && line.chars().count() > COLUMNS_MAX {
                findings.push(file.finding(number, format!("longer than {COLUMNS_MAX} columns")));
            }
        }
    }
    findings
}

/// What stands between `](` and `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, opening)| line[at + opening.len()..].split(')').next())
}

fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Every error code is explained to operators, and nothing else is.
pub fn error_codes(files: &[File]) -> Vec<Finding> {
    let speaks = |file: &&File| {
        ["server/src/", "cli/src/", "consistency/src/cli/"].iter().any(|it| file.path.starts_with(it))
    };
    let used = files.iter().filter(|file| speaks(file) && file.is(".rs"));
    let used: Vec<_> = used.flat_map(|file| found(file, code_in_quotes)).collect();
    let explained: Vec<_> = files
        .iter()
        .filter(|file| file.path == OPERATIONS)
        .flat_map(|file| found(file, code_of_a_row))
        .collect();
    compare(&used, &explained, "error code")
}

/// Every metric is listed for operators, and nothing else is.
pub fn metrics(files: &[File]) -> Vec<Finding> {
    let exported = files.iter().filter(|file| has_metrics(file)).flat_map(|file| found(file, metric_in_code));
    let exported: Vec<_> = exported.collect();
    let listed =
        files.iter().filter(|file| file.path == OPERATIONS).flat_map(|file| found(file, metric_of_a_row));
    compare(&exported, &listed.collect::<Vec<_>>(), "metric")
}

/// The dashboard and the alerts ask for metrics that exist.
pub fn dashboard(files: &[File]) -> Vec<Finding> {
    let pages = files.iter().filter(|file| file.path == OPERATIONS);
    let listed: Vec<&str> =
        pages.flat_map(|page| page.text.lines()).filter_map(whole_name_of_a_row).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("deploy/") && !file.is(".service")) {
        for (number, line) in file.lines() {
            let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let ours = words.filter(|word| word.starts_with("ordinate_") || word.starts_with("process_"));
            for name in ours.filter(|name| !name.ends_with("_info")) {
                let of_a_histogram =
                    ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
                if !listed.contains(&of_a_histogram.unwrap_or(name)) {
                    findings.push(file.finding(number, format!("no metric {name} is in {OPERATIONS}")));
                }
            }
        }
    }
    findings
}

/// `| ordinate_messages_in_total | ...`, with what a counter ends with.
fn whole_name_of_a_row(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| `")?.split('`').next()?;
    cell.split('{').next().filter(|name| name.starts_with("ordinate_") || name.starts_with("process_"))
}

type Found<'a> = (String, &'a File, usize);

fn found(file: &File, name_in: fn(&str) -> Option<&str>) -> Vec<Found<'_>> {
    file.lines().filter_map(|(number, line)| Some((name_in(line)?.to_owned(), file, number))).collect()
}

/// Names that only the code or only the page has; names that the page has twice.
fn compare(code: &[Found<'_>], page: &[Found<'_>], kind: &str) -> Vec<Finding> {
    let by_name = |positions: &[Found<'_>]| -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        positions.iter().for_each(|(name, _, _)| *counts.entry(name.clone()).or_insert(0) += 1);
        counts
    };
    let (in_code, in_page) = (by_name(code), by_name(page));
    let missing = code.iter().filter(|(name, _, _)| !in_page.contains_key(name));
    let mut findings: Vec<Finding> = missing
        .map(|(name, file, line)| file.finding(*line, format!("{kind} {name} is not in {OPERATIONS}")))
        .collect();
    let stale = page.iter().filter(|(name, _, _)| !in_code.contains_key(name));
    findings.extend(stale.map(|(name, file, line)| file.finding(*line, format!("no {kind} {name} exists"))));
    let twice = page.iter().filter(|(name, _, _)| in_page[name] > 1);
    findings.extend(
        twice.map(|(name, file, line)| file.finding(*line, format!("{kind} {name} is listed twice"))),
    );
    findings
}

/// `"O2001"`
fn code_in_quotes(line: &str) -> Option<&str> {
    let quoted = line.split('"').skip(1).step_by(2);
    let mut codes = quoted.filter(|text| is_code(text));
    codes.next()
}

fn is_code(text: &str) -> bool {
    let digits = text.strip_prefix('O').unwrap_or("");
    digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `| O2001 | ...`
fn code_of_a_row(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| ")?.split(" |").next()?.trim();
    is_code(cell).then_some(cell)
}

/// `("messages_in", "Messages from ...`, the tables and calls of the metrics page.
fn metric_in_code(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let calls =
        ["counters_by(&mut page, ", "page.counter", "page.gauge", "page.histogram", "let (name, help) = "];
    let called = calls.iter().find_map(|start| line.strip_prefix(start));
    let line = called.map_or(line, |rest| {
        rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase() || letter == '_')
    });
    let line = line.strip_prefix('(').unwrap_or(line);
    let (name, after) = line.strip_prefix('"')?.split_once('"')?;
    // In a table, what follows a metric's name is its help; what follows a label's is a value.
    let is_metric = called.is_some() || after == "," || after.starts_with(", \"");
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    (is_metric && is_name).then_some(name)
}

/// `| ordinate_messages_in_total | ...`
fn metric_of_a_row(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| `ordinate_")?.split('`').next()?;
    let cell = cell.split('{').next()?;
    Some(cell.strip_suffix("_total").unwrap_or(cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    // A dead link ends the reader's way.
    #[test]
    fn dead_links_are_found() {
        let page = "[a](b.md) [c](../src/c.rs)\n[d](e.md#f) [g](#h) [i](https://example.net/j)\n";
        let files = crooked(&[("docs/a.md", page), ("docs/b.md", ""), ("src/c.rs", "")]);
        assert_eq!(positions(&links(&files)), ["docs/a.md:2"]);
    }

    // A reader who opens a file that has moved on is lost.
    #[test]
    fn files_that_are_not_there_are_found() {
        let page = "`src/c.rs`, `src/` and `else/d.rs`\n`src/e.rs`\n`src/<name>`\n";
        let files = crooked(&[("docs/a.md", page), ("src/c.rs", "")]);
        assert_eq!(positions(&named_files(&files)), ["docs/a.md:2"]);
    }

    // A page whose lines run off the screen is not read.
    #[test]
    fn wide_lines_are_found() {
        let (wide, cell) = ("word ".repeat(21), format!("| {} |", "word ".repeat(30)));
        let page = format!("short\n{wide}\n{cell}\n```\n{wide}\n```\n{wide}\n");
        let files = crooked(&[("docs/a.md", &page), (GENERATED, &page)]);
        assert_eq!(positions(&wide_lines(&files)), ["docs/a.md:2", "docs/a.md:7"]);
    }

    // A code that nobody explains, or an explanation of a code that nobody meets, misleads at the worst moment.
    #[test]
    fn codes_and_page_are_compared() {
        let code = "x(\n\"O1000\", \"O\");\ny(\"O1001\")\n";
        let page = "| code | meaning |\n| O1001 | one |\n| O1002 | two |\n| O1001 | again |\n";
        let files = crooked(&[("server/src/a.rs", code), (OPERATIONS, page)]);
        let found =
            ["server/src/a.rs:2", "docs/operations.md:3", "docs/operations.md:2", "docs/operations.md:4"];
        assert_eq!(positions(&error_codes(&files)), found);
    }

    // An alert on a metric that does not exist never fires.
    #[test]
    fn metrics_and_page_are_compared() {
        let code =
            "(\"fsyncs\", \"Times\", 1),\n(\n\"keys\",\ncounters_by(&mut page, \"drops\", \"reason\",\n";
        let page = "| `ordinate_fsyncs_total` | x |\n| `ordinate_drops_total{reason}` | x |\n| `ordinate_leads` | x |\n";
        let of_service = "page.gauge_of(\"sessions\", \"Open\", 1.0);\n";
        let status = "server/src/services/kv/status.rs";
        let files = crooked(&[(METRICS, code), (status, of_service), (OPERATIONS, page)]);
        let found = [format!("{METRICS}:3"), format!("{status}:1"), format!("{OPERATIONS}:3")];
        assert_eq!(positions(&metrics(&files)), found);
    }

    // A panel that asks for a metric that was renamed is empty, and looks like peace.
    #[test]
    fn panels_without_a_metric_are_found() {
        let page = "| `ordinate_fsyncs_total` | x |\n| `ordinate_took_seconds{of}` | x |\n";
        let board = "\"rate(ordinate_fsyncs_total[1m])\"\n\"ordinate_fsyncs\"\n\"ordinate_took_seconds_bucket{le=\\\"1\\\"}\"\n\"process_x\"\n\"ordinate_info\"\n";
        let files = crooked(&[("deploy/board.json", board), (OPERATIONS, page)]);
        assert_eq!(positions(&dashboard(&files)), ["deploy/board.json:2", "deploy/board.json:4"]);
    }
}
