//! docs/figures.md is what the figures give: numbers and verdicts that a run does not give are nobody's.

use bench::figures::{self, PLANS, RunWatch, Sections};
use bench::plan::questions;

const PAGE: &str = "../docs/figures.md";
/// Each is run again in every test run. `ordinate figures run all --markdown docs/figures.md` writes the whole page again, and changes
/// nothing while it is true.
const QUICK: [&str; 7] = [
    "mason-6",
    "compartmentalization-29",
    "compartmentalization-31",
    "fuzzylog-6",
    "rss-4",
    "rss-table1",
    "rss-litmus",
];

const WATCH: RunWatch<'_> = RunWatch { progress: &|_, _| {}, threads: 2 };

fn committed() -> String {
    std::fs::read_to_string(PAGE).unwrap_or_else(|error| panic!("{PAGE}: {error}"))
}

/// Runs these figures, and compares the page that comes of it with the one that is there.
fn compare(wanted: impl Fn(&str) -> bool) {
    let page = committed();
    let known = figures::sections(&page);
    let mut sections: Sections = known.clone();
    for figure in figures::all().into_iter().filter(|figure| wanted(figure.name)) {
        let drawing = figure.draw(&WATCH).expect("a figure");
        let section = figures::section(&figure, &drawing);
        assert_eq!(
            known.get(figure.name),
            Some(&section),
            "ordinate figures run {} --markdown {PAGE}",
            figure.name
        );
        sections.insert(figure.name.to_owned(), section);
    }
    assert_eq!(figures::page(&sections).as_deref(), Ok(&*page), "ordinate figures run all --markdown {PAGE}");
}

// A page that is written by hand goes on saying what a run gave once.
#[test]
fn the_page_is_what_its_quick_figures_give() {
    compare(|name| QUICK.contains(&name));
}

// A plan for another machine, or of another program, sends people shopping.
#[test]
fn the_pages_plans_are_what_is_planned() {
    let known = figures::sections(&committed());
    let answers = questions::answers(&WATCH).expect("answers");
    assert_eq!(known.get(PLANS), Some(&answers), "ordinate figures run all --markdown {PAGE}");
}

// "Holds" beside a number that is far from the paper's is worse than no table.
#[test]
fn no_row_holds_whose_numbers_differ() {
    let number = |cell: &str| -> Option<f64> {
        let cell = cell.trim_end_matches([' ', 'u', 's', 'x']);
        let (digits, unit) = match cell.chars().last()? {
            'k' => (&cell[..cell.len() - 1], 1e3),
            'M' => (&cell[..cell.len() - 1], 1e6),
            _ => (cell, 1.0),
        };
        Some(digits.parse::<f64>().ok()? * unit)
    };
    let (mut held, mut differed) = (0, 0);
    for line in committed().lines().filter(|line| line.contains("| within ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, _, paper, here, condition, verdict, ..] = cells[..] else {
            panic!("a row without cells: {line}")
        };
        let share = condition.trim_start_matches("within ").trim_end_matches(" %");
        let share = share.parse::<f64>().expect("a share") / 100.0;
        let (paper, here) = (number(paper).expect(line), number(here).expect(line));
        // Rounded to three digits, as they are written.
        let off = (here / paper - 1.0).abs();
        let holds = verdict == "holds";
        assert!(if holds { off < share + 0.01 } else { off > share - 0.01 }, "{line}");
        (held, differed) = (held + usize::from(holds), differed + usize::from(!holds));
    }
    assert!(held > 20 && differed > 3, "{held} rows hold, {differed} differ");
}
