//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A segment is let go from memory when it is handed to the disk, and not when it is durable.
    segment_freed_before_durable = "C15",
    /// A server that took a peer's snapshot writes its own before it has the blobs that it names.
    snapshot_before_blobs_fetched = "C16",
    /// A server lets a segment go when it is on its way to the archive, and not when it is there.
    segment_freed_before_archived = "C18",
    /// A server takes for archived whatever it does not have.
    missing_blob_taken_as_archived = "C25",
    /// What is watched is forgotten when a node goes to another shard.
    watches_lost_in_resharding = "K15",
    /// A shard notifies nobody that it has handed over, and answers reads of what it had.
    resharding_not_announced = "K16",
    /// A proxy answers a sealing before its log has it.
    seal_answered_early = "M01",
    /// A proxy checks the sequencer's epoch when the answer arrives, and not when its log applies it.
    epoch_checked_at_arrival_only = "M02",
    /// A standby goes on when most proxies are sealed, instead of all.
    recovery_with_most_proxies = "M04",
    /// A standby goes on at the highest number assigned, instead of above it.
    recovery_at_highest_number = "M05",
    /// A standby has no holes filled.
    holes_not_filled = "M06",
    /// A standby has the holes of one space filled only.
    holes_of_one_space_filled = "M07",
    /// A proxy's leader that is asked to seal has no-ops executed for what it has proposed, before the log says what of it counts.
    proposals_voided_before_seal_logged = "M08",
    /// A proxy's leader hands operations to its host's shards before they are in the log.
    operations_delivered_before_logged = "M09",
    /// A proxy's log holds the numbers without the operations, which its leader hands to the shards itself.
    operations_not_in_log = "M10",
    /// A new proxy leader fills the last of its predecessors' lost requests only.
    only_last_lost_request_filled = "M11",
    /// A sequencer remembers requests without telling proxies apart.
    requests_of_proxies_not_distinguished = "M13",
    /// A proxy accepts the answers of a sequencer that it has sealed.
    sealed_sequencer_accepted = "M14",
    /// Groups that are to be removed are left out at once, before they are drained.
    groups_removed_before_drained = "M16",
    /// A sequencer numbers a request over several spaces in two steps, and others in between.
    request_numbered_in_two_steps = "M17",
    /// A standby seals groups that were added and does not wait for what they have assigned.
    added_groups_not_waited_for = "M18",
    /// A group is taken out, and what it had assigned is forgotten with it.
    removed_group_assignments_forgotten = "M19",
    /// A sequencer gives numbers away before the resharding to another shard map is in the log.
    numbers_before_resharding_logged = "M20",
    /// A sequencer serves requests whose spaces were chosen by another shard map.
    stale_shard_map_served = "M21",
    /// A server calls a snapshot durable when it begins to write it.
    shard_snapshot_durable_when_begun = "M22",
    /// A low watermark is logged when as many servers as may fail reach it, and not one more.
    low_watermark_one_server_short = "M23",
    /// A group has settled when its log has moved, whatever its new servers have durably.
    settled_before_servers_durable = "M25",
    /// What was said to other participants is forgotten one operation too early.
    inputs_forgotten_early = "M26",
    /// A run that reaches beyond the low watermark is forgotten with those below.
    run_beyond_low_watermark_forgotten = "M27",
    /// A server's snapshots leave out what it has said to other participants.
    inputs_not_in_snapshot = "M28",
    /// A server's snapshots leave out the global sequence number of the last operation.
    last_gsn_not_in_snapshot = "M29",
    /// A log's snapshots leave out which operations of each origin come next.
    next_operations_not_in_snapshot = "M30",
    /// A log's snapshots leave out what is retained for shards.
    retained_operations_not_in_snapshot = "M31",
    /// A log's snapshots leave out its low watermarks.
    low_watermarks_not_in_snapshot = "M32",
    /// A log's snapshots leave out operations of the group itself that wait to be ordered.
    group_operations_not_in_snapshot = "M33",
    /// A server that took a peer's snapshot calls it durable.
    peer_snapshot_called_durable = "M34",
    /// A proxy's leader puts all that waits into one batch, whatever it comes to.
    leader_batch_unbounded = "M36",
    /// A sequencer goes on serving the leader before the one that has asked what was lost.
    probe_does_not_fence = "M37",
    /// A shard says that everything up to a consistent cut is executed when one number is missing.
    progress_one_number_early = "M38",
    /// A log lets a second claim to an epoch replace the first.
    second_claim_replaces_first = "M39",
    /// What is assigned above a low watermark is forgotten with the row that reaches across it.
    row_across_low_watermark_forgotten = "M43",
    /// Inputs of operations that a snapshot holds stay.
    received_inputs_stay_across_snapshot = "M44",
}
