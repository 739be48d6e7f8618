//! An operator who moves colours, and adds and removes partitions, while users append. One run in three has one.

use super::chains::server;
use super::{FuzzyScenario, Node};
use ::fuzzylog::director::{FewerPartitions, MorePartitions, MoveColours, PlacementChange};
use ::fuzzylog::{Colour, FuzzyParameters, FuzzyRequest, FuzzyResponse, PartitionId};
use kernel::{HostId, NodeId, RequestId, Rng, invariant};
use sim::{Cluster, Control, Loss};
use std::collections::BTreeMap;
use std::time::Duration;

/// The alarm by which it asks for something.
pub(super) const MOVE: u64 = 4;
/// Partitions that may be added.
const MORE: usize = 2;
/// Strikes at those who move something, in one run.
const STRIKES_MAX: u32 = 6;

/// What is drawn of moves, and what was asked for.
pub(super) struct Moving {
    /// Its own choices; none in runs without moves.
    rng: Option<Rng>,
    asked: BTreeMap<RequestId, FuzzyRequest>,
    every: Duration,
    has_begun: bool,
    /// Strikes that are left.
    strikes: u32,
}

impl Moving {
    /// From a generator of its own, so that runs without moves draw what they drew before there were any.
    pub(super) fn draw(rng: &Rng) -> Self {
        let mut own = Rng::seeded(rng.clone().bits() ^ 0x6d6f_7665);
        let moves = own.chance(0.33);
        let every = own.duration(Duration::from_millis(60), Duration::from_millis(900));
        let strikes = if own.chance(0.6) { STRIKES_MAX } else { 0 };
        Self { rng: moves.then_some(own), asked: BTreeMap::new(), every, has_begun: false, strikes }
    }

    /// How many partitions there may be.
    pub(super) fn most(&self, partitions: u16) -> usize {
        usize::from(partitions) + if self.rng.is_some() { MORE } else { 0 }
    }

    pub(super) fn parameters(&mut self, parameters: FuzzyParameters) -> FuzzyParameters {
        let Some(rng) = &mut self.rng else { return parameters };
        let move_for = rng.duration(Duration::from_millis(250), Duration::from_secs(4));
        FuzzyParameters { move_for, ..parameters }
    }

    pub(super) fn watches(&self) -> bool {
        self.rng.is_some() && self.strikes > 0
    }

    /// Nothing new is asked for.
    pub(super) fn rest(&mut self) {
        (self.rng, self.strikes) = (None, 0);
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    fn plan(&mut self, colours: u64, partitions: u16) -> Option<PlacementChange> {
        let rng = self.rng.as_mut()?;
        let partition = PartitionId(rng.below(u64::from(partitions) + MORE as u64) as u16);
        Some(match rng.below(10) {
            0 | 1 => MorePartitions { added: None }.into(),
            2 => FewerPartitions { removed: partition }.into(),
            _ => {
                let mut all: Vec<Colour> = (0..colours).map(Colour).collect();
                rng.shuffle(&mut all);
                all.truncate(if rng.chance(0.7) { 1 } else { 2 });
                all.sort_unstable();
                MoveColours { colours: all, to: partition }.into()
            }
        })
    }
}

impl FuzzyScenario {
    /// Begins with the first thing that a user asks for.
    pub(super) fn begin_moving(&mut self, control: &mut Control<'_, Node>) {
        if self.moving.rng.is_some() && !std::mem::replace(&mut self.moving.has_begun, true) {
            control.alarm(self.moving.every, MOVE);
        }
    }

    pub(super) fn ask_to_move(&mut self, control: &mut Control<'_, Node>) {
        let partitions = self.deployment.placement().partitions();
        let Some(change) = self.moving.plan(self.users.colours(), partitions) else { return };
        let clients: Vec<HostId> = self.clients.clone();
        let host = self.moving.rng.as_mut().and_then(|rng| rng.pick(&clients).copied());
        let Some(host) = host else { return };
        let request = FuzzyRequest::Change(change);
        let id = control.request(self.deployment.client_of(host), request.clone());
        self.moving.asked.insert(id, request);
        control.mark("scenario.asked_for_a_change_of_the_map");
        control.alarm(self.moving.every, MOVE);
    }

    /// True if it was an answer to the operator.
    pub(super) fn on_changed(
        &mut self,
        id: RequestId,
        response: &FuzzyResponse,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let Some(request) = self.moving.asked.remove(&id) else { return false };
        match response {
            FuzzyResponse::Changed { .. } => control.mark("scenario.changed_the_map"),
            response => invariant!(
                DUR,
                matches!(response, FuzzyResponse::Refused(_) | FuzzyResponse::ChangeUnknown),
                "{request:?} is answered {response:?}"
            ),
        }
        true
    }

    /// Those who move something now: the heads of both partitions, and who leads the directors.
    fn movers(&self, cluster: &Cluster<'_, Node>) -> Vec<NodeId> {
        let mut found = Vec::new();
        for (id, node) in cluster.nodes() {
            match node {
                Node::ChainServer(server) if server.is_serving_head() && server.state().is_moving() => {
                    found.push(id);
                }
                Node::Director(director) if director.is_leading() && director.map().moving().is_some() => {
                    found.push(id);
                }
                Node::ChainServer(_) | Node::Director(_) | Node::Client(_) | Node::Log(_) => {}
            }
        }
        found
    }

    /// Now and then one of those who move something is struck meanwhile.
    pub(super) fn strike_a_mover(&mut self, control: &mut Control<'_, Node>) {
        if !self.moving.watches() {
            return;
        }
        let movers = self.movers(&control.cluster);
        let mut rng = Rng::seeded(control.cluster.now() ^ 0x6d6f);
        if !rng.chance(0.04) {
            return;
        }
        let Some(&mover) = rng.pick(&movers) else { return };
        self.moving.strikes -= 1;
        control.mark(match server(mover, &control.cluster).map(|it| it.state().leaving().is_some()) {
            Some(true) => "scenario.struck_a_head_whose_colours_left",
            Some(false) => "scenario.struck_a_head_to_which_colours_came",
            None => "scenario.struck_a_director_during_a_move",
        });
        let lasts = rng.duration(Duration::from_millis(50), Duration::from_secs(2));
        match rng.chance(0.6) {
            true => control.crash(mover.host(), Loss::All, lasts, &mut rng),
            false => control.pause(mover.host(), lasts),
        }
    }

    /// What keeps the map from being settled.
    pub(super) fn unmoved(&self, cluster: &Cluster<'_, Node>) -> Option<String> {
        let in_flight = cluster.nodes().find_map(|(id, node)| match node {
            Node::Director(director) if director.is_leading() => {
                let map = director.map();
                let is_busy = map.moving().is_some() || map.emptied().is_some();
                is_busy.then(|| format!("{id} still has {:?}", map.moves()))
            }
            Node::Director(_) | Node::ChainServer(_) | Node::Client(_) | Node::Log(_) => None,
        });
        in_flight.or_else(|| self.truth.unmoved())
    }
}
