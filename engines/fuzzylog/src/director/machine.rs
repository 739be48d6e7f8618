//! What the directors agree on: the projections of all partitions, and the members of the cluster.

use crate::map::{BeginPartition, ColourMap, ColourMoves, MapDecision};
use crate::messages::director::{ChangeDecided, DirectorIn, FollowedMembers};
use crate::projection::ChainProjection;
use crate::terms::{ColourPlacement, MapVersion, PartitionId};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, SnapshotStep, StateMachine};
use paxos::Members;

/// No partition has these numbers. A director of an earlier version, which knows projections alone, passes over what they name.
const NO_PARTITION: PartitionId = PartitionId(u16::MAX);
const NO_PARTITION_BUT_A_MAP: PartitionId = PartitionId(u16::MAX - 1);

/// An entry of the directors' log.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum DirectorEntry {
    /// A projection, which is taken if it follows the one of its partition.
    Project(ChainProjection),
    /// Members, which are taken if they are no earlier ones.
    Follow(FollowedMembers),
    /// Where colours are, which is taken if it follows what was decided before.
    Place(MapDecision),
}

impl Encode for DirectorEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Project(projection) => projection.encode(out),
            Self::Follow(followed) => {
                ChainProjection::initial(NO_PARTITION, &[]).encode(out);
                followed.encode(out);
            }
            Self::Place(decision) => {
                ChainProjection::initial(NO_PARTITION_BUT_A_MAP, &[]).encode(out);
                decision.encode(out);
            }
        }
    }
}

impl Decode for DirectorEntry {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let projection = ChainProjection::decode(input)?;
        match projection.partition {
            NO_PARTITION => FollowedMembers::decode(input).map(Self::Follow),
            NO_PARTITION_BUT_A_MAP => MapDecision::decode(input).map(Self::Place),
            _ => Ok(Self::Project(projection)),
        }
    }
}

/// All that was decided.
#[derive(Clone, Debug)]
struct Decided {
    /// Of all partitions, and behind them of those that may be added.
    projections: Vec<ChainProjection>,
    followed: Option<FollowedMembers>,
    map: ColourMap,
}

impl Decided {
    fn moves(&self) -> Option<ColourMoves> {
        (self.map.version() > MapVersion(0)).then(|| self.map.moves().clone())
    }

    /// The projections without those at the end that nothing was decided of: each host has its own of these, and none of an earlier version.
    fn decided_projections(&self) -> &[ChainProjection] {
        let is_decided = |it: &ChainProjection| {
            let is_of_the_first = it.partition.0 < self.map.base().partitions();
            is_of_the_first || it.is_bootstrapped() || self.map.has(it.partition)
        };
        let count = self.projections.iter().rposition(is_decided).map_or(0, |last| last + 1);
        &self.projections[..count]
    }

    /// A partition that is added begins as the first ones have, with servers that are there.
    fn place(&mut self, decision: MapDecision) {
        if let MapDecision::BeginPartition(BeginPartition { partition, servers }) = &decision
            && let Some(known) = self.projections.get_mut(usize::from(partition.0))
            && !known.is_bootstrapped()
            && partition.0 >= self.map.base().partitions()
        {
            *known = ChainProjection::initial(*partition, servers);
        }
        self.map.decide(decision);
    }

    fn take(&mut self, entry: DirectorEntry) {
        match entry {
            DirectorEntry::Project(proposed) => {
                if let Some(known) = self.projections.get_mut(usize::from(proposed.partition.0))
                    && proposed.epoch == known.epoch.next()
                {
                    *known = proposed;
                }
            }
            DirectorEntry::Follow(proposed) => match &mut self.followed {
                Some(known) if known.members.version > proposed.members.version => {
                    known.drawn = proposed.drawn;
                }
                followed => *followed = Some(proposed),
            },
            DirectorEntry::Place(decision) => self.place(decision),
        }
    }
}

impl Encode for Decided {
    fn encode(&self, out: &mut Vec<u8>) {
        self.decided_projections().to_vec().encode(out);
        if let Some(followed) = &self.followed {
            followed.encode(out);
        }
        if let Some(moves) = self.moves() {
            if self.followed.is_none() {
                nobody().encode(out);
            }
            moves.encode(out);
        }
    }
}

/// Stands where the members do, if none are followed and something comes behind them.
fn nobody() -> FollowedMembers {
    FollowedMembers { members: Members { version: 0, hosts: Vec::new() }, drawn: 0 }
}

impl Decided {
    /// What a snapshot has, and behind it the first projections that it has not.
    fn decoded(bytes: &Bytes, initial: &[ChainProjection], mut map: ColourMap) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes.clone());
        let mut projections: Vec<ChainProjection> = Vec::decode(&mut input)?;
        projections.extend(initial.iter().skip(projections.len()).cloned());
        let is_over = |input: &Reader| input.remaining() == 0;
        let followed = if is_over(&input) { None } else { Some(FollowedMembers::decode(&mut input)?) };
        if !is_over(&input) {
            map.take(ColourMoves::decode(&mut input)?);
        }
        let followed = followed.filter(|it| *it != nobody());
        Ok(Self { projections, followed, map })
    }
}

/// The state machine of the directors' log.
#[derive(Clone, Debug)]
pub struct DirectorMachine {
    /// The director's role on this host.
    role: NodeId,
    initial: Vec<ChainProjection>,
    decided: Decided,
    notices: Vec<(NodeId, Bytes)>,
    writing: Option<Vec<u8>>,
    installing: Vec<u8>,
}

impl DirectorMachine {
    /// The machine of a host's replica, before the first entry.
    pub fn new(role: NodeId, initial: Vec<ChainProjection>, base: ColourPlacement) -> Self {
        let map = ColourMap::new(base).with_room(initial.len());
        let decided = Decided { projections: initial.clone(), followed: None, map };
        Self { role, initial, decided, notices: Vec::new(), writing: None, installing: Vec::new() }
    }

    /// Of all partitions.
    pub fn projections(&self) -> &[ChainProjection] {
        &self.decided.projections
    }

    fn notify(&mut self) {
        let moves = self.decided.moves();
        let Decided { projections, followed, .. } = self.decided.clone();
        let decided = DirectorIn::from(ChangeDecided { projections, followed, moves });
        self.notices.push((self.role, decided.encoded().into()));
    }
}

impl StateMachine for DirectorMachine {
    /// It takes entries alone.
    fn apply(&mut self, _command: &[u8], _response: &mut Vec<u8>) {}

    fn apply_entry(&mut self, entry: &Bytes) {
        let proposed = DirectorEntry::decoded(entry);
        kernel::invariant!(AGREE, proposed.is_ok(), "an entry of the directors' log: {proposed:?}");
        if let Ok(proposed) = proposed {
            self.decided.take(proposed);
        }
        self.notify();
    }

    fn query(&self, _query: &[u8], _response: &mut Vec<u8>) {}

    fn take_notices(&mut self, notices: &mut Vec<(NodeId, Bytes)>) {
        notices.append(&mut self.notices);
    }

    fn begin_snapshot(&mut self) {
        self.writing = Some(self.decided.encoded());
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(mut left) = self.writing.take() else { return SnapshotStep::Done };
        let rest = left.split_off(budget.clamp(1, left.len().max(1)).min(left.len()));
        chunk.push(u8::from(rest.is_empty()));
        chunk.extend_from_slice(&left);
        if rest.is_empty() {
            return SnapshotStep::Done;
        }
        self.writing = Some(rest);
        SnapshotStep::More
    }

    fn reset(&mut self) {
        *self = Self::new(self.role, self.initial.clone(), self.decided.map.base());
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let Some((&is_last, bytes)) = chunk.split_first() else { return Err(DecodeError::Truncated) };
        self.installing.extend_from_slice(bytes);
        if is_last == 1 {
            let whole = Bytes::from(std::mem::take(&mut self.installing));
            let map = ColourMap::new(self.decided.map.base()).with_room(self.initial.len());
            self.decided = Decided::decoded(&whole, &self.initial, map)?;
            self.notify();
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&self.decided.encoded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};
    use paxos::HostEntry;

    fn node(host: u32) -> NodeId {
        NodeId::new(HostId(host), HostSlot(16))
    }

    fn machine() -> DirectorMachine {
        let initial = ChainProjection::initial(PartitionId(0), &[node(1), node(2)]);
        DirectorMachine::new(node(9), vec![initial], ColourPlacement::over(1))
    }

    fn follow(version: u64, drawn: u64) -> DirectorEntry {
        let host = HostEntry { name: "d".to_owned(), address: "d:1".to_owned() };
        DirectorEntry::Follow(FollowedMembers { members: Members { version, hosts: vec![host] }, drawn })
    }

    fn apply(machine: &mut DirectorMachine, entry: &DirectorEntry) {
        machine.apply_entry(&entry.encoded().into());
    }

    fn snapshot(machine: &mut DirectorMachine) -> Vec<Vec<u8>> {
        machine.begin_snapshot();
        let mut chunks = Vec::new();
        loop {
            let mut chunk = Vec::new();
            let step = machine.snapshot_step(20, &mut chunk);
            chunks.push(chunk);
            if step == SnapshotStep::Done {
                return chunks;
            }
        }
    }

    // A later director that knows fewer changes would move chains back to hosts that are gone.
    #[test]
    fn earlier_members_replace_no_later_ones_and_say_who_has_written_last() {
        let mut machine = machine();
        apply(&mut machine, &follow(3, 1));
        apply(&mut machine, &follow(2, 7));
        let followed = machine.decided.followed.clone().expect("members are followed");
        assert_eq!((followed.members.version, followed.drawn), (3, 7));
        let chunks = snapshot(&mut machine);
        assert!(chunks.len() > 1, "it takes several chunks");
        let initial = ChainProjection::initial(PartitionId(0), &[node(5)]);
        let mut other = DirectorMachine::new(node(9), vec![initial], ColourPlacement::over(1));
        chunks.iter().for_each(|chunk| other.install(chunk).expect("it reads back"));
        assert_eq!(other.digest(), machine.digest());
    }

    // Hosts are upgraded one by one, and a directory of an earlier version starts.
    #[test]
    fn without_members_entries_and_snapshots_are_those_of_earlier_versions() {
        let mut machine = machine();
        let next = ChainProjection { epoch: crate::ChainEpoch(2), ..machine.projections()[0].clone() };
        let entry = DirectorEntry::Project(next.clone());
        assert_eq!(entry.encoded(), next.encoded());
        apply(&mut machine, &entry);
        assert_eq!(machine.decided.encoded(), vec![next].encoded());
        // An earlier version takes it for a projection of a partition that it does not know.
        let passed_over = ChainProjection::decoded(&follow(3, 1).encoded().into()).expect("it reads");
        assert_eq!(passed_over.partition, NO_PARTITION);
    }

    // A partition could not be added after a host was upgraded, or hosts of two versions would not agree on what was decided.
    #[test]
    fn partitions_that_may_be_added_are_in_no_snapshot_before() {
        let initial = |partition| ChainProjection::initial(PartitionId(partition), &[node(1)]);
        let first = || DirectorMachine::new(node(9), vec![initial(0)], ColourPlacement::over(1));
        let all = || (0..3).map(initial).collect::<Vec<_>>();
        let with_room = || DirectorMachine::new(node(9), all(), ColourPlacement::over(1));
        let (mut earlier, mut later) = (first(), with_room());
        [&mut earlier, &mut later].into_iter().for_each(|it| apply(it, &follow(3, 1)));
        assert_eq!(snapshot(&mut earlier), snapshot(&mut later));
        let mut upgraded = with_room();
        snapshot(&mut earlier).iter().for_each(|chunk| upgraded.install(chunk).expect("it reads back"));
        let (partition, servers) = (PartitionId(1), vec![node(2)]);
        let begun = BeginPartition { partition, servers: servers.clone() };
        apply(&mut upgraded, &DirectorEntry::Place(begun.into()));
        assert_eq!(upgraded.projections()[1].nodes().collect::<Vec<_>>(), servers);
        let mut other = with_room();
        snapshot(&mut upgraded).iter().for_each(|chunk| other.install(chunk).expect("it reads back"));
        assert_eq!((other.projections(), other.digest()), (upgraded.projections(), upgraded.digest()));
    }

    // A director that starts from a snapshot would have colours where they were, and so two owners of them.
    #[test]
    fn where_colours_are_is_in_snapshots_with_and_without_members() {
        let initial = |partition| ChainProjection::initial(PartitionId(partition), &[node(1)]);
        let new = || DirectorMachine::new(node(9), vec![initial(0), initial(1)], ColourPlacement::over(2));
        for follows in [false, true] {
            let mut machine = new();
            if follows {
                apply(&mut machine, &follow(3, 1));
            }
            let colour = crate::Colour(7);
            let to = PartitionId(1 - machine.decided.map.partition_of(colour).0);
            let begun = machine.decided.map.next_move(vec![colour], to).expect("there is a colour");
            let id = begun.id;
            apply(&mut machine, &DirectorEntry::Place(crate::BeginMove { begun }.into()));
            apply(&mut machine, &DirectorEntry::Place(crate::EndMove { id }.into()));
            assert_eq!(machine.decided.map.partition_of(colour), to);
            let mut other = new();
            snapshot(&mut machine).iter().for_each(|chunk| other.install(chunk).expect("it reads back"));
            assert_eq!(other.digest(), machine.digest());
            assert_eq!(other.decided.map, machine.decided.map);
            assert_eq!(other.decided.followed, machine.decided.followed);
        }
    }
}
