//! Numbers that roles update step by step, held against what they count.

/// A number that a role keeps beside what it counts, and what a count comes to now. One that drifts bounds nothing, or too much: roles
/// report theirs, and the simulator compares them now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recount {
    /// What is counted.
    pub what: &'static str,
    /// The number that the role has.
    pub known: u64,
    /// The count.
    pub counted: u64,
}

impl Recount {
    /// Of a number of bytes or items.
    pub fn of(what: &'static str, known: usize, counted: usize) -> Self {
        Self { what, known: known as u64, counted: counted as u64 }
    }
}
