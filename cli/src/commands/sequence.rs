//! `ordinate sequence`: numbers that are contiguous in every space, from the command line.

use super::kv::{Endpoint, Output};
use crate::failure::Failure;
use clap::Subcommand;
use ordinate_client::CallError;
use serde_json::{Map, Value, json};

/// The sequence: contiguous numbers, in one order over all spaces
#[derive(Subcommand)]
pub enum Sequence {
    /// Take the next number of each space, at one position in the order of all
    Next {
        /// Names of spaces, separated by commas (sequence.spaces of the cluster file)
        #[arg(long, value_delimiter = ',', required = true)]
        spaces: Vec<String>,
        /// How many positions
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        count: u32,
        /// What they are for; the spaces remember it
        #[arg(long, default_value = "")]
        label: String,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
}

/// Calls in flight at a time.
const IN_FLIGHT_MAX: u32 = 1000;

impl Sequence {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let Self::Next { spaces, count, label, output, endpoint } = self;
        let (spaces, label, endpoint_of) = (&spaces, label.as_bytes(), &endpoint);
        endpoint.with_sequence(|sequence| async move {
            let mut left = count;
            while left > 0 {
                let now = left.min(IN_FLIGHT_MAX);
                left -= now;
                let calls: Vec<_> = (0..now).map(|_| sequence.next(spaces, label)).collect();
                for call in calls {
                    let position = call.await.map_err(|error| explain(endpoint_of, spaces, &error))?;
                    let numbers = spaces.iter().zip(&position.numbers);
                    match output {
                        Output::Table => {
                            let words: Vec<String> =
                                numbers.map(|(name, number)| format!("{name} {number}")).collect();
                            println!("{}", words.join("   "));
                        }
                        Output::Json => {
                            let numbers: Map<String, Value> =
                                numbers.map(|(name, number)| (name.clone(), json!(number))).collect();
                            println!("{}", json!({ "gsn": position.gsn, "numbers": numbers }));
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// A failed call in the user's terms.
fn explain(endpoint: &Endpoint, spaces: &[String], error: &CallError) -> Failure {
    match error {
        CallError::Refused | CallError::Invalid(_) => Failure::input(
            "O1002",
            format!("no number was taken of {}", spaces.join(", ")),
            error.to_string(),
            "ordinate config explain sequence.spaces  (a space must be in that list, and be given once)",
        ),
        CallError::TimedOut(_)
        | CallError::NotSent(_)
        | CallError::TurnedAway { .. }
        | CallError::MaybeExecuted
        | CallError::Conflict
        | CallError::DiskFull
        | CallError::NotGranted
        | CallError::Busy
        | CallError::Unreadable(_)
        | CallError::Off(_)
        | CallError::Closed => endpoint.explain(error),
    }
}
