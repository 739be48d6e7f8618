//! The sessions as a shard: executes every node of the tree's colour, and says what shards of znodes may not execute.
//!
//! Over Mason the sessions' part is replicated with a proxy, and what it lets through is numbered. Over FuzzyLog nodes are ordered before
//! anybody has looked at them. So one server of each host executes them first, each node whole: it admits operations, and counts those of
//! each shard. Shards are handed what it admits. What it retains of that, hosts' [feeders](crate::feeder) ask for: which items were
//! made void, and how many operations each shard had before some nodes.

use crate::feeder::pack::{OwedWork, Pack, PackItem, Respread, Tick, zxid_of};
use crate::sessions::{HomeSessions, SessionSettings};
use crate::wire::{Body, Code};
use kernel::{
    BlobRange, Bytes, Decode as _, DecodeError, Encode as _, HostId, NodeId, SnapshotStep, planted,
};
use mason::{
    Group, GroupTime, Number, Operation, Order, Placed, ShardMap, ShardOut, Space, Stub, StubOut, Verdict,
};

/// A new place is retained when nodes of so many bytes have come since the last one.
const PLACE_BYTES: usize = 64 << 10;
/// What a node is taken for beside its body.
const NODE_HEAD_BYTES: usize = 128;
/// The group's clock goes on by so many milliseconds at most with each reading: while nobody read it, nobody was heard.
const TICK_MAX: u64 = 1_000;

kernel::record! {
    /// How many operations each shard has had before a node.
    pub struct Place {
        /// The node's position.
        position: u64,
        /// The number of each shard's next operation, by space.
        next: Vec<u64>,
        /// The shard map in force.
        shard_map: ShardMap,
    }
}

impl Place {
    /// True if a shard's server that wants a number has all that is before.
    pub fn is_before(&self, wanted: &Placed) -> bool {
        self.next.get(usize::from(wanted.space.0)).is_none_or(|&next| next <= wanted.number.0)
    }
}

kernel::record! {
    /// The last tick of the group's clock.
    struct LastTick {
        feeder: NodeId,
        run: u64,
        /// One more than the position of its node.
        at: u64,
    }
}

kernel::record! {
    /// Everything but the sessions themselves.
    struct HomeState {
        /// The next node.
        position: u64,
        now: GroupTime,
        ticked: Option<LastTick>,
        /// Work that is asked for and not done.
        owed: Vec<OwedWork>,
        next_follow_up: u64,
        shard_map: ShardMap,
        /// The number of each shard's next operation, by space.
        next: Vec<u64>,
        /// Nodes below are gone.
        trimmed: u64,
        /// Places that somebody may go back to; the first is not behind `trimmed`, or is the only one.
        places: Vec<Place>,
        bytes_since: u64,
        /// By position, in order, the items that shards do not execute although they concern some.
        voids: Vec<(u64, Vec<u16>)>,
    }
}

kernel::sum! {
    /// What a feeder asks.
    pub enum HomeQuery {
        /// Which items are void.
        1 => Voids(VoidsQuery),
        /// Where servers have to be played from.
        2 => Locate(LocateQuery),
    }
}

kernel::record! {
    /// Which items are void, of the nodes from one position on and below another.
    pub struct VoidsQuery {
        /// The first.
        from: u64,
        /// Behind the last.
        to: u64,
    }
}

kernel::record! {
    /// Places at or behind one position, and at or before another: the last one that is not behind any of these numbers.
    pub struct LocateQuery {
        /// The numbers that servers want.
        wanted: Vec<Placed>,
        /// The first position.
        from: u64,
        /// The last one.
        to: u64,
    }
}

kernel::record! {
    /// The answer to [`VoidsQuery`].
    pub struct Voids {
        /// By position.
        voids: Vec<(u64, Vec<u16>)>,
    }
}

kernel::record! {
    /// The answer to [`LocateQuery`].
    pub struct Located {
        /// The first place at or behind the first position; none if nothing there was executed.
        first: Option<Place>,
        /// The one that was asked for.
        found: Option<Place>,
    }
}

kernel::record! {
    /// What is said to a feeder of this host unasked.
    pub struct HomeWord {
        /// Whom it concerns.
        gateway: NodeId,
        /// The words of the sessions' part.
        body: Bytes,
    }
}

kernel::record! {
    /// What feeders are to know.
    pub struct HomeRemark {
        /// Something ends by the group's clock.
        awaits_time: bool,
        /// Work to be appended.
        owed: Vec<OwedWork>,
    }
}

kernel::record! {
    /// The answer to a node: those of the items that no shard answers, by their indexes.
    pub struct HomeAnswers {
        /// The answers.
        answers: Vec<(u16, Bytes)>,
    }
}

/// Executes the nodes of the tree's colour for all sessions of the cluster.
#[derive(Debug)]
pub struct HomeShard<T = HomeSessions> {
    /// Its number of a node is one more than the position.
    space: Space,
    host: HostId,
    feeder: NodeId,
    sessions: T,
    state: HomeState,
    remarked: Option<HomeRemark>,
    /// What is left to be written of a snapshot.
    writing: Bytes,
    installing: Vec<u8>,
}

/// The one group.
pub const GROUP: Group = Group(0);
/// A piece of a snapshot, and the last one.
const PIECE: u8 = 1;
const LAST: u8 = 2;

impl HomeShard {
    /// No sessions. `feeder`: of the same host. `shards`: so many at the bootstrap, with room for `room`, whose spaces are before this one.
    pub fn new(room: u16, feeder: NodeId, shards: u16, settings: SessionSettings) -> Self {
        Self::of(HomeSessions::new(GROUP, settings), room, feeder, shards)
    }
}

impl<T: Stub> HomeShard<T> {
    /// The same around another sessions' part.
    pub fn of(sessions: T, room: u16, feeder: NodeId, shards: u16) -> Self {
        Self {
            space: Space(room),
            host: feeder.host(),
            feeder,
            sessions,
            state: HomeState::new(room, shards),
            remarked: None,
            writing: Bytes::new(),
            installing: Vec::new(),
        }
    }

    /// The sessions.
    pub fn sessions(&self) -> &T {
        &self.sessions
    }

    /// The group's clock.
    pub fn now(&self) -> GroupTime {
        self.state.now
    }

    /// Places that are retained, and nodes with items that are void.
    pub fn retained(&self) -> (usize, usize) {
        (self.state.places.len(), self.state.voids.len())
    }

    fn run(&mut self, pack: Pack, out: &mut ShardOut) -> HomeAnswers {
        let position = self.state.position;
        let mut answers = HomeAnswers { answers: Vec::new() };
        let mut void = Vec::new();
        let Pack { feeder, run, time, items, .. } = pack;
        for (index, item) in items.into_iter().enumerate() {
            let order = |spaces: Vec<Space>| Order {
                numbers: spaces.into_iter().map(|space| Placed { space, number: Number(0) }).collect(),
                gsn: zxid_of(position, index),
                time,
            };
            let spaces = spaces_of(&item, &self.sessions, &self.state.shard_map);
            let (does, answer) = match item {
                PackItem::Asked(operation) => self.ask(&operation, order(spaces.clone()), out),
                PackItem::FollowUp(work) => (self.follow_up(&work, out), None),
                PackItem::Tick(tick) => {
                    self.tick((feeder, run), &tick, out);
                    (true, None)
                }
                PackItem::Reshard(reshard) => (self.reshard(&reshard), None),
            };
            if does {
                self.state.count(&spaces);
            } else if !spaces.is_empty() {
                void.push(index as u16);
            }
            answers.answers.extend(answer.map(|answer| (index as u16, answer)));
        }
        if !void.is_empty() && !planted!(void_operations_handed_over) {
            self.state.voids.push((position, void));
        }
        answers
    }

    /// Whether shards execute it, and its answer if they do not.
    fn ask(&mut self, operation: &Operation, order: Order, out: &mut ShardOut) -> (bool, Option<Bytes>) {
        let mut said = StubOut::default();
        let order = Some(&order).filter(|order| !order.numbers.is_empty());
        let verdict = self.sessions.apply(&operation.body, order, self.state.now, &mut said);
        let is_nowhere = said.is_elsewhere();
        let answer = self.carry_out(said, out);
        // What concerns shards and names none is malformed.
        let malformed = || Code::MarshallingError.number().to_be_bytes().to_vec().into();
        let answer = answer.or_else(|| is_nowhere.then(malformed));
        (verdict == Verdict::Execute && order.is_some(), answer)
    }

    fn carry_out(&mut self, said: StubOut, out: &mut ShardOut) -> Option<Bytes> {
        let (answer, notices, follow_ups) = said.into_parts();
        for (gateway, body) in notices {
            if gateway.host() == self.host {
                out.notify(self.feeder, HomeWord { gateway, body }.encoded());
            }
        }
        for body in follow_ups {
            self.state.owed.push(OwedWork { id: self.state.next_follow_up, body });
            self.state.next_follow_up += 1;
        }
        answer
    }

    /// Done once, however many have appended it.
    fn follow_up(&mut self, work: &OwedWork, out: &mut ShardOut) -> bool {
        let Some(at) = self.state.owed.iter().position(|owed| owed == work) else { return false };
        self.state.owed.remove(at);
        let mut said = StubOut::default();
        self.sessions.apply_follow_up(&work.body, None, self.state.now, &mut said);
        self.carry_out(said, out);
        true
    }

    fn tick(&mut self, (feeder, run): (NodeId, u64), tick: &Tick, out: &mut ShardOut) {
        let at = self.state.position + 1;
        let before = self.state.ticked.replace(LastTick { feeder, run, at });
        let follows = tick.after == before.as_ref().map_or(0, |before| before.at);
        if follows || planted!(time_counted_twice) {
            self.state.now = self.state.now.plus(tick.passed.min(TICK_MAX));
        }
        let goes_on = before.is_some_and(|before| (before.feeder, before.run) == (feeder, run));
        let mut said = StubOut::default();
        self.sessions.on_clock(self.state.now, !goes_on, &mut said);
        self.carry_out(said, out);
    }

    fn reshard(&mut self, reshard: &Respread) -> bool {
        let next = reshard.after(&self.state.shard_map, self.state.next.len());
        next.map(|shard_map| self.state.shard_map = shard_map).is_some()
    }

    fn answer(&self, query: HomeQuery) -> Vec<u8> {
        let state = &self.state;
        match query {
            HomeQuery::Voids(VoidsQuery { from, to }) => {
                let begin = state.voids.partition_point(|(at, _)| *at < from);
                let voids = state.voids[begin..].iter().take_while(|(at, _)| *at < to);
                Voids { voids: voids.cloned().collect() }.encoded()
            }
            HomeQuery::Locate(LocateQuery { wanted, from, to }) => {
                let begin = state.places.partition_point(|place| place.position < from);
                let places = &state.places[begin..];
                let is_before = |place: &&Place| {
                    place.position <= to && wanted.iter().all(|wanted| place.is_before(wanted))
                };
                let found = places.iter().rev().find(is_before).cloned();
                Located { first: places.first().cloned(), found }.encoded()
            }
        }
    }
}

/// The shards that an item concerns, by the shard map in force before it.
pub(crate) fn spaces_of(item: &PackItem, sessions: &impl Stub, shard_map: &ShardMap) -> Vec<Space> {
    match item {
        PackItem::Asked(operation) => sessions.spaces(&operation.body, shard_map),
        PackItem::FollowUp(work) => match Body::read(&work.body) {
            Ok(Body::CleanUp { .. }) => sessions.spaces(&work.body, shard_map),
            _ => Vec::new(),
        },
        PackItem::Tick(_) => Vec::new(),
        // Whether it is carried out is not known here: it concerns all shards of both shard maps.
        PackItem::Reshard(reshard) => (0..shard_map.shards.max(reshard.shards)).map(Space).collect(),
    }
}

impl HomeState {
    fn new(room: u16, shards: u16) -> Self {
        let (next, shard_map) = (vec![1; usize::from(room)], ShardMap::at_bootstrap(shards));
        let first = Place { position: 0, next: next.clone(), shard_map: shard_map.clone() };
        Self {
            position: 0,
            now: GroupTime(0),
            ticked: None,
            owed: Vec::new(),
            next_follow_up: 1,
            shard_map,
            next,
            trimmed: 0,
            places: vec![first],
            bytes_since: 0,
            voids: Vec::new(),
        }
    }

    fn place(&self) -> Place {
        Place { position: self.position, next: self.next.clone(), shard_map: self.shard_map.clone() }
    }

    fn count(&mut self, spaces: &[Space]) {
        for space in spaces {
            if let Some(next) = self.next.get_mut(usize::from(space.0)) {
                *next += 1;
            }
        }
    }

    fn retain_place(&mut self, bytes: usize) {
        self.bytes_since += (bytes + NODE_HEAD_BYTES) as u64;
        if self.bytes_since >= PLACE_BYTES as u64 {
            self.bytes_since = 0;
            self.places.push(self.place());
        }
    }

    fn forget(&mut self, trimmed: u64) {
        if trimmed <= self.trimmed {
            return;
        }
        self.trimmed = trimmed;
        let passed = self.places.partition_point(|place| place.position <= trimmed);
        self.places.drain(..passed.saturating_sub(1));
        let first = self.places.first().map_or(0, |first| first.position);
        let passed = self.voids.partition_point(|(at, _)| *at < first);
        self.voids.drain(..passed);
    }
}

impl<T: Stub> mason::Shard for HomeShard<T> {
    /// A node concerns no other participant.
    fn inputs(&self, _body: &[u8], _order: &Order, _out: &mut Vec<u8>) {}

    fn execute(&mut self, body: &Bytes, order: &Order, _others: &[(Space, Bytes)], out: &mut ShardOut) {
        let Some(number) = order.number_in(self.space) else { return };
        self.state.position = number.0 - 1;
        // Its feeder has read it.
        let Ok(pack) = Pack::decoded(body) else { return };
        self.state.forget(pack.trimmed);
        let answers = self.run(pack, out);
        *out.answer() = answers.encoded();
        self.state.position = number.0;
        self.state.retain_place(body.len());
    }

    fn read(&mut self, _reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        if let Ok(query) = HomeQuery::decoded(&Bytes::copy_from_slice(query)) {
            out.extend_from_slice(&self.answer(query));
        }
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn remark(&mut self) -> Option<Bytes> {
        let awaits_time = self.sessions.awaits_time();
        let is_said = |said: &HomeRemark| said.awaits_time == awaits_time && said.owed == self.state.owed;
        if self.remarked.as_ref().is_some_and(is_said) {
            return None;
        }
        let remark = HomeRemark { awaits_time, owed: self.state.owed.clone() };
        let body = remark.encoded().into();
        self.remarked = Some(remark);
        Some(body)
    }

    fn begin_snapshot(&mut self) {
        let mut whole = self.state.encoded();
        let mut sessions = Vec::new();
        self.sessions.save(&mut sessions);
        sessions.encode(&mut whole);
        self.writing = whole.into();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let piece = self.writing.split_to(budget.max(1).min(self.writing.len()));
        let is_last = self.writing.is_empty();
        chunk.push(if is_last { LAST } else { PIECE });
        chunk.extend_from_slice(&piece);
        if is_last { SnapshotStep::Done } else { SnapshotStep::More }
    }

    fn reset(&mut self) {
        self.writing = Bytes::new();
        self.installing.clear();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let (&kind, piece) = chunk.split_first().ok_or(DecodeError::Truncated)?;
        self.installing.extend_from_slice(piece);
        match kind {
            PIECE => Ok(()),
            LAST => {
                let whole = Bytes::from(std::mem::take(&mut self.installing));
                let mut input = kernel::Reader::new(whole);
                let state = HomeState::decode(&mut input)?;
                let sessions: Vec<u8> = input.field()?;
                self.sessions.load(&sessions)?;
                if state.next.len() != self.state.next.len() {
                    return Err(DecodeError::Invalid("places of another number of shards"));
                }
                self.state = state;
                Ok(())
            }
            kind => Err(DecodeError::UnknownTag("chunk of a home's snapshot", kind)),
        }
    }

    fn digest(&self) -> u64 {
        let mut bytes = self.state.encoded();
        self.sessions.digest().encode(&mut bytes);
        parts::digest(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;
    use crate::wire::{
        Caller, ConnectionEpoch, JuteOutput as _, Origin, SessionAnswer, WriteHead, ZkSessionId, op,
    };
    use kernel::HostSlot;
    use mason::Shard as _;

    const ROOM: u16 = 5;

    struct Driven {
        home: HomeShard,
        position: u64,
    }

    fn feeder(host: &str) -> NodeId {
        NodeId::new(HostId::named(host), HostSlot(7))
    }

    fn asked(body: Vec<u8>) -> PackItem {
        PackItem::Asked(Operation { origin: NodeId::ZERO, incarnation: 1, tag: 1, body: body.into() })
    }

    impl Driven {
        fn new() -> Self {
            let settings = SessionSettings::new(Placement::new(4), [7; 32]);
            Self { home: HomeShard::new(ROOM, feeder("a"), 4, settings), position: 0 }
        }

        /// Executes a node; its answers by index, and what was said to the feeder.
        fn node(&mut self, from: &str, trimmed: u64, items: Vec<PackItem>) -> (Vec<(u16, Bytes)>, usize) {
            let pack = Pack { feeder: feeder(from), run: 1, number: 1, time: 5, trimmed, items };
            let numbers = [Placed { space: Space(ROOM), number: Number(self.position + 1) }];
            let order = Order { numbers: numbers.into(), gsn: zxid_of(self.position, 0), time: 5 };
            let mut out = ShardOut::default();
            self.home.execute(&pack.encoded().into(), &order, &[], &mut out);
            self.position += 1;
            let (answer, notices) = out.into_parts();
            let answers = HomeAnswers::decoded(&answer.into()).expect("the home has written it");
            (answers.answers, notices.len())
        }

        fn open(&mut self) -> (ZkSessionId, ConnectionEpoch) {
            let origin = Origin { gateway: feeder("a"), connection: NodeId::ZERO };
            let body = Body::Open { origin, nonce: 1, timeout: 2_000, address: "" }.written();
            let (answers, _) = self.node("a", 0, vec![asked(body)]);
            let Ok(SessionAnswer::Attached { session, epoch, .. }) = SessionAnswer::read(&answers[0].1)
            else {
                panic!("the session is granted");
            };
            (session, epoch)
        }

        fn voids(&self, from: u64) -> Vec<(u64, Vec<u16>)> {
            let query = HomeQuery::Voids(VoidsQuery { from, to: u64::MAX });
            Voids::decoded(&self.home.answer(query).into()).expect("it is an answer").voids
        }

        fn locate(&self, wanted: &[(u16, u64)], from: u64) -> Located {
            let placed = |&(space, number)| Placed { space: Space(space), number: Number(number) };
            let wanted = wanted.iter().map(placed).collect();
            let query = HomeQuery::Locate(LocateQuery { wanted, from, to: u64::MAX });
            Located::decoded(&self.home.answer(query).into()).expect("it is an answer")
        }
    }

    /// Makes a node, an ephemeral one perhaps.
    fn create((session, epoch): (ZkSessionId, ConnectionEpoch), path: &str, ephemeral: bool) -> PackItem {
        let (ttl_allowed, caller, opcode) = (false, Caller::default(), op::CREATE);
        let head = WriteHead { session, epoch, ephemeral, ttl_allowed, caller, opcode };
        let mut request = Vec::new();
        request.put_text(path);
        request.put_buffer(Some(&[1; 20_000]));
        request.put_i32(1);
        request.put_i32(31);
        request.put_text("world");
        request.put_text("anyone");
        request.put_i32(i32::from(ephemeral));
        asked(Body::Write { head, request: &request }.written())
    }

    // A write that shards are handed although its session has ended leaves a node that nobody deletes; one that they are not handed
    // and that is counted leaves a hole.
    #[test]
    fn what_is_not_admitted_is_void_and_not_counted() {
        let mut driven = Driven::new();
        let (session, epoch) = driven.open();
        let before = driven.home.state.next.clone();
        let stranger = (ZkSessionId(77), epoch);
        let (answers, _) =
            driven.node("b", 0, vec![create(stranger, "/a", false), create((session, epoch), "/a", false)]);
        assert_eq!(answers.len(), 1, "the shards answer the other one");
        assert_eq!(driven.voids(0), [(1, vec![0])]);
        assert_eq!(driven.voids(2), []);
        let counted: u64 = driven.home.state.next.iter().zip(&before).map(|(next, was)| next - was).sum();
        let placement = Placement::new(4);
        let spaces = if placement.space_of("/a") == placement.space_of("/") { 1 } else { 2 };
        assert_eq!(counted, spaces);
    }

    // Two feeders that append the same clean-up would have it executed twice, the second time perhaps behind another session's nodes.
    #[test]
    fn owed_work_is_done_once() {
        let mut driven = Driven::new();
        let (session, epoch) = driven.open();
        driven.node("a", 0, vec![create((session, epoch), "/e", true)]);
        let close = || asked(Body::Close { session, epoch }.written());
        driven.node("a", 0, vec![close()]);
        let [work] = &driven.home.state.owed[..] else { panic!("its node is to be deleted") };
        let work = work.clone();
        let (_, notices) = driven.node("b", 0, vec![PackItem::FollowUp(work.clone())]);
        assert_eq!((notices, driven.home.sessions().len()), (1, 0), "its gateway is notified");
        driven.node("a", 0, vec![PackItem::FollowUp(work)]);
        assert_eq!(driven.voids(4), [(4, vec![0])]);
    }

    // A clock that counts the same time twice lets sessions expire whose users were heard.
    #[test]
    fn no_time_is_counted_twice() {
        let mut driven = Driven::new();
        let tick = |after, passed| PackItem::Tick(Tick { after, passed });
        driven.node("a", 0, vec![tick(0, 300)]);
        driven.node("b", 0, vec![tick(0, 300)]);
        driven.node("b", 0, vec![tick(2, 300), tick(2, 300)]);
        driven.node("a", 0, vec![tick(1, 400)]);
        driven.node("a", 0, vec![tick(4, 5_000)]);
        assert_eq!(driven.home.now(), GroupTime(300 + 300 + TICK_MAX));
    }

    // A server that goes on from a place behind what it wants never gets it.
    #[test]
    fn places_are_before_what_is_wanted_and_are_forgotten_with_the_nodes() {
        let mut driven = Driven::new();
        let who = driven.open();
        for number in 0..20 {
            driven.node("a", 0, vec![create(who, &format!("/a{number}"), false)]);
        }
        let next = driven.home.state.next.clone();
        let all = |numbers: &[u64]| (0..).zip(numbers.iter().copied()).collect::<Vec<(u16, u64)>>();
        let last = driven.locate(&all(&next), 0).found.expect("the last place");
        assert!(last.position > 10, "{last:?}");
        let first = driven.locate(&all(&[1, 1, 1, 1, 1]), 0).found.expect("the first one");
        assert_eq!((first.position, first.next), (0, vec![1; 5]));
        let second = driven.home.state.places[1].clone();
        driven.node("a", second.position, Vec::new());
        assert_eq!(driven.locate(&[], 0).first.map(|first| first.position), Some(second.position));
        assert_eq!(driven.locate(&all(&[1, 1, 1, 1, 1]), second.position).found, None);
    }

    // What a snapshot leaves out is other on a server that was started again.
    #[test]
    fn a_snapshot_has_everything() {
        let mut driven = Driven::new();
        let who = driven.open();
        driven.node("a", 0, vec![create((ZkSessionId(9), who.1), "/v", false), create(who, "/e", true)]);
        driven.node("a", 0, vec![asked(Body::Close { session: who.0, epoch: who.1 }.written())]);
        driven.node("b", 0, vec![PackItem::Tick(Tick { after: 0, passed: 10 })]);
        let mut other = Driven::new();
        driven.home.begin_snapshot();
        other.home.reset();
        loop {
            let mut chunk = Vec::new();
            let step = driven.home.snapshot_step(50, &mut chunk);
            other.home.install(&chunk).expect("it is what was written");
            if step == SnapshotStep::Done {
                break;
            }
        }
        assert_eq!(other.home.digest(), driven.home.digest());
        assert_eq!((other.voids(0), other.home.state), (driven.voids(0), driven.home.state));
    }
}
