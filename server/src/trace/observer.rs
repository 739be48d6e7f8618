//! What messages say of requests: where one comes to a node, and where it leaves it.

use super::request::{RequestTrace, Sampling};
use super::spans::{OpenSpans, Opening};
use crate::family::OrdinateMessage;
use crate::services::{Listed, SERVICES};
use kernel::{Bytes, Decode as _, HostId, NodeId};
use mason::client::{Answers, Elsewhere, GatewayIn, OperationAnswer};
use mason::proxy::delivery::Run;
use mason::proxy::entry::Entry;
use mason::proxy::{FromGateway, ProxyIn, SubmitOperations};
use mason::shard::ShardIn;
use mason::{Group, MasonMessage, Operation, Part, Post, SLOTS_PER_DEPLOYMENT};
use parts::{SessionId, Slot};
use paxos::multipaxos::acceptor::AcceptorIn;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::{ClientIn, Row};
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::proxy_leader::ProxyLeaderIn;
use paxos::multipaxos::replica::{ReadBatch, ReplicaIn};
use paxos::multipaxos::unbatcher::UnbatcherIn;
use paxos::{Batch, Commands, Message, Value};
use runtime::Observer;
use std::collections::VecDeque;

/// A value is looked into once, though it goes from node to node of the host; of so many it is known what was found.
const LOOKED_INTO_MAX: usize = 4;

/// Follows one request in so many through the nodes of a host.
pub struct RequestObserver {
    host: HostId,
    pub(super) sampling: Sampling,
    spans: OpenSpans,
    /// Encoded values, with the sampled requests that are in them.
    looked_into: VecDeque<(Bytes, Vec<RequestTrace>)>,
}

impl RequestObserver {
    /// Of the host.
    pub fn new(host: HostId, sampling: Sampling, spans: OpenSpans) -> Self {
        Self { host, sampling, spans, looked_into: VecDeque::new() }
    }

    pub(super) fn open(
        &mut self,
        traces: &[RequestTrace],
        node: NodeId,
        from: Option<NodeId>,
        role: &'static str,
        slot: Option<Slot>,
    ) {
        let service = service_at(node);
        for trace in traces {
            self.spans.open(Opening { trace: *trace, node, from, service, role, slot });
        }
    }

    pub(super) fn end(&mut self, traces: &[RequestTrace], node: NodeId) {
        traces.iter().for_each(|trace| self.spans.end(node, *trace));
    }

    /// The sampled ones of a row of commands.
    fn of_commands(&self, session: SessionId, commands: &Commands) -> Vec<RequestTrace> {
        commands.iter().filter_map(|it| self.sampling.of_command(session, it.sequence)).collect()
    }

    fn of_reads(&self, batch: &ReadBatch) -> Vec<RequestTrace> {
        batch.reads.iter().flat_map(|group| self.of_commands(group.session, &group.queries)).collect()
    }

    fn of_answers(&self, session: SessionId, answers: &Row) -> Vec<RequestTrace> {
        answers.views().filter_map(|it| self.sampling.of_command(session, it.sequence)).collect()
    }

    /// The sampled ones of what a slot holds, in a log whose role is at `node`.
    fn of_value(&mut self, value: &Value, node: NodeId) -> Vec<RequestTrace> {
        let bytes = match value {
            Value::Batch(payload) | Value::Entry(payload) => payload.bytes(),
            Value::Noop | Value::Configure(_) => return Vec::new(),
        };
        let same = |(known, _): &&(Bytes, Vec<RequestTrace>)| {
            known.as_ptr() == bytes.as_ptr() && known.len() == bytes.len()
        };
        if let Some((_, traces)) = self.looked_into.iter().find(same) {
            return traces.clone();
        }
        let traces = match value {
            Value::Batch(_) => self.of_batch(bytes),
            Value::Entry(_) => self.of_entry(bytes, node),
            Value::Noop | Value::Configure(_) => Vec::new(),
        };
        if self.looked_into.len() >= LOOKED_INTO_MAX {
            self.looked_into.pop_front();
        }
        self.looked_into.push_back((bytes.clone(), traces.clone()));
        traces
    }

    fn of_batch(&self, bytes: &Bytes) -> Vec<RequestTrace> {
        // What does not decode is turned away where it is executed.
        let Ok(batch) = Batch::decoded(bytes) else { return Vec::new() };
        batch.groups.iter().flat_map(|group| self.of_commands(group.session, &group.commands)).collect()
    }

    fn of_entry(&self, bytes: &Bytes, node: NodeId) -> Vec<RequestTrace> {
        let (Some(group), Ok(Entry::Batch(batch))) = (group_at(node), Entry::decoded(bytes)) else {
            return Vec::new();
        };
        let items = batch.items.iter().filter(|item| item.follow_up.is_none());
        items.filter_map(|item| self.sampling.of_operation(group, &item.operation)).collect()
    }

    fn of_operations(&self, submitted: &SubmitOperations, proxy: NodeId) -> Vec<(NodeId, RequestTrace)> {
        let Some(group) = group_at(proxy) else { return Vec::new() };
        let of = |it: &Operation| Some((it.origin, self.sampling.of_operation(group, it)?));
        submitted.operations.iter().filter_map(of).collect()
    }

    fn on_command_sent(&mut self, from: NodeId, to: NodeId, message: &Message) {
        match message {
            Message::Batcher(BatcherIn::Submit(submit)) if from.host() == self.host => {
                let traces = self.of_commands(submit.session, &submit.commands);
                self.open(&traces, from, None, "request", None);
            }
            Message::Batcher(BatcherIn::Query(query)) if from.host() == self.host => {
                let traces = self.of_commands(query.session, &query.queries);
                self.open(&traces, from, None, "request", None);
            }
            Message::Replica(ReplicaIn::ReadBatch(batch)) => {
                let traces = self.of_reads(batch);
                self.end(&traces, from);
            }
            Message::Leader(LeaderIn::Propose(propose)) => {
                let traces = self.of_value(&propose.value, to);
                self.end(&traces, from);
            }
            Message::ProxyLeader(ProxyLeaderIn::Assign(assign)) => {
                let traces = self.of_value(&assign.value, to);
                self.end(&traces, from);
            }
            Message::ProxyLeader(ProxyLeaderIn::Phase2b(vote)) => _ = self.spans.end_slot(from, vote.slot),
            Message::Replica(ReplicaIn::Chosen(chosen)) => _ = self.spans.end_slot(from, chosen.slot),
            Message::Unbatcher(UnbatcherIn::BatchResults(results)) => {
                for reply in &results.replies {
                    let traces = self.of_answers(reply.session, &reply.results);
                    self.end(&traces, from);
                }
            }
            // The rest names no request.
            Message::Batcher(_)
            | Message::Leader(_)
            | Message::ProxyLeader(_)
            | Message::Acceptor(_)
            | Message::Replica(_)
            | Message::Client(_) => {}
        }
    }

    fn on_command_received(&mut self, from: NodeId, to: NodeId, message: &Message) {
        match message {
            Message::Batcher(BatcherIn::Submit(submit)) => {
                let traces = self.of_commands(submit.session, &submit.commands);
                self.open(&traces, to, Some(from), "gateway", None);
            }
            Message::Batcher(BatcherIn::Query(query)) => {
                let traces = self.of_commands(query.session, &query.queries);
                self.open(&traces, to, Some(from), "gateway", None);
            }
            Message::Replica(ReplicaIn::ReadBatch(batch)) => {
                let traces = self.of_reads(batch);
                self.open(&traces, to, Some(from), "replica", None);
            }
            Message::Leader(LeaderIn::Propose(propose)) => {
                let traces = self.of_value(&propose.value, to);
                self.open(&traces, to, Some(from), "leader", None);
            }
            Message::ProxyLeader(ProxyLeaderIn::Assign(assign)) => {
                let traces = self.of_value(&assign.value, to);
                self.open(&traces, to, Some(from), "proxy_leader", Some(assign.slot));
            }
            Message::Acceptor(AcceptorIn::Phase2a(proposal)) => {
                let traces = self.of_value(&proposal.value, to);
                self.open(&traces, to, Some(from), "acceptor", Some(proposal.slot));
            }
            Message::Replica(ReplicaIn::Voted(voted)) => {
                let traces = self.of_value(&voted.value, to);
                self.open(&traces, to, Some(from), "replica", Some(voted.slot));
                if self.spans.was_chosen(to, voted.slot) {
                    self.spans.end_slot(to, voted.slot);
                }
            }
            Message::Replica(ReplicaIn::Chosen(chosen)) => {
                if let Some(value) = &chosen.value {
                    let traces = self.of_value(value, to);
                    self.open(&traces, to, Some(from), "replica", Some(chosen.slot));
                }
                if !self.spans.end_slot(to, chosen.slot) && chosen.value.is_none() {
                    self.spans.chosen_early(to, chosen.slot);
                }
            }
            Message::Client(ClientIn::Results(results)) => {
                let traces = self.of_answers(results.session, &results.results);
                self.end(&traces, to);
            }
            Message::Batcher(_)
            | Message::Leader(_)
            | Message::ProxyLeader(_)
            | Message::Acceptor(_)
            | Message::Replica(_)
            | Message::Unbatcher(_)
            | Message::Client(_) => {}
        }
    }
}

/// Mason's own messages.
impl RequestObserver {
    fn on_operation_sent(&mut self, from: NodeId, to: NodeId, message: &MasonMessage) {
        match message {
            MasonMessage::Log(message) => self.on_command_sent(from, to, message),
            MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::SubmitOperations(submitted))) => {
                for (origin, trace) in self.of_operations(submitted, to) {
                    // A gateway submits its own, a proxy hands them on.
                    if origin == from {
                        self.open(&[trace], from, None, "gateway", None);
                    } else {
                        self.end(&[trace], from);
                    }
                }
            }
            MasonMessage::Client(GatewayIn::Answers(answers)) => {
                let traces = self.of_operation_answers(to, answers);
                self.end(&traces, from);
            }
            // The rest names no operation.
            MasonMessage::Proxy(_)
            | MasonMessage::Sequencer(_)
            | MasonMessage::Shard(_)
            | MasonMessage::Client(_)
            | MasonMessage::Connection(_) => {}
        }
    }

    fn on_operation_received(&mut self, from: NodeId, to: NodeId, message: &MasonMessage) {
        match message {
            // What a log's machine says: to a gateway or to a shard, in their words.
            MasonMessage::Log(Message::Client(ClientIn::Notice(notice))) => match post_at(to) {
                Some(Post::Gateway) => {
                    if let Ok(message) = GatewayIn::decoded(&notice.bytes) {
                        self.on_answers(to, &message);
                    }
                }
                Some(Post::Shard(_)) => {
                    if let Ok(message) = ShardIn::decoded(&notice.bytes) {
                        self.on_delivered(from, to, &message);
                    }
                }
                Some(Post::Sequencer | Post::Part(..)) | None => {}
            },
            MasonMessage::Log(message) => self.on_command_received(from, to, message),
            MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::SubmitOperations(submitted))) => {
                for (_, trace) in self.of_operations(submitted, to) {
                    self.open(&[trace], to, Some(from), "proxy", None);
                }
            }
            MasonMessage::Client(message) => self.on_answers(to, message),
            MasonMessage::Shard(message) => self.on_delivered(from, to, message),
            MasonMessage::Proxy(_) | MasonMessage::Sequencer(_) | MasonMessage::Connection(_) => {}
        }
    }

    fn on_answers(&mut self, gateway: NodeId, message: &GatewayIn) {
        match message {
            GatewayIn::Answers(answers) => {
                let traces = self.of_operation_answers(gateway, answers);
                self.end(&traces, gateway);
            }
            // It is submitted again, to another group, and is another request there.
            GatewayIn::Elsewhere(elsewhere) => {
                let Elsewhere { group, incarnation, tag, .. } = *elsewhere;
                let trace = self.sampling.of_tagged(group, gateway, incarnation, tag);
                trace.into_iter().for_each(|trace| self.spans.end(gateway, trace));
            }
            GatewayIn::GatewayNotice(_)
            | GatewayIn::Progress(_)
            | GatewayIn::ReadAnswers(_)
            | GatewayIn::BarrierPassed(_)
            | GatewayIn::GroupNotice(_)
            | GatewayIn::Skipped(_)
            | GatewayIn::UsesShardMap(_)
            | GatewayIn::Overfull(_)
            | GatewayIn::Remark(_)
            | GatewayIn::Connected(_)
            | GatewayIn::Input(_)
            | GatewayIn::Disconnected(_)
            | GatewayIn::Taken(_)
            | GatewayIn::Proven(_) => {}
        }
    }

    /// A shard of every host executes what it is handed; the one at the gateway's host answers, and is followed.
    fn on_delivered(&mut self, from: NodeId, shard: NodeId, message: &ShardIn) {
        let ShardIn::Deliver(deliver) = message else { return };
        for row in deliver.runs.iter().flat_map(Run::iter) {
            let Ok((_, delivered)) = row else { return };
            let ours = delivered.work.operation().filter(|it| it.origin.host() == self.host);
            if let Some(trace) = ours.and_then(|it| self.sampling.of_operation(deliver.group, it)) {
                self.open(&[trace], shard, Some(from), "shard", None);
            }
        }
    }

    fn of_operation_answers(&self, gateway: NodeId, answers: &Answers) -> Vec<RequestTrace> {
        let of =
            |it: &OperationAnswer| self.sampling.of_tagged(answers.group, gateway, it.incarnation, it.tag);
        answers.answers.iter().filter_map(of).collect()
    }
}

impl Observer<OrdinateMessage> for RequestObserver {
    fn on_sent(&mut self, from: NodeId, to: NodeId, message: &OrdinateMessage) {
        match message {
            OrdinateMessage::Kv(message) => self.on_command_sent(from, to, message),
            OrdinateMessage::Mason(message) => self.on_operation_sent(from, to, message),
            OrdinateMessage::Spanner(message) => self.on_txn_sent(from, message),
            // CORFU' and FuzzyLog are not followed; a user's bytes are what a gateway makes of them.
            OrdinateMessage::Corfu(_)
            | OrdinateMessage::Fuzzy(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_) => {}
        }
    }

    fn on_received(&mut self, from: NodeId, to: NodeId, message: &OrdinateMessage) {
        match message {
            OrdinateMessage::Kv(message) => self.on_command_received(from, to, message),
            OrdinateMessage::Mason(message) => self.on_operation_received(from, to, message),
            OrdinateMessage::Spanner(message) => self.on_txn_received(from, to, message),
            OrdinateMessage::Corfu(_)
            | OrdinateMessage::Fuzzy(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_) => {}
        }
    }
}

/// Whose a node is; a client's connection is the key-value service's, since others' gateways stand for theirs.
fn service_at(node: NodeId) -> &'static str {
    let owns =
        |service: &&&'static Listed| service.slots.iter().any(|slots| slots.contains(node.host_slot()));
    SERVICES.iter().find(owns).map_or("kv", |service| service.name)
}

/// What is at a node of a deployment of Mason.
fn post_at(node: NodeId) -> Option<Post> {
    Post::at(node.host_slot().0 % SLOTS_PER_DEPLOYMENT)
}

fn group_at(node: NodeId) -> Option<Group> {
    match post_at(node)? {
        Post::Part(group, Part::Log(_) | Part::Proxy) => Some(group),
        Post::Sequencer | Post::Gateway | Post::Shard(_) => None,
    }
}
