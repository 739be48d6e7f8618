//! Colours' names, and what a node holds.
//!
//! The engine knows a colour by the first 64 bits of the SHA-256 of its name. A node holds the names of its colours, so that two names
//! that have one digest are distinguished when they are read.

use fuzzylog::{AppendTime, Colour, ColourNode, Content, NodePosition, PartitionId, RegionId};
use kernel::{Bytes, Decode as _, Encode as _};
use sha2::{Digest as _, Sha256};
use wire::fuzzylog::{FuzzyFailure, NewNode, PlayedNode, SeenTime};

kernel::record! {
    /// What a node holds.
    pub struct NamedBody {
        /// The names of all its colours, in the order of the engine's.
        colours: Vec<Bytes>,
        /// What its user appended.
        body: Bytes,
    }
}

/// Two names that have one digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneDigest;

/// The engine's colour of a name.
pub fn colour_of(name: &[u8]) -> Colour {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let (head, _) = digest.split_at(8);
    Colour(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The engine's colours of names, in the order of the names.
pub fn colours_of(names: &[Bytes]) -> Result<Vec<Colour>, OneDigest> {
    let colours: Vec<Colour> = names.iter().map(|name| colour_of(name)).collect();
    let is_repeated = |at: usize| colours[..at].contains(&colours[at]);
    if (0..colours.len()).any(is_repeated) { Err(OneDigest) } else { Ok(colours) }
}

/// The name of a colour, by what a node of it holds; none if the node is of no user.
pub fn name_of(colour: Colour, body: &Bytes) -> Option<Bytes> {
    NamedBody::decoded(body).ok()?.colours.into_iter().find(|name| colour_of(name) == colour)
}

/// What the engine appends for a node whose colours are these, in the order of its names.
pub fn content_of(node: &NewNode, colours: &[Colour]) -> Content {
    content_after(node, colours, &[])
}

/// The same by one who has played so much of each colour, in the order of the names; empty: nothing.
pub fn content_after(node: &NewNode, colours: &[Colour], played: &[u64]) -> Content {
    let mut order: Vec<usize> = (0..colours.len()).collect();
    order.sort_unstable_by_key(|&at| colours[at]);
    let names: Vec<Bytes> = order.iter().map(|&at| node.colours[at].clone()).collect();
    let named =
        |body: &Bytes| Bytes::from(NamedBody { colours: names.clone(), body: body.clone() }.encoded());
    let bodies = match &node.bodies[..] {
        [one] => vec![named(one)],
        bodies => order.iter().filter_map(|&at| bodies.get(at)).map(named).collect(),
    };
    let played = match played {
        [] => Vec::new(),
        played => order.iter().filter_map(|&at| played.get(at).copied().map(NodePosition)).collect(),
    };
    let colours = order.into_iter().map(|at| colours[at]).collect();
    Content { played, ..Content::new(colours, bodies) }
}

/// A node as those see it who play a colour.
pub(crate) fn played(node: &ColourNode, name: &[u8], times: Times) -> PlayedNode {
    let named = NamedBody::decoded(&node.body).ok();
    let named = named.filter(|it| it.colours.iter().any(|colour| colour == name));
    let at = times.seen_of(node.at);
    match named {
        Some(NamedBody { colours, body }) => PlayedNode { at, colours, body },
        // Somebody else's colour has the same digest.
        None => PlayedNode { at, colours: Vec::new(), body: Bytes::new() },
    }
}

/// Times as users have them. Among several regions each says of which one it is: clocks of two regions have nothing to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Times {
    /// The region's number where a partition's has no bits; 0 if there are no others.
    region: u16,
    /// The highest clock that was answered here.
    latest: u64,
}

/// A time that nobody here was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StrangeTime {
    OfAnotherRegion,
    /// A forged one: partitions raise their clocks to what is seen, and have to count on from there.
    NeverReached,
}

impl From<StrangeTime> for FuzzyFailure {
    fn from(strange: StrangeTime) -> Self {
        match strange {
            StrangeTime::OfAnotherRegion => Self::OtherRegion,
            StrangeTime::NeverReached => Self::Malformed,
        }
    }
}

/// A clock counts appends: none comes so far by itself.
const REACHED_MAX: u64 = 1 << 62;
/// If a forged time has brought clocks there, those of other hosts are at most so far ahead of what was answered here.
const LEAD_MAX: u64 = 1 << 20;

/// A partition's number has so many bits at most: there are 64 partitions.
const PARTITION_BITS: u32 = 6;

impl Times {
    /// Those of a region, whose number is from 1 to 1,023.
    pub(crate) fn of_region(RegionId(number): RegionId) -> Self {
        Self { region: (number as u16) << PARTITION_BITS, latest: 0 }
    }

    /// A time was answered.
    pub(crate) fn answered(&mut self, at: AppendTime) {
        self.latest = self.latest.max(at.clock);
    }

    /// A time as users have it.
    pub(crate) fn seen_of(self, at: AppendTime) -> SeenTime {
        SeenTime { clock: at.clock, partition: at.partition.0 | self.region, ahead: at.ahead }
    }

    /// A time as the engine has it.
    pub(crate) fn time_of(self, seen: SeenTime) -> Result<AppendTime, StrangeTime> {
        let SeenTime { clock, partition, ahead } = seen;
        if clock > REACHED_MAX.max(self.latest.saturating_add(LEAD_MAX)) || ahead > REACHED_MAX {
            return Err(StrangeTime::NeverReached);
        }
        if self.region == 0 {
            return Ok(AppendTime { clock, partition: PartitionId(partition), ahead });
        }
        let of_partition = partition % (1 << PARTITION_BITS);
        match seen == SeenTime::default() || partition - of_partition == self.region {
            true => Ok(AppendTime { clock, partition: PartitionId(of_partition), ahead }),
            false => Err(StrangeTime::OfAnotherRegion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    // Bodies that follow the order of the names while colours follow that of their digests are each other's.
    #[test]
    fn each_colour_has_its_own_body() {
        let names = vec![bytes("red"), bytes("blue"), bytes("green")];
        let colours = colours_of(&names).expect("they differ");
        let node = NewNode { colours: names.clone(), bodies: names.clone() };
        let content = content_of(&node, &colours);
        assert!(content.flaw(64, 1 << 20).is_none(), "the engine takes it");
        for (at, colour) in content.colours.iter().enumerate() {
            let named = NamedBody::decoded(&content.body(at)).expect("it is named");
            assert_eq!(colour_of(&named.body), *colour);
            assert_eq!(named.colours[at], named.body);
        }
        let one = content_of(&NewNode { colours: names, bodies: vec![bytes("x")] }, &colours);
        assert_eq!(one.bodies.len(), 1);
    }

    // A node of somebody else's colour is played as one's own.
    #[test]
    fn a_node_of_another_name_is_not_shown() {
        let names = vec![bytes("red")];
        let colours = colours_of(&names).expect("one");
        let content = content_of(&NewNode { colours: names, bodies: vec![bytes("x")] }, &colours);
        let id = fuzzylog::AppendId { client: 1, number: 2, content: 3 };
        let node = ColourNode { id, at: AppendTime::ZERO, colours, body: content.body(0), across: None };
        assert_eq!(played(&node, b"red", Times::default()).body, bytes("x"));
        assert_eq!(
            played(&node, b"blue", Times::default()),
            PlayedNode { at: SeenTime::default(), colours: Vec::new(), body: Bytes::new() }
        );
    }

    // A time of another region that is taken for one of this raises clocks, or is behind what was seen.
    #[test]
    fn times_are_of_one_region() {
        let at = AppendTime { clock: 7, partition: PartitionId(63), ahead: 2 };
        let (ohio, tokyo) = (Times::of_region(RegionId(1)), Times::of_region(RegionId(1_023)));
        for times in [Times::default(), ohio, tokyo] {
            assert_eq!(times.time_of(times.seen_of(at)), Ok(at));
            assert_eq!(times.time_of(SeenTime::default()), Ok(AppendTime::ZERO), "nothing was seen");
        }
        assert_eq!(ohio.time_of(tokyo.seen_of(at)), Err(StrangeTime::OfAnotherRegion));
        assert_eq!(ohio.time_of(Times::default().seen_of(at)), Err(StrangeTime::OfAnotherRegion));
        assert_eq!(Times::default().seen_of(at), SeenTime { clock: 7, partition: 63, ahead: 2 });
    }

    // One forged time makes the clocks of all partitions overflow, and then two appends have one time.
    #[test]
    fn times_that_nobody_was_answered_are_refused() {
        let mut times = Times::default();
        let at = |clock, ahead| SeenTime { clock, partition: 0, ahead };
        assert_eq!(times.time_of(at(u64::MAX, 0)), Err(StrangeTime::NeverReached));
        assert_eq!(times.time_of(at(7, u64::MAX)), Err(StrangeTime::NeverReached));
        assert!(times.time_of(at(REACHED_MAX, 0)).is_ok());
        // Clocks that were brought there count on, and their times are good.
        let next = AppendTime { clock: REACHED_MAX + 1, partition: PartitionId(0), ahead: 0 };
        assert_eq!(times.time_of(times.seen_of(next)), Err(StrangeTime::NeverReached));
        times.answered(next);
        assert!(times.time_of(at(next.clock + LEAD_MAX, 0)).is_ok());
        assert_eq!(times.time_of(at(next.clock + LEAD_MAX + 1, 0)), Err(StrangeTime::NeverReached));
    }

    // What a user has played of one colour that is said of another one is an edge to nodes that it never saw.
    #[test]
    fn what_was_played_goes_with_its_colour() {
        let names = vec![bytes("red"), bytes("blue"), bytes("green")];
        let colours = colours_of(&names).expect("they differ");
        let node = NewNode { colours: names, bodies: vec![bytes("x")] };
        let content = content_after(&node, &colours, &[1, 2, 3]);
        for (at, colour) in content.colours.iter().enumerate() {
            let expected = colours.iter().position(|it| it == colour).expect("it is one of them") as u64 + 1;
            assert_eq!(content.played(at), NodePosition(expected));
        }
    }

    // A name whose digest changes is another colour after the next upgrade.
    #[test]
    fn colours_stay_what_they_are() {
        assert_eq!(colour_of(b"abc"), Colour(0xba78_16bf_8f01_cfea));
    }
}
