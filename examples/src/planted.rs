//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// The primary executes what is durable at one of the two.
    one_copy_is_enough = "X01",
}
