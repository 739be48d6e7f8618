//! The partially ordered log as the maps of a host see it: a session of this host's gateway.

use super::super::asking;
use super::super::numbers::Numbers;
use crate::family::HostedNode;
use kernel::{Bytes, HostSlot};
use ordinate_client::maps::{MapLog, MapMemory, MapPage};
use ordinate_client::{CallError, FuzzyAppended, FuzzyError, FuzzyFailure, FuzzyNode, SeenTime, SnapshotId};
use runtime::HostHandle;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use wire::fuzzylog::{
    AppendNodes, FuzzyCall, FuzzyFailed, FuzzyReply, NewNode, NumberedBy, PlayColour, PlayedNode,
    PlayedNodes, SnapshotColours, SyncColour, TrimColour,
};

/// What all sessions of a host share.
#[derive(Clone)]
pub(super) struct HostGateway {
    pub(super) handle: HostHandle<HostedNode>,
    pub(super) gateway: HostSlot,
    pub(super) numbers: Arc<Numbers>,
    pub(super) memory: MapMemory,
}

/// A session: one of each map, for all its users at this host. Clones are the same session.
#[derive(Clone)]
pub(super) struct HostLog {
    host: HostGateway,
    seen: Arc<Mutex<SeenTime>>,
}

fn unreadable() -> FuzzyError {
    FuzzyError::Unreached(CallError::Unreadable("an answer to something else".to_owned()))
}

fn name_of(colour: &Bytes) -> String {
    String::from_utf8_lossy(colour).into_owned()
}

fn bytes_of(colour: &str) -> Bytes {
    Bytes::copy_from_slice(colour.as_bytes())
}

fn node_of(bodies: Vec<(String, Bytes)>) -> (Vec<String>, NewNode) {
    let (names, bodies): (Vec<String>, Vec<Bytes>) = bodies.into_iter().unzip();
    let colours = names.iter().map(|name| bytes_of(name)).collect();
    (names, NewNode { colours, bodies })
}

fn appended(names: Vec<String>, reply: FuzzyReply) -> Result<FuzzyAppended, FuzzyError> {
    let FuzzyReply::AppendedNodes(reply) = reply else { return Err(unreadable()) };
    let node = reply.nodes.into_iter().next().ok_or_else(unreadable)?;
    let positions: BTreeMap<String, u64> = names.into_iter().zip(node.positions).collect();
    Ok(FuzzyAppended { at: node.at, positions })
}

impl HostLog {
    /// A session that has seen nothing.
    pub(super) fn new(host: HostGateway) -> Self {
        Self { host, seen: Arc::default() }
    }

    /// What it has seen.
    pub(super) fn seen(&self) -> SeenTime {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn absorb(&self, seen: SeenTime) {
        let mut own = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *own = seen.max(*own);
    }

    /// What it does from now on is ordered behind what somebody has seen elsewhere. Nothing is taken over that no host has answered: all
    /// users of the map would be refused for it.
    pub(super) async fn come_after(&self, seen: SeenTime, colour: &str) -> Result<(), FuzzyError> {
        if seen <= self.seen() {
            return Ok(());
        }
        // Nobody plays from there; only what was seen is looked at.
        let sync = SyncColour { id: 0, seen, colour: bytes_of(colour), from: u64::MAX, wait_ms: 0 };
        match self.ask(sync).await {
            Ok(_) | Err(FuzzyError::BeyondTail { .. }) => {
                self.absorb(seen);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, call: impl Into<FuzzyCall>) -> Result<FuzzyReply, FuzzyError> {
        let call = call.into();
        if let Some(fault) = call.fault() {
            return Err(fault.into());
        }
        let reply = asking::ask(&self.host.handle, self.host.gateway, call).await.map_err(|failed| {
            let FuzzyFailed { why, position, .. } = failed;
            match why {
                FuzzyFailure::Trimmed => FuzzyError::AlreadyTrimmed { resume_from: position },
                FuzzyFailure::BeyondTail => FuzzyError::BeyondTail { tail: position },
                why => FuzzyError::Failed(why),
            }
        })?;
        if let Some(seen) = reply.seen() {
            self.absorb(seen);
        }
        Ok(reply)
    }

    /// A call that is numbered.
    async fn ask_once<C: Into<FuzzyCall>>(
        &self,
        call: impl FnOnce(NumberedBy) -> C,
    ) -> Result<FuzzyReply, FuzzyError> {
        let numbered = self.host.numbers.next().ok_or(FuzzyError::Failed(FuzzyFailure::Busy))?;
        let answer = self.ask(call(numbered.by())).await;
        if answer.as_ref().err().is_none_or(FuzzyError::is_surely_void) {
            numbered.answered();
        }
        answer
    }
}

impl MapLog for HostLog {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        let (seen, (names, node)) = (self.seen(), node_of(bodies));
        let reply = self.ask_once(move |by| AppendNodes { id: 0, seen, by, nodes: vec![node] }).await?;
        appended(names, reply)
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        let (seen, (names, node)) = (self.seen(), node_of(bodies));
        appended(names, self.ask(AppendNodes { id: 0, seen, by, nodes: vec![node] }).await?)
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        let (seen, names) = (self.seen(), colours.iter().map(|name| bytes_of(name)).collect());
        let reply = self.ask_once(move |by| SnapshotColours { id: 0, seen, by, colours: names }).await?;
        let FuzzyReply::SnapshotTaken(reply) = reply else { return Err(unreadable()) };
        let tails = colours.iter().cloned().zip(reply.tails).collect();
        Ok(SnapshotId { seen: reply.seen, tails, across: None })
    }

    async fn play(&self, colour: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        let (seen, colour) = (self.seen(), bytes_of(colour));
        let call: FuzzyCall = match to {
            Some(to) => PlayColour { id: 0, colour, from, to }.into(),
            None => SyncColour { id: 0, seen, colour, from, wait_ms: 0 }.into(),
        };
        let FuzzyReply::PlayedNodes(PlayedNodes { tail, nodes, .. }) = self.ask(call).await? else {
            return Err(unreadable());
        };
        let next = from + nodes.len() as u64;
        if nodes.is_empty() && from < tail {
            return Err(unreadable());
        }
        let node = |(position, node): (u64, PlayedNode)| FuzzyNode {
            position,
            at: node.at,
            colours: node.colours.iter().map(name_of).collect(),
            body: node.body,
            origin: None,
        };
        // One that names no colour is of another colour with the same digest.
        let own = (from..).zip(nodes).filter(|(_, node)| !node.colours.is_empty());
        Ok(MapPage { nodes: own.map(node).collect(), next, tail })
    }

    async fn trim(&self, colour: &str, before: u64) -> Result<(), FuzzyError> {
        match self.ask(TrimColour { id: 0, colour: bytes_of(colour), before }).await? {
            FuzzyReply::TrimmedColour(_) => Ok(()),
            _ => Err(unreadable()),
        }
    }

    /// Maps are refused where there are several.
    fn is_among_regions(&self) -> bool {
        false
    }

    fn memory(&self) -> MapMemory {
        self.host.memory.clone()
    }
}
