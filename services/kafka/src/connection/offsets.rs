//! ListOffsets: where a topic begins and ends, and where it was at a time.
//!
//! The first offset whose timestamp is at least the one asked is looked for by reading the log: timestamps are the producers' own and
//! need not grow, so nothing shorter is exact. A log is in memory, and read at most once.

use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted, code_of_other, put_by_topic};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::entry::{NO_TIMESTAMP, Record};
use crate::permits::{Of, Permitted, Verb};
use crate::request;
use crate::wire::PutKafka as _;
use shared_log::{Answer, Entries, Named, READ_BYTES_MAX, Read, Rows};
use std::sync::Arc;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The offset where there is none.
const NONE: i64 = -1;

pub(super) struct Offsets {
    parts: Vec<Part>,
}

struct Part {
    topic: Arc<str>,
    partition: i32,
    /// The time asked for.
    timestamp: i64,
    /// None until it is known; then the timestamp and the offset.
    found: Option<Result<(i64, i64), Code>>,
}

impl Offsets {
    pub(super) fn new(parts: Vec<request::Part<i64>>, permitted: &Permitted) -> Self {
        let part = |request::Part { topic, partition, asked }: request::Part<i64>| {
            let found = match (partition, asked) {
                _ if !permitted.may(Verb::Read, Of::Topic(&topic)) => {
                    Some(Err(Code::TOPIC_AUTHORIZATION_FAILED))
                }
                (0, EARLIEST..) => None,
                (0, _) => Some(Err(Code::INVALID_REQUEST)),
                _ => Some(Err(Code::UNKNOWN_TOPIC_OR_PARTITION)),
            };
            Part { topic, partition, timestamp: asked, found }
        };
        Self { parts: parts.into_iter().map(part).collect() }
    }
}

impl Part {
    fn read(&self, from: u64) -> shared_log::Request {
        let name = self.topic.to_string();
        shared_log::Request::Read(Read {
            name,
            from,
            entries_max: u32::MAX,
            bytes_max: READ_BYTES_MAX,
            wait_ms: 0,
        })
    }

    /// Looks through a page; none to look on.
    fn search(&self, page: &Entries) -> Option<(i64, i64)> {
        let mut records = (page.first..).zip(Rows::iter(&page.rows));
        let found = records.find_map(|(position, entry)| {
            let timestamp = Record::of(&page.rows.slice_ref(entry)).timestamp;
            (timestamp >= self.timestamp).then_some((timestamp, position as i64))
        });
        found.or_else(|| (page.next >= page.tail).then_some((NO_TIMESTAMP, NONE)))
    }
}

impl Job for Offsets {
    fn slots(&self) -> usize {
        self.parts.len()
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let part = &self.parts[slot];
        if part.found.is_none() {
            cx.calls.push((slot, shared_log::Request::Stat(Named { name: part.topic.to_string() })));
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, cx: &mut JobCx) {
        let part = &mut self.parts[slot];
        part.found = match answer {
            Answer::Logs(logs) if logs.len() == 1 => match part.timestamp {
                EARLIEST => Some(Ok((NO_TIMESTAMP, logs[0].first as i64))),
                LATEST => Some(Ok((NO_TIMESTAMP, logs[0].next as i64))),
                _ => return cx.calls.push((slot, part.read(logs[0].first))),
            },
            Answer::Entries(page) => match part.search(&page) {
                Some(found) => Some(Ok(found)),
                None => return cx.calls.push((slot, part.read(page.next))),
            },
            // It was trimmed meanwhile: what is left begins later.
            Answer::Refused(refused) if refused.why == shared_log::Why::Trimmed => {
                return cx.calls.push((slot, part.read(refused.at)));
            }
            other => Some(Err(code_of_other(&other))),
        };
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 2 {
            out.put_i32(NO_THROTTLE);
        }
        let put = |out: &mut ResponseBody, part: &Part| {
            let (code, (timestamp, offset)) = match part.found {
                Some(Ok(found)) => (Code::NONE, found),
                Some(Err(code)) => (code, (NO_TIMESTAMP, NONE)),
                None => (Code::REQUEST_TIMED_OUT, (NO_TIMESTAMP, NONE)),
            };
            out.put_i32(part.partition);
            out.put_code(code);
            out.put_i64(timestamp);
            out.put_i64(offset);
            if version >= 4 {
                out.put_i32(-1);
            }
        };
        put_by_topic(&self.parts, |part| &part.topic, put, out);
        Ok(Wanted::Yes)
    }
}
