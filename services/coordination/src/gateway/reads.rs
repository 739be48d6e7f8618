//! Reads on their way: barriers that make them linearizable, and questions to this host's shards.

use crate::gateway::Asker;
use crate::gateway::Gateway;
use crate::gateway::choice;
use crate::gateway::connection::{EntrySeq, PartAnswer, Purpose, Reply, Work, entry_of};
use crate::gateway::metrics::Sizes;
use crate::gateway::room::Room;
use crate::gateway::watchers::{Kinds, Unwatched};
use crate::wire::{Body, Code, EventKind, JuteInput, Malformed, Query, WatchSeq, op};
use kernel::{Bytes, Cx, Instant, NodeId};
use mason::client::{Answer, BarrierPassed, ReadAnswer, ReadAnswers};
use mason::proxy::Barrier;
use mason::{Space, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// So many barriers are under way at most; the reads that come meanwhile share the next one.
const BARRIERS_MAX: usize = 4;
/// What a shard's answer begins with: the stamp of what it shows, and a code.
const ANSWER_HEAD_BYTES: usize = 12;
/// A barrier that has not passed by then is asked for again.
const BARRIER_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What an answer is for.
#[derive(Clone, Debug)]
enum Target {
    Part {
        node: NodeId,
        seq: EntrySeq,
        part: usize,
        at_least: u64,
        /// The registration that it may leave, and the question itself.
        watch: Option<(WatchSeq, Bytes)>,
        /// The version of the spread by which its shard was chosen.
        spread: u64,
    },
    Sizes(Space),
    /// Of this round.
    Quotas(u64),
    Reapable,
    /// To forget what this question names.
    Forget(Bytes),
}

#[derive(Debug)]
struct UnderWay {
    id: u64,
    missing: BTreeSet<usize>,
    /// The groups below this one were asked.
    asked_below: usize,
    asked: Instant,
}

/// Questions of one message.
#[derive(Debug, Default)]
struct Outbox {
    at_least: u64,
    queries: Vec<mason::shard::Query>,
    /// For each query the largest answer that there is room for, in bytes.
    limits: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Reads {
    next_tag: u64,
    targets: BTreeMap<u64, Target>,
    /// By space, and the version of the spread by which it was chosen.
    outbox: BTreeMap<(Space, Option<u64>), Outbox>,
    watch: WatchSeq,
    /// The barrier that reads of now will wait for; not sent yet.
    barrier: u64,
    wanted: bool,
    passed: u64,
    under_way: VecDeque<UnderWay>,
    waiting: BTreeMap<u64, Vec<NodeId>>,
    /// Some shard's mark has moved in this burst.
    pub(crate) progressed: bool,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            next_tag: 0,
            targets: BTreeMap::new(),
            outbox: BTreeMap::new(),
            watch: WatchSeq(0),
            barrier: 1,
            wanted: false,
            passed: 0,
            under_way: VecDeque::new(),
            waiting: BTreeMap::new(),
            progressed: false,
        }
    }

    /// The barrier that a read of now has to wait for; `node` is stirred when it has passed.
    pub(crate) fn want_barrier(&mut self, node: NodeId) -> u64 {
        self.wanted = true;
        let waiting = self.waiting.entry(self.barrier).or_default();
        if waiting.last() != Some(&node) {
            waiting.push(node);
        }
        self.barrier
    }

    pub(crate) fn has_passed(&self, barrier: u64) -> bool {
        barrier <= self.passed
    }

    /// The number of a registration.
    pub(crate) fn next_watch(&mut self) -> WatchSeq {
        self.watch = self.watch.next();
        self.watch
    }

    pub(crate) fn last_watch(&self) -> WatchSeq {
        self.watch
    }

    /// What the gateway asks for itself is of a bounded size.
    fn ask(&mut self, space: Space, spread: Option<u64>, body: Bytes, at_least: u64, target: Target) {
        self.ask_within(space, spread, body, (at_least, u64::MAX), target);
    }

    fn ask_within(
        &mut self,
        space: Space,
        spread: Option<u64>,
        body: Bytes,
        (at_least, limit): (u64, u64),
        target: Target,
    ) {
        self.next_tag += 1;
        self.targets.insert(self.next_tag, target);
        let outbox = self.outbox.entry((space, spread)).or_default();
        outbox.at_least = outbox.at_least.max(at_least);
        outbox.queries.push(mason::shard::Query { tag: self.next_tag, body });
        outbox.limits.push(limit);
    }

    pub(crate) fn ask_sizes(&mut self, space: Space) {
        self.ask(space, None, Query::Sizes.written().into(), 0, Target::Sizes(space));
    }

    pub(crate) fn ask_quotas(&mut self, space: Space, query: &Query<'_>, round: u64) {
        self.ask(space, None, query.written().into(), 0, Target::Quotas(round));
    }

    pub(crate) fn ask_to_forget(&mut self, space: Space, spread: u64, query: &Query<'_>) {
        let query = Bytes::from(query.written());
        self.ask(space, Some(spread), query.clone(), 0, Target::Forget(query));
    }

    pub(crate) fn ask_reapable(&mut self, space: Space, now: u64, limit: u16) {
        self.ask(space, None, Query::Reapable { now, limit }.written().into(), 0, Target::Reapable);
    }
}

impl Gateway {
    pub(crate) fn send_barriers(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.reads.wanted || self.reads.under_way.len() >= BARRIERS_MAX {
            return;
        }
        let id = self.reads.barrier;
        self.reads.wanted = false;
        self.reads.barrier += 1;
        self.metrics.barriers += 1;
        let asked_below = usize::from(self.layout.spanning);
        let missing = (0..asked_below).collect();
        self.reads.under_way.push_back(UnderWay { id, missing, asked_below, asked: self.now });
        cx.multicast(self.settings.routes.proxies.iter().copied().take(asked_below), Barrier { id });
    }

    /// A proxy that had no leader may have dropped the question.
    pub(crate) fn ask_barriers_again(&mut self, cx: &mut Cx<'_, Self>) {
        for barrier in &mut self.reads.under_way {
            if self.now.since(barrier.asked) >= BARRIER_AGAIN_AFTER {
                barrier.asked = self.now;
                let proxies = &self.settings.routes.proxies;
                let missing = barrier.missing.iter().filter_map(|&group| proxies.get(group).copied());
                cx.multicast(missing, Barrier { id: barrier.id });
            }
        }
    }

    /// The first group's log says which groups are in use: a write that was answered before the barrier was sent was made by one
    /// of those.
    pub(crate) fn on_barrier_passed(&mut self, message: BarrierPassed, cx: &mut Cx<'_, Self>) {
        let layout = message.layout.filter(|_| message.group == mason::proxy::arranging::FIRST);
        if let Some(layout) = &layout {
            self.learn_layout(layout);
        }
        let barriers = &mut self.reads.under_way;
        let Some(at) = barriers.iter().position(|barrier| barrier.id == message.id) else { return };
        let barrier = &mut barriers[at];
        barrier.missing.remove(&usize::from(message.group.0));
        if let Some(layout) = layout {
            let spanning = usize::from(layout.spanning);
            let proxies = &self.settings.routes.proxies;
            let added = proxies.iter().copied().take(spanning).skip(barrier.asked_below);
            cx.multicast(added, Barrier { id: message.id });
            barrier.missing.extend(barrier.asked_below..spanning);
            barrier.missing.retain(|&group| group < spanning);
            barrier.asked_below = spanning.max(barrier.asked_below);
        }
        if !barriers[at].missing.is_empty() {
            return;
        }
        // What a later barrier has waited for includes what an earlier one waits for.
        barriers.drain(..=at);
        self.reads.passed = self.reads.passed.max(message.id);
        let later = self.reads.waiting.split_off(&(self.reads.passed + 1));
        let woken = std::mem::replace(&mut self.reads.waiting, later);
        self.stirred.extend(woken.into_values().flatten());
    }

    pub(crate) fn send_reads(&mut self, cx: &mut Cx<'_, Self>) {
        for ((space, spread), outbox) in std::mem::take(&mut self.reads.outbox) {
            if let Some(&shard) = self.settings.routes.shards.get(usize::from(space.0)) {
                let Outbox { at_least, queries: reads, limits } = outbox;
                let limits = Some(limits);
                cx.send(shard, mason::shard::Read { at_least: Stamp(at_least), reads, spread, limits });
            }
        }
    }

    /// Sends what may go on its way, in the order asked.
    pub(crate) fn dispatch(&mut self, node: NodeId) {
        let (placement, spread) = (self.settings.placement, self.marks.spread().version);
        let bounds = *self.pool.bounds();
        loop {
            let Some(seq) = self.connections.get(&node).map(|connection| connection.next) else { return };
            let may_go = self.may_go(node, seq);
            let room = if may_go { self.room_for(node, seq) } else { Room::Now };
            if matches!(room, Room::Later | Room::NextTurn) {
                return;
            }
            let Some(connection) = self.connections.get_mut(&node) else { return };
            let expected = connection.account.expected(&bounds);
            let (reads, writes) = (connection.reads_under_way, connection.writes_under_way);
            let (floor, session) = (connection.seen.max(connection.written), connection.session);
            let (epoch, first) = (connection.epoch, connection.first);
            let home = usize::from(self.layout.home(crate::sessions::home_of(session).unwrap_or_default()).0);
            let moves = connection.home != home;
            let alone = moves || connection.rehoming;
            let Some(entry) = entry_of(&mut connection.queue, first, seq) else { return };
            match &mut entry.work {
                Work::Done(_) => {}
                Work::CheckWatches { .. } => {
                    // Its turn is when it is the first, and nothing behind it is under way: what that leaves is not its business.
                    if seq == first {
                        connection.next = seq.next();
                    }
                    return;
                }
                Work::Write { body, survey, sent } => {
                    if reads > 0 || *sent || (alone && writes > 0) {
                        return;
                    }
                    *sent = true;
                    let (body, blocks) = (body.clone(), survey.is_some());
                    (connection.home, connection.rehoming) = (home, alone);
                    connection.writes_under_way += 1;
                    self.submit(home, body, Asker::Request(node, seq));
                    if blocks {
                        return;
                    }
                }
                Work::Close => {
                    if reads > 0 || (alone && writes > 0) {
                        return;
                    }
                    (connection.home, connection.rehoming) = (home, alone);
                    connection.writes_under_way += 1;
                    self.submit(home, Body::Close { session, epoch }.written(), Asker::Request(node, seq));
                }
                Work::Handshake { .. } => {
                    if writes == 0 {
                        connection.writes_under_way += 1;
                        self.upkeep.handshakes.push((node, seq));
                    }
                    return;
                }
                Work::Sync { barrier, path } => {
                    if writes > 0 || !self.reads.has_passed(*barrier) {
                        return;
                    }
                    let mut body = Vec::new();
                    crate::wire::JuteOutput::put_text(&mut body, path);
                    // What is read from here on shows all that was known when the barrier had passed.
                    entry.work = Work::Done(Reply::new(self.highest, 0, body));
                }
                Work::Read(read) if read.sent => {
                    if read.blocks() {
                        return;
                    }
                }
                Work::Read(read) if room == Room::Never => {
                    let counted = read.counted;
                    read.leave(&mut connection.account, &mut self.pool);
                    connection.reads_under_way -= usize::from(counted);
                    entry.work = Work::Done(Reply::new(0, Code::BadArguments.number(), Bytes::new()));
                }
                Work::Read(read) => {
                    if !may_go {
                        return;
                    }
                    read.sent = true;
                    if read.spread != spread {
                        read.leave(&mut connection.account, &mut self.pool);
                        choice::choose_anew(&placement, spread, read);
                    }
                    // What a newcomer claims to have seen may not exist.
                    let floor = if matches!(read.purpose, Purpose::Greeting { .. }) { 0 } else { floor };
                    let (watch, blocks) = (read.leaves(), read.blocks());
                    connection.reads_under_way += usize::from(!std::mem::replace(&mut read.counted, true));
                    let mut asked = Vec::new();
                    for (at, part) in
                        read.parts.iter_mut().enumerate().filter(|(_, part)| part.room.is_none())
                    {
                        let room = part.needs.unwrap_or(expected);
                        part.room = Some(room);
                        self.pool.reserve(&mut connection.account, room);
                        asked.push((at, part.space, part.query.clone(), room));
                    }
                    for (at, space, query, room) in asked {
                        self.ask_part((node, seq, at), (space, query), (floor, room), watch, spread);
                    }
                    if blocks {
                        return;
                    }
                }
            }
            if let Some(connection) = self.connections.get_mut(&node) {
                connection.next = seq.next();
            }
        }
    }

    /// Whether the entry is a read or a write whose turn it is.
    fn may_go(&mut self, node: NodeId, seq: EntrySeq) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        let (reads, writes) = (connection.reads_under_way, connection.writes_under_way);
        match connection.entry(seq).map(|entry| &entry.work) {
            Some(Work::Read(read)) => writes == 0 && !read.sent && self.reads.has_passed(read.barrier),
            Some(Work::Write { sent, .. }) => reads == 0 && !sent,
            _ => false,
        }
    }

    /// Asks a part again, of a state that is not older than `at_least`.
    pub(crate) fn ask_again(&mut self, node: NodeId, seq: EntrySeq, at: usize, at_least: u64) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let connection_expected = connection.account.expected(self.pool.bounds());
        let Some(entry) = connection.entry(seq) else { return };
        let Work::Read(read) = &mut entry.work else { return };
        let Some(part) = read.parts.get_mut(at) else { return };
        part.answer = None;
        read.unanswered += 1;
        let before = part.room.unwrap_or(0);
        let room = before.max(connection_expected);
        part.room = Some(room);
        let asked = (part.space, part.query.clone());
        let (watch, spread) = (read.leaves(), read.spread);
        let path = match &read.purpose {
            Purpose::Node { path, watch: true, .. } => Some(path.clone()),
            _ => None,
        };
        self.pool.reserve(&mut connection.account, room - before);
        if let Some(path) = path {
            // What the first answer left is void: the client never sees that answer.
            connection.events.retain(|_, event| event.after != seq);
            let placement = &self.settings.placement;
            let unwatched = self.watchers.take_back(connection, &path, seq, placement);
            self.forget(unwatched);
        }
        self.metrics.reads_again += 1;
        self.ask_part((node, seq, at), asked, (at_least, room), watch, spread);
    }

    pub(crate) fn ask_part(
        &mut self,
        (node, seq, part): (NodeId, EntrySeq, usize),
        (space, query): (Space, Bytes),
        (at_least, room): (u64, usize),
        watch: Option<WatchSeq>,
        spread: u64,
    ) {
        watch.into_iter().for_each(|watch| self.useless.sent(watch));
        let watch = watch.map(|watch| (watch, query.clone()));
        let target = Target::Part { node, seq, part, at_least, watch, spread };
        // Every answer begins with what it shows, and a code.
        let limit = (room + ANSWER_HEAD_BYTES) as u64;
        self.reads.ask_within(space, Some(spread), query, (at_least, limit), target);
    }

    pub(crate) fn on_read_answers(&mut self, message: ReadAnswers, cx: &mut Cx<'_, Self>) {
        if let Some(spread) = &message.refused {
            self.on_spreads(message.space, spread, cx);
            return self.on_refused(message.answers);
        }
        let executed = message.executed.0;
        self.highest = self.highest.max(executed);
        let through = self.marks.of(message.space);
        for (tag, bytes) in message.withheld.into_iter().flatten() {
            let Some(Target::Part { node, seq, part, watch, spread, .. }) = self.reads.targets.remove(&tag)
            else {
                continue;
            };
            if let Some((watch, query)) = watch {
                self.useless.answered(watch);
                // If it is asked again, that registers it again.
                self.forget(paths_of(&query));
            }
            self.on_withheld((node, seq, part), spread, bytes.saturating_sub(ANSWER_HEAD_BYTES as u64));
        }
        for answer in message.answers {
            let Some(target) = self.reads.targets.remove(&answer.tag) else { continue };
            let mut input = JuteInput(&answer.body);
            let (Ok(shows), Ok(error)) = (input.u64(), input.i32()) else { continue };
            let body = answer.body.slice(ANSWER_HEAD_BYTES..);
            match target {
                Target::Part { node, seq, part, at_least, watch, spread } => {
                    let shows = if shows == 0 { executed } else { shows };
                    let answer = PartAnswer { shows, covers: through.max(at_least), error, body };
                    let taken = self.on_part((node, seq, part), spread, answer);
                    if let Some((watch, query)) = watch {
                        self.useless.answered(watch);
                        if !taken {
                            self.forget(paths_of(&query));
                        }
                    }
                }
                Target::Sizes(space) => {
                    if let Ok(sizes) = Sizes::read(&body) {
                        self.metrics.sizes.insert(space, sizes);
                    }
                }
                Target::Quotas(round) => self.on_quotas(round, &body),
                Target::Reapable => self.reap(&body),
                Target::Forget(_) => {}
            }
        }
    }

    /// A shard does not have any more what these are about.
    fn on_refused(&mut self, answers: Vec<ReadAnswer>) {
        for answer in answers {
            match self.reads.targets.remove(&answer.tag) {
                Some(Target::Part { node, seq, watch, spread, .. }) => {
                    watch.into_iter().for_each(|(watch, _)| self.useless.answered(watch));
                    self.ask_anew(node, seq, spread);
                }
                Some(Target::Forget(query)) => {
                    if let Ok(Query::Forget { paths, .. }) = Query::read(&query) {
                        // Perhaps it was one of several shards.
                        let unwatched = |path: &str| Unwatched { path: path.into(), recursive: true };
                        self.forget(paths.into_iter().map(unwatched));
                    }
                }
                Some(Target::Sizes(_) | Target::Quotas(_) | Target::Reapable) | None => {}
            }
        }
    }

    fn reap(&mut self, body: &[u8]) {
        let mut input = JuteInput(body);
        while let Ok(path) = input.text() {
            let home = self.next_home % usize::from(self.layout.serving.max(1));
            self.submit(home, Body::Reap { path }.written(), Asker::Upkeep);
        }
    }

    /// False if nobody waits for it any more.
    fn on_part(
        &mut self,
        (node, seq, at): (NodeId, EntrySeq, usize),
        spread: u64,
        answer: PartAnswer,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        let Some(entry) = connection.entry(seq) else { return false };
        let Work::Read(read) = &mut entry.work else { return false };
        // Asked anew since, perhaps of other shards.
        if read.spread != spread {
            return false;
        }
        let Some(part) = read.parts.get_mut(at).filter(|part| part.answer.is_none()) else { return false };
        let left = watches_left(&read.purpose, at, &answer);
        let (bytes, kept) = (answer.body.len(), part.room.unwrap_or(0));
        part.room = Some(bytes);
        part.answer = Some(answer);
        read.unanswered -= 1;
        let whole = read.unanswered == 0;
        connection.account.learn(bytes);
        self.pool.release(&mut connection.account, kept);
        self.pool.reserve(&mut connection.account, bytes);
        self.freed |= kept > bytes;
        if whole {
            self.stirred.insert(node);
        }
        for (path, kinds) in left {
            self.watchers.register(connection, &path, kinds, seq, &self.settings.placement);
        }
        if whole {
            self.advance_blocking_read(node, seq);
        }
        true
    }

    /// Operations of a group have come back: shards' answers begin with a code, the group's own are about sessions.
    pub(crate) fn on_answered(&mut self, node: NodeId, seq: EntrySeq, answer: Answer) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.rehoming = false;
        let Some(entry) = connection.entry(seq) else { return };
        match &entry.work {
            Work::Handshake { .. } => {
                self.on_handshake_answered(node, seq, &super::session_answer(&answer.body));
            }
            Work::Close => {
                connection.writes_under_way = connection.writes_under_way.saturating_sub(1);
                if super::session_answer(&answer.body) == crate::wire::SessionAnswer::Refused {
                    self.on_session_ended(node);
                }
            }
            Work::Write { survey: Some(survey), .. } if answer.stamp.0 > 0 => {
                let survey = survey.clone();
                connection.writes_under_way = connection.writes_under_way.saturating_sub(1);
                let body = answer.body.slice(4.min(answer.body.len())..);
                let next = self.after_multi(node, survey, answer.stamp.0, &body);
                if let Some(entry) = self.connections.get_mut(&node).and_then(|found| found.entry(seq)) {
                    entry.work = next;
                }
            }
            Work::Write { .. } => {
                let error = JuteInput(&answer.body).i32().unwrap_or(Code::MarshallingError.number());
                let body = answer.body.slice(4.min(answer.body.len())..);
                let ended = [Code::SessionExpired, Code::SessionMoved].map(Code::number).contains(&error);
                let reply = Reply { last: ended, ..Reply::new(answer.stamp.0, error, body) };
                connection.answer_write(seq, reply);
            }
            Work::Read(_) | Work::Sync { .. } | Work::CheckWatches { .. } | Work::Done(_) => {}
        }
    }
}

/// The paths that a question may have registered.
fn paths_of(query: &[u8]) -> Vec<Unwatched> {
    let unwatched = |path: &str, recursive| Unwatched { path: path.into(), recursive };
    match Query::read(query) {
        Ok(Query::Node { path, .. }) => vec![unwatched(path, false)],
        Ok(Query::SetWatches { paths, lasting: [persistent, recursive], .. }) => {
            let plain = paths.iter().flatten().chain(&persistent).map(|path| unwatched(path, false));
            plain.chain(recursive.iter().map(|path| unwatched(path, true))).collect()
        }
        _ => Vec::new(),
    }
}

/// What the session watches from this answer on.
fn watches_left(purpose: &Purpose, at: usize, answer: &PartAnswer) -> Vec<(Arc<str>, Kinds)> {
    match purpose {
        Purpose::Node { opcode, path, watch: true } => {
            let kinds = match (*opcode, answer.error) {
                (op::EXISTS, error) if error == 0 || error == Code::NoNode.number() => Some(Kinds::DATA),
                (op::GET_DATA, 0) => Some(Kinds::DATA),
                (op::GET_CHILDREN | op::GET_CHILDREN2, 0) => Some(Kinds::CHILD),
                _ => None,
            };
            kinds.map(|kinds| (path.clone(), kinds)).into_iter().collect()
        }
        Purpose::AddWatch { path, kinds } => vec![(path.clone(), *kinds)],
        Purpose::SetWatches { paths, lasting } => {
            let missed = missed(&answer.body).unwrap_or_default();
            let quiet = |path: &Arc<str>, events: [EventKind; 2]| {
                !missed.iter().any(|(event, missed)| missed == path && events.contains(event))
            };
            let [data, exist, child] = paths.get(at).cloned().unwrap_or_default();
            let mut left = lasting.clone();
            let data =
                data.into_iter().filter(|path| quiet(path, [EventKind::DataChanged, EventKind::Deleted]));
            left.extend(data.map(|path| (path, Kinds::DATA)));
            let exist = exist.into_iter().filter(|path| quiet(path, [EventKind::Created; 2]));
            left.extend(exist.map(|path| (path, Kinds::DATA)));
            let child = child
                .into_iter()
                .filter(|path| quiet(path, [EventKind::ChildrenChanged, EventKind::Deleted]));
            left.extend(child.map(|path| (path, Kinds::CHILD)));
            left
        }
        Purpose::Node { watch: false, .. }
        | Purpose::Nodes { .. }
        | Purpose::Ephemerals
        | Purpose::Dump
        | Purpose::Descendants
        | Purpose::Greeting { .. }
        | Purpose::Survey(_) => Vec::new(),
    }
}

/// The events in a shard's answer to setWatches.
pub(crate) fn missed(body: &[u8]) -> Result<Vec<(EventKind, Arc<str>)>, Malformed> {
    let mut input = JuteInput(body);
    let mut missed = Vec::new();
    while !input.0.is_empty() {
        let kind = EventKind::of_number(input.i32()?).ok_or(Malformed)?;
        missed.push((kind, input.text()?.into()));
    }
    Ok(missed)
}
