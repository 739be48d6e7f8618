//! Who there is in the log of these tests, and what they say.

use corfu::auxiliary::AuxiliaryRecord;
use corfu::storage::StorageRecord;
use corfu::{
    Auxiliary, Corfu, CorfuMessage, CorfuResponse, Data, Entry, Epoch, JournalId, LogPosition, NodeJournal,
    Parameters, Projection, StorageServer,
};
use kernel::{Bytes, Effect, HostId, HostSlot, NodeId, Position, Role as _};
use parts::Ballot;
pub(crate) use table::{Table, restored, sent};

pub(crate) fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

/// Auxiliaries and the servers of the one chain are on hosts 1 to 3, sequencers on 4 and 5, the client on 9.
pub(crate) fn auxiliaries() -> Vec<NodeId> {
    (1..=3).map(|host| node(host, 1)).collect()
}

pub(crate) fn servers() -> Vec<NodeId> {
    (1..=3).map(|host| node(host, 16)).collect()
}

pub(crate) fn sequencers() -> Vec<NodeId> {
    vec![node(4, 2), node(5, 2)]
}

pub(crate) fn me() -> NodeId {
    node(9, 3)
}

/// The journal of a node, unless it has lost it.
pub(crate) fn journal_of(node: NodeId) -> JournalId {
    JournalId(u64::from(node.host().0) * 100 + u64::from(node.host_slot().0))
}

pub(crate) fn journals_of(nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeJournal> {
    nodes.into_iter().map(|node| NodeJournal { node, journal: journal_of(node) }).collect()
}

/// As a log is before anybody serves.
pub(crate) fn unborn() -> Projection {
    Projection::initial(sequencers()[0], vec![servers()])
}

/// The first epoch, in which everybody is meant by a journal.
pub(crate) fn initial() -> Projection {
    let everybody = servers().into_iter().chain(auxiliaries()).chain([sequencers()[0]]);
    Projection { journals: journals_of(everybody), ..unborn() }
}

/// The second epoch, without the first server.
pub(crate) fn second() -> Projection {
    let chains = vec![servers()[1..].to_vec()];
    let everybody = servers().into_iter().skip(1).chain(auxiliaries()).chain([sequencers()[0]]);
    let journals = journals_of(everybody);
    Projection { epoch: E2, sequencer: sequencers()[0], first: LogPosition(7), chains, journals }
}

pub(crate) fn data_of(body: &'static [u8], tag: u64) -> Entry {
    Entry::Data(Data { writer: node(8, 3), tag, body: Bytes::from_static(body) })
}

pub(crate) type Did = table::Did<Corfu>;

pub(crate) fn durably(to: NodeId, message: impl Into<CorfuMessage>) -> Vec<(NodeId, CorfuMessage, bool)> {
    vec![(to, message.into(), true)]
}

pub(crate) fn at_once(to: NodeId, message: impl Into<CorfuMessage>) -> Vec<(NodeId, CorfuMessage, bool)> {
    vec![(to, message.into(), false)]
}

/// Who was sent this.
pub(crate) fn receivers_of(did: &Did, message: impl Into<CorfuMessage>) -> Vec<NodeId> {
    let message = message.into();
    sent(did).into_iter().filter(|(_, it, _)| *it == message).map(|(to, _, _)| to).collect()
}

pub(crate) fn responses(did: &Did) -> Vec<CorfuResponse> {
    let answered = did.iter().filter_map(|effect| match effect {
        Effect::Respond { response, .. } => Some(response.clone()),
        _ => None,
    });
    answered.collect()
}

/// A storage server that serves the first epoch.
pub(crate) fn serving(at: NodeId, retain_bytes: u64) -> StorageServer {
    let mut role = waiting(at, retain_bytes);
    role.restore(Position(0), StorageRecord::Serves(E1));
    role
}

/// One that has not been asked to serve.
pub(crate) fn waiting(at: NodeId, retain_bytes: u64) -> StorageServer {
    let mut role = StorageServer::new(retain_bytes);
    role.restore(Position(0), StorageRecord::JournalId(journal_of(at)));
    role
}

/// The auxiliary of a host, in a log of the first epoch.
pub(crate) fn auxiliary_at(at: NodeId) -> Auxiliary {
    let mut role = Auxiliary::new(auxiliaries(), sequencers(), unborn(), Parameters::default());
    let (promised, journal) = (Ballot::ZERO, Some(journal_of(at)));
    role.restore(Position(0), AuxiliaryRecord { installed: initial(), promised, accepted: None, journal });
    role
}

/// A storage server's answer to a ping.
pub(crate) fn pong(server: NodeId, reported: Epoch) -> corfu::auxiliary::StoragePong {
    let status =
        corfu::auxiliary::StorageStatus { journal: journal_of(server), run: 1, reported, copied: None };
    corfu::auxiliary::StoragePong { epoch: reported, status: Some(status) }
}

pub(crate) const E1: Epoch = Epoch(1);
pub(crate) const E2: Epoch = Epoch(2);
pub(crate) const P0: LogPosition = LogPosition(0);
pub(crate) const P3: LogPosition = LogPosition(3);
