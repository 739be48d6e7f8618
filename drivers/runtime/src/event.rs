//! What a host reports to its operator: one line an event.

use crate::shortage::Shortage;
use kernel::{ClockTrouble, NodeId};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Something that an operator may want in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostEvent {
    /// Messages can leave for a host.
    LinkUp {
        /// Its name.
        host: String,
    },
    /// They no longer can; dialling goes on.
    LinkDown {
        /// Its name.
        host: String,
        /// Why.
        reason: String,
    },
    /// Somebody who called us as a host was turned away.
    PeerRefused {
        /// From where.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A host's connection to us has ended, for the reason that is given.
    PeerEnded {
        /// From where.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A client was turned away or disconnected.
    ClientClosed {
        /// From where.
        address: SocketAddr,
        /// Why.
        reason: &'static str,
    },
    /// The journal waits for disk space; writes are refused. Said once a minute at most.
    DiskFull,
    /// A batch of the journal took long to write and sync: half a second at least.
    DiskSlow {
        /// How long.
        took: Duration,
    },
    /// There is space again.
    DiskBack,
    /// The journal waits for files or memory; client input has stopped.
    Short {
        /// What of.
        of: Shortage,
    },
    /// The journal goes on.
    NoLongerShort,
    /// The archive cannot be reached, or refuses; what is trimmed stays on the disk.
    ArchiveFails {
        /// Why.
        reason: String,
    },
    /// The archive takes what it is given again.
    ArchiveBack,
    /// The wall clock may not be relied on: duties that rest on it are given up. Said once a minute at most.
    ClockUnusable {
        /// Why.
        trouble: ClockTrouble,
        /// What its source says, if that is why.
        complaint: Option<String>,
    },
    /// It may be relied on again.
    ClockBack,
    /// Why the host stops.
    Stopping {
        /// The error.
        reason: String,
    },
    /// A node's remark; only with tracing.
    Note {
        /// The node.
        node: NodeId,
        /// Plain text.
        text: String,
    },
}

impl fmt::Display for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkUp { host } => write!(f, "link to {host} is up"),
            Self::LinkDown { host, reason } => write!(f, "link to {host} is down: {reason}"),
            Self::PeerRefused { address, reason } => write!(f, "refused the host at {address}: {reason}"),
            Self::PeerEnded { address, reason } => {
                write!(f, "the connection of the host at {address} ended: {reason}")
            }
            Self::ClientClosed { address, reason } => write!(f, "closed the client at {address}: {reason}"),
            Self::DiskFull => write!(f, "the disk is full: writes are refused until there is space"),
            Self::DiskSlow { took } => {
                let seconds = took.as_secs_f64();
                write!(f, "the disk is slow: an fsync took {seconds:.2} s, and what is written waited for it")
            }
            Self::DiskBack => write!(f, "there is disk space again: writes go on"),
            Self::Short { of } => {
                write!(f, "{of}: the journal waits, and client input stops until there are some")
            }
            Self::NoLongerShort => write!(f, "the journal and client input go on"),
            Self::ArchiveFails { reason } => {
                write!(f, "the archive does not take trimmed segments, which stay on the disk: {reason}")
            }
            Self::ArchiveBack => write!(f, "the archive takes trimmed segments again"),
            Self::ClockUnusable { trouble, complaint } => {
                write!(f, "the wall clock is not usable: {trouble}")?;
                complaint.as_ref().map_or(Ok(()), |complaint| write!(f, " ({complaint})"))
            }
            Self::ClockBack => write!(f, "the wall clock is usable again"),
            Self::Stopping { reason } => write!(f, "stopping: {reason}"),
            Self::Note { node, text } => write!(f, "{node}: {text}"),
        }
    }
}

/// Where events go: called on the reactor's thread, so it must not block.
pub type EventSink = Box<dyn FnMut(&HostEvent) + Send>;
