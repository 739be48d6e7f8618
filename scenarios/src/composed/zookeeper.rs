//! The ZooKeeper client of one host: the users there share its connection and its session. It comes back when it is disconnected, and
//! says of what it had asked for that it does not know.

use crate::coordination::words::{
    Ask, Body, Heard, NO_NODE, NODE_EXISTS, greeting, read_frame, read_greeting, take_frame,
};
use ::mason::{Mason, MasonMember};
use coordination::{Gateway, HomeSessions, Znodes};
use kernel::client::{Connected, ConnectionIn, Input, Response, Taken};
use kernel::{Bytes, Cx, NodeId, Position, RequestId, Role};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

kernel::nodes! {
    /// A node of the coordination service, or a host's client.
    pub enum ZkSeat of Mason {
        /// A role of the service.
        node Member(Box<MasonMember<HomeSessions, Znodes, Gateway>>),
        /// A host's client.
        role Client(ZkClient) "client",
    }
}

impl ZkSeat {
    /// The role of the service; none if it is a client.
    pub(super) fn member(&self) -> Option<&MasonMember<HomeSessions, Znodes, Gateway>> {
        match self {
            Self::Member(member) => Some(member),
            Self::Client(_) => None,
        }
    }
}

/// The nodes that are read and written.
pub(super) const ZNODES: [&str; 3] = ["/a", "/b", "/c"];
/// How long its sessions are to last, in milliseconds.
const TIMEOUT: i32 = 8_000;
const PING_EVERY: Duration = Duration::from_millis(500);
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// What a user wants done with a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ZkCall {
    Get(&'static str),
    Set(&'static str, String),
}

/// What it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ZkAnswer {
    /// It was written by this change.
    Written(u64),
    /// It has this value, which this change has written; none: nobody has written it.
    Found(Option<(u64, String)>),
    /// Nothing was done.
    Void,
    /// Nobody knows.
    Unknown,
}

impl ZkCall {
    /// As a request of the client.
    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Get(path) => format!("get {path}").into(),
            Self::Set(path, value) => format!("set {path} {value}").into(),
        }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let (verb, path) = (words.next()?, words.next()?);
        let path = ZNODES.into_iter().find(|known| *known == path)?;
        match verb {
            "get" => Some(Self::Get(path)),
            "set" => Some(Self::Set(path, words.next()?.to_owned())),
            _ => None,
        }
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Get(path) => Ask::Get { path: (*path).to_owned(), watch: false },
            Self::Set(path, value) => {
                Ask::Set { path: (*path).to_owned(), value: value.clone(), version: -1 }
            }
        }
    }
}

impl ZkAnswer {
    fn to_bytes(&self) -> Bytes {
        match self {
            Self::Written(zxid) => format!("written {zxid}").into(),
            Self::Found(Some((zxid, value))) => format!("found {zxid} {value}").into(),
            Self::Found(None) => Bytes::from_static(b"absent"),
            Self::Void => Bytes::from_static(b"void"),
            Self::Unknown => Bytes::from_static(b"unknown"),
        }
    }

    /// An answer of the client.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let kind = words.next()?;
        let mut zxid = || words.next()?.parse().ok();
        match kind {
            "written" => Some(Self::Written(zxid()?)),
            "found" => Some(Self::Found(Some((zxid()?, words.next()?.to_owned())))),
            "absent" => Some(Self::Found(None)),
            "void" => Some(Self::Void),
            "unknown" => Some(Self::Unknown),
            _ => None,
        }
    }

    fn to_ask(ask: &Ask, error: i32, body: &[u8]) -> Self {
        match (error, ask.read_answer(body)) {
            (NO_NODE, _) if matches!(ask, Ask::Get { .. }) => Self::Found(None),
            (0, Some(Body::Stat(stat))) => Self::Written(stat.mzxid as u64),
            (0, Some(Body::Data(value, _))) if value.is_empty() => Self::Found(None),
            (0, Some(Body::Data(value, stat))) => Self::Found(Some((stat.mzxid as u64, value))),
            (NO_NODE | NODE_EXISTS, _) => Self::Void,
            _ => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Closed,
    Greeting,
    Open,
}

kernel::timers! {
    /// The timers of a host's client.
    pub enum ZkClientTimer {
        /// Say that the session is alive.
        Ping,
        /// Connect again.
        Reconnect,
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct ZkClient {
    gateway: NodeId,
    link: Link,
    session: (u64, Vec<u8>),
    last_zxid: u64,
    input: Vec<u8>,
    taken: u64,
    xid: i32,
    /// What is not sent yet, and what is not answered; the client's own requests have no number.
    queued: VecDeque<(Option<RequestId>, Ask)>,
    awaited: VecDeque<(Option<RequestId>, Ask)>,
}

impl ZkClient {
    /// A client of this host's gateway.
    pub(super) fn new(gateway: NodeId) -> Self {
        Self {
            gateway,
            link: Link::Closed,
            session: (0, vec![0; 16]),
            last_zxid: 0,
            input: Vec::new(),
            taken: 0,
            xid: 0,
            queued: VecDeque::new(),
            awaited: VecDeque::new(),
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, Self>) {
        self.link = Link::Greeting;
        (self.taken, self.xid) = (0, 0);
        self.input.clear();
        cx.send(self.gateway, Connected { address: "10.0.0.1".to_owned(), certificate: None, port: None });
        let bytes = greeting(self.last_zxid, TIMEOUT, self.session.0, &self.session.1);
        cx.send(self.gateway, Input { bytes: bytes.into() });
    }

    fn on_output(&mut self, bytes: &[u8], cx: &mut Cx<'_, Self>) {
        self.taken += bytes.len() as u64;
        cx.send(self.gateway, Taken { bytes: self.taken });
        self.input.extend_from_slice(bytes);
        while let Some(frame) = take_frame(&mut self.input) {
            match self.link {
                Link::Greeting => {
                    let Some((timeout, id, password)) = read_greeting(&frame) else { return };
                    let is_new = id != self.session.0;
                    if timeout == 0 {
                        // It is over: the gateway closes, and the next connection asks for another one.
                        self.session = (0, vec![0; 16]);
                        continue;
                    }
                    (self.link, self.session) = (Link::Open, (id, password));
                    if is_new {
                        let (value, flags) = (String::new(), 0);
                        let create =
                            |path: &str| Ask::Create { path: path.to_owned(), value: value.clone(), flags };
                        ZNODES.iter().for_each(|path| self.queued.push_front((None, create(path))));
                    }
                }
                Link::Open => match read_frame(&frame) {
                    Some(Heard::Reply { xid, .. }) if xid == PING => {}
                    Some(Heard::Reply { zxid, error, body, .. }) => {
                        self.last_zxid = self.last_zxid.max(zxid.max(0) as u64);
                        if let Some((id, ask)) = self.awaited.pop_front() {
                            answer(id, &ZkAnswer::to_ask(&ask, error, &body), cx);
                        }
                    }
                    Some(Heard::Event { .. }) | None => {}
                },
                Link::Closed => {}
            }
        }
        self.send_queued(cx);
    }

    fn send_queued(&mut self, cx: &mut Cx<'_, Self>) {
        while self.link == Link::Open
            && let Some((id, ask)) = self.queued.pop_front()
        {
            self.xid += 1;
            cx.send(self.gateway, Input { bytes: ask.framed(self.xid).into() });
            self.awaited.push_back((id, ask));
        }
    }

    fn on_closed(&mut self, cx: &mut Cx<'_, Self>) {
        self.link = Link::Closed;
        for (id, _) in self.awaited.drain(..) {
            answer(id, &ZkAnswer::Unknown, cx);
        }
        cx.set_timer(ZkClientTimer::Reconnect, RECONNECT_AFTER);
    }
}

/// The number of pings and of their answers.
const PING: i32 = -2;

fn answer(id: Option<RequestId>, answer: &ZkAnswer, cx: &mut Cx<'_, ZkClient>) {
    if let Some(id) = id {
        cx.respond(id, Response(answer.to_bytes()));
    }
}

impl Role for ZkClient {
    type Family = Mason;
    type In = ConnectionIn;
    type Timer = ZkClientTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.connect(cx);
        cx.set_timer(ZkClientTimer::Ping, PING_EVERY);
    }

    fn on_message(&mut self, _from: NodeId, message: ConnectionIn, cx: &mut Cx<'_, Self>) {
        match message {
            ConnectionIn::Output(output) => self.on_output(&output.bytes, cx),
            ConnectionIn::Close(_) => self.on_closed(cx),
            // Its users ask so little that nobody has to be slowed down.
            ConnectionIn::Pause(_) => {}
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match ZkCall::of(&request) {
            Some(call) => self.queued.push_back((Some(id), call.ask())),
            None => answer(Some(id), &ZkAnswer::Void, cx),
        }
        self.send_queued(cx);
    }

    fn on_timer(&mut self, timer: ZkClientTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ZkClientTimer::Ping => {
                cx.set_timer(ZkClientTimer::Ping, PING_EVERY);
                if self.link == Link::Open {
                    cx.send(self.gateway, Input { bytes: Ask::Ping.framed(PING).into() });
                }
            }
            ZkClientTimer::Reconnect if self.link == Link::Closed => self.connect(cx),
            ZkClientTimer::Reconnect => {}
        }
    }
}
