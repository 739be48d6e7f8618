//! What a service does at the native port: takes its calls in and counts its answers out.

use crate::access::PortCaller;
use crate::family::{Ordinate, OrdinateMessage};
use crate::owed::OwedReads;
use kernel::{Bytes, Instant};
use runtime::{CloseReason, SessionCx};

/// Who calls, and what it is owed.
pub struct Asker<'a> {
    /// Who.
    pub caller: &'a mut PortCaller,
    /// What it is to be answered.
    pub reads: &'a mut OwedReads,
    /// Messages that say that it was not granted what it asked; they are sent at once.
    pub refusals: &'a mut Vec<Bytes>,
}

/// A service's part of the native port of a host.
///
/// **Contract.** What the caller was not granted goes no further, and is answered in [`Asker::refusals`].
pub trait NativeCalls: Send {
    /// Hands on what a client says to this service: a message that begins with one of its receivers' tags. False if there is no room
    /// for what it would be answered; it is tried again then.
    fn take(
        &self,
        message: &Bytes,
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason>;

    /// Notes an answer, if it is one of this service's. Where there is no room for it, it becomes the word that the host is busy.
    fn answered(&self, message: OrdinateMessage, _reads: &mut OwedReads, _now: Instant) -> OrdinateMessage {
        message
    }

    /// A client's connection is gone.
    fn closed(&self, _cx: &mut SessionCx<'_, Ordinate>) {}
}

/// What an answer takes that has nothing of what is stored in it.
pub const SMALL_ANSWER_BYTES: usize = 256;
/// A client says what only hosts may say.
pub const NOT_FOR_CLIENTS: CloseReason = CloseReason("message that clients may not send");
/// A client says what nobody understands.
pub const UNREADABLE: CloseReason = CloseReason("message that does not decode");
