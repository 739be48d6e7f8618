//! How long requests of ZooKeeper's clients take, and how they fail, read off the frames that pass the port.

use super::LISTED;
use crate::latency::{CallFailure, Latencies, Stopwatch};
use coordination::wire::{Code, op};
use kernel::Instant;

/// What passes a connection in one direction: frames, each behind its length, in pieces of any size. Of each the first bytes are looked
/// at, length included.
#[derive(Default, Debug)]
struct Frames<const HEAD_BYTES: usize> {
    /// The first frame of a connection opens the session, in both directions: it has no number.
    opened: bool,
    /// What is left of a frame.
    skip: usize,
    /// The beginning of a frame whose rest has not come.
    begun: Vec<u8>,
}

/// Length, number of the request, opcode.
const REQUEST_HEAD_BYTES: usize = 12;
/// Length, number of the request, zxid, error.
const ANSWER_HEAD_BYTES: usize = 20;

impl<const HEAD_BYTES: usize> Frames<HEAD_BYTES> {
    /// Calls `each` with what begins each frame.
    fn pass(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8; HEAD_BYTES])) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
            if let (true, Some((head, rest))) = (self.begun.is_empty(), bytes.split_first_chunk()) {
                bytes = rest;
                self.begin(head, &mut each);
                continue;
            }
            let wanted = (HEAD_BYTES - self.begun.len()).min(bytes.len());
            if self.skip > 0 || wanted == 0 {
                return;
            }
            self.begun.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            let Some(head) = self.begun.first_chunk().copied() else { return };
            self.begun.clear();
            self.begin(&head, &mut each);
        }
    }

    /// A frame's head is there.
    fn begin(&mut self, head: &[u8; HEAD_BYTES], each: &mut impl FnMut(&[u8; HEAD_BYTES])) {
        self.skip = (number_at(head, 0).max(0) as usize + 4).saturating_sub(HEAD_BYTES);
        if self.opened {
            each(head);
        }
        self.opened = true;
    }
}

/// The number that stands at an offset of a head; 0 where the head ends before.
fn number_at(head: &[u8], offset: usize) -> i32 {
    head.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| i32::from_be_bytes(*bytes))
}

/// The requests of one connection.
pub(super) struct Timing {
    requests: Frames<REQUEST_HEAD_BYTES>,
    answers: Frames<ANSWER_HEAD_BYTES>,
    watch: Stopwatch<i32>,
}

impl Timing {
    pub(super) fn new(latencies: Latencies) -> Self {
        Self { requests: Frames::default(), answers: Frames::default(), watch: Stopwatch::new(latencies) }
    }

    /// Whole requests go to the gateway.
    pub(super) fn asked(&mut self, bytes: &[u8], now: Instant) {
        self.requests.pass(bytes, |head| {
            let (number, opcode) = (number_at(head, 4), number_at(head, 8));
            self.watch.start(number, (LISTED.name, name_of(opcode)), now);
        });
    }

    /// Answers go to the client; what is no answer has a number that no request has.
    pub(super) fn answered(&mut self, bytes: &[u8], now: Instant) {
        self.answers.pass(bytes, |head| {
            let (number, error) = (number_at(head, 4), number_at(head, 16));
            match Code::of_failure(error) {
                Some(code) if number >= 0 => self.watch.fail(number, LISTED.name, failure_of(code), now),
                Some(_) | None => self.watch.stop(number, now),
            }
        });
    }
}

fn failure_of(code: Code) -> CallFailure {
    match code {
        Code::Ok | Code::RuntimeInconsistency => CallFailure::of_service("other"),
        Code::OperationTimeout => CallFailure::of_service("timeout"),
        Code::Throttled => CallFailure::of_service("throttled"),
        Code::MarshallingError => CallFailure::of_caller("malformed"),
        Code::Unimplemented => CallFailure::of_caller("unimplemented"),
        Code::BadArguments => CallFailure::of_caller("bad_arguments"),
        Code::NoNode => CallFailure::of_caller("no_node"),
        Code::NoAuth => CallFailure::NOT_GRANTED,
        Code::BadVersion => CallFailure::of_caller("bad_version"),
        Code::NoChildrenForEphemerals => CallFailure::of_caller("no_children_for_ephemerals"),
        Code::NodeExists => CallFailure::of_caller("node_exists"),
        Code::NotEmpty => CallFailure::of_caller("not_empty"),
        Code::SessionExpired => CallFailure::of_caller("session_expired"),
        Code::InvalidAcl => CallFailure::of_caller("invalid_acl"),
        Code::AuthFailed => CallFailure::of_caller("auth_failed"),
        Code::SessionMoved => CallFailure::of_caller("session_moved"),
        Code::NoWatcher => CallFailure::of_caller("no_watcher"),
        Code::ReconfigDisabled => CallFailure::of_caller("reconfig_disabled"),
        Code::QuotaExceeded => CallFailure::of_caller("quota_exceeded"),
    }
}

fn name_of(opcode: i32) -> &'static str {
    match opcode {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => "create",
        op::DELETE => "delete",
        op::EXISTS => "exists",
        op::GET_DATA => "get_data",
        op::SET_DATA => "set_data",
        op::GET_ACL => "get_acl",
        op::SET_ACL => "set_acl",
        op::GET_CHILDREN | op::GET_CHILDREN2 => "get_children",
        op::SYNC => "sync",
        op::PING => "ping",
        op::MULTI => "multi",
        op::MULTI_READ => "multi_read",
        op::SET_WATCHES | op::SET_WATCHES2 => "set_watches",
        op::ADD_WATCH => "add_watch",
        op::REMOVE_WATCHES => "remove_watches",
        op::CLOSE => "close",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::exposition::{Format, MetricsPage};
    use std::time::Duration;

    fn frame(words: &[i32], rest: usize) -> Vec<u8> {
        let length = (4 * words.len() + rest) as u32;
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        [&length.to_be_bytes()[..], &words, &vec![9; rest]].concat()
    }

    // Frames that are divided elsewhere than requests would be measured as others.
    #[test]
    fn answers_find_their_requests_however_they_are_divided() {
        for piece in [1, 3, 7, 1_000] {
            let latencies = Latencies::default();
            let mut timing = Timing::new(latencies.clone());
            let at = |millis| Instant(0) + Duration::from_millis(millis);
            let asked = [
                frame(&[0, 0], 36),
                frame(&[1, op::GET_DATA], 20),
                frame(&[2, op::CREATE], 50),
                frame(&[3, op::DELETE], 0),
            ]
            .concat();
            asked.chunks(piece).for_each(|piece| timing.asked(piece, at(0)));
            let missing = Code::NoNode.number();
            let answers = [
                frame(&[0, 0], 29),
                frame(&[-1, 5, 0, missing], 20),
                frame(&[1, 0, 7, 0], 0),
                frame(&[2, 0, 8, 0], 8),
                frame(&[3, 0, 9, missing], 0),
            ]
            .concat();
            answers.chunks(piece).for_each(|piece| timing.answered(piece, at(3)));
            let mut page = MetricsPage::default();
            latencies.metrics(&mut page);
            let text = page.written(Format::Text);
            let failed =
                "{service=\"coordination\",operation=\"delete\",class=\"caller\",reason=\"no_node\"} 1\n";
            assert!(text.contains(failed) && text.matches("call_failures_total{").count() == 1, "{text}");
            for operation in ["get_data", "create", "delete"] {
                let line = format!("_count{{service=\"coordination\",operation=\"{operation}\"}} 1\n");
                assert!(text.contains(&line), "pieces of {piece}: no {line} in {text}");
            }
            assert!(!text.contains("other"), "{text}");
        }
    }
}
