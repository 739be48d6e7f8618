//! What of the colours nobody needs any more, because enough shard servers have it in durable snapshots.

use super::{Asked, Feeder};
use ::fuzzylog::{FuzzyRequest, FuzzyResponse, NodePosition, TrimCall};
use kernel::{Cx, HostId, Instant};
use mason::shard::{Hurry, Settled};
use mason::{MasonMessage, Number, Placed, Space};
use std::collections::BTreeMap;
use std::time::Duration;

/// Feeders take turns: one leaves a trim to each before it for so long.
const TURN: Duration = Duration::from_secs(2);
/// How often shards are asked for snapshots while too much is retained.
const HURRY_EVERY: Duration = Duration::from_secs(1);

/// What shard servers have said, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Trimming {
    wait_for_last: Duration,
    retained_bytes_max: u64,
    /// Below which number each host's server of a space has a durable snapshot.
    durable: BTreeMap<(Space, HostId), Number>,
    /// Since when a space could be trimmed further, but for servers that are behind and for the others' turn.
    since: BTreeMap<Space, Instant>,
    /// Spaces whose trims are on their way.
    trims: BTreeMap<Space, Number>,
    hurried_at: Instant,
}

impl Trimming {
    pub(super) fn new(wait_for_last: Duration, retained_bytes_max: u64) -> Self {
        Self {
            wait_for_last,
            retained_bytes_max,
            durable: BTreeMap::new(),
            since: BTreeMap::new(),
            trims: BTreeMap::new(),
            hurried_at: Instant(0),
        }
    }
}

impl Feeder {
    pub(super) fn on_durable(&mut self, host: HostId, below: &Placed, now: Instant) {
        let known = self.trimming.durable.entry((below.space, host)).or_insert(Number(0));
        if below.number > *known {
            *known = below.number;
            self.trimming.since.entry(below.space).or_insert(now);
        }
    }

    /// The number below which so many servers of a space, of the present hosts, have durable snapshots.
    fn durable_at(&self, space: Space, count: usize) -> Number {
        let servers = self.topology.servers(space).iter();
        let durable = |host| self.trimming.durable.get(&(space, host)).copied().unwrap_or(Number(0));
        let mut numbers: Vec<Number> = servers.map(|server| durable(server.host())).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        count.checked_sub(1).and_then(|at| numbers.get(at).copied()).unwrap_or(Number(0))
    }

    /// More than half of a space's servers.
    fn enough(&self, space: Space) -> usize {
        self.topology.servers(space).len() / 2 + 1
    }

    fn low_watermark(&self, space: Space) -> Number {
        if kernel::planted!(trimmed_behind_one_server) {
            return self.durable_at(space, 1);
        }
        self.durable_at(space, self.enough(space))
    }

    /// True if enough of the present hosts have what was trimmed.
    pub(super) fn has_settled(&self) -> bool {
        (0..).map(Space).zip(&self.streams).all(|(space, stream)| {
            stream.trimmed() == 0 || self.low_watermark(space) > Number(stream.trimmed())
        })
    }

    /// Below which number nobody needs a space's nodes: not what this feeder has not paired, and no node of several spaces whose other
    /// spaces still need it.
    fn trim_point(&self, space: Space, watermark: Number) -> Number {
        let stream = &self.streams[usize::from(space.0)];
        let point = watermark.min(Number(stream.front() + 1));
        let needed = |numbers: &[Placed]| {
            numbers.iter().any(|placed| placed.number >= self.low_watermark(placed.space))
        };
        let mut within = self.shared.within(space, Number(stream.trimmed() + 1), point);
        within.find(|(_, numbers)| needed(numbers)).map_or(point, |(number, _)| number)
    }

    pub(super) fn trim(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let is_too_much = self.retained_bytes() > self.trimming.retained_bytes_max;
        if is_too_much {
            self.hurry(cx);
        }
        let waiting: Vec<(Space, Instant)> =
            self.trimming.since.iter().map(|(&space, &since)| (space, since)).collect();
        for (space, since) in waiting {
            if self.trimming.trims.contains_key(&space) || now.since(since) < self.turn(space, cx) {
                continue;
            }
            let trimmed = Number(self.streams[usize::from(space.0)].trimmed() + 1);
            let (count, enough) = (self.topology.servers(space).len(), self.enough(space));
            let watermark = match is_too_much || now.since(since) >= self.trimming.wait_for_last {
                true => self.low_watermark(space),
                false => self.durable_at(space, count),
            };
            let point = self.trim_point(space, watermark);
            if point > trimmed {
                self.trimming.trims.insert(space, point);
                cx.mark("feeder.trimmed_a_colour");
                let colour = self.streams[usize::from(space.0)].colour();
                let before = NodePosition(point.0 - 1);
                self.ask(Asked::Trim(space), FuzzyRequest::Trim(TrimCall { colour, before }), cx);
            } else if trimmed >= self.durable_at(space, enough) {
                self.trimming.since.remove(&space);
            }
        }
    }

    /// How long this feeder leaves a space's trims to others.
    fn turn(&self, space: Space, cx: &Cx<'_, Self>) -> Duration {
        let servers = self.topology.servers(space);
        let count = servers.len().max(1);
        let own = servers.iter().position(|server| server.host() == cx.node().host()).unwrap_or(0);
        TURN * ((own + count - usize::from(space.0) % count) % count) as u32
    }

    /// Shards with much that is retained are to write snapshots.
    fn hurry(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.now().since(self.trimming.hurried_at) < HURRY_EVERY {
            return;
        }
        self.trimming.hurried_at = cx.now();
        cx.mark("feeder.hurried_the_shards");
        let most = self.streams.iter().map(super::Stream::retained_bytes).max().unwrap_or(0);
        for (space, stream) in (0..).map(Space).zip(&self.streams) {
            if stream.retained_bytes() >= most / 2
                && let Some(server) = self.server(space, cx)
            {
                cx.send(server, MasonMessage::from(Hurry {}));
            }
        }
    }

    pub(super) fn on_trimmed(&mut self, space: Space, response: FuzzyResponse, cx: &mut Cx<'_, Self>) {
        self.trimming.trims.remove(&space);
        if let FuzzyResponse::Trimmed { first } = response {
            self.lose(space, first.0, cx);
        }
        // Else it is tried again: what can be trimmed has not changed.
    }

    /// A space is known to be trimmed: inputs for what is below need not be retained here.
    pub(super) fn lose(&mut self, space: Space, first: u64, cx: &mut Cx<'_, Self>) {
        let stream = &mut self.streams[usize::from(space.0)];
        if first <= stream.trimmed() {
            return;
        }
        stream.lose(first);
        let below = Number(first + 1);
        let streams = &self.streams;
        self.shared.forget(space, below, |placed| {
            placed.number <= Number(streams[usize::from(placed.space.0)].trimmed())
        });
        for other in self.topology.spaces().collect::<Vec<_>>() {
            if let Some(server) = self.server(other, cx) {
                let below = Placed { space, number: below };
                cx.send(server, MasonMessage::from(Settled { below }));
            }
        }
    }
}
