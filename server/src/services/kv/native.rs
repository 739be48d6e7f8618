//! The key-value service at the native port: messages for this host's batcher.

use crate::family::{self, Ordinate};
use crate::latency::MeasuredOperation;
use crate::owed::{OwedRead, OwedReads};
use crate::services::NativeCalls;
use crate::services::native::{NOT_FOR_CLIENTS, SMALL_ANSWER_BYTES, UNREADABLE};
use kernel::{Bytes, Decode as _, Instant, NodeId};
use paxos::Message;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::{ClientIn, Results, Row, Status};
use runtime::{CloseReason, SessionCx};

/// Those of all MultiPaxos roles; clients speak to the first, a batcher, and are the last.
pub(super) const RECEIVERS: &[u8] = &[1, 2, 3, 4, 5, 6, 7];

const READ: MeasuredOperation = ("kv", "read");
const WRITE: MeasuredOperation = ("kv", "write");

/// Calls to this host's batcher.
pub(super) struct Calls {
    pub(super) batcher: NodeId,
}

impl NativeCalls for Calls {
    fn take(
        &self,
        message: &Bytes,
        reads: &mut OwedReads,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        let message = match Message::decoded(message) {
            Ok(Message::Batcher(message)) => message,
            Ok(_) => return Err(NOT_FOR_CLIENTS),
            Err(_) => return Err(UNREADABLE),
        };
        match message {
            BatcherIn::Submit(message) => {
                if !reads.admits(SMALL_ANSWER_BYTES) {
                    return Ok(false);
                }
                let session = message.session;
                let asked = message.commands.iter().map(|it| OwedRead::Query(session, it.sequence));
                reads.watch.start_all(asked, WRITE, cx.now());
                cx.send(self.batcher, Message::from(message));
            }
            BatcherIn::Query(message) => {
                let expected = reads.expected();
                let count = message.queries.iter().count();
                if !reads.admits(expected.saturating_mul(count)) {
                    return Ok(false);
                }
                for query in message.queries.iter() {
                    let asked = OwedRead::Query(message.session, query.sequence);
                    reads.ask(asked, expected, cx.now());
                }
                let asked = message.queries.iter().map(|it| OwedRead::Query(message.session, it.sequence));
                reads.watch.start_all(asked, READ, cx.now());
                cx.send(self.batcher, Message::from(message));
            }
            BatcherIn::Reconfigure(message) => cx.send(self.batcher, Message::from(message)),
            BatcherIn::PreReadAck(_)
            | BatcherIn::Superseded(_)
            | BatcherIn::Heartbeat(_)
            | BatcherIn::Done(_) => return Err(NOT_FOR_CLIENTS),
        }
        Ok(true)
    }

    /// Answers to reads that there is no room for become the word that the host is busy: the client asks again.
    fn answered(
        &self,
        message: family::OrdinateMessage,
        reads: &mut OwedReads,
        now: Instant,
    ) -> family::OrdinateMessage {
        let family::OrdinateMessage::Kv(Message::Client(ClientIn::Results(results))) = message else {
            return message;
        };
        let Results { session, executed, results } = results;
        let bytes: usize = results.views().map(|answer| answer.bytes.len()).sum();
        let fits = bytes <= SMALL_ANSWER_BYTES || reads.takes(bytes);
        reads.watch.stop_all(results.views().map(|it| OwedRead::Query(session, it.sequence)), now);
        let mut row = Row::default();
        for answer in results.views() {
            let asked = OwedRead::Query(session, answer.sequence);
            let is_read = reads.answered(asked, answer.bytes.len());
            if is_read && !fits {
                row.push(answer.sequence, Status::Busy, &[]);
            } else if !fits {
                row.push(answer.sequence, answer.status, answer.bytes);
            }
        }
        let results = if fits { results } else { row };
        Message::from(Results { session, executed, results }).into()
    }
}
