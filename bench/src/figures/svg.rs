//! Drawings as SVG: for a page or a talk, without a library.

use super::drawing::{Axis, Drawing, LineStyle, Panel, PaperClaim, Series};
use std::fmt::Write as _;

/// Distinguished by people who see colours differently (Okabe and Ito).
const PALETTE: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"];
const INK: &str = "#1f2328";
const PALE: &str = "#6b7280";
const GRID: &str = "#e6e8eb";
const FONT: &str = "font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif\"";

const PANEL_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 330.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const HEAD: f64 = 84.0;
const TOP: f64 = 40.0;
const LEGEND_ROW: f64 = 21.0;
const CLAIM_ROW: f64 = 20.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A span of numbers and where they are drawn.
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    length: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn over(numbers: impl Iterator<Item = f64> + Clone, axis: Axis, start: f64, length: f64) -> Self {
        let highest = numbers.clone().fold(0.0, f64::max).max(1e-9);
        if axis.logarithmic {
            let lowest = numbers.filter(|&number| number > 0.0).fold(highest, f64::min);
            let (from, to) = (lowest.log10().floor(), (highest * 1.05).log10().ceil());
            let to = to.max(from + 1.0);
            let ticks = (from as i32..=to as i32).map(|power| 10f64.powi(power)).collect();
            return Self { from, to, start, length, logarithmic: true, ticks };
        }
        let step = step_of(highest);
        let count = (highest * 0.9999 / step).ceil();
        let ticks = (0..=count as u32).map(|tick| f64::from(tick) * step).collect();
        Self { from: 0.0, to: count * step, start, length, logarithmic: false, ticks }
    }

    fn position(&self, number: f64) -> f64 {
        let number = if self.logarithmic { number.max(1e-12).log10() } else { number };
        self.start + (number - self.from) / (self.to - self.from) * self.length
    }
}

/// A step of 1, 2, 2.5 or 5 times a power of ten that makes about five ticks.
fn step_of(highest: f64) -> f64 {
    let rough = highest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|&step| step >= rough).unwrap_or(10.0 * power)
}

struct Canvas(String);

impl Canvas {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(element);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, style: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" {style}>{text}</text>"
        ));
    }
}

/// The whole drawing.
pub(super) fn render(drawing: &Drawing) -> String {
    let width = (PANEL_WIDTH * drawing.panels.len() as f64).max(PANEL_WIDTH * 2.0);
    let panel_width = width / drawing.panels.len().max(1) as f64;
    let legends = drawing.panels.iter().map(legend_rows).max().unwrap_or(0) as f64;
    let claims_at = HEAD + TOP + PLOT_HEIGHT + 62.0 + legends * LEGEND_ROW;
    let claims = drawing.claims.len() as f64;
    let height = claims_at + if claims > 0.0 { 34.0 + claims * CLAIM_ROW } else { 0.0 } + 16.0;
    let mut canvas = Canvas(String::new());
    canvas.add(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" {FONT} fill=\"{INK}\">"
    ));
    canvas.add(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
    canvas.text(28.0, 38.0, 21.0, "start", "font-weight=\"600\"", &drawing.title);
    canvas.text(28.0, 62.0, 13.5, "start", &format!("fill=\"{PALE}\""), &drawing.subtitle);
    for (index, panel) in drawing.panels.iter().enumerate() {
        draw_panel(&mut canvas, panel, index as f64 * panel_width, panel_width);
    }
    draw_claims(&mut canvas, &drawing.claims, claims_at, width);
    canvas.0.push_str("</svg>\n");
    canvas.0
}

fn legend_rows(panel: &Panel) -> usize {
    let named = panel.series.iter().filter(|series| !series.name.is_empty()).count();
    if panel.bars.is_empty() || named > 1 { named.div_ceil(2) } else { 0 }
}

fn draw_panel(canvas: &mut Canvas, panel: &Panel, left: f64, width: f64) {
    let (x0, y0) = (left + LEFT, HEAD + TOP + PLOT_HEIGHT);
    let plot_width = width - LEFT - RIGHT;
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let y = Scale::over(points().map(|point| point.y), panel.y, 0.0, PLOT_HEIGHT);
    canvas.text(left + LEFT, HEAD + 18.0, 14.5, "start", "font-weight=\"600\"", &panel.title);
    for &tick in &y.ticks {
        let at = y0 - y.position(tick);
        canvas.add(format_args!(
            "<line x1=\"{x0:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{GRID}\"/>",
            x0 + plot_width
        ));
        let label = panel.y.unit.write(tick);
        canvas.text(x0 - 9.0, at + 4.0, 12.0, "end", &format!("fill=\"{PALE}\""), &label);
    }
    let (label_x, label_y) = (left + 20.0, y0 - PLOT_HEIGHT / 2.0);
    let turned = format!("fill=\"{PALE}\" transform=\"rotate(-90 {label_x:.1} {label_y:.1})\"");
    canvas.text(label_x, label_y, 12.5, "middle", &turned, panel.y.label);
    if panel.bars.is_empty() {
        let x = Scale::over(points().map(|point| point.x), panel.x, x0, plot_width);
        for &tick in &x.ticks {
            let at = x.position(tick);
            canvas.text(
                at,
                y0 + 19.0,
                12.0,
                "middle",
                &format!("fill=\"{PALE}\""),
                &panel.x.unit.write(tick),
            );
        }
        canvas.text(
            x0 + plot_width / 2.0,
            y0 + 41.0,
            12.5,
            "middle",
            &format!("fill=\"{PALE}\""),
            panel.x.label,
        );
        for series in &panel.series {
            draw_line(canvas, series, &x, &y, y0);
        }
    } else {
        draw_bars(canvas, panel, &y, x0, y0, plot_width);
    }
    canvas.add(format_args!(
        "<line x1=\"{x0:.1}\" x2=\"{:.1}\" y1=\"{y0:.1}\" y2=\"{y0:.1}\" stroke=\"{PALE}\"/>",
        x0 + plot_width
    ));
    draw_legend(canvas, panel, x0, y0 + 62.0, plot_width);
}

fn colour(series: &Series) -> &'static str {
    PALETTE[series.colour % PALETTE.len()]
}

fn draw_line(canvas: &mut Canvas, series: &Series, x: &Scale, y: &Scale, y0: f64) {
    let colour = colour(series);
    let positions: Vec<(f64, f64)> =
        series.points.iter().map(|point| (x.position(point.x), y0 - y.position(point.y))).collect();
    let path: Vec<String> = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashes = if series.line == LineStyle::Paper { " stroke-dasharray=\"2 5\"" } else { "" };
    canvas.add(format_args!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.4\" \
         stroke-linejoin=\"round\" stroke-linecap=\"round\"{dashes}/>",
        path.join(" ")
    ));
    let many = positions.len() > 60;
    for (point, (x, y)) in series.points.iter().zip(positions).filter(|_| !many) {
        let (fill, radius) = if series.line == LineStyle::Paper { ("white", 4.6) } else { (colour, 3.8) };
        let note = escape(&point.note);
        canvas.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"1.8\"><title>{note}</title></circle>"
        ));
    }
}

fn draw_bars(canvas: &mut Canvas, panel: &Panel, y: &Scale, x0: f64, y0: f64, width: f64) {
    let slot = width / panel.bars.len().max(1) as f64;
    let rows = panel.series.len().max(1) as f64;
    let bar = (slot * 0.74 / rows).min(44.0);
    for (row, series) in panel.series.iter().enumerate() {
        let colour = colour(series);
        for point in &series.points {
            let middle = x0 + (point.x + 0.5) * slot;
            let left = middle + (row as f64 - rows / 2.0) * bar;
            let high = y.position(point.y);
            let (fill, dashes) = match series.line {
                LineStyle::Paper => ("white", " stroke-dasharray=\"3 3\""),
                LineStyle::Ours | LineStyle::Bars => (colour, ""),
            };
            canvas.add(format_args!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\" rx=\"2\" fill=\"{fill}\" \
                 stroke=\"{colour}\" stroke-width=\"1.4\"{dashes}><title>{}</title></rect>",
                left + 1.0,
                y0 - high,
                bar - 2.0,
                escape(&point.note)
            ));
            let label = panel.y.unit.write((point.y / 1e3).round() * 1e3);
            let size = if slot < 60.0 { 8.0 } else { 10.5 };
            canvas.text(
                left + bar / 2.0,
                y0 - high - 5.0,
                size,
                "middle",
                &format!("fill=\"{PALE}\""),
                &label,
            );
        }
    }
    for (index, name) in panel.bars.iter().enumerate() {
        let middle = x0 + (index as f64 + 0.5) * slot;
        for (row, word) in name.split('\n').enumerate() {
            let at = y0 + 17.0 + 13.0 * row as f64;
            canvas.text(middle, at, 10.5, "middle", &format!("fill=\"{PALE}\""), word);
        }
    }
}

fn draw_legend(canvas: &mut Canvas, panel: &Panel, x0: f64, top: f64, width: f64) {
    if legend_rows(panel) == 0 {
        return;
    }
    for (index, series) in panel.series.iter().filter(|series| !series.name.is_empty()).enumerate() {
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        let (x, y) = (x0 + column * width / 2.0, top + row * LEGEND_ROW);
        let colour = colour(series);
        let dashes = if series.line == LineStyle::Paper { " stroke-dasharray=\"2 4\"" } else { "" };
        canvas.add(format_args!(
            "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"3\" stroke-linecap=\"round\"{dashes}/>",
            x + 22.0
        ));
        canvas.text(x + 30.0, y + 4.5, 12.5, "start", "", &series.name);
    }
}

fn draw_claims(canvas: &mut Canvas, claims: &[PaperClaim], top: f64, width: f64) {
    if claims.is_empty() {
        return;
    }
    let columns = [28.0, width * 0.42, width * 0.51, width * 0.54];
    let style = format!("fill=\"{PALE}\" font-weight=\"600\"");
    let heads = [("claim", "start"), ("paper", "end"), ("here", "end"), ("", "start")];
    for (column, (head, anchor)) in columns.iter().zip(heads) {
        canvas.text(*column, top + 12.0, 12.0, anchor, &style, head);
    }
    for (row, claim) in claims.iter().enumerate() {
        let y = top + 34.0 + row as f64 * CLAIM_ROW;
        canvas.text(columns[0], y, 12.5, "start", "", &claim.what);
        canvas.text(columns[1], y, 12.5, "end", "", &claim.papers());
        canvas.text(columns[2], y, 12.5, "end", "font-weight=\"600\"", &claim.write(claim.ours));
        let (mark, colour) = (claim.verdict(), if claim.holds { "#1a7f37" } else { "#9a6700" });
        let kind = claim.kind.word();
        let mark = match claim.note.as_str() {
            "" => format!("{mark} ({kind})"),
            note => format!("{mark} ({kind}): {note}"),
        };
        canvas.text(columns[3], y, 12.0, "start", &format!("fill=\"{colour}\""), &mark);
    }
}
