//! Produce: every batch is appended, and its outcome is answered.

use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted, code_of_other, put_by_topic};
use crate::batch::{Batch, Chunk, Sender};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::compression::PLAIN_BYTES_MAX;
use crate::permits::{Of, Permitted, Verb};
use crate::request;
use crate::wire::PutKafka as _;
use shared_log::{Answer, Append};
use std::sync::Arc;
use std::time::Duration;

/// The offset of what has none, or of what is in several logs.
const NO_OFFSET: i64 = -1;
/// How long a client waits at most.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

pub(super) struct Produce {
    acks: i16,
    timeout: Duration,
    parts: Vec<Part>,
    chunks: Vec<Pending>,
    bytes: usize,
}

struct Part {
    topic: Arc<str>,
    partition: i32,
    /// What is wrong.
    code: Code,
    /// The offset of the first record.
    base: i64,
    /// The offset after the last record so far.
    next: i64,
    unanswered: usize,
}

/// What is to be appended for a part.
struct Pending {
    part: usize,
    chunk: Chunk,
    /// Of an idempotent producer.
    sender: Option<Sender>,
}

impl Produce {
    pub(super) fn new(request: request::Produce, permitted: &Permitted) -> Self {
        let refused = match (request.acks, &request.transactional) {
            (-1..=1, None) => Code::NONE,
            (-1..=1, Some(_)) => Code::INVALID_REQUEST,
            _ => Code::INVALID_REQUIRED_ACKS,
        };
        let (mut chunks, mut bytes, mut budget) = (Vec::new(), 0, PLAIN_BYTES_MAX);
        let mut parts = Vec::new();
        for (index, request::Part { topic, partition, asked }) in request.parts.into_iter().enumerate() {
            let is_granted = permitted.may(Verb::Write, Of::Topic(&topic));
            let batch = match (refused, partition) {
                (Code::NONE, _) if !is_granted => Err(Code::TOPIC_AUTHORIZATION_FAILED),
                (Code::NONE, 0) => Batch::read(asked.unwrap_or_default(), &mut budget),
                (Code::NONE, _) => Err(Code::UNKNOWN_TOPIC_OR_PARTITION),
                (code, _) => Err(code),
            };
            let begin = chunks.len();
            let code = match batch {
                Ok(batch) => {
                    let mut sender = batch.sender;
                    for chunk in batch.chunks {
                        bytes += chunk.rows.len();
                        let (count, idempotent) = (chunk.count, sender.producer >= 0);
                        chunks.push(Pending { part: index, chunk, sender: idempotent.then_some(sender) });
                        sender = sender.after(count);
                    }
                    Code::NONE
                }
                Err(code) => code,
            };
            let unanswered = chunks.len() - begin;
            parts.push(Part { topic, partition, code, base: NO_OFFSET, next: NO_OFFSET, unanswered });
        }
        let timeout = Duration::from_millis(request.timeout_ms.max(0) as u64).min(TIMEOUT_MAX);
        Self { acks: request.acks, timeout, parts, chunks, bytes }
    }
}

impl Job for Produce {
    fn slots(&self) -> usize {
        self.chunks.len()
    }

    fn calls_max(&self) -> usize {
        usize::MAX
    }

    fn waits_its_turn(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        self.timeout
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let Pending { part, chunk, sender } = &mut self.chunks[slot];
        let name = self.parts[*part].topic.to_string();
        let entries = std::mem::take(&mut chunk.rows);
        let request = match *sender {
            None => {
                let parts = vec![shared_log::Part { name, expect: None, entries }];
                shared_log::Request::Append(Append { parts, admitted: None })
            }
            Some(Sender { producer, epoch, sequence }) => {
                let (producer, epoch, sequence) = (producer as u64, epoch as u16, sequence as u32);
                let produce =
                    shared_log::Produce { name, producer, epoch, sequence, entries, admitted: None };
                shared_log::Request::Produce(produce)
            }
        };
        cx.calls.push((slot, request));
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, _cx: &mut JobCx) {
        let Pending { part, chunk, .. } = &self.chunks[slot];
        let part = &mut self.parts[*part];
        part.unanswered -= 1;
        match answer {
            Answer::Appended(firsts) if firsts.len() == 1 => {
                let first = firsts[0] as i64;
                let begins = part.next == NO_OFFSET && part.base == NO_OFFSET;
                part.base = if begins {
                    first
                } else if part.next == first {
                    part.base
                } else {
                    NO_OFFSET
                };
                part.next = first + i64::from(chunk.count);
            }
            other if part.code == Code::NONE => part.code = code_of_other(&other),
            _ => {}
        }
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let code_of = |part: &Part| match part.code {
            Code::NONE if part.unanswered > 0 => Code::REQUEST_TIMED_OUT,
            code => code,
        };
        if self.acks == 0 {
            self.parts.iter().for_each(|part| out.note(code_of(part)));
            return if out.failure.is_none() { Ok(Wanted::No) } else { Err(Fault::UnacknowledgedAppend) };
        }
        let put = |out: &mut ResponseBody, part: &Part| {
            let code = code_of(part);
            out.put_i32(part.partition);
            out.put_code(code);
            out.put_i64(if code == Code::NONE { part.base } else { NO_OFFSET });
            // The time of the append, where the log counts by it: here the producer's counts.
            out.put_i64(-1);
            if version >= 5 {
                out.put_i64(-1);
            }
        };
        put_by_topic(&self.parts, |part| &part.topic, put, out);
        out.put_i32(NO_THROTTLE);
        Ok(Wanted::Yes)
    }
}
