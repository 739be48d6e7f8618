//! Colours' names, and what a node holds.
//!
//! The engine knows a colour by the first 64 bits of the SHA-256 of its name. A node holds the names of its colours, so that two names
//! that have one digest are distinguished when they are read.

use fuzzylog::{AppendTime, Colour, ColourNode, Content, PartitionId};
use kernel::{Bytes, Decode as _, Encode as _};
use sha2::{Digest as _, Sha256};
use wire::fuzzylog::{NewNode, PlayedNode, SeenTime};

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

/// What the engine appends for a node whose colours are these, in the order of its names.
pub fn content_of(node: &NewNode, colours: &[Colour]) -> Content {
    let mut order: Vec<usize> = (0..colours.len()).collect();
    order.sort_unstable_by_key(|&at| colours[at]);
    let names: Vec<Bytes> = order.iter().map(|&at| node.colours[at].clone()).collect();
    let named =
        |body: &Bytes| Bytes::from(NamedBody { colours: names.clone(), body: body.clone() }.encoded());
    let bodies = match &node.bodies[..] {
        [one] => vec![named(one)],
        bodies => order.iter().filter_map(|&at| bodies.get(at)).map(named).collect(),
    };
    Content::new(order.into_iter().map(|at| colours[at]).collect(), bodies)
}

/// A node as those see it who play a colour.
pub fn played(node: &ColourNode, name: &[u8]) -> PlayedNode {
    let named = NamedBody::decoded(&node.body).ok();
    let named = named.filter(|it| it.colours.iter().any(|colour| colour == name));
    let at = seen_of(node.at);
    match named {
        Some(NamedBody { colours, body }) => PlayedNode { at, colours, body },
        // Somebody else's colour has the same digest.
        None => PlayedNode { at, colours: Vec::new(), body: Bytes::new() },
    }
}

/// A time as users have it.
pub fn seen_of(at: AppendTime) -> SeenTime {
    SeenTime { clock: at.clock, partition: at.partition.0, ahead: at.ahead }
}

/// A time as the engine has it.
pub fn time_of(seen: SeenTime) -> AppendTime {
    AppendTime { clock: seen.clock, partition: PartitionId(seen.partition), ahead: seen.ahead }
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
        assert_eq!(played(&node, b"red").body, bytes("x"));
        assert_eq!(
            played(&node, b"blue"),
            PlayedNode { at: SeenTime::default(), colours: Vec::new(), body: Bytes::new() }
        );
    }

    // A name whose digest changes is another colour after the next upgrade.
    #[test]
    fn colours_stay_what_they_are() {
        assert_eq!(colour_of(b"abc"), Colour(0xba78_16bf_8f01_cfea));
    }
}
