//! The gateway: users' connections end here. It speaks ZooKeeper to them, and Mason to the proxies and shards of its host.
//!
//! ```text
//! connection        gateway                       proxies, shards
//!     | Input          |                                |
//!     |--------------->| a write: Submit                |
//!     |                |------------------------------->| home group, sequencer, shards
//!     |                |<-------------------------------| Answers (global sequence number)
//!     |                | a read: Barrier to all groups  |
//!     |                |------------------------------->|
//!     |                |<-------------------------------| BarrierPassed
//!     |                | Read (at_least)                |
//!     |                |------------------------------->| this host's server of the shard
//!     |                |<-------------------------------| ReadAnswers, Notice, Progress
//!     |<---------------| Output: in the order asked, events before what they announce
//! ```
//!
//! **Order within a session.** Requests go on their way in the order they came; a read waits until the writes before it are
//! answered, a write until the reads before it are. What comes back waits for its turn in `release.rs`.

mod advertise;
mod answers;
mod choice;
mod connection;
mod dispatch;
mod dump;
mod facts;
mod handshake;
mod kinds;
mod line;
mod marks;
mod metrics;
mod probe;
mod quotas;
mod reads;
mod release;
mod requests;
mod room;
mod settings;
mod subtree;
mod survey;
mod unneeded;
mod upkeep;
mod watchers;
mod words;

pub use facts::{HostCall, HostFacts};
pub use metrics::{Metrics, Sizes};
pub use settings::{Consistency, Routes, Settings};

use crate::gateway::advertise::Advertised;
use crate::gateway::connection::EntrySeq;
use crate::gateway::connection::{Connection, Stage, Work};
use crate::gateway::line::Line;
use crate::gateway::marks::Marks;
use crate::gateway::probe::Probes;
use crate::gateway::quotas::Quotas;
use crate::gateway::reads::Reads;
use crate::gateway::unneeded::Unneeded;
use crate::gateway::upkeep::Upkeep;
use crate::gateway::watchers::Watchers;
use crate::sessions::home_of;
use crate::wire::{HomeNotice, SessionAnswer, ZkSessionId};
use kernel::client::{Close, Output, Pause};
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode, Instant, NodeId, Position, Recount, RequestId, Role, Statement,
};
use mason::client::Elsewhere;
use mason::client::{Answers, BarrierPassed, GatewayIn, GatewayNotice};
use mason::{Mason, ShardMap, Space};
use parts::{Incarnation, Patience, Pool, Turn, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

kernel::timers! {
    /// | timer | meaning |
    /// |---|---|
    /// | `Tick` | every 50 ms: what was not answered is sent again, sessions are touched, the stalled are dropped |
    /// | `Turn` | connections that had their share go on |
    pub enum GatewayTimer {
        /// See the table.
        Tick,
        /// See the table.
        Turn,
    }
}

/// The period of the gateway's timer.
const TICK: Duration = Duration::from_millis(50);

/// Whose operation it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A request of a connection.
    Request(NodeId, EntrySeq),
    /// The gateway itself, which reports to a home group who was heard from.
    Touch(u64),
    /// The gateway itself; nobody waits for the answer.
    Upkeep,
}

const PATIENCE: Patience =
    Patience { resend_after: Duration::from_millis(150), ask_again_after: Duration::from_millis(500) };

/// See the file's head.
#[derive(Debug)]
pub struct Gateway {
    settings: Settings,
    connections: BTreeMap<NodeId, Connection>,
    /// Connections wait for barriers.
    upstream: Upstream<Mason, Asker, NodeId>,
    reads: Reads,
    quotas: Quotas,
    watchers: Watchers,
    unneeded: Unneeded,
    marks: Marks,
    /// The largest global sequence number known.
    highest: u64,
    /// The group where the next session will be at home.
    next_home: usize,
    /// Connections whose group had turned them away: they try again with the next tick.
    turned_away: BTreeSet<NodeId>,
    /// Connections that may have something to do at the end of the burst.
    runnable: BTreeSet<NodeId>,
    /// Connections that wait for some shard's mark.
    blocked: BTreeSet<NodeId>,
    upkeep: Upkeep,
    /// What users are owed.
    pool: Pool,
    /// Connections that wait until somebody has taken what it is owed.
    roomless: Line,
    /// Somebody has, since they last looked.
    freed: bool,
    turn: Turn,
    /// Connections that wait for a turn.
    next_turn: Line,
    /// The connection that had its turn last.
    served: NodeId,
    /// Bytes of writes that are not answered.
    write_bytes: usize,
    metrics: Metrics,
    facts: HostFacts,
    advertised: Advertised,
    probes: Probes,
    /// What `stmk` has set; nothing is traced by it.
    trace_mask: u64,
    now: Instant,
    /// Writes are refused meanwhile.
    disk_full: bool,
}

impl Gateway {
    /// A gateway without connections.
    pub fn new(settings: Settings) -> Self {
        let upstream = Upstream::new(settings.routes.proxies.clone(), settings.layout.clone(), PATIENCE);
        Self {
            connections: BTreeMap::new(),
            upstream,
            reads: Reads::new(),
            quotas: Quotas::default(),
            watchers: Watchers::default(),
            unneeded: Unneeded::default(),
            marks: Marks::new(
                settings.routes.shards.len(),
                ShardMap::at_bootstrap(settings.placement.shards()),
            ),
            highest: 0,
            next_home: 0,
            turned_away: BTreeSet::new(),
            runnable: BTreeSet::new(),
            blocked: BTreeSet::new(),
            upkeep: Upkeep::default(),
            pool: Pool::new(settings.replies),
            roomless: Line::default(),
            freed: false,
            turn: Turn::new(room::TURN_BOUNDS),
            next_turn: Line::default(),
            served: NodeId::ZERO,
            write_bytes: 0,
            metrics: Metrics::default(),
            facts: HostFacts::of_mode(&settings.mode),
            advertised: Advertised::default(),
            probes: Probes::default(),
            trace_mask: words::TRACE_MASK,
            now: Instant::default(),
            disk_full: false,
            settings,
        }
    }

    /// What it counts, for a metrics page.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = self.metrics.clone();
        metrics.connections = self.connections.len() as u64;
        metrics.outstanding = self.connections.values().map(|connection| connection.queue.len() as u64).sum();
        metrics.watches = self.watchers.len() as u64;
        metrics.highest_zxid = self.highest;
        (metrics.owed_bytes, metrics.owed_bytes_max) = (self.pool.used() as u64, self.pool.used_max() as u64);
        (metrics.quotas, metrics.quotas_exceeded) = (self.quotas.len(), self.quotas.exceeded());
        metrics
    }

    /// To any group, with nobody waiting for the answer.
    fn submit_unasked(&mut self, body: impl Into<Bytes>) {
        let home = self.next_home % usize::from(self.upstream.layout().serving.max(1));
        self.submit(home, body, Asker::Upkeep);
    }

    fn submit(&mut self, group: usize, body: impl Into<Bytes>, asker: Asker) {
        let now = self.now;
        self.upstream.push(group, body.into(), asker, now);
    }

    fn on_answers(&mut self, message: Answers, cx: &mut Cx<'_, Self>) {
        for answer in message.answers {
            let asker = self.upstream.answered(answer.tagged(message.group), self.now);
            self.highest = self.highest.max(answer.gsn.0);
            match asker {
                Some(Asker::Request(node, seq)) => {
                    self.runnable.insert(node);
                    self.on_answered(node, seq, answer);
                }
                Some(Asker::Touch(touch)) => self.on_touch_answered(touch, &answer.body, cx),
                Some(Asker::Upkeep) | None => {}
            }
        }
    }

    fn on_barrier_passed(&mut self, message: &BarrierPassed, cx: &mut Cx<'_, Self>) {
        let answered = (usize::from(message.group.0), message.id);
        let passed = self.upstream.on_barrier_passed(answered, message.layout.as_ref(), cx);
        self.runnable.extend(passed.into_iter().flat_map(|passed| passed.waiters));
    }

    /// Where a session is at home.
    pub(crate) fn home(&self, session: ZkSessionId) -> usize {
        usize::from(self.upstream.layout().home(home_of(session).unwrap_or_default()).0)
    }

    /// A group does not serve the session any more, or not yet: what it was asked is asked again, in the same order.
    fn on_elsewhere(&mut self, message: &Elsewhere, cx: &mut Cx<'_, Self>) {
        let away = self.upstream.turned_away(message.tagged(), &message.layout, self.now);
        let asker = away.map(|(asker, _)| asker);
        if let Some(Asker::Touch(touch)) = asker {
            self.touch_again(touch);
        }
        let Some(Asker::Request(node, seq)) = asker else { return };
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.writes_in_flight = connection.writes_in_flight.saturating_sub(1);
        connection.rehoming = true;
        let next = connection.next;
        if let Some(entry) = connection.entry(seq) {
            if let Work::Write { sent, .. } = &mut entry.work {
                *sent = false;
            }
            connection.next = next.min(seq);
            cx.mark("coordination.asked_another_group");
        }
        self.turned_away.insert(node);
    }

    /// A shard has come to another shard map. Before any announces what it has by that, all that is watched counts for the shards that have
    /// it by then.
    fn on_uses_shard_map(&mut self, space: Space, shard_map: &ShardMap, cx: &mut Cx<'_, Self>) {
        if self.marks.come_to(space, shard_map) {
            cx.mark("coordination.learned_of_a_shard_map");
            self.settings.placement = self.settings.placement.over(shard_map.shards);
            for connection in self.connections.values_mut() {
                connection.watched_spaces.clear();
                for path in &connection.watched {
                    *connection.watched_spaces.entry(self.settings.placement.space_of(path)).or_default() +=
                        1;
                }
            }
            self.metrics.sizes.retain(|space, _| space.0 < shard_map.shards);
        }
        self.reads.progressed = true;
    }

    fn on_report(&mut self, body: &[u8], cx: &mut Cx<'_, Self>) {
        let Ok(reported) = HomeNotice::read(body) else { return cx.reject("words that no stub says") };
        let (HomeNotice::Moved { connection: node, session }
        | HomeNotice::Ended { connection: node, session }) = reported;
        let Some(connection) = self.connections.get_mut(&node) else { return };
        if connection.session != session || connection.stage != Stage::Open {
            return;
        }
        match reported {
            HomeNotice::Moved { .. } => self.close(node, "the session has moved to another connection", cx),
            HomeNotice::Ended { .. } => {
                if !self.on_session_ended(node) {
                    self.metrics.sessions_expired += 1;
                    self.close(node, "the session has expired", cx);
                }
            }
        }
    }

    fn on_notice(&mut self, message: &GatewayNotice, cx: &mut Cx<'_, Self>) {
        let Ok(events) = crate::wire::WatchEvent::read_all(&message.body) else {
            return cx.reject("a notice that no shard writes");
        };
        self.highest = self.highest.max(message.gsn.0);
        for event in &events {
            let placement = &self.settings.placement;
            let reported = self.watchers.fire(event, message.gsn.0, &mut self.connections, placement);
            self.runnable.extend(reported);
        }
    }

    fn on_disconnected(&mut self, node: NodeId) {
        if let Some(mut connection) = self.connections.remove(&node) {
            if connection.stage == Stage::Open && connection.heard {
                self.upkeep.departed.push((node, connection.session, connection.epoch));
            }
            let unwatched = self.watchers.remove_all(&mut connection, &self.settings.placement);
            self.forget(unwatched);
            self.write_bytes -= connection.write_bytes;
            self.pool.close(&mut connection.account);
            self.freed = true;
        }
        for waiting in [&mut self.runnable, &mut self.blocked, &mut self.turned_away] {
            waiting.remove(&node);
        }
        for line in [&mut self.roomless, &mut self.next_turn] {
            line.remove(node);
        }
    }

    /// Says the last words and forgets the connection.
    fn close(&mut self, node: NodeId, reason: &str, cx: &mut Cx<'_, Self>) {
        if let Some(connection) = self.connections.get_mut(&node) {
            if !connection.output.is_empty() {
                let bytes = Bytes::from(std::mem::take(&mut connection.output));
                cx.send(node, Output { bytes });
            }
            cx.send(node, Close { reason: reason.to_owned() });
        }
        self.metrics.connections_closed += 1;
        self.on_disconnected(node);
    }

    /// What a burst has made runnable goes on its way: first who has waited, then all others.
    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        for _ in 0..self.next_turn.len() {
            if !self.turn.has_requests(self.now) || !self.turn.has_bytes(self.now) {
                break;
            }
            let Some(node) = self.next_turn.pop() else { break };
            self.go_on(node, cx);
        }
        loop {
            if std::mem::take(&mut self.freed) {
                self.roomless.in_order().into_iter().for_each(|node| self.go_on(node, cx));
            }
            let Some(node) = self.next_runnable() else { break };
            self.go_on(node, cx);
        }
        if !self.next_turn.is_empty() {
            cx.set_timer(GatewayTimer::Turn, room::TURN);
        }
        self.answer_probes(cx);
        self.metrics.barriers += u64::from(self.upstream.send_barrier(cx));
        self.reads.flush(&self.settings.routes.shards, cx);
        self.upstream.flush(cx);
    }

    fn go_on(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        self.parse(node, cx);
        self.dispatch(node);
        self.send_handshakes(cx);
        self.release(node, cx);
    }

    fn begin_incarnation(&mut self, cx: &mut Cx<'_, Self>) {
        self.upstream.begin_incarnation(cx);
        self.forget_touches();
    }

    /// A server of this host skipped operations, perhaps some that are waited for here: whether they were executed is not known. Of
    /// what is watched it has announced what was missed.
    fn on_skipped(&mut self, cx: &mut Cx<'_, Self>) {
        self.begin_incarnation(cx);
        let waits = |connection: &&Connection| {
            connection.writes_in_flight > 0 || connection.stage == Stage::Connecting
        };
        let waiting: Vec<NodeId> = self.connections.values().filter(waits).map(|found| found.node).collect();
        for node in waiting {
            self.close(node, "operations were skipped by a server that had lagged", cx);
        }
    }

    /// Stops and resumes users that ask faster than they are answered.
    fn press_back(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(connection) = self.connections.get(&node) else { return };
        let many = self.is_full(connection) || self.is_behind(connection);
        let few = self.is_half_empty(connection);
        let Some(connection) = self.connections.get_mut(&node) else { return };
        if !connection.paused && many {
            connection.paused = true;
            self.metrics.pauses += 1;
            cx.send(node, Pause { paused: true });
        } else if connection.paused && few {
            connection.paused = false;
            cx.send(node, Pause { paused: false });
            self.runnable.insert(node);
        }
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
        (self.now, self.disk_full) = (cx.now(), cx.is_disk_full());
        for shard in self.settings.routes.shards.clone() {
            cx.send(shard, mason::shard::Attach {});
        }
        self.begin_upkeep(cx);
        cx.set_timer(GatewayTimer::Tick, TICK);
    }

    fn on_message(&mut self, from: NodeId, message: GatewayIn, cx: &mut Cx<'_, Self>) {
        (self.now, self.disk_full) = (cx.now(), cx.is_disk_full());
        match message {
            GatewayIn::Connected(message) => self.on_connected(from, message, cx),
            GatewayIn::Input(message) => self.on_input(from, &message.bytes, cx),
            GatewayIn::Disconnected(_) => self.on_disconnected(from),
            GatewayIn::Taken(message) => self.on_taken(from, message.bytes),
            GatewayIn::Proven(message) => self.on_proven(from, &message),
            GatewayIn::Answers(message) => self.on_answers(message, cx),
            GatewayIn::GatewayNotice(message) => self.on_notice(&message, cx),
            GatewayIn::Overfull(_) | GatewayIn::Remark(_) => {
                cx.reject("word of an archive or of a budget that there is none of");
            }
            GatewayIn::Progress(message) => {
                self.marks.advance(message.space, message.through.0);
                self.highest = self.highest.max(message.through.0);
                self.reads.progressed = true;
            }
            GatewayIn::UsesShardMap(message) => self.on_uses_shard_map(message.space, &message.shard_map, cx),
            GatewayIn::ReadAnswers(message) => self.on_read_answers(message, cx),
            GatewayIn::BarrierPassed(message) => self.on_barrier_passed(&message, cx),
            GatewayIn::Elsewhere(message) => self.on_elsewhere(&message, cx),
            GatewayIn::Skipped(_) => self.on_skipped(cx),
            GatewayIn::GroupNotice(message) => self.on_report(&message.body, cx),
        }
    }

    /// From the host's server, a [`HostCall`].
    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        (self.now, self.disk_full) = (cx.now(), cx.is_disk_full());
        match HostCall::decoded(&request) {
            Ok(HostCall { advertises, facts, probes }) => {
                if let Some(operation) = advertises {
                    self.on_advertise(operation);
                }
                self.facts = facts.unwrap_or_else(|| self.facts.clone());
                if probes {
                    return self.begin_probe(id, cx);
                }
            }
            Err(_) => cx.reject("a call that no server makes"),
        }
        cx.respond(id, kernel::client::Response(Bytes::new()));
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        (self.now, self.disk_full) = (cx.now(), cx.is_disk_full());
        match timer {
            GatewayTimer::Tick => {
                self.on_tick(cx);
                self.settle(cx);
                let is_used = !self.connections.is_empty();
                cx.set_timer(
                    GatewayTimer::Tick,
                    if is_used { TICK } else { kernel::until_rare_moment(cx.now()) },
                );
            }
            GatewayTimer::Turn => self.settle(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        let turns = !self.next_turn.is_empty();
        AwaitedTimers::NONE.and(GatewayTimer::Tick, true).and(GatewayTimer::Turn, turns)
    }

    fn statement(&self) -> Statement {
        let connections = || self.connections.values();
        let written = connections().map(|connection| connection.write_bytes).sum();
        let queued = connections().flat_map(|connection| &connection.queue).map(|entry| entry.write_bytes);
        let reserved = connections().map(|connection| connection.account.reserved()).sum();
        let rooms = connections().map(|connection| connection.answers_held().0).sum();
        let mut recounts = vec![
            self.pool.recount(connections().map(|connection| &connection.account)),
            Recount::of("bytes of writes", self.write_bytes, written),
            Recount::of("bytes of writes of connections", written, queued.sum()),
            Recount::of("room for answers", reserved, rooms),
        ];
        recounts.extend(self.watchers.recounts(&self.connections));
        Statement { recounts, ..Statement::default() }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.reads.progressed) {
            self.runnable.append(&mut self.blocked);
        }
        self.settle(cx);
    }
}

/// What a home group's answer comes to.
fn session_answer(body: &[u8]) -> SessionAnswer {
    SessionAnswer::read(body).unwrap_or(SessionAnswer::Refused)
}
