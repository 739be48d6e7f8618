//! What a gateway does unasked: sends again, reports to home groups who was heard from, drops who waits in vain, reaps nodes.

use crate::gateway::Asker;
use crate::gateway::Gateway;
use crate::gateway::connection::{Connection, EntrySeq, Stage, Work};
use crate::sessions::home_of;
use crate::wire::{Body, ConnectionEpoch, SessionAnswer, ZkSessionId, op};
use kernel::{Cx, Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often home groups learn who was heard from.
const TOUCH_EVERY: Duration = Duration::from_millis(400);
/// How often it is looked after those who wait in vain, and sizes are asked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many times as rarely while nobody is connected.
const LOOK_UNUSED_TIMES: u32 = 8;
/// At most so many nodes that have served their time are looked for at a time and shard. Every gateway does, a random while
/// apart.
const REAP_MAX: u16 = 1000;
/// At most so many sessions in one sign of life.
const TOUCH_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    touched: Instant,
    looked: Instant,
    reap_at: Instant,
    /// Heard from before they left.
    pub(crate) departed: Vec<Heard>,
    /// Handshakes that wait for a random number.
    pub(crate) handshakes: Vec<(NodeId, EntrySeq)>,
    /// What was reported to home groups, which have not answered.
    touches: BTreeMap<u64, Touch>,
    next_touch: u64,
}

/// A connection that was heard from.
type Heard = (NodeId, ZkSessionId, ConnectionEpoch);

#[derive(Debug)]
struct Touch {
    at: Instant,
    heard: Vec<Heard>,
}

impl Gateway {
    pub(crate) fn begin_upkeep(&mut self, cx: &mut Cx<'_, Self>) {
        (self.upkeep.touched, self.upkeep.looked) = (self.now, self.now);
        self.upkeep.reap_at =
            self.now + cx.rng().duration(self.settings.reap_every / 60, self.settings.reap_every);
        for space in self.settings.placement.spaces() {
            self.reads.ask_sizes(space);
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_, Self>) {
        let now = self.now;
        self.upstream.ask_again(cx);
        self.runnable.append(&mut self.turned_away);
        if now.since(self.upkeep.touched) >= TOUCH_EVERY {
            self.upkeep.touched = now;
            self.touch();
            self.send_unneeded();
        }
        let times = if self.connections.is_empty() { LOOK_UNUSED_TIMES } else { 1 };
        if now.since(self.upkeep.looked) >= times * LOOK_EVERY {
            self.upkeep.looked = now;
            self.drop_unread(cx);
            self.drop_stalled(cx);
            self.upstream.look(cx);
            let paused = self.connections.values().filter(|found| found.paused).map(|found| found.node);
            self.runnable.extend(paused);
            self.settings.placement.spaces().for_each(|space| self.reads.ask_sizes(space));
            self.ask_quotas();
        }
        if now >= self.upkeep.reap_at {
            let every = self.settings.reap_every;
            self.upkeep.reap_at = now + cx.rng().duration(every, every * 5 / 4);
            let wall = cx.wall().midpoint() / 1_000_000;
            self.settings.placement.spaces().for_each(|space| self.reads.ask_reapable(space, wall, REAP_MAX));
        }
    }

    fn touch(&mut self) {
        let mut heard: BTreeMap<usize, Vec<Heard>> = BTreeMap::new();
        let now = self.now;
        let open = self.connections.values_mut().filter(|connection| connection.stage == Stage::Open);
        let open = open.filter_map(|connection| {
            std::mem::take(&mut connection.heard).then(|| {
                connection.unassured.push_back(now);
                (connection.node, connection.session, connection.epoch)
            })
        });
        for notified in open.chain(std::mem::take(&mut self.upkeep.departed)) {
            let home = self.upstream.layout().home(home_of(notified.1).unwrap_or_default());
            heard.entry(usize::from(home.0)).or_default().push(notified);
        }
        for (home, heard) in heard {
            for heard in heard.chunks(TOUCH_MAX) {
                let sessions = heard.iter().map(|&(_, session, epoch)| (session, epoch)).collect();
                let touch = self.upkeep.next_touch;
                self.upkeep.next_touch += 1;
                self.upkeep.touches.insert(touch, Touch { at: now, heard: heard.to_vec() });
                self.submit(home, Body::Touch { sessions }.written(), Asker::Touch(touch));
            }
        }
    }

    /// Some sessions that were said to be alive are not, or not here: the word of it was lost on its way. Of those that another
    /// group has, nobody has taken note: only the rest is known to live.
    pub(crate) fn on_touch_answered(&mut self, touch: u64, body: &[u8], cx: &mut Cx<'_, Self>) {
        let Some(Touch { at, heard }) = self.upkeep.touches.remove(&touch) else { return };
        let (elsewhere, gone) = match SessionAnswer::read(body) {
            Ok(SessionAnswer::Done) => (Vec::new(), Vec::new()),
            Ok(SessionAnswer::Gone { sessions }) => (Vec::new(), sessions),
            Ok(SessionAnswer::Elsewhere { sessions, gone }) => (sessions, gone),
            Ok(SessionAnswer::Attached { .. } | SessionAnswer::Refused) | Err(_) => return,
        };
        let [elsewhere, gone] = [elsewhere, gone].map(|named| named.into_iter().collect::<BTreeSet<_>>());
        for notified in heard {
            let (node, session, epoch) = notified;
            if elsewhere.contains(&(session, epoch)) {
                self.say_again(notified);
                continue;
            }
            let Some(connection) = self.connection_of(notified) else { continue };
            if gone.contains(&(session, epoch)) {
                // Who asked for its end is answered when everything that it made is gone.
                if kernel::planted!(closing_client_disconnected)
                    || !connection.queue.iter().any(|entry| entry.opcode == op::CLOSE)
                {
                    self.close(node, "the session has ended or moved", cx);
                }
            } else {
                while connection.unassured.pop_front_if(|&mut before| before <= at).is_some() {}
            }
        }
    }

    /// The group has nothing to do with any of them: another is asked.
    pub(crate) fn touch_again(&mut self, touch: u64) {
        let touch = self.upkeep.touches.remove(&touch);
        touch.into_iter().flat_map(|touch| touch.heard).for_each(|notified| self.say_again(notified));
    }

    /// What was said will not be answered.
    pub(crate) fn forget_touches(&mut self) {
        let touches = std::mem::take(&mut self.upkeep.touches);
        touches.into_values().flat_map(|touch| touch.heard).for_each(|notified| self.say_again(notified));
    }

    fn connection_of(&mut self, (node, session, epoch): Heard) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(&node)?;
        ((connection.session, connection.epoch) == (session, epoch)).then_some(connection)
    }

    fn say_again(&mut self, notified: Heard) {
        match self.connection_of(notified) {
            Some(connection) => connection.heard = true,
            None => self.upkeep.departed.push(notified),
        }
    }

    /// A client that gets no answer must be able to look for another gateway. So must one whose session's home group does not answer:
    /// its pings are answered here, and yet the session expires there.
    fn drop_stalled(&mut self, cx: &mut Cx<'_, Self>) {
        let stalled = self.connections.values().filter(|connection| match connection.stage {
            Stage::New | Stage::Connecting | Stage::Closed => {
                self.now.since(connection.since) > self.settings.handshake_within
            }
            Stage::Open => {
                let patience = Duration::from_millis(u64::try_from(connection.timeout).unwrap_or(0));
                let unassured = connection.unassured.front().map_or(Duration::ZERO, |&at| self.now.since(at));
                // Who still reads the answer before it waits for that, and not for a shard.
                let reads = connection.account.waiting() > self.pool.bounds().free_bytes;
                let since = |since: Instant| if reads { since.max(connection.took_at) } else { since };
                connection.queue.front().is_some_and(|entry| self.now.since(since(entry.since)) > patience)
                    || !kernel::planted!(ping_answered_unheard) && unassured > patience * 2 / 3
            }
        });
        let stalled: Vec<NodeId> = stalled.map(|connection| connection.node).collect();
        for node in stalled {
            self.metrics.stalled += 1;
            self.close(node, "no answer within the session's timeout", cx);
        }
    }

    /// Sends handshakes to home groups.
    pub(crate) fn send_handshakes(&mut self, cx: &mut Cx<'_, Self>) {
        for (node, seq) in std::mem::take(&mut self.upkeep.handshakes) {
            let work = self.connections.get_mut(&node).and_then(|connection| connection.entry(seq));
            let Some(Work::Handshake { hello }) = work.map(|entry| &entry.work) else { continue };
            let hello = hello.clone();
            match self.body_of_hello(node, &hello, cx.rng().bits(), cx.node()) {
                Some((home, body)) => {
                    if let Some(connection) = self.connections.get_mut(&node) {
                        connection.home = home;
                    }
                    self.submit(home, body, Asker::Request(node, seq));
                }
                None => self.on_handshake_answered(node, seq, &SessionAnswer::Refused),
            }
        }
    }
}
