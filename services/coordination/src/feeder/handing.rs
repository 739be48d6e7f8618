//! From nodes to servers: the home is handed each node, shards the operations that it has admitted, by their numbers.

use super::asking::Purpose;
use super::pack::{PackItem, zxid_below, zxid_of};
use super::{TreeFeeder, playing::Node};
use crate::home::{GROUP, LocateQuery, Located, Place, spaces_of};
use kernel::{Cx, Instant};
use mason::order::MultiNumber;
use mason::proxy::delivery::{Run, Runs};
use mason::shard::{Deliver, Reach, ShardBehind};
use mason::{ConsistentCut, Gsn, Number, Operation, Placed, ShardMap, Space};
use std::collections::BTreeMap;
use std::time::Duration;

/// The home is asked so often for what it did not know.
const LOCATE_EVERY: Duration = Duration::from_millis(20);
/// A server that takes a snapshot asks often: it is answered so often.
const BEHIND_EVERY: Duration = Duration::from_millis(200);
/// Runs are sent when they have so many bytes.
const RUN_BYTES: usize = 256 << 10;
/// Bytes of a row beside the operation.
const ROW_BYTES: usize = 64;

/// What a server of this host has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    /// It has not said.
    Unknown,
    /// Everything below this number.
    From(u64),
    /// Not even what is still there: it takes another server's snapshot.
    Snapshot { below: u64, at: Instant },
}

/// How far this host's servers were handed nodes.
#[derive(Clone, Debug)]
pub(super) struct Handing {
    /// The home's number is one more than the position.
    home: Wants,
    /// By space.
    shards: Vec<Wants>,
    /// The next node to be handed to shards, with their numbers; none while that is not known.
    place: Option<Place>,
    /// What the home has admitted of the nodes below this position is known.
    judged: u64,
    voids: BTreeMap<u64, Vec<u16>>,
    runs: BTreeMap<Space, (Vec<Run>, usize)>,
    /// Shards are to know how far they are.
    has_passed: bool,
    /// Below which position they know what they were handed.
    reached: u64,
    /// When the home did not know from where to go on.
    lost_at: Option<Instant>,
}

impl Handing {
    /// `home`: its space is behind those of all shards.
    pub(super) fn new(home: Space) -> Self {
        Self {
            home: Wants::Unknown,
            shards: vec![Wants::Unknown; usize::from(home.0)],
            place: None,
            judged: 0,
            voids: BTreeMap::new(),
            runs: BTreeMap::new(),
            has_passed: false,
            reached: 0,
            lost_at: None,
        }
    }

    pub(super) fn position(&self) -> Option<u64> {
        self.place.as_ref().map(|place| place.position)
    }

    pub(super) fn shard_map(&self) -> Option<&ShardMap> {
        self.place.as_ref().map(|place| &place.shard_map)
    }

    /// True if nodes are of use.
    pub(super) fn takes(&self) -> bool {
        matches!(self.home, Wants::From(_)) || self.place.is_some()
    }

    pub(super) fn waits(&self) -> bool {
        self.place.is_none()
    }

    pub(super) fn describe(&self) -> String {
        let position = self.position();
        format!(
            "home {:?}, shards {:?}, handed below {position:?}, judged below {}",
            self.home, self.shards, self.judged
        )
    }

    /// The home has said what is void below a position.
    pub(super) fn judge(&mut self, to: u64, voids: Vec<(u64, Vec<u16>)>) {
        if to > self.judged {
            self.voids.extend(voids);
            self.judged = to;
        }
    }

    /// The position of the first node that some server needs.
    fn needed(&self) -> Option<u64> {
        let home = if let Wants::From(number) = self.home { Some(number.saturating_sub(1)) } else { None };
        home.into_iter().chain(self.position()).min()
    }

    /// What shards' servers want, of those that have said; none if some have not.
    fn wanted(&self) -> Option<Vec<Placed>> {
        let mut wanted = Vec::new();
        for (space, wants) in (0..).map(Space).zip(&self.shards) {
            match *wants {
                Wants::Unknown => return None,
                Wants::From(number) => wanted.push(Placed { space, number: Number(number) }),
                Wants::Snapshot { .. } => {}
            }
        }
        Some(wanted)
    }
}

impl TreeFeeder {
    /// A server of this host has executed what is below, and perhaps lacks what comes then.
    pub(super) fn on_lacking(&mut self, from: &Placed, cx: &mut Cx<'_, Self>) {
        let number = from.number.0;
        let trimmed = self.stream.trimmed();
        let is_home = from.space == self.home;
        let slot = match is_home {
            true => Some(&mut self.handing.home),
            false => self.handing.shards.get_mut(usize::from(from.space.0)),
        };
        let Some(wants) = slot else { return };
        if let Wants::Snapshot { below, at } = *wants
            && below == number
            && cx.now().since(at) < BEHIND_EVERY
        {
            return;
        }
        let goes_back = *wants != Wants::From(number);
        *wants = Wants::From(number);
        if is_home {
            if number <= trimmed {
                self.send_behind(self.home, trimmed + 1, cx);
            } else if goes_back {
                cx.mark("tree_feeder.played_again_what_a_server_lacked");
            }
        } else if let Some(place) = &self.handing.place
            && place.next.get(usize::from(from.space.0)).is_some_and(|&next| number < next)
        {
            // What the home has admitted is asked for again from there on.
            cx.mark("tree_feeder.played_again_what_a_server_lacked");
            self.handing.place = None;
            self.questions.forget(Purpose::Locate);
            self.questions.forget(Purpose::Voids(0));
        }
        if self.stream.is_at_the_end() {
            // It hears of nothing new: there may be something.
            self.stream.look();
        }
    }

    /// The server takes another one's snapshot, which has everything below a number.
    fn send_behind(&mut self, space: Space, below: u64, cx: &mut Cx<'_, Self>) {
        let at = cx.now();
        let slot = match space == self.home {
            true => Some(&mut self.handing.home),
            false => self.handing.shards.get_mut(usize::from(space.0)),
        };
        if let Some(wants) = slot
            && let Wants::From(has) = *wants
        {
            *wants = Wants::Snapshot { below: has, at };
            self.send_to(space, ShardBehind { durable: Number(below) }, cx);
        }
    }

    /// Positions below this are gone.
    pub(super) fn lose(&mut self, first: u64, cx: &mut Cx<'_, Self>) {
        if first > self.stream.trimmed() {
            self.stream.lose(first);
            self.trimming.settles = true;
        }
        let first = self.stream.trimmed();
        // What is played already is handed over nonetheless.
        let is_gone = |position: u64| position < first && self.stream.node(position).is_none();
        let shards_lack = self.handing.position().is_some_and(is_gone);
        if let Wants::From(number) = self.handing.home
            && is_gone(number.saturating_sub(1))
        {
            self.send_behind(self.home, first + 1, cx);
        }
        if shards_lack {
            self.handing.place = None;
        }
    }

    /// Hands over what is there.
    pub(super) fn feed(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(needed) = self.handing.needed() {
            self.stream.go_to(needed);
        }
        self.take_own(cx);
        self.feed_home(cx);
        self.locate(cx);
        self.feed_shards(cx);
        if let Some(needed) = self.handing.needed() {
            self.stream.drop_below(needed);
        }
    }

    /// The home is not notified how far the colour goes: what it is asked would wait for that.
    fn feed_home(&mut self, cx: &mut Cx<'_, Self>) {
        let Wants::From(mut number) = self.handing.home else { return };
        let mut runs = Vec::new();
        while let Some(node) = self.stream.node(number.saturating_sub(1)) {
            runs.extend(run_of(node, self.home));
            number += 1;
        }
        self.handing.home = Wants::From(number);
        for run in runs {
            let deliver = Deliver { group: GROUP, runs: vec![run], cut: None, more: false };
            self.send_to(self.home, deliver, cx);
        }
    }

    /// Asks the home from where shards have to be handed nodes, and what it has admitted.
    fn locate(&mut self, cx: &mut Cx<'_, Self>) {
        match self.handing.position() {
            None => {
                let asked = self.handing.lost_at.is_some_and(|at| cx.now().since(at) < LOCATE_EVERY);
                if !asked
                    && !self.questions.asks(Purpose::Locate)
                    && let Some(wanted) = self.handing.wanted()
                    && !wanted.is_empty()
                {
                    let (from, to) = (self.stream.trimmed(), u64::MAX);
                    self.ask_where(Purpose::Locate, LocateQuery { wanted, from, to }, cx);
                }
            }
            Some(position) => {
                let Wants::From(number) = self.handing.home else { return };
                let (from, to) = (self.handing.judged.max(position), number.saturating_sub(1));
                if from < to && !self.questions.asks(Purpose::Voids(to)) {
                    self.ask_voids(from, to, cx);
                }
            }
        }
    }

    pub(super) fn on_located(&mut self, located: Located, cx: &mut Cx<'_, Self>) {
        // Until the home is there, it is asked again.
        self.handing.lost_at = Some(cx.now());
        let Located { first: Some(first), found } = located else { return };
        let mut is_behind = false;
        for (space, &number) in (0..).map(Space).zip(&first.next) {
            let wants = self.handing.shards.get(usize::from(space.0));
            if let Some(Wants::From(wanted)) = wants
                && *wanted < number
            {
                is_behind = true;
                self.send_behind(space, number, cx);
            }
        }
        if let Some(place) = found.filter(|_| !is_behind) {
            let position = place.position;
            self.handing.place = Some(place);
            self.handing.lost_at = None;
            self.handing.judged = position;
            self.handing.voids.clear();
            self.handing.has_passed = true;
            self.feed(cx);
        }
    }

    fn feed_shards(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(position) = self.handing.position()
            && position < self.handing.judged
        {
            let Some(node) = self.stream.node(position).cloned() else { break };
            let voids = self.handing.voids.remove(&position).unwrap_or_default();
            self.hand_node(&node, &voids, cx);
            self.handing.has_passed = true;
            if let Some(place) = &mut self.handing.place {
                place.position += 1;
            }
        }
        self.send_runs(cx);
    }

    /// Gives a node's operations their numbers.
    fn hand_node(&mut self, node: &Node, voids: &[u16], cx: &mut Cx<'_, Self>) {
        let (Some(pack), Some(place)) = (&node.pack, &mut self.handing.place) else { return };
        let mut runs = Runs::default();
        for (index, item) in pack.items.iter().enumerate() {
            if voids.contains(&(index as u16)) {
                cx.mark("tree_feeder.left_out_what_is_void");
                continue;
            }
            let gsn = zxid_of(node.position, index);
            let spaces = spaces_of(item, &self.sessions, &place.shard_map);
            let mut numbers = MultiNumber::new();
            for space in spaces {
                let Some(next) = place.next.get_mut(usize::from(space.0)) else { continue };
                numbers.push(Placed { space, number: Number(*next) });
                *next += 1;
            }
            let shard_map = match item {
                PackItem::Reshard(reshard) => reshard.after(&place.shard_map, place.next.len()),
                PackItem::Asked(_) | PackItem::FollowUp(_) | PackItem::Tick(_) => None,
            };
            for placed in &numbers {
                let Some(wants) = self.handing.shards.get_mut(usize::from(placed.space.0)) else { continue };
                if *wants != Wants::From(placed.number.0) {
                    continue;
                }
                *wants = Wants::From(placed.number.0 + 1);
                let run = runs.at(placed, pack.time);
                match (item, &shard_map) {
                    (PackItem::Asked(operation), _) => run.push(&numbers, gsn, operation),
                    (PackItem::FollowUp(work), _) => {
                        let body = work.body.clone();
                        let origin = kernel::NodeId::ZERO;
                        run.push(&numbers, gsn, &Operation { origin, incarnation: 0, tag: 0, body });
                    }
                    (PackItem::Reshard(_), Some(shard_map)) => run.push_reshard(&numbers, gsn, shard_map),
                    (PackItem::Reshard(_), None) | (PackItem::Tick(_), _) => run.push_no_op(gsn),
                }
            }
            if let Some(shard_map) = shard_map {
                cx.mark("tree_feeder.resharded");
                place.shard_map = shard_map;
            }
        }
        let mut full = Vec::new();
        for run in runs.finish() {
            let (space, size) = (run.space, run.size());
            let (waiting, bytes) = self.handing.runs.entry(space).or_default();
            waiting.push(run);
            *bytes += size;
            if *bytes >= RUN_BYTES {
                full.push(space);
            }
        }
        for space in full {
            self.send_runs_of(space, None, cx);
        }
    }

    fn send_runs_of(&mut self, space: Space, cut: Option<ConsistentCut>, cx: &mut Cx<'_, Self>) {
        let (runs, _) = self.handing.runs.remove(&space).unwrap_or_default();
        if !runs.is_empty() || cut.is_some() {
            self.send_to(space, Deliver { group: GROUP, runs, cut, more: false }, cx);
        }
    }

    /// Sends the servers what has become theirs, and how far they are then.
    fn send_runs(&mut self, cx: &mut Cx<'_, Self>) {
        if !std::mem::take(&mut self.handing.has_passed) {
            return;
        }
        let Some(place) = self.handing.place.clone() else { return };
        let below = Gsn(zxid_below(place.position).0 + 1);
        for space in (0..self.home.0).map(Space) {
            let number = place.next.get(usize::from(space.0)).copied();
            let is_used = place.shard_map.spaces().any(|used| used == space);
            let next = number.map(|number| Placed { space, number: Number(number) });
            let cut = next.filter(|_| is_used).map(|next| ConsistentCut { gsn: below, next: vec![next] });
            self.send_runs_of(space, cut, cx);
        }
    }

    /// What shards were handed waits, perhaps, for other hosts: they answer no read that comes from now on before they have executed it.
    pub(super) fn announce_reach(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(place) = &self.handing.place else { return };
        if self.handing.reached == place.position {
            return;
        }
        self.handing.reached = place.position;
        let last = |(space, &next): (Space, &u64)| (space, Number(next.saturating_sub(1)));
        let reached: Vec<(Space, Number)> = (0..).map(Space).zip(&place.next).map(last).collect();
        for (space, through) in reached.into_iter().filter(|(_, through)| *through > Number(0)) {
            self.send_to(space, Reach { through }, cx);
        }
    }
}

/// The node as the home's number, executed for this feeder.
fn run_of(node: &Node, home: Space) -> Option<Run> {
    let number = Number(node.position + 1);
    let gsn = zxid_below(node.position + 1);
    let time = node.pack.as_ref().map_or(0, |pack| pack.time);
    let mut writer = Run::begin(home, number, time, node.body.len() + ROW_BYTES);
    match &node.pack {
        Some(pack) => {
            let numbers = [Placed { space: home, number }];
            let origin = pack.feeder;
            let body = node.body.clone();
            writer.push(&numbers, gsn, &Operation { origin, incarnation: pack.run, tag: pack.number, body });
        }
        None => writer.push_no_op(gsn),
    }
    writer.finish()
}
