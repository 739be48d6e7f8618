//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// Of sessions that are used none grows younger: the one that was opened first is forgotten first.
    used_session_stays_old = "P62",
    /// What a client was owed stays counted when it goes.
    closed_account_stays_counted = "P66",
}
