//! Planted bugs, and how soon the simulation finds each.

use kernel::PlantedBug;
use sim::{Experiment, Options, core_seconds};
use std::collections::BTreeSet;
use std::time::Duration;

/// A planted bug and what must notice it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The bug.
    pub planted: &'static PlantedBug,
    /// The family it is planted in.
    pub family: &'static str,
    /// The invariants of which one must break.
    pub expected: &'static [&'static str],
}

/// How a hunt for a planted bug ended.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The bug.
    pub mutant: Mutant,
    /// How many seeds it took, or how many were tried in vain.
    pub seeds: u64,
    /// Seconds on one core.
    pub seconds: f64,
    /// The expected invariant that broke; none if none did.
    pub fired: Option<String>,
    /// What else broke before.
    pub others: BTreeSet<String>,
}

impl Hunted {
    /// True if an expected invariant broke.
    pub fn is_caught(&self) -> bool {
        self.fired.is_some()
    }
}

/// Every planted bug of every family.
pub static MUTANTS: &[Mutant] = &[
    paxos(&::paxos::planted::vote_not_persisted, &["AGREE"]),
    paxos(&::paxos::planted::promise_not_persisted, &["AGREE"]),
    paxos(&::paxos::planted::phase1_quorum_one_short, &["AGREE"]),
    paxos(&::paxos::planted::phase1_ignores_votes, &["AGREE"]),
    paxos(&::paxos::planted::executes_past_holes, &["LIN", "PREFIX"]),
    paxos(&::paxos::planted::sessions_not_in_snapshot, &["LIN", "PREFIX"]),
    paxos(&wire::planted::client_watermark_not_raised, &["SC"]),
    paxos(&::paxos::planted::gaps_not_filled, &["LIVE"]),
    paxos(&::paxos::planted::silence_not_reported, &["WAKE", "LIVE"]),
    paxos(&::paxos::planted::old_configuration_not_asked, &["AGREE"]),
    paxos(&::paxos::planted::late_opening_resets_session, &["LIN"]),
    paxos(&wire::planted::answer_to_earlier_incarnation_accepted, &["LIN"]),
    paxos(&::paxos::planted::lost_votes_not_fenced, &["AGREE"]),
    paxos(&::paxos::planted::joining_replica_trusts_cluster_file, &["AGREE", "PREFIX", "LIN"]),
    paxos(&::paxos::planted::chunks_of_two_snapshots_mixed, &["PREFIX", "LIN"]),
    paxos(&::paxos::planted::old_configuration_answers_reads, &["LIN"]),
    paxos(&::paxos::planted::change_answered_before_durable, &["DUR"]),
    paxos(&::paxos::planted::learned_value_recorded_as_own_vote, &["AGREE", "PREFIX", "LIN"]),
    paxos(&::paxos::planted::snapshot_durable_when_begun, &["DUR"]),
    paxos(&::paxos::planted::needed_votes_trimmed, &["AGREE"]),
    paxos(&::paxos::planted::answer_forgotten_early, &["LIN", "PREFIX", "RETAIN"]),
    paxos(&::paxos::planted::truncation_one_replica_short, &["DUR"]),
    paxos(&::paxos::planted::vote_below_promise, &["AGREE"]),
    paxos(&::paxos::planted::page_of_votes_skips_one, &["AGREE"]),
    paxos(&::paxos::planted::read_seal_not_persisted, &["AGREE", "LIN"]),
    paxos(&::paxos::planted::candidate_round_not_persisted, &["AGREE"]),
    paxos(&::paxos::planted::executed_one_slot_too_many, &["AGREE", "PREFIX"]),
    paxos(&::paxos::planted::unchosen_votes_given_to_resuming_replica, &["AGREE", "PREFIX"]),
    paxos(&::paxos::planted::vote_of_other_ballot_taken_as_chosen, &["AGREE", "PREFIX"]),
    paxos(&::paxos::planted::snapshot_reported_before_journaled, &["DUR"]),
    paxos(&::paxos::planted::chosen_one_vote_short, &["AGREE"]),
    paxos(&::paxos::planted::summary_without_promise, &["AGREE"]),
    paxos(&::paxos::planted::trim_keeps_only_end_of_snapshot, &["DUR"]),
    paxos(&::paxos::planted::batch_grows_past_bound, &["BOUND"]),
    mason(&::mason::planted::seal_answered_early, &["UNIQ", "RT"]),
    mason(&::mason::planted::epoch_checked_at_arrival_only, &["UNIQ"]),
    mason(&::mason::planted::recovery_with_most_proxies, &["UNIQ", "RT"]),
    mason(&::mason::planted::recovery_at_highest_number, &["UNIQ"]),
    mason(&::mason::planted::holes_not_filled, &["CONTIG"]),
    mason(&::mason::planted::holes_of_one_space_filled, &["CONTIG"]),
    mason(&::mason::planted::proposals_voided_before_seal_logged, &["PREFIX", "DUR"]),
    mason(&::mason::planted::operations_delivered_before_logged, &["PREFIX", "DUR"]),
    mason(&::mason::planted::operations_not_in_log, &["PREFIX", "DUR"]),
    mason(&::mason::planted::only_last_lost_request_filled, &["CONTIG"]),
    mason(&::mason::planted::requests_of_proxies_not_distinguished, &["UNIQ"]),
    mason(&::mason::planted::sealed_sequencer_accepted, &["UNIQ"]),
    mason(&::mason::planted::request_numbered_in_two_steps, &["MSO"]),
    mason(&::mason::planted::added_groups_not_waited_for, &["UNIQ", "RT", "PREFIX"]),
    mason(&::mason::planted::removed_group_assignments_forgotten, &["UNIQ", "RT", "PREFIX"]),
    coordination(
        &::mason::planted::numbers_before_resharding_logged,
        &["UNIQ", "RT", "PREFIX", "ATOMIC", "LIN", "DUR"],
    ),
    coordination(&::mason::planted::stale_shard_map_served, &["UNIQ", "ATOMIC", "LIN", "PREFIX"]),
    log(&::mason::planted::leader_batch_unbounded, &["BOUND"]),
    mason(&::mason::planted::groups_removed_before_drained, &["UNIQ", "RT", "PREFIX"]),
    coordination(
        &::paxos::planted::coordination_vote_not_persisted,
        &["AGREE", "UNIQ", "PREFIX", "LIN", "STAT", "ZXID", "SESS"],
    ),
    coordination(&::coordination::planted::sessions_expire_by_local_clock, &["PREFIX", "EPH", "SESS"]),
    coordination(&::coordination::planted::answer_overtakes_event, &["WATCH"]),
    coordination(&::coordination::planted::version_not_checked_at_execution, &["LIN"]),
    coordination(&::coordination::planted::parent_half_of_create_missing, &["ATOMIC", "LIN"]),
    coordination(&::coordination::planted::sequential_names_by_child_count, &["UNIQ", "LIN"]),
    coordination(&::coordination::planted::ping_answered_unheard, &["PING"]),
    coordination(&::mason::planted::watches_lost_in_resharding, &["WATCH"]),
    coordination(&::mason::planted::resharding_not_announced, &["LIN", "STAT", "ZXID"]),
    coordination(&::coordination::planted::new_shard_lacks_recursive_watches, &["WATCH"]),
    mason(&::mason::planted::shard_snapshot_durable_when_begun, &["DUR"]),
    mason(&::mason::planted::low_watermark_one_server_short, &["DUR"]),
    mason(&::mason::planted::settled_before_servers_durable, &["DUR", "LIVE"]),
    mason(&::mason::planted::inputs_forgotten_early, &["DUR"]),
    mason(&::mason::planted::run_beyond_low_watermark_forgotten, &["DUR"]),
    mason(&::mason::planted::inputs_not_in_snapshot, &["DUR", "LIVE"]),
    mason(&::mason::planted::last_gsn_not_in_snapshot, &["PREFIX"]),
    mason(&::mason::planted::next_operations_not_in_snapshot, &["PREFIX", "UNIQ"]),
    mason(&::mason::planted::retained_operations_not_in_snapshot, &["DUR", "LIVE"]),
    mason(&::mason::planted::low_watermarks_not_in_snapshot, &["PREFIX"]),
    coordination(&::mason::planted::group_operations_not_in_snapshot, &["PREFIX", "EPH"]),
    mason(&::mason::planted::peer_snapshot_called_durable, &["DUR"]),
    mason(&sequence::planted::incarnation_not_persisted, &["UNIQ"]),
    coordination(&::coordination::planted::ephemeral_owners_not_in_snapshot, &["PREFIX", "EPH", "SESS"]),
    coordination(&::coordination::planted::closing_sessions_not_in_snapshot, &["PREFIX", "EPH", "SESS"]),
    coordination(&::coordination::planted::session_count_not_in_snapshot, &["PREFIX", "SESS", "UNIQ"]),
    coordination(&::coordination::planted::connection_epochs_not_in_snapshot, &["PREFIX", "SESS"]),
    coordination(&::coordination::planted::moved_sessions_have_no_deadline, &["PREFIX", "SESS", "EPH"]),
    coordination(&::coordination::planted::session_timeout_halved, &["SESS"]),
    coordination(&::coordination::planted::new_leader_uses_stale_session_clock, &["SESS"]),
    coordination(&::coordination::planted::closing_client_disconnected, &["CLOSE", "LIVE"]),
    coordination(&::coordination::planted::clean_up_misses_moved_nodes, &["EPH", "LIN"]),
    coordination(&::coordination::planted::closing_session_not_cleaned_up, &["SESS", "EPH"]),
    coordination(&::coordination::planted::moved_closing_session_not_cleaned_up, &["EPH", "SESS"]),
    coordination(&::coordination::planted::reads_without_room, &["BOUND"]),
    log(&shared_log::planted::read_without_barrier, &["LIN"]),
    log(&shared_log::planted::other_refusals_ignored, &["ATOMIC", "PREFIX", "DUR", "LIN"]),
    log(&shared_log::planted::open_segments_not_in_snapshot, &["DUR", "PREFIX"]),
    log(&::mason::planted::segment_freed_before_durable, &["DUR"]),
    log(&::mason::planted::snapshot_before_blobs_fetched, &["DUR"]),
    log(&shared_log::planted::segment_index_off_by_one, &["UNIQ", "CONTIG", "LIN"]),
    log(&::mason::planted::segment_freed_before_archived, &["ARCH"]),
    log(&shared_log::planted::archived_segments_not_in_snapshot, &["ARCH"]),
    log(&::mason::planted::missing_blob_taken_as_archived, &["ARCH"]),
    corfu(&::corfu::planted::append_done_at_head, &["DUR", "LIN"]),
    corfu(&::corfu::planted::read_from_head, &["DUR", "LIN", "UNIQ"]),
    corfu(&::corfu::planted::position_written_twice, &["UNIQ", "DUR"]),
    corfu(&::corfu::planted::entry_replaced_by_junk, &["DUR", "UNIQ"]),
    corfu(&::corfu::planted::sealed_server_serves, &["RT", "UNIQ", "LIN", "DUR"]),
    corfu(&::corfu::planted::restarted_sequencer_serves_epoch_again, &["RT", "LIN", "UNIQ"]),
    corfu(&::corfu::planted::unsealed_server_in_projection, &["RT", "UNIQ", "LIN", "DUR"]),
    corfu(&::corfu::planted::sequencer_starts_at_lowest_tail, &["RT", "LIN"]),
    corfu(&::corfu::planted::accepted_projection_ignored, &["AGREE"]),
    corfu(&::corfu::planted::sealed_write_takes_new_position, &["UNIQ"]),
    corfu(&::corfu::planted::joining_server_admitted_early, &["DUR", "NEST", "UNIQ", "LIN"]),
    corfu(&::corfu::planted::returning_server_keeps_divergence, &["UNIQ", "DUR", "NEST"]),
    corfu(&::corfu::planted::lost_disk_not_fenced, &["DUR", "LIN", "NEST"]),
    corfu(&::corfu::planted::joining_server_done_before_durable, &["DUR", "CONV", "LIVE"]),
    corfu(&::corfu::planted::copy_follows_from_end, &["DUR", "NEST", "UNIQ"]),
    paxos(&sim::planted::lost_journal_end_accepted, &["AGREE", "PREFIX", "LIN"]),
    paxos(&::paxos::planted::resumed_log_has_hole, &["AGREE", "PREFIX"]),
    paxos(&::paxos::planted::votes_of_other_ballots_counted, &["AGREE"]),
    paxos(&::paxos::planted::restored_votes_hidden_from_reads, &["LIN", "AGREE"]),
    paxos(&::paxos::planted::new_configuration_one_slot_early, &["AGREE"]),
    paxos(&::paxos::planted::last_vote_taken_for_highest, &["AGREE"]),
    mason(&::mason::planted::probe_does_not_fence, &["CONTIG", "DUR", "UNIQ", "PREFIX", "MSO", "RT"]),
    coordination(&::mason::planted::progress_one_number_early, &["ORDER", "WATCH", "LIN"]),
    coordination(&::coordination::planted::attaching_keeps_connection_epoch, &["ORDER", "SESS"]),
    coordination(&::coordination::planted::missed_change_judged_by_creation, &["WATCH"]),
    coordination(&::coordination::planted::sync_without_barrier, &["LIN"]),
    corfu(&::corfu::planted::compare_skips_start_of_page, &["UNIQ", "NEST", "DUR"]),
    log(&shared_log::planted::producers_not_in_snapshot, &["PREFIX", "UNIQ", "LIN"]),
    log(&shared_log::planted::trim_one_position_too_far, &["DUR", "LIN"]),
    mason(&::mason::planted::second_claim_replaces_first, &["UNIQ"]),
    coordination(&::coordination::planted::ephemeral_deletion_not_announced, &["WATCH"]),
    coordination(&::coordination::planted::refused_multi_half_done, &["ATOMIC", "LIN"]),
    coordination(&::coordination::planted::closing_session_may_write, &["SESS", "EPH"]),
    corfu(&::corfu::planted::projection_votes_of_other_ballots_counted, &["AGREE"]),
    paxos(&::paxos::planted::truncated_slots_not_waited_for, &["AGREE"]),
    corfu(&::corfu::planted::trim_beyond_end, &["DUR"]),
    coordination(&::coordination::planted::closing_session_attaches, &["SESS"]),
    coordination(&::coordination::planted::write_resets_child_counter, &["UNIQ", "LIN"]),
    coordination(&::coordination::planted::check_ignores_version, &["LIN"]),
    coordination(&::coordination::planted::clock_not_awaited, &["EPH", "CONV", "SESS"]),
    log(&shared_log::planted::earlier_producer_epoch_taken, &["UNIQ", "LIN"]),
    log(&shared_log::planted::producers_of_deleted_log_retained, &["UNIQ", "LIN"]),
    paxos(&::paxos::planted::restored_vote_makes_no_promise, &["AGREE"]),
    paxos(&::paxos::planted::summary_without_seal, &["AGREE"]),
    paxos(&::paxos::planted::own_votes_counted_across_snapshot, &["AGREE"]),
    paxos(&::paxos::planted::retained_values_stay_across_snapshot, &["AGREE"]),
    paxos(&::paxos::planted::report_of_unknown_configuration_believed, &["AGREE"]),
    mason(&::mason::planted::row_across_low_watermark_forgotten, &["DUR"]),
    coordination(&::coordination::planted::attach_keeps_timeout, &["SESS"]),
    coordination(&::coordination::planted::deadline_not_queued_again, &["PREFIX", "SESS"]),
    log(&shared_log::planted::producer_epoch_keeps_sequences, &["UNIQ", "LIN"]),
    log(&shared_log::planted::room_of_deleted_log_retained, &["PREFIX", "BOUND"]),
    log(&shared_log::planted::dropped_without_leave, &["DUR"]),
    log(&shared_log::planted::dropped_without_count, &["DUR", "LIN"]),
    corfu(&::corfu::planted::trim_leaves_first_out, &["DUR"]),
    corfu(&::corfu::planted::serves_before_opened, &["AGREE"]),
    spanner(&::spanner::planted::t_min_ignored, &["BYLEVEL", "SNAP"]),
    spanner(&::spanner::planted::t_ee_ignored, &["BYLEVEL", "FENCE", "TEE"]),
    spanner(&::spanner::planted::earliest_end_not_waited_out, &["TEE", "BYLEVEL", "FENCE"]),
    spanner(&::spanner::planted::no_commit_wait, &["CW", "BYLEVEL"]),
    spanner(&::spanner::planted::does_not_wait_for_prepared, &["SNAP", "BYLEVEL", "TEE"]),
    spanner(&::spanner::planted::prepared_is_wounded, &["LOCK", "ATOMIC", "SNAP", "BYLEVEL", "ONCE", "TS"]),
    spanner(&::spanner::planted::locks_of_prepared_not_taken_back, &["LOCK", "SNAP", "BYLEVEL", "TS"]),
    spanner(&::spanner::planted::fence_does_not_wait, &["FENCE", "BYLEVEL"]),
    spanner(&::spanner::planted::t_min_not_sent, &["BYLEVEL", "SNAP", "TOKEN"]),
    spanner(&::spanner::planted::skipped_before_snapshot_not_awaited, &["SNAP", "BYLEVEL"]),
    spanner(&::spanner::planted::assigns_below_what_was_promised, &["SNAP", "TS"]),
    spanner(
        &::spanner::planted::deposed_leader_serves_beyond_its_horizon,
        &["SNAP", "BYLEVEL", "FENCE", "TS"],
    ),
    spanner(&::spanner::planted::commit_in_flight_not_counted, &["SNAP", "BYLEVEL", "CW"]),
    spanner(&::spanner::planted::decision_sent_before_durable, &["DUR", "ATOMIC"]),
    spanner(&::spanner::planted::unknown_called_aborted_unlogged, &["DUR", "ATOMIC"]),
    spanner(&::spanner::planted::decision_forgotten_early, &["ATOMIC", "DUR", "LIVE", "CONV"]),
    spanner(&::spanner::planted::lock_epoch_not_checked, &["BYLEVEL", "SNAP"]),
    spanner(&::spanner::planted::scan_locks_found_keys_only, &["BYLEVEL", "SNAP"]),
    spanner(&::spanner::planted::shown_when_decided_and_not_when_passed, &["CW", "BYLEVEL"]),
    spanner(&::spanner::planted::collected_while_still_readable, &["GC", "SNAP"]),
    spanner(&::spanner::planted::outcomes_not_in_snapshot, &["ONCE", "PREFIX"]),
    spanner(&::spanner::planted::replica_serves_what_is_not_closed, &["SNAP", "TS"]),
    spanner(&::spanner::planted::reads_what_is_collected, &["SNAP", "GC"]),
    spanner(&::spanner::planted::in_doubt_aborts_alone, &["ATOMIC", "DUR"]),
    spanner(&sim::planted::contradicted_clock_relied_on, &["CW", "BYLEVEL", "SNAP", "FENCE"]),
    spanner(&::spanner::planted::read_promises_nothing, &["SNAP", "BYLEVEL", "TS"]),
    spanner(&::spanner::planted::bytes_in_progress_not_bounded, &["BOUND"]),
    spanner(&::spanner::planted::read_locks_not_taken_back, &["LOCK", "BYLEVEL"]),
    spanner(&::spanner::planted::dead_gateways_not_minded, &["LIVE", "CONV"]),
    spanner(&::spanner::planted::settled_by_the_first_participant, &["ATOMIC"]),
    spanner(&::spanner::planted::begins_again_under_its_old_name, &["TS", "UNIQ"]),
    spanner(&::spanner::planted::shows_what_has_not_passed, &["CW"]),
    spanner(&::spanner::planted::snapshot_has_a_key_twice, &["PREFIX"]),
    spanner(&::spanner::planted::reads_under_locks_not_in_token, &["TOKEN"]),
    spanner(&::spanner::planted::scan_dated_without_deletions, &["SNAP"]),
    spanner(&::spanner::planted::absent_key_dated_too_early, &["SNAP", "TOKEN"]),
    spanner(&::spanner::planted::closed_is_not_promised, &["TS"]),
    spanner(&::spanner::planted::takes_itself_for_a_holder, &["CONV", "LIVE"]),
    spanner(&::spanner::planted::prepares_without_its_reads, &["LOCK"]),
    spanner(&::spanner::planted::skips_what_was_seen_at_its_timestamp, &["SNAP"]),
    fuzzylog(&::fuzzylog::planted::delivered_before_pending, &["SER", "TS", "PREFIX"]),
    fuzzylog(&::fuzzylog::planted::clock_not_raised, &["SER", "TS"]),
    fuzzylog(&::fuzzylog::planted::other_owners_not_replaced, &["ATOMIC", "SER", "FENCE"]),
    fuzzylog(&::fuzzylog::planted::test_and_set_compares_too_little, &["FENCE", "SER"]),
    fuzzylog(&::fuzzylog::planted::trim_drops_other_colours, &["DUR", "TRIM"]),
    fuzzylog(&::fuzzylog::planted::head_answers_alone, &["DUR", "LIN"]),
    fuzzylog(&::fuzzylog::planted::repeated_proposal_is_new, &["UNIQ", "SER", "TS"]),
    fuzzylog(&::fuzzylog::planted::goes_ahead_of_what_was_seen, &["SER"]),
    fuzzylog(&::fuzzylog::planted::restarted_head_goes_on, &["NEST", "PREFIX", "DUR"]),
    fuzzylog(&::fuzzylog::planted::clock_starts_from_delivered, &["TS", "SER", "PREFIX"]),
    fuzzylog(&::fuzzylog::planted::tail_answers_alone, &["FENCE", "LIN"]),
    fuzzylog(&::fuzzylog::planted::snapshot_asks_one_by_one, &["SNAP"]),
    fuzzylog(&::fuzzylog::planted::snapshot_without_clients, &["PREFIX", "ONCE", "SER"]),
    fuzzylog(&::fuzzylog::planted::snapshot_without_owners, &["FENCE", "PREFIX"]),
    fuzzylog(&::fuzzylog::planted::snapshot_without_queue, &["PREFIX", "TS", "SER"]),
    fuzzylog(&::fuzzylog::planted::snapshot_without_trims, &["TRIM", "DUR"]),
    fuzzylog(&::fuzzylog::planted::row_dropped_before_snapshot, &["DUR"]),
    fuzzylog(&::fuzzylog::planted::row_begins_behind_successor, &["NEST"]),
    paxos(&::paxos::planted::answer_to_another_question_counted, &["AGREE"]),
    corfu(&::corfu::planted::promise_of_lost_vote_counted, &["AGREE"]),
    coordination(&::coordination::planted::session_remembers_one_shard, &["EPH", "SESS"]),
    coordination(&::coordination::planted::arriving_session_forgets_its_shards, &["EPH"]),
    spanner(&::spanner::planted::last_commit_sinks, &["RISE"]),
    fuzzylog(&::fuzzylog::planted::seal_of_chain_server_not_journaled, &["DUR"]),
    fuzzylog(&::fuzzylog::planted::joining_server_counts, &["DUR"]),
    fuzzylog(&::fuzzylog::planted::sealed_server_answers_syncs, &["FENCE"]),
    fuzzylog(&::fuzzylog::planted::directors_move_at_once, &["AGREE"]),
    fuzzylog(&::fuzzylog::planted::answered_before_it_has_passed, &["RT", "SSER"]),
    fuzzylog(&::fuzzylog::planted::goes_ahead_in_strict_order, &["RT", "SSER"]),
    fuzzylog(&::fuzzylog::planted::seal_is_not_awaited, &["DUR", "ATOMIC", "CONTIG", "TS", "LIN", "SER"]),
    fuzzylog(&::fuzzylog::planted::clients_do_not_move, &["TS", "ONCE", "DUR"]),
    fuzzylog(&::fuzzylog::planted::forwarding_mark_is_missing, &["OWNER"]),
    fuzzylog(&::fuzzylog::planted::snapshot_ends_before_its_segments, &["DUR"]),
    fuzzylog(&::fuzzylog::planted::segment_dropped_too_early, &["DUR"]),
    fuzzylog(&::fuzzylog::planted::rewritten_segment_loses_a_node, &["DUR"]),
    regions(&::fuzzylog::planted::edges_left_out, &["CAUSAL"]),
    regions(&::fuzzylog::planted::found_before_it_is_there, &["SNAP", "CAUSAL"]),
    regions(&::fuzzylog::planted::carries_one_region_alone, &["SNAP"]),
    regions(&::fuzzylog::planted::shadow_before_its_dependencies, &["CAUSAL"]),
    regions(&::fuzzylog::planted::asked_behind_what_is_not_durable, &["CONV", "LIVE"]),
    regions(&::fuzzylog::planted::trim_waits_for_nobody, &["TRIM", "SHADOW", "CONV"]),
    regions(&::fuzzylog::planted::snapshot_without_waiting_shadows, &["PREFIX", "SHADOW", "CONV", "LIVE"]),
    paxos(&::paxos::planted::executed_value_stays_in_flight, &["BOUND"]),
    paxos(&::paxos::planted::learned_values_trimmed, &["AGREE"]),
    paxos(&::paxos::planted::answered_read_stays_counted, &["BOUND"]),
    paxos(&kv::planted::failed_batch_undone_forwards, &["LIN"]),
    paxos(&kv::planted::scan_includes_its_end, &["LIN"]),
    paxos(&kv::planted::deleted_key_stays_in_order, &["BOUND"]),
    paxos(&kv::planted::earlier_version_satisfies_condition, &["LIN"]),
    coordination(&::coordination::planted::ended_ephemeral_stays_listed, &["ATOMIC", "LIN", "WATCH"]),
    log(&shared_log::planted::room_not_counted_from_snapshot, &["BOUND", "PREFIX"]),
    coordination(&::coordination::planted::list_set_without_right, &["LIN"]),
    coordination(&::coordination::planted::child_watch_fires_again, &["WATCH"]),
    coordination(&::coordination::planted::deletion_compares_list_version, &["LIN"]),
    coordination(&::coordination::planted::stranger_attaches, &["SESS"]),
    log(&shared_log::planted::earlier_commit_ignored, &["LIN"]),
    corfu(&::corfu::planted::lowest_vote_adopted, &["AGREE"]),
    composed(&crate::planted::fence_between_services_left_out, &["RSS"]),
    paxos(&::paxos::planted::answers_of_two_configurations_counted, &["LIN"]),
    paxos(&::paxos::planted::read_does_not_wait_for_earlier_configuration, &["LIN"]),
    paxos(&::paxos::planted::blank_word_to_earlier_incarnation_counts, &["AGREE", "LIN"]),
    paxos(&parts::planted::used_session_stays_old, &["SESS"]),
    coordination(&::coordination::planted::removed_node_stays_counted, &["BOUND"]),
    paxos(&::paxos::planted::resigned_leader_shows_beacons, &["BEACON"]),
    paxos(&::paxos::planted::stopped_timer_taken_for_set, &["WAKE"]),
    paxos(&::paxos::planted::seal_counts_a_read_quorum, &["LIN"]),
    paxos(&::paxos::planted::recall_reaches_beyond_its_pages, &["AGREE"]),
    fuzzylog(&::fuzzylog::planted::durable_of_another_epoch_counts, &["DUR"]),
    paxos(&::paxos::planted::change_settled_one_slot_early, &["AGREE", "LIN", "DUR"]),
    coordination(&::coordination::planted::moved_watch_loses_its_number, &["WATCH"]),
    coordination(&parts::planted::closed_account_stays_counted, &["BOUND"]),
    mason(&::mason::planted::received_inputs_stay_across_snapshot, &["BOUND"]),
    log(&shared_log::planted::answered_bytes_stay_counted, &["BOUND"]),
    log(&shared_log::planted::sealing_wakes_nobody, &["WATCH", "WAKE"]),
    fuzzylog(&::fuzzylog::planted::calls_stay_across_epochs, &["BOUND"]),
    fuzzylog(&::fuzzylog::planted::missing_clean_up_not_minded, &["CONV"]),
    log_chains(&shared_log::planted::barrier_without_sync, &["LIN"]),
    log_chains(&shared_log::planted::trimmed_behind_one_server, &["DUR"]),
    maps(&ordinate_client::planted::one_colour_decides, &["SSER"]),
    maps(&ordinate_client::planted::read_goes_colour_by_colour, &["SER", "SSER"]),
    maps(&ordinate_client::planted::delete_takes_all, &["TWIN"]),
    maps(&ordinate_client::planted::view_covers_too_much, &["VIEW"]),
    maps(&ordinate_client::planted::names_not_remembered, &["TWIN", "VIEW", "CAUSAL"]),
    tree_chains(&::coordination::planted::time_counted_twice, &["SESS"]),
    tree_chains(&::coordination::planted::barrier_before_it_is_handed_over, &["LIN"]),
    tree_chains(&::coordination::planted::tree_trimmed_behind_one_server, &["DUR"]),
    tree_chains(
        &::coordination::planted::void_operations_handed_over,
        &["LIN", "PREFIX", "CONTIG", "ATOMIC"],
    ),
];

const fn tree_chains(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "coordination-chains", expected }
}

const fn corfu(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "corfu", expected }
}

const fn composed(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "composed", expected }
}

const fn coordination(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "coordination", expected }
}

const fn fuzzylog(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "fuzzylog", expected }
}

const fn regions(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "regions", expected }
}

const fn log(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "log", expected }
}

const fn log_chains(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "log-chains", expected }
}

const fn maps(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "maps", expected }
}

const fn mason(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "mason", expected }
}

const fn spanner(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "spanner", expected }
}

const fn paxos(planted: &'static PlantedBug, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "paxos", expected }
}

/// Runs seeds with the bug until an expected invariant breaks, at most `seeds_max` of them and about `budget` of time.
pub fn hunt(experiment: &dyn Experiment, mutant: Mutant, seeds_max: u64, budget: Duration) -> Hunted {
    let began = core_seconds();
    let options = Options { planted: Some(mutant.planted), ..Options::default() };
    let mut hunted = Hunted { mutant, seeds: 0, seconds: 0.0, fired: None, others: BTreeSet::new() };
    while hunted.fired.is_none() && hunted.seeds < seeds_max && hunted.seconds < budget.as_secs_f64() {
        let broken = experiment.run(hunted.seeds, &options).violation.map(|violation| violation.invariant);
        match broken {
            Some(broken) if mutant.expected.contains(&broken.as_str()) => hunted.fired = Some(broken),
            Some(broken) => {
                hunted.others.insert(broken);
            }
            None => {}
        }
        hunted.seeds += 1;
        hunted.seconds = core_seconds() - began;
    }
    hunted
}

/// The planted bug of that id or name.
pub fn named(name: &str) -> Option<&'static PlantedBug> {
    MUTANTS.iter().map(|mutant| mutant.planted).find(|bug| bug.id == name || bug.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A bug that is listed and never hunted for, or two under one id, would be no proof of anything.
    #[test]
    fn every_listed_bug_is_hunted_once() {
        let lists = [
            wire::planted::ALL,
            ::paxos::planted::ALL,
            ::mason::planted::ALL,
            ::corfu::planted::ALL,
            ::fuzzylog::planted::ALL,
            shared_log::planted::ALL,
            ::coordination::planted::ALL,
            kv::planted::ALL,
            sequence::planted::ALL,
            parts::planted::ALL,
            ::spanner::planted::ALL,
            sim::planted::ALL,
            ordinate_client::planted::ALL,
            crate::planted::ALL,
        ];
        let mut listed: Vec<&str> = lists.iter().flat_map(|list| list.iter().map(|bug| bug.id)).collect();
        let mut hunted: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.planted.id).collect();
        listed.sort_unstable();
        hunted.sort_unstable();
        assert_eq!(listed, hunted);
        assert!(listed.windows(2).all(|pair| pair[0] != pair[1]), "{listed:?}");
    }
}
