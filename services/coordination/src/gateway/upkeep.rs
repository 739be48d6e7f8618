//! What a gateway does unasked: sends again, tells home groups who was heard from, drops who waits in vain, reaps nodes.

use crate::gateway::Asker;
use crate::gateway::Gateway;
use crate::gateway::connection::{Connection, EntrySeq, Stage, Work};
use crate::sessions::home_of;
use crate::wire::{Body, ConnectionEpoch, SessionAnswer, SessionId};
use kernel::{Cx, Instant, NodeId};
use mason::Group;
use mason::proxy::Barrier;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often home groups are told who was heard from.
const TOUCH_EVERY: Duration = Duration::from_millis(400);
/// How often it is looked after those who wait in vain, and sizes are asked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
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
    pub(crate) departed: Vec<(SessionId, ConnectionEpoch)>,
    /// Handshakes that wait for a random number.
    pub(crate) handshakes: Vec<(NodeId, EntrySeq)>,
    /// When home groups were told what they have not answered, by group.
    touches: BTreeMap<usize, VecDeque<Instant>>,
}

impl Upkeep {
    /// They will not be answered.
    pub(crate) fn forget_touches(&mut self) {
        self.touches.clear();
    }

    /// The group has taken note of what it was told then, or has nothing to do with it any more.
    pub(crate) fn touch_answered(&mut self, group: Group, at: Instant) {
        if let Some(touches) = self.touches.get_mut(&usize::from(group.0)) {
            while touches.pop_front_if(|&mut before| before <= at).is_some() {}
        }
    }

    /// For how long a home group has left unanswered who was heard from.
    fn unanswered_for(&self, home: usize, now: Instant) -> Duration {
        let oldest = self.touches.get(&home).and_then(VecDeque::front);
        oldest.map_or(Duration::ZERO, |&at| now.since(at))
    }
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
        self.ask_barriers_again(cx);
        self.stirred.append(&mut self.homeless);
        if now.since(self.upkeep.touched) >= TOUCH_EVERY {
            self.upkeep.touched = now;
            self.touch();
            self.send_useless();
        }
        if now.since(self.upkeep.looked) >= LOOK_EVERY {
            self.upkeep.looked = now;
            self.drop_stalled(cx);
            // Nobody waits for this one: its answer says how many groups there are.
            cx.multicast(self.settings.routes.proxies.iter().copied().take(1), Barrier { id: 0 });
            let paused = self.connections.values().filter(|found| found.paused).map(|found| found.node);
            self.stirred.extend(paused);
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
        let mut heard: BTreeMap<usize, Vec<(SessionId, ConnectionEpoch)>> = BTreeMap::new();
        let open = self.connections.values_mut().filter(|connection| connection.stage == Stage::Open);
        let open = open.filter_map(|connection| {
            std::mem::take(&mut connection.heard).then_some((connection.session, connection.epoch))
        });
        for (session, epoch) in open.chain(std::mem::take(&mut self.upkeep.departed)) {
            let home = usize::from(self.layout.home(home_of(session).unwrap_or_default()).0);
            heard.entry(home).or_default().push((session, epoch));
        }
        for (home, sessions) in heard {
            for sessions in sessions.chunks(TOUCH_MAX) {
                let body = Body::Touch { sessions: sessions.to_vec() }.written();
                self.submit(home, body, Asker::Touch(self.now));
                self.upkeep.touches.entry(home).or_default().push_back(self.now);
            }
        }
    }

    /// Some sessions that were said to be alive are not, or not here: the word of it was lost on its way.
    pub(crate) fn on_touch_answered(
        &mut self,
        group: Group,
        at: Instant,
        body: &[u8],
        cx: &mut Cx<'_, Self>,
    ) {
        self.upkeep.touch_answered(group, at);
        let Ok(SessionAnswer::Gone { sessions }) = SessionAnswer::read(body) else { return };
        for gone in sessions {
            let is_it = |connection: &&Connection| (connection.session, connection.epoch) == gone;
            if let Some(node) = self.connections.values().find(is_it).map(|connection| connection.node) {
                self.close(node, "the session has ended or moved", cx);
            }
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
                let home = self.home(connection.session);
                connection.queue.front().is_some_and(|entry| self.now.since(entry.since) > patience)
                    || !kernel::planted!(K14) && self.upkeep.unanswered_for(home, self.now) > patience * 2 / 3
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
