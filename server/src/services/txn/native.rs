//! Transactions at the native port: calls for this host's gateway.

use super::{LISTED, access};
use crate::family::{Ordinate, OrdinateMessage};
use crate::latency::CallFailure;
use crate::owed::OwedReads;
use crate::services::native::{NativeAnswer, NativeCall, SMALL_ANSWER_BYTES, UNREADABLE};
use crate::services::{Asker, NativeCalls};
use kernel::client::{ConnectionIn, Disconnected};
use kernel::{Bytes, Instant, NodeId};
use runtime::{CloseReason, SessionCx};
use wire::txn::{Failed, TO_CLIENT, TO_HOST, TxnFailure, TxnReply, native_reply, read_native_call};

/// Calls to this host's gateway.
pub(super) struct Calls {
    pub(super) gateway: NodeId,
}

impl NativeCalls for Calls {
    fn take(
        &self,
        message: &Bytes,
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        if message.first() != Some(&TO_HOST) {
            return Err(UNREADABLE);
        }
        if asker.caller.is_checked() {
            let call = read_native_call(message).map_err(|_| UNREADABLE)?;
            if !access::may(asker.caller, &call) {
                let id = asked(message).and_then(|asked| asked.id);
                if let Some(asked) = asked(message) {
                    asker.reads.watch.refuse((LISTED.name, asked.operation), CallFailure::NOT_GRANTED);
                }
                let refused = id.map(|id| TxnReply::from(Failed { id, why: TxnFailure::NotGranted }));
                asker.refusals.extend(refused.map(|reply| native_reply(&reply).into()));
                return Ok(true);
            }
        }
        let Asked { id, reads: is_read, operation } = asked(message).ok_or(UNREADABLE)?;
        let bytes = if is_read { asker.reads.expected() } else { SMALL_ANSWER_BYTES };
        let operation = (LISTED.name, operation);
        let call = NativeCall { receiver: TO_HOST, id, operation, bytes, waits: false };
        Ok(asker.hand_on(&call, message, self.gateway, cx))
    }

    fn answered(&self, message: OrdinateMessage, reads: &mut OwedReads, now: Instant) -> OrdinateMessage {
        let OrdinateMessage::Connection(ConnectionIn::Output(output)) = message else { return message };
        let Some((id, is_read)) = read_head(&output.bytes) else {
            return OrdinateMessage::Connection(ConnectionIn::Output(output));
        };
        // What a commit came to is always said.
        let (may_be_refused, failure) = (is_read, failure_in(&output.bytes));
        let answer = NativeAnswer { receiver: TO_HOST, id, may_be_refused, failure };
        let busy = |id| native_reply(&Failed { id, why: TxnFailure::Busy }.into()).into();
        let output = answer.count_out(LISTED.name, output, reads, now, busy);
        OrdinateMessage::Connection(ConnectionIn::Output(output))
    }

    /// Its interactive transactions are given up.
    fn closed(&self, cx: &mut SessionCx<'_, Ordinate>) {
        cx.send(self.gateway, OrdinateMessage::User(Disconnected {}.into()));
    }
}

/// What the head of a call says: the rest is the gateway's to read.
struct Asked {
    /// Its number, if it is answered.
    id: Option<u64>,
    /// Its answer has what is stored.
    reads: bool,
    /// What it does, for metrics.
    operation: &'static str,
}

/// Tag, variant and number.
const HEAD_BYTES: usize = 10;
/// Where the level of a read-only transaction stands, behind the session's token.
const LEVEL_AT: usize = HEAD_BYTES + 8;

fn asked(message: &Bytes) -> Option<Asked> {
    let head = message.get(..HEAD_BYTES)?;
    let id = u64::from_le_bytes(*head[2..].first_chunk()?);
    let (reads, operation) = match head[1] {
        1 => (true, read_operation(*message.get(LEVEL_AT)?)),
        2 => (wants_rows(&message[HEAD_BYTES..]).unwrap_or(true), "one_shot"),
        3 => (false, "begin"),
        4 => (true, "read_within"),
        5 => (false, "commit"),
        6 => return Some(Asked { id: None, reads: false, operation: "give_up" }),
        7 => (false, "fence"),
        8 => (false, "commit_status"),
        // Of a later version: the gateway closes the connection.
        _ => return None,
    };
    Some(Asked { id: Some(id), reads, operation })
}

/// Whether a one-shot, behind its head, is answered what keys hold; none if it is malformed. One that only writes needs no room for
/// that, and thousands may wait for a lock.
fn wants_rows(mut rest: &[u8]) -> Option<bool> {
    fn skip(rest: &mut &[u8], bytes: usize) -> Option<()> {
        rest.split_off(..bytes).map(|_| ())
    }
    fn tag(rest: &mut &[u8]) -> Option<bool> {
        rest.split_off_first().map(|tag| *tag != 0)
    }
    fn number(rest: &mut &[u8]) -> Option<usize> {
        let number = rest.split_off(..4)?;
        Some(u32::from_le_bytes(*number.first_chunk()?) as usize)
    }
    fn skip_bytes(rest: &mut &[u8]) -> Option<()> {
        let length = number(rest)?;
        skip(rest, length)
    }
    // The token, the name, and what is acknowledged.
    skip(&mut rest, 8)?;
    let name = if tag(&mut rest)? { 16 } else { 0 };
    skip(&mut rest, name + 8)?;
    for _ in 0..number(&mut rest)? {
        skip_bytes(&mut rest)?;
        skip(&mut rest, 8)?;
    }
    for _ in 0..number(&mut rest)? {
        skip_bytes(&mut rest)?;
        if tag(&mut rest)? {
            skip_bytes(&mut rest)?;
        }
    }
    let reads = number(&mut rest)?;
    for _ in 0..reads {
        skip_bytes(&mut rest)?;
    }
    Some(reads + number(&mut rest)? > 0)
}

/// Reads of each level are measured apart.
fn read_operation(level: u8) -> &'static str {
    match level {
        1 => "read_strict",
        2 => "read_rss",
        3 => "read_process_ordered",
        4 => "read_at",
        _ => "read_stale",
    }
}

/// The variants that have rows and change nothing: they can be asked for again.
const READ_VARIANTS: [u8; 2] = [1, 5];

/// The number of the call that a reply answers, and whether it is that of a read.
fn read_head(bytes: &Bytes) -> Option<(u64, bool)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let id = u64::from_le_bytes(*head[2..].first_chunk()?);
    (head[0] == TO_CLIENT).then(|| (id, READ_VARIANTS.contains(&head[1])))
}

/// The variant that says why a call was not done, behind its number.
const FAILED_VARIANT: u8 = 8;

/// Why a call was not done; none if it was.
fn failure_in(reply: &Bytes) -> Option<CallFailure> {
    if reply.first() != Some(&TO_CLIENT) || reply.get(1) != Some(&FAILED_VARIANT) {
        return None;
    }
    let number = usize::from(*reply.get(HEAD_BYTES)?);
    let why = TxnFailure::ALL.get(number.checked_sub(1)?)?;
    Some(match why {
        TxnFailure::Aborted => CallFailure::of_caller("aborted"),
        TxnFailure::Busy => CallFailure::BUSY,
        TxnFailure::Unknown => CallFailure::of_service("unknown"),
        TxnFailure::Malformed => CallFailure::of_caller("malformed"),
        TxnFailure::Collected => CallFailure::of_caller("collected"),
        TxnFailure::FromTheFuture => CallFailure::of_caller("from_the_future"),
        TxnFailure::NoClock => CallFailure::of_service("no_clock"),
        TxnFailure::DiskFull => CallFailure::of_service("disk_full"),
        TxnFailure::NoTransaction => CallFailure::of_caller("no_transaction"),
        TxnFailure::Unavailable => CallFailure::of_service("unavailable"),
        TxnFailure::NotGranted => CallFailure::NOT_GRANTED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::txn::{
        CallKey, Commit, CommitStatus, Committed, Condition, GiveUp, KeyWrite, OneShot, ReadOnly, ReadRows,
        RowsWithin, Timestamp, TxnCall, TxnLevel, native_call,
    };

    // A call that is measured as another one, or not taken for a read, has no room for its rows.
    #[test]
    fn calls_are_known_by_their_heads() {
        let of = |call: TxnCall| {
            let asked = asked(&native_call(&call).into()).expect("it is a call");
            (asked.id, asked.reads, asked.operation)
        };
        let token = Timestamp(1 << 40);
        let levels = [
            (TxnLevel::Strict, "read_strict"),
            (TxnLevel::Rss, "read_rss"),
            (TxnLevel::ProcessOrdered, "read_process_ordered"),
            (TxnLevel::At(Timestamp(9)), "read_at"),
            (TxnLevel::Stale(9), "read_stale"),
        ];
        for (level, operation) in levels {
            let call = ReadOnly { id: 7, token, level, keys: Vec::new(), scans: Vec::new() };
            assert_eq!(of(call.into()), (Some(7), true, operation));
        }
        let key = CallKey { session: 1, number: 2 };
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let one_shot = |key, reads: &[&'static str], otherwise: &[&'static str]| {
            let conditions = vec![Condition { key: bytes("a"), version: Timestamp(7) }];
            let writes = vec![
                KeyWrite { key: bytes("a"), value: Some(bytes("value")) },
                KeyWrite { key: bytes("b"), value: None },
            ];
            let reads = reads.iter().map(|text| bytes(text)).collect();
            let otherwise = otherwise.iter().map(|text| bytes(text)).collect();
            let (id, acknowledged) = (7, 2);
            of(OneShot { id, token, key, acknowledged, conditions, writes, reads, otherwise }.into())
        };
        for key in [None, Some(key)] {
            assert_eq!(one_shot(key, &[], &[]), (Some(7), false, "one_shot"));
            assert_eq!(one_shot(key, &["c"], &[]), (Some(7), true, "one_shot"));
            assert_eq!(one_shot(key, &["c\0\0\0\0"], &[]), (Some(7), true, "one_shot"));
            assert_eq!(one_shot(key, &[], &["c"]), (Some(7), true, "one_shot"));
        }
        let commit = Commit { id: 8, txn: 1, key: Some(key), acknowledged: 0, writes: Vec::new() };
        assert_eq!(of(commit.into()), (Some(8), false, "commit"));
        assert_eq!(of(CommitStatus { id: 9, key }.into()), (Some(9), false, "commit_status"));
        assert_eq!(of(GiveUp { txn: 9 }.into()), (None, false, "give_up"));
        assert!(asked(&Bytes::from_static(&[TO_HOST, 99, 0, 0, 0, 0, 0, 0, 0, 0])).is_none());
    }

    // A commit that is taken for a read is answered "busy, not executed" though it was.
    #[test]
    fn replies_are_known_by_their_heads() {
        let head = |reply: TxnReply| read_head(&native_reply(&reply).into());
        let (token, at) = (Timestamp(1), Timestamp(2));
        let (rows, scans) = (Vec::new(), Vec::new());
        let read = ReadRows { id: 7, token, at, rows: rows.clone(), scans: scans.clone() };
        assert_eq!(head(read.into()), Some((7, true)));
        let within = RowsWithin { id: 8, token, rows: rows.clone(), scans };
        assert_eq!(head(within.into()), Some((8, true)));
        assert_eq!(head(Committed { id: 9, token, at, rows }.into()), Some((9, false)));
        assert_eq!(head(Failed { id: 10, why: TxnFailure::Busy }.into()), Some((10, false)));
        assert_eq!(read_head(&Bytes::from_static(&[TO_CLIENT, 1, 0])), None);
        for why in TxnFailure::ALL {
            let failure = failure_in(&native_reply(&Failed { id: 10, why }.into()).into());
            assert!(failure.is_some(), "{why:?} is counted");
        }
        assert_eq!(
            failure_in(&native_reply(&Failed { id: 10, why: TxnFailure::Aborted }.into()).into()),
            Some(CallFailure::of_caller("aborted"))
        );
        let read = ReadRows { id: 6, token, at, rows: Vec::new(), scans: Vec::new() };
        assert_eq!(failure_in(&native_reply(&read.into()).into()), None);
    }
}
