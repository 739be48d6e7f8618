//! One page: the reasons, and beside them a picture of the operations over time. No network, no script.

use super::arrows::{self, NUMBER};
use super::layout::{BAR, BAR_TOP, LABEL_GAP, Layout, NAMES};
use crate::explain::operation_line;
use crate::history::{History, OpIndex};
use crate::terms::Fate;
use crate::witness::Witness;
use std::io::{self, Write};

/// Operations drawn at most; those nearest to the witness in time come first.
const DRAWN_MAX: usize = 400;
/// Up to so many operations, all have labels.
const LABELLED_MAX: usize = 60;

/// Writes a page with the history (or the part around the witness) and the reasons, in light and dark. With a witness
/// only its operations are drawn at first; a switch draws all processes.
pub fn write_html<W: Write>(
    history: &History,
    title: &str,
    witness: Option<&Witness>,
    out: &mut W,
) -> io::Result<()> {
    let title = escaped(title);
    writeln!(out, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>")?;
    writeln!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style><h1>{title}</h1>"
    )?;
    let involved = witness.map_or(&[][..], |witness| &witness.operations);
    let around = around(history, involved);
    let Some(witness) = witness else {
        writeln!(out, "<p>No violation.</p><div class=\"picture\">")?;
        picture(history, "all", &around, None, out)?;
        hidden(history, &around, out)?;
        return writeln!(out, "</div></html>");
    };
    writeln!(out, "<p class=\"bad\">{}</p>", escaped(&witness.summary))?;
    let switch = around.len() > involved.len() && !involved.is_empty();
    if switch {
        writeln!(out, "<input type=\"checkbox\" id=\"all\"><label for=\"all\">all processes</label>")?;
    }
    writeln!(out, "<main><ol>")?;
    for sentence in &witness.sentences {
        writeln!(out, "<li>{}</li>", escaped(sentence))?;
    }
    writeln!(out, "</ol>")?;
    if !involved.is_empty() {
        writeln!(out, "<div class=\"picture cycle\">")?;
        picture(history, "cycle", involved, Some(witness), out)?;
        writeln!(out, "</div>")?;
    }
    if switch || involved.is_empty() {
        writeln!(out, "<div class=\"picture{}\">", if switch { " everything" } else { "" })?;
        picture(history, "all", &around, Some(witness), out)?;
        hidden(history, &around, out)?;
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</main></html>")
}

/// The operations nearest to the involved ones, in the order of the history.
fn around(history: &History, involved: &[OpIndex]) -> Vec<OpIndex> {
    let invoked = |op: &OpIndex| history.operations()[op.at()].invoke.0;
    let mut drawn: Vec<OpIndex> = (0..history.operations().len() as u32).map(OpIndex).collect();
    if drawn.len() > DRAWN_MAX {
        let times: Vec<u64> = involved.iter().map(invoked).collect();
        let near = |op: &OpIndex| times.iter().map(|time| time.abs_diff(invoked(op))).min().unwrap_or(0);
        drawn.sort_by_key(|op| (!involved.contains(op), near(op), *op));
        drawn.truncate(DRAWN_MAX);
        drawn.sort_unstable();
    }
    drawn
}

fn hidden<W: Write>(history: &History, drawn: &[OpIndex], out: &mut W) -> io::Result<()> {
    match history.operations().len() - drawn.len() {
        0 => Ok(()),
        more => writeln!(out, "<p>{more} more operations are not drawn.</p>"),
    }
}

fn picture<W: Write>(
    history: &History,
    name: &str,
    drawn: &[OpIndex],
    witness: Option<&Witness>,
    out: &mut W,
) -> io::Result<()> {
    let involved = |op: OpIndex| witness.is_some_and(|witness| witness.operations.contains(&op));
    let left = NAMES + witness.map_or(0, |witness| arrows::room(history, witness));
    let layout = Layout::of(history, drawn, left, |op| involved(op) || drawn.len() <= LABELLED_MAX);
    let (width, height) = (layout.width, layout.height);
    // A small picture is not blown up, a wide one is scaled down to half and scrolls from there.
    writeln!(
        out,
        "<svg viewBox=\"0 0 {width} {height}\" style=\"width:100%;max-width:{width}px;min-width:{}px\" role=\"img\" \
         aria-label=\"operations over time\">",
        width / 2
    )?;
    // A head that stands in a hidden picture is not drawn, so each picture has its own.
    for head in ["tip", "sent"] {
        writeln!(
            out,
            "<defs><marker id=\"{head}-{name}\" markerWidth=\"9\" markerHeight=\"8\" refX=\"8\" refY=\"4\" \
             orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" class=\"{head}\"/></marker></defs>"
        )?;
    }
    for (process, top) in &layout.lanes {
        let y = top + BAR_TOP + BAR / 2;
        writeln!(out, "<line class=\"lane\" x1=\"90\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>")?;
        writeln!(out, "<text x=\"4\" y=\"{}\">{process}</text>", y + 4)?;
    }
    bars(history, &layout, involved, out)?;
    messages(history, name, &layout, out)?;
    for bar in layout.bars.values().filter(|bar| !bar.label.is_empty()) {
        let (x, y) = (bar.right + LABEL_GAP, bar.top + BAR_TOP + BAR - 5);
        writeln!(out, "<text class=\"label\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(&bar.label))?;
    }
    let arrows = witness.map_or(Vec::new(), |witness| arrows::of(&layout, witness));
    for arrow in &arrows {
        let points: Vec<String> = arrow.points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let (points, sentence) = (points.join(" "), escaped(arrow.sentence));
        writeln!(
            out,
            "<polyline class=\"edge\" points=\"{points}\" marker-end=\"url(#tip-{name})\"><title>{sentence}</title></polyline>"
        )?;
    }
    for arrow in &arrows {
        let ((x, y), number) = (arrow.number_at, arrow.number);
        let below = y + 4;
        writeln!(out, "<circle class=\"number\" cx=\"{x}\" cy=\"{y}\" r=\"{NUMBER}\"/>")?;
        writeln!(out, "<text class=\"number\" x=\"{x}\" y=\"{below}\">{number}</text>")?;
    }
    writeln!(out, "</svg>")
}

fn bars<W: Write>(
    history: &History,
    layout: &Layout,
    involved: impl Fn(OpIndex) -> bool,
    out: &mut W,
) -> io::Result<()> {
    for bar in layout.bars.values() {
        let operation = &history.operations()[bar.op.at()];
        let fate = match operation.fate {
            Fate::Ok => "",
            Fate::Fail => " failed",
            Fate::Unknown => " unknown",
        };
        let hot = if involved(bar.op) { " hot" } else { "" };
        writeln!(
            out,
            "<rect class=\"op{hot}{fate}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"3\">\
             <title>{} ({})</title></rect>",
            bar.left,
            bar.top + BAR_TOP,
            bar.right - bar.left,
            escaped(&operation_line(history, bar.op)),
            operation.fate.word(),
        )?;
    }
    Ok(())
}

fn messages<W: Write>(history: &History, name: &str, layout: &Layout, out: &mut W) -> io::Result<()> {
    let middle = |top: &usize| top + BAR_TOP + BAR / 2;
    for send in history.messages().iter().filter(|event| event.sent) {
        let receipts = history.messages().iter().filter(|event| !event.sent && event.message == send.message);
        for receipt in receipts {
            let lanes = (layout.lanes.get(&send.process), layout.lanes.get(&receipt.process));
            if let (Some(from), Some(to)) = lanes {
                writeln!(
                    out,
                    "<line class=\"message\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" marker-end=\"url(#sent-{name})\"/>",
                    layout.x(send.at),
                    middle(from),
                    layout.x(receipt.at),
                    middle(to),
                )?;
            }
        }
    }
    Ok(())
}

const STYLE: &str = "body{font:14px sans-serif;margin:1em 1.5em;color-scheme:light dark}h1{font-size:18px;margin:0}\
main{display:grid;grid-template-columns:minmax(18em,2fr) 5fr;gap:1.5em}ol{margin:0;padding-left:1.6em}li{margin:0 0 .4em}\
.picture{overflow-x:auto}.everything,#all:checked~main .cycle{display:none}#all:checked~main .everything{display:block}\
#all:checked~main{grid-template-columns:1fr}@media(max-width:60em){main{grid-template-columns:1fr}}\
svg{font-size:11px;max-height:calc(100vh - 8em)}#all:checked~main svg{max-height:none}text{fill:CanvasText}\
.lane{stroke:#8885}.op{fill:#69c8;stroke:#357}.hot{fill:#e96c;stroke:#b30;stroke-width:1.5}\
.failed{fill:none;stroke:#888}.unknown{stroke-dasharray:4 3}.message{stroke:#2a7;stroke-dasharray:5 3}.sent{fill:#2a7}\
polyline.edge{fill:none;stroke:#b30;stroke-width:1.4;stroke-linejoin:round}.tip{fill:#b30}.bad{color:#b30;margin:.5em 0}\
.label{paint-order:stroke;stroke:Canvas;stroke-width:4px}circle.number{fill:#b30}\
text.number{fill:#fff;text-anchor:middle;font-weight:bold}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
