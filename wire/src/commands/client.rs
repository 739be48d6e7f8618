//! The client library's core: sessions, retries, and the watermark of sequential reads (the paper's section 3.6).

use super::calls::{Query, Reconfigure, Submit};
use super::configuration::Configuration;
use super::results::{Answered, ClientIn, Notice, OPENING, Results, Status};
use super::value::{Commands, GroupKind, Level};
use kernel::{AwaitedTimers, Bytes, Cx, Family, Instant, NodeId, Position, RequestId, Role, planted};
use parts::{Sequence, SessionId, Slot};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// What an application asks of the client library.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// Execute a command, exactly once.
    Write(Bytes),
    /// Execute a read.
    Read {
        /// The read.
        query: Bytes,
        /// How fresh.
        level: Level,
    },
    /// Change the cluster.
    Reconfigure(Arc<Configuration>),
}

/// How a call ended, for the application.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Executed, with the service's answer.
    Done(Bytes),
    /// Not executed, or not known to be.
    Refused(Refusal),
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It may have been executed: the session was lost while it was in flight.
    MaybeExecuted,
    /// It was not executed and never will be: malformed or too large.
    Malformed,
    /// It was not executed: another reconfiguration came first.
    Conflict,
    /// It was not executed: the disks are full. Safe to send again when there is room.
    DiskFull,
    /// It was not executed: too much has been waiting for as long as the client was patient. Safe to send again.
    Busy,
    /// It was not executed: the client was not granted it.
    NotGranted,
}

/// What has become of a call's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    /// Nobody has it: it was not sent, or was refused as often as it was sent.
    Nowhere,
    /// Once since then.
    Once,
    /// More often than it was answered: a refusal says nothing about the other copies.
    Again,
}

impl Sent {
    fn again(&mut self) {
        *self = if *self == Self::Nowhere { Self::Once } else { Self::Again };
    }
}

/// For so long a call that is refused as busy is tried again.
const BUSY_WITHIN: Duration = Duration::from_millis(1_000);
/// A batcher on the client's own host, which loses no message, is asked for a write that it has taken again after this.
const NEAR_RESEND_AFTER: Duration = Duration::from_secs(2);

kernel::timers! {
    /// The client's timers.
    pub enum ClientTimer {
        /// Look for calls without an answer.
        Resend,
    }
}

#[derive(Clone, Debug)]
struct Outstanding {
    id: RequestId,
    call: Call,
    asked_at: Instant,
    sent_at: Instant,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opened {
    No,
    Asked,
    /// In this slot.
    Yes(Slot),
}

/// One client with one session at a time, and any number of calls in flight.
#[derive(Clone, Debug)]
pub struct CommandClient<F> {
    batchers: Vec<NodeId>,
    at: usize,
    resend_after: Duration,
    session: SessionId,
    opened: Opened,
    next: Sequence,
    writes: BTreeMap<Sequence, Outstanding>,
    reads: BTreeMap<Sequence, Outstanding>,
    next_read: Sequence,
    /// Writes that are to be sent, the oldest first: all behind those in flight.
    unsent: Vec<Sequence>,
    /// So many writes may be in flight. After a late answer half of those that were; one more with each that is answered. Else a
    /// cluster that is slow would be busy with copies, and with writes that are ahead of what their session may have unacknowledged.
    window: usize,
    unsent_reads: Vec<Sequence>,
    seen: Slot,
    timer_set: bool,
    family: PhantomData<fn() -> F>,
}

impl<F> CommandClient<F> {
    /// A client of the service behind `batchers`. It turns to the next one when an answer takes longer than
    /// `resend_after`.
    pub fn new(batchers: Vec<NodeId>, resend_after: Duration) -> Self {
        Self {
            batchers,
            at: 0,
            resend_after,
            session: SessionId(0),
            opened: Opened::No,
            next: Sequence(0),
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: READS_FROM,
            unsent: Vec::new(),
            window: usize::MAX,
            unsent_reads: Vec::new(),
            seen: Slot(0),
            timer_set: false,
            family: PhantomData,
        }
    }

    /// The slot after the last one this client has written or read.
    pub fn seen(&self) -> Slot {
        self.seen
    }

    /// Calls without an answer.
    pub fn outstanding(&self) -> usize {
        self.writes.len() + self.reads.len()
    }

    /// Gives a call up that nobody has: it is sent no more. False if it was sent to a batcher that has not refused it.
    pub fn give_up(&mut self, id: RequestId) -> bool {
        let is_it = |outstanding: &Outstanding| outstanding.id == id && outstanding.sent == Sent::Nowhere;
        let found = [&mut self.writes, &mut self.reads].into_iter();
        let given_up = found.map(|table| table.extract_if(.., |_, it| is_it(it)).count()).sum::<usize>() > 0;
        self.forget_unsent();
        given_up
    }

    /// Starts at another of the batchers.
    pub fn starting_at(mut self, index: usize) -> Self {
        self.at = index;
        self
    }

    fn batcher(&self) -> NodeId {
        self.batchers[self.at % self.batchers.len()]
    }

    fn in_flight(&self) -> usize {
        self.writes.len() - self.unsent.len()
    }

    /// What has an answer, or was given up, is not to be sent.
    fn forget_unsent(&mut self) {
        let writes = &self.writes;
        self.unsent.retain(|sequence| writes.contains_key(sequence));
    }
}

/// Reads are numbered apart from commands: the session's table need not know them.
const READS_FROM: Sequence = Sequence(1 << 63);
/// Calls of one message.
const ROW_BYTES_MAX: usize = 64 << 10;

impl<F> Role for CommandClient<F>
where
    F: Family<Request = Call, Response = Outcome>,
    F::Message: From<Submit> + From<Query> + From<Reconfigure>,
{
    type Family = F;
    type In = ClientIn;
    type Timer = ClientTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        match message {
            ClientIn::Results(message) => {
                // A batcher that answers is worth staying with.
                if let Some(index) = self.batchers.iter().position(|batcher| batcher.host() == from.host()) {
                    self.at = index;
                }
                self.on_results(message, cx);
            }
            ClientIn::Notice(Notice { .. }) => cx.reject("notice to a client that watches nothing"),
        }
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.session = SessionId(cx.rng().bits());
    }

    fn on_request(&mut self, id: RequestId, call: Call, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let outstanding = Outstanding { id, call, asked_at: now, sent_at: now, sent: Sent::Nowhere };
        if matches!(outstanding.call, Call::Write(_)) {
            self.writes.insert(self.next, outstanding);
            self.unsent.push(self.next);
            self.next = self.next.next();
        } else {
            self.reads.insert(self.next_read, outstanding);
            self.unsent_reads.push(self.next_read);
            self.next_read = self.next_read.next();
        }
    }

    fn on_timer(&mut self, timer: ClientTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ClientTimer::Resend => self.look_for_late_answers(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ClientTimer::Resend, self.timer_set || self.outstanding() > 0)
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.unsent.is_empty() && self.opened == Opened::No {
            self.open(cx);
        }
        if let Opened::Yes(_) = self.opened {
            let room = self.window.saturating_sub(self.in_flight());
            let sent: Vec<Sequence> = self.unsent.drain(..room.min(self.unsent.len())).collect();
            self.send_writes(&sent, cx);
        }
        let unsent = std::mem::take(&mut self.unsent_reads);
        self.send_reads(&unsent, cx);
        if !self.timer_set && self.outstanding() > 0 {
            self.timer_set = true;
            cx.set_timer(ClientTimer::Resend, self.resend_after);
        }
    }
}

impl<F> CommandClient<F>
where
    F: Family<Request = Call, Response = Outcome>,
    F::Message: From<Submit> + From<Query> + From<Reconfigure>,
{
    fn open(&mut self, cx: &mut Cx<'_, Self>) {
        self.opened = Opened::Asked;
        let open = Submit {
            session: self.session,
            acknowledged: Sequence(0),
            kind: GroupKind::Open,
            commands: Commands::default(),
        };
        cx.send(self.batcher(), open);
    }

    fn send_writes(&mut self, sequences: &[Sequence], cx: &mut Cx<'_, Self>) {
        let Opened::Yes(opened) = self.opened else { return };
        let (session, kind) = (self.session, GroupKind::ExecuteIn(opened));
        let acknowledged = self.writes.first_key_value().map_or(self.next, |(&first, _)| first);
        let (to, now, mut row) = (self.batcher(), cx.now(), Vec::new());
        let mut sequences = sequences.iter().peekable();
        while let Some(sequence) = sequences.next() {
            if let Some(Outstanding { call: Call::Write(command), sent, sent_at, .. }) =
                self.writes.get_mut(sequence)
            {
                sent.again();
                *sent_at = now;
                // One that is too large must not have its neighbours refused with it.
                if !row.is_empty() && row.len() + command.len() > ROW_BYTES_MAX {
                    let commands = Commands::from_row(std::mem::take(&mut row));
                    cx.send(to, Submit { session, acknowledged, kind, commands });
                }
                Commands::push(&mut row, *sequence, command);
            }
            if !row.is_empty() && (row.len() >= ROW_BYTES_MAX || sequences.peek().is_none()) {
                let commands = Commands::from_row(std::mem::take(&mut row));
                cx.send(to, Submit { session, acknowledged, kind, commands });
            }
        }
    }

    fn send_reads(&mut self, sequences: &[Sequence], cx: &mut Cx<'_, Self>) {
        // Reads need no session in the log: it only names the answers.
        let session = self.session;
        let (to, seen) =
            (self.batcher(), if planted!(client_watermark_not_raised) { Slot(0) } else { self.seen });
        let mut rows: BTreeMap<Level, Vec<u8>> = BTreeMap::new();
        for &sequence in sequences {
            let Some(outstanding) = self.reads.get_mut(&sequence) else { continue };
            outstanding.sent.again();
            match &outstanding.call {
                Call::Read { query, level } => {
                    Commands::push(rows.entry(*level).or_default(), sequence, query)
                }
                Call::Reconfigure(configuration) => {
                    cx.send(to, Reconfigure { session, sequence, configuration: configuration.clone() });
                }
                Call::Write(_) => {}
            }
        }
        for (level, row) in rows {
            cx.send(to, Query { session, level, seen, queries: Commands::from_row(row) });
        }
    }

    fn on_results(&mut self, message: Results, cx: &mut Cx<'_, Self>) {
        let Results { session, executed, results } = message;
        // Answers to an earlier session, or to an earlier incarnation of this node, are nobody's.
        if self.session != session && !planted!(answer_to_earlier_incarnation_accepted) {
            return;
        }
        let mut lost = false;
        let mut any = false;
        for answered in results.iter() {
            any = true;
            lost |= answered.status == Status::SessionLost && answered.sequence < READS_FROM;
            self.on_answer(answered, executed, cx);
        }
        self.forget_unsent();
        // An opening that was refused as busy comes back empty too, but of no slot; the timer asks again.
        if !any && executed == Slot(0) && self.opened == Opened::Asked {
            self.give_up_what_nobody_has(cx);
        }
        if !any && executed > Slot(0) && self.opened == Opened::Asked {
            self.opened = Opened::Yes(Slot(executed.0.saturating_sub(1)));
            self.unsent = self.writes.keys().copied().collect();
        }
        if lost {
            self.lose_session(cx);
        }
    }

    fn on_answer(&mut self, answered: Answered, executed: Slot, cx: &mut Cx<'_, Self>) {
        if answered.sequence == OPENING && answered.status == Status::DiskFull {
            return self.refuse_what_nobody_has(Refusal::DiskFull, cx);
        }
        if answered.sequence == OPENING && answered.status == Status::NotGranted {
            return self.refuse_what_nobody_has(Refusal::NotGranted, cx);
        }
        let table = if answered.sequence < READS_FROM { &mut self.writes } else { &mut self.reads };
        if !table.contains_key(&answered.sequence) {
            return;
        }
        let outcome = match answered.status {
            Status::Done => Outcome::Done(answered.bytes),
            Status::Malformed => Outcome::Refused(Refusal::Malformed),
            Status::Conflict => Outcome::Refused(Refusal::Conflict),
            // A change of membership of which nobody has the outcome any more.
            Status::SessionLost if answered.sequence >= READS_FROM => {
                Outcome::Refused(Refusal::MaybeExecuted)
            }
            Status::Busy => {
                // A replica that refuses a write may have the batch again, in a later slot; a batcher that does has retained nothing.
                let nothing_retained = executed == Slot(0) || answered.sequence >= READS_FROM;
                let mut known = table.get_mut(&answered.sequence);
                if let Some(outstanding) =
                    known.as_mut().filter(|it| nothing_retained && it.sent == Sent::Once)
                {
                    outstanding.sent = Sent::Nowhere;
                }
                return self.give_up_what_nobody_has(cx);
            }
            Status::DiskFull => {
                if table.get(&answered.sequence).is_none_or(|it| it.sent != Sent::Once) {
                    return;
                }
                Outcome::Refused(Refusal::DiskFull)
            }
            // Another host may have executed a copy before it was refused here.
            Status::NotGranted
                if answered.sequence < READS_FROM
                    && table.get(&answered.sequence).is_some_and(|it| it.sent == Sent::Again) =>
            {
                Outcome::Refused(Refusal::MaybeExecuted)
            }
            Status::NotGranted => Outcome::Refused(Refusal::NotGranted),
            // Given up with the session.
            Status::SessionLost => return,
        };
        if answered.status == Status::Done {
            self.seen = self.seen.max(executed);
        }
        if let Some(outstanding) = table.remove(&answered.sequence) {
            cx.respond(outstanding.id, outcome);
        }
        if answered.status == Status::Done && answered.sequence < READS_FROM {
            self.window = self.window.saturating_add(1);
        }
    }

    /// Calls that were refused wherever they were sent are tried again for a while; the timer does that. Then the caller is notified,
    /// and knows that they were not executed.
    fn give_up_what_nobody_has(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let hopeless =
            |it: &mut Outstanding| it.sent == Sent::Nowhere && now.since(it.asked_at) >= BUSY_WITHIN;
        for table in [&mut self.writes, &mut self.reads] {
            for (_, outstanding) in table.extract_if(.., |_, it| hopeless(it)) {
                cx.mark("client.gave_up_a_busy_call");
                cx.respond(outstanding.id, Outcome::Refused(Refusal::Busy));
            }
        }
        self.forget_unsent();
    }

    /// No session can be opened: the writes that wait for one were not executed.
    fn refuse_what_nobody_has(&mut self, refusal: Refusal, cx: &mut Cx<'_, Self>) {
        if self.opened != Opened::Asked {
            return;
        }
        for (_, outstanding) in self.writes.extract_if(.., |_, it| it.sent == Sent::Nowhere) {
            cx.respond(outstanding.id, Outcome::Refused(refusal));
        }
        self.unsent.clear();
        // Another write asks for it again.
        self.opened = Opened::No;
    }

    /// What was in flight may have been executed before the session went; what was never sent goes to a new one.
    fn lose_session(&mut self, cx: &mut Cx<'_, Self>) {
        cx.mark("client.lost_its_session");
        for (_, outstanding) in std::mem::take(&mut self.writes) {
            let nobody_has_it = outstanding.sent == Sent::Nowhere;
            let refusal = if nobody_has_it { Refusal::Busy } else { Refusal::MaybeExecuted };
            cx.respond(outstanding.id, Outcome::Refused(refusal));
        }
        self.session = SessionId(cx.rng().bits());
        self.opened = Opened::No;
        self.next = Sequence(0);
        self.unsent.clear();
    }

    fn look_for_late_answers(&mut self, cx: &mut Cx<'_, Self>) {
        self.timer_set = false;
        let (now, patience) = (cx.now(), self.resend_after);
        if matches!(self.batchers[..], [batcher] if batcher.host() == cx.node().host()) {
            return self.ask_the_batcher_here_again(cx);
        }
        let late = |outstanding: &Outstanding| now.since(outstanding.sent_at) >= patience;
        let end = match (self.opened, self.unsent.first()) {
            (Opened::Yes(_), Some(&first)) => Bound::Excluded(first),
            _ => Bound::Unbounded,
        };
        let mut in_flight = self.writes.range((Bound::Unbounded, end)).map(|(_, write)| write);
        let any_late = in_flight.any(late) || self.reads.values().any(late);
        if any_late {
            self.turn_to_the_next_batcher(cx);
        }
    }

    /// Nothing is lost on the way to it. A write that it has taken is asked for again only because its answer may have been skipped, by
    /// a replica that took a snapshot.
    fn ask_the_batcher_here_again(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, patience) = (cx.now(), self.resend_after);
        let late = |it: &Outstanding| {
            let taken = it.sent != Sent::Nowhere && matches!(it.call, Call::Write(_));
            now.since(it.sent_at) >= if taken { NEAR_RESEND_AFTER } else { patience }
        };
        let late_of = |table: &mut BTreeMap<Sequence, Outstanding>| -> Vec<Sequence> {
            let late = table.iter_mut().filter(|(_, it)| late(it));
            late.map(|(&sequence, it)| {
                it.sent_at = now;
                sequence
            })
            .collect()
        };
        let (writes, reads) = (late_of(&mut self.writes), late_of(&mut self.reads));
        if writes.is_empty() && reads.is_empty() {
            return;
        }
        cx.mark("client.sent_again");
        match self.opened {
            Opened::Asked => self.open(cx),
            Opened::Yes(_) => self.unsent.extend(writes),
            Opened::No => {}
        }
        self.unsent_reads.extend(reads);
    }

    /// Sends what has no answer again, to another batcher: of the writes as many as may be in flight. A driver whose connection broke calls this at once.
    pub fn turn_to_the_next_batcher(&mut self, cx: &mut Cx<'_, Self>) {
        cx.mark("client.sent_again");
        self.at += 1;
        if let Opened::Yes(_) = self.opened {
            self.window = (self.in_flight() / 2).max(1);
        }
        let now = cx.now();
        self.writes
            .values_mut()
            .chain(self.reads.values_mut())
            .for_each(|outstanding| outstanding.sent_at = now);
        if self.opened == Opened::Asked {
            self.open(cx);
        }
        self.unsent = self.writes.keys().copied().collect();
        self.unsent_reads = self.reads.keys().copied().collect();
    }
}
