//! Messages that are said again and again, mostly unchanged. Idle hosts say little else: heartbeats of every log, and their answers.
//!
//! On each connection such a message gets a number when it is sent first. While it stays the same it is sent again by that number, and
//! all numbers of [`kernel::REPEAT_WITHIN`] leave as one message. Between the same two nodes the order of messages stays as it was.

use kernel::{Bytes, HostSlot, Instant, NodeId, REPEAT_WITHIN};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Where they are sent to and from: no node, and no client, is ever there.
pub(crate) const REPEATS: HostSlot = HostSlot(crate::clients::CLIENT_SLOTS - 2);
/// Hosts that understand messages of this version understand repeats.
pub(crate) const REPEATS_SINCE: u32 = 4;
/// Numbers of one connection; what is beyond is sent as any other message.
const NUMBERS_MAX: u32 = 4_096;
/// The largest message that is remembered: with all numbers in use both ends of a connection hold 16 MiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Beacons of one connection; what is beyond is said again and again.
pub(crate) const BEACONS_MAX: usize = 4_096;
/// Messages between the same two nodes that are remembered: more than those have to say in turn.
const IN_TURN_MAX: usize = 4;

kernel::record! {
    /// A message, and the number by which it is sent again.
    pub(crate) struct Numbered {
        /// The number; what had it before is forgotten.
        number: u32,
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// In the family's encoding.
        message: Bytes,
    }
}

kernel::record! {
    /// Messages that are sent again.
    pub(crate) struct Again {
        /// Their numbers, in order.
        numbers: Vec<u32>,
    }
}

kernel::record! {
    /// A beacon that is new to the other end, or says something else from now on.
    pub(crate) struct Lit {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// In the family's encoding.
        message: kernel::Bytes,
    }
}

kernel::record! {
    /// A beacon that is stopped.
    pub(crate) struct Out {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    }
}

kernel::record! {
    /// All others are as they were.
    pub(crate) struct Steady {
        /// How many there are.
        lit: u32,
    }
}

kernel::record! {
    /// All others are as they were, and nobody uses the host that says so.
    pub(crate) struct Unused {
        /// How many there are.
        lit: u32,
        /// It says so again within so many milliseconds.
        again_within: u32,
    }
}

kernel::sum! {
    /// What is sent to [`REPEATS`].
    pub(crate) enum Repeat {
        /// For the first time.
        1 => First(Numbered),
        /// Not for the first time.
        2 => Later(Again),
        /// A beacon is lit.
        3 => Lit(Lit),
        /// A beacon is stopped.
        4 => Out(Out),
        /// Beacons are as they were.
        5 => Steady(Steady),
        /// The same of a host that nobody uses.
        6 => Unused(Unused),
    }
}

#[derive(Debug)]
struct Said {
    number: u32,
    bytes: Vec<u8>,
}

/// How a message is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Under this number.
    Numbered(u32),
    /// It leaves with others, soon.
    Later,
    /// As any other.
    Plain,
}

/// What one end has said over a connection.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Between two nodes, the latest first.
    said: BTreeMap<(NodeId, NodeId), Vec<Said>>,
    numbers: u32,
    /// What is to be said again.
    again: BTreeSet<u32>,
    due: Option<Instant>,
    /// When it was said again last.
    left_at: Instant,
}

impl Repeats {
    /// Decides how a message leaves.
    pub(crate) fn say(&mut self, from: NodeId, to: NodeId, bytes: &[u8], now: Instant) -> Way {
        let has_room = self.numbers < NUMBERS_MAX;
        if bytes.len() > MESSAGE_BYTES_MAX || (!has_room && !self.said.contains_key(&(from, to))) {
            return Way::Plain;
        }
        let said = self.said.entry((from, to)).or_default();
        if let Some(at) = said.iter().position(|said| said.bytes == bytes) {
            said[..=at].rotate_right(1);
            self.again.insert(said[0].number);
            self.due.get_or_insert(next_moment(now, self.left_at));
            return Way::Later;
        }
        let number = if has_room && said.len() < IN_TURN_MAX {
            self.numbers += 1;
            self.numbers - 1
        } else {
            let Some(oldest) = said.pop() else { return Way::Plain };
            self.again.remove(&oldest.number);
            oldest.number
        };
        said.insert(0, Said { number, bytes: bytes.to_vec() });
        Way::Numbered(number)
    }

    /// The message that was numbered just now did not leave: the other end knows nothing of a number that is new.
    pub(crate) fn was_not_sent(&mut self, from: NodeId, to: NodeId) {
        let Some(said) = self.said.get_mut(&(from, to)).filter(|said| !said.is_empty()) else { return };
        let Said { number, .. } = said.remove(0);
        if number + 1 == self.numbers {
            self.numbers = number;
        } else {
            // Nothing is encoded like that: it is never taken for said.
            said.push(Said { number, bytes: Vec::new() });
        }
    }

    /// True if something between these waits to be said again.
    pub(crate) fn waits(&self, from: NodeId, to: NodeId) -> bool {
        let is_waiting = |said: &Vec<Said>| said.iter().any(|said| self.again.contains(&said.number));
        !self.again.is_empty() && self.said.get(&(from, to)).is_some_and(is_waiting)
    }

    /// When something is to be said again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What is to be said again, in order.
    pub(crate) fn take_again(&mut self, now: Instant) -> Vec<u32> {
        (self.due, self.left_at) = (None, now);
        std::mem::take(&mut self.again).into_iter().collect()
    }
}

/// What is said so soon after a moment leaves at once, if nothing did: timers that run out at the moment are why a host wakes.
const MOMENT_LASTS: Duration = Duration::from_nanos(REPEAT_WITHIN.as_nanos() as u64 / 8);

/// Moments are those of all links, so that a host wakes once for all.
fn next_moment(now: Instant, left_at: Instant) -> Instant {
    let this = now.last_turn(REPEAT_WITHIN);
    if left_at < this && now - this < MOMENT_LASTS { this } else { this + REPEAT_WITHIN }
}

/// The beacons that the other end of a connection has lit.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<(NodeId, NodeId)>);

impl Seen {
    /// `Err` if no sound host lights so many.
    pub(crate) fn light(&mut self, from: NodeId, to: NodeId) -> Result<(), String> {
        self.0.insert((from, to));
        if self.0.len() > BEACONS_MAX {
            return Err(format!("more than {BEACONS_MAX} beacons"));
        }
        Ok(())
    }

    pub(crate) fn put_out(&mut self, from: NodeId, to: NodeId) {
        self.0.remove(&(from, to));
    }

    /// `Err` if the other end has lit others.
    pub(crate) fn are(&self, lit: u32) -> Result<(), String> {
        if self.0.len() != lit as usize {
            return Err(format!("{lit} beacons are lit, and {} are known", self.0.len()));
        }
        Ok(())
    }
}

/// What the other end of a connection has said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    numbered: Vec<Numbered>,
    /// Its beacons.
    pub(crate) beacons: Seen,
}

impl Heard {
    /// Remembers a message; `Err` if no sound host numbers so.
    pub(crate) fn note(&mut self, numbered: Numbered) -> Result<(), String> {
        let (at, known) = (numbered.number as usize, self.numbered.len());
        // A slice of the frame would hold all of that.
        let numbered = Numbered { message: Bytes::copy_from_slice(&numbered.message), ..numbered };
        match self.numbered.get_mut(at) {
            _ if numbered.message.len() > MESSAGE_BYTES_MAX || numbered.number >= NUMBERS_MAX => {
                Err("a message to be repeated is larger, or numbered higher, than any may be".to_owned())
            }
            Some(before) => {
                *before = numbered;
                Ok(())
            }
            None if at == known => {
                self.numbered.push(numbered);
                Ok(())
            }
            None => Err(format!("message {at} to be repeated, and {known} are known")),
        }
    }

    /// What has a number.
    pub(crate) fn numbered(&self, number: u32) -> Result<&Numbered, String> {
        let known = self.numbered.get(number as usize);
        known.ok_or_else(|| format!("message {number} said again, and {} are known", self.numbered.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::HostId;

    fn node(slot: u32) -> NodeId {
        NodeId::new(HostId(7), HostSlot(slot))
    }

    // A heartbeat that is sent as another one's, or not at all, costs a leader its place.
    #[test]
    fn what_is_said_again_leaves_by_its_number() {
        let (mut repeats, at) = (Repeats::default(), Instant(90_000_000));
        assert_eq!(repeats.say(node(1), node(2), b"a", at), Way::Numbered(0));
        assert_eq!(repeats.say(node(1), node(3), b"a", at), Way::Numbered(1));
        assert_eq!((repeats.say(node(1), node(2), b"b", at), repeats.due()), (Way::Numbered(2), None));
        assert_eq!(repeats.say(node(1), node(2), b"a", at), Way::Later);
        assert_eq!(repeats.say(node(1), node(3), b"a", at), Way::Later);
        assert_eq!(repeats.due(), Some(Instant(100_000_000)), "all links speak at the same moments");
        assert!(repeats.waits(node(1), node(2)) && !repeats.waits(node(2), node(1)));
        assert_eq!((repeats.take_again(Instant(100_000_000)), repeats.due()), (vec![0, 1], None));
        assert!(!repeats.waits(node(1), node(2)));
    }

    // What is said at a moment would leave a moment later, and a host would wake twice for it; said again and again it would leave each time.
    #[test]
    fn what_is_said_at_a_moment_leaves_with_it_once() {
        let (mut repeats, ms) = (Repeats::default(), |count: u64| Instant(count * 1_000_000));
        assert_eq!(repeats.say(node(1), node(2), b"a", ms(90)), Way::Numbered(0));
        assert_eq!(repeats.say(node(1), node(2), b"a", ms(102)), Way::Later);
        assert_eq!(repeats.due(), Some(ms(100)), "it is due");
        assert_eq!(repeats.take_again(ms(102)), [0]);
        assert_eq!(repeats.say(node(1), node(2), b"a", ms(103)), Way::Later);
        assert_eq!(repeats.due(), Some(ms(150)), "something left at this moment");
        assert_eq!(repeats.take_again(ms(150)), [0]);
        assert_eq!(repeats.say(node(1), node(2), b"a", ms(210)), Way::Later);
        assert_eq!(repeats.due(), Some(ms(250)), "the moment is over");
    }

    // What changes all the time would fill the table of both ends.
    #[test]
    fn numbers_are_bounded_and_used_again() {
        let (mut repeats, at) = (Repeats::default(), Instant(0));
        for turn in 0..100_u32 {
            let Way::Numbered(number) = repeats.say(node(1), node(2), &turn.to_le_bytes(), at) else {
                panic!("it was not said before")
            };
            assert!(number < IN_TURN_MAX as u32);
        }
        assert_eq!(repeats.say(node(1), node(2), &[0; MESSAGE_BYTES_MAX + 1], at), Way::Plain);
        for to in 0..NUMBERS_MAX {
            let _ = repeats.say(node(3), node(to), b"a", at);
        }
        assert_eq!(repeats.say(node(4), node(5), b"a", at), Way::Plain, "no number is left");
        assert_eq!(repeats.say(node(3), node(5), b"a", at), Way::Later);
        // The oldest that had a number is said no more under it.
        for turn in 0..IN_TURN_MAX as u8 {
            assert!(matches!(repeats.say(node(3), node(5), &[turn], at), Way::Numbered(_)));
        }
        assert_eq!(repeats.take_again(at), Vec::<u32>::new());
    }

    // A number whose message never left would be heard as nothing, or as another message.
    #[test]
    fn what_did_not_leave_is_not_said_again() {
        let (mut repeats, at) = (Repeats::default(), Instant(0));
        assert_eq!(repeats.say(node(1), node(2), b"a", at), Way::Numbered(0));
        repeats.was_not_sent(node(1), node(2));
        assert_eq!(repeats.say(node(1), node(3), b"b", at), Way::Numbered(0), "the other end expects it");
        assert_eq!(repeats.say(node(1), node(2), b"a", at), Way::Numbered(1));
        // An older number, whose message is another now, is not said again either.
        for turn in 0..IN_TURN_MAX as u8 {
            assert!(matches!(repeats.say(node(1), node(3), &[turn], at), Way::Numbered(_)));
        }
        let Way::Numbered(again) = repeats.say(node(1), node(3), b"c", at) else { panic!("it is new") };
        repeats.was_not_sent(node(1), node(3));
        assert_eq!(repeats.say(node(1), node(3), b"c", at), Way::Numbered(again));
    }

    // A host that is not sound must not take memory without bound, nor be heard as somebody else.
    #[test]
    fn numbers_that_are_not_in_order_are_refused() {
        let mut heard = Heard::default();
        let numbered =
            |number| Numbered { number, from: node(1), to: node(2), message: Bytes::from_static(b"a") };
        assert!(heard.note(numbered(1)).is_err() && heard.numbered(0).is_err());
        assert_eq!(heard.note(numbered(0)), Ok(()));
        let second = Numbered { message: Bytes::from_static(b"b"), ..numbered(0) };
        assert_eq!(heard.note(second.clone()), Ok(()));
        assert_eq!(heard.numbered(0), Ok(&second));
        let large = Numbered { message: Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]), ..numbered(1) };
        assert!(heard.note(large).is_err());
    }

    // A host that is not sound must not take memory without bound.
    #[test]
    fn beacons_of_a_connection_are_bounded_and_counted() {
        let mut seen = Seen::default();
        for slot in 0..BEACONS_MAX as u32 {
            assert_eq!(seen.light(node(slot), node(1)), Ok(()));
        }
        assert!(seen.are(BEACONS_MAX as u32).is_ok());
        assert!(seen.light(node(BEACONS_MAX as u32), node(1)).is_err());
        seen.put_out(node(0), node(1));
        seen.put_out(node(0), node(1));
        assert!(seen.are(BEACONS_MAX as u32).is_ok() && seen.are(7).is_err());
    }
}
