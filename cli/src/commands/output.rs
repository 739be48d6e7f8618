//! How results are printed: `--output`, which every verb has that prints any.

use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

/// How results are printed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For programs: a value, or one a line where there are several
    Json,
}

impl Output {
    /// Prints a result.
    pub fn print(self, json: impl FnOnce() -> Value, words: impl FnOnce() -> String) {
        match self {
            Self::Table => println!("{}", words()),
            Self::Json => println!("{}", json()),
        }
    }

    /// Says what came of a command whose output is elsewhere: to people on standard error.
    pub fn say(self, json: impl FnOnce() -> Value, words: impl FnOnce() -> String) {
        match self {
            Self::Table => eprintln!("{}", words()),
            Self::Json => println!("{}", json()),
        }
    }

    /// Whether programs read it.
    pub fn is_json(self) -> bool {
        self == Self::Json
    }
}

/// The flag, where [`with_output`] has added it.
const FLAG: &str = "output";
/// They print no results: a prompt, the log of a host, a script.
const WITHOUT: [&str; 3] = ["demo", "serve", "completions"];

/// What was given with the flag, for verbs that do not define it themselves.
#[derive(Clone, Copy, Default)]
pub struct GivenOutput(pub Output);

impl clap::FromArgMatches for GivenOutput {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.try_get_one::<Output>(FLAG).ok().flatten().copied().unwrap_or_default()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for GivenOutput {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// The command, and all verbs below it, with the flag where it is not there yet.
pub fn with_output(command: Command) -> Command {
    if WITHOUT.contains(&command.get_name()) || command.get_arguments().any(|arg| arg.get_id() == FLAG) {
        return command;
    }
    // A noun that wants a verb prints nothing itself.
    let prints = !command.has_subcommands() || !command.is_subcommand_required_set();
    let command = command.mut_subcommands(with_output);
    if !prints {
        return command;
    }
    let parser = EnumValueParser::<Output>::new();
    let flag = Arg::new(FLAG).short('o').long("output").value_parser(parser);
    command.arg(flag.default_value("table").help("Output"))
}
