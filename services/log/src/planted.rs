//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A log is read without asking how far the logs of the proxies have come.
    read_without_barrier = "C10",
    /// A participant of an append to several logs does not heed what the others refuse.
    other_refusals_ignored = "C11",
    /// A snapshot of the logs leaves the segments out that are still written to.
    open_segments_not_in_snapshot = "C12",
    /// The index of a stored segment is wrong by one entry.
    segment_index_off_by_one = "C17",
    /// Snapshots leave out the segments that wait for the archive.
    archived_segments_not_in_snapshot = "C19",
    /// Snapshots leave out what is known of producers.
    producers_not_in_snapshot = "C26",
    /// A trim drops the entry at the position that is to be retained.
    trim_one_position_too_far = "C28",
    /// An append of a producer in an earlier epoch is taken.
    earlier_producer_epoch_taken = "C31",
    /// Producers of a log that is deleted are taken for those of the next one of its name.
    producers_of_deleted_log_retained = "C32",
    /// A producer's new epoch goes on with the numbers of the one before.
    producer_epoch_keeps_sequences = "C33",
    /// The room of a log that is deleted stays taken.
    room_of_deleted_log_retained = "C34",
    /// A log that was not made to drop its oldest entries drops them when the disk budget is reached.
    dropped_without_leave = "C38",
    /// Entries that a log drops for want of room are not counted.
    dropped_without_count = "C39",
    /// A server that begins with a snapshot takes the room of its logs for free.
    room_not_counted_from_snapshot = "C41",
    /// A group of readers cannot go back.
    earlier_commit_ignored = "C42",
    /// Operations that were answered stay counted among those that wait.
    answered_bytes_stay_counted = "C44",
    /// Readers that wait are not notified when their log is sealed.
    sealing_wakes_nobody = "C45",
    /// Over FuzzyLog: a barrier passes before anybody has asked how far the colours go.
    barrier_without_sync = "C46",
    /// Over FuzzyLog: a colour is trimmed behind what one server alone has in a durable snapshot.
    trimmed_behind_one_server = "C47",
}
