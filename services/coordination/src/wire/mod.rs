//! The words of the service: ZooKeeper's own (jute, big-endian) towards users, and what travels inside operations and reads.

mod acl;
mod code;
mod jute;
mod operation;
mod path;
mod query;
mod quota;
mod reply;
mod request;
mod stat;

pub use acl::{
    Acl, Caller, Identity, OPEN, Permission, allowed, fixed, is_open, plain, read_acls, write_acls,
};
pub use code::Code;
pub use jute::{JuteInput, JuteOutput, Malformed};
pub use operation::{Body, ConnectionEpoch, HomeNotice, Origin, SessionAnswer, WriteHead, ZkSessionId};
pub use path::{is_sequential, name_of, parent_of, sequential_name, validate};
pub use query::{Fired, Query, Reapable, WatchEvent, WatchSeq};
pub use quota::{QuotaLimits, is_limits, limited_by, shown_by};
pub use reply::{
    ConnectRequest, EventKind, NO_ZXID, NOTIFICATION_XID, PING_XID, connect_response, frame, notification,
    reply_header,
};
pub use request::{Create, Mode, Request, RestoredNode, SetWatches, Update, WriteOperation, op};
pub use stat::Stat;
