//! The partially ordered log at the native port: calls for this host's gateway.

use super::{LISTED, access};
use crate::family::{Ordinate, OrdinateMessage};
use crate::latency::CallFailure;
use crate::owed::OwedReads;
use crate::services::native::{NativeAnswer, NativeCall, SMALL_ANSWER_BYTES, UNREADABLE};
use crate::services::{Asker, NativeCalls};
use kernel::client::{ConnectionIn, Disconnected};
use kernel::{Bytes, Instant, NodeId};
use runtime::{CloseReason, SessionCx};
use wire::fuzzylog::{
    FuzzyFailed, FuzzyFailure, FuzzyReply, SNAPSHOT_BYTES_MAX, TO_CLIENT, TO_HOST, native_reply,
    read_native_call,
};

/// What a page of nodes may take, unless a single node is larger.
const PAGE_BYTES: usize = 128 << 10;
/// What a node or a colour of an answer takes, about.
const POSITION_BYTES: usize = 64;
/// Where the count of an append's nodes or a snapshot's colours stands: behind what the user has seen, and by whom it is numbered.
const COUNT_AT: usize = HEAD_BYTES + 18 + 24;

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
        let Asked { id, operation, bytes, waits } = asked(message).ok_or(UNREADABLE)?;
        if asker.caller.is_checked() {
            let call = read_native_call(message).map_err(|_| UNREADABLE)?;
            if !access::may(asker.caller, &call) {
                asker.reads.watch.refuse((LISTED.name, operation), CallFailure::NOT_GRANTED);
                let why = FuzzyFailure::NotGranted;
                let refused = FuzzyReply::from(FuzzyFailed { id, why, position: 0 });
                asker.refusals.push(native_reply(&refused).into());
                return Ok(true);
            }
        }
        let operation = (LISTED.name, operation);
        let call = NativeCall { receiver: TO_HOST, id: Some(id), operation, bytes, waits };
        Ok(asker.hand_on(&call, message, self.gateway, cx))
    }

    fn answered(&self, message: OrdinateMessage, reads: &mut OwedReads, now: Instant) -> OrdinateMessage {
        let OrdinateMessage::Connection(ConnectionIn::Output(output)) = message else { return message };
        let Some((id, is_page)) = read_head(&output.bytes) else {
            return OrdinateMessage::Connection(ConnectionIn::Output(output));
        };
        // What an append came to is always said.
        let (may_be_refused, failure) = (is_page, failure_in(&output.bytes));
        let answer = NativeAnswer { receiver: TO_HOST, id, may_be_refused, failure };
        let busy = |id| {
            let failed = FuzzyFailed { id, why: FuzzyFailure::Busy, position: 0 };
            native_reply(&failed.into()).into()
        };
        let output = answer.count_out(LISTED.name, output, reads, now, busy);
        OrdinateMessage::Connection(ConnectionIn::Output(output))
    }

    /// Its calls are not waited for any more.
    fn closed(&self, cx: &mut SessionCx<'_, Ordinate>) {
        cx.send(self.gateway, OrdinateMessage::User(Disconnected {}.into()));
    }
}

/// What the head of a call says: the rest is the gateway's to read.
struct Asked {
    /// Its number.
    id: u64,
    /// What it does, for metrics.
    operation: &'static str,
    /// How large its answer may be.
    bytes: usize,
    /// It waits for what is not there yet.
    waits: bool,
}

/// Tag, variant and number.
const HEAD_BYTES: usize = 10;

fn asked(message: &Bytes) -> Option<Asked> {
    let head = message.get(..HEAD_BYTES).filter(|head| head[0] == TO_HOST)?;
    let id = u64::from_le_bytes(*head[2..].first_chunk()?);
    let count =
        message.get(COUNT_AT..).and_then(|rest| rest.first_chunk()).map_or(0, |it| u32::from_le_bytes(*it));
    let small = SMALL_ANSWER_BYTES + count.min(COUNT_MAX) as usize * POSITION_BYTES;
    let (operation, bytes, waits) = match head[1] {
        1 => ("append", small, false),
        2 => ("sync", PAGE_BYTES, waits(message)?),
        3 => ("play", PAGE_BYTES, false),
        4 => ("snapshot", small, false),
        5 | 9 => ("trim", SMALL_ANSWER_BYTES, false),
        6 => ("append", small, false),
        7 => ("name_snapshot", SNAPSHOT_BYTES_MAX, false),
        8 => ("await_snapshot", SNAPSHOT_BYTES_MAX, true),
        10 => ("cut", SMALL_ANSWER_BYTES, false),
        11 => ("scan", PAGE_BYTES, false),
        12 => ("restore", SMALL_ANSWER_BYTES, false),
        13 => ("open_restored", SMALL_ANSWER_BYTES, false),
        14 => ("move_colour", SMALL_ANSWER_BYTES, true),
        15 => ("add_partition", SMALL_ANSWER_BYTES, true),
        16 => ("remove_partition", SMALL_ANSWER_BYTES, true),
        // Of a later version: the gateway closes the connection.
        _ => return None,
    };
    Some(Asked { id, operation, bytes, waits })
}

/// Whether a sync waits: that stands behind what the user has seen, the colour's name, and the position.
fn waits(sync: &Bytes) -> Option<bool> {
    let (length, rest) = sync.get(HEAD_BYTES + 18..)?.split_first_chunk()?;
    let wait = rest.get(u32::from_le_bytes(*length) as usize + 8..)?;
    Some(*wait.first_chunk::<4>()? != [0; 4])
}

/// More than a call may have.
const COUNT_MAX: u32 = 1_024;

/// The variants of pages, which have nodes and change nothing: they can be asked for again.
const PAGE_VARIANTS: [u8; 3] = [2, 6, 10];
const FAILED_VARIANT: u8 = 5;

/// The number of the call that a reply answers, and whether it is a page.
fn read_head(reply: &Bytes) -> Option<(u64, bool)> {
    let head = reply.get(..HEAD_BYTES).filter(|head| head[0] == TO_CLIENT)?;
    let id = u64::from_le_bytes(*head[2..].first_chunk()?);
    Some((id, PAGE_VARIANTS.contains(&head[1])))
}

/// Why a call was not done; none if it was.
fn failure_in(reply: &Bytes) -> Option<CallFailure> {
    if reply.first() != Some(&TO_CLIENT) || reply.get(1) != Some(&FAILED_VARIANT) {
        return None;
    }
    let why = usize::from(*reply.get(HEAD_BYTES)?);
    Some(match FuzzyFailure::ALL.get(why.checked_sub(1)?)? {
        FuzzyFailure::Busy => CallFailure::BUSY,
        FuzzyFailure::Unknown => CallFailure::of_service("unknown"),
        FuzzyFailure::Malformed => CallFailure::of_caller("malformed"),
        FuzzyFailure::Forgotten => CallFailure::of_caller("forgotten"),
        FuzzyFailure::NumberUsed => CallFailure::of_caller("number_used"),
        FuzzyFailure::Trimmed => CallFailure::of_caller("trimmed"),
        FuzzyFailure::BeyondTail => CallFailure::of_caller("beyond_tail"),
        FuzzyFailure::Full => CallFailure::of_service("full"),
        FuzzyFailure::DiskFull => CallFailure::of_service("disk_full"),
        FuzzyFailure::OneDigest => CallFailure::of_caller("one_digest"),
        FuzzyFailure::NotGranted => CallFailure::NOT_GRANTED,
        FuzzyFailure::OtherRegion => CallFailure::of_caller("other_region"),
        FuzzyFailure::NotHere => CallFailure::of_service("not_here"),
        FuzzyFailure::NoSnapshot => CallFailure::of_caller("no_snapshot"),
        FuzzyFailure::NoClock => CallFailure::of_service("no_clock"),
        FuzzyFailure::FromTheFuture => CallFailure::of_caller("from_the_future"),
        FuzzyFailure::MovedSince => CallFailure::of_service("moved_since"),
        FuzzyFailure::NoPartition => CallFailure::of_caller("no_partition"),
        FuzzyFailure::MapFull => CallFailure::of_caller("map_full"),
        FuzzyFailure::TakenBack => CallFailure::of_service("taken_back"),
        FuzzyFailure::FirstPartition => CallFailure::of_caller("first_partition"),
        FuzzyFailure::AmongRegions => CallFailure::of_caller("among_regions"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzzylog::{
        AppendNodes, AppendedNodes, FuzzyCall, NewNode, NumberedBy, PlayColour, PlayedNodes, SeenTime,
        SnapshotColours, SnapshotTaken, SyncColour, TrimColour, TrimmedColour, native_call,
    };

    // A call whose head is read as another one's has no room for its answer, or waits for room for ever.
    #[test]
    fn calls_are_known_by_their_heads() {
        let of = |call: FuzzyCall| {
            let asked = asked(&native_call(&call).into()).expect("it is a call");
            (asked.id, asked.operation, asked.waits)
        };
        let (seen, colour) = (SeenTime::default(), Bytes::from_static(b"red"));
        let by = NumberedBy { client: 1, number: 2, below: 3 };
        let nodes = vec![NewNode { colours: vec![colour.clone()], bodies: vec![Bytes::new()] }];
        assert_eq!(of(AppendNodes { id: 7, seen, by, nodes }.into()), (7, "append", false));
        let sync = |wait_ms| SyncColour { id: 8, seen, colour: colour.clone(), from: 9, wait_ms }.into();
        assert_eq!(of(sync(0)), (8, "sync", false));
        assert_eq!(of(sync(1)), (8, "sync", true));
        assert_eq!(
            of(PlayColour { id: 9, colour: colour.clone(), from: 1, to: 2 }.into()),
            (9, "play", false)
        );
        let snapshot = SnapshotColours { id: 10, seen, by, colours: vec![colour.clone()] };
        assert_eq!(of(snapshot.into()), (10, "snapshot", false));
        assert_eq!(of(TrimColour { id: 11, colour, before: 1 }.into()), (11, "trim", false));
        assert!(asked(&Bytes::from_static(&[TO_HOST, 99, 0, 0, 0, 0, 0, 0, 0, 0])).is_none());
    }

    // An append that is taken for a page is answered "busy, not executed" though it was.
    #[test]
    fn replies_are_known_by_their_heads() {
        let head = |reply: FuzzyReply| read_head(&native_reply(&reply).into());
        let (seen, nodes) = (SeenTime::default(), Vec::new());
        let page = PlayedNodes { id: 7, seen, from: 0, tail: 0, nodes };
        assert_eq!(head(page.into()), Some((7, true)));
        assert_eq!(head(AppendedNodes { id: 8, seen, nodes: Vec::new() }.into()), Some((8, false)));
        let taken = SnapshotTaken { id: 9, seen, at: seen, tails: Vec::new() };
        assert_eq!(head(taken.into()), Some((9, false)));
        let trimmed: FuzzyReply = TrimmedColour { id: 10, first: 3 }.into();
        assert_eq!(failure_in(&native_reply(&trimmed).into()), None);
        assert_eq!(head(trimmed), Some((10, false)));
        for why in FuzzyFailure::ALL {
            let failed = FuzzyFailed { id: 11, why, position: 0 };
            let reply = Bytes::from(native_reply(&failed.into()));
            assert_eq!(read_head(&reply), Some((11, false)));
            assert!(failure_in(&reply).is_some(), "{why:?} is counted");
        }
    }
}
