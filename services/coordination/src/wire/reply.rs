//! What users are sent: handshakes, headers, notifications, frames.

use crate::wire::{JuteInput, JuteOutput, Malformed};

/// The xid of notifications.
pub const NOTIFICATION_XID: i32 = -1;
/// The zxid of a notification that makes up for what was missed: -1.
pub const NO_ZXID: u64 = u64::MAX;
/// The xid of pings.
pub const PING_XID: i32 = -2;

/// The first frame of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest<'a> {
    /// The last zxid that the client has seen.
    pub last_zxid_seen: i64,
    /// In milliseconds.
    pub timeout: i32,
    /// 0 for a new session.
    pub session: i64,
    /// The proof.
    pub password: &'a [u8],
    /// Whether the client sent the byte that says if it would take a read-only server; the response then has one, too.
    pub knows_read_only: bool,
}

impl<'a> ConnectRequest<'a> {
    /// Reads it.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(body);
        let _version = input.i32()?;
        let mut request = Self {
            last_zxid_seen: input.i64()?,
            timeout: input.i32()?,
            session: input.i64()?,
            password: input.buffer()?.unwrap_or_default(),
            knows_read_only: false,
        };
        request.knows_read_only = input.bool().is_ok();
        Ok(request)
    }
}

/// The response to the first frame. A refusal is all zeros.
pub fn connect_response(
    timeout: i32,
    session: u64,
    password: &[u8; 16],
    knows_read_only: bool,
    out: &mut Vec<u8>,
) {
    frame(out, |out| {
        out.put_i32(0);
        out.put_i32(timeout);
        out.put_u64(session);
        out.put_buffer(Some(password));
        if knows_read_only {
            out.push(0);
        }
    });
}

/// Appends one frame: the length of what `write` appends, and that.
pub fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// The header of every reply.
pub fn reply_header(xid: i32, zxid: u64, error: i32, out: &mut Vec<u8>) {
    out.put_i32(xid);
    out.put_u64(zxid);
    out.put_i32(error);
}

/// What has happened to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum EventKind {
    Created = 1,
    Deleted = 2,
    DataChanged = 3,
    ChildrenChanged = 4,
}

impl EventKind {
    /// The kind of a number.
    pub fn of_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            _ => return None,
        })
    }
}

/// A whole frame that announces an event; 3 is "connected".
pub fn notification(kind: EventKind, path: &str, zxid: u64, out: &mut Vec<u8>) {
    frame(out, |out| {
        reply_header(NOTIFICATION_XID, zxid, 0, out);
        out.put_i32(kind as i32);
        out.put_i32(3);
        out.put_text(path);
    });
}
