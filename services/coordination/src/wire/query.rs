//! What a gateway reads from one shard.
//!
//! Every answer begins with the global sequence number of what it shows (0: of the whole shard) and an error code, for the gateway's rules.

use crate::wire::{Acl, Caller, JuteInput, JuteOutput, Malformed, ZkSessionId, read_acls, write_acls};

kernel::number! {
    /// Counts the registrations of a gateway, so that a watch is not taken back by an order that is older than itself.
    pub struct WatchSeq(u64);
}

/// A read of one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query<'a> {
    /// exists, getData, getACL, getChildren, getChildren2.
    Node {
        /// As whom.
        caller: Caller<'a>,
        /// Which of them.
        opcode: i32,
        /// The node.
        path: &'a str,
        /// Registers a watch, if the answer is one that leaves a watch.
        watch: Option<WatchSeq>,
    },
    /// Several of these, answered one behind the other.
    Nodes {
        /// As whom.
        caller: Caller<'a>,
        /// Opcodes and paths.
        reads: Vec<(i32, &'a str)>,
    },
    /// Watches of a returning client: what it missed is answered, the rest is registered.
    SetWatches {
        /// The registration's number.
        seq: WatchSeq,
        /// The last global sequence number the client has seen.
        relative_zxid: i64,
        /// Data, exist, child: one after the other.
        paths: [Vec<&'a str>; 3],
        /// Persistent and recursive watches.
        lasting: [Vec<&'a str>; 2],
    },
    /// The gateway has no use any more for these, unless it has registered them anew since.
    Forget {
        /// The last registration that is known to be unneeded.
        through: WatchSeq,
        /// Of these paths.
        paths: Vec<&'a str>,
    },
    /// A session's ephemeral nodes below a prefix.
    Ephemerals {
        /// Whose.
        session: ZkSessionId,
        /// The beginning of their paths.
        prefix: &'a str,
    },
    /// All sessions' ephemeral nodes.
    Owners {
        /// Bytes of the answer, about, at most.
        bytes_max: u32,
    },
    /// How many nodes this shard has below a path.
    Descendants {
        /// The path.
        path: &'a str,
    },
    /// Containers and nodes with a time to live that seem to have served their time.
    Reapable {
        /// Milliseconds since 1970.
        now: u64,
        /// At most so many.
        limit: u16,
    },
    /// Sizes, for the metrics page.
    Sizes,
    /// Limits of quotas, and how much there is below these paths.
    Quotas {
        /// The paths.
        paths: Vec<&'a str>,
    },
}

/// A change that a returning client missed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired<'a> {
    /// The number of the event's kind.
    pub kind: i32,
    /// Where.
    pub path: &'a str,
}

/// One line of the answer to [`Query::Reapable`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reapable<'a> {
    /// The node.
    pub path: &'a str,
}

const NODE: u8 = 1;
const NODES: u8 = 2;
const SET_WATCHES: u8 = 3;
const FORGET: u8 = 4;
const EPHEMERALS: u8 = 5;
const DESCENDANTS: u8 = 6;
const REAPABLE: u8 = 7;
const SIZES: u8 = 8;
const QUOTAS: u8 = 9;
const OWNERS: u8 = 10;

fn put_texts(texts: &[&str], out: &mut Vec<u8>) {
    out.put_count(texts.len());
    texts.iter().for_each(|text| out.put_text(text));
}

impl<'a> Query<'a> {
    /// It on its own.
    pub fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Node { caller, opcode, path, watch } => {
                out.push(NODE);
                caller.write(&mut out);
                out.put_i32(*opcode);
                out.put_text(path);
                out.put_u64(watch.map_or(0, |seq| seq.0));
            }
            Self::Nodes { caller, reads } => {
                out.push(NODES);
                caller.write(&mut out);
                out.put_count(reads.len());
                for (opcode, path) in reads {
                    out.put_i32(*opcode);
                    out.put_text(path);
                }
            }
            Self::SetWatches { seq, relative_zxid, paths, lasting } => {
                out.push(SET_WATCHES);
                out.put_u64(seq.0);
                out.put_i64(*relative_zxid);
                paths.iter().chain(lasting).for_each(|texts| put_texts(texts, &mut out));
            }
            Self::Forget { through, paths } => {
                out.push(FORGET);
                out.put_u64(through.0);
                put_texts(paths, &mut out);
            }
            Self::Ephemerals { session, prefix } => {
                out.push(EPHEMERALS);
                out.put_u64(session.0);
                out.put_text(prefix);
            }
            Self::Owners { bytes_max } => {
                out.push(OWNERS);
                out.put_i32(*bytes_max as i32);
            }
            Self::Descendants { path } => {
                out.push(DESCENDANTS);
                out.put_text(path);
            }
            Self::Reapable { now, limit } => {
                out.push(REAPABLE);
                out.put_u64(*now);
                out.put_u16(*limit);
            }
            Self::Sizes => out.push(SIZES),
            Self::Quotas { paths } => {
                out.push(QUOTAS);
                put_texts(paths, &mut out);
            }
        }
        out
    }

    /// Reads it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(bytes);
        let input = &mut input;
        Ok(match input.u8()? {
            NODE => Self::Node {
                caller: Caller::read(input)?,
                opcode: input.i32()?,
                path: input.text()?,
                watch: Some(WatchSeq(input.u64()?)).filter(|seq| seq.0 > 0),
            },
            NODES => {
                let caller = Caller::read(input)?;
                let count = input.count(8)?.unwrap_or(0);
                let read = |input: &mut JuteInput<'a>| Ok((input.i32()?, input.text()?));
                Self::Nodes { caller, reads: (0..count).map(|_| read(input)).collect::<Result<_, _>>()? }
            }
            SET_WATCHES => Self::SetWatches {
                seq: WatchSeq(input.u64()?),
                relative_zxid: input.i64()?,
                paths: [input.texts()?, input.texts()?, input.texts()?],
                lasting: [input.texts()?, input.texts()?],
            },
            FORGET => Self::Forget { through: WatchSeq(input.u64()?), paths: input.texts()? },
            EPHEMERALS => Self::Ephemerals { session: ZkSessionId(input.u64()?), prefix: input.text()? },
            OWNERS => Self::Owners { bytes_max: input.i32()? as u32 },
            DESCENDANTS => Self::Descendants { path: input.text()? },
            REAPABLE => Self::Reapable { now: input.u64()?, limit: input.u16()? },
            SIZES => Self::Sizes,
            QUOTAS => Self::Quotas { paths: input.texts()? },
            _ => return Err(Malformed),
        })
    }
}

/// What a shard sends a gateway about one change that it watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent<'a> {
    /// Its position among the events of one operation, over all shards.
    pub position: u32,
    /// The number of its kind.
    pub kind: i32,
    /// Where.
    pub path: &'a str,
    /// Who may read the node; empty if everybody may.
    pub acls: Vec<Acl>,
}

impl<'a> WatchEvent<'a> {
    /// Appends it.
    pub fn write(position: u32, kind: i32, path: &str, acls: &[Acl], out: &mut Vec<u8>) {
        out.put_i32(position as i32);
        out.put_i32(kind);
        out.put_text(path);
        write_acls(if crate::wire::is_open(acls) { &[] } else { acls }, out);
    }

    /// Reads all of a notice.
    pub fn read_all(bytes: &'a [u8]) -> Result<Vec<Self>, Malformed> {
        let mut input = JuteInput(bytes);
        let mut events = Vec::new();
        while !input.0.is_empty() {
            events.push(Self {
                position: input.i32()? as u32,
                kind: input.i32()?,
                path: input.text()?,
                acls: read_acls(&mut input)?,
            });
        }
        Ok(events)
    }
}
