//! Fetch: looks at every partition once, and where that is not enough waits at the ends of all.

use super::{
    ANSWER_WITHIN, Fault, Job, JobCx, NO_THROTTLE, RESPONSE_BYTES_MAX, ResponseBody, Wanted, code_of_other,
    put_by_topic,
};
use crate::batch;
use crate::brokers::Brokers;
use crate::code::Code;
use crate::permits::{Of, Permitted, Verb};
use crate::request;
use crate::wire::PutKafka as _;
use kernel::{Bytes, Instant};
use shared_log::{Answer, Entries, READ_BYTES_MAX, Read};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Fetch {
    wait: Duration,
    /// When it is answered with what there is.
    wait_until: Instant,
    bytes_min: usize,
    bytes_max: usize,
    parts: Vec<Part>,
    /// Partitions that have not been looked at.
    unseen: usize,
    /// Of the records so far.
    bytes: usize,
    /// Something is wrong with a partition: that is answered at once.
    refused: bool,
}

struct Part {
    topic: Arc<str>,
    partition: i32,
    bytes_max: usize,
    code: Code,
    seen: bool,
    /// Where to read on.
    next: u64,
    /// The log's tail.
    tail: Option<u64>,
    sealed: bool,
    /// Entries, each page with the position of its first.
    pages: Vec<(u64, Bytes)>,
    bytes: usize,
}

/// The longest that a client may wait for records.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// What is asked for of a partition where many are.
const PAGE_BYTES_MIN: usize = 64 << 10;
/// Entries of one page: where they are empty, they take more in a batch than in a log.
const PAGE_ENTRIES_MAX: u32 = 65_536;

impl Fetch {
    pub(super) fn new(request: request::Fetch, permitted: &Permitted, now: Instant) -> Self {
        let at_least_zero = |number: i32| number.max(0) as usize;
        let wait = Duration::from_millis(at_least_zero(request.wait_ms) as u64).min(WAIT_MAX);
        let bytes_max = at_least_zero(request.bytes_max).min(RESPONSE_BYTES_MAX);
        let part = |request::Part { topic, partition, asked }: request::Part<request::FetchFrom>| Part {
            bytes_max: at_least_zero(asked.bytes_max).min(bytes_max),
            code: match (partition, asked.offset) {
                _ if !permitted.may(Verb::Read, Of::Topic(&topic)) => Code::TOPIC_AUTHORIZATION_FAILED,
                (0, 0..) => Code::NONE,
                (0, _) => Code::OFFSET_OUT_OF_RANGE,
                _ => Code::UNKNOWN_TOPIC_OR_PARTITION,
            },
            topic,
            partition,
            seen: false,
            next: asked.offset.max(0) as u64,
            tail: None,
            sealed: false,
            pages: Vec::new(),
            bytes: 0,
        };
        let parts: Vec<Part> = request.parts.into_iter().map(part).collect();
        Self {
            wait,
            wait_until: now + wait,
            bytes_min: at_least_zero(request.bytes_min),
            bytes_max,
            unseen: parts.len(),
            parts,
            bytes: 0,
            refused: false,
        }
    }

    fn read(&self, slot: usize, now: Instant) -> Read {
        let part = &self.parts[slot];
        let share = (self.bytes_max / self.parts.len()).max(PAGE_BYTES_MIN);
        let left = part.bytes_max.saturating_sub(part.bytes);
        Read {
            name: part.topic.to_string(),
            from: part.next,
            entries_max: PAGE_ENTRIES_MAX,
            bytes_max: left.min(share).min(READ_BYTES_MAX as usize) as u32,
            wait_ms: self.wait_until.since(now).as_millis() as u32,
        }
    }

    fn has_enough(&self) -> bool {
        self.unseen == 0 && (self.refused || self.bytes >= self.bytes_min.min(self.bytes_max))
    }

    /// Waits for more, where there can be more.
    fn watch(&self, slot: usize, cx: &mut JobCx) {
        let part = &self.parts[slot];
        let at_an_end = part.sealed && part.tail == Some(part.next);
        if part.code == Code::NONE && !at_an_end && part.bytes < part.bytes_max && cx.now < self.wait_until {
            cx.watches.push((slot, part.topic.clone(), self.read(slot, cx.now)));
        }
    }

    fn see(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.parts[slot].seen, true) {
            self.unseen -= 1;
        }
    }
}

impl Job for Fetch {
    fn slots(&self) -> usize {
        self.parts.len()
    }

    fn patience(&self) -> Duration {
        self.wait + ANSWER_WITHIN
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        if slot == 0 {
            // Time runs from when it is looked at, not from when it came.
            self.wait_until = cx.now + self.wait;
        }
        if self.parts[slot].code != Code::NONE {
            self.refused = true;
            self.see(slot);
        } else if self.bytes >= self.bytes_max && slot > 0 {
            self.see(slot);
        } else {
            let wait_ms = 0;
            let read = Read { wait_ms, ..self.read(slot, cx.now) };
            cx.calls.push((slot, shared_log::Request::Read(read)));
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, cx: &mut JobCx) {
        self.see(slot);
        let part = &mut self.parts[slot];
        match answer {
            // More than a response holds: the next one begins with it.
            Answer::Entries(Entries { tail, rows, .. })
                if self.bytes > 0 && self.bytes + rows.len() > RESPONSE_BYTES_MAX =>
            {
                part.tail = Some(tail);
            }
            Answer::Entries(Entries { first, next, tail, sealed, rows }) if first == part.next => {
                (part.next, part.tail, part.sealed) = (next, Some(tail), sealed);
                if next > first {
                    part.bytes += rows.len();
                    self.bytes += rows.len();
                    part.pages.push((first, rows));
                }
            }
            // Of a read that an earlier Fetch left behind.
            Answer::Entries(_) => {}
            other => {
                part.code = code_of_other(&other);
                self.refused = true;
            }
        }
        if self.unseen > 0 || self.has_enough() {
            return;
        }
        // Those that watch already go on.
        (0..self.parts.len()).for_each(|slot| self.watch(slot, cx));
    }

    fn is_done(&self, asked: bool, now: Instant) -> bool {
        asked && self.unseen == 0 && (self.has_enough() || now >= self.wait_until)
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        out.put_i32(NO_THROTTLE);
        if version >= 7 {
            out.put_code(Code::NONE);
            // No session of fetches: every one says all it wants.
            out.put_i32(0);
        }
        let begin = out.bytes.len();
        let any = Cell::new(false);
        let put = |out: &mut ResponseBody, part: &Part| {
            let code = if part.seen { part.code } else { Code::REQUEST_TIMED_OUT };
            out.put_i32(part.partition);
            out.put_code(code);
            let tail = part.tail.map_or(-1, |tail| tail as i64);
            out.put_i64(tail);
            out.put_i64(tail);
            if version >= 5 {
                out.put_i64(-1);
            }
            // No transaction was aborted.
            out.put_count(0);
            if version >= 11 {
                out.put_i32(-1);
            }
            let length_at = out.bytes.len();
            out.put_i32(0);
            for (first, rows) in &part.pages {
                // Single entries may be larger than what was asked for; together they may not.
                let fits = !any.get() || out.bytes.len() - begin + rows.len() <= RESPONSE_BYTES_MAX;
                if code == Code::NONE && fits {
                    any.set(true);
                    batch::write(*first, rows, &mut out.bytes);
                } else {
                    break;
                }
            }
            let length = (out.bytes.len() - length_at - 4) as u32;
            out.bytes[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        };
        put_by_topic(&self.parts, |part| &part.topic, put, out);
        Ok(Wanted::Yes)
    }
}
