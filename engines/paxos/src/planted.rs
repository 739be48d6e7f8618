//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// The coordination service answers writes that are not on any disk: P01 below it.
    coordination_vote_not_persisted = "K01",
    /// A replica hands its log on with a hole that nobody sees.
    resumed_log_has_hole = "K13",
    /// An acceptor votes without persisting the vote.
    vote_not_persisted = "P01",
    /// An acceptor promises without persisting the promise.
    promise_not_persisted = "P02",
    /// Phase 1 is content with one acceptor fewer than a read quorum.
    phase1_quorum_one_short = "P03",
    /// Phase 1 ignores the votes that are reported to it.
    phase1_ignores_votes = "P04",
    /// A replica executes past a hole and serves reads without waiting for their slot.
    executes_past_holes = "P07",
    /// The session table is left out of snapshots.
    sessions_not_in_snapshot = "P08",
    /// A new leader fills no gaps.
    gaps_not_filled = "P10",
    /// A new leader asks the newest configuration's acceptors only, while the old one still owns slots.
    old_configuration_not_asked = "P12",
    /// A late copy of a session's opening brings the session back as if nothing had been executed in it.
    late_opening_resets_session = "P20",
    /// An acceptor that lost its votes votes again under its old identity.
    lost_votes_not_fenced = "P22",
    /// A machine that joins takes its cluster file for the cluster's configuration: it votes, leads, executes and reads by
    /// it.
    joining_replica_trusts_cluster_file = "P23",
    /// Chunks of two snapshots are put together.
    chunks_of_two_snapshots_mixed = "P24",
    /// Acceptors of an old configuration go on answering reads after a change.
    old_configuration_answers_reads = "P25",
    /// A change of membership is answered as done before the new replicas have it durably, so that machines leave early.
    change_answered_before_durable = "P26",
    /// A replica has its acceptor remember as chosen what it learned from others, whatever the acceptor voted for.
    learned_value_recorded_as_own_vote = "P27",
    /// A replica calls a snapshot durable when it begins to write it.
    snapshot_durable_when_begun = "P28",
    /// An acceptor that truncates trims the votes that it still needs.
    needed_votes_trimmed = "P29",
    /// An answer is forgotten one command before its client has acknowledged it.
    answer_forgotten_early = "P30",
    /// Votes are forgotten when as many replicas as may fail have durable snapshots, and not one more.
    truncation_one_replica_short = "P31",
    /// An acceptor votes in ballots below its promise.
    vote_below_promise = "P32",
    /// A page of votes to a candidate leaves out the one that the next page begins with.
    page_of_votes_skips_one = "P33",
    /// An acceptor does not journal that it is sealed against reads.
    read_seal_not_persisted = "P34",
    /// A candidate does not journal its round.
    candidate_round_not_persisted = "P35",
    /// A replica reports to its acceptor one slot too many that it has executed.
    executed_one_slot_too_many = "P36",
    /// An acceptor gives a replica that resumes votes of which nobody has said that they are chosen.
    unchosen_votes_given_to_resuming_replica = "P37",
    /// A replica takes its acceptor's vote for what is chosen, whatever its ballot.
    vote_of_other_ballot_taken_as_chosen = "P38",
    /// A replica reports its snapshot before its journal has it.
    snapshot_reported_before_journaled = "P39",
    /// A proxy leader takes a slot for chosen with one vote fewer than a quorum.
    chosen_one_vote_short = "P40",
    /// A summary of an acceptor leaves out what it has promised.
    summary_without_promise = "P41",
    /// A trim leaves nothing but the end of the newest snapshot.
    trim_keeps_only_end_of_snapshot = "P42",
    /// A batcher's batch goes on growing while enough others are in flight.
    batch_grows_past_bound = "P43",
    /// A proxy leader counts votes for its slot in whatever ballot.
    votes_of_other_ballots_counted = "P44",
    /// An acceptor that restarts reports to reads the votes since alone.
    restored_votes_hidden_from_reads = "P45",
    /// A configuration governs from the last slot of the window on, and not from behind it.
    new_configuration_one_slot_early = "P46",
    /// A candidate takes over the vote that it hears last, and not the one in the highest ballot.
    last_vote_taken_for_highest = "P47",
    /// A new leader does not wait for replicas that have what acceptors have forgotten.
    truncated_slots_not_waited_for = "P48",
    /// An acceptor that restarts takes a vote for no promise of its ballot.
    restored_vote_makes_no_promise = "P49",
    /// An acceptor that truncates forgets which reads it is sealed against.
    summary_without_seal = "P50",
    /// A replica that took a snapshot goes on counting what it executed as its acceptor's votes.
    own_votes_counted_across_snapshot = "P51",
    /// A replica that took a snapshot keeps what it has for lagging peers, with a hole that nobody sees.
    retained_values_stay_across_snapshot = "P53",
    /// A leader believes the report of a replica whose configuration it does not know.
    report_of_unknown_configuration_believed = "P54",
    /// An acceptor does not report to the leader role of its host that the leader has fallen silent.
    silence_not_reported = "P55",
    /// A candidate counts an answer to an earlier question of its ballot, which asked about other slots.
    answer_to_another_question_counted = "P56",
    /// A leader turns a value away that it has proposed before, though it was executed long ago and its answer was lost.
    executed_value_stays_in_flight = "P57",
    /// An acceptor trims its journal without heed to the chosen values that it has learned.
    learned_values_trimmed = "P58",
    /// A replica that answers a read goes on counting its bytes among those that wait.
    answered_read_stays_counted = "P59",
    /// A batcher that asks by a newer configuration counts what members of the one before have answered.
    answers_of_two_configurations_counted = "P60",
    /// A read of a new configuration that has voted for nothing does not wait for what the one before has chosen.
    read_does_not_wait_for_earlier_configuration = "P61",
    /// An acceptor that has lost its disk counts that others were blank when an earlier incarnation of it asked.
    blank_word_to_earlier_incarnation_counts = "P63",
    /// A leader that resigns goes on showing its beacons.
    resigned_leader_shows_beacons = "P64",
    /// A leader that resigns takes a timer that it has stopped for one that runs.
    stopped_timer_taken_for_set = "P65",
    /// A configuration is in force when a read quorum of the acceptors before it is sealed, and not a write quorum.
    seal_counts_a_read_quorum = "P69",
    /// A leader that reads chosen values back takes votes from beyond a page of which more follows.
    recall_reaches_beyond_its_pages = "P67",
    /// A change of configuration settles when the first slot of the last one is the first that is not in snapshots.
    change_settled_one_slot_early = "P68",
}
