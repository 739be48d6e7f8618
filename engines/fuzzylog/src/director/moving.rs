//! How directors change where colours are: one change after the other, each decided in their log.
//!
//! A move begins when it is decided, and ends when the partition to which the colours go has reported that it has all of them. If it
//! reports that it has no room, or nothing comes of it for `move_for`, the move is taken back: one of the two entries comes first in the
//! log, and the other one counts no more. Who leads may change at any time; what is in flight is in the log.

use super::machine::DirectorEntry;
use super::{
    Director, FewerPartitions, MorePartitions, MoveColours, MovesSeen, PlacementChange, WantChange, WantMap,
    Watch,
};
use crate::map::{
    BeginMove, BeginPartition, ColourMap, ColourMoves, EmptyPartition, EndMove, EndPartition,
    MOVE_COLOURS_MAX, MapDecision, MoveFlaw, PartitionFlaw, TakeMoveBack,
};
use crate::messages::chain_server::PlaceColours;
use crate::messages::client::{
    ChangeDone, ChangeFlaw, ChangeInFlight, ChangeRefused, ChangeStands, ChangeState, ColoursPlaced,
};
use crate::messages::director::ComingColours;
use crate::terms::{Colour, MapVersion, PartitionId};
use kernel::{Cx, Encode as _, Instant, NodeId};
use paxos::Value;
use paxos::multipaxos::leader;
use std::collections::BTreeMap;

/// What a director knows about where colours are.
#[derive(Clone, Debug)]
pub(super) struct Placing {
    pub(super) map: ColourMap,
    /// There are other regions.
    among_regions: bool,
    /// The move in flight, and since when this director has led with it and no more of it has come.
    since: Option<(MapVersion, Instant)>,
    /// How much of it has come.
    came: Option<ComingColours>,
    /// When the last one was taken back.
    taken_back_at: Option<Instant>,
    proposed_at: Option<Instant>,
    /// When servers of the move in flight were last notified of who has what they are to take.
    notified_at: Option<Instant>,
}

impl Placing {
    pub(super) fn new(map: ColourMap, among_regions: bool) -> Self {
        let (since, came, taken_back_at, proposed_at, notified_at) = (None, None, None, None, None);
        Self { map, among_regions, since, came, taken_back_at, proposed_at, notified_at }
    }

    /// Another director has led.
    pub(super) fn begin_to_lead(&mut self) {
        (self.since, self.came, self.taken_back_at) = (None, None, None);
        (self.proposed_at, self.notified_at) = (None, None);
    }
}

impl Director {
    /// Where colours are, as far as it knows.
    pub fn map(&self) -> &ColourMap {
        &self.placing.map
    }

    /// The partitions that there are, and those that were removed, whose chains stay: the next ones that are added have them.
    pub(super) fn used(&self) -> impl Iterator<Item = &Watch> {
        let map = &self.placing.map;
        self.watches
            .iter()
            .filter(|watch| watch.projection.is_bootstrapped() || map.has(watch.projection.partition))
    }

    /// The partitions that there were from the beginning have chains.
    pub(super) fn is_bootstrapped(&self) -> bool {
        let first = usize::from(self.placing.map.base().partitions());
        self.watches.iter().take(first).all(|watch| watch.projection.is_bootstrapped())
    }

    pub(super) fn on_placed(&mut self, moves: ColourMoves, cx: &mut Cx<'_, Self>) {
        let was_taken_back = self.placing.map.moves().taken_back;
        if self.placing.map.take(moves) {
            self.placing.proposed_at = None;
            if self.placing.map.moves().taken_back > was_taken_back {
                self.placing.taken_back_at = Some(cx.now());
            }
            if self.leads {
                self.place_everywhere(cx);
            }
        }
    }

    fn sources(&self) -> Vec<NodeId> {
        let Some(begun) = self.placing.map.moving() else { return Vec::new() };
        let watch = self.watches.get(usize::from(begun.from.0));
        watch.map(|watch| watch.projection.nodes().collect()).unwrap_or_default()
    }

    fn place_at(&self, servers: impl IntoIterator<Item = NodeId>, cx: &mut Cx<'_, Self>) {
        let (moves, sources) = (self.placing.map.moves().clone(), self.sources());
        // It is decided: a majority has it on its disks.
        cx.multicast(servers, PlaceColours { moves, sources });
    }

    /// The servers that move colours learn what is decided at once, the others when they are heard.
    fn place_everywhere(&mut self, cx: &mut Cx<'_, Self>) {
        self.placing.notified_at = Some(cx.now());
        let Some(begun) = self.placing.map.moving() else { return };
        let concerned = [begun.from, begun.to].map(|it| self.watches.get(usize::from(it.0)));
        let servers: Vec<NodeId> =
            concerned.into_iter().flatten().flat_map(|watch| watch.projection.nodes()).collect();
        self.place_at(servers, cx);
    }

    /// A server has said what it knows.
    pub(super) fn on_moves_seen(&mut self, from: NodeId, seen: MovesSeen, cx: &mut Cx<'_, Self>) {
        if !self.leads {
            return;
        }
        if seen.version < self.placing.map.version() {
            self.place_at([from], cx);
        }
        let Some(begun) = self.placing.map.moving() else { return };
        let id = begun.id;
        let is_of_target = self
            .watches
            .get(usize::from(begun.to.0))
            .is_some_and(|watch| watch.projection.nodes().any(|node| node.host_slot() == from.host_slot()));
        if is_of_target && seen.coming > self.placing.came && seen.coming.is_some_and(|it| it.id == id) {
            (self.placing.came, self.placing.since) = (seen.coming, Some((id, cx.now())));
        }
        if is_of_target && seen.taken == Some(id) {
            self.propose_map(EndMove { id }.into(), cx);
        } else if is_of_target && seen.has_no_room == Some(id) {
            cx.mark("director.took_back_a_move_without_room");
            self.propose_map(TakeMoveBack { id }.into(), cx);
        }
    }

    fn propose_map(&mut self, decision: MapDecision, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let is_due = |at: Instant| now.since(at) >= self.parameters.resend_after;
        if !self.placing.proposed_at.is_none_or(is_due) {
            return;
        }
        self.placing.proposed_at = Some(now);
        match Value::entry(DirectorEntry::Place(decision).encoded()) {
            Ok(value) => cx.send(self.log.leader, paxos::Message::from(leader::Propose { value })),
            // A move has at most so many colours, and a chain so many servers.
            Err(_) => cx.reject("decision larger than a slot holds"),
        }
    }

    /// Goes on with what is in flight.
    pub(super) fn look_after_map(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.leads {
            return;
        }
        let now = cx.now();
        if self.place_anew(cx) {
            return;
        }
        let Some(begun) = self.placing.map.moving() else {
            self.placing.since = None;
            return self.go_on_emptying(cx);
        };
        let id = begun.id;
        let since = match self.placing.since {
            Some((known, since)) if known == id => since,
            Some(_) | None => now,
        };
        self.placing.since = Some((id, since));
        let notify_after = 2 * self.parameters.resend_after;
        if self.placing.notified_at.is_none_or(|at| now.since(at) >= notify_after) {
            self.place_everywhere(cx);
        }
        if now.since(since) >= self.parameters.move_for {
            cx.mark("director.took_back_a_move_that_took_too_long");
            self.propose_map(TakeMoveBack { id }.into(), cx);
        }
    }

    /// A partition that was added has no chain before all of its first servers are there: it gets others, if one of them is not. True if
    /// there is such a partition.
    fn place_anew(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let now = cx.now();
        let Some(first) = self.watches.first() else { return false };
        let is_away = |node: NodeId| !first.hears(node.host(), now, &self.parameters);
        let is_stuck = |watch: &&Watch| {
            let projection = &watch.projection;
            let was_added = projection.partition.0 >= self.placing.map.base().partitions();
            was_added && !projection.is_bootstrapped() && projection.nodes().any(is_away)
        };
        let Some(partition) = self.used().find(is_stuck).map(|watch| watch.projection.partition) else {
            return false;
        };
        let servers = self.servers_for(partition, now);
        if servers.is_empty() {
            return false;
        }
        cx.mark("director.places_a_partition_anew");
        self.propose_map(BeginPartition { partition, servers }.into(), cx);
        true
    }

    /// The partition that is to go: its colours go home, then it does.
    fn go_on_emptying(&mut self, cx: &mut Cx<'_, Self>) {
        let map = &self.placing.map;
        let Some(partition) = map.emptied() else { return };
        let mut homes: BTreeMap<PartitionId, Vec<Colour>> = BTreeMap::new();
        for colour in map.moved_to(partition) {
            homes.entry(map.base().partition_of(colour)).or_default().push(colour);
        }
        let Some((home, mut colours)) = homes.pop_first() else {
            return self.propose_map(EndPartition { partition }.into(), cx);
        };
        // What does not go there now would have its colours pause again and again.
        let (now, wait) = (cx.now(), self.parameters.move_for);
        if self.placing.taken_back_at.is_some_and(|at| now.since(at) < wait) {
            return;
        }
        colours.truncate(MOVE_COLOURS_MAX);
        if let Some(begun) = map.next_move(colours, home) {
            self.propose_map(BeginMove { begun }.into(), cx);
        }
    }

    pub(super) fn on_want_map(&mut self, from: NodeId, message: &WantMap, cx: &mut Cx<'_, Self>) {
        if self.placing.map.version() >= message.version && message.version > MapVersion(0) {
            cx.send(from, ColoursPlaced { moves: self.placing.map.moves().clone() });
        }
    }

    pub(super) fn on_want_change(&mut self, from: NodeId, message: WantChange, cx: &mut Cx<'_, Self>) {
        if !self.leads {
            return self.hand_on(from, message, cx);
        }
        // The first entries of the log would be another state to those who begin with another cluster file.
        if !self.is_bootstrapped() {
            return;
        }
        let WantChange { call, change, begun, client } = message;
        let from = client.unwrap_or(from);
        let state = match change {
            _ if self.placing.among_regions => refused(ChangeFlaw::AmongRegions),
            PlacementChange::MoveColours(MoveColours { colours, to }) => {
                self.want_move(colours, to, begun, cx)
            }
            PlacementChange::MorePartitions(MorePartitions { added }) => self.want_partition(added, cx),
            PlacementChange::FewerPartitions(FewerPartitions { removed }) => {
                self.want_no_partition(removed, cx)
            }
        };
        cx.send(from, ChangeStands { call, state });
    }

    /// Who leads answers.
    fn hand_on(&self, from: NodeId, message: WantChange, cx: &mut Cx<'_, Self>) {
        let own = cx.node();
        if message.client.is_some() {
            return;
        }
        let leader = self.leader.map(|ballot| ballot.leader.host());
        let asked = leader.map_or_else(|| self.directors().to_vec(), |leader| vec![leader]);
        let asked = asked.into_iter().filter(|host| *host != own.host());
        let asked: Vec<NodeId> = asked.map(|host| NodeId::new(host, own.host_slot())).collect();
        cx.multicast(asked, WantChange { client: Some(from), ..message });
    }

    fn want_move(
        &mut self,
        colours: Vec<Colour>,
        to: PartitionId,
        begun: Option<MapVersion>,
        cx: &mut Cx<'_, Self>,
    ) -> ChangeState {
        let map = &self.placing.map;
        let is_over = |id: MapVersion| map.version() > id && map.moving().is_none_or(|it| it.id != id);
        // Moves follow each other: one that is over after the last one that was taken back has ended, wherever the colours are by now.
        if let Some(begun) = begun.filter(|begun| is_over(*begun))
            && begun >= map.moves().taken_back
        {
            return match begun == map.moves().taken_back {
                true => refused(ChangeFlaw::TakenBack),
                false => ChangeDone { version: map.version(), partition: to }.into(),
            };
        }
        let moving = map.moving().filter(|it| it.to == to && it.colours == colours).map(|it| it.id);
        let flaw = map.flaw(&colours, to);
        let is_there = map.partitions_of(&colours) == [to];
        if is_there && map.moving().is_none_or(|it| colours.iter().all(|colour| !it.colours.contains(colour)))
        {
            return ChangeDone { version: map.version(), partition: to }.into();
        }
        if moving.is_some() || flaw == Some(MoveFlaw::OtherMove) {
            return ChangeInFlight { id: moving, partition: None }.into();
        }
        if let Some(flaw) = flaw {
            return refused(ChangeFlaw::Move(flaw));
        }
        if let Some(begun) = map.next_move(colours, to) {
            cx.mark("director.begins_a_move");
            self.propose_map(BeginMove { begun }.into(), cx);
        }
        ChangeInFlight { id: None, partition: None }.into()
    }

    fn want_partition(&mut self, added: Option<PartitionId>, cx: &mut Cx<'_, Self>) -> ChangeState {
        let map = &self.placing.map;
        let watch = added.and_then(|added| self.watches.get(usize::from(added.0)));
        if let Some(added) = added.filter(|it| map.has(*it)) {
            return match watch.is_some_and(|watch| watch.projection.is_bootstrapped()) {
                true => ChangeDone { version: map.version(), partition: added }.into(),
                false => ChangeInFlight { id: None, partition: Some(added) }.into(),
            };
        }
        // Numbers have no gaps, so each partition below the last one has a chain.
        let Some(partition) = map.unused().filter(|next| added.is_none_or(|added| added == *next)) else {
            return refused(ChangeFlaw::Partition(PartitionFlaw::NoRoom));
        };
        let servers = self.servers_for(partition, cx.now());
        if !servers.is_empty() {
            cx.mark("director.adds_a_partition");
            self.propose_map(BeginPartition { partition, servers }.into(), cx);
        }
        ChangeInFlight { id: None, partition: Some(partition) }.into()
    }

    /// Servers of a new chain: of hosts that are there, those with the fewest others.
    fn servers_for(&self, partition: PartitionId, now: Instant) -> Vec<NodeId> {
        let Some(watch) = self.watches.get(usize::from(partition.0)) else { return Vec::new() };
        let Some(first) = self.watches.first() else { return Vec::new() };
        let is_there = |node: &&NodeId| first.hears(node.host(), now, &self.parameters);
        let load = |node: &NodeId| {
            let chains = self.used().flat_map(|watch| watch.projection.nodes());
            chains.filter(|it| it.host() == node.host()).count()
        };
        let mut servers: Vec<NodeId> = watch.candidates.iter().filter(is_there).copied().collect();
        servers.sort_by_key(|node| (load(node), *node));
        servers.truncate(watch.width);
        servers
    }

    fn want_no_partition(&mut self, removed: PartitionId, cx: &mut Cx<'_, Self>) -> ChangeState {
        let map = &self.placing.map;
        match map.removal_flaw(removed) {
            // Asked for again, it is gone.
            Some(PartitionFlaw::NoPartition) if usize::from(removed.0) < self.watches.len() => {
                return ChangeDone { version: map.version(), partition: removed }.into();
            }
            Some(flaw) => return refused(ChangeFlaw::Partition(flaw)),
            None => {}
        }
        if map.emptied().is_none() && map.moving().is_none() {
            cx.mark("director.empties_a_partition");
            self.propose_map(EmptyPartition { partition: removed }.into(), cx);
        }
        ChangeInFlight { id: None, partition: Some(removed) }.into()
    }
}

fn refused(why: ChangeFlaw) -> ChangeState {
    ChangeRefused { why }.into()
}
