//! The key-value service at the native port: messages for this host's batcher.

use super::LISTED;
use super::access::{check_command, check_query};
use crate::access::{Area, Need, NeededNames, PortCaller, Right};
use crate::family::{self, Ordinate};
use crate::latency::{CallFailure, MeasuredOperation};
use crate::owed::{OwedRead, OwedReads};
use crate::services::native::{NOT_FOR_CLIENTS, SMALL_ANSWER_BYTES, UNREADABLE};
use crate::services::{Asker, NativeCalls};
use ::kv::{Command, Query};
use kernel::{Bytes, Decode as _, Encode as _, Instant, NodeId};
use parts::Slot;
use paxos::Message;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::{ClientIn, Results, Row, Status};
use runtime::{CloseReason, SessionCx};
use wire::commands::results::OPENING;
use wire::commands::{Commands, GroupKind};

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
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        let message = match Message::decoded(message) {
            Ok(Message::Batcher(message)) => message,
            Ok(_) => return Err(NOT_FOR_CLIENTS),
            Err(_) => return Err(UNREADABLE),
        };
        let Some(message) = granted(message, asker)? else { return Ok(true) };
        let reads = &mut *asker.reads;
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
        if fits {
            let done = results.views().filter(|it| failure_of(it.status).is_none());
            reads.watch.stop_all(done.map(|it| OwedRead::Query(session, it.sequence)), now);
        }
        let mut row = Row::default();
        for answer in results.views() {
            let asked = OwedRead::Query(session, answer.sequence);
            let is_read = reads.answered(asked, answer.bytes.len());
            let failure = if is_read && !fits { Some(CallFailure::BUSY) } else { failure_of(answer.status) };
            match failure {
                Some(failure) => reads.watch.fail(asked, LISTED.name, failure, now),
                None if !fits => reads.watch.stop(asked, now),
                None => {}
            }
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

/// Why a call was not done; none if it was.
fn failure_of(status: Status) -> Option<CallFailure> {
    Some(match status {
        Status::Done => return None,
        Status::Busy => CallFailure::BUSY,
        Status::SessionLost => CallFailure::of_service("session_lost"),
        Status::Malformed => CallFailure::of_caller("malformed"),
        Status::Conflict => CallFailure::of_caller("conflict"),
        Status::DiskFull => CallFailure::of_service("disk_full"),
        Status::NotGranted => CallFailure::NOT_GRANTED,
    })
}

/// What is left of a message without what the caller was not granted, which is answered; none if nothing is left.
fn granted(message: BatcherIn, asker: &mut Asker<'_>) -> Result<Option<BatcherIn>, CloseReason> {
    if !asker.caller.is_checked() {
        return Ok(Some(message));
    }
    let mut refused = Row::default();
    let operation = if matches!(message, BatcherIn::Query(_)) { READ } else { WRITE };
    let (session, left) = match message {
        BatcherIn::Submit(mut message) => {
            let may = |caller: &mut PortCaller, bytes: &[u8]| {
                // What is no command is refused by who executes it.
                Command::decode(bytes).map_or(true, |command| check_command(caller, &command).is_ok())
            };
            let had = message.commands.size() > 0;
            // A session is state of all replicas: it is for those who have something to write.
            let some = Need { right: Right::Write, area: Area::Kv, names: NeededNames::Some };
            if message.kind == GroupKind::Open && !asker.caller.may(some) {
                asker.reads.watch.refuse(operation, CallFailure::NOT_GRANTED);
                refused.push(OPENING, Status::NotGranted, &[]);
                let refused =
                    Message::from(Results { session: message.session, executed: Slot(0), results: refused });
                asker.refusals.push(refused.encoded().into());
                return Ok(None);
            }
            message.commands = without(&message.commands, asker.caller, may, &mut refused)?;
            // A group without commands opens or closes the session.
            let is_left = !had || message.commands.size() > 0;
            (message.session, is_left.then_some(BatcherIn::Submit(message)))
        }
        BatcherIn::Query(mut message) => {
            let may = |caller: &mut PortCaller, bytes: &[u8]| {
                Query::decode(bytes).map_or(true, |query| check_query(caller, &query).is_ok())
            };
            message.queries = without(&message.queries, asker.caller, may, &mut refused)?;
            let is_left = message.queries.size() > 0;
            (message.session, is_left.then_some(BatcherIn::Query(message)))
        }
        BatcherIn::Reconfigure(message) => {
            let session = message.session;
            if !asker.caller.may(Need::whole(Right::Manage, Area::Cluster)) {
                refused.push(message.sequence, Status::NotGranted, &[]);
                (session, None)
            } else {
                (session, Some(BatcherIn::Reconfigure(message)))
            }
        }
        // They close the connection.
        other @ (BatcherIn::PreReadAck(_)
        | BatcherIn::Superseded(_)
        | BatcherIn::Heartbeat(_)
        | BatcherIn::Done(_)) => return Ok(Some(other)),
    };
    if !refused.is_empty() {
        let count = refused.views().count();
        (0..count).for_each(|_| asker.reads.watch.refuse(operation, CallFailure::NOT_GRANTED));
        let refused = Message::from(Results { session, executed: Slot(0), results: refused });
        asker.refusals.push(refused.encoded().into());
    }
    Ok(left)
}

fn without(
    row: &Commands,
    caller: &mut PortCaller,
    may: impl Fn(&mut PortCaller, &[u8]) -> bool,
    refused: &mut Row,
) -> Result<Commands, CloseReason> {
    if !row.is_sound() {
        return Err(UNREADABLE);
    }
    let mut left = Vec::with_capacity(row.size());
    for command in row.iter() {
        if may(caller, command.bytes) {
            Commands::push(&mut left, command.sequence, command.bytes);
        } else {
            refused.push(command.sequence, Status::NotGranted, &[]);
        }
    }
    Ok(Commands::from_row(left))
}
