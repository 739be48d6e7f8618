//! What clients asked and were answered, for the checkers.

use super::served::Served;
use consistency::kv::{Expected, KvCall, KvHistory, KvReply, KvVerdict, OperationId};
use consistency::{Process, Time, Value, Version};
use kernel::{Bytes, NodeId, RequestId};
use kv::{Answer, Versioned};
use paxos::{Outcome, Refusal};
use std::collections::BTreeMap;

/// Keys that begin with `k` are deleted now and then; the others never, so that their versions show what was seen.
pub(super) const KEYS: [&str; 5] = ["k0", "k1", "k2", "s0", "s1"];

/// Keys of large values; never deleted.
pub(super) const LARGE_KEYS: [&str; 4] = ["b0", "b1", "b2", "b3"];

/// What a client asked of a key.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Get,
    SequentialGet,
    EventualGet,
    Put(String),
    CompareAndSet {
        version: u64,
        value: String,
    },
    Delete,
    /// What a model judges where it is executed.
    Other,
    /// More than a batch holds.
    TooLarge,
}

struct Open {
    key: &'static str,
    asked: Asked,
    recorded: Option<OperationId>,
    /// What this client had seen of the key when it asked.
    seen: u64,
}

/// All histories of one run.
#[derive(Default)]
pub(super) struct Histories {
    /// Whether links repeat messages: a copy of a call may be executed after another was refused. Connections of real clients do not.
    pub(super) messages_repeat: bool,
    linearizable: KvHistory,
    open: BTreeMap<RequestId, Open>,
    /// The greatest version that a client has seen of a key, in the present process of the client.
    seen: BTreeMap<(NodeId, &'static str), u64>,
    processes: BTreeMap<NodeId, u64>,
    pub(super) served: Served,
}

impl Asked {
    fn kind(&self) -> &'static str {
        match self {
            Self::Get | Self::SequentialGet | Self::EventualGet => "reads",
            Self::Put(_) | Self::CompareAndSet { .. } | Self::Delete => "writes",
            Self::Other | Self::TooLarge => "other calls",
        }
    }
}

impl Histories {
    /// A version that this client may believe in.
    pub(super) fn version_to_expect(&self, node: NodeId, key: &'static str) -> Option<u64> {
        self.seen.get(&(node, key)).copied().filter(|&version| version > 0)
    }

    fn process(&self, node: NodeId, id: RequestId) -> Process {
        // Two operations of a client overlap, so each lane is a process of its own; after an unknown outcome another.
        let incarnation = self.processes.get(&node).copied().unwrap_or(0);
        Process(u64::from(node.host().0) << 40 | incarnation << 20 | id.0)
    }

    pub(super) fn asked(&mut self, id: RequestId, node: NodeId, key: &'static str, asked: Asked, now: u64) {
        let call = match &asked {
            Asked::Get => Some(KvCall::Get),
            Asked::SequentialGet | Asked::EventualGet | Asked::Other | Asked::TooLarge => None,
            Asked::Put(value) => Some(KvCall::Put(Value::from(value.as_str()))),
            Asked::CompareAndSet { version, value } => Some(KvCall::CompareAndSet {
                expected: Expected::Version(Version(*version)),
                value: Value::from(value.as_str()),
            }),
            Asked::Delete => Some(KvCall::Delete),
        };
        let process = self.process(node, id);
        let recorded = call.map(|call| self.linearizable.invoke(process, key, call, Time(now)));
        let seen = self.seen.get(&(node, key)).copied().unwrap_or(0);
        self.open.insert(id, Open { key, asked, recorded, seen });
    }

    pub(super) fn answered(&mut self, node: NodeId, id: RequestId, outcome: Outcome, now: u64) {
        let Some(open) = self.open.remove(&id) else { return };
        match outcome {
            Outcome::Refused(Refusal::Busy) => self.served.refused(open.asked.kind()),
            Outcome::Done(_) | Outcome::Refused(_) => self.served.done(open.asked.kind()),
        }
        let answer = match outcome {
            Outcome::Done(_) if matches!(open.asked, Asked::TooLarge) => {
                panic!("BOUND: a command larger than a batch was executed")
            }
            Outcome::Done(_) if matches!(open.asked, Asked::Other) => return,
            Outcome::Done(bytes) => decode(&bytes),
            Outcome::Refused(Refusal::MaybeExecuted) => return self.unknown(node, open),
            Outcome::Refused(Refusal::Busy | Refusal::DiskFull) if self.messages_repeat => {
                return self.unknown(node, open);
            }
            Outcome::Refused(Refusal::Busy | Refusal::DiskFull) => {
                // If it is executed all the same, a read of it proves the refusal wrong.
                if let Some(recorded) = open.recorded {
                    self.linearizable.fail(recorded, Time(now));
                }
                return;
            }
            Outcome::Refused(Refusal::Malformed) if matches!(open.asked, Asked::TooLarge) => return,
            Outcome::Refused(refusal @ (Refusal::Malformed | Refusal::Conflict | Refusal::NotGranted)) => {
                panic!("LIN: a sound request was refused as {refusal:?}")
            }
        };
        let (reply, version) = reply(&answer);
        if matches!(open.asked, Asked::SequentialGet) && open.key.starts_with('s') {
            kernel::invariant!(
                SC,
                version >= open.seen,
                "{node} had seen version {} of {} and then read version {version}",
                open.seen,
                open.key
            );
        }
        if !matches!(open.asked, Asked::EventualGet) {
            let seen = self.seen.entry((node, open.key)).or_default();
            *seen = version.max(*seen);
        }
        if let Some(recorded) = open.recorded {
            self.linearizable.complete(recorded, reply, Time(now));
        }
    }

    /// A client's process is gone with what it had seen.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.seen.retain(|(of, _), _| *of != node);
    }

    pub(super) fn lost(&mut self, node: NodeId, id: RequestId) {
        self.forget(node);
        if let Some(open) = self.open.remove(&id) {
            self.unknown(node, open);
        }
    }

    fn unknown(&mut self, node: NodeId, open: Open) {
        *self.processes.entry(node).or_default() += 1;
        if let Some(recorded) = open.recorded {
            self.linearizable.unknown(recorded);
        }
    }

    /// Everything asked and answered must be linearizable; false if that took too many steps.
    pub(super) fn check(&mut self) -> bool {
        match self.linearizable.check_linearizable() {
            KvVerdict::Violated { sentences, .. } => panic!("LIN: {sentences:?}"),
            KvVerdict::Undecided { .. } => false,
            KvVerdict::Holds { .. } => true,
        }
    }

    pub(super) fn to_text(&self) -> Option<String> {
        let mut out = Vec::new();
        self.linearizable.write_jsonl(&mut out).ok()?;
        String::from_utf8(out).ok()
    }
}

fn decode(bytes: &Bytes) -> Answer {
    Answer::decode(bytes).unwrap_or_else(|error| panic!("LIN: undecodable answer: {error}"))
}

fn found(found: &Option<Versioned>) -> (KvReply, u64) {
    match found {
        None => (KvReply::absent(), 0),
        Some(Versioned { value, version }) => {
            let value = String::from_utf8_lossy(value).into_owned();
            (KvReply::found(Value::from(value.as_str()), Version(*version)), *version)
        }
    }
}

/// The reply for the history, and the key's version as the client now knows it.
fn reply(answer: &Answer) -> (KvReply, u64) {
    match answer {
        Answer::Written { version, .. } => (KvReply::written(Version(*version)), *version),
        Answer::Deleted { version: 0, .. } => (KvReply::absent(), 0),
        Answer::Deleted { version, .. } => (KvReply::written(Version(*version)), 0),
        Answer::Mismatch { found: holds } | Answer::Found(holds) => found(holds),
        Answer::MismatchAt { version } => (KvReply::refused(Version(*version)), *version),
        Answer::Counted { number, version, .. } => {
            (KvReply::incremented(*number, Version(*version)), *version)
        }
        Answer::Batch(_)
        | Answer::BatchFailed { .. }
        | Answer::FoundMany(_)
        | Answer::Page { .. }
        | Answer::Invalid(_) => panic!("LIN: unexpected answer {answer:?}"),
    }
}
