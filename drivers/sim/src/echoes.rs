//! Copies of messages that outlive their time: what a host sent or was sent before it stopped arrives once more after its restart.
//!
//! Chance repeats each message as often as any other, so nearly all of them are heartbeats. Here one of the last messages of each kind
//! between two nodes is remembered, and each kind is as likely as another. A host that begins without its disk is sent what it was sent
//! longest ago, before it lost that: a role that takes such words for new ones begins twice. A copy is a duplication in the plan of faults,
//! like all others.

use crate::class::Class;
use crate::draw::{Purpose, log_uniform, mix, root};
use crate::network::Packet;
use crate::plan::HostIndex;
use crate::swarm::Swarm;

/// A message that arrived once, or will.
#[derive(Clone, Debug)]
struct Remembered {
    packet: Packet,
    /// Which message of its link it is, when it was sent, and when it arrives.
    nth: u64,
    sent: u64,
    arrives: u64,
}

/// A copy that is to arrive.
pub(crate) struct Echo {
    pub(crate) packet: Packet,
    pub(crate) nth: u64,
    pub(crate) sent: u64,
    /// How much later than the message.
    pub(crate) later: u64,
    pub(crate) at: u64,
}

/// One of the last messages of each kind between two nodes. Two kinds that share a place replace each other.
pub(crate) struct Echoes {
    places: Vec<Option<Remembered>>,
    root: u64,
    restarts: u64,
}

const PLACES: usize = 1 << 10;
/// What is remembered is replaced after so long, in nanoseconds: nearly all messages cost a look.
const REPLACED_AFTER: u64 = 50_000_000;
/// Tags of a message that make its kind: the receiver's, and the message's own.
const TAG_BYTES: usize = 2;
/// What was sent longer ago is not repeated, in nanoseconds.
const REMEMBERED_FOR: u64 = 20_000_000_000;
/// How many copies a restart brings at most.
const COPIES_MAX: u64 = 12;
/// How long after the restart they arrive, in nanoseconds.
const AFTER: (f64, f64) = (1e5, 3e9);

impl Echoes {
    /// Those of a seed; none in a replay, where they are duplications of the plan.
    pub(crate) fn of(seed: u64, swarm: &Swarm, replays: bool) -> Self {
        Self::new(root(seed, Purpose::Echoes), !replays && swarm.classes.has(Class::Duplication))
    }

    /// None are drawn unless they are `on`.
    fn new(root: u64, on: bool) -> Self {
        Self { places: if on { vec![None; PLACES] } else { Vec::new() }, root, restarts: 0 }
    }

    /// A message was sent that no fault has struck.
    pub(crate) fn remember(&mut self, packet: &Packet, nth: u64, sent: u64, arrives: u64) {
        if self.places.is_empty() {
            return;
        }
        let tags = packet.bytes.iter().take(TAG_BYTES).fold(0, |tags, &byte| tags << 8 | u64::from(byte));
        let place = mix(mix(packet.from.as_u64(), packet.to.as_u64()), tags) as usize % PLACES;
        if self.places[place].as_ref().is_none_or(|it| sent >= it.sent + REPLACED_AFTER) {
            self.places[place] = Some(Remembered { packet: packet.clone(), nth, sent, arrives });
        }
    }

    /// What arrives once more, since a host has started again, perhaps for the first time without its disk.
    pub(crate) fn draw(&mut self, host: HostIndex, lost_its_disk: bool, now: u64) -> Vec<Echo> {
        self.restarts += 1;
        let draw = mix(self.root, self.restarts);
        // Every other restart is what it was.
        if draw.is_multiple_of(2) {
            return Vec::new();
        }
        let concerns = |it: &Remembered| {
            let is_of_host = it.packet.to_host == host || it.packet.from_host == host && !lost_its_disk;
            is_of_host && (it.sent + REMEMBERED_FOR > now || lost_its_disk)
        };
        let mut found: Vec<usize> = (0..self.places.len())
            .filter(|&place| self.places[place].as_ref().is_some_and(concerns))
            .collect();
        if lost_its_disk {
            found.sort_by_key(|&place| self.places[place].as_ref().map(|it| (it.sent, it.nth)));
            found.truncate(COPIES_MAX as usize);
        }
        let mut echoes = Vec::new();
        let copies = if lost_its_disk { COPIES_MAX } else { 1 + mix(draw, 1) % COPIES_MAX };
        for copy in 0..copies {
            if found.is_empty() {
                break;
            }
            let place = found.swap_remove(mix(draw, 100 + copy) as usize % found.len());
            // Taken: a message arrives twice, and not three times.
            let Some(Remembered { packet, nth, sent, arrives }) = self.places[place].take() else { continue };
            let at = now.max(arrives) + log_uniform(mix(draw, 200 + copy), AFTER.0, AFTER.1) as u64;
            echoes.push(Echo { packet, nth, sent, later: at - arrives, at });
        }
        echoes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{Bytes, HostId, HostSlot, NodeId};
    use std::collections::{BTreeMap, BTreeSet};

    fn packet(tags: [u8; 2], content: u8) -> Packet {
        let node = |host| NodeId::new(HostId(host), HostSlot(0));
        let bytes = Bytes::from(vec![tags[0], tags[1], content]);
        let (from, to) = (node(1), node(2));
        Packet { from, to, from_host: 0, to_host: 1, from_incarnation: 0, bytes, beacons: None }
    }

    // Copies that are nearly always heartbeats show nothing; copies of what was never sent, or before it arrives, show what cannot be.
    #[test]
    fn a_rare_message_is_repeated_as_often_as_a_frequent_one() {
        let (mut echoes, mut repeated) = (Echoes::new(7, true), BTreeMap::new());
        for restart in 0..2_000 {
            let now = restart * REMEMBERED_FOR * 2;
            echoes.remember(&packet([1, 1], 0), 0, now, now + 500);
            for nth in 0..99 {
                let sent = now + nth * (REPLACED_AFTER / 50);
                echoes.remember(&packet([1, 2], nth as u8), 1 + nth, sent, now + 500);
            }
            for echo in echoes.draw(1, false, now) {
                assert!(echo.at > now + 500 && echo.later == echo.at - now - 500);
                assert_eq!(
                    echo.nth,
                    if echo.packet.bytes[1] == 1 { 0 } else { 51 },
                    "one of the last of its kind"
                );
                *repeated.entry(echo.packet.bytes[1]).or_insert(0) += 1;
            }
            assert!(
                echoes.draw(1, false, now + 1).is_empty() || echoes.draw(2, false, now).is_empty(),
                "each once"
            );
        }
        let (rare, frequent) = (repeated[&1], repeated[&2]);
        assert!(rare > 700 && frequent > 700, "{rare} and {frequent}");
        assert!(Echoes::new(7, false).draw(1, false, 0).is_empty());
    }

    // A host without its disk that hears only of late is never taken for one of the beginning.
    #[test]
    fn a_host_without_its_disk_hears_what_it_was_sent_first() {
        let heard = |seed| {
            let mut echoes = Echoes::new(seed, true);
            for tag in 0..40 {
                let sent = u64::from(tag) * 1_000;
                echoes.remember(&packet([1, tag], 0), u64::from(tag), sent, sent + 500);
            }
            let drawn = echoes.draw(1, true, 3 * REMEMBERED_FOR);
            drawn.iter().map(|echo| echo.nth).collect::<BTreeSet<_>>()
        };
        let heard: Vec<_> = (0..400).map(heard).filter(|heard| !heard.is_empty()).collect();
        assert!((150..250).contains(&heard.len()), "every other time: {}", heard.len());
        // Two kinds may share a place.
        assert!(heard.iter().all(|heard| heard.len() == COPIES_MAX as usize && heard.last() < Some(&16)));
    }
}
