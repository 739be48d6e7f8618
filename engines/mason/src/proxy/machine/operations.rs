//! What an origin's operation does to a group: it is admitted once, applied by the stub, and answered.

use super::ProxyMachine;
use crate::messages::client::{Answers, GatewayIn, GroupNotice, OperationAnswer};
use crate::order::{Gsn, Operation, Order};
use crate::proxy::entry::Item;
use crate::proxy::{FollowUp, NextTag};
use crate::service::{Stub, StubOut, Verdict};
use kernel::{Encode, NodeId};

/// Origins whose tags are remembered; the one used least recently leaves first.
const ORIGINS_MAX: usize = 4_096;

impl<S: Stub> ProxyMachine<S> {
    /// Returns the operation if shards are to execute it.
    pub(super) fn apply_item(&mut self, item: Item, order: Option<&Order>) -> Option<Operation> {
        let now = self.state.now;
        let Item { follow_up, operation, .. } = item;
        if let Some(id) = follow_up {
            let position = self.state.follow_ups.iter().position(|pending| pending.id == id)?;
            self.state.follow_ups.remove(position);
            self.stub.apply_follow_up(&operation.body, order, now, &mut self.out);
            self.carry_out(None);
            return Some(operation);
        }
        if !self.admit(&operation) {
            return None;
        }
        // Its leader gave it no numbers where the group was not in use yet, and by now it is.
        let unnumbered =
            order.is_none() && !self.stub.spaces(&operation.body, &self.layout().shard_map).is_empty();
        if unnumbered || self.group.0 >= self.layout().serving {
            self.turn_away(&operation);
            return None;
        }
        let verdict = self.stub.apply(&operation.body, order, now, &mut self.out);
        self.carry_out(Some(&operation));
        (verdict == Verdict::Execute).then_some(operation)
    }

    /// An origin's operations are admitted in the order of their tags, each once.
    fn admit(&mut self, operation: &Operation) -> bool {
        let tags = &mut self.state.tags;
        let position = tags.iter().position(|known| known.origin == operation.origin);
        let mut known = match position {
            Some(position) => tags.remove(position),
            None => NextTag { origin: operation.origin, incarnation: operation.incarnation, next: 1 },
        };
        if known.incarnation < operation.incarnation && operation.tag == 1 {
            (known.incarnation, known.next) = (operation.incarnation, 1);
        }
        let admitted = known.incarnation == operation.incarnation && known.next == operation.tag;
        known.next += u64::from(admitted);
        // The one used last stands last.
        tags.push(known);
        if tags.len() > ORIGINS_MAX {
            tags.remove(0);
        }
        admitted
    }

    pub(super) fn carry_out(&mut self, operation: Option<&Operation>) {
        let StubOut { answer, elsewhere, notices, follow_ups } = std::mem::take(&mut self.out);
        if let Some(operation) = operation.filter(|_| elsewhere) {
            self.turn_away(operation);
        }
        if let (Some(body), Some(operation)) = (answer, operation)
            && self.speaks_to(operation.origin, operation.tag)
        {
            let Operation { incarnation, tag, .. } = *operation;
            let answer = OperationAnswer { incarnation, tag, gsn: Gsn(0), body };
            let answers = GatewayIn::from(Answers { group: self.group, answers: vec![answer] });
            self.notices.push((operation.origin, answers.encoded().into()));
        }
        for (origin, body) in notices {
            if self.speaks_to(origin, self.state.index) {
                let notice = GatewayIn::from(GroupNotice { group: self.group, body });
                self.notices.push((origin, notice.encoded().into()));
            }
        }
        for body in follow_ups {
            let follow_up = FollowUp { id: self.state.next_follow_up, body };
            self.state.next_follow_up += 1;
            self.state.follow_ups.push(follow_up.clone());
            self.notify_proxy(follow_up);
        }
    }

    /// One replica speaks to an origin: the one on its host, else one chosen by `choice`.
    pub(super) fn speaks_to(&self, origin: NodeId, choice: u64) -> bool {
        let proxies = self.topology.proxies(self.group);
        if origin.host() == self.host || proxies.iter().any(|proxy| proxy.host() == origin.host()) {
            return origin.host() == self.host;
        }
        let chosen = &proxies[(choice % proxies.len() as u64) as usize];
        chosen.host() == self.host
    }
}
