//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A journal whose end is gone is taken for whole.
    lost_journal_end_accepted = "J01",
    /// A wall clock that other hosts' clocks contradict is given to roles as one that may be relied on.
    contradicted_clock_relied_on = "T16",
}
