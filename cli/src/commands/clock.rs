//! `ordinate clock`: which sources bound this machine's clock, how well, and what a host would take.

use super::kv::Output;
use crate::failure::Failure;
use runtime::{ClockError, ClockSource, ClockSurvey, survey};
use serde_json::{Value, json};
use std::time::Duration;

/// Measure how well this machine knows the time
#[derive(clap::Args)]
pub struct ShowClock {
    /// How long to measure, in seconds
    #[arg(long, default_value = "3", value_parser = super::seconds)]
    seconds: Duration,
    /// Output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// An error up to which a commit that waits it out costs about what an fsync does.
const GOOD: Duration = Duration::from_millis(1);
const SURVEY_MAX: Duration = Duration::from_secs(600);

impl ShowClock {
    /// Prints it; fails if no source works.
    pub fn run(self) -> Result<(), Failure> {
        let survey = survey(self.seconds.min(SURVEY_MAX));
        match self.output {
            Output::Table => print_table(&survey),
            Output::Json => println!("{}", as_json(&survey)),
        }
        verdict(&survey).map(|text| {
            if let Output::Table = self.output {
                println!("{text}");
            }
        })
    }
}

fn errors_of(survey: &ClockSurvey, source: ClockSource) -> Result<&[Duration], String> {
    match survey.found.get(source.name()) {
        Some(Ok(errors)) => Ok(errors),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("{source} was not read")),
    }
}

/// The smallest error that as large a part of the readings, of 0 to 1, does not exceed.
fn quantile(errors: &[Duration], part: f64) -> Duration {
    let mut sorted = errors.to_vec();
    sorted.sort_unstable();
    let rank = (part * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn print_table(survey: &ClockSurvey) {
    println!("{:<12}{:>12}{:>12}   readings", "source", "p50", "p99");
    for source in ClockSource::MEASURING {
        match errors_of(survey, source) {
            Ok(errors) => {
                let [median, most] = [0.5, 0.99].map(|part| words_of(quantile(errors, part)));
                println!("{:<12}{median:>12}{most:>12}   {}", source.name(), errors.len());
            }
            Err(why) => {
                let why = why.strip_prefix(&format!("{source}: ")).unwrap_or(&why);
                println!("{:<12}{:>12}{:>12}   {why}", source.name(), "-", "-");
            }
        }
    }
    println!("auto takes  {}", survey.auto.map_or("none", ClockSource::name));
}

fn words_of(error: Duration) -> String {
    match error.as_micros() {
        micros @ 0..10_000 => format!("{micros} us"),
        micros => format!("{:.1} ms", micros as f64 / 1e3),
    }
}

fn as_json(survey: &ClockSurvey) -> Value {
    let of = |source: ClockSource| match errors_of(survey, source) {
        Ok(errors) => {
            let [median, most] = [0.5, 0.99].map(|part| quantile(errors, part).as_nanos() as u64);
            json!({ "source": source.name(), "p50_ns": median, "p99_ns": most, "readings": errors.len() })
        }
        Err(why) => json!({ "source": source.name(), "error": why }),
    };
    json!({ "sources": ClockSource::MEASURING.map(of), "auto": survey.auto.map(ClockSource::name) })
}

/// What to think of it, or what to do.
fn verdict(survey: &ClockSurvey) -> Result<String, Failure> {
    let Some(auto) = survey.auto else {
        let complaint = match survey.found.get(ClockSource::Kernel.name()) {
            Some(Err(error @ ClockError::Unsynchronised { .. })) => error.to_string(),
            Some(Err(_) | Ok(_)) | None => "no source says how far it is off".to_owned(),
        };
        return Err(unusable(complaint));
    };
    let most = errors_of(survey, auto).map_or(Duration::ZERO, |errors| quantile(errors, 0.99));
    let text = words_of(most);
    Ok(if most <= GOOD {
        format!("verdict     good: what waits the error out waits {text}")
    } else if auto == ClockSource::Kernel {
        format!(
            "verdict     usable, and wide: what waits the error out waits {text}\n  -> run chrony (with minpoll 0 maxpoll 4), which knows more than the kernel does"
        )
    } else {
        format!(
            "verdict     usable: what waits the error out waits {text}\n  -> give chrony a server that is nearer (chronyc sources), or the machine's PTP clock"
        )
    })
}

/// The failure of what needs a clock on this machine.
pub fn unusable(fact: impl Into<String>) -> Failure {
    Failure::failed("O2115", "the clock of this machine is not usable", fact, REMEDY)
}

/// What makes it usable.
pub const REMEDY: &str = "start chrony (systemctl enable --now chronyd), and look again with: ordinate clock";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn surveyed(kernel: Result<Vec<Duration>, ClockError>, auto: Option<ClockSource>) -> ClockSurvey {
        let absent = |of| Err(ClockError::Unreadable { of, fact: "not there".to_owned() });
        let found = BTreeMap::from([
            ("clockbound", absent("clockbound")),
            ("chrony", absent("chrony")),
            ("kernel", kernel),
        ]);
        ClockSurvey { found, auto }
    }

    // A verdict by the best reading praises a clock that is bad once a second.
    #[test]
    fn the_verdict_is_by_the_worst_of_a_hundred_readings() {
        let mut errors = vec![Duration::from_micros(200); 98];
        let good = verdict(&surveyed(Ok(errors.clone()), Some(ClockSource::Kernel))).expect("it works");
        assert_eq!(good, "verdict     good: what waits the error out waits 200 us");
        errors.extend([Duration::from_millis(32); 2]);
        let wide = verdict(&surveyed(Ok(errors), Some(ClockSource::Kernel))).expect("it works");
        assert!(wide.contains("waits 32.0 ms\n  -> run chrony"), "{wide}");
        let lost = ClockError::Unsynchronised { of: "kernel", fact: "its bound is 16s".to_owned() };
        let refused = verdict(&surveyed(Err(lost), None)).expect_err("nothing works").to_string();
        assert!(refused.contains("O2115") && refused.contains("its bound is 16s"), "{refused}");
    }

    // The rank of a quantile that is off by one shows the second worst.
    #[test]
    fn quantiles_are_of_the_sorted_errors() {
        let errors: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(quantile(&errors, 0.5), Duration::from_micros(50));
        assert_eq!(quantile(&errors, 0.99), Duration::from_micros(99));
        assert_eq!(quantile(&errors[..1], 0.5), Duration::from_micros(100));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }
}
