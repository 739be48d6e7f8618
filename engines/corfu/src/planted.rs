//! The crate's planted bugs: known mistakes that the simulator must notice (see `kernel::planted_bugs!`).

kernel::planted_bugs! {
    /// A client takes an append for done when the head of the chain has it.
    append_done_at_head = "C01",
    /// A client reads from the head of a chain, whose tail may not have it.
    read_from_head = "C02",
    /// A storage server writes a position a second time.
    position_written_twice = "C04",
    /// A storage server lets junk replace an entry.
    entry_replaced_by_junk = "C05",
    /// A sealed storage server goes on serving the epoch before.
    sealed_server_serves = "C06",
    /// A sequencer that restarts serves its epoch again, from the beginning.
    restarted_sequencer_serves_epoch_again = "C07",
    /// A storage server that was not sealed stays in the projection.
    unsealed_server_in_projection = "C08",
    /// A new sequencer starts above the server that is written least far.
    sequencer_starts_at_lowest_tail = "C09",
    /// An auxiliary proposes its own projection whatever the others have accepted.
    accepted_projection_ignored = "C13",
    /// A client whose epoch was sealed under its write takes another position without looking.
    sealed_write_takes_new_position = "C14",
    /// A learner is let into its chain when its copy is close, and not when it has the rest.
    joining_server_admitted_early = "C20",
    /// A server that comes back keeps what it had where its chain has gone on otherwise.
    returning_server_keeps_divergence = "C21",
    /// A server or an auxiliary that lost its disk is taken for what it was.
    lost_disk_not_fenced = "C22",
    /// A learner says that it has everything before its disk has it.
    joining_server_done_before_durable = "C23",
    /// A learner follows its source from the end of the comparison on, and not from its beginning.
    copy_follows_from_end = "C24",
    /// A source that compares in pages skips the entry that the next page begins with.
    compare_skips_start_of_page = "C27",
    /// An auxiliary counts votes for its projection in whatever ballot.
    projection_votes_of_other_ballots_counted = "C29",
    /// A trim takes positions that are not written yet.
    trim_beyond_end = "C30",
    /// A chain's server that lets its journal go does not write down what is gone.
    trim_leaves_first_out = "C36",
    /// A sealed server serves the next epoch before it has the projection.
    serves_before_opened = "C37",
    /// An auxiliary counts the promise of another that has lost its disk, and its vote with it.
    promise_of_lost_vote_counted = "C40",
    /// Of projections that were accepted, the one of the lowest ballot is adopted.
    lowest_vote_adopted = "C43",
}
