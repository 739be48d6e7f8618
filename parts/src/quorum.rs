//! Quorum systems: majorities, grids, and groups of either that share the slots round-robin.
//!
//! Invariant: in every group each read quorum meets each write quorum (flexible quorums; the compartmentalization
//! paper's section 3.2).

use crate::slots::Slot;
use kernel::{Decode, DecodeError, Encode, NodeId, Reader};

/// The most acceptors in a group; a tally is one machine word.
const GROUP_MAX: usize = 64;

/// How the acceptors of a group form quorums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Any majority is a read quorum and a write quorum.
    Majority,
    /// Every row is a read quorum, every column a write quorum.
    Grid {
        /// Acceptors per row.
        columns: usize,
    },
}

/// The acceptors that vote on the same slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptorGroup {
    members: Vec<NodeId>,
    shape: Shape,
}

/// Which members of a group have answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally(u64);

impl Tally {
    /// True if member number `index` has answered.
    pub fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Counts a member; once, however often it answers.
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl AcceptorGroup {
    /// Any majority of `members`; `None` unless there are 1 to 64, all different.
    pub fn majority(members: Vec<NodeId>) -> Option<Self> {
        distinct(&members).then_some(Self { members, shape: Shape::Majority })
    }

    /// A grid of `members`, row by row; `None` unless it is a rectangle of 1 to 64 different members.
    pub fn grid(members: Vec<NodeId>, columns: usize) -> Option<Self> {
        let rectangular = columns > 0 && members.len().is_multiple_of(columns);
        (rectangular && distinct(&members)).then_some(Self { members, shape: Shape::Grid { columns } })
    }

    /// The acceptors, in the order that numbers them.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// How they form quorums.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of `member`.
    pub fn index_of(&self, member: NodeId) -> Option<usize> {
        self.members.iter().position(|&other| other == member)
    }

    /// How many crashes the group survives, wherever they strike.
    pub fn faults(&self) -> usize {
        match self.shape {
            Shape::Majority => (self.members.len() - 1) / 2,
            Shape::Grid { columns } => columns.min(self.members.len() / columns) - 1,
        }
    }

    /// True if those who answered include a read quorum (Phase 1, vote watermarks).
    pub fn is_read_quorum(&self, tally: Tally) -> bool {
        match self.shape {
            Shape::Majority => tally.count() > self.members.len() / 2,
            Shape::Grid { columns } => {
                self.rows(columns).any(|mut row| row.all(|index| tally.contains(index)))
            }
        }
    }

    /// True if those who answered include a write quorum (Phase 2).
    pub fn is_write_quorum(&self, tally: Tally) -> bool {
        match self.shape {
            Shape::Majority => tally.count() > self.members.len() / 2,
            Shape::Grid { columns } => {
                (0..columns).any(|column| self.column(columns, column).all(|index| tally.contains(index)))
            }
        }
    }

    /// A read quorum to ask: number `choice` of a grid's rows; everybody of a majority.
    pub fn read_quorum(&self, choice: u64) -> Vec<NodeId> {
        match self.shape {
            Shape::Majority => self.members.clone(),
            Shape::Grid { columns } => {
                let row = (choice % (self.members.len() / columns) as u64) as usize;
                self.members[row * columns..(row + 1) * columns].to_vec()
            }
        }
    }

    /// A write quorum to ask: number `choice` of a grid's columns; everybody of a majority.
    pub fn write_quorum(&self, choice: u64) -> impl Iterator<Item = NodeId> + '_ {
        let (columns, column) = match self.shape {
            Shape::Majority => (1, 0),
            Shape::Grid { columns } => (columns, (choice % columns as u64) as usize),
        };
        self.column(columns, column).map(|index| self.members[index])
    }

    fn rows(&self, columns: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.members.len() / columns).map(move |row| row * columns..(row + 1) * columns)
    }

    fn column(&self, columns: usize, column: usize) -> impl Iterator<Item = usize> + use<> {
        (column..self.members.len()).step_by(columns)
    }
}

fn distinct(members: &[NodeId]) -> bool {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == members.len() && (1..=GROUP_MAX).contains(&members.len())
}

/// All acceptors: groups that own the slots round-robin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acceptors {
    groups: Vec<AcceptorGroup>,
}

impl Acceptors {
    /// `None` without any group.
    pub fn new(groups: Vec<AcceptorGroup>) -> Option<Self> {
        (!groups.is_empty()).then_some(Self { groups })
    }

    /// The groups, in the order that numbers them.
    pub fn groups(&self) -> &[AcceptorGroup] {
        &self.groups
    }

    /// The number of the group that votes on `slot`.
    pub fn group_of(&self, slot: Slot) -> usize {
        (slot.0 % self.groups.len() as u64) as usize
    }

    /// Every acceptor.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.groups.iter().flat_map(|group| group.members().iter().copied())
    }

    /// How many crashes every group survives.
    pub fn faults(&self) -> usize {
        self.groups.iter().map(AcceptorGroup::faults).min().unwrap_or(0)
    }
}

impl Encode for AcceptorGroup {
    fn encode(&self, out: &mut Vec<u8>) {
        self.members.encode(out);
        match self.shape {
            Shape::Majority => 0u32.encode(out),
            Shape::Grid { columns } => (columns as u32).encode(out),
        }
    }
}

impl Decode for AcceptorGroup {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let members = Vec::decode(input)?;
        let group = match u32::decode(input)? {
            0 => AcceptorGroup::majority(members),
            columns => AcceptorGroup::grid(members, columns as usize),
        };
        group.ok_or(DecodeError::Invalid("acceptor group"))
    }
}

impl Encode for Acceptors {
    fn encode(&self, out: &mut Vec<u8>) {
        self.groups.encode(out);
    }
}

impl Decode for Acceptors {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Acceptors::new(Vec::decode(input)?).ok_or(DecodeError::Invalid("acceptors"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    fn nodes(count: u32) -> Vec<NodeId> {
        (0..count).map(|host| NodeId::new(HostId(host), HostSlot(1))).collect()
    }

    fn every_tally(group: &AcceptorGroup) -> impl Iterator<Item = Tally> {
        (0..1u64 << group.members().len()).map(Tally)
    }

    // Two quorums that miss each other let two values be chosen in one slot.
    #[test]
    fn every_read_quorum_meets_every_write_quorum() {
        let groups = [
            AcceptorGroup::majority(nodes(3)),
            AcceptorGroup::majority(nodes(4)),
            AcceptorGroup::grid(nodes(4), 2),
            AcceptorGroup::grid(nodes(6), 3),
            AcceptorGroup::grid(nodes(6), 2),
        ];
        for group in groups.into_iter().flatten() {
            let reads: Vec<_> = every_tally(&group).filter(|&tally| group.is_read_quorum(tally)).collect();
            let writes: Vec<_> = every_tally(&group).filter(|&tally| group.is_write_quorum(tally)).collect();
            assert!(!reads.is_empty() && !writes.is_empty());
            for &Tally(read) in &reads {
                assert!(writes.iter().all(|&Tally(write)| read & write != 0), "{group:?} {read:b}");
            }
        }
    }

    // The quorum that is asked must be one that suffices, or every slot waits for a timeout.
    #[test]
    fn the_quorums_to_ask_suffice() {
        let grid = AcceptorGroup::grid(nodes(6), 3).expect("2 x 3 is a rectangle");
        for choice in 0..7 {
            let mut read = Tally::default();
            grid.read_quorum(choice)
                .iter()
                .flat_map(|&node| grid.index_of(node))
                .for_each(|index| read.insert(index));
            let mut write = Tally::default();
            grid.write_quorum(choice)
                .flat_map(|node| grid.index_of(node))
                .for_each(|index| write.insert(index));
            assert!(grid.is_read_quorum(read) && grid.is_write_quorum(write));
            assert_eq!((read.count(), write.count()), (3, 2));
        }
        assert_eq!(grid.faults(), 1);
        assert_eq!(AcceptorGroup::majority(nodes(5)).map(|group| group.faults()), Some(2));
    }

    // A crooked grid or a member counted twice would break the intersection.
    #[test]
    fn crooked_groups_are_refused() {
        assert_eq!(AcceptorGroup::grid(nodes(5), 2), None);
        assert_eq!(AcceptorGroup::majority([nodes(2), nodes(1)].concat()), None);
        assert_eq!(AcceptorGroup::majority(Vec::new()), None);
        let grid = AcceptorGroup::grid(nodes(4), 2).expect("2 x 2 is a rectangle");
        assert_eq!(AcceptorGroup::decoded(&kernel::Bytes::from(grid.encoded())), Ok(grid));
    }
}
