//! A user: one session after the other, one connection at a time, as a ZooKeeper client library keeps them.

use super::lasting::Lasting;
use super::words::{Ask, Heard, Watched, greeting, read_frame, read_greeting, take_frame};
use kernel::{HostId, NodeId, RequestId, invariant};
use std::collections::{BTreeMap, VecDeque};

/// A watch whose event has not come.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    /// The zxid of the answer that left it.
    pub(crate) since: u64,
    /// The largest zxid of an answer since.
    pub(crate) shown: u64,
    /// There was no node.
    pub(crate) absent: bool,
    /// When the user that came back last learned that there is still none: what came and went meanwhile is announced to nobody,
    /// as ZooKeeper has it.
    pub(crate) renewed_at: Option<u64>,
    /// The host has answered that it does not watch: the event is on its way.
    pub(crate) is_denied: bool,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    xid: i32,
    pub(crate) ask: Ask,
    pub(crate) at: u64,
    /// Part of the user's operation, and not the client library's own.
    pub(crate) of_task: bool,
    /// When the last sync before it on this connection was asked for.
    pub(crate) synced_at: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) host: HostId,
    pub(crate) socket: NodeId,
    pub(crate) poll: RequestId,
    input: Vec<u8>,
    pub(crate) awaited: VecDeque<Awaited>,
    pub(crate) greeted: bool,
    xid: i32,
    pub(crate) began_at: u64,
    pub(crate) said_at: u64,
    pub(crate) pinged_at: Option<u64>,
    synced_at: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    password: Vec<u8>,
    /// In nanoseconds.
    pub(crate) timeout: u64,
    pub(crate) attached_at: u64,
    /// When it last got an answer to anything.
    pub(crate) heard_at: u64,
}

/// The operation at hand.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) asks: VecDeque<Ask>,
    /// All are sent at once.
    pub(crate) pipelined: bool,
}

/// An ephemeral node in the queue for the lock.
#[derive(Clone, Debug)]
pub(crate) struct QueuePosition {
    pub(crate) path: String,
    pub(crate) session: u64,
    pub(crate) since: u64,
    pub(crate) leaving: bool,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) link: Option<Link>,
    pub(crate) session: Option<Session>,
    pub(crate) retry_at: u64,
    /// How often it has connected to each host.
    pub(crate) attempts: BTreeMap<HostId, u32>,
    /// How much longer it waits, and asks its session to last, since answers came too late: at most [`STRETCH_MAX`].
    pub(crate) stretch: u32,
    /// In milliseconds; what it asks for.
    pub(crate) timeout: i32,
    pub(crate) last_zxid: u64,
    /// Counts events among what it has seen when it comes back.
    counts_events: bool,
    /// It gives a wrong password on the connection at hand.
    forges: bool,
    pub(crate) watches: BTreeMap<(Watched, String), Armed>,
    pub(crate) lasting: Lasting,
    pub(crate) task: Option<Task>,
    pub(crate) ticket: Option<RequestId>,
    /// Version and zxid of what it has last seen of a node.
    pub(crate) known: BTreeMap<String, (i32, u64)>,
    pub(crate) queued: Option<QueuePosition>,
}

/// Links may take a second for a message one way: a user that gives up sooner never gets an answer.
const STRETCH_MAX: u32 = 8;
/// What the service grants, in milliseconds.
pub(crate) const TIMEOUTS: (i32, i32) = (1_000, 8_000);

/// What a user is sent.
pub(crate) enum News {
    /// The session is granted.
    Attached,
    /// The session is refused: it is over.
    Refused(Option<Session>),
    /// A wrong password was not taken.
    TurnedAway,
    /// A ping sent then is answered.
    Pong {
        pinged_at: u64,
    },
    Event {
        kind: i32,
        path: String,
        zxid: i64,
        armed: Vec<Armed>,
    },
    Answer {
        awaited: Awaited,
        /// The highest zxid of answers before.
        seen: u64,
        zxid: u64,
        error: i32,
        body: Vec<u8>,
    },
}

impl User {
    pub(crate) fn new(timeout: i32, counts_events: bool) -> Self {
        Self {
            link: None,
            session: None,
            retry_at: 0,
            attempts: BTreeMap::new(),
            stretch: 1,
            timeout,
            last_zxid: 0,
            counts_events,
            forges: false,
            watches: BTreeMap::new(),
            lasting: Lasting::default(),
            task: None,
            ticket: None,
            known: BTreeMap::new(),
            queued: None,
        }
    }

    /// The first frame for a new connection.
    /// `forges`: with a wrong password, if it has a session.
    pub(crate) fn greeting(&mut self, forges: bool) -> Vec<u8> {
        let timeout = self.timeout * self.stretch as i32;
        self.forges = forges && self.session.is_some();
        match &self.session {
            Some(session) if self.forges => {
                let password: Vec<u8> = session.password.iter().map(|byte| !byte).collect();
                greeting(self.last_zxid, timeout, session.id, &password)
            }
            Some(session) => greeting(self.last_zxid, timeout, session.id, &session.password),
            None => greeting(self.last_zxid, timeout, 0, &[0; 16]),
        }
    }

    pub(crate) fn connected(&mut self, host: HostId, socket: NodeId, poll: RequestId, now: u64) {
        self.watches.values_mut().for_each(|armed| armed.is_denied = false);
        self.link = Some(Link {
            host,
            socket,
            poll,
            input: Vec::new(),
            awaited: VecDeque::new(),
            greeted: false,
            xid: 0,
            began_at: now,
            said_at: now,
            pinged_at: None,
            synced_at: None,
        });
    }

    /// An answer took longer than the user waited.
    pub(crate) fn waited_in_vain(&mut self) {
        self.stretch = (2 * self.stretch).min(STRETCH_MAX);
    }

    /// The connection is gone; what was asked on it may have happened or not.
    pub(crate) fn disconnected(&mut self) -> Vec<Awaited> {
        self.lasting.forget_connection();
        self.link.take().map(|link| link.awaited.into()).unwrap_or_default()
    }

    /// The bytes of a request, which counts as asked from now on; none where nobody is connected.
    pub(crate) fn ask(&mut self, ask: Ask, of_task: bool, now: u64) -> Option<(NodeId, Vec<u8>)> {
        let link = self.link.as_mut()?;
        link.said_at = now;
        if ask == Ask::Ping {
            link.pinged_at.get_or_insert(now);
            return Some((link.socket, ask.framed(-2)));
        }
        let xid = if matches!(ask, Ask::SetWatches { .. }) {
            -8
        } else {
            link.xid += 1;
            link.xid
        };
        let bytes = ask.framed(xid);
        let synced_at = link.synced_at;
        if matches!(ask, Ask::Sync { .. }) {
            link.synced_at = Some(now);
        }
        link.awaited.push_back(Awaited { xid, ask, at: now, of_task, synced_at });
        Some((link.socket, bytes))
    }

    /// Bytes have arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if let Some(link) = &mut self.link {
            link.input.extend_from_slice(bytes);
        }
    }

    /// The next thing that the user learns.
    pub(crate) fn hear(&mut self, now: u64) -> Option<News> {
        let link = self.link.as_mut()?;
        let frame = take_frame(&mut link.input)?;
        if !link.greeted {
            let greeting = read_greeting(&frame);
            invariant!(WIRE, greeting.is_some(), "no greeting: {frame:?}");
            let (timeout, id, password) = greeting?;
            if self.forges {
                invariant!(
                    SESS,
                    timeout == 0,
                    "session {id:x} was granted to who does not know its password"
                );
                return Some(News::TurnedAway);
            }
            if timeout == 0 {
                return Some(News::Refused(self.session.take()));
            }
            link.greeted = true;
            let asked = (self.timeout * self.stretch as i32).clamp(TIMEOUTS.0, TIMEOUTS.1);
            invariant!(SESS, timeout == asked, "asked for {asked} ms in session {id:x}, and got {timeout}");
            let same = self.session.as_ref().is_none_or(|session| session.id == id);
            invariant!(SESS, same, "asked for session {:?} and got {id:x}", self.session);
            let timeout = timeout as u64 * 1_000_000;
            self.session = Some(Session { id, password, timeout, attached_at: now, heard_at: now });
            return Some(News::Attached);
        }
        if let Some(session) = &mut self.session {
            session.heard_at = now;
        }
        let heard = read_frame(&frame);
        invariant!(WIRE, heard.is_some(), "neither an answer nor an event: {frame:?}");
        match heard? {
            Heard::Event { kind, path, zxid } => {
                if zxid > 0 {
                    self.lasting.on_event(kind, &path, zxid as u64);
                    if self.counts_events {
                        self.last_zxid = self.last_zxid.max(zxid as u64);
                    }
                }
                let armed = self.fire(kind, &path);
                Some(News::Event { kind, path, zxid, armed })
            }
            Heard::Reply { xid: -2, .. } => Some(News::Pong { pinged_at: link.pinged_at.take()? }),
            Heard::Reply { xid, zxid, error, body } => {
                let awaited = link.awaited.pop_front();
                let expected = awaited.as_ref().map(|awaited| awaited.xid);
                invariant!(XID, expected == Some(xid), "answer {xid} came when {expected:?} was due");
                let zxid = zxid.max(0) as u64;
                let last = self.last_zxid;
                invariant!(
                    ZXID,
                    zxid == 0 || zxid >= last,
                    "zxid {zxid} after {last} in session {:?}",
                    self.session
                );
                self.last_zxid = last.max(zxid);
                self.lasting.on_answer(zxid);
                Some(News::Answer { awaited: awaited?, seen: last, zxid, error, body })
            }
        }
    }

    /// Takes away the watches that an event ends.
    fn fire(&mut self, kind: i32, path: &str) -> Vec<Armed> {
        let ends: &[Watched] = match kind {
            1 | 3 => &[Watched::Data],
            2 => &[Watched::Data, Watched::Children],
            _ => &[Watched::Children],
        };
        ends.iter().filter_map(|&kind| self.watches.remove(&(kind, path.to_owned()))).collect()
    }

    /// An answer has shown the state up to `zxid`, and leaves a watch.
    pub(crate) fn shown(&mut self, zxid: u64, watch: Option<(Watched, String, bool)>) {
        for armed in self.watches.values_mut() {
            armed.shown = armed.shown.max(zxid);
        }
        if let Some((kind, path, absent)) = watch {
            let since = self.last_zxid;
            let armed = Armed { since, shown: since, absent, renewed_at: None, is_denied: false };
            self.watches.entry((kind, path)).or_insert(armed);
        }
    }

    /// A client that came back learned what it missed; these watches are set again.
    pub(crate) fn renewed(&mut self, now: u64) {
        self.watches.values_mut().filter(|armed| armed.absent).for_each(|armed| armed.renewed_at = Some(now));
    }

    /// What a client that comes back says of its watches.
    pub(crate) fn set_watches(&self) -> Option<Ask> {
        let of = |wanted: Watched, absent: bool| {
            let found = self.watches.iter().filter(move |((kind, _), armed)| {
                *kind == wanted && (wanted == Watched::Children || armed.absent == absent)
            });
            found.map(|((_, path), _)| path.clone()).collect::<Vec<_>>()
        };
        let lists = [of(Watched::Data, false), of(Watched::Data, true), of(Watched::Children, false)];
        let below = self.lasting.paths();
        let any = !self.watches.is_empty() || !below.is_empty();
        any.then_some(Ask::SetWatches { since: self.last_zxid, lists, below })
    }
}
