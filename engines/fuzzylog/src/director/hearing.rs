//! What a director hears from its log: who leads it, and what was decided.

use super::Director;
use crate::messages::director::DirectorIn;
use kernel::{Cx, Decode, Instant, NodeId};
use parts::Ballot;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::ClientIn as LogAnswer;

impl Director {
    pub(super) fn on_log(&mut self, from: NodeId, message: paxos::Message, cx: &mut Cx<'_, Self>) {
        match message {
            paxos::Message::Batcher(BatcherIn::Heartbeat(message)) => {
                self.note_placement(&message.pulse, cx);
                self.on_pulse(message.pulse.ballot, cx.now(), cx);
            }
            paxos::Message::Client(LogAnswer::Notice(message)) if from == self.log.replica => {
                match DirectorIn::decoded(&message.bytes) {
                    Ok(DirectorIn::ChangeDecided(message)) => self.on_decided(message, cx),
                    Ok(_) | Err(_) => cx.reject("notice that is not the log's"),
                }
            }
            paxos::Message::Client(_)
            | paxos::Message::Batcher(_)
            | paxos::Message::Unbatcher(_)
            | paxos::Message::Leader(_)
            | paxos::Message::ProxyLeader(_)
            | paxos::Message::Acceptor(_)
            | paxos::Message::Replica(_) => cx.reject("message for another role of the log"),
        }
    }

    /// A leader of the log was heard `at` then.
    fn on_pulse(&mut self, ballot: Ballot, at: Instant, cx: &mut Cx<'_, Self>) {
        if self.leader > Some(ballot) {
            return;
        }
        (self.heard, self.heard_leader) = (Some(ballot), self.heard_leader.max(at));
        self.led_since.get_or_insert(cx.now());
        if self.leader < Some(ballot) {
            self.leader = Some(ballot);
            self.leads = ballot.leader == self.log.leader;
            for watch in &mut self.watches {
                watch.changing = None;
            }
            if self.leads {
                cx.mark("director.leads");
                self.begin_to_lead(cx);
            }
        }
    }

    /// A leader that rests says by a beacon that it leads.
    pub(super) fn hear_beacon(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(leader) = self.heard else { return };
        let is_recent = |at: &Instant| cx.now().since(*at) < self.log.silent_after;
        if let Some(at) = cx.beacon_heard_at(leader.leader).filter(is_recent) {
            self.on_pulse(leader, at, cx);
        }
    }
}
