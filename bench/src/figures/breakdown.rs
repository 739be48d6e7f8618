//! Where the time of a call goes: its way through the stations, and what messages met at each of them.

use super::drawing::Table;
use crate::profile::Profile;
use sim::cost::{Measured, Visit};
use std::time::Duration;

/// The way of one call.
pub(super) struct Way {
    /// From machine to machine.
    pub(super) trips: u32,
    /// How often it comes to a machine of each station.
    pub(super) stations: &'static [(&'static str, u32)],
}

/// What messages met in one run.
#[derive(Clone, Debug)]
pub(super) struct Met {
    median: Duration,
    stations: Vec<(&'static str, Visit)>,
}

impl Met {
    /// Of all hosts of each station, each message counted once.
    pub(super) fn of(measured: &Measured, stations: &[&'static str]) -> Self {
        let mut met: Vec<(&'static str, Visit)> = Vec::new();
        for (&name, visit) in stations.iter().zip(&measured.visits) {
            match met.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => *all = together(*all, *visit),
                None => met.push((name, *visit)),
            }
        }
        Self { median: measured.latency(0.5), stations: met }
    }

    fn at(&self, station: &str) -> Visit {
        let found = self.stations.iter().find(|(name, _)| *name == station);
        found.map_or(Visit::default(), |&(_, visit)| visit)
    }
}

fn together(a: Visit, b: Visit) -> Visit {
    let messages = a.messages + b.messages;
    let mean = |of: fn(&Visit) -> Duration| {
        let sum = of(&a).as_secs_f64() * a.messages as f64 + of(&b).as_secs_f64() * b.messages as f64;
        Duration::from_secs_f64(sum / messages.max(1) as f64)
    };
    Visit { messages, waited: mean(|visit| visit.waited), worked: mean(|visit| visit.worked) }
}

/// The table of some runs of calls that go the same way. `rest` says what is in the median and in none of the rows.
pub(super) fn table(title: &str, way: &Way, rest: &str, profile: &Profile, runs: &[(&str, &Met)]) -> Table {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let wires = f64::from(way.trips) * profile.network.latency_us;
    let mut left: Vec<f64> = runs.iter().map(|(_, met)| micros(met.median) - wires).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |what: String, of_each: Vec<f64>| {
        rows.push(std::iter::once(what).chain(of_each.iter().map(|micros| format!("{micros:.0}"))).collect());
    };
    add(format!("{} trips of {} us", way.trips, profile.network.latency_us), vec![wires; runs.len()]);
    for &(station, times) in way.stations {
        let of_each = |of: fn(Visit) -> Duration| -> Vec<f64> {
            runs.iter().map(|(_, met)| f64::from(times) * micros(of(met.at(station)))).collect()
        };
        let (waited, worked) = (of_each(|visit| visit.waited), of_each(|visit| visit.worked));
        for (left, spent) in left.iter_mut().zip(waited.iter().zip(&worked)) {
            *left -= spent.0 + spent.1;
        }
        let count = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        add(format!("{station}, {count}: until its thread takes the message"), waited);
        add(format!("{station}, {count}: until the burst ends"), worked);
    }
    add(rest.to_owned(), left);
    add("median".to_owned(), runs.iter().map(|(_, met)| micros(met.median)).collect());
    let heads = std::iter::once("us").chain(runs.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    Table { title: title.to_owned(), heads, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rows that do not add up to the latency explain something else.
    #[test]
    fn rows_add_up_to_the_median() {
        let visit = |messages, waited, worked| Visit {
            messages,
            waited: Duration::from_micros(waited),
            worked: Duration::from_micros(worked),
        };
        let met = together(visit(1, 40, 8), visit(3, 0, 4));
        assert_eq!(met, visit(4, 10, 5));
        let met = Met { median: Duration::from_micros(100), stations: vec![("leader", met)] };
        let way = Way { trips: 2, stations: &[("leader", 3)] };
        let table = table("", &way, "the rest", &Profile::d430(), &[("here", &met)]);
        let numbers: Vec<f64> = table.rows.iter().map(|row| row[1].parse().expect("a number")).collect();
        assert_eq!(numbers, [12.0, 30.0, 15.0, 43.0, 100.0]);
        assert_eq!(numbers[..4].iter().sum::<f64>(), numbers[4]);
    }
}
