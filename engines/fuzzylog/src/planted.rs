//! The mistakes that the simulator switches on, one at a time. The ids are those of `docs/reliability.md`.

kernel::planted_bugs! {
    /// A partition delivers while a pending append holds an earlier time.
    delivered_before_pending = "F01",
    /// A partition's clock is not raised to the final time.
    clock_not_raised = "F02",
    /// Who takes over does not replace the owner at the other partitions.
    other_owners_not_replaced = "F04",
    /// Who decides whose turn it is compares the generation's owner by client alone: an identity that was used before passes.
    test_and_set_compares_too_little = "F05",
    /// The vector of what was played is left out of an append.
    edges_left_out = "F07",
    /// Trimming one colour drops its nodes from their other colours.
    trim_drops_other_colours = "F10",
    /// A head answers before its chain has the command.
    head_answers_alone = "F11",
    /// A repeated phase 1 gets a new time.
    repeated_proposal_is_new = "F12",
    /// An append goes ahead of a pending one although its client has seen a later time.
    goes_ahead_of_what_was_seen = "F13",
    /// A head that was started again goes on in its epoch.
    restarted_head_goes_on = "F14",
    /// A clock that is taken over starts from what was delivered, and not from all that was proposed.
    clock_starts_from_delivered = "F15",
    /// A tail answers a sync by itself.
    tail_answers_alone = "F16",
    /// A snapshot of several colours asks for one after the other.
    snapshot_asks_one_by_one = "F17",
    /// A snapshot of a partition lacks its users' clients.
    snapshot_without_clients = "F19",
    /// A snapshot of a partition lacks who owns its appends to several.
    snapshot_without_owners = "F20",
    /// A snapshot of a partition lacks its queue.
    snapshot_without_queue = "F21",
    /// A snapshot of a partition lacks where its colours begin.
    snapshot_without_trims = "F22",
    /// The journal's beginning goes when a snapshot begins, and not when it is durable.
    row_dropped_before_snapshot = "F23",
    /// A server is let in although nobody has the commands any more that it lacks.
    row_begins_behind_successor = "F24",
    /// A chain server does not journal for which epoch it is sealed.
    seal_of_chain_server_not_journaled = "F25",
    /// A server that joins counts before it has everything when one of a host that leaves is left out.
    joining_server_counts = "F26",
    /// A server that was sealed, to be left out, answers syncs.
    sealed_server_answers_syncs = "F27",
    /// Directors move to other hosts all at once.
    directors_move_at_once = "F28",
    /// A node of another region is placed before what it depends on.
    shadow_before_its_dependencies = "F29",
    /// A head asks another region behind what its disk may not have.
    asked_behind_what_is_not_durable = "F30",
    /// A trim drops what another region has not copied.
    trim_waits_for_nobody = "F31",
    /// A snapshot of a partition lacks the nodes that wait for other regions'.
    snapshot_without_waiting_shadows = "F32",
    /// A region says that it has what a user of another one has seen before it has all of that.
    found_before_it_is_there = "F09",
    /// A user who carries what it has seen to another region carries its own region's nodes alone.
    carries_one_region_alone = "F33",
    /// In the strict order an append is answered before its time has passed.
    answered_before_it_has_passed = "F34",
    /// In the strict order an append goes ahead of a pending one.
    goes_ahead_in_strict_order = "F35",
    /// What is on its way in an epoch is taken for on its way in the next.
    calls_stay_across_epochs = "F36",
    /// A head does not mind appends that are delivered and never cleaned up.
    missing_clean_up_not_minded = "F37",
    /// Colours that leave are copied while something is on its way to them.
    seal_is_not_awaited = "F38",
    /// What is remembered of users' clients does not move with their colours.
    clients_do_not_move = "F39",
    /// A partition forgets that colours have left it: it has them, and so has the one to which they came.
    forwarding_mark_is_missing = "F40",
    /// A snapshot ends before the segments that it names are on the disk.
    snapshot_ends_before_its_segments = "F41",
    /// A segment is dropped when a snapshot begins that does not name it, and not when that is durable.
    segment_dropped_too_early = "F42",
    /// A segment that is written again lacks one of the nodes that are left.
    rewritten_segment_loses_a_node = "F43",
    /// A server takes what was durable before it in another epoch for durable in its own.
    durable_of_another_epoch_counts = "F44",
}
