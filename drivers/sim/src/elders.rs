//! Copies of messages of an earlier time: when something changes between two nodes, what they were sent before arrives once more.
//!
//! Roles turn away what belongs to an epoch, a ballot, an attempt or an incarnation that is over. Such a message has to come late, while
//! its receiver is in the middle of the next one, and a copy at a random moment hardly ever does. A change shows in what is sent: kinds
//! of messages that pass seldom. So of each kind between two nodes one message is remembered that is older than the present, and a rare
//! message brings some of those. A copy is a duplication in the plan of faults, like all others.

use crate::class::Class;
use crate::draw::{Purpose, log_uniform, mix, root};
use crate::echoes::Echo;
use crate::network::Packet;
use crate::plan::HostIndex;
use crate::swarm::Swarm;

/// A message that arrived once, or will.
#[derive(Clone, Debug)]
struct Sent {
    packet: Packet,
    /// Which message of its link it is, when it was sent, and when it arrives.
    nth: u64,
    at: u64,
    arrives: u64,
}

/// A kind of message between two nodes. Two kinds that share a place replace each other.
#[derive(Clone, Debug)]
struct Place {
    last: u64,
    latest: Sent,
    elder: Option<Sent>,
}

/// What was sent before, by kinds.
pub(crate) struct Elders {
    places: Vec<Option<Place>>,
    root: u64,
    changes: u64,
    changed: u64,
}

const PLACES: usize = 1 << 10;
/// Tags of a message that make its kind: the receiver's, and the message's own.
const TAG_BYTES: usize = 2;
/// Messages of a kind that was not sent for so long are a change, in nanoseconds.
const RARE_AFTER: u64 = 2_000_000_000;
/// What is remembered is replaced after so long: nearly all messages cost a look.
const REPLACED_AFTER: u64 = 50_000_000;
/// An elder is so much older than the one that takes its place, or more.
const ELDER_BY: u64 = 1_500_000_000;
/// Elders that were sent before that are not repeated.
const REMEMBERED_FOR: u64 = 30_000_000_000;
/// Changes follow each other by so much.
const CHANGES_APART: u64 = 200_000_000;
/// How many copies a change brings at most, to those between whom it shows and to their hosts.
const COPIES_MAX: u64 = 6;
/// How long after the change they arrive.
const AFTER: (f64, f64) = (1e5, 2e9);

impl Elders {
    /// Those of a seed; none in a replay, where they are duplications of the plan.
    pub(crate) fn of(seed: u64, swarm: &Swarm, replays: bool) -> Self {
        let root = root(seed, Purpose::Elders);
        let on = !replays && swarm.classes.has(Class::Duplication) && mix(root, 0).is_multiple_of(2);
        Self::new(root, on)
    }

    /// None are drawn unless they are `on`.
    fn new(root: u64, on: bool) -> Self {
        let places = if on { vec![None; PLACES] } else { Vec::new() };
        Self { places, root, changes: 0, changed: 0 }
    }

    /// What a host sent before it lost its disk nobody hears any more.
    pub(crate) fn forget(&mut self, host: HostIndex) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|it| it.latest.packet.from_host == host) {
                *place = None;
            }
        }
    }

    /// A message was sent that no fault has struck; what arrives once more, if it is a change.
    pub(crate) fn on_sent(&mut self, packet: &Packet, nth: u64, now: u64, arrives: u64) -> Vec<Echo> {
        if self.places.is_empty() {
            return Vec::new();
        }
        let tags = packet.bytes.iter().take(TAG_BYTES).fold(0, |tags, &byte| tags << 8 | u64::from(byte));
        let place = mix(mix(packet.from.as_u64(), packet.to.as_u64()), tags) as usize % PLACES;
        let sent = || Sent { packet: packet.clone(), nth, at: now, arrives };
        let is_rare = match &mut self.places[place] {
            None => {
                self.places[place] = Some(Place { last: now, latest: sent(), elder: None });
                true
            }
            Some(place) => {
                let is_rare = now >= place.last + RARE_AFTER;
                place.last = now;
                if now >= place.latest.at + REPLACED_AFTER {
                    let before = std::mem::replace(&mut place.latest, sent());
                    if place.elder.as_ref().is_none_or(|elder| before.at >= elder.at + ELDER_BY) {
                        place.elder = Some(before);
                    }
                }
                is_rare
            }
        };
        if !is_rare || now < self.changed + CHANGES_APART {
            return Vec::new();
        }
        self.changed = now;
        self.changes += 1;
        self.draw(packet, now)
    }

    fn draw(&mut self, change: &Packet, now: u64) -> Vec<Echo> {
        let draw = mix(self.root, self.changes);
        // Every other change is what it was.
        if draw.is_multiple_of(2) {
            return Vec::new();
        }
        let hosts = [change.from_host, change.to_host];
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (index, place) in self.places.iter().enumerate() {
            let Some(elder) = place.as_ref().and_then(|it| it.elder.as_ref()) else { continue };
            if elder.at + REMEMBERED_FOR < now {
                continue;
            }
            if [change.from, change.to].contains(&elder.packet.to) {
                near.push(index);
            } else if hosts.contains(&elder.packet.to_host) {
                far.push(index);
            }
        }
        let mut echoes = Vec::new();
        for copy in 0..1 + mix(draw, 1) % COPIES_MAX {
            let bits = mix(draw, 100 + copy);
            // Two of three come to those between whom something changes.
            let from = if far.is_empty() || !near.is_empty() && !bits.is_multiple_of(3) {
                &mut near
            } else {
                &mut far
            };
            if from.is_empty() {
                break;
            }
            let place = from.swap_remove((bits / 3) as usize % from.len());
            // Taken: a message arrives twice, and not three times.
            let Some(elder) = self.places[place].as_mut().and_then(|it| it.elder.take()) else { continue };
            let Sent { packet, nth, at: sent, arrives } = elder;
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

    fn packet(from_host: HostIndex, to_host: HostIndex, tag: u8, content: u8) -> Packet {
        let node = |host: HostIndex| NodeId::new(HostId(u32::from(host)), HostSlot(0));
        let bytes = Bytes::from(vec![1, tag, content]);
        let (from, to) = (node(from_host), node(to_host));
        Packet { from, to, from_host, to_host, from_incarnation: 0, bytes, beacons: None }
    }

    // Copies of what is still true, or of what a host sent before it lost its disk, would show nothing, or what cannot be.
    #[test]
    fn a_change_brings_back_what_was_said_before() {
        let (mut brought, mut none) = (0, 0);
        for root in 0..400 {
            let mut elders = Elders::new(root, true);
            for nth in 0..40 {
                let at = nth * 100_000_000;
                let echoes = elders.on_sent(&packet(0, 1, 1, nth as u8), nth, at, at + 500);
                assert!(echoes.is_empty(), "nothing is older than the first");
            }
            if root % 4 == 0 {
                elders.forget(0);
            }
            let echoes = elders.on_sent(&packet(1, 0, 2, 0), 0, 4_000_000_000, 4_000_000_500);
            if root % 4 == 0 {
                assert!(echoes.is_empty());
                continue;
            }
            none += usize::from(echoes.is_empty());
            for echo in echoes {
                brought += 1;
                assert!(echo.sent <= 3_000_000_000, "an elder, not what was sent last: {}", echo.sent);
                assert!(echo.at > 4_000_000_000 && echo.later == echo.at - echo.sent - 500);
            }
        }
        assert!((120..180).contains(&brought) && brought + none == 300, "{brought} and {none}");
        let mut off = Elders::new(1, false);
        assert!(off.on_sent(&packet(0, 1, 1, 0), 0, 0, 1).is_empty());
    }
}
