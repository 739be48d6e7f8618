//! Consistency levels of single operations, as services with a level per request offer them.

use std::fmt;
use std::str::FromStr;

/// What one operation may show. Two operations keep the order that the weaker of their levels demands, so the order here matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Some state, not older than the service promised; the checker asks for the data alone.
    Stale,
    /// The state at a timestamp.
    At,
    /// The order of its process, and what reached the process by messages.
    ProcessOrdered,
    /// Regular sequential serializability: also real time after answered writes that it conflicts with.
    Rss,
    /// Real time of all strict operations.
    Strict,
}

impl Level {
    /// All levels, strong ones first.
    pub const ALL: [Level; 5] = [Level::Strict, Level::Rss, Level::ProcessOrdered, Level::At, Level::Stale];

    /// The word of the file formats.
    pub fn word(self) -> &'static str {
        match self {
            Level::Strict => "strict",
            Level::Rss => "rss",
            Level::ProcessOrdered => "process-ordered",
            Level::At => "at",
            Level::Stale => "stale",
        }
    }

    /// It keeps the order of its process, and messages.
    pub(crate) fn is_causal(self) -> bool {
        self >= Level::ProcessOrdered
    }

    /// It keeps real time with the writes that it conflicts with, and fences.
    pub(crate) fn is_regular(self) -> bool {
        self >= Level::Rss
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Level, String> {
        let words = Level::ALL.map(Level::word);
        let found = Level::ALL.into_iter().find(|level| level.word() == text);
        found.ok_or_else(|| format!("level {text:?} is not known: {}", words.join(", ")))
    }
}
