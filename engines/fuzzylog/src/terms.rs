//! Names and numbers: colours, positions, times, appends and who works on them.

use kernel::{Bytes, Decode, DecodeError, Encode, Reader};
use std::collections::BTreeSet;

kernel::number! {
    /// A colour: one totally ordered chain of nodes.
    pub struct Colour(u64);
}

kernel::number! {
    /// Some of the colours, on one chain of servers.
    pub struct PartitionId(u16);
}

/// The most partitions of a deployment.
pub const PARTITIONS_MAX: u16 = 256;

kernel::number! {
    /// Counts what was decided about where colours are. A move is named by the version that began it.
    pub struct MapVersion(u64);
}

kernel::number! {
    /// A region: a deployment of its own, whose nodes others copy. Made from its name, so that it stays when others come and go.
    pub struct RegionId(u32);
}

kernel::number! {
    /// Which command of a partition's row; the first is 0.
    pub struct RowIndex(u64);
}

kernel::number! {
    /// Which node of a colour; the first is 0.
    pub struct NodePosition(u64);
}

kernel::number! {
    /// Names a restore: drawn by who begins it.
    pub struct RestoreId(u64);
}

kernel::number! {
    /// Which projection of a partition: grows by one with every change.
    pub struct ChainEpoch(u64);
}

kernel::number! {
    /// Names a journal: drawn at random by a server that starts with an empty one, so that nobody takes one that lost its disk for
    /// what it was.
    pub struct ChainJournal(u64);
}

/// Declares a small copied structure with an order and a codec.
macro_rules! plain {
    ($(#[$doc:meta])* pub struct $Name:ident { $( $(#[$field_doc:meta])* $field:ident : $Type:ty ),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
        pub struct $Name { $( $(#[$field_doc])* pub $field: $Type ),* }

        impl Encode for $Name {
            fn encode(&self, out: &mut Vec<u8>) {
                $( self.$field.encode(out); )*
            }
        }

        impl Decode for $Name {
            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                Ok(Self { $( $field: <$Type>::decode(input)? ),* })
            }
        }
    };
}

plain! {
    /// When an append is ordered (the paper's timestamp). Those of appends to several partitions are the
    /// same in all of them.
    pub struct AppendTime {
        /// The logical clock of the partition that has proposed it.
        clock: u64,
        /// That partition: breaks ties (the paper's nonce).
        partition: PartitionId,
        /// Counts appends that went ahead of a pending one, behind the append that was delivered last.
        ahead: u64,
    }
}

impl AppendTime {
    /// Before every append.
    pub const ZERO: Self = Self { clock: 0, partition: PartitionId(0), ahead: 0 };
}

plain! {
    /// A user's name for an append, by which it is executed once. Two appends to several partitions that have one number and differ
    /// in what they append are two appends.
    pub struct AppendId {
        /// The user's client.
        client: u64,
        /// Its number there.
        number: u64,
        /// A digest of what is appended, and where.
        content: u64,
    }
}

plain! {
    /// Who works on an append to several partitions. Of two, the one of the later generation is obeyed.
    pub struct Owner {
        /// 0 for its origin; one more for each that took over.
        generation: u32,
        /// Drawn at random, each time anew.
        identity: u64,
    }
}

/// From this generation on an owner is waited for no longer.
const MOST_PATIENT: u32 = 5;

impl Owner {
    /// By how many times the usual it is waited for before somebody takes over from it. Several who take over from each other in turns,
    /// each before the other has finished, give each other more time with each turn.
    pub fn patience(self) -> u32 {
        1 << self.generation.min(MOST_PATIENT)
    }
}

plain! {
    /// A point of a partition's nodes, which are in the order of their colours, and in each of their positions.
    pub struct ScanPoint {
        /// The colour.
        colour: Colour,
        /// The first position that is not before.
        position: NodePosition,
    }
}

plain! {
    /// An edge to another region: so many nodes of its log of the colour come before.
    pub struct Edge {
        /// The region.
        region: RegionId,
        /// How many, from its first one on.
        count: u64,
    }
}

/// What is appended, and where: all that is needed to finish it (the paper's write-ahead log entry).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// The colours, each once, in their order.
    pub colours: Vec<Colour>,
    /// One body for all colours, or one for each; none for a snapshot, which stores nothing.
    pub bodies: Vec<Bytes>,
    /// How far the writer has played each colour in this region, in the order of the colours; empty: nothing. Only what other regions
    /// copy has a use for it, so it is no part of the name.
    pub played: Vec<NodePosition>,
    /// Of what stores nothing: the colours that this restore has made come into view.
    pub opens: Option<RestoreId>,
    /// Which partition each colour is in, as who asks has it; none: as the fixed spread has it. It is no part of the name.
    pub plan: Option<Box<ColourPlan>>,
}

kernel::record! {
    /// In which partition each colour of an append is, as who works on it has it.
    #[derive(Eq)]
    pub struct ColourPlan {
        /// By this version of the map.
        version: MapVersion,
        /// The partitions, in the order of the colours.
        partitions: Vec<PartitionId>,
    }
}

/// Stands where the number of colours does, if what follows the bodies is how far they were played.
const PLAYED: u32 = u32::MAX;
/// Stands there, if a restore's name follows.
const OPENS: u32 = u32::MAX - 1;
/// Stands there, if a plan follows.
const PLANNED: u32 = u32::MAX - 2;

impl Content {
    /// What nobody has played before.
    pub fn new(colours: Vec<Colour>, bodies: Vec<Bytes>) -> Self {
        Self { colours, bodies, played: Vec::new(), opens: None, plan: None }
    }

    /// What a restore has made comes into view in the partitions of these colours, at one time; 0: what any has made is dropped.
    pub fn opening(colours: Vec<Colour>, restore: RestoreId) -> Self {
        Self { opens: Some(restore), ..Self::new(colours, Vec::new()) }
    }

    /// How far the colour at an index of the list was played.
    pub fn played(&self, index: usize) -> NodePosition {
        self.played.get(index).copied().unwrap_or_default()
    }

    /// True of a snapshot: it is ordered as an append is, and stores nothing.
    pub fn is_snapshot(&self) -> bool {
        self.bodies.is_empty()
    }

    /// The body for the colour at an index of the list.
    pub fn body(&self, index: usize) -> Bytes {
        let body = if self.bodies.len() == 1 { self.bodies.first() } else { self.bodies.get(index) };
        body.cloned().unwrap_or_default()
    }

    /// The same to be remembered: without the memory of which its bodies are parts, and without a plan, which may change.
    pub fn compact(&self) -> Self {
        let bodies = self.bodies.iter().map(|body| Bytes::copy_from_slice(body)).collect();
        let (played, opens) = (self.played.clone(), self.opens);
        Self { colours: self.colours.clone(), bodies, played, opens, plan: None }
    }

    /// Where the colour at an index of the list is, as who asks has it.
    pub fn planned(&self, index: usize, base: ColourPlacement) -> Option<PartitionId> {
        match &self.plan {
            Some(plan) => plan.partitions.get(index).copied(),
            None => self.colours.get(index).map(|&colour| base.partition_of(colour)),
        }
    }

    /// The version of the map by which that is so.
    pub fn plan_version(&self) -> MapVersion {
        self.plan.as_ref().map_or(MapVersion(0), |plan| plan.version)
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.bodies.iter().map(Bytes::len).sum()
    }

    /// What is wrong with it, if something is.
    pub fn flaw(&self, colours_max: usize, bytes_max: usize) -> Option<ContentFlaw> {
        let count = self.bodies.len();
        if self.colours.is_empty() {
            Some(ContentFlaw::NoColours)
        } else if self.colours.len() > colours_max {
            Some(ContentFlaw::TooManyColours)
        } else if self.colours.windows(2).any(|pair| pair[0] >= pair[1]) {
            Some(ContentFlaw::ColoursNotDistinct)
        } else if count > 1 && count != self.colours.len()
            || !self.played.is_empty() && self.played.len() != self.colours.len()
            || self.opens.is_some() && count > 0
            || self.plan.as_ref().is_some_and(|plan| plan.partitions.len() != self.colours.len())
        {
            Some(ContentFlaw::BodiesDoNotMatch)
        } else if self.bytes() > bytes_max {
            Some(ContentFlaw::TooLarge)
        } else {
            None
        }
    }

    /// A digest that distinguishes it from what else a user may send under the same number.
    pub fn digest(&self) -> u64 {
        // Of the encoding, which is not made for it.
        let mut digester = parts::Digester::default();
        let count = |count: usize| (count as u32).to_le_bytes();
        digester.write(&count(self.colours.len()));
        self.colours.iter().for_each(|colour| digester.write(&colour.0.to_le_bytes()));
        digester.write(&count(self.bodies.len()));
        for body in &self.bodies {
            digester.write(&count(body.len()));
            digester.write(body);
        }
        if let Some(restore) = self.opens {
            digester.write(&restore.0.to_le_bytes());
        }
        digester.finish()
    }
}

/// Why something cannot be appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentFlaw {
    /// It names no colour.
    NoColours,
    /// It names more colours than an append may have.
    TooManyColours,
    /// It names a colour twice, or not in order.
    ColoursNotDistinct,
    /// It has several bodies, or several positions that were played, and not one for each colour.
    BodiesDoNotMatch,
    /// Its bodies are too large together.
    TooLarge,
}

impl Encode for Content {
    fn encode(&self, out: &mut Vec<u8>) {
        // What has none of them is written as it was before there were any.
        if let Some(plan) = &self.plan {
            PLANNED.encode(out);
            plan.encode(out);
        }
        if let Some(restore) = self.opens {
            OPENS.encode(out);
            restore.encode(out);
        }
        if !self.played.is_empty() {
            PLAYED.encode(out);
        }
        self.colours.encode(out);
        self.bodies.encode(out);
        if !self.played.is_empty() {
            self.played.encode(out);
        }
    }
}

impl Decode for Content {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let plan = if begins_with(PLANNED, input)? { Some(Box::decode(input)?) } else { None };
        let opens = if begins_with(OPENS, input)? { Some(RestoreId::decode(input)?) } else { None };
        let was_played = begins_with(PLAYED, input)?;
        let (colours, bodies) = (Vec::decode(input)?, Vec::decode(input)?);
        let played = if was_played { Vec::decode(input)? } else { Vec::new() };
        Ok(Self { colours, bodies, played, opens, plan })
    }
}

/// Reads a mark that stands before a list, if it is there.
pub(crate) fn begins_with(mark: u32, input: &mut Reader) -> Result<bool, DecodeError> {
    let is_there = u32::decode(&mut input.clone())? == mark;
    if is_there {
        u32::decode(input)?;
    }
    Ok(is_there)
}

/// Which partition each colour is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColourPlacement {
    partitions: u16,
}

impl ColourPlacement {
    /// Colours spread over so many partitions, at least one.
    pub fn over(partitions: u16) -> Self {
        Self { partitions: partitions.max(1) }
    }

    /// How many partitions there are.
    pub fn partitions(self) -> u16 {
        self.partitions
    }

    /// A colour of a partition that was added, which nobody else names: what is ordered for all partitions is ordered for it. Users'
    /// colours are digests; none of 2^56 is one of these.
    pub(crate) fn of_added(partition: PartitionId) -> Colour {
        Colour(u64::MAX - u64::from(partition.0))
    }

    /// Where a colour is.
    pub fn partition_of(self, colour: Colour) -> PartitionId {
        let added = u64::MAX - colour.0;
        if (u64::from(self.partitions)..u64::from(PARTITIONS_MAX)).contains(&added) {
            return PartitionId(added as u16);
        }
        let mixed = colour.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        PartitionId((mixed % u64::from(self.partitions)) as u16)
    }

    /// A colour of each partition, in their own order: what is ordered for these is ordered in all.
    pub fn one_of_each(self) -> Vec<Colour> {
        let (mut colours, mut missing) = (Vec::new(), (0..self.partitions).collect::<BTreeSet<u16>>());
        for colour in (0..).map(Colour) {
            if missing.is_empty() {
                break;
            }
            if missing.remove(&self.partition_of(colour).0) {
                colours.push(colour);
            }
        }
        colours
    }

    /// True if a colour may be in one partition here, and in another one where there are `other` partitions.
    pub fn meets(self, partition: PartitionId, other: Self, there: PartitionId) -> bool {
        let common = u16::try_from(divisor(self.partitions.into(), other.partitions.into())).unwrap_or(1);
        partition.0 % common == there.0 % common
    }

    /// The partitions of several colours, each once, in their order.
    pub fn partitions_of(self, colours: &[Colour]) -> Vec<PartitionId> {
        let mut partitions: Vec<PartitionId> = colours.iter().map(|&it| self.partition_of(it)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }
}

/// The greatest number that divides both.
fn divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A partition that a cut leaves out is read as of no moment.
    #[test]
    fn there_is_a_colour_of_each_partition() {
        for partitions in [1, 3, 64] {
            let placement = ColourPlacement::over(partitions);
            let colours = placement.one_of_each();
            assert!(colours.is_sorted() && colours.len() == usize::from(partitions));
            assert_eq!(placement.partitions_of(&colours).len(), usize::from(partitions));
        }
    }

    // What opens one restore under the name of another is refused, or opens the wrong one.
    #[test]
    fn an_opening_is_named_by_its_restore() {
        let of = |restore| Content::opening(vec![Colour(1), Colour(2)], RestoreId(restore));
        assert_ne!(of(1).digest(), of(2).digest());
        assert_eq!(Content::decoded(&of(7).encoded().into()), Ok(of(7)));
        assert!(of(7).is_snapshot() && of(7).flaw(64, 0).is_none() && of(7).compact() == of(7));
        let storing = Content { bodies: vec![Bytes::new()], ..of(7) };
        assert_eq!(storing.flaw(64, 0), Some(ContentFlaw::BodiesDoNotMatch));
    }

    // Rows of earlier versions hold digests of the encoding.
    #[test]
    fn a_contents_digest_is_that_of_its_encoding() {
        let bodies =
            [vec![], vec![Bytes::from_static(b"nine bytes")], vec![Bytes::from_static(b"a"), Bytes::new()]];
        for (colours, bodies) in (0..3).zip(bodies) {
            let content = Content::new((0..colours).map(Colour).collect(), bodies);
            assert_eq!(content.digest(), parts::digest(&content.encoded()));
        }
    }
}
