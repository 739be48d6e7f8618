//! What is in the log: each partition's row is replayed, command by command, as soon as it is known to be stable.
//!
//! A command is stable when a server has applied it and has it on its disk.

use super::Node;
use super::disks::Disks;
use ::fuzzylog::partition::command::{Command, Outcome, Placed, ShadowNode};
use ::fuzzylog::{
    AppendId, AppendTime, ChainServer, Colour, ColourMove, ColourNode, ColourPlacement, FuzzyOrder,
    MapVersion, NodePosition, Owner, PartitionId, PartitionState, RegionId, RowIndex,
};
use kernel::{HostId, NodeId, SnapshotStep, invariant};
use sim::Cluster;
use std::collections::{BTreeMap, BTreeSet};

/// A partition, replayed.
struct Twin {
    state: PartitionState,
    /// The state's digest after so many commands.
    digests: Vec<u64>,
    /// Where each colour began and ended, from so many commands on.
    ends: BTreeMap<Colour, Vec<(RowIndex, Ends)>>,
}

/// A colour's first node that is left, and the position after its last one.
type Ends = (NodePosition, NodePosition);

/// All partitions.
pub(super) struct Truth {
    placement: ColourPlacement,
    twins: Vec<Twin>,
    /// Every node that was ever in a colour.
    nodes: BTreeMap<Colour, Vec<ColourNode>>,
    /// Where each append is in each colour.
    positions: BTreeMap<(Colour, AppendId), NodePosition>,
    /// When each append to several partitions was delivered.
    times: BTreeMap<AppendId, AppendTime>,
    /// Who was the owner of a generation, by the partition that decides about it. That is another one by a later map.
    owners: BTreeMap<(AppendId, u32, Option<PartitionId>), Owner>,
    /// Moves of colours, as rows have them.
    moves: BTreeMap<MapVersion, ColourMove>,
    /// Nodes of colours that several regions have, since they were asked for last.
    fresh: Vec<(Colour, ColourNode)>,
    /// Where the own logs begin for regions that were taken up since that was asked for last.
    begins: Vec<(RegionId, Colour, u64)>,
}

impl Twin {
    fn note_ends(&mut self) {
        let applied = self.state.applied();
        // One that has left has nothing here any more.
        let known: BTreeSet<Colour> = self.state.colours().chain(self.ends.keys().copied()).collect();
        for colour in known {
            let ends = (self.state.first(colour), self.state.tail(colour));
            let known = self.ends.entry(colour).or_default();
            if known.last().is_none_or(|(_, last)| *last != ends) {
                known.push((applied, ends));
            }
        }
    }

    /// What was trimmed is gone, and nothing else is.
    fn check_ends(&self, id: NodeId, server: &ChainServer) {
        let applied = server.state().applied();
        for (&colour, known) in &self.ends {
            let passed = known.partition_point(|(from, _)| *from <= applied);
            let expected = passed.checked_sub(1).map_or_else(Ends::default, |at| known[at].1);
            let ends = (server.state().first(colour), server.state().tail(colour));
            invariant!(
                TRIM,
                ends == expected,
                "{id} has nodes {ends:?} of {colour} after {applied} commands, of {expected:?}"
            );
        }
    }
}

impl Truth {
    /// Of `most` partitions, some of which may be added later.
    pub(super) fn new(placement: ColourPlacement, most: u16, order: FuzzyOrder) -> Self {
        let twin = |partition| {
            let state = PartitionState::new(PartitionId(partition), placement, order);
            Twin { digests: vec![state.digest()], state, ends: BTreeMap::new() }
        };
        Self {
            placement,
            twins: (0..most.max(placement.partitions())).map(twin).collect(),
            nodes: BTreeMap::new(),
            positions: BTreeMap::new(),
            times: BTreeMap::new(),
            owners: BTreeMap::new(),
            moves: BTreeMap::new(),
            fresh: Vec::new(),
            begins: Vec::new(),
        }
    }

    pub(super) fn nodes(&self, colour: Colour) -> &[ColourNode] {
        self.nodes.get(&colour).map_or(&[], Vec::as_slice)
    }

    pub(super) fn colours(&self) -> impl Iterator<Item = (Colour, &[ColourNode])> {
        self.nodes.iter().map(|(&colour, nodes)| (colour, nodes.as_slice()))
    }

    /// Looks at the servers of a host that were called.
    pub(super) fn look(&mut self, host: HostId, disks: &mut Disks, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            if let Node::ChainServer(server) = node {
                disks.note_applied(id, server.serves().is_some(), server.state().applied());
                self.replay(id, server, disks);
                disks.check_before(id, server, cluster);
                disks.check_counted(id, server);
            }
        }
    }

    /// Replays what a server has applied and is new, and compares the states.
    pub(super) fn replay(&mut self, id: NodeId, server: &ChainServer, disks: &mut Disks) {
        let partition = usize::from(server.partition().0);
        let applied = server.state().applied();
        let through = applied.min(disks.length(id));
        while self.twins[partition].state.applied() < through
            && let Some(entry) = disks.entry(id, self.twins[partition].state.applied()).cloned()
        {
            // One that does not serve may have cut its row back, and not on its disk yet.
            let in_memory = server.entry(self.twins[partition].state.applied());
            if server.serves().is_none() && in_memory != Some(&entry) {
                break;
            }
            let twin = &mut self.twins[partition];
            twin.state.apply(&entry);
            twin.digests.push(twin.state.digest());
            twin.note_ends();
            let answers = twin.state.take_answers();
            twin.state.take_marks();
            let own = answers.iter().rfind(|it| it.asker.call == entry.call).map(|it| it.outcome.clone());
            self.check_owners(partition, &entry.command, own.as_ref());
            for answer in answers {
                if let Outcome::Delivered(delivered) = answer.outcome {
                    delivered.placed.into_iter().for_each(|placed| self.note(partition, placed));
                }
            }
            self.note_regions(partition, &entry.command);
            self.check_owned_once(&entry.command);
        }
        let twin = &self.twins[partition];
        disks.forget(id, twin.state.applied());
        if applied > twin.state.applied() {
            // A last server applies what is not on its own disk yet.
            return;
        }
        let known = twin.digests.get(applied.0 as usize).copied();
        let digest = server.state().digest();
        invariant!(
            PREFIX,
            known == Some(digest),
            "{id} has {digest:x} after {applied} commands, another {known:x?}"
        );
        twin.check_ends(id, server);
    }

    /// A take-over that was granted replaces the owner, and each generation has one.
    fn check_owners(&mut self, partition: usize, command: &Command, outcome: Option<&Outcome>) {
        let (Command::TakeOver(command), Some(outcome)) = (command, outcome) else { return };
        let granted = match outcome {
            Outcome::Proposed(_) | Outcome::Fixed(_) | Outcome::Delivered(_) => true,
            Outcome::Held(_)
            | Outcome::Forgotten(_)
            | Outcome::Conflict(_)
            | Outcome::Unknown(_)
            | Outcome::TrimmedTo(_)
            | Outcome::Restoring(_)
            | Outcome::RestoredTo(_)
            | Outcome::Moving(_)
            | Outcome::Elsewhere(_)
            | Outcome::BeyondTail(_) => false,
        };
        let now = self.twins[partition].state.unfinished().find(|it| it.id == command.id).map(|it| it.owner);
        if let Some(owner) = now.filter(|_| granted) {
            invariant!(
                FENCE,
                owner == command.owner,
                "{:?} took {:?} over in {partition}, whose owner is {owner:?}",
                command.owner,
                command.id
            );
            let (content, base) = (&command.content, self.placement);
            let decider = (0..content.colours.len()).filter_map(|it| content.planned(it, base)).min();
            let known = *self.owners.entry((command.id, owner.generation, decider)).or_insert(owner);
            invariant!(
                FENCE,
                known == owner,
                "{owner:?} and {known:?} have both taken {:?} over",
                command.id
            );
        }
    }

    /// A node is there, or a snapshot was taken.
    fn note(&mut self, partition: usize, placed: Placed) {
        let state = &self.twins[partition].state;
        let nodes = self.nodes.entry(placed.colour).or_default();
        let next = NodePosition(nodes.len() as u64);
        if placed.position < next || state.tail(placed.colour) == next {
            return;
        }
        let node = state.nodes(placed.colour, next).next();
        let Some(node) = node.filter(|_| placed.position == next) else {
            invariant!(CONTIG, false, "{placed:?} follows {next} in colour {}", placed.colour);
            return;
        };
        let node = state.sourced(placed.colour, next, node);
        let before = nodes.last().map(|last| last.at);
        invariant!(TS, before < Some(node.at), "{node:?} follows {before:?} in {}", placed.colour);
        // A node of another region is copied into each of its colours by itself.
        let at = node.source().map_or(node.at, |source| source.at);
        let known = *self.times.entry(node.id).or_insert(at);
        invariant!(TS, known == at, "{:?} is at {known:?} and at {at:?}", node.id);
        let twice = self.positions.insert((placed.colour, node.id), next);
        invariant!(ONCE, twice.is_none(), "{:?} is in {} at {twice:?} and {next}", node.id, placed.colour);
        if node.source().is_some() {
            self.fresh.push((placed.colour, node.clone()));
        }
        nodes.push(node);
    }

    /// When a move is over in the rows of both partitions, and nothing has come after it there, one of them has its colours.
    fn check_owned_once(&mut self, command: &Command) {
        let id = match command {
            Command::SealColours(it) => return drop(self.moves.insert(it.begun.id, it.begun.clone())),
            Command::TakeColours(it) => return drop(self.moves.insert(it.begun.id, it.begun.clone())),
            Command::OwnColours(it) => it.id,
            Command::ForgetColours(it) => it.id,
            Command::KeepColours(it) => it.id,
            _ => return,
        };
        let Some(begun) = self.moves.get(&id) else { return };
        let of = [begun.from, begun.to].map(|it| &self.twins[usize::from(it.0)].state);
        if of.iter().any(|state| state.moves_over() != id) {
            return;
        }
        for colour in &begun.colours {
            let owners = of.iter().filter(|state| state.is_here(*colour)).count();
            invariant!(OWNER, owners == 1, "{owners} partitions have colour {colour} after {begun:?}");
        }
    }

    /// What keeps moves from being over, and each colour from having one owner.
    pub(super) fn unmoved(&self) -> Option<String> {
        let moving = self.twins.iter().position(|twin| twin.state.is_moving());
        let missing = || {
            let owners =
                |colour: Colour| self.twins.iter().filter(move |it| it.state.may_sync(colour)).count();
            self.nodes.keys().find(|colour| owners(**colour) != 1)
        };
        match moving {
            Some(partition) => Some(format!("colours move in partition {partition}")),
            None => missing().map(|colour| format!("colour {colour} has another number of owners than one")),
        }
    }

    /// What comes of other regions: nodes that are placed, and who is taken up.
    fn note_regions(&mut self, partition: usize, command: &Command) {
        if let Command::CopyNodes(command) = command {
            let begins = command.begins.iter().flatten().map(|it| it.colour);
            self.note_copied(partition, begins.chain(colours_of(&command.nodes)));
        }
        if let Command::RemoveRegion(_) = command {
            let colours: Vec<Colour> = self.twins[partition].state.colours().collect();
            self.note_copied(partition, colours);
        }
        if let Command::AddRegion(command) = command {
            self.note_begins(partition, command.region);
        }
    }

    /// A region was taken up: of each log it gets what is left.
    fn note_begins(&mut self, partition: usize, added: RegionId) {
        let state = &self.twins[partition].state;
        for colour in state.colours() {
            let trimmed = state.counts_below(colour, state.first(colour));
            let own = trimmed.into_iter().find(|it| Some(it.region) == state.region());
            self.begins.extend(own.map(|it| (added, colour, it.count)));
        }
    }

    /// Takes where logs begin for regions that were taken up.
    pub(super) fn take_begins(&mut self) -> Vec<(RegionId, Colour, u64)> {
        std::mem::take(&mut self.begins)
    }

    /// Nodes of other regions were placed, perhaps.
    fn note_copied(&mut self, partition: usize, colours: impl IntoIterator<Item = Colour>) {
        let colours: BTreeSet<Colour> = colours.into_iter().collect();
        for colour in colours {
            let known = self.nodes(colour).len() as u64;
            let tail = self.twins[partition].state.tail(colour).0;
            for position in (known..tail).map(NodePosition) {
                self.note(partition, Placed { colour, position });
            }
        }
    }

    /// Nodes of colours that several regions have, as they came.
    pub(super) fn take_fresh(&mut self) -> Vec<(Colour, ColourNode)> {
        std::mem::take(&mut self.fresh)
    }

    /// Nodes that other regions have appended.
    pub(super) fn copied(&self, own: RegionId) -> impl Iterator<Item = (Colour, &ColourNode)> {
        let is_copied = move |node: &&ColourNode| node.source().is_some_and(|it| it.region != own);
        self.colours()
            .flat_map(move |(colour, nodes)| nodes.iter().filter(is_copied).map(move |node| (colour, node)))
    }

    /// All nodes of an append are there, or none is; of which region and colour nodes may be missing is said.
    pub(super) fn check_atomic(&self, may_lack: impl Fn(RegionId, Colour) -> bool) {
        for (colour, nodes) in self.colours() {
            for node in nodes {
                let source = node.source().map(|it| it.region);
                let lacks = |it: &&Colour| {
                    !self.positions.contains_key(&(**it, node.id))
                        && !source.is_some_and(|source| may_lack(source, **it))
                };
                let missing = node.colours.iter().find(lacks);
                invariant!(
                    ATOMIC,
                    missing.is_none(),
                    "{:?} is in {colour}, and not in {missing:?} of {:?}",
                    node.id,
                    node.colours
                );
            }
        }
    }

    /// All of a server's state is what the row came to.
    pub(super) fn check_whole(&self, id: NodeId, server: &ChainServer, disks: &Disks) {
        let twin = &self.twins[usize::from(server.partition().0)].state;
        let (applied, replayed) = (server.state().applied(), twin.applied());
        let durable = applied.min(disks.length(id));
        invariant!(DUR, durable <= replayed, "{id} has applied {durable} commands, and {replayed} are known");
        if applied == replayed {
            let (own, expected) = (image(server.state()), image(twin));
            invariant!(PREFIX, own == expected, "{id} has another state after {applied} commands");
        }
    }

    /// What a disk has of a state are nodes as they were appended.
    pub(super) fn check_nodes(&self, id: NodeId, state: &PartitionState) {
        for colour in state.colours() {
            let known = self.nodes(colour);
            for (position, node) in (state.first(colour).0..).zip(state.nodes(colour, NodePosition(0))) {
                let Some(known) = known.get(position as usize) else { break };
                invariant!(
                    DUR,
                    (known.id, &known.body) == (node.id, &node.body),
                    "the disk of {id} has {node:?} at {position} of colour {colour}, which is {known:?}"
                );
            }
        }
    }

    /// How many commands of a partition are known to be stable.
    pub(super) fn replayed(&self, partition: PartitionId) -> RowIndex {
        self.twins[usize::from(partition.0)].state.applied()
    }
}

fn colours_of(copied: &[ShadowNode]) -> impl Iterator<Item = Colour> {
    copied.iter().flat_map(|node| node.parts.iter().map(|part| part.colour))
}

/// Everything that a state is, as its snapshot has it.
fn image(state: &PartitionState) -> Vec<u8> {
    let (mut copy, mut image) = (state.clone(), Vec::new());
    copy.begin_snapshot();
    while copy.snapshot_step(1 << 20, &mut image) == SnapshotStep::More {}
    image
}
