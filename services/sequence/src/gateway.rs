//! Takes the calls of one host's users to the proxies: local ones, and those of connections in the words of [`crate::native`].

use crate::native::{Native, Next, Numbered, Outcome};
use crate::{Ask, LABEL_BYTES_MAX};
use kernel::client::Output;
use kernel::client::Response;
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode, Encode, Instant, NodeId, Position, RequestId, Role, Statement,
};
use mason::client::GatewayIn;
use mason::shard::Attach;
use mason::{Group, Layout, Mason, Order, Space};
use parts::{Incarnation, Patience, Upstream};
use std::time::Duration;

kernel::timers! {
    /// The gateway's timers.
    pub enum GatewayTimer {
        /// Send again what has no answer.
        Resend,
    }
}

/// The answer to a call of which it is not known whether it was given a number: the label shows it, once it is looked for.
pub const UNKNOWN: Bytes = Bytes::from_static(b"?");
/// The answer to a call when the disks are full: nothing was done.
pub const DISK_FULL: Bytes = Bytes::from_static(b"full");

/// The answer to an empty call when every group would assign numbers.
pub const READY: Bytes = Bytes::from_static(b"ready");

/// Empty calls in flight; more are refused.
const PROBES_MAX: usize = 16;

/// A call is an encoded [`crate::Ask`]; its answer an encoded [`mason::Order`], nothing if no space
/// exists, [`UNKNOWN`] or [`DISK_FULL`].
#[derive(Clone, Debug)]
pub struct Gateway {
    shards: Vec<NodeId>,
    /// Local applications wait for barriers with empty calls.
    upstream: Upstream<Mason, Asker, RequestId>,
    next_group: u16,
    /// All calls go to the next group, and none after it has its turn.
    stays: bool,
    looked_at: Instant,
    names: Vec<String>,
}

/// Who waits for an answer.
#[derive(Clone, Debug)]
enum Asker {
    /// A local application.
    Call(RequestId),
    /// A connection: its number for the call, and the spaces in the order it wants them.
    Connection { node: NodeId, id: u64, spaces: Vec<Space> },
}

/// Calls of connections are answered busy beyond so many in a group.
const OUTSTANDING_MAX: usize = 20_000;

const RESEND_AFTER: Duration = Duration::from_millis(100);
/// How often it is looked after what is late, at least; it is done when the host wakes anyhow.
const TICK: Duration = kernel::REPEAT_WITHIN;
/// How often the first group is asked how many groups there are.
const LOOK_EVERY: Duration = Duration::from_secs(4);

impl Gateway {
    /// A gateway that uses these proxies of its host, by group, in turn, and hears from these servers, by space.
    pub fn new(proxies: Vec<NodeId>, shards: Vec<NodeId>) -> Self {
        let layout = Layout::at_bootstrap(proxies.len() as u16, shards.len() as u16);
        let patience = Patience { resend_after: RESEND_AFTER, ask_again_after: RESEND_AFTER };
        Self {
            shards,
            upstream: Upstream::new(proxies, layout, patience),
            next_group: 0,
            stays: false,
            looked_at: Instant(0),
            names: Vec::new(),
        }
    }

    /// The same with one proxy for all calls, as in the paper's clients: its group's.
    #[must_use]
    pub fn staying_with(self, group: Group) -> Self {
        Self { next_group: group.0, stays: true, ..self }
    }

    /// The same with names for the spaces, by which connections ask for them.
    #[must_use]
    pub fn with_names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    /// The same with fewer groups in use at first than there is room for.
    #[must_use]
    pub fn with_layout(self, layout: Layout) -> Self {
        Self { upstream: self.upstream.with_layout(layout), ..self }
    }

    /// Calls without an answer, in the group where there are most.
    pub fn outstanding(&self) -> usize {
        self.upstream.outstanding()
    }
}

impl Role for Gateway {
    type Family = Mason;
    type In = GatewayIn;
    type Timer = GatewayTimer;
    type Record = Incarnation;

    fn restore(&mut self, _position: Position, record: Incarnation) {
        self.upstream.restore(record);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.begin_incarnation(cx);
        cx.set_timer(GatewayTimer::Resend, RESEND_AFTER);
        cx.multicast(self.shards.iter().copied(), Attach {});
    }

    fn on_message(&mut self, from: NodeId, message: GatewayIn, cx: &mut Cx<'_, Self>) {
        match message {
            GatewayIn::Answers(message) => {
                for answer in message.answers {
                    if let Some(asker) = self.upstream.answered(answer.tagged(message.group), cx.now()) {
                        notify(asker, answer.body, cx);
                    }
                }
            }
            GatewayIn::Elsewhere(message) => {
                if let Some((asker, ask)) =
                    self.upstream.turned_away(message.tagged(), &message.layout, cx.now())
                {
                    cx.mark("sequence.asked_another_group");
                    self.push(ask, asker, cx);
                }
            }
            GatewayIn::Skipped(_) => {
                for asker in self.begin_incarnation(cx) {
                    notify(asker, UNKNOWN, cx);
                }
            }
            GatewayIn::Input(message) => match Native::decoded(&message.bytes) {
                Ok(Native::Next(next)) => self.on_next(from, next, cx),
                Ok(Native::Numbered(_)) | Err(_) => cx.reject("message that is no call"),
            },
            GatewayIn::BarrierPassed(message) => {
                let answered = (usize::from(message.group.0), message.id);
                let passed = self.upstream.on_barrier_passed(answered, message.layout.as_ref(), cx);
                for id in passed.into_iter().flat_map(|passed| passed.waiters) {
                    cx.respond(id, Response(READY));
                }
            }
            GatewayIn::Progress(_) | GatewayIn::Overfull(_) | GatewayIn::Remark(_) => {}
            GatewayIn::GatewayNotice(_)
            | GatewayIn::ReadAnswers(_)
            | GatewayIn::UsesShardMap(_)
            | GatewayIn::GroupNotice(_)
            | GatewayIn::Connected(_)
            | GatewayIn::Taken(_)
            | GatewayIn::Proven(_)
            | GatewayIn::Disconnected(_) => cx.reject("message that the sequence has no use for"),
        }
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            GatewayTimer::Resend => {
                let is_used = self.upstream.outstanding() > 0;
                let now = cx.now();
                let used = TICK + kernel::until_moment(now);
                let after = if is_used { used } else { TICK.max(kernel::until_rare_moment(now)) };
                cx.set_timer(GatewayTimer::Resend, after);
                self.upstream.ask_again(cx);
                if cx.now().since(self.looked_at) >= LOOK_EVERY {
                    self.looked_at = cx.now();
                    self.upstream.look(cx);
                }
            }
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(GatewayTimer::Resend, true)
    }

    fn statement(&self) -> Statement {
        Statement { unfinished: vec![("calls", self.outstanding())], ..Statement::default() }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        if self.upstream.groups() == 0 {
            return cx.respond(id, Response(Bytes::new()));
        }
        if request.is_empty() {
            return self.begin_probe(id, cx);
        }
        if cx.is_disk_full() {
            return cx.respond(id, Response(DISK_FULL));
        }
        self.push(request, Asker::Call(id), cx);
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.upstream.send_barrier(cx);
        self.upstream.flush(cx);
    }
}

impl Gateway {
    fn push(&mut self, ask: Bytes, asker: Asker, cx: &mut Cx<'_, Self>) {
        let group = self.next_group % self.upstream.layout().serving.max(1);
        if !self.stays {
            self.next_group = group + 1;
        }
        self.upstream.push(group.into(), ask, asker, cx.now());
    }

    fn on_next(&mut self, node: NodeId, next: Next, cx: &mut Cx<'_, Self>) {
        let Next { id, spaces, label } = next;
        let number = |name: &String| self.names.iter().position(|known| known == name);
        let spaces: Option<Vec<Space>> =
            spaces.iter().map(|name| number(name).map(|at| Space(at as u16))).collect();
        let known = spaces.filter(|spaces| !spaces.is_empty() && label.len() <= LABEL_BYTES_MAX);
        match known {
            None => refuse(node, id, Outcome::Malformed, cx),
            Some(_) if cx.is_disk_full() => refuse(node, id, Outcome::DiskFull, cx),
            Some(_) if self.outstanding() >= OUTSTANDING_MAX => refuse(node, id, Outcome::Busy, cx),
            Some(spaces) => {
                let ask = Ask { spaces: spaces.clone(), label }.encoded();
                self.push(ask.into(), Asker::Connection { node, id, spaces }, cx);
            }
        }
    }

    /// An empty call asks whether numbers would be assigned now. It is answered with [`READY`] when a barrier has passed every group.
    fn begin_probe(&mut self, id: RequestId, cx: &mut Cx<'_, Self>) {
        if self.upstream.barriers().waiters() >= PROBES_MAX {
            return cx.respond(id, Response(Bytes::new()));
        }
        self.upstream.barriers().want(id);
    }

    /// Returns the calls that the incarnation before leaves unanswered.
    fn begin_incarnation(&mut self, cx: &mut Cx<'_, Self>) -> Vec<Asker> {
        if kernel::planted!(incarnation_not_persisted) {
            return self.upstream.take_up(self.upstream.next_incarnation(cx));
        }
        self.upstream.begin_incarnation(cx)
    }
}

fn refuse(node: NodeId, id: u64, outcome: Outcome, cx: &mut Cx<'_, Gateway>) {
    let refused = Numbered { id, status: outcome as u8, numbers: Vec::new(), gsn: 0 };
    cx.send(node, Output { bytes: Native::Numbered(refused).encoded().into() });
}

/// `body`: an encoded order, or [`UNKNOWN`].
fn notify(asker: Asker, body: Bytes, cx: &mut Cx<'_, Gateway>) {
    let (node, id, spaces) = match asker {
        Asker::Call(id) => return cx.respond(id, Response(body)),
        Asker::Connection { node, id, spaces } => (node, id, spaces),
    };
    if body == UNKNOWN {
        return refuse(node, id, Outcome::Unknown, cx);
    }
    let numbers = Order::decoded(&body).ok().and_then(|order| {
        let numbers = spaces.iter().map(|&space| order.number_in(space).map(|number| number.0));
        Some((numbers.collect::<Option<Vec<u64>>>()?, order.gsn.0))
    });
    match numbers {
        None => refuse(node, id, Outcome::Malformed, cx),
        Some((numbers, gsn)) => {
            let done = Numbered { id, status: Outcome::Done as u8, numbers, gsn };
            cx.send(node, Output { bytes: Native::Numbered(done).encoded().into() });
        }
    }
}
