//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A batch that fails is undone from its first command on, so that a key it has written twice keeps the first value.
    failed_batch_undone_forwards = "V01",
    /// A page of a scan holds the key where it ought to end.
    scan_includes_its_end = "V02",
    /// A key that is deleted stays in the order of keys.
    deleted_key_stays_in_order = "V03",
    /// A version that a condition names may be an earlier one.
    earlier_version_satisfies_condition = "V04",
}
