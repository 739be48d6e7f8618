//! Takes the calls of one host's users to the proxies.

use kernel::{Bytes, Cx, NodeId, Position, RequestId, Role};
use mason::client::ClientIn;
use mason::shard::Attach;
use mason::{Group, Life, Mason, Outbox, Response};
use std::time::Duration;

kernel::timers! {
    /// The gateway's timers.
    pub enum GatewayTimer {
        /// Send again what has no answer.
        Resend,
    }
}

/// The answer to a call of which it is not known whether it was given a place: the label tells, once it is looked for.
pub const UNKNOWN: Bytes = Bytes::from_static(b"?");

/// A call is an encoded [`crate::Ask`]; its answer an encoded [`mason::Order`], nothing if no space exists, or [`UNKNOWN`].
#[derive(Clone, Debug)]
pub struct Gateway {
    proxies: Vec<NodeId>,
    shards: Vec<NodeId>,
    life: Life,
    outbox: Outbox<RequestId>,
    next_group: u16,
}

const RESEND_AFTER: Duration = Duration::from_millis(100);

impl Gateway {
    /// A gateway that uses these proxies of its host, by group, in turn, and hears from these servers, by space.
    pub fn new(proxies: Vec<NodeId>, shards: Vec<NodeId>) -> Self {
        let outbox = Outbox::new(0, &proxies, RESEND_AFTER);
        Self { proxies, shards, life: Life { incarnation: 0 }, outbox, next_group: 0 }
    }

    /// Calls without an answer, in the group where there are most.
    pub fn outstanding(&self) -> usize {
        self.outbox.longest()
    }
}

impl Role for Gateway {
    type Family = Mason;
    type In = ClientIn;
    type Timer = GatewayTimer;
    type Record = Life;

    fn restore(&mut self, _position: Position, record: Life) {
        self.life = record;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.begin_life(cx);
        cx.set_timer(GatewayTimer::Resend, RESEND_AFTER);
        cx.multicast(self.shards.iter().copied(), Attach {});
    }

    fn on_message(&mut self, _from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        match message {
            ClientIn::Answers(message) => {
                for answer in message.answers {
                    if let Some(id) = self.outbox.answered(message.group, &answer, cx.now()) {
                        cx.respond(id, Response(answer.body));
                    }
                }
            }
            ClientIn::Skipped(_) => {
                for id in self.begin_life(cx) {
                    cx.respond(id, Response(UNKNOWN));
                }
            }
            ClientIn::Progress(_) => {}
            ClientIn::Notice(_)
            | ClientIn::ReadAnswers(_)
            | ClientIn::BarrierPassed(_)
            | ClientIn::Told(_)
            | ClientIn::Connected(_)
            | ClientIn::Input(_)
            | ClientIn::Disconnected(_) => cx.reject("message that the sequence has no use for"),
        }
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            GatewayTimer::Resend => cx.set_timer(GatewayTimer::Resend, RESEND_AFTER),
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        if self.proxies.is_empty() {
            return cx.respond(id, Response(Bytes::new()));
        }
        let group = Group(self.next_group % self.proxies.len() as u16);
        self.next_group = (group.0 + 1) % self.proxies.len() as u16;
        self.outbox.push(group, request, id, cx.now());
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        let mut sends = Vec::new();
        self.outbox.flush(cx.node(), cx.now(), |proxy, submit| sends.push((proxy, submit)));
        for (proxy, submit) in sends {
            cx.send_durable(proxy, submit);
        }
    }
}

impl Gateway {
    /// Returns the calls that the life before leaves unanswered.
    fn begin_life(&mut self, cx: &mut Cx<'_, Self>) -> Vec<RequestId> {
        self.life = self.life.next(cx.wall());
        let position = cx.append(&self.life);
        cx.trim(position);
        self.outbox.restart(self.life.incarnation)
    }
}
