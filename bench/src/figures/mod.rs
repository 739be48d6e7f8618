//! The papers' figures: each runs its deployments, draws what they gave beside what the paper says, and compares claims.

mod atomic_map;
mod breakdown;
mod compartmentalization;
mod drawing;
mod fuzzylog;
mod mason;
mod measure;
mod page;
mod rss;
mod rss_scripts;
mod services;
mod svg;
mod transactions;

pub use drawing::{
    AcceptedRange, Axis, ClaimKind, Drawing, LATENCY_TOLERANCE, LineStyle, NumberFormat, Panel, PaperClaim,
    Point, Series, TOLERANCE, Table, Unit,
};
pub use measure::RunWatch;
pub use page::{PLANS, Sections, page, rows, section, sections};

use std::path::{Path, PathBuf};

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub name: &'static str,
    /// The paper, and the figure's number there.
    pub source: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What is said below it: why numbers differ, and what else was tried.
    remarks: &'static str,
    draw: fn(&RunWatch<'_>) -> Result<Drawing, String>,
}

/// All figures, in the order of the papers.
pub fn all() -> Vec<Figure> {
    let mut figures = [mason::FIGURES, services::FIGURES].concat();
    figures.sort_by_key(|figure| figure.name);
    figures.extend(compartmentalization::FIGURES);
    figures.extend(fuzzylog::FIGURES);
    figures.extend(atomic_map::FIGURES);
    let mut rss = [rss::FIGURES, rss_scripts::FIGURES].concat();
    rss.sort_by_key(|figure| figure.name);
    figures.extend(rss);
    figures.extend(transactions::FIGURES);
    figures
}

impl Figure {
    /// The figure of this name.
    pub fn named(name: &str) -> Option<Figure> {
        all().into_iter().find(|figure| figure.name == name)
    }

    /// Runs its deployments.
    ///
    /// # Errors
    /// If a deployment does not come up.
    pub fn draw(&self, watch: &RunWatch<'_>) -> Result<Drawing, String> {
        (self.draw)(watch)
    }
}

/// Writes a drawing as `NAME.svg`, `NAME.csv` and `NAME.json`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(drawing: &Drawing, name: &str, folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let json = serde_json::to_string_pretty(drawing).map_err(std::io::Error::other)?;
    let files = [("svg", svg::render(drawing)), ("csv", drawing.csv()), ("json", json + "\n")];
    let mut written = Vec::new();
    for (ending, text) in files {
        let path = folder.join(format!("{name}.{ending}"));
        std::fs::write(&path, text)?;
        written.push(path);
    }
    Ok(written)
}
