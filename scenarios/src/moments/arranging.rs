//! Changes of the numbers of groups and shards, as an operator asks for them.

use kernel::client::Response;
use kernel::{Decode, Encode, Node, NodeId, RequestId, Rng};
use mason::proxy::arranging::{Progress, ProxyCall};
use sim::Control;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How often hosts are notified, and asked how far they are.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(150);

/// How many groups and shards are wished for.
pub(crate) struct Wishes {
    groups: u16,
    shards: u16,
    /// Of groups, and of shards.
    room: (u16, u16),
    in_flight: bool,
    asked: BTreeSet<RequestId>,
    journey: Option<Journey>,
}

/// Groups idle for long; then what one group has had moves there, and soon back.
struct Journey {
    /// How many groups are wished for next, and how long before.
    left: VecDeque<(u16, Duration)>,
    /// Since when the last wish has been fulfilled.
    since: Option<u64>,
}

impl Wishes {
    /// Nothing is wished for where there are so many groups and shards of at most `room`.
    pub(crate) fn new((groups, shards): (u16, u16), room: (u16, u16)) -> Self {
        Self { groups, shards, room, in_flight: false, asked: BTreeSet::new(), journey: None }
    }

    /// Wishes for another number; false if there is none or the last wish is not fulfilled.
    pub(crate) fn draw(&mut self, rng: &mut Rng) -> bool {
        let groups = (1..=self.room.0).filter(|&groups| groups != self.groups);
        let groups = groups.map(|groups| (groups, self.shards));
        let others = groups.chain(self.other_shards()).collect();
        self.draw_of(others, rng)
    }

    /// True if fewer groups can be wished for.
    pub(crate) fn can_have_fewer_groups(&self) -> bool {
        self.groups > 1 && !self.is_in_flight()
    }

    /// Wishes for more groups; false if there is no room or the last wish is not fulfilled.
    pub(crate) fn draw_more_groups(&mut self, rng: &mut Rng) -> bool {
        let more = (self.groups + 1..=self.room.0).map(|groups| (groups, self.shards)).collect();
        self.draw_of(more, rng)
    }

    /// Wishes for fewer groups.
    pub(crate) fn draw_fewer_groups(&mut self, rng: &mut Rng) -> bool {
        let fewer = (1..self.groups).map(|groups| (groups, self.shards)).collect();
        self.draw_of(fewer, rng)
    }

    /// The same, of shards.
    pub(crate) fn draw_shards(&mut self, rng: &mut Rng) -> bool {
        let others = self.other_shards().collect();
        self.draw_of(others, rng)
    }

    /// Wishes for one group, for all that there is room for after `idle`, and soon for one again. False if there is room for one only,
    /// or the last wish is not fulfilled.
    pub(crate) fn draw_journey(&mut self, idle: Duration, rng: &mut Rng) -> bool {
        if self.room.0 < 2 || self.is_in_flight() {
            return false;
        }
        let soon = rng.duration(Duration::from_millis(100), Duration::from_secs(4));
        let left = VecDeque::from([(self.room.0, idle), (1, soon)]);
        self.journey = Some(Journey { left, since: None });
        (self.groups, self.in_flight) = (1, true);
        true
    }

    fn other_shards(&self) -> impl Iterator<Item = (u16, u16)> + use<> {
        let (groups, shards) = (self.groups, self.shards);
        (1..=self.room.1).filter(move |&other| other != shards).map(move |shards| (groups, shards))
    }

    fn draw_of(&mut self, others: Vec<(u16, u16)>, rng: &mut Rng) -> bool {
        let Some(&wish) = rng.pick(&others).filter(|_| !self.is_in_flight()) else { return false };
        ((self.groups, self.shards), self.in_flight) = (wish, true);
        true
    }

    fn is_in_flight(&self) -> bool {
        self.in_flight || self.journey.is_some()
    }

    /// Goes on with a journey: what was wished for is fulfilled, and has been for long enough.
    fn travel<N: Node>(&mut self, control: &mut Control<'_, N>) {
        let now = control.cluster.now();
        let Some(journey) = self.journey.as_mut().filter(|_| !self.in_flight) else { return };
        let since = *journey.since.get_or_insert(now);
        match journey.left.front() {
            Some(&(groups, after)) if now - since >= after.as_nanos() as u64 => {
                journey.left.pop_front();
                journey.since = None;
                (self.groups, self.in_flight) = (groups, true);
            }
            Some(_) => {}
            None => {
                control.mark("scenario.used_groups_that_had_idled");
                self.journey = None;
            }
        }
    }

    /// Notifies the first group's proxies of hosts that are up; false if nothing is wished for.
    pub(crate) fn ask<N>(
        &mut self,
        proxies: impl Iterator<Item = NodeId>,
        control: &mut Control<'_, N>,
    ) -> bool
    where
        N: Node,
        N::Family: kernel::Family<Request = kernel::Bytes>,
    {
        self.travel(control);
        let calls =
            [ProxyCall::Arrange(Some(self.groups)).encoded(), ProxyCall::SetShards(self.shards).encoded()];
        for proxy in proxies.filter(|_| self.in_flight) {
            if control.cluster.is_up(proxy.host()) {
                for call in &calls {
                    self.asked.insert(control.request(proxy, call.clone().into()));
                }
            }
        }
        self.is_in_flight()
    }

    /// None if it answers no wish; true if the last one is fulfilled now.
    pub(crate) fn on_answer(&mut self, id: RequestId, answer: &Response) -> Option<bool> {
        if !self.asked.remove(&id) {
            return None;
        }
        let progress = Progress::decoded(&answer.0).expect("a proxy answers a wish with its progress");
        let layout = &progress.layout;
        let is_wished = (layout.serving, layout.shard_map.shards) == (self.groups, self.shards);
        let fulfilled = self.in_flight && progress.settled && is_wished;
        self.in_flight &= !fulfilled;
        Some(fulfilled)
    }

    pub(crate) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    /// What is still to come.
    pub(crate) fn unfulfilled(&self) -> Option<String> {
        let wish = format!("{} groups and {} shards were wished for", self.groups, self.shards);
        self.is_in_flight().then_some(wish)
    }
}
