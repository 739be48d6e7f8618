//! What runs in such a deployment: Mason's roles, CORFU's storage servers, and relays between them.

use super::register::Register;
use crate::ordering::MayLead;
use corfu::storage::{Read, StorageIn, Write};
use corfu::{Data, Entry, Epoch, LogPosition, client};
use kernel::client::Response;
use kernel::{
    Bytes, Cx, Decode, DecodeError, Embedded, Embeds, Encode, Family, NodeId, Position, Reader, Role,
};
use mason::client::{Answers, OperationAnswer};
use mason::proxy::Proxy;
use mason::shard::{Deliver, ShardIn};
use mason::{Group, Gsn, Operation};
use paxos::multipaxos::client::ClientIn as LogAnswer;
use sequence::{Ask, Gateway, Spaces};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The families of a deployment, in one.
#[derive(Debug)]
pub struct Services;

impl Family for Services {
    type Message = ServiceMessage;
    type Request = Bytes;
    type Response = Response;
}

/// A message of either family.
#[derive(Clone, PartialEq, Debug)]
pub enum ServiceMessage {
    /// Mason's.
    Mason(mason::MasonMessage),
    /// CORFU's.
    Corfu(corfu::CorfuMessage),
}

impl From<mason::MasonMessage> for ServiceMessage {
    fn from(message: mason::MasonMessage) -> Self {
        Self::Mason(message)
    }
}

impl From<corfu::CorfuMessage> for ServiceMessage {
    fn from(message: corfu::CorfuMessage) -> Self {
        Self::Corfu(message)
    }
}

// As long as on a wire of its own: the families share nothing but the simulator.
impl Encode for ServiceMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mason(message) => message.encode(out),
            Self::Corfu(message) => message.encode(out),
        }
    }
}

impl Decode for ServiceMessage {
    fn decode(_input: &mut Reader) -> Result<Self, DecodeError> {
        Err(DecodeError::Invalid("message: the cost simulator passes them as they are"))
    }
}

/// Stands on a proxy's host instead of shards that are elsewhere.
#[derive(Clone, Debug)]
pub enum Relay {
    /// Sends what is ordered to a shard's server.
    Forward {
        /// The server.
        server: NodeId,
    },
    /// Writes what is ordered to chains of storage servers, position by position, and answers; reads for clients (the paper's
    /// section 6.2).
    Chains {
        /// The chains, head first.
        chains: Vec<Vec<NodeId>>,
        /// Which group it answers for; none where the group's leader is on another host, whose relay does.
        group: Option<Group>,
        /// Entries in flight, by number of the space.
        writing: BTreeMap<u64, Writing>,
        /// Answers of this burst, by origin.
        answers: BTreeMap<NodeId, Vec<OperationAnswer>>,
        /// Reads in flight, by the name they have here: whose they are, and what the reader calls them.
        reading: BTreeMap<u64, (NodeId, u64)>,
        /// Reads so far.
        reads: u64,
    },
}

/// An entry on its way down a chain.
#[derive(Clone, Debug)]
pub struct Writing {
    operation: Operation,
    gsn: Gsn,
    entry: Entry,
    at: usize,
}

/// What a relay can be sent.
#[derive(Clone, PartialEq, Debug)]
pub enum RelayIn {
    /// From the replica of its host.
    Deliver(Deliver),
    /// From a storage server.
    Written(client::Written),
    /// From a client.
    Read(Read),
    /// From a storage server.
    Found(client::Found),
}

impl Relay {
    /// A relay to chains.
    pub fn to_chains(chains: Vec<Vec<NodeId>>, group: Option<Group>) -> Self {
        Self::Chains {
            chains,
            group,
            writing: BTreeMap::new(),
            answers: BTreeMap::new(),
            reading: BTreeMap::new(),
            reads: 0,
        }
    }

    fn on_deliver(&mut self, message: Deliver, cx: &mut Cx<'_, Self>) {
        match self {
            // What the sequencer knew after a batch is for gateways that read or watch, and here none does.
            Self::Forward { .. } if message.runs.is_empty() => {}
            Self::Forward { server } => cx.send(*server, mason::MasonMessage::from(message)),
            Self::Chains { chains, group: Some(_), writing, .. } => {
                for (number, delivered) in message.runs.iter().flat_map(|run| run.iter()).flatten() {
                    // Nothing fails here, so nothing is a no-op.
                    let Some(operation) = delivered.work.operation().cloned() else { continue };
                    // What is appended; the rest of the operation said where it is ordered.
                    let Ok(Ask { label: body, .. }) = Ask::decoded(&operation.body) else { continue };
                    let (writer, tag) = (operation.origin, operation.tag);
                    let entry = Entry::Data(Data { writer, tag, body });
                    let it = Writing { operation, gsn: delivered.order.gsn, entry, at: 0 };
                    send_on(number.0, &it, chains, cx);
                    writing.insert(number.0, it);
                }
            }
            Self::Chains { group: None, .. } => {}
        }
    }

    fn on_written(&mut self, message: &client::Written, cx: &mut Cx<'_, Self>) {
        let Self::Chains { chains, writing, answers, .. } = self else {
            return cx.reject("an answer to what was not asked");
        };
        let Some(it) = writing.get_mut(&message.id) else { return };
        it.at += 1;
        if !send_on(message.id, it, chains, cx)
            && let Some(it) = writing.remove(&message.id)
        {
            let Operation { origin, incarnation, tag, .. } = it.operation;
            let body = message.position.encoded().into();
            answers.entry(origin).or_default().push(OperationAnswer { incarnation, tag, gsn: it.gsn, body });
        }
    }

    /// Not ordered: the chain's tail knows.
    fn on_read(&mut self, from: NodeId, message: Read, cx: &mut Cx<'_, Self>) {
        let Self::Chains { chains, reading, reads, .. } = self else {
            return cx.reject("read of a log that does not exist");
        };
        let Some(&tail) = chain_of(message.position, chains).last() else { return };
        *reads += 1;
        reading.insert(*reads, (from, message.id));
        cx.send(tail, corfu::CorfuMessage::from(Read { id: *reads, ..message }));
    }

    fn on_found(&mut self, message: client::Found, cx: &mut Cx<'_, Self>) {
        let Self::Chains { reading, .. } = self else {
            return cx.reject("an answer to what was not asked");
        };
        if let Some((reader, id)) = reading.remove(&message.id) {
            cx.send(reader, corfu::CorfuMessage::from(client::Found { id, ..message }));
        }
    }
}

fn chain_of(position: LogPosition, chains: &[Vec<NodeId>]) -> &[NodeId] {
    &chains[(position.0 % chains.len() as u64) as usize]
}

/// To the server whose turn it is; false if the chain has ended.
fn send_on(number: u64, it: &Writing, chains: &[Vec<NodeId>], cx: &mut Cx<'_, Relay>) -> bool {
    let position = LogPosition(number - 1);
    let Some(&server) = chain_of(position, chains).get(it.at) else { return false };
    let write = Write { id: number, epoch: Epoch(1), position, entry: it.entry.clone() };
    cx.send(server, corfu::CorfuMessage::from(write));
    true
}

impl Role for Relay {
    type Family = Services;
    type In = RelayIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: RelayIn, cx: &mut Cx<'_, Self>) {
        match message {
            RelayIn::Read(message) => self.on_read(from, message, cx),
            RelayIn::Found(message) => self.on_found(message, cx),
            RelayIn::Deliver(message) => self.on_deliver(message, cx),
            RelayIn::Written(message) => self.on_written(&message, cx),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if let Self::Chains { group: Some(group), answers, .. } = self {
            for (origin, answers) in std::mem::take(answers) {
                cx.send(origin, mason::MasonMessage::from(Answers { group: *group, answers }));
            }
        }
    }
}

kernel::nodes! {
    /// What a host runs.
    pub enum Seat of Services {
        /// A role of Mason.
        node Mason(Box<Embedded<mason::MasonMember<Spaces, Register, Gateway>, Services>>),
        /// A role of CORFU.
        node Corfu(Box<Embedded<corfu::Member, Services>>),
        /// What connects them.
        role Relay(Relay) "relay",
    }
}

impl MayLead for Seat {
    fn proxy(&self) -> Option<&Proxy> {
        match self {
            Self::Mason(embedded) => embedded.node().proxy(),
            Self::Corfu(_) | Self::Relay(_) => None,
        }
    }
}

impl Embeds<mason::Mason> for Services {
    fn inner_message(message: ServiceMessage) -> Option<mason::MasonMessage> {
        match message {
            ServiceMessage::Mason(message) => Some(message),
            ServiceMessage::Corfu(_) => None,
        }
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: mason::MasonMessage) -> ServiceMessage {
        ServiceMessage::Mason(message)
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<corfu::Corfu> for Services {
    fn inner_message(message: ServiceMessage) -> Option<corfu::CorfuMessage> {
        match message {
            ServiceMessage::Corfu(message) => Some(message),
            ServiceMessage::Mason(_) => None,
        }
    }

    /// Its clients are asked for the entry at a position.
    fn inner_request(request: Bytes) -> Option<corfu::CorfuRequest> {
        LogPosition::decoded(&request).ok().map(corfu::CorfuRequest::Read)
    }

    fn outer_message(message: corfu::CorfuMessage) -> ServiceMessage {
        ServiceMessage::Corfu(message)
    }

    /// An entry, or nothing: clients of a log only read.
    fn outer_response(response: corfu::CorfuResponse) -> Response {
        match response {
            corfu::CorfuResponse::Entry(body) => Response(body),
            corfu::CorfuResponse::Appended(_)
            | corfu::CorfuResponse::AllAppended(_)
            | corfu::CorfuResponse::Junk
            | corfu::CorfuResponse::Unwritten
            | corfu::CorfuResponse::Gone(_)
            | corfu::CorfuResponse::Trimmed
            | corfu::CorfuResponse::Stat(_)
            | corfu::CorfuResponse::Refused => Response(Bytes::new()),
        }
    }
}

/// What a replica hands to the shards of its host.
fn delivered(message: &mason::MasonMessage) -> Option<Deliver> {
    let mason::MasonMessage::Log(paxos::Message::Client(LogAnswer::Notice(notice))) = message else {
        return None;
    };
    match ShardIn::decoded(&notice.bytes) {
        Ok(ShardIn::Deliver(deliver)) => Some(deliver),
        Ok(_) | Err(_) => None,
    }
}

impl TryFrom<ServiceMessage> for RelayIn {
    type Error = ServiceMessage;

    fn try_from(message: ServiceMessage) -> Result<Self, ServiceMessage> {
        match message {
            ServiceMessage::Mason(message) => {
                delivered(&message).map(Self::Deliver).ok_or(ServiceMessage::Mason(message))
            }
            ServiceMessage::Corfu(corfu::CorfuMessage::Client(client::ClientIn::Written(message))) => {
                Ok(Self::Written(message))
            }
            ServiceMessage::Corfu(corfu::CorfuMessage::Client(client::ClientIn::Found(message))) => {
                Ok(Self::Found(message))
            }
            ServiceMessage::Corfu(corfu::CorfuMessage::Storage(StorageIn::Read(message))) => {
                Ok(Self::Read(message))
            }
            other @ ServiceMessage::Corfu(_) => Err(other),
        }
    }
}
