//! What an operation needs to know of a node: everything but its data and its children's names.

use crate::wire::{Acl, JuteInput, JuteOutput, Malformed, Stat, ZkSessionId, read_acls, write_acls};
use std::sync::Arc;

/// How long a node lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Persistent,
    /// Belongs to a session.
    Ephemeral(ZkSessionId),
    Container,
    /// Milliseconds without change or child.
    Ttl(u64),
}

impl Kind {
    /// A tag and a number.
    pub(crate) fn parts(self) -> (u8, u64) {
        match self {
            Self::Persistent => (0, 0),
            Self::Ephemeral(session) => (1, session.0),
            Self::Container => (2, 0),
            Self::Ttl(ttl) => (3, ttl),
        }
    }

    pub(crate) fn of_parts(tag: u8, number: u64) -> Option<Self> {
        Some(match tag {
            0 => Self::Persistent,
            1 => Self::Ephemeral(ZkSessionId(number)),
            2 => Self::Container,
            3 => Self::Ttl(number),
            _ => return None,
        })
    }
}

/// See the file's head.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Meta {
    pub(crate) czxid: u64,
    pub(crate) mzxid: u64,
    pub(crate) pzxid: u64,
    pub(crate) ctime: u64,
    pub(crate) mtime: u64,
    pub(crate) version: i32,
    /// How many children were ever created; wraps.
    pub(crate) creates: i32,
    pub(crate) aversion: i32,
    pub(crate) kind: Kind,
    pub(crate) children: u32,
    pub(crate) data_len: u32,
    pub(crate) acl: Arc<[Acl]>,
}

impl Meta {
    /// What users see.
    pub(crate) fn stat(&self) -> Stat {
        let children = self.children as i32;
        Stat {
            czxid: self.czxid as i64,
            mzxid: self.mzxid as i64,
            ctime: self.ctime as i64,
            mtime: self.mtime as i64,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: match self.kind {
                Kind::Ephemeral(session) => session.0 as i64,
                Kind::Persistent | Kind::Container | Kind::Ttl(_) => 0,
            },
            data_length: self.data_len as i32,
            num_children: children,
            pzxid: self.pzxid as i64,
        }
    }

    /// The global sequence number of the last change that shows in data, children or `Stat`.
    pub(crate) fn changed(&self) -> u64 {
        self.mzxid.max(self.pzxid)
    }

    /// True for a container whose children have gone, and for a node whose time has run out.
    pub(crate) fn has_served(&self, now: u64) -> bool {
        self.children == 0
            && match self.kind {
                Kind::Container => self.creates != 0,
                Kind::Ttl(ttl) => now.saturating_sub(self.mtime) > ttl,
                Kind::Persistent | Kind::Ephemeral(_) => false,
            }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in [self.czxid, self.mzxid, self.pzxid, self.ctime, self.mtime] {
            out.put_u64(number);
        }
        for number in [self.version, self.creates, self.aversion] {
            out.put_i32(number);
        }
        let (tag, number) = self.kind.parts();
        out.push(tag);
        out.put_u64(number);
        out.put_i32(self.children as i32);
        out.put_i32(self.data_len as i32);
        write_acls(if crate::wire::is_open(&self.acl) { &[] } else { &self.acl }, out);
    }

    pub(crate) fn read(input: &mut JuteInput<'_>, open: &Arc<[Acl]>) -> Result<Self, Malformed> {
        let (czxid, mzxid, pzxid) = (input.u64()?, input.u64()?, input.u64()?);
        let (ctime, mtime) = (input.u64()?, input.u64()?);
        let (version, creates, aversion) = (input.i32()?, input.i32()?, input.i32()?);
        let kind = Kind::of_parts(input.u8()?, input.u64()?).ok_or(Malformed)?;
        let (children, data_len) = (input.i32()? as u32, input.i32()? as u32);
        let acls = read_acls(input)?;
        let acl = if acls.is_empty() { open.clone() } else { acls.into() };
        Ok(Self {
            czxid,
            mzxid,
            pzxid,
            ctime,
            mtime,
            version,
            creates,
            aversion,
            kind,
            children,
            data_len,
            acl,
        })
    }
}
