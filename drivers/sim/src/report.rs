//! What a failing seed prints.

use crate::class::Injections;
use crate::outcome::Outcome;
use crate::words;
use std::fmt::Write as _;

/// What the report of a violation needs beside the run.
#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    /// The commit of the code, as it is to be printed.
    pub commit: &'a str,
    /// Where the plan of the run was saved.
    pub plan_file: Option<&'a str>,
    /// Where the history was saved.
    pub history_file: Option<&'a str>,
    /// What there was before shrinking.
    pub shrunk: Option<Before>,
}

/// A run before it was shrunk.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// How many faults it had.
    pub faults: usize,
    /// How many operations it had.
    pub operations: usize,
    /// How long shrinking took, in seconds of a core.
    pub seconds: f64,
}

/// The text of a violation; `None` if the run broke nothing.
pub fn report(outcome: &Outcome, about: &Report<'_>) -> Option<String> {
    let violation = outcome.violation.as_ref()?;
    let seed = outcome.seed;
    let mut text = format!(
        "VIOLATION {}/{} at step {} (t = {:.3} s)  seed {seed}",
        outcome.family,
        violation.invariant,
        grouped(violation.step),
        violation.at as f64 / 1e9,
    );
    if !about.commit.is_empty() {
        let _ = write!(text, "  commit {}", about.commit);
    }
    let _ = write!(
        text,
        "\n  {}\n  faults in this run: {}",
        words::plain(&violation.what, &outcome.names),
        faults(&outcome.injections)
    );
    if let Some(Before { faults, operations, seconds }) = about.shrunk {
        let (now, retained) =
            (&outcome.plan.faults, outcome.plan.retained.as_ref().map_or(operations, Vec::len));
        let _ = write!(
            text,
            "  (shrunk from {faults} events to {}, from {operations} operations to {retained}, in {seconds:.0} s of a core)",
            now.len()
        );
        now.iter().for_each(|fault| {
            let _ = write!(text, "\n    {}", words::of_fault(fault, outcome.strikes));
        });
        for begun in outcome.plan.retained.iter().flatten() {
            let (at, it) = (begun.at as f64 / 1e9, begun.operation);
            let _ = write!(text, "\n    at {at:.6} s client {} begins its operation {}", it.client, it.nth);
        }
    }
    let _ = write!(text, "\n  reproduce: ordinate sim run {} --seed {seed}", outcome.family);
    if let Some(file) = about.plan_file {
        let _ = write!(text, " --shrunk {file}");
    }
    if let Some(file) = about.history_file {
        let _ = write!(text, "     history: {file}");
    }
    let classes: Vec<_> = outcome.swarm.classes.iter().map(|class| class.name()).collect();
    let _ = write!(text, "\n  drawn: {:?}; classes {}", outcome.swarm.latency, classes.join(" "));
    for line in &outcome.last {
        let host = line.host.map_or(String::new(), |host| format!("{host:?} "));
        let _ = write!(
            text,
            "\n  {:>8}  {:>10.6} s  {host}{}",
            line.step,
            line.at as f64 / 1e9,
            words::plain(&line.text, &outcome.names)
        );
    }
    text.push('\n');
    Some(text)
}

fn faults(injections: &Injections) -> String {
    let counts: Vec<_> = injections.iter().map(|(class, count)| format!("{count} {class}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// A number with a comma every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // A misplaced comma makes a step impossible to find.
    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1000, 48_213, 1_234_567].map(grouped),
            ["0", "999", "1,000", "48,213", "1,234,567"]
        );
    }
}
