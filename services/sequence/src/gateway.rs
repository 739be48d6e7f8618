//! Takes the calls of one host's users to the proxies: local ones, and those of connections in the words of [`crate::native`].

use crate::native::{Native, Next, Numbered, Outcome};
use crate::{Ask, LABEL_BYTES_MAX};
use kernel::client::Output;
use kernel::client::Response;
use kernel::{Bytes, Cx, Decode, Encode, Instant, NodeId, Position, RequestId, Role};
use mason::client::ClientIn;
use mason::proxy::Barrier;
use mason::shard::Attach;
use mason::{Group, Layout, Life, Mason, Order, Outbox, Space};
use std::collections::{BTreeMap, BTreeSet};
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
/// The answer to a call when the disks are full: nothing was done.
pub const DISK_FULL: Bytes = Bytes::from_static(b"full");

/// The answer to an empty call when every group would assign numbers.
pub const READY: Bytes = Bytes::from_static(b"ready");

/// Empty calls under way; more are refused.
const PROBES_MAX: usize = 16;

/// A call is an encoded [`crate::Ask`]; its answer an encoded [`mason::Order`], nothing if no space
/// exists, [`UNKNOWN`] or [`DISK_FULL`].
#[derive(Clone, Debug)]
pub struct Gateway {
    proxies: Vec<NodeId>,
    shards: Vec<NodeId>,
    life: Life,
    outbox: Outbox<Asker>,
    next_group: u16,
    /// All calls go to the next group, and none after it has its turn.
    stays: bool,
    /// How many groups there are, as far as is known.
    layout: Layout,
    looked_at: Instant,
    /// Barriers that local applications wait for, and the groups that have not answered.
    probes: BTreeMap<u64, (RequestId, BTreeSet<Group>)>,
    next_probe: u64,
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
/// How often the first group is asked how many groups there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Gateway {
    /// A gateway that uses these proxies of its host, by group, in turn, and hears from these servers, by space.
    pub fn new(proxies: Vec<NodeId>, shards: Vec<NodeId>) -> Self {
        let outbox = Outbox::new(0, &proxies, RESEND_AFTER);
        let layout = Layout::at_bootstrap(proxies.len() as u16, shards.len() as u16);
        Self {
            proxies,
            shards,
            life: Life { incarnation: 0 },
            outbox,
            next_group: 0,
            stays: false,
            layout,
            looked_at: Instant(0),
            probes: BTreeMap::new(),
            next_probe: 1,
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
        Self { layout, ..self }
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

    fn on_message(&mut self, from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        match message {
            ClientIn::Answers(message) => {
                for answer in message.answers {
                    if let Some(asker) = self.outbox.answered(message.group, &answer, cx.now()) {
                        tell(asker, answer.body, cx);
                    }
                }
            }
            ClientIn::Elsewhere(message) => {
                self.learn_layout(&message.layout);
                if let Some((asker, ask)) = self.outbox.turned_away(&message, cx.now()) {
                    cx.mark("sequence.asked_another_group");
                    self.push(ask, asker, cx);
                }
            }
            ClientIn::Skipped(_) => {
                for asker in self.begin_life(cx) {
                    tell(asker, UNKNOWN, cx);
                }
            }
            ClientIn::Input(message) => match Native::decoded(&message.bytes) {
                Ok(Native::Next(next)) => self.on_next(from, next, cx),
                Ok(Native::Numbered(_)) | Err(_) => cx.reject("message that is no call"),
            },
            ClientIn::BarrierPassed(message) => {
                message.layout.iter().for_each(|layout| self.learn_layout(layout));
                self.on_probed(message.id, message.group, cx);
            }
            ClientIn::Progress(_) | ClientIn::Overfull(_) => {}
            ClientIn::Notice(_)
            | ClientIn::ReadAnswers(_)
            | ClientIn::Spreads(_)
            | ClientIn::Told(_)
            | ClientIn::Connected(_)
            | ClientIn::Taken(_)
            | ClientIn::Disconnected(_) => cx.reject("message that the sequence has no use for"),
        }
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            GatewayTimer::Resend => {
                cx.set_timer(GatewayTimer::Resend, RESEND_AFTER);
                self.probe_again(cx);
                if cx.now().since(self.looked_at) >= LOOK_EVERY {
                    self.looked_at = cx.now();
                    // Nobody waits for this barrier: its answer says how many groups there are.
                    cx.multicast(self.proxies.iter().copied().take(1), Barrier { id: 0 });
                }
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        if self.proxies.is_empty() {
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
        let mut sends = Vec::new();
        self.outbox.flush(cx.node(), cx.now(), |proxy, submit| sends.push((proxy, submit)));
        for (proxy, submit) in sends {
            cx.send_durable(proxy, submit);
        }
    }
}

impl Gateway {
    fn learn_layout(&mut self, layout: &Layout) {
        if layout.version > self.layout.version {
            self.layout = layout.clone();
        }
    }

    fn push(&mut self, ask: Bytes, asker: Asker, cx: &mut Cx<'_, Self>) {
        let group = Group(self.next_group % self.layout.serving.max(1));
        if !self.stays {
            self.next_group = group.0 + 1;
        }
        self.outbox.push(group, ask, asker, cx.now());
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
        if self.probes.len() >= PROBES_MAX {
            return cx.respond(id, Response(Bytes::new()));
        }
        let groups: BTreeSet<Group> = (0..self.layout.spanning).map(Group).collect();
        cx.multicast(self.proxies.iter().copied().take(groups.len()), Barrier { id: self.next_probe });
        self.probes.insert(self.next_probe, (id, groups));
        self.next_probe += 1;
    }

    fn on_probed(&mut self, probe: u64, group: Group, cx: &mut Cx<'_, Self>) {
        let Some((_, missing)) = self.probes.get_mut(&probe) else { return };
        missing.remove(&group);
        if missing.is_empty()
            && let Some((id, _)) = self.probes.remove(&probe)
        {
            cx.respond(id, Response(READY));
        }
    }

    /// A proxy that had no leader may have dropped the question.
    fn probe_again(&self, cx: &mut Cx<'_, Self>) {
        for (&id, (_, missing)) in &self.probes {
            let proxies = missing.iter().filter_map(|group| self.proxies.get(usize::from(group.0)).copied());
            cx.multicast(proxies, Barrier { id });
        }
    }

    /// Returns the calls that the life before leaves unanswered.
    fn begin_life(&mut self, cx: &mut Cx<'_, Self>) -> Vec<Asker> {
        self.life = self.life.next(cx.wall());
        if !kernel::planted!(incarnation_not_persisted) {
            let position = cx.append(&self.life);
            cx.trim(position);
        }
        self.outbox.restart(self.life.incarnation)
    }
}

fn refuse(node: NodeId, id: u64, outcome: Outcome, cx: &mut Cx<'_, Gateway>) {
    let refused = Numbered { id, status: outcome as u8, numbers: Vec::new(), stamp: 0 };
    cx.send(node, Output { bytes: Native::Numbered(refused).encoded().into() });
}

/// `body`: an encoded order, or [`UNKNOWN`].
fn tell(asker: Asker, body: Bytes, cx: &mut Cx<'_, Gateway>) {
    let (node, id, spaces) = match asker {
        Asker::Call(id) => return cx.respond(id, Response(body)),
        Asker::Connection { node, id, spaces } => (node, id, spaces),
    };
    if body == UNKNOWN {
        return refuse(node, id, Outcome::Unknown, cx);
    }
    let numbers = Order::decoded(&body).ok().and_then(|order| {
        let numbers = spaces.iter().map(|&space| order.number_in(space).map(|number| number.0));
        Some((numbers.collect::<Option<Vec<u64>>>()?, order.stamp.0))
    });
    match numbers {
        None => refuse(node, id, Outcome::Malformed, cx),
        Some((numbers, stamp)) => {
            let done = Numbered { id, status: Outcome::Done as u8, numbers, stamp };
            cx.send(node, Output { bytes: Native::Numbered(done).encoded().into() });
        }
    }
}
