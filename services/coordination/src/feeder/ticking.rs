//! What the feeder appends for everybody: readings of a clock, work that the sessions' part has asked for, other shard maps.
//!
//! One feeder does: who had a clock's reading ordered last, as all feeders see in the colour. When nobody has for a while, another one
//! goes on, and all sessions get a whole timeout again. What two feeders append of the same work is done once.

use super::TreeFeeder;
use super::pack::{OwedWork, Pack, PackItem, Respread, Tick};
use crate::home::HomeRemark;
use kernel::{Cx, Instant, NodeId};
use mason::ShardMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// Nobody reads the clock any more if nobody has for so long.
const SILENT_AFTER: Duration = Duration::from_secs(2);
/// Each feeder leaves what is to be done to the one before it for so long.
const TURN: Duration = Duration::from_millis(700);
/// Work that is still asked for is appended again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What is asked for, and since when.
#[derive(Clone, Copy, Debug)]
struct Owed {
    since: Instant,
    appended_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct WantedShards {
    shards: u16,
    /// The version of the shard map that is to be replaced.
    after: Option<u64>,
    appended_at: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) struct Ticking {
    clock_every: Duration,
    remark: HomeRemark,
    owed: BTreeMap<u64, Owed>,
    /// Who has ticked last, in the node before this position, and when that was played.
    ticker: Option<NodeId>,
    ticked: u64,
    played_at: Instant,
    /// The same, or when this feeder last ticked.
    ticked_at: Instant,
    wanted: Option<WantedShards>,
}

impl Ticking {
    pub(super) fn new(clock_every: Duration) -> Self {
        Self {
            clock_every,
            remark: HomeRemark { awaits_time: false, owed: Vec::new() },
            owed: BTreeMap::new(),
            ticker: None,
            ticked: 0,
            played_at: Instant(0),
            ticked_at: Instant(0),
            wanted: None,
        }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        (self.played_at, self.ticked_at) = (now, now);
    }

    /// The home says what is to be done.
    pub(super) fn take(&mut self, remark: HomeRemark, now: Instant) {
        if remark.awaits_time && !self.remark.awaits_time {
            // Nobody had to read it before.
            self.ticked_at = now;
        }
        self.owed.retain(|id, _| remark.owed.iter().any(|work| work.id == *id));
        for work in &remark.owed {
            self.owed.entry(work.id).or_insert(Owed { since: now, appended_at: None });
        }
        self.remark = remark;
    }

    /// A node came.
    pub(super) fn look_at(&mut self, position: u64, pack: &Pack, shard_map: Option<&ShardMap>, now: Instant) {
        let ticks = pack.items.iter().any(|item| matches!(item, PackItem::Tick(_)));
        // What is played again is long past.
        if ticks && position >= self.ticked {
            (self.ticker, self.ticked) = (Some(pack.feeder), position + 1);
            (self.played_at, self.ticked_at) = (now, now);
        }
        if let Some(wanted) = &mut self.wanted {
            wanted.after = wanted.after.or(shard_map.map(|shard_map| shard_map.version));
        }
    }

    pub(super) fn want_shards(&mut self, shards: u16) {
        if self.wanted.is_none_or(|wanted| wanted.shards != shards) {
            self.wanted = Some(WantedShards { shards, after: None, appended_at: None });
        }
    }

    pub(super) fn wanted_shards(&self) -> Option<u16> {
        self.wanted.map(|wanted| wanted.shards)
    }
}

fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_none_or(|at| now.since(at) >= AGAIN_AFTER)
}

impl TreeFeeder {
    /// Appends what is due.
    pub(super) fn tick_clock(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, turn) = (cx.now(), TURN * self.turn(cx));
        let is_ticker = self.ticking.ticker == Some(cx.node());
        let patience = if is_ticker { self.ticking.clock_every } else { SILENT_AFTER + turn };
        let is_due = now.since(self.ticking.ticked_at) >= patience && !self.writing.has_tick();
        if self.ticking.remark.awaits_time && is_due {
            self.ticking.ticked_at = now;
            let passed = now.since(self.ticking.played_at).as_millis() as u64;
            self.writing.add(PackItem::Tick(Tick { after: self.ticking.ticked, passed }));
            cx.mark(if is_ticker {
                "tree_feeder.read_the_clock"
            } else {
                "tree_feeder.began_to_read_the_clock"
            });
        }
        self.append_owed(cx);
        self.append_shard_map(cx);
    }

    /// Work that is asked for: at once by who reads the clock, later by the others.
    pub(super) fn append_owed(&mut self, cx: &mut Cx<'_, Self>) {
        if self.ticking.owed.is_empty() {
            return;
        }
        let (now, turn) = (cx.now(), TURN * (1 + self.turn(cx)));
        let is_ticker = self.ticking.ticker == Some(cx.node());
        let mut due: Vec<OwedWork> = Vec::new();
        for work in &self.ticking.remark.owed {
            let Some(owed) = self.ticking.owed.get_mut(&work.id) else { continue };
            let is_turn = is_ticker || now.since(owed.since) >= turn;
            if is_turn && is_due(owed.appended_at, now) {
                owed.appended_at = Some(now);
                due.push(work.clone());
            }
        }
        due.into_iter().for_each(|work| self.writing.add(PackItem::FollowUp(work)));
    }

    fn append_shard_map(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let (Some(shard_map), Some(wanted)) = (self.handing.shard_map(), &mut self.ticking.wanted) else {
            return;
        };
        let after = *wanted.after.get_or_insert(shard_map.version);
        if shard_map.shards == wanted.shards || shard_map.version > after {
            // It is so, or somebody else's change came before.
            self.ticking.wanted = None;
        } else if is_due(wanted.appended_at, now) {
            wanted.appended_at = Some(now);
            let reshard = Respread { version: shard_map.version + 1, shards: wanted.shards };
            self.writing.add(PackItem::Reshard(reshard));
        }
    }
}
