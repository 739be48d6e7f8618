//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A client does not raise its watermark, so that sequential reads go back in time.
    client_watermark_not_raised = "P09",
    /// A client accepts answers to another session or to an earlier incarnation of its node.
    answer_to_earlier_incarnation_accepted = "P21",
}
