//! What the runtime costs around handlers that do nothing: two hosts on loopback, questions and answers.

use super::processor;
use kernel::{Bytes, Cx, Family, HostId, HostSlot, NodeId, Position, RequestId, Role};
use runtime::{Host, HostConfig, PeerConfig};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

kernel::messages! {
    /// To the one that answers.
    pub enum EchoIn in Message::Echo {
        /// Answer this.
        1 => Question {
            /// Is carried and not looked at.
            payload: Bytes,
        },
    }
}

kernel::messages! {
    /// To the one that asks.
    pub enum AskerIn in Message::Asker {
        /// The answer.
        1 => Reported {
            /// As in the question.
            payload: Bytes,
        },
    }
}

kernel::timers! {
    /// The asker's timers.
    pub enum AskerTimer {
        /// Nothing came for a while: ask anew.
        Again,
    }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Talk {
        /// Answers.
        1 => Echo(EchoIn, Echo, "echo"),
        /// Asks.
        2 => Asker(AskerIn, Asker, "asker"),
    }
}

/// Questions and answers.
#[derive(Debug)]
pub struct Talk;

impl Family for Talk {
    type Message = Message;
    type Request = Row;
    type Response = u64;
}

/// So many questions, so many at a time.
#[derive(Clone, Debug)]
pub struct Row {
    count: u64,
    window: u64,
    payload: Bytes,
}

/// Answers every question with what it carries.
#[derive(Debug)]
pub struct Echo;

impl Role for Echo {
    type Family = Talk;
    type In = EchoIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: EchoIn, cx: &mut Cx<'_, Self>) {
        let EchoIn::Question(Question { payload }) = message;
        cx.send(from, Reported { payload });
    }
}

/// Keeps questions in flight.
#[derive(Debug, Default)]
pub struct Asker {
    row: Option<(RequestId, Row)>,
    sent: u64,
    reported: u64,
}

const ECHO: HostSlot = HostSlot(1);
const ASKER: HostSlot = HostSlot(2);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

impl Role for Asker {
    type Family = Talk;
    type In = AskerIn;
    type Timer = AskerTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_request(&mut self, id: RequestId, row: Row, cx: &mut Cx<'_, Self>) {
        (self.sent, self.reported) = (0, 0);
        self.row = Some((id, row));
        cx.set_timer(AskerTimer::Again, AGAIN_AFTER);
    }

    fn on_message(&mut self, _from: NodeId, message: AskerIn, cx: &mut Cx<'_, Self>) {
        let AskerIn::Reported(Reported { .. }) = message;
        self.reported += 1;
        if let Some((id, row)) = &self.row
            && self.reported == row.count
        {
            cx.respond(*id, self.reported);
            cx.stop_timer(AskerTimer::Again);
            self.row = None;
        }
    }

    fn on_timer(&mut self, _timer: AskerTimer, cx: &mut Cx<'_, Self>) {
        // Links lose messages while they come up: what was not answered is asked anew.
        self.sent = self.reported;
        cx.set_timer(AskerTimer::Again, AGAIN_AFTER);
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        let Some((_, row)) = &self.row else { return };
        while self.sent < row.count.min(self.reported + row.window) {
            cx.send(NodeId::new(HostId::named("b"), ECHO), Question { payload: row.payload.clone() });
            self.sent += 1;
        }
    }
}

/// What one of each costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// A burst that reads from one host and writes to one.
    pub(super) burst: f64,
    /// A message, received by one host and sent by another.
    pub(super) message: f64,
    /// A byte of it.
    pub(super) byte: f64,
}

/// One measurement: bursts, messages and bytes, and the processor time of both hosts.
struct Taken {
    bursts: f64,
    messages: f64,
    bytes: f64,
    nanos: f64,
}

/// Configurations of hosts on loopback that know each other.
pub(super) fn cluster(names: &[&str]) -> io::Result<Vec<HostConfig>> {
    let listeners: Vec<TcpListener> =
        names.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
    let mut peers = Vec::new();
    for (name, listener) in names.iter().zip(&listeners) {
        peers.push(PeerConfig { name: (*name).to_owned(), address: listener.local_addr()?.to_string() });
    }
    let configure = |(name, listener): (&&str, TcpListener)| HostConfig {
        listen: Some(listener),
        peers: peers.iter().filter(|peer| peer.name != *name).cloned().collect(),
        ..HostConfig::new("calibrate", name)
    };
    Ok(names.iter().zip(listeners).map(configure).collect())
}

const LIMIT: Duration = Duration::from_secs(120);

fn take(
    hosts: &[Host<Member>],
    threads: &[u64],
    window: u64,
    bytes: usize,
    each: Duration,
) -> io::Result<Taken> {
    let broken = |what: &str| io::Error::other(format!("hosts on loopback: {what}"));
    let bursts = || -> io::Result<u64> {
        let metrics =
            hosts.iter().map(|host| host.handle().metrics().wait(LIMIT).map(|metrics| metrics.bursts));
        metrics.map(|bursts| bursts.map_err(|_| broken("no metrics"))).sum()
    };
    let ask = |count: u64| {
        let payload = vec![7; bytes].into();
        let answer = hosts[0].handle().request(ASKER, Row { count, window, payload });
        answer.wait(LIMIT).map_err(|_| broken("no answer"))
    };
    let began = Instant::now();
    let warm_up = 500.max(20 * window);
    ask(warm_up)?;
    let count = (warm_up as f64 * each.as_secs_f64() / began.elapsed().as_secs_f64()) as u64 + warm_up;
    let (bursts_before, used_before) = (bursts()?, processor::used_by(threads)?);
    ask(count)?;
    let used = processor::used_by(threads)?.saturating_sub(used_before);
    let messages = 2.0 * count as f64;
    Ok(Taken {
        bursts: (bursts()? - bursts_before) as f64,
        messages,
        bytes: messages * bytes as f64,
        nanos: used.as_nanos() as f64,
    })
}

/// Three measurements, three unknowns.
pub(super) fn measure(each: Duration) -> io::Result<Costs> {
    let (hosts, threads) = processor::started_by(|| {
        let mut hosts = Vec::new();
        for config in cluster(&["a", "b"])? {
            let nodes = || vec![(ECHO, Member::Echo(Echo)), (ASKER, Member::Asker(Asker::default()))];
            hosts.push(Host::start(config, nodes, vec![]).map_err(io::Error::other)?);
        }
        Ok(hosts)
    })?;
    let small = take(&hosts, &threads, 1, 64, each)?;
    let many = take(&hosts, &threads, 64, 64, each)?;
    let large = take(&hosts, &threads, 64, 4_096, each)?;
    // Alternately: a few rounds settle, because each unknown weighs most in one of the three.
    let (mut burst, mut message, mut byte) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..50 {
        burst = ((small.nanos - small.messages * message - small.bytes * byte) / small.bursts).max(0.0);
        message = ((many.nanos - many.bursts * burst - many.bytes * byte) / many.messages).max(0.0);
        byte = ((large.nanos - large.bursts * burst - large.messages * message) / large.bytes).max(0.0);
    }
    Ok(Costs { burst, message, byte })
}
