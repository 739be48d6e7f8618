//! The mistakes that the simulator switches on, one at a time. The ids are those of `docs/reliability.md`.

kernel::planted_bugs! {
    /// A shard ignores t_min (Alg. 2, line 6, first half).
    t_min_ignored = "S01",
    /// A shard ignores t_ee (Alg. 2, line 6, second half).
    t_ee_ignored = "S02",
    /// The client returns before t_ee has passed.
    earliest_end_not_waited_out = "S03",
    /// A commit is shown and answered before its timestamp has passed.
    no_commit_wait = "S04",
    /// A read does not wait for what is prepared below its timestamp.
    does_not_wait_for_prepared = "S05",
    /// A prepared transaction is wounded.
    prepared_is_wounded = "S08",
    /// A new leader does not take back the locks of what is prepared.
    locks_of_prepared_not_taken_back = "S11",
    /// A fence returns at once.
    fence_does_not_wait = "S09",
    /// A session's t_min is not sent.
    t_min_not_sent = "S10",
    /// A reader returns although something that it skipped may have committed before its snapshot.
    skipped_before_snapshot_not_awaited = "S13",
    /// A new leader assigns timestamps below what its predecessor promised to readers.
    assigns_below_what_was_promised = "T01",
    /// A deposed leader serves reads beyond its horizon.
    deposed_leader_serves_beyond_its_horizon = "T02",
    /// A one-shard commit does not count as prepared while its entry is in flight.
    commit_in_flight_not_counted = "T03",
    /// The coordinator sends its decision before that is durable.
    decision_sent_before_durable = "T04",
    /// A shard that knows nothing of a transaction calls it aborted without logging that.
    unknown_called_aborted_unlogged = "T06",
    /// A decision is forgotten before all participants have applied it.
    decision_forgotten_early = "T07",
    /// The lock epoch is not checked at prepare.
    lock_epoch_not_checked = "T08",
    /// A scan locks the keys that it found, and not the range.
    scan_locks_found_keys_only = "T09",
    /// A participant in doubt aborts by itself after a while.
    in_doubt_aborts_alone = "T05",
    /// A participant shows writes when the decision comes, not when t_c has surely passed.
    shown_when_decided_and_not_when_passed = "T10",
    /// Versions go while a timestamp that is still allowed reads them.
    collected_while_still_readable = "T11",
    /// A replica reads what it has collected.
    reads_what_is_collected = "T14",
    /// Outcomes are left out of snapshots.
    outcomes_not_in_snapshot = "T12",
    /// A replica serves a timestamp that is not closed there.
    replica_serves_what_is_not_closed = "T13",
    /// A read does not keep later timestamps above its own.
    read_promises_nothing = "T15",
    /// What transactions in progress write is not bounded.
    bytes_in_progress_not_bounded = "T17",
    /// A new leader takes back the locks of what prepared transactions write, and not of what they have read.
    read_locks_not_taken_back = "T18",
    /// What dead gateways have open is never dropped.
    dead_gateways_not_minded = "T19",
    /// A decision is forgotten when the first participant has it in its log.
    settled_by_the_first_participant = "T20",
    /// A leader that begins again, behind a snapshot, is still the one that it was: its horizon is too low.
    begins_again_under_its_old_name = "T21",
    /// A new leader shows commits whose timestamps have not passed.
    shows_what_has_not_passed = "T22",
    /// A snapshot has a key twice that changes when it has just been written.
    snapshot_has_a_key_twice = "T23",
    /// What an interactive transaction has read does not raise its session's token.
    reads_under_locks_not_in_token = "T24",
    /// A scan does not say how new the deletions are that it has looked at.
    scan_dated_without_deletions = "T25",
    /// A key that is absent without a trace is said to have been so always.
    absent_key_dated_too_early = "T26",
    /// A leader may assign what it has closed.
    closed_is_not_promised = "T27",
    /// A host takes itself for one that holds every shard.
    takes_itself_for_a_holder = "T28",
    /// What a transaction has read is not in what its participant prepares.
    prepares_without_its_reads = "T29",
    /// A reader skips what commits at the very timestamp that its session has seen.
    skips_what_was_seen_at_its_timestamp = "T30",
    /// A shard takes the last commit for the one with the highest timestamp.
    last_commit_sinks = "T31",
}
