//! What users ask: opcodes, and requests as they are read from a frame without copying.

use crate::wire::acl::{read_acls, write_acls};
use crate::wire::{Acl, JuteInput, JuteOutput, Malformed};

/// Opcodes.
#[allow(missing_docs)]
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const CLOSE: i32 = -11;
    pub const ERROR: i32 = -1;
    /// Ours: gives a subtree another path, atomically.
    pub const RENAME: i32 = 1000;
    /// Ours: deletes a subtree, atomically.
    pub const REMOVE_RECURSIVE: i32 = 1001;
    /// Ours, inside of a multi: fails unless the node is the very one that was read.
    pub const CHECK_SAME: i32 = 1002;
    /// Ours: makes a node, or makes it over, as it was elsewhere: with its versions, times and counter.
    pub const RESTORE: i32 = 1003;
    /// Ours, of a port: a request that was not granted, in whose turn that is answered.
    pub const REFUSED: i32 = 1004;
}

/// How long a node lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Until it is deleted.
    Persistent,
    /// Until its session ends.
    Ephemeral,
    /// Until its last child has gone.
    Container,
    /// Until it has had no child and no change for that long.
    Ttl,
}

impl Mode {
    /// The mode of a request's flags, and whether the name is completed by the parent's counter.
    pub fn of_flags(flags: i32) -> Option<(Self, bool)> {
        Some(match flags {
            0 => (Self::Persistent, false),
            1 => (Self::Ephemeral, false),
            2 => (Self::Persistent, true),
            3 => (Self::Ephemeral, true),
            4 => (Self::Container, false),
            5 => (Self::Ttl, false),
            6 => (Self::Ttl, true),
            _ => return None,
        })
    }
}

/// create, create2, createContainer, createTTL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create<'a> {
    /// Where; for a sequential node all but its number.
    pub path: &'a str,
    /// Its data; null is not the same as empty.
    pub data: Option<&'a [u8]>,
    /// Who may do what.
    pub acl: Vec<Acl>,
    /// See [`Mode::of_flags`].
    pub flags: i32,
    /// Milliseconds; -1 where the request has none.
    pub ttl: i64,
    /// Whether it is a createTTL.
    pub has_ttl: bool,
    /// Whether the node's `Stat` is answered, too.
    pub with_stat: bool,
}

impl Create<'_> {
    /// See [`Mode::of_flags`].
    pub fn is_sequential(&self) -> bool {
        Mode::of_flags(self.flags).is_some_and(|(_, sequential)| sequential)
    }

    /// Whether the node belongs to the session.
    pub fn is_ephemeral(&self) -> bool {
        Mode::of_flags(self.flags).is_some_and(|(mode, _)| mode == Mode::Ephemeral)
    }
}

/// A node as it was elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoredNode<'a> {
    /// Where.
    pub path: &'a str,
    /// Its data.
    pub data: Option<&'a [u8]>,
    /// Who may do what; taken as it is, since identities were proven elsewhere.
    pub acl: Vec<Acl>,
    /// Flags of a create: 0, 4 or 5.
    pub flags: i32,
    /// Milliseconds; -1 where the node has none.
    pub ttl: i64,
    /// Its version.
    pub version: i32,
    /// How many children were ever created below it.
    pub creates: i32,
    /// The version of its list.
    pub aversion: i32,
    /// Milliseconds since 1970.
    pub ctime: i64,
    /// Milliseconds since 1970.
    pub mtime: i64,
}

impl RestoredNode<'_> {
    /// The body of a request.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_text(self.path);
        out.put_buffer(self.data);
        write_acls(&self.acl, out);
        out.put_i32(self.flags);
        out.put_i64(self.ttl);
        [self.version, self.creates, self.aversion].into_iter().for_each(|number| out.put_i32(number));
        [self.ctime, self.mtime].into_iter().for_each(|time| out.put_i64(time));
    }

    fn read<'a>(input: &mut JuteInput<'a>) -> Result<RestoredNode<'a>, Malformed> {
        Ok(RestoredNode {
            path: input.text()?,
            data: input.buffer()?,
            acl: read_acls(input)?,
            flags: input.i32()?,
            ttl: input.i64()?,
            version: input.i32()?,
            creates: input.i32()?,
            aversion: input.i32()?,
            ctime: input.i64()?,
            mtime: input.i64()?,
        })
    }
}

/// A step of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Update<'a> {
    Create(Create<'a>),
    Delete { path: &'a str, version: i32 },
    SetData { path: &'a str, data: Option<&'a [u8]>, version: i32 },
    SetAcl { path: &'a str, acl: Vec<Acl>, version: i32 },
    Check { path: &'a str, version: i32 },
    CheckSame { path: &'a str, czxid: i64, mzxid: i64, aversion: i32 },
    Restore(RestoredNode<'a>),
}

impl<'a> Update<'a> {
    fn read(opcode: i32, input: &mut JuteInput<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match opcode {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => Self::Create(Create {
                path: input.text()?,
                data: input.buffer()?,
                acl: read_acls(input)?,
                flags: input.i32()?,
                ttl: if opcode == op::CREATE_TTL { input.i64()? } else { -1 },
                has_ttl: opcode == op::CREATE_TTL,
                with_stat: opcode != op::CREATE,
            }),
            op::DELETE => Self::Delete { path: input.text()?, version: input.i32()? },
            op::SET_DATA => {
                Self::SetData { path: input.text()?, data: input.buffer()?, version: input.i32()? }
            }
            op::SET_ACL => {
                Self::SetAcl { path: input.text()?, acl: read_acls(input)?, version: input.i32()? }
            }
            op::CHECK => Self::Check { path: input.text()?, version: input.i32()? },
            op::CHECK_SAME => Self::CheckSame {
                path: input.text()?,
                czxid: input.i64()?,
                mzxid: input.i64()?,
                aversion: input.i32()?,
            },
            op::RESTORE => Self::Restore(RestoredNode::read(input)?),
            _ => return Ok(None),
        }))
    }

    /// The length of the data that it writes.
    pub fn data_len(&self) -> usize {
        let data = match self {
            Self::Create(create) => create.data,
            Self::Restore(restore) => restore.data,
            Self::SetData { data, .. } => *data,
            Self::Delete { .. } | Self::SetAcl { .. } | Self::Check { .. } | Self::CheckSame { .. } => None,
        };
        data.map_or(0, <[u8]>::len)
    }

    /// The node it is about.
    pub fn path(&self) -> &'a str {
        match self {
            Self::Create(create) => create.path,
            Self::Restore(restore) => restore.path,
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. }
            | Self::CheckSame { path, .. } => path,
        }
    }

    /// What it is as a step of a multi. ZooKeeper makes objects of its own of the steps: it fails for a mode that it does not
    /// know, and for a time to live in a request that has none; the mode alone decides whether one counts, and whether the
    /// result has a `Stat`.
    fn into_step(self) -> Option<Self> {
        let Self::Create(create) = self else { return Some(self) };
        let (mode, _) = Mode::of_flags(create.flags)?;
        Some(match mode {
            Mode::Persistent | Mode::Ephemeral => {
                Self::Create(Create { ttl: -1, with_stat: create.with_stat && !create.has_ttl, ..create })
            }
            Mode::Container => Self::Create(Create { ttl: -1, with_stat: true, ..create }),
            Mode::Ttl if create.has_ttl => Self::Create(create),
            Mode::Ttl => return None,
        })
    }

    /// Whether it makes an ephemeral node.
    pub fn is_ephemeral(&self) -> bool {
        matches!(self, Self::Create(create) if create.is_ephemeral())
    }
}

/// A write, as it is sequenced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteOperation<'a> {
    /// One step.
    Single(Update<'a>),
    /// All steps or none.
    Multi(Vec<Update<'a>>),
}

impl<'a> WriteOperation<'a> {
    /// Reads the body of a write; `None` for an unknown opcode.
    pub fn read(opcode: i32, input: &mut JuteInput<'a>) -> Result<Option<Self>, Malformed> {
        if opcode != op::MULTI {
            return Ok(Update::read(opcode, input)?.map(Self::Single));
        }
        let mut updates = Vec::new();
        loop {
            let (kind, done, _error) = (input.i32()?, input.bool()?, input.i32()?);
            if done {
                return Ok(Some(Self::Multi(updates)));
            }
            let update = match kind {
                op::SET_ACL | op::RESTORE => None,
                _ => Update::read(kind, input)?,
            };
            updates.push(update.and_then(Update::into_step).ok_or(Malformed)?);
        }
    }

    /// Its steps.
    pub fn updates(&self) -> &[Update<'a>] {
        match self {
            Self::Single(update) => std::slice::from_ref(update),
            Self::Multi(updates) => updates,
        }
    }
}

/// What a returning client still watches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetWatches<'a> {
    /// The last zxid that the client has seen.
    pub relative_zxid: i64,
    /// Watches on data of nodes that existed.
    pub data: Vec<&'a str>,
    /// Watches on nodes that did not exist.
    pub exist: Vec<&'a str>,
    /// Watches on children.
    pub child: Vec<&'a str>,
    /// Persistent watches.
    pub persistent: Vec<&'a str>,
    /// Persistent watches on whole subtrees.
    pub recursive: Vec<&'a str>,
}

/// A request of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Request<'a> {
    /// A write; its bytes are sequenced as they came.
    Write(WriteOperation<'a>),
    /// exists, getData, getChildren, getChildren2, getACL.
    Read {
        opcode: i32,
        path: &'a str,
        watch: bool,
    },
    /// getData and getChildren of several nodes at one moment.
    MultiRead(Vec<(i32, &'a str)>),
    Sync {
        path: &'a str,
    },
    Ping,
    Close,
    Auth {
        scheme: &'a str,
        token: &'a [u8],
    },
    SetWatches(SetWatches<'a>),
    AddWatch {
        path: &'a str,
        mode: i32,
    },
    CheckWatches {
        path: &'a str,
        kind: i32,
    },
    RemoveWatches {
        path: &'a str,
        kind: i32,
    },
    WhoAmI,
    Reconfig,
    Sasl,
    /// Not granted, as the port has found.
    Refused,
    GetEphemerals {
        prefix: &'a str,
    },
    GetAllChildrenNumber {
        path: &'a str,
    },
    Rename {
        from: &'a str,
        to: &'a str,
        limit: i32,
    },
    RemoveRecursive {
        path: &'a str,
        limit: i32,
    },
    /// No opcode of ours.
    Unknown,
}

impl<'a> Request<'a> {
    /// Reads what follows xid and opcode in a frame.
    pub fn read(opcode: i32, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(body);
        let input = &mut input;
        Ok(match opcode {
            // Outside of a multi it is no operation of ZooKeeper's.
            op::CHECK | op::CHECK_SAME => Self::Unknown,
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
                Self::Read { opcode, path: input.text()?, watch: input.bool()? }
            }
            op::GET_ACL => Self::Read { opcode, path: input.text()?, watch: false },
            op::MULTI_READ => Self::MultiRead(multi_read(input)?),
            op::SYNC => Self::Sync { path: input.text()? },
            op::PING => Self::Ping,
            op::CLOSE => Self::Close,
            op::AUTH => {
                let _kind = input.i32()?;
                Self::Auth { scheme: input.text()?, token: input.buffer()?.unwrap_or_default() }
            }
            op::SET_WATCHES | op::SET_WATCHES2 => {
                let mut watches = SetWatches {
                    relative_zxid: input.i64()?,
                    data: input.texts()?,
                    exist: input.texts()?,
                    child: input.texts()?,
                    ..SetWatches::default()
                };
                if opcode == op::SET_WATCHES2 {
                    watches.persistent = input.texts()?;
                    watches.recursive = input.texts()?;
                }
                Self::SetWatches(watches)
            }
            op::ADD_WATCH => Self::AddWatch { path: input.text()?, mode: input.i32()? },
            op::CHECK_WATCHES => Self::CheckWatches { path: input.text()?, kind: input.i32()? },
            op::REMOVE_WATCHES => Self::RemoveWatches { path: input.text()?, kind: input.i32()? },
            op::WHO_AM_I => Self::WhoAmI,
            op::RECONFIG => Self::Reconfig,
            op::SASL => Self::Sasl,
            op::REFUSED => Self::Refused,
            op::GET_EPHEMERALS => Self::GetEphemerals { prefix: input.text()? },
            op::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path: input.text()? },
            op::RENAME => Self::Rename { from: input.text()?, to: input.text()?, limit: input.i32()? },
            op::REMOVE_RECURSIVE => Self::RemoveRecursive { path: input.text()?, limit: input.i32()? },
            _ => match WriteOperation::read(opcode, input)? {
                Some(operation) => Self::Write(operation),
                None => Self::Unknown,
            },
        })
    }
}

fn multi_read<'a>(input: &mut JuteInput<'a>) -> Result<Vec<(i32, &'a str)>, Malformed> {
    let mut reads = Vec::new();
    loop {
        let (kind, done, _error) = (input.i32()?, input.bool()?, input.i32()?);
        if done {
            return Ok(reads);
        }
        if !matches!(kind, op::GET_DATA | op::GET_CHILDREN) {
            return Err(Malformed);
        }
        let (path, _watch) = (input.text()?, input.bool()?);
        reads.push((kind, path));
    }
}
