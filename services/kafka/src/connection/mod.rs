//! One client's connection: requests in, calls of the log out, responses in the order of the requests.
//!
//! Appends of all requests that have come are in flight together; everything else waits until it is the oldest request, so that
//! what a connection can make the host hold is bounded by one response.

mod commits;
mod fetch;
mod groups;
mod login;
mod membership;
mod offsets;
mod produce;
mod producer_id;
mod topics;

use crate::brokers::Brokers;
use crate::code::Code;
use crate::groups::Groups;
use crate::permits::{Of, Permitted, Verb};
use crate::request::{APIS, Api, Head, Request, key};
use crate::wire::{Malformed, PutKafka};
use kernel::{Bytes, Instant};
use shared_log::{Answer, Read, Refused, Rejected, Why};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a listener is configured with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether topics are made when clients ask for them.
    pub creates_topics: bool,
    /// What a topic may hold unless its maker says, in bytes; 0: no limit but the disk budget.
    pub retain_bytes: u64,
    /// How long records are retained unless the topic's maker says, in milliseconds; 0: for ever.
    pub retain_ms: u64,
    /// This host.
    pub node: i32,
}

/// What the connections of a host share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Numbers for producers.
    pub producer_ids: ProducerIds,
    /// The groups that it coordinates.
    pub groups: Rc<RefCell<Groups>>,
}

/// Where numbers for producers come from. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct ProducerIds(Rc<Cell<u64>>);

impl ProducerIds {
    /// Numbers from `first` on, which is drawn at random for each start of a host: then no two hosts give the same.
    pub fn beginning_at(first: u64) -> Self {
        Self(Rc::new(Cell::new(first)))
    }

    fn draw(&self) -> i64 {
        let number = self.0.get();
        self.0.set(number.wrapping_add(1));
        (number & i64::MAX as u64) as i64
    }
}

/// Why a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A malformed request, or one of a kind or version that is not served.
    Malformed,
    /// An append that the client wants no answer for has failed: there is no other way to say so.
    UnacknowledgedAppend,
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// What a call on a [`Connection`] leaves to be sent.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// To the log, each under a number of its own.
    pub calls: Vec<(u64, shared_log::Request)>,
    /// To the client.
    pub bytes: Vec<u8>,
    /// What was answered: the name of the API, and how long it took since the request came. Those that wait for entries or for other
    /// members are left out.
    pub answered: Vec<(&'static str, Duration)>,
    /// What was not done, or not all of it: the name of the API, and the first error.
    pub failed: Vec<(&'static str, Code)>,
    /// The client is closed when it has been sent the bytes: it is not who it says.
    pub ends: bool,
}

/// The state of a connection.
pub struct Connection {
    settings: Settings,
    shared: Shared,
    permitted: Permitted,
    /// Requests that have come while there were enough.
    frames: VecDeque<(Instant, Bytes)>,
    queue: VecDeque<Waiting>,
    /// The number of the next request.
    next_request: u64,
    calls: BTreeMap<u64, Target>,
    next_call: u64,
    /// The client has not taken the responses before: no other is made.
    held: bool,
    /// Reads that wait at the end of a topic, also for a Fetch that has been answered since: the next one takes them over.
    watches: BTreeMap<Arc<str>, Watch>,
}

/// A request without a response.
struct Waiting {
    number: u64,
    head: Head,
    /// When it came.
    since: Instant,
    job: Box<dyn Job>,
    /// Slots asked for so far.
    asked: usize,
    /// Calls without an answer, apart from watches.
    in_flight: usize,
    /// When it is answered whatever is missing; from when it has its turn.
    until: Option<Instant>,
}

/// Whom an answer is for.
#[derive(Clone, Debug)]
struct Target {
    number: u64,
    slot: usize,
    /// The topic that it watches.
    watched: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    from: u64,
    call: u64,
}

/// What is to be done for a request: it asks the log once for each slot, and again as answers require.
trait Job {
    fn slots(&self) -> usize;

    /// How many calls may be without an answer before the next slot is asked for.
    fn calls_max(&self) -> usize {
        16
    }

    /// Waits until it is the oldest request.
    fn waits_its_turn(&self) -> bool {
        true
    }

    /// Answered after so long whatever is missing.
    fn patience(&self) -> Duration {
        ANSWER_WITHIN
    }

    /// What it holds, in bytes, until it is answered.
    fn bytes(&self) -> usize {
        0
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx);

    /// The client is closed behind the response.
    fn ends_connection(&self) -> bool {
        false
    }

    /// Comes again and again while it has its turn, for what waits for more than the log.
    fn poll(&mut self, _cx: &mut JobCx) {}

    fn on_answer(&mut self, slot: usize, answer: Answer, cx: &mut JobCx);

    /// True if it is done, where `asked` says that all slots were asked for and nothing is in flight.
    fn is_done(&self, asked: bool, _now: Instant) -> bool {
        asked
    }

    /// The response's body; slots without an answer are timed out. None for no response.
    fn write(&self, version: i16, brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault>;
}

/// Whether a response is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Yes,
    No,
}

struct JobCx {
    now: Instant,
    settings: Settings,
    calls: Vec<(usize, shared_log::Request)>,
    watches: Vec<(usize, Arc<str>, Read)>,
}

/// How long a request waits for the log, unless it says.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Requests of a connection without a response before it is read no further.
const REQUESTS_MAX: usize = 64;
/// The same, by what they append, in bytes.
const APPENDED_BYTES_MAX: usize = 4 << 20;
/// What a response may hold, unless a single record is larger, in bytes.
const RESPONSE_BYTES_MAX: usize = 2 << 20;
/// APIs whose answers wait for entries or for other members.
const WAITING: [i16; 3] = [key::FETCH, key::JOIN_GROUP, key::SYNC_GROUP];
/// Topics watched by one connection; more are looked at when a Fetch ends only.
const WATCHES_MAX: usize = 1_000;

impl Connection {
    /// A connection that has just been opened.
    pub fn new(settings: Settings, shared: Shared, permitted: Permitted) -> Self {
        Self {
            settings,
            shared,
            permitted,
            frames: VecDeque::new(),
            queue: VecDeque::new(),
            next_request: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            held: false,
            watches: BTreeMap::new(),
        }
    }

    /// True while no more is to be read from the client.
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.queue.iter().map(|waiting| waiting.job.bytes()).sum();
        self.held || self.queue.len() >= REQUESTS_MAX || bytes >= APPENDED_BYTES_MAX
    }

    /// Whether to begin with no other response, because the client has not taken those before.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// A request has come, without the length before it.
    pub fn on_frame(
        &mut self,
        frame: Bytes,
        brokers: &Brokers,
        now: Instant,
        out: &mut Outgoing,
    ) -> Result<(), Fault> {
        if self.frames.is_empty() && !self.is_full() {
            self.take(now, frame, brokers, now, out)?;
        } else {
            self.frames.push_back((now, Bytes::copy_from_slice(&frame)));
        }
        self.advance(brokers, now, out)
    }

    /// The log has answered a call.
    pub fn on_answer(
        &mut self,
        call: u64,
        answer: Answer,
        brokers: &Brokers,
        now: Instant,
        out: &mut Outgoing,
    ) -> Result<(), Fault> {
        let Some(target) = self.calls.remove(&call) else { return Ok(()) };
        if let Some(topic) = &target.watched
            && self.watches.get(topic).is_some_and(|watch| watch.call == call)
        {
            self.watches.remove(topic);
        }
        let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.number == target.number) else {
            return Ok(());
        };
        if target.watched.is_none() {
            waiting.in_flight -= 1;
        }
        let mut cx = JobCx { now, settings: self.settings, calls: Vec::new(), watches: Vec::new() };
        waiting.job.on_answer(target.slot, answer, &mut cx);
        self.send(target.number, cx, out);
        self.advance(brokers, now, out)
    }

    /// Time has passed.
    pub fn on_tick(&mut self, brokers: &Brokers, now: Instant, out: &mut Outgoing) -> Result<(), Fault> {
        self.advance(brokers, now, out)
    }

    fn take(
        &mut self,
        since: Instant,
        frame: Bytes,
        brokers: &Brokers,
        now: Instant,
        out: &mut Outgoing,
    ) -> Result<(), Fault> {
        let (head, request) = Request::read(frame)?;
        let permitted = self.permitted.clone();
        let job: Box<dyn Job> = match request {
            Request::ApiVersions => Box::new(Versions { code: Code::NONE }),
            Request::NewerApiVersions => Box::new(Versions { code: Code::UNSUPPORTED_VERSION }),
            Request::SaslHandshake(mechanism) => {
                Box::new(login::Handshake::new(&mechanism, head.version, &permitted))
            }
            Request::SaslAuthenticate(message) => Box::new(login::Authenticate::new(&message, &permitted)),
            Request::Metadata(metadata) => Box::new(topics::Describe::new(metadata, permitted)),
            Request::Produce(produce) => Box::new(produce::Produce::new(produce, &permitted)),
            Request::Fetch(fetch) => Box::new(fetch::Fetch::new(fetch, &permitted, now)),
            Request::ListOffsets(parts) => Box::new(offsets::Offsets::new(parts, &permitted)),
            Request::CreateTopics(create) => {
                Box::new(topics::Create::new(create, &self.settings, &permitted))
            }
            Request::DeleteTopics(names) => Box::new(topics::Delete::new(names, &permitted)),
            Request::InitProducerId(None) => {
                Box::new(producer_id::Given(Ok(self.shared.producer_ids.draw())))
            }
            Request::InitProducerId(Some(_)) => Box::new(producer_id::NO_TRANSACTIONS),
            Request::FindCoordinator(group, kind) => Box::new(membership::Find::new(group, kind, &permitted)),
            Request::JoinGroup(join) => {
                let coordinator = self.coordinator(&join.group, brokers);
                Box::new(membership::JoinGroup::new(join, coordinator))
            }
            Request::SyncGroup(membership, assignments) => {
                let coordinator = self.coordinator(&membership.group, brokers);
                Box::new(membership::SyncGroup::new(membership, assignments, coordinator))
            }
            Request::Heartbeat(membership) => {
                let coordinator = self.coordinator(&membership.group, brokers);
                Box::new(membership::Heartbeat::new(membership, coordinator))
            }
            Request::LeaveGroup(group, members) => {
                let coordinator = self.coordinator(&group, brokers);
                Box::new(membership::LeaveGroup::new(group, members, coordinator))
            }
            Request::ListGroups => Box::new(groups::ListGroups::new(self.shared.groups.clone(), permitted)),
            Request::DescribeGroups(names) => {
                let asked = names.into_iter().map(|name| {
                    let coordinator = self.coordinator(&name, brokers);
                    (name, coordinator)
                });
                Box::new(groups::DescribeGroups::new(asked.collect()))
            }
            Request::OffsetCommit(membership, parts) => {
                let coordinator = self.coordinator(&membership.group, brokers);
                Box::new(commits::Commit::new(membership, parts, coordinator, &permitted))
            }
            Request::OffsetFetch(group, parts) => Box::new(commits::Committed::new(group, parts, &permitted)),
        };
        let number = self.next_request;
        self.next_request += 1;
        let at_once = !job.waits_its_turn();
        self.queue.push_back(Waiting { number, head, since, job, asked: 0, in_flight: 0, until: None });
        if at_once {
            self.ask(self.queue.len() - 1, now, out);
        }
        Ok(())
    }

    /// The groups of this host, if it coordinates this one.
    fn coordinator(&self, group: &str, brokers: &Brokers) -> membership::Coordinator {
        if !self.permitted.may(Verb::Read, Of::Group(group)) {
            return membership::Coordinator(Err(Code::GROUP_AUTHORIZATION_FAILED));
        }
        let is_here = brokers.coordinator_of(group).is_some_and(|broker| broker.node == self.settings.node);
        membership::Coordinator(if is_here {
            Ok(self.shared.groups.clone())
        } else {
            Err(Code::NOT_COORDINATOR)
        })
    }

    /// Asks the log on behalf of the request at `index`, as far as it may.
    fn ask(&mut self, index: usize, now: Instant, out: &mut Outgoing) {
        let waiting = &mut self.queue[index];
        if waiting.until.is_none() {
            waiting.until = Some(now + waiting.job.patience());
        }
        let number = waiting.number;
        loop {
            let waiting = &mut self.queue[index];
            if waiting.asked == waiting.job.slots() || waiting.in_flight >= waiting.job.calls_max() {
                return;
            }
            let mut cx = JobCx { now, settings: self.settings, calls: Vec::new(), watches: Vec::new() };
            waiting.job.ask(waiting.asked, &mut cx);
            waiting.asked += 1;
            self.send(number, cx, out);
        }
    }

    fn send(&mut self, number: u64, cx: JobCx, out: &mut Outgoing) {
        for (slot, request) in cx.calls {
            self.call(Target { number, slot, watched: None }, request, out);
            if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.number == number) {
                waiting.in_flight += 1;
            }
        }
        for (slot, topic, read) in cx.watches {
            let target = Target { number, slot, watched: Some(topic.clone()) };
            if let Some(watch) = self.watches.get(&topic).filter(|watch| watch.from == read.from) {
                self.calls.insert(watch.call, target);
            } else if self.watches.len() < WATCHES_MAX || self.watches.contains_key(&topic) {
                let from = read.from;
                let call = self.call(target, shared_log::Request::Read(read), out);
                self.watches.insert(topic, Watch { from, call });
            }
        }
    }

    fn call(&mut self, target: Target, request: shared_log::Request, out: &mut Outgoing) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        self.calls.insert(call, target);
        out.calls.push((call, request));
        call
    }

    /// Answers what is done, and turns to what comes next.
    fn advance(&mut self, brokers: &Brokers, now: Instant, out: &mut Outgoing) -> Result<(), Fault> {
        loop {
            while let Some(first) = self.queue.front() {
                // One response is made at a time: whether there is room for the next is known when this one was written.
                let is_begun = first.until.is_some() || !first.job.waits_its_turn();
                if !is_begun && (self.held || out.bytes.len() >= RESPONSE_BYTES_MAX / 2) {
                    break;
                }
                self.ask(0, now, out);
                let mut cx = JobCx { now, settings: self.settings, calls: Vec::new(), watches: Vec::new() };
                self.queue[0].job.poll(&mut cx);
                self.send(self.queue[0].number, cx, out);
                let waiting = &self.queue[0];
                let asked = waiting.asked == waiting.job.slots() && waiting.in_flight == 0;
                let late = waiting.until.is_some_and(|until| now >= until);
                if !late && !waiting.job.is_done(asked, now) {
                    break;
                }
                respond(waiting, brokers, out)?;
                out.ends |= waiting.job.ends_connection();
                let measured = |api: &&Api| api.key == waiting.head.key && !WAITING.contains(&api.key);
                if let Some(api) = APIS.iter().find(measured) {
                    out.answered.push((api.name, now.since(waiting.since)));
                }
                self.queue.pop_front();
            }
            // Those that may go on before they are the oldest.
            for index in 1..self.queue.len() {
                if !self.queue[index].job.waits_its_turn() {
                    self.ask(index, now, out);
                }
            }
            if self.is_full() {
                return Ok(());
            }
            let Some((since, frame)) = self.frames.pop_front() else { return Ok(()) };
            self.take(since, frame, brokers, now, out)?;
        }
    }
}

fn respond(waiting: &Waiting, brokers: &Brokers, out: &mut Outgoing) -> Result<(), Fault> {
    let mut body = ResponseBody { bytes: std::mem::take(&mut out.bytes), failure: None };
    let begin = body.bytes.len();
    body.put_i32(0);
    body.put_i32(waiting.head.correlation);
    let written = waiting.job.write(waiting.head.version, brokers, &mut body);
    out.bytes = body.bytes;
    match written {
        Ok(Wanted::No) | Err(_) => out.bytes.truncate(begin),
        Ok(Wanted::Yes) => {
            let length = (out.bytes.len() - begin - 4) as u32;
            out.bytes[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    let api = APIS.iter().find(|api| api.key == waiting.head.key);
    out.failed.extend(body.failure.and_then(|code| Some((api?.name, code))));
    written.map(|_| ())
}

/// A response that is written, behind those before it.
struct ResponseBody {
    bytes: Vec<u8>,
    /// The first error in it.
    failure: Option<Code>,
}

impl ResponseBody {
    fn put_code(&mut self, code: Code) {
        self.note(code);
        self.put_i16(code.0);
    }

    fn note(&mut self, code: Code) {
        if code != Code::NONE && self.failure.is_none() {
            self.failure = Some(code);
        }
    }
}

impl PutKafka for ResponseBody {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// The answer to ApiVersions.
struct Versions {
    code: Code,
}

impl Job for Versions {
    fn slots(&self) -> usize {
        0
    }

    fn ask(&mut self, _slot: usize, _cx: &mut JobCx) {}

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        // Who asks in a version unknown here reads the oldest.
        let version = if self.code == Code::NONE { version } else { 0 };
        out.put_code(self.code);
        if version >= 3 {
            // A compact array begins with its length and one more; every compact structure ends with a count of tagged fields.
            out.put(&[APIS.len() as u8 + 1]);
        } else {
            out.put_count(APIS.len());
        }
        for api in APIS {
            out.put_i16(api.key);
            out.put_i16(api.min);
            out.put_i16(api.max);
            if version >= 3 {
                out.put(&[0]);
            }
        }
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        if version >= 3 {
            out.put(&[0]);
        }
        Ok(Wanted::Yes)
    }
}

/// Nobody is throttled by quotas.
const NO_THROTTLE: i32 = 0;

/// What a refusal is in Kafka's words.
fn code_of(refused: &Refused) -> Code {
    match refused.why {
        Why::Busy | Why::Unarchived | Why::DiskFull => Code::NOT_ENOUGH_REPLICAS,
        Why::Unknown | Why::Moved => Code::REQUEST_TIMED_OUT,
        Why::Malformed => Code::INVALID_TOPIC,
        Why::NoSuchLog => Code::UNKNOWN_TOPIC_OR_PARTITION,
        Why::Exists => Code::TOPIC_ALREADY_EXISTS,
        // Trying again helps when an operator has made room, and not before: the producer is to learn of it now.
        Why::Sealed | Why::Full | Why::OverBudget => Code::POLICY_VIOLATION,
        Why::Trimmed | Why::BeyondTail => Code::OFFSET_OUT_OF_RANGE,
        Why::TooLarge => Code::MESSAGE_TOO_LARGE,
        // A log whose engine does not append for producers is not served by this port.
        Why::Unsupported => Code::POLICY_VIOLATION,
        Why::NotGranted => Code::TOPIC_AUTHORIZATION_FAILED,
    }
}

/// What an answer of another kind than expected comes to.
fn code_of_other(answer: &Answer) -> Code {
    match answer {
        Answer::Refused(refused) => code_of(refused),
        Answer::Rejected(Rejected::OutOfSequence(_)) => Code::OUT_OF_ORDER_SEQUENCE,
        Answer::Rejected(Rejected::Fenced(_)) => Code::INVALID_PRODUCER_EPOCH,
        Answer::Rejected(Rejected::Unknown(_)) => Code::UNKNOWN_PRODUCER,
        Answer::Done
        | Answer::Appended(_)
        | Answer::Entries(_)
        | Answer::Logs(_)
        | Answer::Identity(_)
        | Answer::Description(_)
        | Answer::Group(_) => Code::REQUEST_TIMED_OUT,
    }
}

/// Writes `parts`, which stand in the order of the request, as an array of topics with an array of partitions each.
fn put_by_topic<T>(
    parts: &[T],
    topic_of: impl Fn(&T) -> &Arc<str>,
    mut put: impl FnMut(&mut ResponseBody, &T),
    out: &mut ResponseBody,
) {
    let topics: Vec<&[T]> = parts.chunk_by(|one, other| topic_of(one) == topic_of(other)).collect();
    out.put_array(topics.into_iter(), |out, parts| {
        out.put_text(Some(topic_of(&parts[0])));
        out.put_array(parts.iter(), &mut put);
    });
}
