//! One page, one picture: processes as lanes, operations as bars, the witness on top. No network, no script.

use crate::explain::operation_line;
use crate::history::{History, OpIndex};
use crate::terms::{Fate, Process, Time};
use crate::witness::Witness;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Operations drawn at most; those nearest to the witness in time come first.
const DRAWN_MAX: usize = 400;
const LANE: usize = 44;
const LEFT: usize = 110;
const WIDTH: usize = 1180;

struct Picture {
    drawn: Vec<OpIndex>,
    lanes: BTreeMap<Process, usize>,
    from: u64,
    until: u64,
}

impl Picture {
    fn of(history: &History, witness: Option<&Witness>) -> Picture {
        let operation = |op: &OpIndex| &history.operations()[op.at()];
        let mut drawn: Vec<OpIndex> = (0..history.operations().len() as u32).map(OpIndex).collect();
        if drawn.len() > DRAWN_MAX {
            let involved: Vec<OpIndex> = witness.map_or(Vec::new(), |witness| witness.operations.clone());
            let times: Vec<u64> = involved.iter().map(|op| operation(op).invoke.0).collect();
            let near = |op: &OpIndex| {
                times.iter().map(|time| time.abs_diff(operation(op).invoke.0)).min().unwrap_or(0)
            };
            drawn.sort_by_key(|op| (!involved.contains(op), near(op), *op));
            drawn.truncate(DRAWN_MAX);
            drawn.sort_unstable();
        }
        let mut lanes = BTreeMap::new();
        for op in &drawn {
            lanes.entry(operation(op).process).or_insert(0);
        }
        lanes.values_mut().enumerate().for_each(|(at, lane)| *lane = at);
        let from = drawn.iter().map(|op| operation(op).invoke.0).min().unwrap_or(0);
        let ends = drawn.iter().map(|op| match operation(op).complete {
            Time::NEVER => operation(op).invoke.0,
            at => at.0,
        });
        let until = ends.max().unwrap_or(1).max(from + 1);
        Picture { drawn, lanes, from, until }
    }

    fn x(&self, at: Time) -> usize {
        let span = (self.until - self.from) as f64;
        let share = (at.0.clamp(self.from, self.until) - self.from) as f64 / span;
        LEFT + (share * (WIDTH - LEFT - 20) as f64) as usize
    }

    fn y(&self, process: Process) -> usize {
        40 + LANE * self.lanes.get(&process).copied().unwrap_or(0)
    }
}

/// Writes a page with the history (or the part around the witness) and the reasons, in light and dark.
pub fn write_html<W: Write>(
    history: &History,
    title: &str,
    witness: Option<&Witness>,
    out: &mut W,
) -> io::Result<()> {
    let picture = Picture::of(history, witness);
    let title = escaped(title);
    writeln!(out, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>")?;
    writeln!(out, "<style>{STYLE}</style><h1>{title}</h1>")?;
    match witness {
        None => writeln!(out, "<p>No violation.</p>")?,
        Some(witness) => {
            writeln!(out, "<p class=\"bad\">{}</p><ol>", escaped(&witness.summary))?;
            for sentence in &witness.sentences {
                writeln!(out, "<li>{}</li>", escaped(sentence))?;
            }
            writeln!(out, "</ol>")?;
        }
    }
    let height = 60 + LANE * picture.lanes.len();
    writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"operations over time\">")?;
    writeln!(
        out,
        "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"3\" orient=\"auto\">\
         <path d=\"M0,0 L7,3 L0,6 z\" class=\"tip\"/></marker></defs>"
    )?;
    for process in picture.lanes.keys() {
        let y = picture.y(*process) + 15;
        writeln!(out, "<line class=\"lane\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>")?;
        writeln!(out, "<text x=\"4\" y=\"{y}\">{process}</text>")?;
    }
    bars(history, &picture, witness, out)?;
    messages(history, &picture, out)?;
    if let Some(witness) = witness {
        arrows(history, &picture, witness, out)?;
    }
    let hidden = history.operations().len() - picture.drawn.len();
    writeln!(
        out,
        "<text x=\"4\" y=\"{}\">{} to {}; {hidden} more operations not drawn</text>",
        height - 6,
        picture.from,
        picture.until
    )?;
    writeln!(out, "</svg></html>")
}

fn bars<W: Write>(
    history: &History,
    picture: &Picture,
    witness: Option<&Witness>,
    out: &mut W,
) -> io::Result<()> {
    for op in &picture.drawn {
        let operation = &history.operations()[op.at()];
        let (x, y) = (picture.x(operation.invoke), picture.y(operation.process));
        let end = if operation.complete == Time::NEVER { WIDTH } else { picture.x(operation.complete) };
        let involved = witness.is_some_and(|witness| witness.operations.contains(op));
        let class = match (involved, operation.fate) {
            (true, _) => "op hot",
            (false, Fate::Ok) => "op",
            (false, Fate::Fail) => "op failed",
            (false, Fate::Unknown) => "op unknown",
        };
        let line = escaped(&operation_line(history, *op));
        let width = end.saturating_sub(x).max(4);
        writeln!(
            out,
            "<g><title>{line} ({})</title><rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"24\" \
             rx=\"3\"/>",
            operation.fate.word(),
        )?;
        if involved || picture.drawn.len() <= 60 {
            let what = line.split_once("): ").map_or("", |(_, what)| what);
            let short: String = what.chars().take(40).collect();
            writeln!(out, "<text x=\"{}\" y=\"{}\">T{} {short}</text>", x + 3, y + 16, op.0)?;
        }
        writeln!(out, "</g>")?;
    }
    Ok(())
}

fn messages<W: Write>(history: &History, picture: &Picture, out: &mut W) -> io::Result<()> {
    for send in history.messages().iter().filter(|event| event.sent) {
        let receipts = history.messages().iter().filter(|event| !event.sent && event.message == send.message);
        for receipt in receipts {
            let known =
                picture.lanes.contains_key(&send.process) && picture.lanes.contains_key(&receipt.process);
            let inside = send.at.0 >= picture.from && receipt.at.0 <= picture.until;
            if known && inside {
                writeln!(
                    out,
                    "<line class=\"message\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" marker-end=\"url(#tip)\"/>",
                    picture.x(send.at),
                    picture.y(send.process) + 15,
                    picture.x(receipt.at),
                    picture.y(receipt.process) + 15,
                )?;
            }
        }
    }
    Ok(())
}

fn arrows<W: Write>(history: &History, picture: &Picture, witness: &Witness, out: &mut W) -> io::Result<()> {
    for (number, reason) in witness.cycle.iter().enumerate() {
        let (before, after) =
            (&history.operations()[reason.before.at()], &history.operations()[reason.after.at()]);
        let from = if before.complete == Time::NEVER { before.invoke } else { before.complete };
        let (x1, y1) = (picture.x(from), picture.y(before.process) + 12);
        let (x2, y2) = (picture.x(after.invoke), picture.y(after.process) + 12);
        let (bend_x, bend_y) = ((x1 + x2) / 2, (y1 + y2) / 2 + 18);
        writeln!(
            out,
            "<path class=\"edge\" d=\"M{x1},{y1} Q{bend_x},{bend_y} {x2},{y2}\" marker-end=\"url(#tip)\"><title>{}</title>\
             </path><text class=\"edge\" x=\"{bend_x}\" y=\"{bend_y}\">{}</text>",
            escaped(&reason.sentence),
            number + 1,
        )?;
    }
    Ok(())
}

const STYLE: &str = "body{font:14px sans-serif;margin:1.5em;color-scheme:light dark}svg{width:100%;font-size:11px}\
text{fill:CanvasText}.lane{stroke:#8886}.op{fill:#69c8;stroke:#357}.hot{fill:#e96c;stroke:#b30;stroke-width:2}\
.failed{fill:none;stroke:#888}.unknown{fill:#69c3;stroke:#357;stroke-dasharray:4 3}\
.message{stroke:#2a7;stroke-dasharray:5 3}path.edge{fill:none;stroke:#b30;stroke-width:1.6}.tip{fill:#b30}.bad{color:#b30}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
