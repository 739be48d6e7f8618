//! The load on the key-value service.

use super::closed_loop::{self, Window, Wire};
use consistency::kv::{KvCall, KvHistory, KvReply, OperationId};
use consistency::{Process, Time, Value, Version};
use hdrhistogram::Histogram;
use kernel::{Decode as _, Rng};
use kv::Answer;
use mio::{Poll, Token};
use parts::{Sequence, SessionId, Slot};
use paxos::multipaxos::batcher::{Query, Submit};
use paxos::multipaxos::client::{ClientIn, Status};
use paxos::{Commands, GroupKind, Level, Message};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where the load goes.
pub(crate) struct Target {
    pub(crate) endpoints: Vec<SocketAddr>,
    pub(crate) connections: usize,
    pub(crate) outstanding: usize,
}

/// What the calls are.
pub(crate) struct Mix {
    pub(crate) reads: f64,
    pub(crate) level: Level,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Write every key once, in turn, and stop.
    pub(crate) fill: bool,
    /// Record what was asked and answered; values are unique then, and keys this run's own.
    pub(crate) record: bool,
}

/// One run.
pub(crate) struct Load {
    pub(crate) target: Target,
    pub(crate) mix: Mix,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What it showed.
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) refused: u64,
    pub(crate) seconds: f64,
    /// Nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) server_cpu: Option<Duration>,
    /// What was asked and answered, if it was recorded.
    pub(crate) history: KvHistory,
}

struct Connection {
    number: u64,
    wire: Wire,
    opened: bool,
    session: SessionId,
    next: Sequence,
    acknowledged: Sequence,
    done: std::collections::BTreeSet<Sequence>,
    sent_at: Vec<Instant>,
    recorded: Vec<Option<OperationId>>,
    to_send: usize,
    seen: Slot,
}

/// Reads are numbered apart from commands; see the native protocol.
const READ: u64 = 1 << 63;

impl Load {
    /// Runs the load and measures the processor time of `processes` meanwhile.
    pub(crate) fn run(&self, processes: &[u32]) -> io::Result<Measured> {
        let mut poll = Poll::new()?;
        // A session's name must never be used twice: the cluster would take the new commands for old ones.
        let mut rng = Rng::seeded(server::unique::unique_number());
        let mut connections = Vec::new();
        for index in 0..self.target.connections {
            let endpoint = self.target.endpoints[index % self.target.endpoints.len()];
            let wire = Wire::connect(endpoint, &poll, Token(index))?;
            let session = SessionId(rng.bits());
            connections.push(Connection::new(index as u64, wire, session, self.target.outstanding));
        }
        let window = Window::after(self.warm_up, self.measured);
        let mut tally = Tally {
            begun: Instant::now(),
            issued: 0,
            run: rng.bits(),
            chunk: vec![0; 64 << 10],
            history: KvHistory::new(),
            from: window.from,
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?,
            operations: 0,
            refused: 0,
        };
        let spent = closed_loop::run(
            &mut poll,
            &mut connections,
            window,
            processes,
            |_| false,
            |connection, now| {
                connection.serve(&self.mix, &mut rng, now, &mut tally)?;
                Ok(self.mix.fill && tally.operations >= self.mix.keys)
            },
        )?;
        Ok(Measured {
            operations: tally.operations,
            refused: tally.refused,
            seconds: spent.seconds,
            latency: tally.latency,
            server_cpu: spent.server_cpu,
            history: tally.history,
        })
    }
}

struct Tally {
    begun: Instant,
    from: Instant,
    latency: Histogram<u64>,
    operations: u64,
    refused: u64,
    /// Calls begun.
    issued: u64,
    /// Names this run's keys.
    run: u64,
    history: KvHistory,
    /// What was read last; made once, since to clear it costs as much as a call.
    chunk: Vec<u8>,
}

impl Tally {
    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    /// Calls of one connection overlap, so each is a process of its own to the checker.
    fn asked(
        &mut self,
        connection: u64,
        sequence: Sequence,
        key: &str,
        reads: bool,
        value: &[u8],
    ) -> OperationId {
        let call = if reads {
            KvCall::Get
        } else {
            KvCall::Put(Value::from(String::from_utf8_lossy(value).as_ref()))
        };
        let at = self.now();
        self.history.invoke(Process(connection << 40 | sequence.0), key, call, at)
    }

    fn answered(&mut self, operation: OperationId, status: Status, bytes: &[u8]) {
        let reply = match (status, Answer::decode(bytes)) {
            (Status::Done, Ok(Answer::Written { version, .. })) => KvReply::written(Version(version)),
            (Status::Done, Ok(Answer::Found(None))) => KvReply::absent(),
            (Status::Done, Ok(Answer::Found(Some(found)))) => {
                let value = String::from_utf8_lossy(&found.value).into_owned();
                KvReply::found(Value::from(value.as_str()), Version(found.version))
            }
            (Status::Busy | Status::Malformed, _) => return self.history.fail(operation, self.now()),
            _ => return self.history.unknown(operation),
        };
        let at = self.now();
        self.history.complete(operation, reply, at);
    }
}

impl Connection {
    fn new(number: u64, mut wire: Wire, session: SessionId, outstanding: usize) -> Self {
        let open = Submit {
            session,
            acknowledged: Sequence(0),
            kind: GroupKind::Open,
            commands: Commands::default(),
        };
        wire.writer().message(&Message::from(open));
        Self {
            number,
            wire,
            opened: false,
            session,
            next: Sequence(0),
            acknowledged: Sequence(0),
            done: std::collections::BTreeSet::new(),
            sent_at: vec![Instant::now(); outstanding.next_power_of_two() * 2],
            recorded: vec![None; outstanding.next_power_of_two() * 2],
            to_send: outstanding,
            seen: Slot(0),
        }
    }

    fn serve(&mut self, mix: &Mix, rng: &mut Rng, now: Instant, tally: &mut Tally) -> io::Result<()> {
        self.receive(now, tally)?;
        if self.opened && self.to_send > 0 {
            self.send(mix, rng, now, tally);
        }
        self.wire.flush()
    }

    fn receive(&mut self, now: Instant, tally: &mut Tally) -> io::Result<()> {
        self.wire.receive(&mut tally.chunk)?;
        let mut results = Vec::new();
        self.wire.take(|message| {
            if let Message::Client(ClientIn::Results(message)) =
                Message::decoded(&message).map_err(io::Error::other)?
            {
                results.push(message);
            }
            Ok(())
        })?;
        results.iter().for_each(|message| self.take(message, now, tally));
        Ok(())
    }

    fn take(&mut self, message: &paxos::multipaxos::client::Results, now: Instant, tally: &mut Tally) {
        self.seen = self.seen.max(message.executed);
        let mut any = false;
        for answered in message.results.iter() {
            any = true;
            let number = answered.sequence.0 & !READ;
            let index = number as usize % self.sent_at.len();
            if let Some(operation) = self.recorded[index].take() {
                tally.answered(operation, answered.status, &answered.bytes);
            }
            if answered.status == Status::Done {
                if now >= tally.from {
                    tally.operations += 1;
                    // A latency beyond the histogram's range is its maximum.
                    tally.latency.saturating_record((now - self.sent_at[index]).as_nanos() as u64);
                }
            } else {
                tally.refused += 1;
            }
            self.acknowledge(Sequence(number));
            self.to_send += 1;
        }
        self.opened |= !any;
    }

    /// Answers come in any order; the server learns below which number none is missing.
    fn acknowledge(&mut self, sequence: Sequence) {
        if sequence != self.acknowledged {
            self.done.insert(sequence);
            return;
        }
        self.acknowledged = sequence.next();
        while self.done.remove(&self.acknowledged) {
            self.acknowledged = self.acknowledged.next();
        }
    }

    fn send(&mut self, mix: &Mix, rng: &mut Rng, now: Instant, tally: &mut Tally) {
        // Numbers must not run further ahead of the oldest unanswered one than there is room to remember.
        let room = self.sent_at.len() as u64 - (self.next.0 - self.acknowledged.0);
        let count = self.to_send.min(room as usize);
        self.to_send -= count;
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        let mut command = Vec::with_capacity(mix.value_bytes + 64);
        let mut value = vec![b'v'; mix.value_bytes];
        for _ in 0..count {
            let number = if mix.fill { tally.issued % mix.keys } else { rng.below(mix.keys) };
            tally.issued += 1;
            let reads_now = rng.unit() < mix.reads;
            let key =
                if mix.record { format!("{:016x}-{number}", tally.run) } else { format!("key-{number:012}") };
            if mix.record {
                value = format!("{:0>width$}", tally.issued, width = mix.value_bytes).into_bytes();
            }
            let index = self.next.0 as usize % self.sent_at.len();
            self.sent_at[index] = now;
            self.recorded[index] =
                mix.record.then(|| tally.asked(self.number, self.next, &key, reads_now, &value));
            command.clear();
            if reads_now {
                kv::Query::Get { key: key.as_bytes() }.encode(&mut command);
                Commands::push(&mut reads, Sequence(self.next.0 | READ), &command);
            } else {
                kv::Command::Put { key: key.as_bytes(), value: &value }.encode(&mut command);
                Commands::push(&mut writes, self.next, &command);
            }
            self.next = self.next.next();
        }
        let (session, acknowledged) = (self.session, self.acknowledged);
        if !writes.is_empty() {
            let commands = Commands::from_row(writes);
            let submit = Submit { session, acknowledged, kind: GroupKind::Execute, commands };
            self.wire.writer().message(&Message::from(submit));
        }
        if !reads.is_empty() {
            let queries = Commands::from_row(reads);
            self.wire.writer().message(&Message::from(Query {
                session,
                level: mix.level,
                seen: self.seen,
                queries,
            }));
        }
    }
}
