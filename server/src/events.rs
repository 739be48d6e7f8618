//! The log of a host, by `tracing`: one line an event on standard error, with time, level, host and target, as text or as JSON. What
//! repeats is said once and then counted, so that a stranger who calls again and again does not fill the disk.

use runtime::HostEvent;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Repetitions are summed up this often.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);
/// Kinds of events that are distinguished; others are summed up together.
const KINDS_MAX: usize = 256;

/// Where a line comes from.
macro_rules! parts {
    ($($Part:ident is $target:literal: $doc:literal),+ $(,)?) => {
        /// Where a line comes from: its target.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum LogPart {
            $(#[doc = $doc] $Part),+
        }

        impl LogPart {
            fn write(self, level: Level, line: &str) {
                match self {
                    $(Self::$Part => match level {
                        Level::ERROR => tracing::error!(target: $target, "{line}"),
                        Level::WARN => tracing::warn!(target: $target, "{line}"),
                        _ => tracing::info!(target: $target, "{line}"),
                    }),+
                }
            }
        }
    };
}

parts! {
    Access is "ordinate::access": "Who was refused what.",
    Archive is "ordinate::archive": "The archive of logs.",
    Backup is "ordinate::backup": "Backups that the cluster file asks for.",
    Clients is "ordinate::clients": "Users' connections.",
    Clock is "ordinate::clock": "The wall clock.",
    Disk is "ordinate::disk": "The disk, and what is written to it.",
    Health is "ordinate::health": "Whether users are served, and who leads.",
    Host is "ordinate::host": "Start and end.",
    Links is "ordinate::links": "Other hosts.",
    Members is "ordinate::members": "Who is a member.",
    Tls is "ordinate::tls": "Certificates.",
    Traces is "ordinate::traces": "Traces of requests.",
}

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// Has the lines of this process written to standard error, as those of this host. Once a process.
pub fn write_to_stderr(format: LogFormat, host: &str) {
    let lines = Lines { format, host: host.to_owned() };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .event_format(lines)
        .finish();
    // A second one would be a second host in one process, whose lines then go where those of the first do.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

struct Lines {
    format: LogFormat,
    host: String,
}

/// The text of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _cx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let line = self.line(
            OffsetDateTime::now_utc(),
            *event.metadata().level(),
            event.metadata().target(),
            &message.0,
        );
        writeln!(out, "{line}")
    }
}

impl Lines {
    fn line(&self, at: OffsetDateTime, level: Level, target: &str, message: &str) -> String {
        let time = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.millisecond()
        );
        let target = target.strip_prefix("ordinate::").unwrap_or(target);
        match self.format {
            LogFormat::Text => format!("{time} {level:<5} {} {target}: {message}", self.host),
            LogFormat::Json => {
                let level = level.as_str().to_lowercase();
                let line = serde_json::json!({
                    "time": time, "level": level, "host": self.host, "target": target, "message": message,
                });
                line.to_string()
            }
        }
    }
}

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
    pub fn take_repeated(&self, part: LogPart, kind: &str, line: &str) {
        let mut repeated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(repeated.count(
            kind.to_owned(),
            LogLine::new(part, Level::WARN, line.to_owned()),
            Instant::now(),
        ));
    }

    /// Writes a line.
    pub fn say(&self, part: LogPart, line: &str) {
        part.write(Level::INFO, line);
    }

    /// Writes a line that an operator should look at.
    pub fn warn(&self, part: LogPart, line: &str) {
        part.write(Level::WARN, line);
    }

    /// Writes the summaries that are due.
    pub fn tick(&self) {
        let mut repeated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        repeated.due(Instant::now()).into_iter().for_each(|line| write(Some(line)));
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct LogLine {
    part: LogPart,
    level: Level,
    text: String,
}

impl LogLine {
    fn new(part: LogPart, level: Level, text: String) -> Self {
        Self { part, level, text }
    }

    /// An event's line, and what it is counted with; none for what is never counted away.
    fn of(event: &HostEvent) -> (Self, Option<String>) {
        let (part, level, kind) = match event {
            // Every call comes from another port: the address is no part of the kind, but the reason is.
            HostEvent::PeerRefused { address, reason } => {
                (LogPart::Links, Level::WARN, Some(format!("host {} {reason}", address.ip())))
            }
            HostEvent::PeerEnded { address, reason } => {
                (LogPart::Links, Level::WARN, Some(format!("ended {} {reason}", address.ip())))
            }
            HostEvent::ClientClosed { reason, .. } => {
                (LogPart::Clients, Level::INFO, Some(format!("client {reason}")))
            }
            HostEvent::LinkUp { .. } => (LogPart::Links, Level::INFO, None),
            HostEvent::LinkDown { .. } => (LogPart::Links, Level::WARN, None),
            HostEvent::DiskFull | HostEvent::Short { .. } => (LogPart::Disk, Level::ERROR, None),
            HostEvent::DiskSlow { .. } => (LogPart::Disk, Level::WARN, Some("disk slow".to_owned())),
            HostEvent::DiskBack | HostEvent::NoLongerShort => (LogPart::Disk, Level::INFO, None),
            HostEvent::ArchiveFails { .. } => (LogPart::Archive, Level::ERROR, None),
            HostEvent::ArchiveBack => (LogPart::Archive, Level::INFO, None),
            HostEvent::ClockUnusable { .. } => (LogPart::Clock, Level::ERROR, None),
            HostEvent::ClockBack => (LogPart::Clock, Level::INFO, None),
            HostEvent::Stopping { .. } => (LogPart::Host, Level::ERROR, None),
            HostEvent::Note { .. } => (LogPart::Host, Level::INFO, None),
        };
        (Self::new(part, level, event.to_string()), kind)
    }
}

fn write(line: Option<LogLine>) {
    if let Some(LogLine { part, level, text }) = line {
        part.write(level, &text);
    }
}

#[derive(Default)]
struct Repeated(BTreeMap<String, Seen>);

struct Seen {
    since: Instant,
    again: u64,
    /// The last one, in full.
    last: LogLine,
}

impl Repeated {
    /// The line to write now, if any.
    fn take(&mut self, event: &HostEvent, now: Instant) -> Option<LogLine> {
        match LogLine::of(event) {
            (line, None) => Some(line),
            (line, Some(kind)) => self.count(kind, line, now),
        }
    }

    fn count(&mut self, mut kind: String, line: LogLine, now: Instant) -> Option<LogLine> {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            kind = "others".to_owned();
        }
        if let Some(seen) = self.0.get_mut(&kind) {
            (seen.again, seen.last) = (seen.again + 1, line);
            return None;
        }
        self.0.insert(kind, Seen { since: now, again: 0, last: line.clone() });
        Some(line)
    }

    /// What has been counted long enough; kinds that did not come again are forgotten, and written at once next time.
    fn due(&mut self, now: Instant) -> Vec<LogLine> {
        let mut lines = Vec::new();
        self.0.retain(|_, seen| {
            let waited = now.saturating_duration_since(seen.since);
            if waited < SUMMARY_EVERY {
                return true;
            }
            if seen.again == 0 {
                return false;
            }
            let times =
                format!("{}   ({} times in the last {} s)", seen.last.text, seen.again, waited.as_secs());
            lines.push(LogLine { text: times, ..seen.last.clone() });
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

    fn texts(lines: Vec<LogLine>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    // A line that a program cannot read, or that somebody's words break in two.
    #[test]
    fn lines_have_time_level_host_and_target() {
        let at = OffsetDateTime::from_unix_timestamp(1_700_000_000).expect("it is a time");
        let of = |format| {
            let lines = Lines { format, host: "a".to_owned() };
            lines.line(at, Level::WARN, "ordinate::tls", "said \"x\"")
        };
        assert_eq!(of(LogFormat::Text), "2023-11-14T22:13:20.000Z WARN  a tls: said \"x\"");
        let json: serde_json::Value = serde_json::from_str(&of(LogFormat::Json)).expect("it is JSON");
        let fields = ["time", "level", "host", "target", "message"]
            .map(|name| json[name].as_str().unwrap_or_default());
        assert_eq!(fields, ["2023-11-14T22:13:20.000Z", "warn", "a", "tls", "said \"x\""]);
    }

    // A host that is refused twice a second writes 170,000 lines a day, or, silenced altogether, is never noticed.
    #[test]
    fn what_repeats_is_said_once_and_then_counted() {
        let (mut repeated, start) = (Repeated::default(), Instant::now());
        let first = repeated.take(&refused(1, "lost its disk"), start);
        assert_eq!(
            first.map(|line| line.text).as_deref(),
            Some("refused the host at 10.0.0.9:1: lost its disk")
        );
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
        let reported = texts(repeated.due(start + SUMMARY_EVERY));
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
        let reported = texts(repeated.due(now + SUMMARY_EVERY));
        assert_eq!(
            reported,
            ["refused the host at 10.0.0.9:1: cluster x has no host 9999   (9743 times in the last 60 s)"]
        );
    }
}
