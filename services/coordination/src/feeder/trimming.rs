//! What of the colour nobody needs any more, because enough servers of every shard have it in durable snapshots.

use super::asking::Purpose;
use super::{Asked, COLOUR, TreeFeeder};
use crate::home::{LocateQuery, Located};
use ::fuzzylog::{FuzzyRequest, FuzzyResponse, NodePosition, TrimCall};
use kernel::{Cx, HostId, Instant, planted};
use mason::shard::{Hurry, Settled};
use mason::{Number, Placed, Space};
use std::collections::BTreeMap;
use std::time::Duration;

/// Feeders take turns: one leaves a trim to each before it for so long.
const TURN: Duration = Duration::from_secs(2);
/// How often shards are asked for snapshots while too much is retained.
const HURRY_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether something can be trimmed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What servers have said, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Trimming {
    wait_for_last: Duration,
    retained_bytes_max: u64,
    /// Below which number each host's server of a space has a durable snapshot.
    durable: BTreeMap<(Space, HostId), Number>,
    /// Since when something could be trimmed, but for servers that are behind and for the others' turn.
    since: Option<Instant>,
    looked_at: Instant,
    is_trimming: bool,
    hurried_at: Instant,
    /// Servers are to learn what was trimmed.
    pub(super) settles: bool,
}

impl Trimming {
    pub(super) fn new(wait_for_last: Duration, retained_bytes_max: u64) -> Self {
        Self {
            wait_for_last,
            retained_bytes_max,
            durable: BTreeMap::new(),
            since: None,
            looked_at: Instant(0),
            is_trimming: false,
            hurried_at: Instant(0),
            settles: false,
        }
    }
}

impl TreeFeeder {
    pub(super) fn on_durable(&mut self, host: HostId, below: &Placed, now: Instant) {
        let known = self.trimming.durable.entry((below.space, host)).or_insert(Number(0));
        if below.number > *known {
            *known = below.number;
            self.trimming.since.get_or_insert(now);
        }
    }

    /// The number below which so many servers of a space, of the present hosts, have durable snapshots.
    fn durable_at(&self, space: Space, count: usize) -> Number {
        let servers = self.topology.servers(space).iter();
        let durable = |host| self.trimming.durable.get(&(space, host)).copied().unwrap_or(Number(1));
        let mut numbers: Vec<Number> = servers.map(|server| durable(server.host())).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        count.checked_sub(1).and_then(|at| numbers.get(at).copied()).unwrap_or(Number(1))
    }

    /// More than half of a space's servers.
    fn enough(&self, space: Space) -> usize {
        if planted!(tree_trimmed_behind_one_server) { 1 } else { self.topology.servers(space).len() / 2 + 1 }
    }

    /// True if enough of the present hosts have what was trimmed.
    pub(super) fn has_settled(&self) -> bool {
        let trimmed = self.stream.trimmed();
        trimmed == 0 || self.durable_at(self.home, self.enough(self.home)) > Number(trimmed)
    }

    pub(super) fn trim(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let is_too_much = self.retained_bytes() > self.trimming.retained_bytes_max;
        if is_too_much {
            self.hurry(cx);
        }
        if self.trimming.settles && !self.questions.asks(Purpose::Settle) {
            let from = self.stream.trimmed();
            self.ask_where(Purpose::Settle, LocateQuery { wanted: Vec::new(), from, to: u64::MAX }, cx);
        }
        let Some(since) = self.trimming.since else { return };
        let waits = self.trimming.is_trimming || self.questions.asks(Purpose::Trim);
        let is_turn = now.since(since) >= TURN * self.turn(cx);
        if waits || !is_turn || now.since(self.trimming.looked_at) < LOOK_EVERY {
            return;
        }
        self.trimming.looked_at = now;
        let for_all = !is_too_much && now.since(since) < self.trimming.wait_for_last;
        let durable = |space: Space| {
            let count = if for_all { self.topology.servers(space).len() } else { self.enough(space) };
            self.durable_at(space, count)
        };
        let wanted = (0..self.home.0).map(Space).map(|space| Placed { space, number: durable(space) });
        let (wanted, to) = (wanted.collect(), durable(self.home).0.saturating_sub(1));
        let from = self.stream.trimmed() + 1;
        self.ask_where(Purpose::Trim, LocateQuery { wanted, from, to }, cx);
        if !for_all {
            // What can be trimmed from now on waits for all again.
            self.trimming.since = None;
        }
    }

    pub(super) fn on_trim_located(&mut self, located: &Located, cx: &mut Cx<'_, Self>) {
        let Some(place) = &located.found else { return };
        if place.position > self.stream.trimmed() {
            self.trimming.is_trimming = true;
            cx.mark("tree_feeder.trimmed_the_colour");
            let call = TrimCall { colour: COLOUR, before: NodePosition(place.position) };
            self.ask(Asked::Trim, FuzzyRequest::Trim(call), cx);
        }
    }

    pub(super) fn on_trimmed(&mut self, response: &FuzzyResponse, cx: &mut Cx<'_, Self>) {
        self.trimming.is_trimming = false;
        if let FuzzyResponse::Trimmed { first } = response {
            self.lose(first.0, cx);
        }
        // Else it is tried again: what can be trimmed has not changed.
    }

    /// Inputs for what was trimmed need not be retained.
    pub(super) fn on_settled(&mut self, located: &Located, cx: &mut Cx<'_, Self>) {
        let Some(first) = located.first.as_ref().filter(|it| it.position == self.stream.trimmed()) else {
            return;
        };
        self.trimming.settles = false;
        for (space, &number) in (0..).map(Space).zip(&first.next) {
            self.send_to_all(Settled { below: Placed { space, number: Number(number) } }, cx);
        }
    }

    /// Servers with much that is retained are to write snapshots.
    fn hurry(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.now().since(self.trimming.hurried_at) >= HURRY_EVERY {
            self.trimming.hurried_at = cx.now();
            self.trimming.since.get_or_insert(cx.now());
            cx.mark("tree_feeder.hurried_the_shards");
            self.send_to_all(Hurry {}, cx);
        }
    }
}
