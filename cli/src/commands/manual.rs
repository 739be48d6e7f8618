//! `ordinate version`, `ordinate completions` and `ordinate man`: what the program says of itself.

use super::output::GivenOutput;
use crate::failure::Failure;
use serde_json::json;
use std::path::PathBuf;

/// Version and commit
#[derive(clap::Args)]
pub struct Version {
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// Completions for a shell, to standard output
#[derive(clap::Args)]
pub struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// Manual pages, a file for each verb
#[derive(clap::Args)]
pub struct Man {
    /// The folder for them
    out: PathBuf,
    #[command(flatten)]
    output: GivenOutput,
}

impl Version {
    /// Prints it.
    pub fn run(self) -> Result<(), Failure> {
        let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("ORDINATE_BUILT_FROM"));
        match self.output.as_str() {
            "json" => println!("{}", json!({ "version": version, "commit": commit })),
            _ => println!("ordinate {version}   commit {commit}"),
        }
        Ok(())
    }
}

impl Completions {
    /// Prints them.
    pub fn run(self) -> Result<(), Failure> {
        let mut command = super::command();
        clap_complete::generate(self.shell, &mut command, "ordinate", &mut std::io::stdout());
        Ok(())
    }
}

impl Man {
    /// Writes them.
    pub fn run(self) -> Result<(), Failure> {
        let written = std::fs::create_dir_all(&self.out)
            .and_then(|()| clap_mangen::generate_to(super::command(), &self.out));
        written.map_err(|error| {
            let fact = format!("{}: {error}", self.out.display());
            Failure::input("O1016", "the pages cannot be written", fact, "ordinate man FOLDER")
        })?;
        let (GivenOutput(output), out) = (self.output, self.out.display());
        let words = || format!("wrote the pages to {out}; man -l {out}/ordinate.1 shows the first");
        output.print(|| json!({ "written": out.to_string() }), words);
        Ok(())
    }
}
