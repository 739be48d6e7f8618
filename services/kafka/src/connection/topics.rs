//! Metadata, CreateTopics and DeleteTopics.

use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Settings, Wanted, code_of, code_of_other};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::permits::{Of, Permitted, Verb};
use crate::request;
use crate::wire::PutKafka as _;
use shared_log::{Answer, Cleanup, List, Named, RETAIN_BYTES_MIN, Why, is_name};
use std::sync::Arc;

/// Logs asked for at a time.
const PAGE: u32 = 1_000;
/// The setting of a topic that says what becomes of records when the disk budget is reached.
const CLEANUP: &str = "ordinate.cleanup";
/// Who may do what is not asked here.
const NO_OPERATIONS: i32 = i32::MIN;

/// Metadata.
pub(super) struct Describe {
    may_create: bool,
    /// All topics are asked for.
    all: bool,
    /// What is known of each.
    topics: Vec<(Arc<str>, Option<Code>)>,
    code: Option<Code>,
    permitted: Permitted,
}

impl Describe {
    pub(super) fn new(request: request::Metadata, permitted: Permitted) -> Self {
        let all = request.topics.is_none();
        let known = |name: Arc<str>| {
            let known = match is_name(&name) {
                true if sees(&permitted, &name) => None,
                true => Some(Code::TOPIC_AUTHORIZATION_FAILED),
                false => Some(Code::INVALID_TOPIC),
            };
            (name, known)
        };
        let topics = request.topics.unwrap_or_default().into_iter().map(known).collect();
        Self { may_create: request.may_create, all, topics, code: None, permitted }
    }
}

/// Who may do anything with a topic may know of it.
fn sees(permitted: &Permitted, topic: &str) -> bool {
    permitted.sees(Of::Topic(topic))
}

impl Job for Describe {
    fn slots(&self) -> usize {
        if self.all { 1 } else { self.topics.len() }
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        if self.all {
            let list = List { after: String::new(), limit: PAGE };
            return cx.calls.push((slot, shared_log::Request::List(list)));
        }
        let (name, known) = &self.topics[slot];
        if known.is_none() {
            cx.calls.push((slot, shared_log::Request::Stat(Named { name: name.to_string() })));
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, cx: &mut JobCx) {
        if self.all {
            let Answer::Logs(logs) = answer else { return self.code = Some(code_of_other(&answer)) };
            if let Some(last) = logs.last().filter(|_| logs.len() == PAGE as usize) {
                let list = List { after: last.name.clone(), limit: PAGE };
                cx.calls.push((slot, shared_log::Request::List(list)));
            }
            let seen = logs.into_iter().filter(|log| sees(&self.permitted, &log.name));
            return self.topics.extend(seen.map(|log| (log.name.into(), Some(Code::NONE))));
        }
        let (name, known) = &mut self.topics[slot];
        let code = match answer {
            Answer::Logs(_) | Answer::Done => Code::NONE,
            Answer::Refused(refused) => match refused.why {
                Why::NoSuchLog
                    if self.may_create
                        && cx.settings.creates_topics
                        && self.permitted.may(Verb::Manage, Of::Topic(name)) =>
                {
                    let create = create(name, Retention::of(&cx.settings));
                    return cx.calls.push((slot, create));
                }
                Why::Exists => Code::NONE,
                _ => code_of(&refused),
            },
            other => code_of_other(&other),
        };
        *known = Some(code);
    }

    fn write(&self, version: i16, brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 3 {
            out.put_i32(NO_THROTTLE);
        }
        out.put_array(brokers.all.iter(), |out, broker| {
            out.put_i32(broker.node);
            out.put_text(Some(&broker.address));
            out.put_i32(broker.port.into());
            out.put_text(None);
        });
        if version >= 2 {
            out.put_text(Some(&brokers.cluster));
        }
        out.put_i32(brokers.leader_of(&brokers.cluster));
        out.put_array(self.topics.iter(), |out, (name, known)| {
            let code = known.unwrap_or(Code::REQUEST_TIMED_OUT);
            out.put_code(code);
            out.put_text(Some(name));
            out.put(&[0]);
            let partitions = usize::from(code == Code::NONE);
            out.put_array(0..partitions as i32, |out, partition| {
                put_partition(version, partition, name, brokers, out)
            });
            if version >= 8 {
                out.put_i32(NO_OPERATIONS);
            }
        });
        if version >= 8 {
            out.put_i32(NO_OPERATIONS);
        }
        Ok(Wanted::Yes)
    }
}

fn put_partition(version: i16, partition: i32, topic: &str, brokers: &Brokers, out: &mut ResponseBody) {
    out.put_code(Code::NONE);
    out.put_i32(partition);
    out.put_i32(brokers.leader_of(topic));
    if version >= 7 {
        out.put_i32(-1);
    }
    let nodes = |up: &[bool]| -> Vec<i32> {
        brokers.all.iter().filter(|broker| up.contains(&broker.is_up)).map(|broker| broker.node).collect()
    };
    let (replicas, in_sync, offline) = (nodes(&[true, false]), nodes(&[true]), nodes(&[false]));
    out.put_array(replicas.into_iter(), ResponseBody::put_i32);
    out.put_array(in_sync.into_iter(), ResponseBody::put_i32);
    if version >= 5 {
        out.put_array(offline.into_iter(), ResponseBody::put_i32);
    }
}

fn create(name: &str, retention: Retention) -> shared_log::Request {
    let Retention { bytes, millis, cleanup } = retention;
    // The host fills in the capacity.
    shared_log::Request::Create(shared_log::Create {
        name: name.to_owned(),
        retain_bytes: bytes,
        retain_ms: millis,
        capacity: 0,
        cleanup: Some(cleanup),
        first: None,
    })
}

/// What came of a topic: a code, and words where the code alone does not say it.
#[derive(Clone)]
struct Outcome {
    code: Code,
    why: Option<String>,
}

impl From<Code> for Outcome {
    fn from(code: Code) -> Self {
        Self { code, why: None }
    }
}

/// What a topic is to hold.
#[derive(Clone, Copy)]
struct Retention {
    bytes: u64,
    millis: u64,
    cleanup: Cleanup,
}

impl Retention {
    /// Of a topic whose maker says nothing.
    fn of(settings: &Settings) -> Self {
        Self { bytes: settings.retain_bytes, millis: settings.retain_ms, cleanup: Cleanup::Refuse }
    }
}

struct NewLog {
    name: Arc<str>,
    retention: Result<Retention, Outcome>,
    outcome: Option<Outcome>,
}

/// CreateTopics.
pub(super) struct Create {
    only_checks: bool,
    topics: Vec<NewLog>,
}

impl Create {
    pub(super) fn new(request: request::CreateTopics, settings: &Settings, permitted: &Permitted) -> Self {
        let topics = request.topics.into_iter().map(|topic| {
            let retention = match permitted.may(Verb::Manage, Of::Topic(&topic.name)) {
                true => retention_of(&topic, settings),
                false => Err(Code::TOPIC_AUTHORIZATION_FAILED.into()),
            };
            NewLog { name: topic.name, retention, outcome: None }
        });
        Self { only_checks: request.only_checks, topics: topics.collect() }
    }
}

fn retention_of(topic: &request::NewTopic, settings: &Settings) -> Result<Retention, Outcome> {
    if !is_name(&topic.name) {
        return Err(Code::INVALID_TOPIC.into());
    }
    if topic.is_placed || !matches!(topic.partitions, -1 | 1) {
        let why = Some("a topic is one log, and has one partition on all hosts".to_owned());
        return Err(Outcome { code: Code::INVALID_PARTITIONS, why });
    }
    let mut retention = Retention::of(settings);
    for (name, value) in &topic.settings {
        let number = value.as_ref().and_then(|value| value.parse::<i64>().ok());
        match (name.as_str(), number) {
            // Kafka's word for no limit.
            ("retention.bytes", Some(-1)) => retention.bytes = 0,
            ("retention.ms", Some(-1)) => retention.millis = 0,
            ("retention.bytes", Some(number)) if number >= RETAIN_BYTES_MIN as i64 => {
                retention.bytes = number as u64;
            }
            ("retention.ms", Some(number)) if number > 0 => retention.millis = number as u64,
            // What goes is old; how old, or of how much, the other settings say.
            ("cleanup.policy", None) if value.as_deref() == Some("delete") => {}
            (CLEANUP, None) if value.as_deref().and_then(Cleanup::named).is_some() => {
                retention.cleanup = value.as_deref().and_then(Cleanup::named).unwrap_or_default();
            }
            _ => {
                let why = format!(
                    "{name} cannot be {}: only retention.bytes (from {RETAIN_BYTES_MIN}), retention.ms, cleanup.policy = delete and \
                     {CLEANUP} = refuse or drop-oldest can be set",
                    value.as_deref().unwrap_or("null")
                );
                return Err(Outcome { code: Code::INVALID_CONFIG, why: Some(why) });
            }
        }
    }
    Ok(retention)
}

impl Job for Create {
    fn slots(&self) -> usize {
        self.topics.len()
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let topic = &mut self.topics[slot];
        match &topic.retention {
            Ok(_) if self.only_checks => topic.outcome = Some(Code::NONE.into()),
            Ok(retention) => cx.calls.push((slot, create(&topic.name, *retention))),
            Err(refused) => topic.outcome = Some(refused.clone()),
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, _cx: &mut JobCx) {
        self.topics[slot].outcome = Some(match answer {
            Answer::Done => Code::NONE.into(),
            Answer::Refused(refused) if refused.why == Why::Full => {
                let why = Some(format!("there is room for {} bytes more", refused.at));
                Outcome { code: code_of(&refused), why }
            }
            other => code_of_other(&other).into(),
        });
    }

    fn write(&self, _version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        out.put_i32(NO_THROTTLE);
        out.put_array(self.topics.iter(), |out, topic| {
            let outcome = topic.outcome.as_ref();
            out.put_text(Some(&topic.name));
            out.put_code(outcome.map_or(Code::REQUEST_TIMED_OUT, |outcome| outcome.code));
            out.put_text(outcome.and_then(|outcome| outcome.why.as_deref()));
        });
        Ok(Wanted::Yes)
    }
}

/// DeleteTopics.
pub(super) struct Delete {
    topics: Vec<(Arc<str>, Option<Code>)>,
}

impl Delete {
    pub(super) fn new(names: Vec<Arc<str>>, permitted: &Permitted) -> Self {
        let refused = |name: &str| {
            let is_granted = permitted.may(Verb::Manage, Of::Topic(name));
            (!is_granted).then_some(Code::TOPIC_AUTHORIZATION_FAILED)
        };
        let topic = |name: Arc<str>| {
            let code = refused(&name);
            (name, code)
        };
        Self { topics: names.into_iter().map(topic).collect() }
    }
}

impl Job for Delete {
    fn slots(&self) -> usize {
        self.topics.len()
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let (name, code) = &self.topics[slot];
        if code.is_none() {
            let delete = Named { name: name.to_string() };
            cx.calls.push((slot, shared_log::Request::Delete(delete)));
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, _cx: &mut JobCx) {
        self.topics[slot].1 = Some(match answer {
            Answer::Done => Code::NONE,
            other => code_of_other(&other),
        });
    }

    fn write(&self, _version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        out.put_i32(NO_THROTTLE);
        out.put_array(self.topics.iter(), |out, (name, code)| {
            out.put_text(Some(name));
            out.put_code(code.unwrap_or(Code::REQUEST_TIMED_OUT));
        });
        Ok(Wanted::Yes)
    }
}
