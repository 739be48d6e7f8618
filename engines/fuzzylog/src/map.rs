//! Which partition each colour is in: the fixed spread, and the colours that were moved since.
//!
//! Directors decide it, one move after the other. The fixed spread is version 0, so a deployment in which nothing was ever moved has
//! nothing of this anywhere.

use crate::terms::{Colour, ColourPlacement, MapVersion, PARTITIONS_MAX, PartitionId};
use kernel::NodeId;
use std::collections::BTreeSet;

/// Colours that may be elsewhere than the fixed spread has them: 10 bytes each.
pub const MOVED_MAX: usize = 4_096;
/// Colours of one move.
pub const MOVE_COLOURS_MAX: usize = 64;

kernel::record! {
    /// A colour that is not where the fixed spread has it.
    #[derive(Copy)]
    pub struct MovedColour {
        /// The colour.
        colour: Colour,
        /// Where it is.
        partition: PartitionId,
    }
}

kernel::record! {
    /// A move.
    pub struct ColourMove {
        /// Its name.
        id: MapVersion,
        /// Which colours, each once, in their order.
        colours: Vec<Colour>,
        /// From here.
        from: PartitionId,
        /// To here.
        to: PartitionId,
    }
}

kernel::record! {
    /// What was decided about where colours are.
    pub struct ColourMoves {
        /// How much was decided.
        version: MapVersion,
        /// The colours that are not where the fixed spread has them, in their order.
        moved: Vec<MovedColour>,
        /// The move in flight.
        moving: Option<ColourMove>,
        /// The last move that was taken back.
        taken_back: MapVersion,
        /// Partitions beside those of the fixed spread, in their order.
        added: Vec<PartitionId>,
        /// One of them that is to go: its colours go where the fixed spread has them.
        emptied: Option<PartitionId>,
    }
}

kernel::messages! {
    /// What directors decide about where colours are.
    pub enum MapDecision {
        /// A move begins, if it is the one that comes next.
        1 => BeginMove {
            /// Which.
            begun: ColourMove,
        },
        /// The partition that the colours go to has all of them: they are there from now on.
        2 => EndMove {
            /// The move.
            id: MapVersion,
        },
        /// The colours stay where they are.
        3 => TakeMoveBack {
            /// The move.
            id: MapVersion,
        },
        /// There is one more partition.
        4 => BeginPartition {
            /// Its number.
            partition: PartitionId,
            /// The servers of its chain at the beginning.
            servers: Vec<NodeId>,
        },
        /// A partition that was added is to go: no colour goes there any more.
        5 => EmptyPartition {
            /// Which.
            partition: PartitionId,
        },
        /// It has no colour any more, and is gone.
        6 => EndPartition {
            /// Which.
            partition: PartitionId,
        },
    }
}

impl Default for ColourMoves {
    fn default() -> Self {
        let (version, taken_back) = (MapVersion(0), MapVersion(0));
        Self { version, moved: Vec::new(), moving: None, taken_back, added: Vec::new(), emptied: None }
    }
}

/// Where colours are.
#[derive(Clone, PartialEq, Debug)]
pub struct ColourMap {
    base: ColourPlacement,
    /// So many partitions may there be.
    most: u16,
    moves: ColourMoves,
}

/// Why colours cannot be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveFlaw {
    /// There is no such partition.
    NoPartition,
    /// No colour, too many of one move, or not in order.
    Colours,
    /// They are in several partitions.
    Scattered,
    /// As many colours are elsewhere than the fixed spread has them as may be.
    TooManyMoved,
    /// Another move is in flight.
    OtherMove,
    /// The partition is to go.
    Emptied,
}

/// Why a partition cannot be added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionFlaw {
    /// Hosts have no room for another one.
    NoRoom,
    /// There is no such partition.
    NoPartition,
    /// It is one of those that there were from the beginning.
    IsOfTheFirst,
    /// Another one is being removed.
    OtherOne,
}

impl ColourMap {
    /// The fixed spread.
    pub fn new(base: ColourPlacement) -> Self {
        Self { base, most: PARTITIONS_MAX, moves: ColourMoves::default() }
    }

    /// The same, with so many partitions at most.
    #[must_use]
    pub fn with_room(self, most: usize) -> Self {
        Self { most: u16::try_from(most).unwrap_or(PARTITIONS_MAX).min(PARTITIONS_MAX), ..self }
    }

    /// The fixed spread.
    pub fn base(&self) -> ColourPlacement {
        self.base
    }

    /// How much was decided.
    pub fn version(&self) -> MapVersion {
        self.moves.version
    }

    /// What was decided.
    pub fn moves(&self) -> &ColourMoves {
        &self.moves
    }

    /// The move in flight.
    pub fn moving(&self) -> Option<&ColourMove> {
        self.moves.moving.as_ref()
    }

    /// Takes what was decided, if it is later and sound; what a peer sends may be anything.
    pub fn take(&mut self, moves: ColourMoves) -> bool {
        let is_later = moves.version > self.moves.version;
        let has = |partition: PartitionId| {
            partition.0 < self.base.partitions() || moves.added.binary_search(&partition).is_ok()
        };
        let is_sound = moves.moved.len() <= MOVED_MAX
            && moves.added.len() <= usize::from(PARTITIONS_MAX)
            && moves.added.windows(2).all(|pair| pair[0] < pair[1])
            && moves.added.iter().all(|it| it.0 < self.most)
            && moves.moved.windows(2).all(|pair| pair[0].colour < pair[1].colour)
            && moves.moved.iter().all(|it| has(it.partition))
            && moves.moving.iter().all(|it| is_list(&it.colours) && has(it.to) && has(it.from));
        if is_later && is_sound {
            self.moves = moves;
        }
        is_later && is_sound
    }

    /// True of a partition that there is.
    pub fn has(&self, partition: PartitionId) -> bool {
        partition.0 < self.base.partitions() || self.moves.added.binary_search(&partition).is_ok()
    }

    /// All partitions that there are, in their order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        (0..self.base.partitions()).map(PartitionId).chain(self.moves.added.iter().copied())
    }

    /// The partition that is to go.
    pub fn emptied(&self) -> Option<PartitionId> {
        self.moves.emptied
    }

    /// The colours that were moved to a partition and are there.
    pub fn moved_to(&self, partition: PartitionId) -> impl Iterator<Item = Colour> + '_ {
        self.moves.moved.iter().filter(move |it| it.partition == partition).map(|it| it.colour)
    }

    fn place_of(&self, colour: Colour) -> Result<usize, usize> {
        self.moves.moved.binary_search_by_key(&colour, |it| it.colour)
    }

    /// Where a colour is.
    pub fn partition_of(&self, colour: Colour) -> PartitionId {
        match self.place_of(colour) {
            Ok(at) => self.moves.moved[at].partition,
            Err(_) => self.base.partition_of(colour),
        }
    }

    /// The partitions of several colours, each once, in their order.
    pub fn partitions_of(&self, colours: &[Colour]) -> Vec<PartitionId> {
        let partitions: BTreeSet<PartitionId> = colours.iter().map(|&it| self.partition_of(it)).collect();
        partitions.into_iter().collect()
    }

    /// A colour of each partition that may have some, in their own order: what is ordered for these is ordered in all.
    pub fn one_of_each(&self) -> Vec<Colour> {
        let mut missing: BTreeSet<PartitionId> = (0..self.base.partitions()).map(PartitionId).collect();
        let mut colours = Vec::new();
        for colour in (0..).map(Colour) {
            if missing.is_empty() {
                break;
            }
            // What is at home is known to be of the partition without the table, too.
            if self.place_of(colour).is_err() && missing.remove(&self.base.partition_of(colour)) {
                colours.push(colour);
            }
        }
        // Those that were removed before have chains still, and nothing in them.
        let last = self.moves.added.last().map_or(0, |last| last.0 + 1);
        colours.extend((self.base.partitions()..last).map(PartitionId).map(ColourPlacement::of_added));
        colours.sort_unstable();
        colours
    }

    /// Why these colours cannot be moved there, if something speaks against it.
    pub fn flaw(&self, colours: &[Colour], to: PartitionId) -> Option<MoveFlaw> {
        let leaves = |colour: &&Colour| self.base.partition_of(**colour) != to;
        let comes = colours.iter().filter(leaves).filter(|it| self.place_of(**it).is_err()).count();
        if !self.has(to) {
            Some(MoveFlaw::NoPartition)
        } else if self.moves.emptied == Some(to) {
            Some(MoveFlaw::Emptied)
        } else if !is_list(colours) {
            Some(MoveFlaw::Colours)
        } else if self.partitions_of(colours).len() > 1 {
            Some(MoveFlaw::Scattered)
        } else if self.moves.moved.len() + comes > MOVED_MAX {
            Some(MoveFlaw::TooManyMoved)
        } else {
            self.moves.moving.is_some().then_some(MoveFlaw::OtherMove)
        }
    }

    /// The move that would come next.
    pub fn next_move(&self, colours: Vec<Colour>, to: PartitionId) -> Option<ColourMove> {
        let from = self.partition_of(*colours.first()?);
        Some(ColourMove { id: self.moves.version.next(), colours, from, to })
    }

    /// Why a partition cannot be removed.
    pub fn removal_flaw(&self, removed: PartitionId) -> Option<PartitionFlaw> {
        if removed.0 < self.base.partitions() {
            Some(PartitionFlaw::IsOfTheFirst)
        } else if !self.has(removed) {
            Some(PartitionFlaw::NoPartition)
        } else {
            self.moves.emptied.is_some_and(|it| it != removed).then_some(PartitionFlaw::OtherOne)
        }
    }

    /// The number that the next partition gets, if there may be one more.
    pub fn unused(&self) -> Option<PartitionId> {
        (self.base.partitions()..self.most).map(PartitionId).find(|it| !self.has(*it))
    }

    /// Takes a decision; what does not follow from what was decided before changes nothing.
    pub(crate) fn decide(&mut self, decision: MapDecision) {
        match decision {
            MapDecision::BeginMove(BeginMove { begun }) => self.begin(begun),
            MapDecision::EndMove(EndMove { id }) => drop(self.end(id, false)),
            MapDecision::TakeMoveBack(TakeMoveBack { id }) => drop(self.end(id, true)),
            MapDecision::BeginPartition(BeginPartition { partition, .. }) => {
                if let Err(at) = self.moves.added.binary_search(&partition)
                    && !self.has(partition)
                    && partition.0 < self.most
                {
                    self.moves.added.insert(at, partition);
                    self.moves.version = self.moves.version.next();
                }
            }
            MapDecision::EmptyPartition(EmptyPartition { partition }) => {
                if self.removal_flaw(partition).is_none() && self.moves.emptied.is_none() {
                    self.moves.emptied = Some(partition);
                    self.moves.version = self.moves.version.next();
                }
            }
            MapDecision::EndPartition(EndPartition { partition }) => {
                let is_used = self.moved_to(partition).next().is_some();
                let is_awaited = self.moves.moving.as_ref().is_some_and(|it| it.to == partition);
                if self.moves.emptied == Some(partition) && !is_used && !is_awaited {
                    self.moves.added.retain(|it| *it != partition);
                    self.moves.emptied = None;
                    self.moves.version = self.moves.version.next();
                }
            }
        }
    }

    /// A move begins, if it is the one that would come next.
    pub(crate) fn begin(&mut self, begun: ColourMove) {
        let is_next = self.next_move(begun.colours.clone(), begun.to).as_ref() == Some(&begun);
        if is_next && begun.from != begun.to && self.flaw(&begun.colours, begun.to).is_none() {
            self.moves.version = begun.id;
            self.moves.moving = Some(begun);
        }
    }

    /// A move is over: the colours are where they were to go, or stay where they are. False if it is not in flight.
    pub(crate) fn end(&mut self, id: MapVersion, is_taken_back: bool) -> bool {
        let Some(ended) = self.moves.moving.take_if(|it| it.id == id) else { return false };
        self.moves.version = self.moves.version.next();
        if is_taken_back {
            self.moves.taken_back = id;
            return true;
        }
        for &colour in &ended.colours {
            let is_home = self.base.partition_of(colour) == ended.to;
            match self.place_of(colour) {
                Ok(at) if is_home => drop(self.moves.moved.remove(at)),
                Ok(at) => self.moves.moved[at].partition = ended.to,
                Err(_) if is_home => {}
                Err(at) => self.moves.moved.insert(at, MovedColour { colour, partition: ended.to }),
            }
        }
        true
    }
}

fn is_list(colours: &[Colour]) -> bool {
    (1..=MOVE_COLOURS_MAX).contains(&colours.len()) && colours.windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ColourMap {
        ColourMap::new(ColourPlacement::over(3))
    }

    fn elsewhere(map: &ColourMap, colour: Colour) -> PartitionId {
        PartitionId((map.partition_of(colour).0 + 1) % 3)
    }

    // Two moves at once, or one that ends twice, would leave a colour with two owners.
    #[test]
    fn one_move_is_in_flight_and_ends_once() {
        let (mut map, colour) = (map(), Colour(7));
        let (from, to) = (map.partition_of(colour), elsewhere(&map, colour));
        let first = map.next_move(vec![colour], to).expect("there is a colour");
        map.begin(first.clone());
        let second = map.next_move(vec![Colour(8)], to).expect("there is a colour");
        map.begin(second);
        assert_eq!(map.moving(), Some(&first));
        assert_eq!((map.partition_of(colour), map.version()), (from, MapVersion(1)));
        assert!(map.end(first.id, false) && !map.end(first.id, true));
        assert_eq!((map.partition_of(colour), map.version()), (to, MapVersion(2)));
        // The way home takes its place in the table away.
        let back = map.next_move(vec![colour], from).expect("there is a colour");
        map.begin(back.clone());
        assert!(map.end(back.id, false));
        assert_eq!((map.partition_of(colour), map.moves().moved.len()), (from, 0));
    }

    // A cut that misses a partition is of no moment there.
    #[test]
    fn there_is_a_colour_of_each_partition_after_moves() {
        let mut map = map();
        for colour in map.one_of_each() {
            let begun = map.next_move(vec![colour], elsewhere(&map, colour)).expect("there is a colour");
            map.begin(begun.clone());
            assert!(map.end(begun.id, false));
        }
        assert_eq!(map.partitions_of(&map.one_of_each()).len(), 3);
    }

    // The table is sent to every server: it must not grow without bound.
    #[test]
    fn a_table_that_is_full_takes_no_more() {
        let mut map = map();
        let away = |colour: &Colour| map.base().partition_of(*colour) != PartitionId(0);
        let moved: Vec<Colour> = (0..).map(Colour).filter(away).take(MOVED_MAX + 1).collect();
        let (last, others) = moved.split_last().expect("there are some");
        let place = |&colour: &Colour| MovedColour { colour, partition: PartitionId(0) };
        let full = ColourMoves {
            version: MapVersion(9),
            moved: others.iter().map(place).collect(),
            ..ColourMoves::default()
        };
        assert!(map.take(full.clone()) && !map.take(full));
        assert_eq!(map.flaw(&[*last], PartitionId(0)), Some(MoveFlaw::TooManyMoved));
        assert_eq!(map.flaw(&[moved[0]], map.base().partition_of(moved[0])), None);
    }
}
