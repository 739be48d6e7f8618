//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// Sessions expire by what a replica knows and not by the log: one that reads its snapshot back lets them all go.
    sessions_expire_by_local_clock = "K02",
    /// An answer goes out before the events that it must not overtake.
    answer_overtakes_event = "K04",
    /// Versions are compared where a write is accepted, and no more where it is executed.
    version_not_checked_at_execution = "K05",
    /// A node that is in another shard than its parent is made without the parent's half.
    parent_half_of_create_missing = "K06",
    /// Sequential names are counted by the children that are there, and not by the parent's own counter.
    sequential_names_by_child_count = "K07",
    /// A gateway answers pings although the session's home group does not hear of them.
    ping_answered_unheard = "K14",
    /// A shard that comes into use does not learn which gateways watch all below a path.
    new_shard_lacks_recursive_watches = "K17",
    /// Snapshots of sessions leave out where each has made ephemeral nodes.
    ephemeral_owners_not_in_snapshot = "K18",
    /// Snapshots of sessions leave out which are closing.
    closing_sessions_not_in_snapshot = "K19",
    /// Snapshots of sessions leave out how many were ever opened.
    session_count_not_in_snapshot = "K20",
    /// Snapshots of sessions leave out the epochs of their connections.
    connection_epochs_not_in_snapshot = "K21",
    /// Sessions that arrive from another group are in no queue of deadlines.
    moved_sessions_have_no_deadline = "K22",
    /// A sign of life gives a session half of its timeout.
    session_timeout_halved = "K23",
    /// A new leader expires sessions by a clock that stood still while nobody listened to them.
    new_leader_uses_stale_session_clock = "K24",
    /// A client that closes its session is disconnected when a sign of life finds it gone.
    closing_client_disconnected = "K26",
    /// A session's clean-up goes to the shards where it made its nodes, although they were handed over since.
    clean_up_misses_moved_nodes = "K27",
    /// A session that is closing is not cleaned up.
    closing_session_not_cleaned_up = "K28",
    /// A closing session leaves with its group's sessions, and is cleaned up by nobody.
    moved_closing_session_not_cleaned_up = "K29",
    /// A gateway asks shards for answers that there is no room for.
    reads_without_room = "K30",
    /// A session that attaches anew keeps the epoch of its connection.
    attaching_keeps_connection_epoch = "K31",
    /// A client that comes back is notified of nodes that were made since, and not of those that were changed.
    missed_change_judged_by_creation = "K32",
    /// A sync is answered without asking the groups how far their logs are.
    sync_without_barrier = "K33",
    /// Ephemeral nodes are deleted with their session, and who watches them is not notified.
    ephemeral_deletion_not_announced = "K34",
    /// A multi that is refused is half done where a step reads a node of another shard.
    refused_multi_half_done = "K35",
    /// A session that is closing may still write.
    closing_session_may_write = "K36",
    /// A client attaches to a session that is closing.
    closing_session_attaches = "K37",
    /// A write to a node resets the counter of its sequential children.
    write_resets_child_counter = "K38",
    /// A step of a multi that checks a version takes any.
    check_ignores_version = "K39",
    /// A client that attaches anew does not get the timeout that it asks for.
    attach_keeps_timeout = "K40",
    /// A session whose deadline has moved is not looked at again.
    deadline_not_queued_again = "K43",
    /// A group's clock stands still though sessions may expire by it.
    clock_not_awaited = "K44",
    /// A group remembers one of the shards where a session has made ephemeral nodes.
    session_remembers_one_shard = "K45",
    /// A group that a session moves to does not know where it has made ephemeral nodes.
    arriving_session_forgets_its_shards = "K46",
    /// A node that goes with its session stays among the names of its parent's children.
    ended_ephemeral_stays_listed = "K47",
    /// A list of who may do what is set by who must not.
    list_set_without_right = "K48",
    /// Who watches children once is notified again and again.
    child_watch_fires_again = "K49",
    /// A deletion compares the version of the list of who may do what.
    deletion_compares_list_version = "K50",
    /// A session is given to who does not know its password.
    stranger_attaches = "K51",
    /// A node that goes stays counted below its quota.
    removed_node_stays_counted = "K53",
    /// Over FuzzyLog: the sessions' clock goes on by what each feeder has measured, though another one has ticked since.
    time_counted_twice = "K60",
    /// Over FuzzyLog: a barrier passes when it is known how far the colour goes, and not when that is handed over.
    barrier_before_it_is_handed_over = "K61",
    /// Over FuzzyLog: the colour is trimmed behind what one server of each shard has durably.
    tree_trimmed_behind_one_server = "K62",
    /// Over FuzzyLog: shards are handed what the sessions did not admit.
    void_operations_handed_over = "K63",
    /// A watch that goes to another shard counts there as registered before all others.
    moved_watch_loses_its_number = "K65",
}
