//! `ordinate figures`: the papers' figures from the cost simulator.

use crate::failure::Failure;
use bench::figures::{self, Drawing, Figure, Watch};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The papers' figures, simulated
#[derive(Subcommand)]
pub enum Figures {
    /// The figures there are
    List,
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
    },
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Figures {
    /// Runs and prints.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List => {
                for figure in figures::all() {
                    println!("{:26} {:34} {}", figure.name, figure.source, figure.title);
                }
                Ok(())
            }
            Self::Run { name, out, threads } => {
                let wanted = if name == "all" { figures::all() } else { vec![named(&name)?] };
                wanted.iter().try_for_each(|figure| draw(figure, &out, threads))
            }
        }
    }
}

fn named(name: &str) -> Result<Figure, Failure> {
    Figure::named(name).ok_or_else(|| {
        let what = format!("there is no figure {name}");
        Failure::input(
            "O8001",
            what,
            "figures have names, and all means all of them",
            "ordinate figures list",
        )
    })
}

fn draw(figure: &Figure, out: &Path, threads: usize) -> Result<(), Failure> {
    let began = Instant::now();
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("  {msg:26} [{bar:30}] {pos}/{len}  {elapsed}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(figure.name);
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let failed = |fact: String| {
        let what = format!("{} was not drawn", figure.name);
        Failure::failed("O8002", what, fact, format!("ordinate figures run {}", figure.name))
    };
    let drawing = figure.draw(&Watch { progress: &progress, threads }).map_err(failed)?;
    bar.finish_and_clear();
    let files = figures::write(&drawing, figure.name, out)
        .map_err(|error| failed(format!("{}: {error}", out.display())))?;
    print(figure, &drawing, began.elapsed().as_secs_f64(), &files);
    Ok(())
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
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    println!("  {}", names.join("  "));
}
