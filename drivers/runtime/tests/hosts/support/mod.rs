//! A family of two roles for tests: askers keep a number of questions in flight, an oracle journals and answers them.
#![allow(dead_code, missing_docs, unreachable_pub)]

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, RequestId, Role};
use runtime::{HostConfig, PeerConfig};
use std::net::TcpListener;
use std::time::{Duration, Instant};

kernel::messages! {
    /// To the oracle.
    pub enum OracleIn in Message::Oracle {
        /// Journal the question, then answer.
        1 => Ask { number: u64, payload: kernel::Bytes },
        /// Answer at once.
        2 => Glance { number: u64, payload: kernel::Bytes },
        /// Answer as to all such questions.
        3 => Greet {},
        /// Answer without end.
        4 => Watch {},
        /// And no more.
        5 => Dark {},
    }
}

kernel::messages! {
    /// To the asker.
    pub enum AskerIn in Message::Asker {
        /// The answer.
        1 => Reported { number: u64 },
    }
}

kernel::timers! {
    /// The asker's timers.
    pub enum AskerTimer {
        /// Nothing came back for a while: ask again.
        Again,
    }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Talk {
        1 => Oracle(OracleIn, Oracle, "oracle"),
        2 => Asker(AskerIn, Asker, "asker"),
    }
}

#[derive(Debug)]
pub struct Talk;

impl Family for Talk {
    type Message = Message;
    type Request = Question;
    type Response = u64;
}

/// Ask `count` questions, `window` at a time; answered with their number when all are answered.
#[derive(Clone, Debug)]
pub struct Question {
    pub oracle: NodeId,
    pub count: u64,
    pub window: u64,
    pub durable: bool,
    pub payload: kernel::Bytes,
}

/// What is asked so is answered with the same each time.
pub const GREETING: &[u8] = b"hello";
/// What is asked so is answered by a beacon.
pub const WATCH: &[u8] = b"watch";
/// Stops it; answered at once.
pub const DARK: &[u8] = b"dark";
/// Answered at once with how old the beacon is, in milliseconds; [`NEVER`] if there is none.
pub const AGE: &[u8] = b"age";
pub const NEVER: u64 = u64::MAX;

/// Remembers how many questions it has journaled.
#[derive(Debug, Default)]
pub struct Oracle {
    pub journaled: u64,
    pub restored: Vec<(Position, u64)>,
    /// Keep so many records; trim the rest.
    pub keep: Option<u64>,
}

impl Role for Oracle {
    type Family = Talk;
    type In = OracleIn;
    type Timer = std::convert::Infallible;
    type Record = (u64, kernel::Bytes);

    fn restore(&mut self, position: Position, (number, _): (u64, kernel::Bytes)) {
        self.journaled = position.0 + 1;
        self.restored.push((position, number));
    }

    fn on_message(&mut self, from: NodeId, message: OracleIn, cx: &mut Cx<'_, Self>) {
        match message {
            OracleIn::Ask(Ask { number, payload }) => {
                let at = cx.append(&(number, payload));
                self.journaled = at.0 + 1;
                cx.send_durable(from, Reported { number });
                if let Some(keep) = self.keep.filter(|keep| at.0.is_multiple_of(*keep) && at.0 >= *keep) {
                    cx.trim(Position(at.0 - keep));
                }
            }
            OracleIn::Glance(Glance { number, .. }) => cx.send(from, Reported { number }),
            OracleIn::Watch(Watch {}) => cx.set_beacon([from], Reported { number: 7 }),
            OracleIn::Dark(Dark {}) => cx.stop_beacon([from]),
            OracleIn::Greet(Greet {}) => cx.repeat([from], Reported { number: 0 }),
        }
    }
}

#[derive(Debug, Default)]
pub struct Asker {
    run: Option<(RequestId, Question)>,
    sent: u64,
    reported: u64,
    pub highest: u64,
}

impl Asker {
    fn ask(&mut self, cx: &mut Cx<'_, Self>) {
        let Some((_, question)) = &self.run else { return };
        while self.sent < question.count.min(self.reported + question.window) {
            let (number, payload) = (self.sent, question.payload.clone());
            match question.durable {
                _ if question.payload == WATCH => cx.send(question.oracle, Watch {}),
                _ if question.payload == GREETING => cx.send(question.oracle, Greet {}),
                true => cx.send(question.oracle, Ask { number, payload }),
                false => cx.send(question.oracle, Glance { number, payload }),
            }
            self.sent += 1;
        }
    }
}

impl Role for Asker {
    type Family = Talk;
    type In = AskerIn;
    type Timer = AskerTimer;
    type Record = std::convert::Infallible;

    fn restore(&mut self, _position: Position, record: std::convert::Infallible) {
        match record {}
    }

    fn on_message(&mut self, _from: NodeId, message: AskerIn, cx: &mut Cx<'_, Self>) {
        let AskerIn::Reported(Reported { number }) = message;
        self.reported += 1;
        self.highest = self.highest.max(number);
        cx.set_timer(AskerTimer::Again, Duration::from_millis(50));
        if let Some((id, question)) = &self.run
            && self.reported == question.count
        {
            cx.respond(*id, self.reported);
            cx.stop_timer(AskerTimer::Again);
            self.run = None;
        }
    }

    fn on_timer(&mut self, AskerTimer::Again: AskerTimer, cx: &mut Cx<'_, Self>) {
        // Links lose messages: what was not answered is asked anew.
        self.sent = self.reported;
        cx.set_timer(AskerTimer::Again, Duration::from_millis(50));
        self.ask(cx);
    }

    fn on_request(&mut self, id: RequestId, question: Question, cx: &mut Cx<'_, Self>) {
        if question.payload == AGE {
            let age = cx.beacon_heard_at(question.oracle).map(|at| cx.now().since(at).as_millis() as u64);
            return cx.respond(id, age.unwrap_or(NEVER));
        }
        if question.payload == DARK {
            cx.send(question.oracle, Dark {});
            return cx.respond(id, 0);
        }
        (self.sent, self.reported) = (0, 0);
        self.run = Some((id, question));
        cx.set_timer(AskerTimer::Again, Duration::from_millis(50));
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.ask(cx);
    }
}

pub const ORACLE: HostSlot = HostSlot(1);
pub const ASKER: HostSlot = HostSlot(2);
/// For whatever has to happen at all; machines that run tests are slow and busy.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn oracle_of(host: &str) -> NodeId {
    NodeId::new(HostId::named(host), ORACLE)
}

pub fn both() -> Vec<(HostSlot, Member)> {
    vec![(ORACLE, Member::Oracle(Oracle::default())), (ASKER, Member::Asker(Asker::default()))]
}

pub fn question(host: &str, count: u64) -> Question {
    Question {
        oracle: oracle_of(host),
        count,
        window: 8,
        durable: true,
        payload: kernel::Bytes::from_static(b"why"),
    }
}

pub fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("loopback has free ports")
}

/// Configurations of hosts that know each other.
pub fn cluster(names: &[&str]) -> Vec<HostConfig> {
    let listeners: Vec<_> = names.iter().map(|_| listener()).collect();
    let peer = |(name, listener): (&&str, &TcpListener)| PeerConfig {
        name: (*name).to_owned(),
        address: listener.local_addr().expect("it is bound").to_string(),
    };
    let peers: Vec<PeerConfig> = names.iter().zip(&listeners).map(peer).collect();
    let configure = |(name, listener): (&&str, TcpListener)| HostConfig {
        listen: Some(listener),
        peers: peers.iter().filter(|peer| peer.name != *name).cloned().collect(),
        ..HostConfig::new("test", name)
    };
    names.iter().zip(listeners).map(configure).collect()
}

/// Asks until it is so; fails the test after `LIMIT`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::yield_now();
    }
}

/// A directory that goes away with the value.
pub struct Scratch(std::path::PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::path::Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap_or("target"))
            .join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the target directory can be written");
        Self(path)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
