//! A role on a table: its clock is turned by hand, it is given one input at a time, and what it does is looked at. For tests alone.
#![forbid(unsafe_code)]

pub mod formats;

use kernel::{
    Beacons, BlobNotice, Bytes, Cx, Decode as _, Effect, Effects, Family, Instant, NodeId, Position, Rng,
    Role, Situation, Wall,
};
use std::time::Duration;

/// What a role of a family did.
pub type Did<F> = Vec<Effect<<F as Family>::Message, <F as Family>::Response>>;

/// See the file's head.
#[derive(Debug)]
pub struct Table<R: Role> {
    /// The role, to be looked at.
    pub role: R,
    /// Whether it is notified that nothing can be made durable.
    pub disk_full: bool,
    /// Which beacons it hears.
    pub beacons: Beacons,
    /// What its wall clock shows; at first that time has not begun.
    pub wall: Wall,
    me: NodeId,
    now: Instant,
    rng: Rng,
    effects: Effects<R::Family>,
}

impl<R: Role> Table<R> {
    /// The role as `me`, started; what it did then is forgotten.
    pub fn new(role: R, me: NodeId) -> Self {
        let mut table = Self::unstarted(role, me);
        table.start();
        table
    }

    /// The role as `me`, before its start.
    pub fn unstarted(role: R, me: NodeId) -> Self {
        let (now, effects) = (Instant(1 << 40), Effects::new(Position(0), false));
        let (beacons, wall, rng) = (Beacons::default(), Wall::between(0, 0), Rng::seeded(1));
        Self { role, disk_full: false, beacons, wall, me, now, rng, effects }
    }

    /// The start.
    pub fn start(&mut self) -> Did<R::Family> {
        self.call(|role, cx| role.on_start(cx))
    }

    /// Its time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Time passes, and no timer is called.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// What one call does.
    pub fn call(&mut self, call: impl FnOnce(&mut R, &mut Cx<'_, R>)) -> Did<R::Family> {
        let situation = Situation {
            node: self.me,
            now: self.now,
            wall: self.wall,
            rng: &mut self.rng,
            disk_full: self.disk_full,
            beacons: &self.beacons,
        };
        call(&mut self.role, &mut Cx::new(situation, &mut self.effects));
        self.effects.drain().collect()
    }

    /// A message.
    pub fn hear(&mut self, from: NodeId, message: impl Into<R::In>) -> Did<R::Family> {
        let message = message.into();
        self.call(|role, cx| role.on_message(from, message, cx))
    }

    /// The end of a burst.
    pub fn end(&mut self) -> Did<R::Family> {
        self.call(|role, cx| role.on_burst_end(cx))
    }

    /// A message, and the end of the burst it came in.
    pub fn burst(&mut self, from: NodeId, message: impl Into<R::In>) -> Did<R::Family> {
        let mut did = self.hear(from, message);
        did.extend(self.end());
        did
    }

    /// A timer.
    pub fn timer(&mut self, timer: R::Timer) -> Did<R::Family> {
        self.call(|role, cx| role.on_timer(timer, cx))
    }

    /// What became of a blob.
    pub fn notice(&mut self, notice: BlobNotice) -> Did<R::Family> {
        self.call(|role, cx| role.on_blob(notice, cx))
    }

    /// What was appended since the last look.
    pub fn journal(&mut self) -> Vec<Bytes> {
        let records = self.effects.records().map(|record| Bytes::copy_from_slice(record.bytes)).collect();
        self.effects.clear_records();
        records
    }
}

/// The role's next incarnation, which is given back what an earlier one has appended.
pub fn restored<R: Role>(mut role: R, journal: &[Bytes]) -> R {
    for (at, record) in (0..).zip(journal) {
        let record = R::Record::decoded(record).expect("what was just written");
        role.restore(Position(at), record);
    }
    role
}

/// Everything that was sent, at once or when it is durable, beacons included.
pub fn sends<M: Clone, R>(did: &[Effect<M, R>]) -> Vec<(NodeId, M)> {
    sent(did).into_iter().map(|(to, message, _)| (to, message)).collect()
}

/// Everything that was sent, and whether it waits for the disk.
pub fn sent<M: Clone, R>(did: &[Effect<M, R>]) -> Vec<(NodeId, M, bool)> {
    let sent = did.iter().filter_map(|effect| match effect {
        Effect::Send { to, message } | Effect::SetBeacon { to, message } => {
            Some((*to, message.clone(), false))
        }
        Effect::SendDurable { to, message, .. } => Some((*to, message.clone(), true)),
        Effect::Repeat { to, message, after } => Some((*to, message.clone(), after.is_some())),
        Effect::StopBeacon { .. }
        | Effect::SetTimer { .. }
        | Effect::StopTimer { .. }
        | Effect::Respond { .. }
        | Effect::Trim { .. }
        | Effect::Blob(_)
        | Effect::Reject { .. }
        | Effect::Mark { .. }
        | Effect::Note { .. } => None,
    });
    sent.collect()
}

/// Whether an input was turned away, and nothing else was done.
pub fn rejects<M, R>(did: &[Effect<M, R>]) -> bool {
    matches!(did, [Effect::Reject { .. }])
}
