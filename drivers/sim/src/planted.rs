//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A journal whose end is gone is taken for whole.
    lost_journal_end_accepted = "J01",
}
