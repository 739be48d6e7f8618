//! Exactly-once sessions: a command that a client sends again is executed once and answered the same.
//!
//! A client numbers its commands and says with each message below which number it has every answer. The table keeps
//! the answers in between. Many commands of a session may be outstanding and may be executed in any order.

use crate::deterministic::Map;
use crate::slots::Slot;
use kernel::{Decode, DecodeError, Encode, Reader, Recount};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

kernel::number! {
    /// A client's session; chosen at random by the client, opened by a command.
    pub struct SessionId(u64);
}

kernel::number! {
    /// A command's number within its session, from 0.
    pub struct Sequence(u64);
}

/// An answer as it was first given. Short ones, the common case, need no allocation.
pub type StoredAnswer = SmallVec<[u8; 24]>;

/// What to do with a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission<'a> {
    /// Execute it and [`Sessions::record`] the answer.
    Execute,
    /// It was executed before: answer this again.
    Again(&'a [u8]),
    /// The client said that it has the answer; nobody waits for another.
    Acknowledged,
    /// The session is not open: never opened, or pushed out by younger ones. Not executed now; it may have been before.
    Unknown,
    /// More than the allowed number of unacknowledged commands. Not executed.
    TooMany,
}

/// The table of sessions: part of the replicated state, so everything in it is a function of the commands.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    sessions: Map<SessionId, Session>,
    by_age: BTreeMap<u64, SessionId>,
    clock: u64,
    /// Of all answers in it.
    answer_bytes: usize,
    sessions_max: usize,
    outstanding_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Session {
    /// The slot in which it was opened: a session that is opened again after it was pushed out is another one.
    opened: Slot,
    acknowledged: Sequence,
    answers: VecDeque<Option<StoredAnswer>>,
    last_used: u64,
}

impl Session {
    fn answer_bytes(&self) -> usize {
        self.answers.iter().flatten().map(|answer| answer.len()).sum()
    }
}

impl Sessions {
    /// At most `sessions_max` sessions, the least recently used leaving first, each with at most `outstanding_max`
    /// unacknowledged commands.
    pub fn new(sessions_max: usize, outstanding_max: usize) -> Self {
        Self { sessions_max, outstanding_max, ..Self::default() }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True if none is open.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Opens a session in slot `at` and returns the slot in which it was opened; opening an open one changes nothing.
    pub fn open(&mut self, id: SessionId, at: Slot) -> Slot {
        if let Some(session) = self.sessions.get(&id) {
            return session.opened;
        }
        while self.sessions.len() >= self.sessions_max.max(1) {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            if let Some(session) = self.sessions.remove(&oldest) {
                self.answer_bytes -= session.answer_bytes();
            }
        }
        self.clock += 1;
        self.sessions.insert(id, Session { opened: at, last_used: self.clock, ..Session::default() });
        self.by_age.insert(self.clock, id);
        at
    }

    /// The slot in which a session was opened, if it is open.
    pub fn opened(&self, id: SessionId) -> Option<Slot> {
        self.sessions.get(&id).map(|session| session.opened)
    }

    /// Closes a session and forgets its answers.
    pub fn close(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.by_age.remove(&session.last_used);
            self.answer_bytes -= session.answer_bytes();
        }
    }

    /// Notes that the client has every answer below `acknowledged`, and that the session is in use.
    pub fn touch(&mut self, id: SessionId, acknowledged: Sequence) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.last_used != self.clock && !kernel::planted!(used_session_stays_old) {
            self.by_age.remove(&session.last_used);
            self.clock += 1;
            session.last_used = self.clock;
            self.by_age.insert(self.clock, id);
        }
        while session.acknowledged < acknowledged {
            let Some(answer) = session.answers.pop_front() else {
                session.acknowledged = acknowledged;
                break;
            };
            self.answer_bytes -= answer.map_or(0, |answer| answer.len());
            session.acknowledged = session.acknowledged.next();
        }
    }

    /// What to do with command `sequence` of `id`.
    pub fn admit(&self, id: SessionId, sequence: Sequence) -> Admission<'_> {
        let Some(session) = self.sessions.get(&id) else { return Admission::Unknown };
        let Some(offset) = sequence.0.checked_sub(session.acknowledged.0) else {
            return Admission::Acknowledged;
        };
        match session.answers.get(offset as usize) {
            Some(Some(answer)) => Admission::Again(answer),
            Some(None) | None if offset < self.outstanding_max as u64 => Admission::Execute,
            Some(None) | None => Admission::TooMany,
        }
    }

    /// Keeps the answer to a command that was admitted for execution.
    pub fn record(&mut self, id: SessionId, sequence: Sequence, answer: &[u8]) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let offset = sequence.0.saturating_sub(session.acknowledged.0) as usize;
        // One more at most, where commands come in order; `resize` is far slower at that.
        while session.answers.len() <= offset {
            session.answers.push_back(None);
        }
        let before = session.answers[offset].replace(StoredAnswer::from_slice(answer));
        self.answer_bytes = self.answer_bytes + answer.len() - before.map_or(0, |before| before.len());
    }

    /// Bytes of all answers that are retained; a function of what the table holds.
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// [`Sessions::answer_bytes`] and what they are.
    pub fn recounts(&self) -> [Recount; 2] {
        let counted = self.sessions.values().map(Session::answer_bytes).sum();
        let is_open = |(age, id): &(&u64, &SessionId)| {
            self.sessions.get(*id).is_some_and(|session| session.last_used == **age)
        };
        let by_age = self.by_age.iter().filter(is_open).count();
        [
            Recount::of("bytes of retained answers", self.answer_bytes, counted),
            Recount::of("sessions by their age", self.by_age.len().max(self.sessions.len()), by_age),
        ]
    }

    /// The sessions, each with the number below which its client has every answer; in no order that means anything.
    pub fn acknowledged(&self) -> impl Iterator<Item = (SessionId, Sequence)> {
        self.sessions.iter().map(|(&id, session)| (id, session.acknowledged))
    }

    /// A digest of everything that must be alike on all replicas.
    pub fn digest(&self) -> u64 {
        // Field by field, and not by the encoding: what that left out would be left out here.
        let Self { sessions, by_age, clock, answer_bytes: _, sessions_max: _, outstanding_max: _ } = self;
        let mut bytes = clock.encoded();
        for (age, id) in by_age {
            let Session { opened, acknowledged, answers, last_used } = &sessions[id];
            for number in [*age, id.0, opened.0, acknowledged.0, *last_used, answers.len() as u64] {
                number.encode(&mut bytes);
            }
            for answer in answers {
                answer.is_some().encode(&mut bytes);
                answer.as_deref().unwrap_or_default().encode(&mut bytes);
            }
        }
        crate::digest(&bytes)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sessions.clear();
        self.by_age.clear();
        (self.clock, self.answer_bytes) = (0, 0);
    }
}

impl Encode for Sessions {
    fn encode(&self, out: &mut Vec<u8>) {
        self.clock.encode(out);
        (self.by_age.len() as u32).encode(out);
        for (age, id) in &self.by_age {
            let session = &self.sessions[id];
            id.encode(out);
            age.encode(out);
            session.opened.encode(out);
            session.acknowledged.encode(out);
            (session.answers.len() as u32).encode(out);
            for answer in &session.answers {
                match answer {
                    None => out.push(0),
                    Some(answer) => {
                        out.push(1);
                        answer.as_slice().encode(out);
                    }
                }
            }
        }
    }
}

impl Sessions {
    /// Replaces the contents by an encoded table; the bounds stay.
    pub fn install(&mut self, input: &mut Reader) -> Result<(), DecodeError> {
        self.clear();
        self.clock = u64::decode(input)?;
        for _ in 0..u32::decode(input)? {
            let id = SessionId::decode(input)?;
            let last_used = u64::decode(input)?;
            let opened = Slot::decode(input)?;
            let acknowledged = Sequence::decode(input)?;
            let mut answers = VecDeque::new();
            for _ in 0..u32::decode(input)? {
                let answer = Option::<kernel::Bytes>::decode(input)?;
                answers.push_back(answer.map(|bytes| StoredAnswer::from_slice(&bytes)));
            }
            self.by_age.insert(last_used, id);
            let session = Session { opened, acknowledged, answers, last_used };
            self.answer_bytes += session.answer_bytes();
            self.sessions.insert(id, session);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: SessionId = SessionId(1);

    fn open() -> Sessions {
        let mut sessions = Sessions::new(2, 4);
        sessions.open(ALICE, Slot(7));
        sessions
    }

    // A command executed twice is the bug this table exists against.
    #[test]
    fn a_repeated_command_is_answered_as_before() {
        let mut sessions = open();
        assert_eq!(sessions.admit(ALICE, Sequence(2)), Admission::Execute);
        sessions.record(ALICE, Sequence(2), b"two");
        assert_eq!(sessions.admit(ALICE, Sequence(2)), Admission::Again(b"two"));
        assert_eq!(sessions.admit(ALICE, Sequence(0)), Admission::Execute);
        sessions.touch(ALICE, Sequence(3));
        assert_eq!(sessions.admit(ALICE, Sequence(2)), Admission::Acknowledged);
        assert_eq!(sessions.admit(ALICE, Sequence(3)), Admission::Execute);
    }

    // A client that never acknowledges, or sessions without end, must not fill the memory.
    #[test]
    fn the_table_is_bounded_both_ways() {
        let mut sessions = open();
        assert_eq!(sessions.admit(ALICE, Sequence(4)), Admission::TooMany);
        sessions.open(SessionId(2), Slot(8));
        sessions.touch(ALICE, Sequence(0));
        sessions.open(SessionId(3), Slot(9));
        assert_eq!(sessions.admit(SessionId(2), Sequence(0)), Admission::Unknown);
        assert_eq!(sessions.admit(ALICE, Sequence(0)), Admission::Execute);
        assert_eq!(sessions.len(), 2);
    }

    // A late copy of the opening must not bring a session back as if nothing had been executed in it.
    #[test]
    fn a_session_opened_again_is_another_one() {
        let mut sessions = open();
        assert_eq!(sessions.open(ALICE, Slot(8)), Slot(7));
        sessions.close(ALICE);
        assert_eq!(sessions.opened(ALICE), None);
        assert_eq!(sessions.open(ALICE, Slot(9)), Slot(9));
        assert_eq!(sessions.opened(ALICE), Some(Slot(9)));
    }

    // Bytes that are forgotten while they are retained, or counted when they are gone, decide differently on replicas that have the same.
    #[test]
    fn the_answers_bytes_are_those_that_are_retained() {
        let mut sessions = open();
        for (sequence, bytes) in [(0, 100), (2, 10), (1, 30), (2, 20)] {
            sessions.record(ALICE, Sequence(sequence), &vec![1; bytes]);
        }
        assert_eq!(sessions.answer_bytes(), 150);
        let mut copy = Sessions::new(2, 4);
        copy.install(&mut Reader::new(sessions.encoded().into())).expect("it was just encoded");
        assert_eq!(copy.answer_bytes(), 150);
        copy.install(&mut Reader::new(sessions.encoded().into())).expect("it was just encoded");
        assert_eq!(copy.answer_bytes(), 150, "what was there before is gone");
        sessions.touch(ALICE, Sequence(2));
        assert_eq!(sessions.answer_bytes(), 20);
        sessions.open(SessionId(2), Slot(8));
        sessions.record(SessionId(2), Sequence(0), &[1; 5]);
        sessions.open(SessionId(3), Slot(9));
        assert_eq!(sessions.answer_bytes(), 5, "pushed out by younger ones");
        sessions.close(SessionId(2));
        assert_eq!(sessions.answer_bytes(), 0);
    }

    // A snapshot without the answers would execute a retried command again.
    #[test]
    fn the_table_survives_a_snapshot() {
        let mut sessions = open();
        sessions.record(ALICE, Sequence(1), &[7; 40]);
        sessions.touch(ALICE, Sequence(0));
        let mut copy = Sessions::new(2, 4);
        copy.install(&mut Reader::new(sessions.encoded().into())).expect("it was just encoded");
        assert_eq!(copy.admit(ALICE, Sequence(1)), Admission::Again(&[7; 40]));
        assert_eq!(copy.encoded(), sessions.encoded());
    }
}
