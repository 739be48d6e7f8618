//! The log of a host: one line an event on standard error. What repeats is said once and then counted, so that a stranger
//! who calls again and again does not fill the disk.

use runtime::HostEvent;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Repetitions are summed up this often.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);
/// Kinds of events that are distinguished; others are summed up together.
const KINDS_MAX: usize = 256;

/// Cheap to clone; all clones are one log.
#[derive(Clone, Default)]
pub struct EventLog(Arc<Mutex<Repeated>>);

impl EventLog {
    /// Writes an event, or counts it.
    pub fn take(&self, event: &HostEvent) {
        let mut repeated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(repeated.take(event, Instant::now()));
    }

    /// Writes a line, or counts it where one of the same kind was written lately.
    pub fn take_repeated(&self, kind: &str, line: &str) {
        let mut repeated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(repeated.count(kind.to_owned(), line.to_owned(), Instant::now()));
    }

    /// Writes a line.
    pub fn say(&self, line: &str) {
        let _whole_lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(Some(line.to_owned()));
    }

    /// Writes the summaries that are due.
    pub fn tick(&self) {
        let mut repeated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        repeated.due(Instant::now()).into_iter().for_each(|line| write(Some(line)));
    }
}

fn write(line: Option<String>) {
    if let Some(line) = line {
        // The reader of the log may go; the host stays.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

#[derive(Default)]
struct Repeated(BTreeMap<String, Seen>);

struct Seen {
    since: Instant,
    again: u64,
    /// The last one, in full.
    last: String,
}

impl Repeated {
    /// The line to write now, if any.
    fn take(&mut self, event: &HostEvent, now: Instant) -> Option<String> {
        let line = event.to_string();
        let kind = match event {
            // Every call comes from another port: the address is no part of the kind, but the reason is.
            HostEvent::PeerRefused { address, reason } => format!("host {} {reason}", address.ip()),
            HostEvent::ClientClosed { reason, .. } => format!("client {reason}"),
            HostEvent::LinkUp { .. }
            | HostEvent::LinkDown { .. }
            | HostEvent::DiskFull
            | HostEvent::DiskBack
            | HostEvent::Short { .. }
            | HostEvent::NoLongerShort
            | HostEvent::ArchiveFails { .. }
            | HostEvent::ArchiveBack
            | HostEvent::ClockUnusable { .. }
            | HostEvent::ClockBack
            | HostEvent::Stopping { .. }
            | HostEvent::Note { .. } => return Some(line),
        };
        self.count(kind, line, now)
    }

    fn count(&mut self, mut kind: String, line: String, now: Instant) -> Option<String> {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            kind = "others".to_owned();
        }
        if let Some(seen) = self.0.get_mut(&kind) {
            (seen.again, seen.last) = (seen.again + 1, line);
            return None;
        }
        self.0.insert(kind, Seen { since: now, again: 0, last: String::new() });
        Some(line)
    }

    /// What has been counted long enough; kinds that did not come again are forgotten, and written at once next time.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.retain(|_, seen| {
            let waited = now.saturating_duration_since(seen.since);
            if waited < SUMMARY_EVERY {
                return true;
            }
            if seen.again == 0 {
                return false;
            }
            lines.push(format!("{}   ({} times in the last {} s)", seen.last, seen.again, waited.as_secs()));
            (seen.since, seen.again) = (now, 0);
            true
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(port: u16, reason: &str) -> HostEvent {
        HostEvent::PeerRefused { address: ([10, 0, 0, 9], port).into(), reason: reason.to_owned() }
    }

    // A host that is refused twice a second writes 170,000 lines a day, or, silenced altogether, is never noticed.
    #[test]
    fn what_repeats_is_said_once_and_then_counted() {
        let (mut repeated, start) = (Repeated::default(), Instant::now());
        let first = repeated.take(&refused(1, "lost its disk"), start);
        assert_eq!(first.as_deref(), Some("refused the host at 10.0.0.9:1: lost its disk"));
        for port in 2..=100 {
            assert_eq!(repeated.take(&refused(port, "lost its disk"), start), None);
        }
        assert!(
            repeated.take(&refused(7, "another cluster"), start).is_some(),
            "another reason is another line"
        );
        assert!(repeated.take(&HostEvent::DiskFull, start).is_some());
        assert!(repeated.take(&HostEvent::DiskFull, start).is_some(), "what matters is never counted away");
        assert!(repeated.due(start + SUMMARY_EVERY / 2).is_empty());
        let reported = repeated.due(start + SUMMARY_EVERY);
        assert_eq!(
            reported,
            ["refused the host at 10.0.0.9:100: lost its disk   (99 times in the last 60 s)"]
        );
        assert!(repeated.due(start + SUMMARY_EVERY * 2).is_empty());
        assert!(
            repeated.take(&refused(3, "lost its disk"), start).is_some(),
            "it is news again after a quiet minute"
        );
    }

    // Reasons hold names that strangers choose: the table must not grow with them.
    #[test]
    fn kinds_are_bounded() {
        let (mut repeated, now) = (Repeated::default(), Instant::now());
        for number in 0..10_000 {
            repeated.take(&refused(1, &format!("cluster x has no host {number}")), now);
        }
        assert!(repeated.0.len() <= KINDS_MAX + 1, "{}", repeated.0.len());
        let reported = repeated.due(now + SUMMARY_EVERY);
        assert_eq!(
            reported,
            ["refused the host at 10.0.0.9:1: cluster x has no host 9999   (9743 times in the last 60 s)"]
        );
    }
}
