//! The sessions of a home group beside a model of them: every answer, notice and clean-up is the model's, and so is what a snapshot has and
//! what another group gets.

use coordination::wire::{
    Body, Code, ConnectionEpoch, HomeNotice, JuteInput, Malformed, Origin, SessionAnswer, WriteHead,
    ZkSessionId,
};
use coordination::{HomeSessions, SessionSettings};
use kernel::{Bytes, DecodeError, NodeId, invariant};
use mason::{Group, GroupTime, Layout, Order, ShardMap, Space, Stub, StubOut, Verdict};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Debug)]
struct Session {
    password: Vec<u8>,
    epoch: ConnectionEpoch,
    gateway: NodeId,
    connection: NodeId,
    address: String,
    timeout: u64,
    /// Before this it does not expire.
    deadline: u64,
    spaces: BTreeSet<Space>,
    closing: bool,
}

/// What an operation asks for.
#[derive(Default, PartialEq, Debug)]
struct Wanted {
    /// None: no answer, or one that is not looked at.
    answer: Option<Vec<u8>>,
    elsewhere: bool,
    executes: bool,
    notices: Vec<(NodeId, Vec<u8>)>,
    clean_ups: Vec<Vec<u8>>,
}

/// The same, as the group has asked for it.
struct Given {
    answer: Option<Bytes>,
    elsewhere: bool,
    notices: Vec<(NodeId, Bytes)>,
    clean_ups: Vec<Bytes>,
}

impl Given {
    fn of(out: StubOut) -> Self {
        let elsewhere = out.is_elsewhere();
        let (answer, notices, clean_ups) = out.into_parts();
        Self { answer, elsewhere, notices, clean_ups }
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct JudgedSessions {
    sessions: HomeSessions,
    group: Group,
    slack: u64,
    sessions_max: usize,
    known: BTreeMap<ZkSessionId, Session>,
    opened: u64,
    layout: Option<Layout>,
    awaits: bool,
}

impl JudgedSessions {
    pub(crate) fn new(group: Group, settings: SessionSettings) -> Self {
        Self {
            group,
            slack: settings.slack.into(),
            sessions_max: settings.sessions_max,
            sessions: HomeSessions::new(group, settings),
            known: BTreeMap::new(),
            opened: 0,
            layout: None,
            awaits: false,
        }
    }

    /// The group's part itself.
    pub(crate) fn sessions(&self) -> &HomeSessions {
        &self.sessions
    }

    fn touch(&mut self, session: ZkSessionId, now: GroupTime) {
        if let Some(known) = self.known.get_mut(&session) {
            known.deadline = now.0 + known.timeout + self.slack;
        }
    }

    /// The group that has a session, or had it last.
    fn home(&self, session: ZkSessionId) -> Option<Group> {
        let first = Group(((session.0 >> 48) as u16).checked_sub(1)?);
        Some(self.layout.as_ref().map_or(first, |layout| layout.home(first)))
    }

    /// True if some session is closing here that is at home elsewhere.
    pub(crate) fn closes_for_others(&self) -> bool {
        let is_away = |session| self.home(session).is_some_and(|home| home != self.group);
        self.known.iter().any(|(&session, known)| known.closing && is_away(session))
    }

    fn is_elsewhere(&self, session: ZkSessionId) -> bool {
        let home = self.home(session).filter(|_| session.0 < 1 << 63);
        let may_be = home.is_some_and(|home| home != self.group || self.awaits);
        self.layout.is_some() && !self.known.contains_key(&session) && may_be
    }

    fn admit(&self, session: ZkSessionId, epoch: ConnectionEpoch) -> Result<(), Code> {
        match self.known.get(&session).filter(|known| !known.closing) {
            None => Err(Code::SessionExpired),
            Some(known) if known.epoch == epoch => Ok(()),
            Some(_) => Err(Code::SessionMoved),
        }
    }

    fn close(&mut self, session: ZkSessionId, wanted: &mut Wanted) {
        let Some(known) = self.known.get_mut(&session) else { return };
        known.closing = true;
        if known.spaces.is_empty() {
            return self.end(session, wanted);
        }
        let spaces = known.spaces.iter().copied().collect();
        wanted.clean_ups.push(Body::CleanUp { session, spaces }.written());
    }

    fn end(&mut self, session: ZkSessionId, wanted: &mut Wanted) {
        if let Some(known) = self.known.remove(&session) {
            let notice = HomeNotice::Ended { connection: known.connection, session };
            wanted.notices.push((known.gateway, notice.written()));
        }
    }

    fn attached(&self, session: ZkSessionId) -> Vec<u8> {
        let known = &self.known[&session];
        let password = <[u8; 16]>::try_from(&known.password[..]).unwrap_or_default();
        let (epoch, timeout) = (known.epoch, known.timeout as i32);
        SessionAnswer::Attached { session, epoch, password, timeout }.written()
    }

    /// `given`: the answer, for a session's password is what the group makes it to be.
    fn apply_to_model(
        &mut self,
        body: &[u8],
        order: Option<&Order>,
        now: GroupTime,
        given: Option<&Bytes>,
    ) -> Wanted {
        let mut wanted = Wanted::default();
        let read = Body::read(body);
        let named = match &read {
            Ok(Body::Write { head, .. }) => Some(head.session),
            Ok(Body::Attach { session, .. } | Body::Close { session, .. }) => Some(*session),
            _ => None,
        };
        let needs_numbers =
            matches!(read, Ok(Body::Write { .. } | Body::Reap { .. } | Body::Advertise { .. }));
        if named.is_some_and(|session| self.is_elsewhere(session)) || needs_numbers && order.is_none() {
            wanted.elsewhere = true;
            return wanted;
        }
        match read {
            Ok(Body::Write { head, .. }) => match self.admit(head.session, head.epoch) {
                Ok(()) => {
                    self.write(&head, order, now);
                    wanted.executes = true;
                }
                Err(code) => wanted.answer = Some(code.number().to_be_bytes().to_vec()),
            },
            Ok(Body::Reap { .. } | Body::Advertise { .. }) => wanted.executes = true,
            Ok(Body::Open { origin, timeout, address, .. }) => {
                wanted.answer = Some(self.open(origin, timeout, address, now, given));
            }
            Ok(Body::Attach { session, password, origin, timeout, address }) => {
                let asked = (session, password, origin, timeout, address);
                wanted.answer = Some(self.attach(asked, now, &mut wanted.notices));
            }
            Ok(Body::Touch { sessions }) => {
                let (mut gone, mut elsewhere) = (Vec::new(), Vec::new());
                for (session, epoch) in sessions {
                    match self.admit(session, epoch) {
                        Ok(()) => self.touch(session, now),
                        Err(_) if self.is_elsewhere(session) => elsewhere.push((session, epoch)),
                        Err(_) => gone.push((session, epoch)),
                    }
                }
                let answer = match (elsewhere.is_empty(), gone.is_empty()) {
                    (false, _) => SessionAnswer::Elsewhere { sessions: elsewhere, gone },
                    (true, false) => SessionAnswer::Gone { sessions: gone },
                    (true, true) => SessionAnswer::Done,
                };
                wanted.answer = Some(answer.written());
            }
            Ok(Body::Close { session, epoch }) => {
                let closes = self.admit(session, epoch).is_ok();
                if closes {
                    self.close(session, &mut wanted);
                }
                let answer = if closes { SessionAnswer::Done } else { SessionAnswer::Refused };
                wanted.answer = Some(answer.written());
            }
            Ok(Body::CleanUp { .. }) | Err(Malformed) => {
                wanted.answer = Some(Code::MarshallingError.number().to_be_bytes().to_vec());
            }
        }
        wanted
    }

    fn write(&mut self, head: &WriteHead<'_>, order: Option<&Order>, now: GroupTime) {
        self.touch(head.session, now);
        let numbers = order.into_iter().flat_map(|order| &order.numbers);
        if let Some(known) = self.known.get_mut(&head.session).filter(|_| head.ephemeral) {
            known.spaces.extend(numbers.map(|placed| placed.space));
        }
    }

    fn open(
        &mut self,
        origin: Origin,
        timeout: i32,
        address: &str,
        now: GroupTime,
        given: Option<&Bytes>,
    ) -> Vec<u8> {
        if self.known.len() >= self.sessions_max {
            return SessionAnswer::Refused.written();
        }
        self.opened += 1;
        let session = ZkSessionId((u64::from(self.group.0) + 1) << 48 | self.opened);
        let given = given.map(|given| SessionAnswer::read(given));
        let Some(Ok(SessionAnswer::Attached { password, .. })) = given else { return Vec::new() };
        let opened = Session {
            password: password.to_vec(),
            epoch: ConnectionEpoch(1),
            gateway: origin.gateway,
            connection: origin.connection,
            address: address.to_owned(),
            timeout: timeout.max(0) as u64,
            deadline: 0,
            spaces: BTreeSet::new(),
            closing: false,
        };
        let other = self.known.insert(session, opened);
        invariant!(SESS, other.is_none(), "session {session} is opened while there is one");
        self.touch(session, now);
        self.attached(session)
    }

    fn attach(
        &mut self,
        (session, password, origin, timeout, address): (ZkSessionId, &[u8], Origin, i32, &str),
        now: GroupTime,
        notices: &mut Vec<(NodeId, Vec<u8>)>,
    ) -> Vec<u8> {
        let known = self.known.get_mut(&session);
        let Some(known) = known.filter(|known| !known.closing && known.password == password) else {
            return SessionAnswer::Refused.written();
        };
        if (known.gateway, known.connection) != (origin.gateway, origin.connection) {
            let notice = HomeNotice::Moved { connection: known.connection, session };
            notices.push((known.gateway, notice.written()));
        }
        (known.gateway, known.connection) = (origin.gateway, origin.connection);
        known.epoch = ConnectionEpoch(known.epoch.0 + 1);
        (known.address, known.timeout) = (address.to_owned(), timeout.max(0) as u64);
        self.touch(session, now);
        self.attached(session)
    }

    /// Compares what was asked for, and hands it on.
    fn judge(&self, what: &str, given: Given, wanted: &Wanted, executes: bool, out: &mut StubOut) {
        let Given { answer, elsewhere, notices, clean_ups } = given;
        let same = answer.as_deref() == wanted.answer.as_deref()
            && (elsewhere, executes) == (wanted.elsewhere, wanted.executes)
            && notices
                .iter()
                .map(|(to, it)| (*to, &it[..]))
                .eq(wanted.notices.iter().map(|(to, it)| (*to, &it[..])))
            && clean_ups.iter().map(|it| &it[..]).eq(wanted.clean_ups.iter().map(|it| &it[..]));
        invariant!(
            SESS,
            same,
            "group {} comes to answer {answer:?}, elsewhere {elsewhere}, {executes}, {notices:?}, {clean_ups:?} after \
             {what}, and the model to {wanted:?}",
            self.group
        );
        if let Some(answer) = answer {
            out.answer(answer);
        }
        if elsewhere {
            out.elsewhere();
        }
        notices.into_iter().for_each(|(to, notice)| out.notify(to, notice));
        clean_ups.into_iter().for_each(|clean_up| out.follow_up(clean_up));
    }

    /// What would be saved is what the model has.
    fn judge_saved(&self, saved: &[u8]) {
        let found = read_saved(saved);
        let wanted = (self.opened, self.known.clone());
        invariant!(
            SESS,
            found.as_ref() == Ok(&wanted),
            "group {} saves {found:?}, and has {wanted:?}",
            self.group
        );
    }
}

/// How many were opened, and all of them.
fn read_saved(saved: &[u8]) -> Result<(u64, BTreeMap<ZkSessionId, Session>), Malformed> {
    let mut input = JuteInput(saved);
    Ok((input.u64()?, read_sessions(&mut input)?))
}

fn read_sessions(input: &mut JuteInput<'_>) -> Result<BTreeMap<ZkSessionId, Session>, Malformed> {
    let mut sessions = BTreeMap::new();
    for _ in 0..input.u64()? {
        let session = ZkSessionId(input.u64()?);
        let password = input.take(16)?.to_vec();
        let epoch = ConnectionEpoch(input.u64()?);
        let (gateway, connection) = (NodeId::from_u64(input.u64()?), NodeId::from_u64(input.u64()?));
        let (address, timeout) = (input.text()?.to_owned(), input.i32()? as u64);
        let (deadline, closing) = (input.u64()?, input.bool()?);
        let count = input.count(2)?.unwrap_or(0);
        let spaces = (0..count).map(|_| input.u16().map(Space)).collect::<Result<_, _>>()?;
        let known =
            Session { password, epoch, gateway, connection, address, timeout, deadline, spaces, closing };
        sessions.insert(session, known);
    }
    Ok(sessions)
}

impl Stub for JudgedSessions {
    fn spaces(&self, body: &[u8], shard_map: &ShardMap) -> Vec<Space> {
        self.sessions.spaces(body, shard_map)
    }

    fn apply(&mut self, body: &Bytes, order: Option<&Order>, now: GroupTime, out: &mut StubOut) -> Verdict {
        let mut own = StubOut::default();
        let verdict = self.sessions.apply(body, order, now, &mut own);
        let given = Given::of(own);
        let wanted = self.apply_to_model(body, order, now, given.answer.as_ref());
        self.judge("an operation", given, &wanted, verdict == Verdict::Execute, out);
        verdict
    }

    fn on_clock(&mut self, now: GroupTime, new_leader: bool, out: &mut StubOut) {
        let mut own = StubOut::default();
        self.sessions.on_clock(now, new_leader, &mut own);
        let mut wanted = Wanted::default();
        let all: Vec<ZkSessionId> = self.known.keys().copied().collect();
        for session in all {
            if new_leader && !self.known[&session].closing {
                self.touch(session, now);
            }
            if self.known[&session].deadline <= now.0 && !self.known[&session].closing {
                self.close(session, &mut wanted);
            }
        }
        self.judge("a tick of its clock", Given::of(own), &wanted, false, out);
    }

    fn awaits_time(&self) -> bool {
        let awaits = self.sessions.awaits_time();
        invariant!(
            SESS,
            awaits || self.known.is_empty(),
            "group {} has sessions, and needs no clock",
            self.group
        );
        awaits
    }

    fn apply_follow_up(&mut self, body: &Bytes, order: Option<&Order>, now: GroupTime, out: &mut StubOut) {
        let mut own = StubOut::default();
        self.sessions.apply_follow_up(body, order, now, &mut own);
        let mut wanted = Wanted::default();
        if let Ok(Body::CleanUp { session, .. }) = Body::read(body) {
            self.end(session, &mut wanted);
        }
        self.judge("a clean-up", Given::of(own), &wanted, false, out);
    }

    fn arrange(&mut self, layout: &Layout, awaited: &[Group]) {
        (self.layout, self.awaits) = (Some(layout.clone()), !awaited.is_empty());
        self.sessions.arrange(layout, awaited);
    }

    fn depart(&mut self, page_bytes: usize) -> Vec<(Group, Bytes)> {
        let pages = self.sessions.depart(page_bytes);
        let all: Vec<ZkSessionId> = self.known.keys().copied().collect();
        let mut wanted = BTreeMap::new();
        for session in all {
            let home = self.home(session).filter(|home| *home != self.group && self.layout.is_some());
            if let Some(home) = home.filter(|_| !self.known[&session].closing) {
                let known = self.known.remove(&session);
                wanted.insert(session, (home, known));
            }
        }
        let mut given = BTreeMap::new();
        for (group, page) in &pages {
            let read = read_sessions(&mut JuteInput(page)).unwrap_or_default();
            given.extend(read.into_iter().map(|(session, known)| (session, (*group, Some(known)))));
        }
        invariant!(
            SESS,
            given == wanted,
            "group {} hands over {given:?}, and the model {wanted:?}",
            self.group
        );
        pages
    }

    fn arrive(&mut self, page: &Bytes, now: GroupTime) -> Result<(), DecodeError> {
        for (session, known) in read_sessions(&mut JuteInput(page)).unwrap_or_default() {
            self.known.insert(session, known);
            self.touch(session, now);
        }
        self.sessions.arrive(page, now)
    }

    fn save(&self, out: &mut Vec<u8>) {
        let at = out.len();
        self.sessions.save(out);
        self.judge_saved(&out[at..]);
    }

    fn digest(&self) -> u64 {
        self.sessions.digest()
    }

    fn load(&mut self, saved: &[u8]) -> Result<(), DecodeError> {
        self.sessions.load(saved)?;
        if let Ok((opened, known)) = read_saved(saved) {
            (self.opened, self.known) = (opened, known);
        }
        let mut again = Vec::new();
        self.save(&mut again);
        Ok(())
    }
}
