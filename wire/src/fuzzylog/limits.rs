//! What a call may ask for: checked by clients before they send, and by gateways before they ask a chain.

use super::{
    COLOUR_BYTES_MAX, COLOURS_MAX, FuzzyCall, NODES_BYTES_MAX, NODES_MAX, NUMBERS_MAX, NewNode, NumberedBy,
    SNAPSHOT_BYTES_MAX,
};
use kernel::Bytes;
use std::fmt;

/// What is wrong with a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FuzzyFault {
    /// It has no node.
    NoNodes,
    /// It has more nodes than a call may have.
    TooManyNodes(usize),
    /// A node or a snapshot names no colour.
    NoColours,
    /// One names more colours than it may have.
    TooManyColours(usize),
    /// A name that no colour can have.
    NoColourName(String),
    /// A colour is named twice.
    NamedTwice(String),
    /// A node has neither one body nor one for each colour.
    WrongBodies,
    /// The nodes hold too much together, in bytes.
    TooLarge(usize),
    /// The number is below what the client has the answers to, or too far above.
    WrongNumber,
    /// A play ends before it begins.
    WrongRange,
    /// It has not one position for each colour.
    WrongTails,
    /// A snapshot's id is too long, in bytes.
    LongSnapshot(usize),
}

impl fmt::Display for FuzzyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("it has no node"),
            Self::TooManyNodes(count) => write!(f, "it has {count} nodes, which is more than {NODES_MAX}"),
            Self::NoColours => f.write_str("it names no colour"),
            Self::TooManyColours(count) => {
                write!(f, "it names {count} colours, which is more than {COLOURS_MAX}")
            }
            Self::NoColourName(name) => write!(
                f,
                "{name:?} is no colour: wanted are 1 to {COLOUR_BYTES_MAX} bytes of text without commas and control characters"
            ),
            Self::NamedTwice(name) => write!(f, "the colour {name} is named twice"),
            Self::WrongBodies => f.write_str("it has neither one body nor one for each colour"),
            Self::TooLarge(bytes) => write!(
                f,
                "its bodies, each with the names of the colours, have {bytes} bytes together, which is more than 1 MiB"
            ),
            Self::WrongNumber => write!(
                f,
                "the number is below what the client has the answers to, or {NUMBERS_MAX} or more above it"
            ),
            Self::WrongRange => f.write_str("it ends before it begins"),
            Self::WrongTails => f.write_str("it has not one position for each colour"),
            Self::LongSnapshot(bytes) => {
                write!(f, "the snapshot's id has {bytes} bytes, which is more than {SNAPSHOT_BYTES_MAX}")
            }
        }
    }
}

/// What the largest node takes beside its body, as the engine has it.
const NODE_HEAD_BYTES: usize = 4 << 10;

/// Whether a colour can have this name.
pub fn check_colour(name: &[u8]) -> Result<(), FuzzyFault> {
    let sound = |name: &str| !name.chars().any(|it| it.is_control() || it == ',');
    let is_name = (1..=COLOUR_BYTES_MAX).contains(&name.len()) && std::str::from_utf8(name).is_ok_and(sound);
    // What is shown of a bad one has a bound.
    let shown = || String::from_utf8_lossy(&name[..name.len().min(COLOUR_BYTES_MAX)]).into_owned();
    if is_name { Ok(()) } else { Err(FuzzyFault::NoColourName(shown())) }
}

fn check_colours(colours: &[Bytes]) -> Result<(), FuzzyFault> {
    if colours.is_empty() {
        return Err(FuzzyFault::NoColours);
    }
    if colours.len() > COLOURS_MAX {
        return Err(FuzzyFault::TooManyColours(colours.len()));
    }
    for (at, colour) in colours.iter().enumerate() {
        check_colour(colour)?;
        if colours[..at].contains(colour) {
            return Err(FuzzyFault::NamedTwice(String::from_utf8_lossy(colour).into_owned()));
        }
    }
    Ok(())
}

impl NumberedBy {
    /// Whether so many numbers from this one on can be remembered.
    pub fn check(&self, count: usize) -> Result<(), FuzzyFault> {
        let last = self.number.checked_add(count as u64 - 1);
        let is_sound = self.number >= self.below && last.is_some_and(|last| last - self.below < NUMBERS_MAX);
        if is_sound { Ok(()) } else { Err(FuzzyFault::WrongNumber) }
    }
}

impl NewNode {
    /// Bytes of what is stored: the bodies, each with the names of the colours.
    pub fn stored_bytes(&self) -> usize {
        let names: usize = self.colours.iter().map(|name| 4 + name.len()).sum();
        self.bodies.iter().map(|body| 8 + names + body.len()).sum()
    }

    fn check(&self) -> Result<(), FuzzyFault> {
        check_colours(&self.colours)?;
        let count = self.bodies.len();
        if count != 1 && count != self.colours.len() { Err(FuzzyFault::WrongBodies) } else { Ok(()) }
    }
}

impl FuzzyCall {
    /// What is wrong with it, if a limit is exceeded or it makes no sense.
    pub fn fault(&self) -> Option<FuzzyFault> {
        let checked = match self {
            Self::AppendNodes(call) => {
                check_nodes(&call.nodes).and_then(|()| call.by.check(call.nodes.len()))
            }
            Self::SyncColour(call) => check_colour(&call.colour),
            Self::PlayColour(call) if call.from > call.to => Err(FuzzyFault::WrongRange),
            Self::PlayColour(call) => check_colour(&call.colour),
            Self::SnapshotColours(call) => check_colours(&call.colours).and_then(|()| call.by.check(1)),
            Self::TrimColour(call) => check_colour(&call.colour),
            Self::AppendPlayed(call) => check_nodes(&call.nodes)
                .and_then(|()| call.by.check(call.nodes.len()))
                .and_then(|()| check_played(&call.nodes, &call.played)),
            Self::NameSnapshot(call) if call.colours.len() != call.tails.len() => Err(FuzzyFault::WrongTails),
            Self::NameSnapshot(call) => check_colours(&call.colours),
            Self::AwaitSnapshot(call) if call.snapshot.len() > SNAPSHOT_BYTES_MAX => {
                Err(FuzzyFault::LongSnapshot(call.snapshot.len()))
            }
            Self::AwaitSnapshot(_) => Ok(()),
            Self::TrimSeen(call) => check_colour(&call.colour),
            Self::CutColours(call) => call.by.check(1),
            Self::OpenRestored(call) => call.by.check(1),
            Self::ScanNodes(call) => match call.to.is_some_and(|to| to < call.from) {
                true => Err(FuzzyFault::WrongRange),
                false => Ok(()),
            },
            Self::RestoreNodes(call) => check_restored(&call.nodes),
            Self::MoveColour(call) => check_colour(&call.colour),
            Self::AddPartition(_) | Self::RemovePartition(_) => Ok(()),
        };
        checked.err()
    }
}

fn check_played(nodes: &[NewNode], played: &[Vec<u64>]) -> Result<(), FuzzyFault> {
    let fits = |(node, played): (&NewNode, &Vec<u64>)| node.colours.len() == played.len();
    let is_sound = nodes.len() == played.len() && nodes.iter().zip(played).all(fits);
    if is_sound { Ok(()) } else { Err(FuzzyFault::WrongTails) }
}

fn check_restored(nodes: &[Bytes]) -> Result<(), FuzzyFault> {
    if nodes.len() > NODES_MAX {
        return Err(FuzzyFault::TooManyNodes(nodes.len()));
    }
    let bytes: usize = nodes.iter().map(Bytes::len).sum();
    if bytes > NODES_BYTES_MAX + NODE_HEAD_BYTES { Err(FuzzyFault::TooLarge(bytes)) } else { Ok(()) }
}

fn check_nodes(nodes: &[NewNode]) -> Result<(), FuzzyFault> {
    if nodes.is_empty() {
        return Err(FuzzyFault::NoNodes);
    }
    if nodes.len() > NODES_MAX {
        return Err(FuzzyFault::TooManyNodes(nodes.len()));
    }
    nodes.iter().try_for_each(NewNode::check)?;
    let bytes: usize = nodes.iter().map(NewNode::stored_bytes).sum();
    if bytes > NODES_BYTES_MAX { Err(FuzzyFault::TooLarge(bytes)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzylog::{AppendNodes, SeenTime};

    fn node(colours: &[&str], bodies: &[usize]) -> NewNode {
        NewNode {
            colours: colours.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect(),
            bodies: bodies.iter().map(|&bytes| vec![b'x'; bytes].into()).collect(),
        }
    }

    fn fault(number: u64, nodes: Vec<NewNode>) -> Option<FuzzyFault> {
        let by = NumberedBy { client: 1, number, below: 5 };
        FuzzyCall::from(AppendNodes { id: 1, seen: SeenTime::default(), by, nodes }).fault()
    }

    // A limit that is off by one lets through what a chain refuses, or refuses what the documentation allows.
    #[test]
    fn calls_at_their_limits_pass_and_beyond_them_do_not() {
        let one = || vec![node(&["a"], &[1])];
        assert_eq!(fault(5, one()), None);
        assert_eq!(fault(5 + NUMBERS_MAX - 1, one()), None);
        for number in [4, 5 + NUMBERS_MAX, u64::MAX] {
            assert_eq!(fault(number, one()), Some(FuzzyFault::WrongNumber), "{number}");
        }
        let room = NODES_BYTES_MAX - node(&["a"], &[0]).stored_bytes();
        assert_eq!(fault(5, vec![node(&["a"], &[room])]), None);
        assert_eq!(
            fault(5, vec![node(&["a"], &[room + 1])]),
            Some(FuzzyFault::TooLarge(NODES_BYTES_MAX + 1))
        );
        let many = |count| (0..count).map(|_| node(&["a"], &[1])).collect::<Vec<_>>();
        assert_eq!(fault(5, many(NODES_MAX)), None);
        assert_eq!(fault(5, many(NODES_MAX + 1)), Some(FuzzyFault::TooManyNodes(NODES_MAX + 1)));
        assert_eq!(fault(5, many(0)), Some(FuzzyFault::NoNodes));
    }

    // A name that is two colours, or none, is somebody else's colour or nobody's.
    #[test]
    fn colours_and_bodies_are_checked() {
        assert_eq!(fault(5, vec![node(&["a", "b"], &[1, 2])]), None);
        assert_eq!(fault(5, vec![node(&["a", "b"], &[1])]), None);
        let named = |name: &str| Some(FuzzyFault::NoColourName(name.to_owned()));
        let long = "x".repeat(COLOUR_BYTES_MAX + 1);
        for (nodes, why) in [
            (node(&[], &[1]), Some(FuzzyFault::NoColours)),
            (node(&["a", "a"], &[1]), Some(FuzzyFault::NamedTwice("a".to_owned()))),
            (node(&["a,b"], &[1]), named("a,b")),
            (node(&["a\nb"], &[1]), named("a\nb")),
            (node(&[""], &[1]), named("")),
            (node(&[&long], &[1]), named(&long[1..])),
            (node(&["a", "b", "c"], &[1, 2]), Some(FuzzyFault::WrongBodies)),
            (node(&["a"], &[]), Some(FuzzyFault::WrongBodies)),
        ] {
            assert_eq!(fault(5, vec![nodes]), why);
        }
        assert!(check_colour(&[0xff]).is_err());
        let names: Vec<String> = (0..=COLOURS_MAX).map(|it| it.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(fault(5, vec![node(&names[1..], &[1])]), None);
        assert_eq!(fault(5, vec![node(&names, &[1])]), Some(FuzzyFault::TooManyColours(COLOURS_MAX + 1)));
    }
}
