//! Why nobody says how far the clock is off.

/// Why a source says nothing of the clock. It may be asked again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// It says that nobody keeps the clock.
    #[error("{of}: the system clock is not synchronised ({fact})")]
    Unsynchronised {
        /// The source.
        of: &'static str,
        /// In its words.
        fact: String,
    },
    /// It is not there, or is not understood.
    #[error("{of}: {fact}")]
    Unreadable {
        /// The source.
        of: &'static str,
        /// What was found.
        fact: String,
    },
    /// None of several has a bound.
    #[error("no clock source works: {0}")]
    None(String),
}
