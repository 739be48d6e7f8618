//! The sessions of a home group: opened, moved, expired and closed in the group's log, without touching a shard.
//!
//! A session that ends is *closing* first: from then on its operations are refused. Then one operation over the shards where
//! it made ephemeral nodes cleans them up. All operations of a session are sequenced by its group, so none can come after.

mod expiry;
mod password;
mod state;

use crate::placement::Placement;
use crate::sessions::expiry::Deadlines;
use crate::sessions::state::Session;
use crate::tree::CONFIG;
use crate::wire::{
    Body, Code, ConnectionEpoch, HomeNotice, JuteInput, Malformed, Origin, SessionAnswer, ZkSessionId,
    parent_of,
};
use kernel::{Bytes, DecodeError, NodeId, planted};
use mason::{Group, GroupTime, Layout, Order, ShardMap, Space, StubOut, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// What all home groups of a cluster agree on.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Which shard a path is in.
    pub placement: Placement,
    /// The secret behind the sessions' passwords.
    pub key: [u8; 32],
    /// How late a sign of life may be logged, in milliseconds: one period of the group's clock and one of the gateways'.
    pub slack: u32,
    /// At most so many sessions of a group; its replicas must agree on it.
    pub sessions_max: usize,
}

impl SessionSettings {
    /// For up to a million sessions.
    pub fn new(placement: Placement, key: [u8; 32]) -> Self {
        Self { placement, key, slack: 1000, sessions_max: 1_000_000 }
    }
}

/// What a gateway grants is within its bounds; anything else is not a gateway's.
fn granted(timeout: i32) -> u32 {
    u32::try_from(timeout).unwrap_or(0)
}

/// What is known of a session, for those who run the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionView<'a> {
    /// Which.
    pub session: ZkSessionId,
    /// Where its last connection ended, or ends.
    pub gateway: NodeId,
    /// Where that connection came from.
    pub address: &'a str,
    /// In milliseconds.
    pub timeout: u32,
    /// Milliseconds until it expires unless it is heard from.
    pub expires_in: u64,
    /// Until when it is open at least, in its group's time.
    pub deadline: GroupTime,
    /// It has ended, and its nodes are being deleted.
    pub closing: bool,
}

/// The sessions whose home is one group.
#[derive(Debug)]
pub struct HomeSessions {
    group: Group,
    settings: SessionSettings,
    sessions: BTreeMap<ZkSessionId, Session>,
    deadlines: Deadlines,
    /// How many were ever opened.
    opened: u64,
    /// How many groups there are, since that is not as at the bootstrap.
    layout: Option<Layout>,
    /// Some group has yet to hand over sessions.
    awaits: bool,
}

/// The home group of a session; `None` for a number that is no session's.
pub fn home_of(session: ZkSessionId) -> Option<Group> {
    let above = (session.0 >> 48) as u16;
    (1..=GROUP_MAX + 1).contains(&above).then(|| Group(above - 1))
}

/// The last group that can be a home: ids stay positive, and their highest byte is none that stands for a kind of owner.
const GROUP_MAX: u16 = 0x7eff;

impl HomeSessions {
    /// No sessions. `group` is at most 32,511.
    pub fn new(group: Group, settings: SessionSettings) -> Self {
        assert!(group.0 <= GROUP_MAX, "group {group} cannot be a home of sessions");
        let (sessions, deadlines) = (BTreeMap::new(), Deadlines::default());
        Self { group, settings, sessions, deadlines, opened: 0, layout: None, awaits: false }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether this session has not ended; it may be closing.
    pub fn contains(&self, session: ZkSessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// True if the session is at home here and is not here: if it ever was, it has ended.
    pub fn has_ended(&self, session: ZkSessionId) -> bool {
        let home =
            home_of(session).map(|group| self.layout.as_ref().map_or(group, |layout| layout.home(group)));
        home == Some(self.group) && !self.awaits && !self.contains(session)
    }

    /// The sessions after `after`, in the order of their numbers, as of the group's time.
    pub fn after(&self, after: ZkSessionId, now: GroupTime) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)).map(
            move |(id, session)| SessionView {
                session: *id,
                gateway: session.origin.gateway,
                address: &session.address,
                timeout: session.timeout,
                expires_in: session.deadline.0.saturating_sub(now.0),
                deadline: session.deadline,
                closing: session.closing,
            },
        )
    }

    /// In which shards each session has made ephemeral nodes, for invariants.
    pub fn spaces_of_sessions(&self) -> impl Iterator<Item = (ZkSessionId, &BTreeSet<Space>)> {
        self.sessions.iter().map(|(&id, session)| (id, &session.spaces))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The session's timeout begins again at `now`.
    fn touch(&mut self, id: ZkSessionId, now: GroupTime) {
        let slack = self.settings.slack;
        if let Some(session) = self.sessions.get_mut(&id) {
            let timeout =
                if planted!(session_timeout_halved) { session.timeout / 2 } else { session.timeout };
            session.deadline = now.plus(u64::from(timeout) + u64::from(slack));
            // One that is attached with a shorter timeout may expire earlier than it is queued. On a replica that has loaded it, it stands
            // at its deadline, and all must expire it by the same clock.
            if session.queued.is_none_or(|queued| queued > session.deadline) {
                if let Some(queued) = session.queued.replace(session.deadline) {
                    self.deadlines.remove(queued, id);
                }
                self.deadlines.queue(session.deadline, id);
            }
        }
    }

    fn on_open(
        &mut self,
        (origin, address): (Origin, &str),
        nonce: u64,
        timeout: i32,
        now: GroupTime,
    ) -> SessionAnswer {
        if self.sessions.len() >= self.settings.sessions_max {
            return SessionAnswer::Refused;
        }
        self.opened += 1;
        let id = ZkSessionId((u64::from(self.group.0) + 1) << 48 | (self.opened & 0xffff_ffff_ffff));
        let password = password::of(&self.settings.key, id, nonce);
        let before = self.sessions.insert(id, Session::new(password, origin, address, granted(timeout)));
        kernel::invariant!(
            SESS,
            before.is_none() || planted!(session_count_not_in_snapshot),
            "session {id} is opened twice"
        );
        self.touch(id, now);
        self.attached(id)
    }

    fn attached(&self, id: ZkSessionId) -> SessionAnswer {
        match self.sessions.get(&id) {
            None => SessionAnswer::Refused,
            Some(session) => SessionAnswer::Attached {
                session: id,
                epoch: session.epoch,
                password: session.password,
                timeout: session.timeout as i32,
            },
        }
    }

    fn on_attach(
        &mut self,
        (id, password): (ZkSessionId, &[u8]),
        (origin, address): (Origin, &str),
        timeout: i32,
        now: GroupTime,
        out: &mut StubOut,
    ) -> SessionAnswer {
        let Some(session) = self.sessions.get_mut(&id) else { return SessionAnswer::Refused };
        if session.closing && !planted!(closing_session_attaches)
            || !password::same(&session.password, password) && !planted!(stranger_attaches)
        {
            return SessionAnswer::Refused;
        }
        let before = std::mem::replace(&mut session.origin, origin);
        if !planted!(attaching_keeps_connection_epoch) {
            session.epoch = session.epoch.next();
        }
        if *session.address != *address {
            session.address = address.into();
        }
        if !planted!(attach_keeps_timeout) {
            session.timeout = granted(timeout);
        }
        if before != origin {
            let reported = HomeNotice::Moved { connection: before.connection, session: id };
            out.notify(before.gateway, reported.written());
        }
        self.touch(id, now);
        self.attached(id)
    }

    /// True if another group has the session, or may have it still.
    fn is_elsewhere(&self, id: ZkSessionId) -> bool {
        let Some(layout) = self.layout.as_ref().filter(|_| !self.sessions.contains_key(&id)) else {
            return false;
        };
        home_of(id).is_some_and(|group| layout.home(group) != self.group || self.awaits)
    }

    /// Whether the session may act through this connection.
    fn admit(&self, id: ZkSessionId, epoch: ConnectionEpoch) -> Result<(), Code> {
        match self.sessions.get(&id) {
            None => Err(Code::SessionExpired),
            Some(session) if session.closing => Err(Code::SessionExpired),
            Some(session) if session.epoch != epoch => Err(Code::SessionMoved),
            Some(_) => Ok(()),
        }
    }

    fn on_close(&mut self, id: ZkSessionId, epoch: ConnectionEpoch, out: &mut StubOut) -> SessionAnswer {
        match self.admit(id, epoch) {
            Ok(()) => {
                self.begin_closing(id, out);
                SessionAnswer::Done
            }
            Err(_) => SessionAnswer::Refused,
        }
    }

    /// No operation of the session is accepted from here on; what it leaves is cleaned up next.
    fn begin_closing(&mut self, id: ZkSessionId, out: &mut StubOut) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.closing = true;
        if session.spaces.is_empty() {
            if !planted!(closing_session_not_cleaned_up) {
                self.end(id, out);
            }
        } else {
            let spaces = session.spaces.iter().copied().collect();
            out.follow_up(Body::CleanUp { session: id, spaces }.written());
        }
    }

    fn end(&mut self, id: ZkSessionId, out: &mut StubOut) {
        if let Some(session) = self.sessions.remove(&id) {
            let reported = HomeNotice::Ended { connection: session.origin.connection, session: id };
            out.notify(session.origin.gateway, reported.written());
        }
    }

    fn on_write(
        &mut self,
        head: &crate::wire::WriteHead<'_>,
        order: Option<&Order>,
        now: GroupTime,
    ) -> Result<(), Code> {
        let closes = |it: &Session| it.closing && it.epoch == head.epoch;
        if !planted!(closing_session_may_write) || !self.sessions.get(&head.session).is_some_and(closes) {
            self.admit(head.session, head.epoch)?;
        }
        self.touch(head.session, now);
        let order = order.ok_or(Code::MarshallingError)?;
        if head.ephemeral
            && let Some(session) = self.sessions.get_mut(&head.session)
        {
            let known = if planted!(session_remembers_one_shard) { session.spaces.len() } else { 0 };
            let spaces = order.numbers.iter().map(|placed| placed.space);
            session.spaces.extend(spaces.skip(known));
        }
        Ok(())
    }
}

fn refusal(code: Code) -> Vec<u8> {
    code.number().to_be_bytes().to_vec()
}

impl mason::Stub for HomeSessions {
    fn spaces(&self, body: &[u8], shard_map: &ShardMap) -> Vec<Space> {
        let placement = &self.settings.placement.over(shard_map.shards);
        match Body::read(body) {
            Ok(Body::Write { head, request }) => placement.spaces_of_request(&head, request),
            Ok(Body::Advertise { .. }) => vec![placement.space_of(CONFIG)],
            Ok(Body::Reap { path }) => {
                let named = [Some(path), parent_of(path)].into_iter().flatten();
                let mut spaces: Vec<Space> = named.map(|path| placement.space_of(path)).collect();
                spaces.sort_unstable();
                spaces.dedup();
                spaces
            }
            // Where a session made nodes is not where they are, since they were handed over.
            Ok(Body::CleanUp { .. }) if shard_map.version > 0 && !planted!(clean_up_misses_moved_nodes) => {
                placement.spaces().collect()
            }
            Ok(Body::CleanUp { mut spaces, .. }) => {
                spaces.retain(|space| space.0 < placement.shards());
                spaces.sort_unstable();
                spaces.dedup();
                spaces
            }
            Ok(Body::Open { .. } | Body::Attach { .. } | Body::Touch { .. } | Body::Close { .. })
            | Err(Malformed) => Vec::new(),
        }
    }

    fn apply(&mut self, body: &Bytes, order: Option<&Order>, now: GroupTime, out: &mut StubOut) -> Verdict {
        let read = Body::read(body);
        let session = match &read {
            Ok(Body::Write { head, .. }) => Some(head.session),
            Ok(Body::Attach { session, .. } | Body::Close { session, .. }) => Some(*session),
            Ok(
                Body::Open { .. }
                | Body::Touch { .. }
                | Body::Reap { .. }
                | Body::Advertise { .. }
                | Body::CleanUp { .. },
            )
            | Err(Malformed) => None,
        };
        if session.is_some_and(|session| self.is_elsewhere(session)) {
            out.elsewhere();
            return Verdict::Void;
        }
        let answer = match read {
            // A group that comes into use has no numbers yet.
            Ok(Body::Write { .. } | Body::Reap { .. } | Body::Advertise { .. }) if order.is_none() => {
                out.elsewhere();
                return Verdict::Void;
            }
            Ok(Body::Write { head, .. }) => match self.on_write(&head, order, now) {
                Ok(()) => return Verdict::Execute,
                Err(code) => {
                    out.answer(refusal(code));
                    return Verdict::Void;
                }
            },
            Ok(Body::Reap { .. } | Body::Advertise { .. }) => return Verdict::Execute,
            Ok(Body::Open { origin, nonce, timeout, address }) => {
                self.on_open((origin, address), nonce, timeout, now)
            }
            Ok(Body::Attach { session, password, origin, timeout, address }) => {
                self.on_attach((session, password), (origin, address), timeout, now, out)
            }
            Ok(Body::Touch { sessions }) => {
                let (alive, gone): (Vec<_>, Vec<_>) =
                    sessions.into_iter().partition(|&(id, epoch)| self.admit(id, epoch).is_ok());
                alive.into_iter().for_each(|(id, _)| self.touch(id, now));
                let (sessions, gone): (Vec<_>, Vec<_>) =
                    gone.into_iter().partition(|&(id, _)| self.is_elsewhere(id));
                match (sessions.is_empty(), gone.is_empty()) {
                    (true, true) => SessionAnswer::Done,
                    (true, false) => SessionAnswer::Gone { sessions: gone },
                    (false, _) => SessionAnswer::Elsewhere { sessions, gone },
                }
            }
            Ok(Body::Close { session, epoch }) => self.on_close(session, epoch, out),
            // A clean-up is the group's own follow-up: from anybody else it would clean up sessions that are in use.
            Ok(Body::CleanUp { .. }) | Err(Malformed) => {
                out.answer(refusal(Code::MarshallingError));
                return Verdict::Void;
            }
        };
        out.answer(answer.written());
        Verdict::Void
    }

    fn on_clock(&mut self, now: GroupTime, new_leader: bool, out: &mut StubOut) {
        if new_leader && !planted!(new_leader_uses_stale_session_clock) {
            // Nobody listened for an unknown time: everybody gets a whole timeout again.
            let living = self.sessions.iter().filter(|(_, session)| !session.closing);
            let living: Vec<ZkSessionId> = living.map(|(id, _)| *id).collect();
            living.into_iter().for_each(|id| self.touch(id, now));
        }
        for id in self.deadlines.due(now) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.queued.is_some_and(|queued| queued > now) {
                // It left, and is back: the other one is of its earlier stay.
                continue;
            }
            session.queued = None;
            if session.closing {
                continue;
            }
            if session.deadline > now {
                session.queued = Some(session.deadline);
                if !planted!(deadline_not_queued_again) {
                    self.deadlines.queue(session.deadline, id);
                }
            } else {
                self.begin_closing(id, out);
            }
        }
    }

    fn awaits_time(&self) -> bool {
        !self.sessions.is_empty() && !planted!(clock_not_awaited)
    }

    fn apply_follow_up(&mut self, body: &Bytes, _order: Option<&Order>, _now: GroupTime, out: &mut StubOut) {
        if let Ok(Body::CleanUp { session, .. }) = Body::read(body) {
            self.end(session, out);
        }
    }

    fn arrange(&mut self, layout: &Layout, awaited: &[Group]) {
        (self.layout, self.awaits) = (Some(layout.clone()), !awaited.is_empty());
    }

    fn depart(&mut self, page_bytes: usize) -> Vec<(Group, Bytes)> {
        let Some(layout) = self.layout.clone() else { return Vec::new() };
        let home = |id: ZkSessionId| home_of(id).map_or(self.group, |group| layout.home(group));
        let mut leaving: BTreeMap<Group, Vec<(ZkSessionId, Session)>> = BTreeMap::new();
        // One that is closing is cleaned up from here.
        let goes = |id: &ZkSessionId, session: &mut Session| {
            home(*id) != self.group && (!session.closing || planted!(moved_closing_session_not_cleaned_up))
        };
        for (id, session) in self.sessions.extract_if(.., goes) {
            leaving.entry(home(id)).or_default().push((id, session));
        }
        let per_page = (page_bytes / state::SESSION_BYTES / 2).max(1);
        let pages = leaving.into_iter().flat_map(|(to, sessions)| {
            let page = move |sessions: &[(ZkSessionId, Session)]| {
                let mut page = Vec::new();
                state::write(sessions.iter().map(|(id, session)| (id, session)), &mut page);
                (to, page.into())
            };
            sessions.chunks(per_page).map(page).collect::<Vec<_>>()
        });
        pages.collect()
    }

    fn arrive(&mut self, page: &Bytes, now: GroupTime) -> Result<(), DecodeError> {
        let sessions =
            state::read(&mut JuteInput(page)).map_err(|_| DecodeError::Invalid("page of sessions"))?;
        for (id, mut session) in sessions {
            if planted!(arriving_session_forgets_its_shards) {
                session.spaces.clear();
            }
            self.sessions.insert(id, session);
            if planted!(moved_sessions_have_no_deadline) {
                continue;
            }
            // The clocks of groups have nothing to do with each other: a whole timeout again.
            self.touch(id, now);
        }
        Ok(())
    }

    fn save(&self, out: &mut Vec<u8>) {
        state::save(self.opened, &self.sessions, out);
    }

    fn digest(&self) -> u64 {
        state::digest(self.opened, &self.sessions)
    }

    fn load(&mut self, saved: &[u8]) -> Result<(), DecodeError> {
        let invalid = |_| DecodeError::Invalid("saved sessions");
        (self.opened, self.sessions) = state::load(saved).map_err(invalid)?;
        self.deadlines = Deadlines::default();
        if planted!(session_count_not_in_snapshot) {
            self.opened = 0;
        }
        for (id, session) in &mut self.sessions {
            if planted!(sessions_expire_by_local_clock) {
                session.deadline = GroupTime(0);
            }
            if planted!(ephemeral_owners_not_in_snapshot) {
                session.spaces.clear();
            }
            if planted!(closing_sessions_not_in_snapshot) {
                session.closing = false;
            }
            if planted!(connection_epochs_not_in_snapshot) {
                session.epoch = ConnectionEpoch(1);
            }
            session.queued = (!session.closing).then_some(session.deadline);
            if !session.closing {
                self.deadlines.queue(session.deadline, *id);
            }
        }
        Ok(())
    }
}
