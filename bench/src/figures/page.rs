//! The page of all figures: what is said by hand, and below it what a run gave.
//!
//! Each figure has a section of its own between two comments, so that one can be replaced and compared without the others.

use super::drawing::{Drawing, PaperClaim, Table};
use super::{Figure, all};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A page's sections by name: those of the figures, and [`PLANS`].
pub type Sections = BTreeMap<String, String>;

/// The name of the section of plans.
pub const PLANS: &str = "plans";

const HEAD: &str = include_str!("page/head.txt");
/// Where the sections of the papers begin: what is said before them is in `HEAD`.
const PAPERS: [(&str, &str); 5] = [
    ("Compartmentalization", "compartmentalization-"),
    ("FuzzyLog", "fuzzylog-"),
    ("Mason", "mason-"),
    ("RSS", "rss-"),
    ("Of our own", "txn-"),
];
const PLANS_HEAD: &str = include_str!("page/plans.txt");

fn begins(name: &str) -> String {
    format!("<!-- begin {name} -->\n")
}

fn ends(name: &str) -> String {
    format!("<!-- end {name} -->\n")
}

/// The section of a figure.
pub fn section(figure: &Figure, drawing: &Drawing) -> String {
    let mut text = format!("### {}: {}\n\n{}.\n\n", figure.source, figure.title, drawing.subtitle);
    text.push_str(&claims(&drawing.claims));
    for table in &drawing.tables {
        let _ = write!(text, "\n{}:\n\n", table.title);
        text.push_str(&rows(table));
    }
    if !figure.remarks.is_empty() {
        let _ = write!(text, "\n{}\n", figure.remarks.trim());
    }
    text
}

fn claims(claims: &[PaperClaim]) -> String {
    let row = |claim: &PaperClaim| {
        let verdict = if claim.holds { "holds".to_owned() } else { "**differs**".to_owned() };
        vec![
            claim.what.clone(),
            claim.kind.word().to_owned(),
            claim.papers(),
            claim.write(claim.ours),
            claim.condition(),
            verdict,
            claim.note.clone(),
        ]
    };
    let heads = ["claim", "kind", "paper", "here", "holds if", "verdict", ""].map(str::to_owned).to_vec();
    rows(&Table { title: String::new(), heads, rows: claims.iter().map(row).collect() })
}

/// A table as Markdown.
pub fn rows(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rule: String = table.heads.iter().map(|_| "---|").collect();
    let body: String = table.rows.iter().map(|row| line(row)).collect();
    format!("{}|{rule}\n{body}", line(&table.heads))
}

/// The whole page; the sections of all figures and of the plans are there, or the name of one that is not is the error.
///
/// # Errors
/// If a section is missing.
pub fn page(sections: &Sections) -> Result<String, String> {
    let mut text = HEAD.to_owned();
    for (paper, prefix) in PAPERS {
        let _ = write!(text, "\n## {paper}\n");
        for figure in all().iter().filter(|figure| figure.name.starts_with(prefix)) {
            text.push('\n');
            text.push_str(&between(figure.name, sections)?);
        }
    }
    let _ = write!(text, "\n{PLANS_HEAD}\n");
    text.push_str(&between(PLANS, sections)?);
    Ok(text)
}

fn between(name: &str, sections: &Sections) -> Result<String, String> {
    let section = sections.get(name).ok_or_else(|| name.to_owned())?;
    Ok(format!("{}{section}{}", begins(name), ends(name)))
}

/// The sections of a page that was written before.
pub fn sections(page: &str) -> Sections {
    let named = |name: &str| {
        let rest = page.split_once(&begins(name))?.1;
        Some((name.to_owned(), rest.split_once(&ends(name))?.0.to_owned()))
    };
    all().iter().map(|figure| figure.name).chain([PLANS]).filter_map(named).collect()
}
