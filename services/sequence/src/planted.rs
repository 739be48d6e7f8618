//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A gateway begins an incarnation without journaling it.
    incarnation_not_persisted = "M35",
}
