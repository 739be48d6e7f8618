//! What is sequenced: writes of users and the beginning and end of sessions, as a gateway submits them and stubs and shards read them.

use crate::wire::{Caller, JuteInput, JuteOutput, Malformed, WriteOperation};
use kernel::NodeId;
use mason::Space;

kernel::number! {
    /// A user's session: its home group plus one in the upper 16 bits, a counter below. Never 0, never negative: those would
    /// be taken for other kinds of owners.
    pub struct ZkSessionId(u64);
}

kernel::number! {
    /// Counts the connections of a session: operations of an older one are refused.
    pub struct ConnectionEpoch(u64);
}

/// Where a session's connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The gateway.
    pub gateway: NodeId,
    /// The connection there.
    pub connection: NodeId,
}

/// Who writes, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteHead<'a> {
    /// The session.
    pub session: ZkSessionId,
    /// Its connection.
    pub epoch: ConnectionEpoch,
    /// Whether it creates ephemeral nodes.
    pub ephemeral: bool,
    /// Whether nodes with a time to live may be made.
    pub ttl_allowed: bool,
    /// As whom the user has been authenticated.
    pub caller: Caller<'a>,
    /// The opcode of what follows.
    pub opcode: i32,
}

/// The body of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// A new session.
    Open {
        /// For whom.
        origin: Origin,
        /// Drawn by the gateway; makes the password differ from that of an earlier incarnation's session.
        nonce: u64,
        /// In milliseconds, as the user asks.
        timeout: i32,
        /// Where the user's connection comes from, as text.
        address: &'a str,
    },
    /// A session comes back on another connection.
    Attach {
        /// Which.
        session: ZkSessionId,
        /// The proof.
        password: &'a [u8],
        /// From where.
        origin: Origin,
        /// In milliseconds, as the user asks.
        timeout: i32,
        /// Where the user's connection comes from, as text.
        address: &'a str,
    },
    /// These were heard from.
    Touch {
        /// Sessions and the connections they were heard on.
        sessions: Vec<(ZkSessionId, ConnectionEpoch)>,
    },
    /// The user closes the session.
    Close {
        /// Which.
        session: ZkSessionId,
        /// On which connection.
        epoch: ConnectionEpoch,
    },
    /// A user's write.
    Write {
        /// Who writes.
        head: WriteHead<'a>,
        /// The request's bytes, for [`Operation::read`].
        request: &'a [u8],
    },
    /// A session has ended: its ephemeral nodes vanish.
    CleanUp {
        /// Whose.
        session: ZkSessionId,
        /// Where it has made some, parents included.
        spaces: Vec<Space>,
    },
    /// A container or a node with a time to live may have served its time; executed only if it has.
    Reap {
        /// Which.
        path: &'a str,
    },
    /// A gateway says where it is to be reached, for `/zookeeper/config`.
    Advertise {
        /// The number of its host.
        host: u32,
        /// Its line, without the number.
        line: &'a str,
        /// The hosts that are members: the lines of others go.
        members: Vec<u32>,
    },
}

const OPEN: u8 = 1;
const ATTACH: u8 = 2;
const TOUCH: u8 = 3;
const CLOSE: u8 = 4;
const WRITE: u8 = 5;
const CLEAN_UP: u8 = 6;
const REAP: u8 = 7;
const ADVERTISE: u8 = 20;

impl<'a> Body<'a> {
    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open { origin, nonce, timeout, address } => {
                out.push(OPEN);
                origin.write(out);
                out.put_u64(*nonce);
                out.put_i32(*timeout);
                out.put_text(address);
            }
            Self::Attach { session, password, origin, timeout, address } => {
                out.push(ATTACH);
                out.put_u64(session.0);
                out.put_buffer(Some(password));
                origin.write(out);
                out.put_i32(*timeout);
                out.put_text(address);
            }
            Self::Touch { sessions } => {
                out.push(TOUCH);
                write_touched(sessions, out);
            }
            Self::Close { session, epoch } => {
                out.push(CLOSE);
                out.put_u64(session.0);
                out.put_u64(epoch.0);
            }
            Self::Write { head, request } => {
                out.push(WRITE);
                head.write(out);
                out.extend_from_slice(request);
            }
            Self::CleanUp { session, spaces } => {
                out.push(CLEAN_UP);
                out.put_u64(session.0);
                out.put_count(spaces.len());
                for space in spaces {
                    out.put_u16(space.0);
                }
            }
            Self::Reap { path } => {
                out.push(REAP);
                out.put_text(path);
            }
            Self::Advertise { host, line, members } => {
                out.push(ADVERTISE);
                out.put_i32(*host as i32);
                out.put_text(line);
                out.put_count(members.len());
                members.iter().for_each(|&member| out.put_i32(member as i32));
            }
        }
    }

    /// It on its own.
    pub fn written(&self) -> Vec<u8> {
        let mut out = match self {
            Self::Write { request, .. } => Vec::with_capacity(request.len() + 96),
            _ => Vec::new(),
        };
        self.write(&mut out);
        out
    }

    /// Reads it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(bytes);
        let input = &mut input;
        Ok(match input.u8()? {
            OPEN => Self::Open {
                origin: Origin::read(input)?,
                nonce: input.u64()?,
                timeout: input.i32()?,
                address: input.text()?,
            },
            ATTACH => Self::Attach {
                session: ZkSessionId(input.u64()?),
                password: input.buffer()?.unwrap_or_default(),
                origin: Origin::read(input)?,
                timeout: input.i32()?,
                address: input.text()?,
            },
            TOUCH => Self::Touch { sessions: read_touched(input)? },
            CLOSE => Self::Close { session: ZkSessionId(input.u64()?), epoch: ConnectionEpoch(input.u64()?) },
            WRITE => Self::Write { head: WriteHead::read(input)?, request: input.0 },
            CLEAN_UP => {
                let session = ZkSessionId(input.u64()?);
                let count = input.count(2)?.unwrap_or(0);
                let spaces = (0..count).map(|_| input.u16().map(Space)).collect::<Result<_, _>>()?;
                Self::CleanUp { session, spaces }
            }
            REAP => Self::Reap { path: input.text()? },
            ADVERTISE => {
                let (host, line) = (input.i32()? as u32, input.text()?);
                let count = input.count(4)?.unwrap_or(0);
                let members = (0..count).map(|_| Ok(input.i32()? as u32)).collect::<Result<_, _>>()?;
                Self::Advertise { host, line, members }
            }
            _ => return Err(Malformed),
        })
    }
}

fn write_touched(sessions: &[(ZkSessionId, ConnectionEpoch)], out: &mut Vec<u8>) {
    out.put_count(sessions.len());
    for (session, epoch) in sessions {
        out.put_u64(session.0);
        out.put_u64(epoch.0);
    }
}

fn read_touched(input: &mut JuteInput<'_>) -> Result<Vec<(ZkSessionId, ConnectionEpoch)>, Malformed> {
    let count = input.count(16)?.unwrap_or(0);
    (0..count).map(|_| Ok((ZkSessionId(input.u64()?), ConnectionEpoch(input.u64()?)))).collect()
}

impl Origin {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.put_u64(self.gateway.as_u64());
        out.put_u64(self.connection.as_u64());
    }

    pub(crate) fn read(input: &mut JuteInput<'_>) -> Result<Self, Malformed> {
        let gateway = NodeId::from_u64(input.u64()?);
        Ok(Self { gateway, connection: NodeId::from_u64(input.u64()?) })
    }
}

impl<'a> WriteHead<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.session.0);
        out.put_u64(self.epoch.0);
        out.push(u8::from(self.ephemeral) | u8::from(self.ttl_allowed) << 1);
        self.caller.write(out);
        out.put_i32(self.opcode);
    }

    fn read(input: &mut JuteInput<'a>) -> Result<Self, Malformed> {
        let (session, epoch) = (ZkSessionId(input.u64()?), ConnectionEpoch(input.u64()?));
        let flags = input.u8()?;
        let (ephemeral, ttl_allowed) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self {
            session,
            epoch,
            ephemeral,
            ttl_allowed,
            caller: Caller::read(input)?,
            opcode: input.i32()?,
        })
    }

    /// The steps that follow.
    pub fn operation<'b>(&self, request: &'b [u8]) -> Result<WriteOperation<'b>, Malformed> {
        WriteOperation::read(self.opcode, &mut JuteInput(request))?.ok_or(Malformed)
    }
}

/// What a home group answers about sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionAnswer {
    /// The session is attached to the connection that asked.
    Attached {
        /// Which.
        session: ZkSessionId,
        /// The connection's number.
        epoch: ConnectionEpoch,
        /// The proof for the next time.
        password: [u8; 16],
        /// In milliseconds, as granted.
        timeout: i32,
    },
    /// There is no such session, or the password is wrong, or there are too many sessions.
    Refused,
    /// Understood.
    Done,
    /// These were touched in vain: they have ended, or have another connection.
    Gone {
        /// As they were named.
        sessions: Vec<(ZkSessionId, ConnectionEpoch)>,
    },
    /// Some that were touched are at home in another group, or come from one and are not here yet.
    Elsewhere {
        /// Those.
        sessions: Vec<(ZkSessionId, ConnectionEpoch)>,
        /// As in `Gone`.
        gone: Vec<(ZkSessionId, ConnectionEpoch)>,
    },
}

impl SessionAnswer {
    /// It on its own.
    pub fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Attached { session, epoch, password, timeout } => {
                out.push(1);
                out.put_u64(session.0);
                out.put_u64(epoch.0);
                out.extend_from_slice(password);
                out.put_i32(*timeout);
            }
            Self::Refused => out.push(2),
            Self::Done => out.push(3),
            Self::Gone { sessions } => {
                out.push(4);
                write_touched(sessions, &mut out);
            }
            Self::Elsewhere { sessions, gone } => {
                out.push(5);
                write_touched(sessions, &mut out);
                write_touched(gone, &mut out);
            }
        }
        out
    }

    /// Reads it.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(bytes);
        Ok(match input.u8()? {
            1 => Self::Attached {
                session: ZkSessionId(input.u64()?),
                epoch: ConnectionEpoch(input.u64()?),
                password: input.take(16)?.try_into().map_err(|_| Malformed)?,
                timeout: input.i32()?,
            },
            2 => Self::Refused,
            3 => Self::Done,
            4 => Self::Gone { sessions: read_touched(&mut input)? },
            5 => Self::Elsewhere { sessions: read_touched(&mut input)?, gone: read_touched(&mut input)? },
            _ => return Err(Malformed),
        })
    }
}

/// What a home group sends a gateway unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeNotice {
    /// The session has another connection now: close this one.
    Moved {
        /// The connection that is to be closed.
        connection: NodeId,
        /// The session.
        session: ZkSessionId,
    },
    /// The session has ended, and its nodes are gone for all that ask from now on.
    Ended {
        /// Its last connection.
        connection: NodeId,
        /// The session.
        session: ZkSessionId,
    },
}

impl HomeNotice {
    /// It on its own.
    pub fn written(self) -> Vec<u8> {
        let (tag, connection, session) = match self {
            Self::Moved { connection, session } => (1, connection, session),
            Self::Ended { connection, session } => (2, connection, session),
        };
        let mut out = vec![tag];
        out.put_u64(connection.as_u64());
        out.put_u64(session.0);
        out
    }

    /// Reads it.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(bytes);
        let tag = input.u8()?;
        let (connection, session) = (NodeId::from_u64(input.u64()?), ZkSessionId(input.u64()?));
        match tag {
            1 => Ok(Self::Moved { connection, session }),
            2 => Ok(Self::Ended { connection, session }),
            _ => Err(Malformed),
        }
    }
}
