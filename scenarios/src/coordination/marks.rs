//! What is done to the service, and what a sweep must reach.

use sim::{Class, StrikeKind};

/// Rare situations; a sweep that misses one fails.
pub(super) const MARKS: &[&str] = &[
    "coordination.asked_another_group",
    "coordination.attached_anew",
    "coordination.closed_a_session",
    "coordination.heard_an_event",
    "coordination.heard_from_below",
    "coordination.heard_of_a_missed_event",
    "coordination.held_the_lock",
    "coordination.learned_of_a_spread",
    "coordination.lost_a_session",
    "coordination.multi_was_refused",
    "coordination.set_watches_again",
    "coordination.version_did_not_match",
    "proxy.adds_groups",
    "proxy.adds_shards",
    "proxy.drains_groups",
    "proxy.removes_shards",
    "proxy.took_groups_out",
    "scenario.changed_the_groups",
    "scenario.changed_the_hosts",
    "scenario.cut_answers_off_one_by_one_and_as_a_whole",
    "scenario.held_one_shard_back",
    "scenario.killed_a_sequencer_in_a_hand_over",
    "scenario.killed_the_sequencer_when_a_group_retired",
    "scenario.killed_who_took_a_snapshot",
    "scenario.lost_answers_one_by_one_and_then_all",
    "scenario.paused_until_the_logs_had_forgotten",
    "scenario.used_groups_that_had_idled",
    "shard.gave_watches_away",
    "shard.handed_over_to_fewer",
    "shard.handed_over_to_more",
    "shard.refused_reads_of_an_old_spread",
];

/// By number, as the scenario carries them out.
pub(super) const STRIKES: [StrikeKind; 16] = [
    StrikeKind { name: "break a user's connection", class: Class::Strike },
    StrikeKind { name: "kill a user's host", class: Class::Strike },
    StrikeKind { name: "kill the sequencer", class: Class::Strike },
    StrikeKind { name: "silence a user until its session is over", class: Class::Strike },
    StrikeKind { name: "add or remove groups or shards", class: Class::Strike },
    StrikeKind { name: "kill a sequencer that has shards hand over", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "replace a host", class: Class::Membership },
    StrikeKind { name: "grow or shrink", class: Class::Membership },
    StrikeKind { name: "kill who takes a peer's snapshot, and a proxy's leader", class: Class::Strike },
    StrikeKind { name: "kill the sequencer when a group retires", class: Class::Strike },
    StrikeKind { name: "use groups that have idled for long", class: Class::Strike },
    StrikeKind { name: "pause a host until the logs forget what it lacks", class: Class::Strike },
    StrikeKind { name: "hold one shard of a host back under busy users", class: Class::Strike },
    StrikeKind { name: "lose a host's answers one by one and then all", class: Class::Strike },
    StrikeKind { name: "cut a user's answers off one by one and then all", class: Class::Strike },
];
