//! What a figure holds: panels with their series, and the paper's claims beside ours.

use serde::Serialize;
use std::fmt::Write as _;

/// A whole figure.
#[derive(Clone, Debug, Serialize)]
pub struct Drawing {
    /// Its title.
    pub title: String,
    /// Where it comes from, and on which machines.
    pub subtitle: String,
    /// Its panels, from left to right.
    pub panels: Vec<Panel>,
    /// What the paper claims, and what came out here.
    pub claims: Vec<PaperClaim>,
    /// What was measured beside it.
    pub tables: Vec<Table>,
}

/// One pair of axes.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// The names of the bars, where there are bars.
    pub bars: Vec<String>,
}

/// One axis.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Axis {
    /// What it shows.
    pub label: &'static str,
    /// How its numbers are written.
    pub unit: Unit,
    /// Powers are equally far apart.
    pub logarithmic: bool,
}

/// How numbers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Unit {
    /// Commands a second: 150k, 1.2M.
    PerSecond,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
    /// A count.
    Count,
    /// A share of all, as 1, 0.1, 0.01.
    Share,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum LineStyle {
    /// What was simulated.
    Ours,
    /// What the paper says, in so many words or numbers.
    Paper,
    /// Bars.
    Bars,
}

/// Points that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub line: LineStyle,
    /// Which colour of the palette.
    pub colour: usize,
    /// The points.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// What it was measured with, or by what it was bound.
    pub note: String,
}

/// How a claim's numbers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum NumberFormat {
    /// Commands a second.
    Rate,
    /// So many times as much.
    Ratio,
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Parts of a hundred.
    Percent,
    /// A count.
    Count,
}

/// How far a rate, a ratio or a span of seconds may be from the paper's.
pub const TOLERANCE: f64 = 0.1;
/// The same of a latency: the papers read theirs off a curve at a load that they choose.
pub const LATENCY_TOLERANCE: f64 = 0.25;

/// What a claim's agreement is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// The figure was given it: agreement says nothing.
    Input,
    /// The machines' profile was solved for this number: agreement says that the equations were solved.
    Fit,
    /// It follows from the protocols and the profile, and was looked at afterwards.
    Prediction,
}

impl ClaimKind {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            ClaimKind::Input => "input",
            ClaimKind::Fit => "fit",
            ClaimKind::Prediction => "prediction",
        }
    }
}

/// Where our number has to lie for a claim to hold.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum AcceptedRange {
    /// No further from the paper's number than this share of it.
    Within(f64),
    /// Not below this.
    AtLeast(f64),
    /// Not above this.
    AtMost(f64),
    /// Not below the first, nor above the second.
    Between(f64, f64),
    /// No further from the paper's number than this.
    Around(f64),
}

/// A claim of the paper beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct PaperClaim {
    /// What is claimed.
    pub what: String,
    /// The paper's number; none where it gives a figure and no number.
    pub paper: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// How the numbers are written.
    pub number: NumberFormat,
    /// Where ours has to lie.
    pub accepted: AcceptedRange,
    /// True if it lies there. A number that is merely better than the paper's does not.
    pub holds: bool,
    /// What that is worth.
    pub kind: ClaimKind,
    /// Why it differs, where it does.
    pub note: String,
}

/// Panels have pictures; this is for what a picture does not show.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The names of its columns.
    pub heads: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

impl Axis {
    /// An axis with equal steps.
    pub const fn linear(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, logarithmic: false }
    }

    /// An axis with equal powers.
    pub const fn logarithmic(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, logarithmic: true }
    }
}

impl Series {
    /// What was simulated.
    pub fn ours(name: impl Into<String>, colour: usize, points: Vec<Point>) -> Self {
        Self { name: name.into(), line: LineStyle::Ours, colour, points }
    }

    /// The same in the paper.
    pub fn paper(name: impl Into<String>, colour: usize, points: &[(f64, f64)]) -> Self {
        let points = points.iter().map(|&(x, y)| Point { x, y, note: String::new() }).collect();
        Self { name: name.into(), line: LineStyle::Paper, colour, points }
    }

    /// The highest of its points.
    pub fn highest(&self) -> f64 {
        self.points.iter().map(|point| point.y).fold(0.0, f64::max)
    }

    /// The rightmost of its points.
    pub fn furthest(&self) -> f64 {
        self.points.iter().map(|point| point.x).fold(0.0, f64::max)
    }
}

impl AcceptedRange {
    fn takes(self, paper: Option<f64>, ours: f64) -> bool {
        match self {
            Self::Within(share) => paper.is_some_and(|paper| (ours - paper).abs() <= share * paper.abs()),
            Self::AtLeast(least) => ours >= least,
            Self::AtMost(most) => ours <= most,
            Self::Between(least, most) => (least..=most).contains(&ours),
            Self::Around(span) => paper.is_some_and(|paper| (ours - paper).abs() <= span),
        }
    }
}

impl PaperClaim {
    fn new(
        what: String,
        paper: Option<f64>,
        ours: f64,
        number: NumberFormat,
        accepted: AcceptedRange,
    ) -> Self {
        let holds = accepted.takes(paper, ours);
        Self { what, paper, ours, number, accepted, holds, kind: ClaimKind::Prediction, note: String::new() }
    }

    /// Commands a second, near the paper's.
    pub fn rate(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self::new(what.into(), Some(paper), ours, NumberFormat::Rate, AcceptedRange::Within(TOLERANCE))
    }

    /// A ratio near the paper's.
    pub fn ratio(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self::new(what.into(), Some(paper), ours, NumberFormat::Ratio, AcceptedRange::Within(TOLERANCE))
    }

    /// A latency near the paper's, in microseconds.
    pub fn micros(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self::new(
            what.into(),
            Some(paper),
            ours,
            NumberFormat::Micros,
            AcceptedRange::Within(LATENCY_TOLERANCE),
        )
    }

    /// Seconds, near the paper's.
    pub fn seconds(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self::new(what.into(), Some(paper), ours, NumberFormat::Seconds, AcceptedRange::Within(TOLERANCE))
    }

    /// A share in percent, no further from the paper's than so many points.
    pub fn percent(what: impl Into<String>, paper: f64, ours: f64, points: f64) -> Self {
        Self::new(what.into(), Some(paper), ours, NumberFormat::Percent, AcceptedRange::Around(points))
    }

    /// Milliseconds, and where they have to lie.
    pub fn millis(what: impl Into<String>, paper: f64, ours: f64, accepted: AcceptedRange) -> Self {
        Self::new(what.into(), Some(paper), ours, NumberFormat::Millis, accepted)
    }

    /// A count that is the paper's.
    pub fn count(what: impl Into<String>, paper: usize, ours: usize) -> Self {
        Self::new(
            what.into(),
            Some(paper as f64),
            ours as f64,
            NumberFormat::Count,
            AcceptedRange::Within(0.0),
        )
    }

    /// A shape that the paper shows without a number: a ratio, and where it has to lie.
    pub fn shape(what: impl Into<String>, ours: f64, accepted: AcceptedRange) -> Self {
        Self::new(what.into(), None, ours, NumberFormat::Ratio, accepted)
    }

    /// Of this kind, and not a prediction.
    #[must_use]
    pub fn of(self, kind: ClaimKind) -> Self {
        Self { kind, ..self }
    }

    /// Explained.
    #[must_use]
    pub fn because(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// A number of this claim as people write it.
    pub fn write(&self, number: f64) -> String {
        match self.number {
            NumberFormat::Rate => Unit::PerSecond.write(to_three_digits(number)),
            NumberFormat::Ratio => format!("{number:.2}x"),
            NumberFormat::Micros => format!("{number:.0} us"),
            NumberFormat::Seconds => format!("{number:.2} s"),
            NumberFormat::Millis => format!("{number:.0} ms"),
            NumberFormat::Percent => format!("{number:.0} %"),
            NumberFormat::Count => format!("{number:.0}"),
        }
    }

    /// What the paper says.
    pub fn papers(&self) -> String {
        self.paper.map_or_else(|| "shape".to_owned(), |number| self.write(number))
    }

    /// When it holds.
    pub fn condition(&self) -> String {
        match self.accepted {
            AcceptedRange::Within(0.0) => "equal".to_owned(),
            AcceptedRange::Within(share) => format!("within {:.0} %", share * 100.0),
            AcceptedRange::Around(span) => format!("at most {} off", self.write(span)),
            AcceptedRange::AtLeast(least) => format!("{} or more", self.write(least)),
            AcceptedRange::AtMost(most) => format!("{} or less", self.write(most)),
            AcceptedRange::Between(least, most) => format!("{} to {}", self.write(least), self.write(most)),
        }
    }

    /// Whether it does.
    pub fn verdict(&self) -> &'static str {
        if self.holds { "holds" } else { "differs" }
    }
}

/// Rounded to what a simulation is good for.
fn to_three_digits(number: f64) -> f64 {
    if number <= 0.0 {
        return number;
    }
    let unit = 10f64.powi(number.log10().floor() as i32 - 2);
    (number / unit).round() * unit
}

impl Drawing {
    /// Every point on a line.
    pub fn csv(&self) -> String {
        let mut text = "panel,series,source,x,y,note\n".to_owned();
        for panel in &self.panels {
            for series in &panel.series {
                let source = if series.line == LineStyle::Paper { "paper" } else { "ordinate" };
                for point in &series.points {
                    let (panel, name, note) =
                        (quoted(&panel.title), quoted(&series.name), quoted(&point.note));
                    let _ = writeln!(text, "{panel},{name},{source},{},{},{note}", point.x, point.y);
                }
            }
        }
        text
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

impl Unit {
    /// A number as people write it.
    pub fn write(self, number: f64) -> String {
        let short = |number: f64| {
            let text = format!("{number:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match self {
            Self::PerSecond if number >= 1e6 => format!("{}M", short(number / 1e6)),
            Self::PerSecond if number >= 1e3 => format!("{}k", short(number / 1e3)),
            Self::PerSecond | Self::Millis | Self::Micros | Self::Seconds | Self::Count => short(number),
            Self::Share => format!("{number}"),
        }
    }
}
