//! `ordinate figures`: the papers' figures from the cost simulator.

use super::output::{GivenOutput, Output};
use crate::failure::Failure;
use bench::figures::{self, Drawing, Figure, PLANS, RunWatch, Sections};
use bench::plan::questions;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use server::cluster::keys;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The papers' figures, simulated
#[derive(Subcommand)]
pub enum Figures {
    /// The figures there are
    List {
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Run one, or all, and write each as SVG, CSV and JSON
    Run {
        /// A figure's name, or all
        name: String,
        /// Where the files go
        #[arg(long, value_name = "DIR", default_value = "figures")]
        out: PathBuf,
        /// Simulations at one time
        #[arg(long, default_value_t = threads())]
        threads: usize,
        /// Write the page of all figures, with what came out. If only one figure is run, the others stay as the page has them
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
        #[command(flatten)]
        output: GivenOutput,
    },
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Figures {
    /// Runs and prints.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { output: GivenOutput(output) } => {
                for figure in figures::all() {
                    let Figure { name, source, title, .. } = &figure;
                    output.print(
                        || json!({ "figure": name, "source": source, "title": title }),
                        || format!("{name:26} {source:34} {title}"),
                    );
                }
                Ok(())
            }
            Self::Run { name, out, threads, markdown, output: GivenOutput(output) } => {
                let whole = name == "all";
                let wanted = if whole { figures::all() } else { vec![named(&name)?] };
                let mut sections = match &markdown {
                    Some(page) if !whole => known_sections(page)?,
                    Some(_) | None => Sections::new(),
                };
                for figure in &wanted {
                    sections.insert(figure.name.to_owned(), draw(figure, &out, threads, output)?);
                }
                let Some(page) = markdown else { return Ok(()) };
                if whole {
                    let answers = watched(PLANS, threads, questions::answers)?;
                    sections.insert(PLANS.to_owned(), answers);
                }
                write_page(&page, &sections, output)
            }
        }
    }
}

/// The sections of a page that was written before.
fn known_sections(page: &Path) -> Result<Sections, Failure> {
    let text = std::fs::read_to_string(page).map_err(|error| {
        let remedy = format!("ordinate figures run all --markdown {}", page.display());
        Failure::input("O8008", "there is no page to put this figure into", error.to_string(), remedy)
    })?;
    Ok(figures::sections(&text))
}

fn write_page(page: &Path, sections: &Sections, output: Output) -> Result<(), Failure> {
    let remedy = format!("ordinate figures run all --markdown {}", page.display());
    let text = figures::page(sections).map_err(|missing| {
        let fact = format!("the page has no section {missing}");
        Failure::input("O8008", "there is no page to put this figure into", fact, remedy.clone())
    })?;
    std::fs::write(page, text).map_err(|error| {
        Failure::failed("O8002", "the page was not written", format!("{}: {error}", page.display()), remedy)
    })?;
    let page = page.display().to_string();
    output.print(|| json!({ "page": page }), || page.clone());
    Ok(())
}

fn named(name: &str) -> Result<Figure, Failure> {
    Figure::named(name).ok_or_else(|| {
        let what = format!("there is no figure {name}");
        let near = keys::nearest(name, figures::all().iter().map(|figure| figure.name));
        let fact = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "figures have names, and all means all of them".to_owned(),
        };
        Failure::input("O8001", what, fact, "ordinate figures list")
    })
}

/// Runs with a bar that says how far it is.
fn watched<T>(
    name: &str,
    threads: usize,
    run: impl FnOnce(&RunWatch<'_>) -> Result<T, String>,
) -> Result<T, Failure> {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("  {msg:26} [{bar:30}] {pos}/{len}  {elapsed}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(name.to_owned());
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let result = run(&RunWatch { progress: &progress, threads }).map_err(|fact| not_drawn(name, fact))?;
    bar.finish_and_clear();
    Ok(result)
}

fn not_drawn(name: &str, fact: String) -> Failure {
    Failure::failed("O8002", format!("{name} was not drawn"), fact, format!("ordinate figures run {name}"))
}

/// Draws it, and returns its section of the page.
fn draw(figure: &Figure, out: &Path, threads: usize, output: Output) -> Result<String, Failure> {
    let began = Instant::now();
    let drawing = watched(figure.name, threads, |watch| figure.draw(watch))?;
    let files = figures::write(&drawing, figure.name, out)
        .map_err(|error| not_drawn(figure.name, format!("{}: {error}", out.display())))?;
    let seconds = began.elapsed().as_secs_f64();
    match output {
        Output::Table => print(figure, &drawing, seconds, &files),
        Output::Json => println!("{}", as_json(figure, &drawing, seconds, &files)),
    }
    Ok(figures::section(figure, &drawing))
}

fn as_json(figure: &Figure, drawing: &Drawing, seconds: f64, files: &[PathBuf]) -> Value {
    let claims = drawing.claims.iter().map(|claim| {
        json!({ "claim": claim.what, "paper": claim.papers(), "here": claim.ours, "holds": claim.holds,
            "note": claim.note })
    });
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    json!({ "figure": figure.name, "source": figure.source, "title": drawing.title, "seconds": seconds,
        "claims": claims.collect::<Vec<_>>(), "files": files })
}

fn print(figure: &Figure, drawing: &Drawing, seconds: f64, files: &[PathBuf]) {
    println!("{}  {} ({seconds:.1} s)", figure.source, drawing.title);
    println!("  {:58} {:>9} {:>9}", "claim", "paper", "here");
    for claim in &drawing.claims {
        let verdict = if claim.holds { "holds" } else { "DIFFERS" };
        let note = if claim.note.is_empty() { String::new() } else { format!("  {}", claim.note) };
        let (what, paper, here) = (&claim.what, claim.papers(), claim.write(claim.ours));
        println!("  {what:58} {paper:>9} {here:>9}  {verdict:7}  {:10}{note}", claim.kind.word());
    }
    for table in &drawing.tables {
        println!("  {}", table.title);
        println!("  {}", table.heads.join("  "));
        for row in &table.rows {
            println!("  {}", row.join("  "));
        }
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    println!("  {}", names.join("  "));
}
