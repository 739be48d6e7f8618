//! Failures as people read them: what happened, the measured fact, one command to run, a stable code.

use std::fmt;
use std::process::ExitCode;

/// How a command of this program ends; the same codes for every verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It failed.
    Failed = 1,
    /// The input is wrong: flags, files, addresses.
    BadInput = 2,
    /// Nobody answers at the address.
    Unreachable = 4,
}

/// One failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Stable, for scripts and searches.
    pub code: &'static str,
    /// In the user's terms, with the object's name.
    pub what: String,
    /// What was found.
    pub fact: String,
    /// What to type.
    pub remedy: String,
    /// The exit code.
    pub exit: Exit,
}

impl Failure {
    /// A failure by wrong input.
    pub fn input(
        code: &'static str,
        what: impl Into<String>,
        fact: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { code, what: what.into(), fact: fact.into(), remedy: remedy.into(), exit: Exit::BadInput }
    }

    /// A failure of the operation.
    pub fn failed(
        code: &'static str,
        what: impl Into<String>,
        fact: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { exit: Exit::Failed, ..Self::input(code, what, fact, remedy) }
    }

    /// Nobody answers.
    pub fn unreachable(address: &str, fact: impl Into<String>) -> Self {
        let what = format!("no host answers at {address}");
        let remedy =
            "ordinate status --admin ADDRESS  (the [listen] section of the cluster file has the address)";
        Self { exit: Exit::Unreachable, ..Self::input("O4001", what, fact, remedy) }
    }

    /// Prints it and gives the exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("{self}");
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.what)?;
        if !self.fact.is_empty() {
            write!(f, "\n  {}", self.fact)?;
        }
        if !self.remedy.is_empty() {
            write!(f, "\n  -> {}", self.remedy)?;
        }
        Ok(())
    }
}
