//! Numbers that are kept up to date, held against what they count.

/// A number that a role keeps beside what it counts, and what a count comes to now. One that drifts bounds nothing, or too much: roles
/// report theirs, and the simulator compares them now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recount {
    /// What is counted.
    pub what: &'static str,
    /// The number that is kept.
    pub kept: u64,
    /// The count.
    pub counted: u64,
}

impl Recount {
    /// Of a number of bytes or items.
    pub fn of(what: &'static str, kept: usize, counted: usize) -> Self {
        Self { what, kept: kept as u64, counted: counted as u64 }
    }
}
