//! What a proxy hears, and what the roles of its log say to it.

use super::leading::Lead;
use super::{Proxy, ProxyIn, ProxyTimer};
use crate::MasonMessage;
use crate::messages::shard::ShardIn;
use kernel::{Cx, Decode, NodeId};
use parts::Ballot;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::ClientIn as LogAnswer;
use paxos::multipaxos::unbatcher::UnbatcherIn;

/// Everything that a proxy hears.
#[derive(Clone, PartialEq, Debug)]
pub enum Heard {
    /// From Mason's own nodes.
    Own(ProxyIn),
    /// From the roles of its log.
    Log(paxos::Message),
}

impl<M: Into<ProxyIn>> From<M> for Heard {
    fn from(message: M) -> Self {
        Self::Own(message.into())
    }
}

impl Proxy {
    /// What the log's roles say to a proxy: the leader's pulse, and answers to what was read.
    pub(super) fn on_log(&mut self, from: NodeId, message: paxos::Message, cx: &mut Cx<'_, Self>) {
        match message {
            paxos::Message::Batcher(BatcherIn::Heartbeat(message)) => {
                if from == self.log.leader {
                    self.heard_leader_at = cx.now();
                }
                self.placed = Some(paxos::LogPlacement::of(&message.pulse));
                self.on_pulse(message.pulse.ballot, cx);
            }
            paxos::Message::Unbatcher(UnbatcherIn::BatchResults(message)) => {
                for reply in message.replies {
                    for answered in reply.results.iter() {
                        if reply.client == cx.node() {
                            if let Ok(answer) = ProxyIn::decoded(&answered.bytes) {
                                self.on_own(from, answer, cx);
                            }
                        } else if let Ok(answer) = ShardIn::decoded(&answered.bytes) {
                            cx.send(reply.client, MasonMessage::Shard(answer));
                        }
                    }
                }
            }
            paxos::Message::Client(LogAnswer::Results(message)) => {
                for answered in message.results.iter() {
                    self.on_reach(answered.sequence.0, &answered.bytes, cx);
                }
            }
            paxos::Message::Client(LogAnswer::Notice(message)) => match ProxyIn::decoded(&message.bytes) {
                Ok(notice) => self.on_own(from, notice, cx),
                Err(_) => cx.reject("notice that does not decode"),
            },
            paxos::Message::Batcher(_)
            | paxos::Message::Leader(_)
            | paxos::Message::ProxyLeader(_)
            | paxos::Message::Acceptor(_)
            | paxos::Message::Replica(_) => cx.reject("message for another role of the log"),
        }
    }

    fn on_pulse(&mut self, ballot: Ballot, cx: &mut Cx<'_, Self>) {
        if self.leader >= Some(ballot) {
            return;
        }
        self.leader = Some(ballot);
        self.lead = None;
        if self.leads_here() {
            cx.mark("proxy.leads");
            let shard_map = self.topology.layout.shard_map.clone();
            self.lead = Some(Lead::new(ballot, cx.rng().bits(), shard_map, cx.now()));
            self.leading(cx, |lead, frame, cx| lead.propose_begin(frame, cx));
            cx.set_timer(ProxyTimer::Tick, self.parameters.tick);
        }
    }
}
