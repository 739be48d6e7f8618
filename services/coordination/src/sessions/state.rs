//! What is known of a session, and how a group's snapshot keeps it.

use crate::wire::{ConnectionEpoch, JuteInput, JuteOutput, Malformed, Origin, ZkSessionId};
use mason::{GroupTime, Space};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Session {
    pub(crate) password: [u8; 16],
    pub(crate) epoch: ConnectionEpoch,
    pub(crate) origin: Origin,
    /// Where the user's connection came from when it was last attached.
    pub(crate) address: Box<str>,
    /// In milliseconds.
    pub(crate) timeout: u32,
    /// Not before this does it expire.
    pub(crate) deadline: GroupTime,
    /// Where it has made ephemeral nodes; parents included.
    pub(crate) spaces: BTreeSet<Space>,
    pub(crate) closing: bool,
    /// Where it stands in the queue of deadlines: not behind its own.
    pub(crate) queued: Option<GroupTime>,
}

impl Session {
    pub(crate) fn new(password: [u8; 16], origin: Origin, address: &str, timeout: u32) -> Self {
        Self {
            password,
            epoch: ConnectionEpoch(1),
            origin,
            address: address.into(),
            timeout,
            deadline: GroupTime(0),
            spaces: BTreeSet::new(),
            closing: false,
            queued: None,
        }
    }
}

pub(crate) fn save(opened: u64, sessions: &BTreeMap<ZkSessionId, Session>, out: &mut Vec<u8>) {
    out.put_u64(opened);
    write(sessions.iter(), out);
}

/// Of everything that must be alike on all replicas; field by field, since what the encoding left out would be left out here.
pub(crate) fn digest(opened: u64, sessions: &BTreeMap<ZkSessionId, Session>) -> u64 {
    let mut bytes = Vec::with_capacity(8 + sessions.len() * SESSION_BYTES);
    bytes.extend_from_slice(&opened.to_le_bytes());
    for (id, session) in sessions {
        let Session { password, epoch, origin, address, timeout, deadline, spaces, closing, queued } =
            session;
        bytes.extend_from_slice(password);
        origin.write(&mut bytes);
        bytes.extend_from_slice(address.as_bytes());
        // One that is closing has no use for its position in the queue.
        let flags = u64::from(*closing) << 1 | u64::from(queued.is_some() || *closing);
        let numbers = [id.0, epoch.0, u64::from(*timeout), deadline.0, flags, spaces.len() as u64];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        spaces.iter().for_each(|space| bytes.extend_from_slice(&space.0.to_le_bytes()));
    }
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// About what one takes where it is written.
pub(crate) const SESSION_BYTES: usize = 128;

/// Writes some of them.
pub(crate) fn write<'a>(
    sessions: impl ExactSizeIterator<Item = (&'a ZkSessionId, &'a Session)>,
    out: &mut Vec<u8>,
) {
    out.put_u64(sessions.len() as u64);
    for (id, session) in sessions {
        out.put_u64(id.0);
        out.extend_from_slice(&session.password);
        out.put_u64(session.epoch.0);
        session.origin.write(out);
        out.put_text(&session.address);
        out.put_i32(session.timeout as i32);
        out.put_u64(session.deadline.0);
        out.push(u8::from(session.closing));
        out.put_count(session.spaces.len());
        session.spaces.iter().for_each(|space| out.put_u16(space.0));
    }
}

pub(crate) fn load(saved: &[u8]) -> Result<(u64, BTreeMap<ZkSessionId, Session>), Malformed> {
    let mut input = JuteInput(saved);
    Ok((input.u64()?, read(&mut input)?))
}

/// Reads what `write` wrote.
pub(crate) fn read(input: &mut JuteInput<'_>) -> Result<BTreeMap<ZkSessionId, Session>, Malformed> {
    let count = input.u64()?;
    let mut sessions = BTreeMap::new();
    for _ in 0..count {
        let id = ZkSessionId(input.u64()?);
        let password = input.take(16)?.try_into().map_err(|_| Malformed)?;
        let epoch = ConnectionEpoch(input.u64()?);
        let mut session = Session::new(password, Origin::read(input)?, input.text()?, input.i32()? as u32);
        session.epoch = epoch;
        session.deadline = GroupTime(input.u64()?);
        session.closing = input.bool()?;
        let spaces = input.count(2)?.unwrap_or(0);
        session.spaces = (0..spaces).map(|_| input.u16().map(Space)).collect::<Result<_, _>>()?;
        sessions.insert(id, session);
    }
    Ok(sessions)
}
