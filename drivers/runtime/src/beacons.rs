//! Beacons of this host's nodes to those of another one. Each is said once over a connection; after that a host says once in
//! [`kernel::REPEAT_WITHIN`] that all of them still are, in one message.

use crate::pace::Pace;
use crate::repeats::{BEACONS_MAX, Lit, MESSAGE_BYTES_MAX, Out, REPEATS, Repeat, Steady, Unused};
use kernel::{HostId, Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Hosts that understand messages of this version understand beacons; to others each is said again and again.
pub(crate) const BEACONS_SINCE: u32 = 5;
/// And those of hosts that nobody uses.
pub(crate) const UNUSED_SINCE: u32 = 6;

#[derive(Debug)]
struct Beacon {
    bytes: Vec<u8>,
    /// The other end of the connection knows it.
    known: bool,
}

/// Those to one host. They outlast its connections.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// By sender and receiver.
    beacons: BTreeMap<(NodeId, NodeId), Beacon>,
    /// Stopped, and the other end does not know.
    stopped: BTreeSet<(NodeId, NodeId)>,
    known: u32,
    due: Option<Instant>,
}

impl Shown {
    /// A beacon is set. What has not changed is no news.
    pub(crate) fn set(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>, now: Instant) {
        match self.beacons.get_mut(&(from, to)) {
            Some(beacon) if beacon.bytes == bytes => return,
            Some(beacon) => {
                if beacon.known && bytes.len() > MESSAGE_BYTES_MAX {
                    self.stopped.insert((from, to));
                } else {
                    self.known -= u32::from(beacon.known);
                }
                *beacon = Beacon { bytes, known: false };
            }
            None => {
                // One that was stopped just now, and is known, is replaced by this one.
                self.known -= u32::from(self.stopped.remove(&(from, to)));
                self.beacons.insert((from, to), Beacon { bytes, known: false });
            }
        }
        self.due = Some(now);
    }

    /// A beacon is stopped.
    pub(crate) fn stop(&mut self, from: NodeId, to: NodeId, now: Instant) {
        let stopped = self.beacons.remove(&(from, to));
        if stopped.is_some_and(|beacon| beacon.known) {
            self.stopped.insert((from, to));
            self.due = Some(now);
        }
    }

    /// Another connection: its other end knows none.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.beacons.values_mut().for_each(|beacon| beacon.known = false);
        self.stopped.clear();
        self.known = 0;
        self.due = (!self.beacons.is_empty()).then_some(now);
    }

    /// When something is to be said.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// They are said next at the next moment, if there are any.
    pub(crate) fn wait(&mut self, now: Instant, pace: Pace) {
        let any = !self.beacons.is_empty() || !self.stopped.is_empty();
        self.due = any.then(|| now.next_turn(pace.every()));
    }

    /// They are said now, if there are any: more is to be said than that they still are.
    pub(crate) fn hasten(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Nothing is said before another connection begins.
    pub(crate) fn pause(&mut self) {
        self.due = None;
    }

    /// Has `say` say what the other end does not know, until it returns false; true if there was something.
    pub(crate) fn report(&mut self, mut say: impl FnMut(&Repeat) -> bool) -> bool {
        let mut any = false;
        while let Some(&(from, to)) = self.stopped.first() {
            if !say(&Repeat::Out(Out { from, to })) {
                return true;
            }
            any = true;
            self.stopped.remove(&(from, to));
            self.known -= 1;
        }
        for (&(from, to), beacon) in self.beacons.iter_mut().filter(|(_, beacon)| !beacon.known) {
            if beacon.bytes.len() > MESSAGE_BYTES_MAX || self.known as usize >= BEACONS_MAX {
                continue;
            }
            if !say(&Repeat::Lit(Lit { from, to, message: beacon.bytes.clone().into() })) {
                return true;
            }
            any = true;
            beacon.known = true;
            self.known += 1;
        }
        any
    }

    /// That nothing has changed; none if the other end knows of no beacon.
    pub(crate) fn steady(&self, pace: Pace) -> Option<Repeat> {
        let lit = self.known;
        let again_within = pace.every().as_millis() as u32;
        let steady = match pace {
            Pace::Used => Repeat::Steady(Steady { lit }),
            Pace::Unused | Pace::AllUnused => Repeat::Unused(Unused { lit, again_within }),
        };
        (lit > 0).then_some(steady)
    }

    /// Those that the other end does not know: it is an older one, or they do not fit.
    pub(crate) fn unknown(&self) -> Vec<(NodeId, NodeId, Vec<u8>)> {
        let unknown = self.beacons.iter().filter(|(_, beacon)| !beacon.known);
        unknown.map(|(&(from, to), beacon)| (from, to, beacon.bytes.clone())).collect()
    }
}

/// Where what is said of beacons comes from, and where it goes to.
pub(crate) fn ends(me: HostId, other: HostId) -> (NodeId, NodeId) {
    (NodeId::new(me, REPEATS), NodeId::new(other, REPEATS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostSlot, NodeId};

    fn node(slot: u32) -> NodeId {
        NodeId::new(HostId(7), HostSlot(slot))
    }

    fn said(shown: &mut Shown) -> Vec<Repeat> {
        let mut said = Vec::new();
        shown.report(|repeat| {
            said.push(repeat.clone());
            true
        });
        said
    }

    // A beacon that the other end takes for lit when it is not hides a failure; one that it never hears of looks like one.
    #[test]
    fn the_other_end_learns_of_each_change_once() {
        let (mut shown, now) = (Shown::default(), Instant(70_000_000));
        let lit = |to: u32, text: &'static [u8]| {
            Repeat::Lit(Lit { from: node(1), to: node(to), message: kernel::Bytes::from_static(text) })
        };
        shown.set(node(1), node(2), b"a".to_vec(), now);
        shown.set(node(1), node(3), b"a".to_vec(), now);
        assert_eq!((shown.due(), shown.steady(Pace::Used)), (Some(now), None));
        assert_eq!(said(&mut shown), [lit(2, b"a"), lit(3, b"a")]);
        shown.wait(now, Pace::Used);
        assert_eq!(shown.due(), Some(Instant(100_000_000)), "all links speak at the same moments");
        shown.set(node(1), node(2), b"a".to_vec(), now);
        assert_eq!((shown.due(), said(&mut shown)), (Some(Instant(100_000_000)), vec![]), "no news");
        assert_eq!(shown.steady(Pace::Used), Some(Repeat::Steady(Steady { lit: 2 })));
        shown.set(node(1), node(2), b"b".to_vec(), now);
        shown.stop(node(1), node(3), now);
        assert_eq!(shown.due(), Some(now));
        let out = Repeat::Out(Out { from: node(1), to: node(3) });
        assert_eq!(said(&mut shown), [out, lit(2, b"b")]);
        assert_eq!(shown.steady(Pace::Used), Some(Repeat::Steady(Steady { lit: 1 })));
        // Stopped and set again before anything is said, or stopped before it was known.
        shown.stop(node(1), node(2), now);
        shown.set(node(1), node(2), b"c".to_vec(), now);
        shown.set(node(1), node(4), b"c".to_vec(), now);
        shown.stop(node(1), node(4), now);
        assert_eq!(said(&mut shown), [lit(2, b"c")]);
        assert_eq!(shown.steady(Pace::Used), Some(Repeat::Steady(Steady { lit: 1 })));
        shown.begin(now);
        assert_eq!(
            (shown.steady(Pace::Used), said(&mut shown)),
            (None, vec![lit(2, b"c")]),
            "another connection"
        );
        shown.set(node(1), node(5), vec![0; MESSAGE_BYTES_MAX + 1], now);
        assert_eq!((said(&mut shown), shown.unknown().len()), (vec![], 1), "too large for it");
        shown.stop(node(1), node(5), now);
        assert_eq!(said(&mut shown), []);
        shown.set(node(1), node(2), vec![0; MESSAGE_BYTES_MAX + 1], now);
        let out = Repeat::Out(Out { from: node(1), to: node(2) });
        assert_eq!((said(&mut shown), shown.steady(Pace::Used)), (vec![out], None));
    }

    // What did not leave is said again, or the two ends count differently.
    #[test]
    fn what_has_no_room_is_said_later() {
        let (mut shown, now) = (Shown::default(), Instant(0));
        shown.set(node(1), node(2), b"a".to_vec(), now);
        assert!(shown.report(|_| false));
        assert_eq!((shown.steady(Pace::Used), said(&mut shown).len()), (None, 1));
        shown.stop(node(1), node(2), now);
        assert!(shown.report(|_| false));
        assert!(
            shown.steady(Pace::Used).is_some()
                && said(&mut shown).len() == 1
                && shown.steady(Pace::Used).is_none()
        );
    }
}
