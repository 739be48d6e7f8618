//! Producers that number what they append, and send it again until they know what became of it; readers in groups that keep how far they
//! have come.

use consistency::kv::{KvCall, KvHistory, KvReply, KvVerdict, OperationId};
use consistency::search::SearchBudget;
use consistency::{Process, Time, Value};
use kernel::{Bytes, RequestId, Rng, invariant};
use shared_log::{Answer, Commit, Named, Produce, Progress, Request};
use sim::Control;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The logs that producers append to: none is sealed.
const PRODUCED: [&str; 3] = ["orders", "payments", "retained"];
const GROUPS: [&str; 2] = ["billing", "shipping"];
/// The log that groups read.
const READ: &str = "orders";

/// What is known of a producer, one for each client.
#[derive(Default)]
struct Producer {
    epoch: u16,
    /// The number of its next entry.
    next: u32,
    /// What it has sent and was not assured to be there.
    sent: Option<Produce>,
    /// The epoch of the last append that was acknowledged.
    known: Option<u16>,
}

/// A call without an answer.
enum Call {
    Produces {
        client: u16,
        count: u32,
    },
    /// By a producer that does not begin its next epoch with 0.
    ProducesEarly {
        client: u16,
    },
    /// By a producer that has begun its next epoch.
    ProducesLate {
        client: u16,
    },
    Begins {
        group: String,
        reported: u32,
    },
    Commits {
        generation: Option<u32>,
        reported: u32,
        operation: OperationId,
    },
    Asks {
        group: String,
        reported: u32,
        operation: OperationId,
    },
}

/// What producers and groups have asked for and were answered.
#[derive(Default)]
pub(crate) struct Numbered {
    producers: BTreeMap<u16, Producer>,
    calls: BTreeMap<RequestId, Call>,
    /// The latest generation of each group that anybody learned of.
    generations: BTreeMap<String, u32>,
    begun: BTreeSet<(String, u32)>,
    /// How far each group has come: positions, each committed once.
    progress: KvHistory,
    committed: u64,
    processes: u64,
}

impl Numbered {
    /// What the producer of a client appends next: what it has sent before, unless it knows that it is there.
    pub(crate) fn produce(&mut self, client: u16, entries: Bytes, rng: &mut Rng) -> Request {
        let producer = self.producers.entry(client).or_default();
        let begins_anew = rng.chance(0.1);
        if producer.sent.is_none() {
            if begins_anew {
                (producer.epoch, producer.next) = (producer.epoch + 1, 0);
            }
            let name = PRODUCED[usize::from(client) % PRODUCED.len()].to_owned();
            let (epoch, sequence) = (producer.epoch, producer.next);
            let sent =
                Produce { name, producer: u64::from(client) + 1, epoch, sequence, entries, admitted: None };
            // One that was taken for dead goes on in its own epoch, with what would be next.
            if let Some(before) =
                producer.known.filter(|known| *known == epoch).and_then(|it| it.checked_sub(1))
                && rng.chance(0.3)
            {
                return Request::Produce(Produce { epoch: before, ..sent });
            }
            // A stranger who goes by its number has another idea of how far it has come.
            if producer.known.is_some() && rng.chance(0.1) {
                let sequence = sent.sequence + rng.between(1, 3) as u32;
                return Request::Produce(Produce { epoch: epoch + 1, sequence, ..sent });
            }
            producer.sent = Some(sent);
        }
        producer.sent.clone().map_or(Request::GroupOf(Named { name: READ.to_owned() }), Request::Produce)
    }

    /// What a reader of a group asks next.
    pub(crate) fn of_a_group(&mut self, rng: &mut Rng) -> Request {
        let group = (*rng.pick(&GROUPS).unwrap_or(&READ)).to_owned();
        let known = self.reported(&group);
        match rng.below(10) {
            0 => Request::BeginGeneration(Named { name: group }),
            1..=5 => {
                self.committed += 1;
                // Some were put out of the group, and have not heard of it.
                let generation = known.saturating_sub(u32::from(rng.chance(0.2)));
                let note = "n".repeat(rng.below(8) as usize);
                let mut progress =
                    vec![Progress { log: READ.to_owned(), position: self.committed, note: note.clone() }];
                // Of others a group may go back.
                let others = [PRODUCED[1], PRODUCED[2]].into_iter().filter(|_| rng.chance(0.3));
                progress.extend(others.map(|log| Progress {
                    log: log.to_owned(),
                    position: 100 - self.committed % 100,
                    note: note.clone(),
                }));
                Request::Commit(Commit { group, generation: rng.chance(0.9).then_some(generation), progress })
            }
            _ => Request::GroupOf(Named { name: group }),
        }
    }

    fn reported(&self, group: &str) -> u32 {
        self.generations.get(group).copied().unwrap_or(0)
    }

    pub(crate) fn asked(&mut self, id: RequestId, client: u16, request: &Request, now: u64) {
        let call = match request {
            Request::Produce(produce) => {
                let count = shared_log::Rows::count(&produce.entries).unwrap_or(0) as u32;
                let producer = self.producers.get(&client);
                match producer.map_or(produce.epoch, |producer| producer.epoch).cmp(&produce.epoch) {
                    Ordering::Greater => Call::ProducesLate { client },
                    Ordering::Equal => Call::Produces { client, count },
                    Ordering::Less => Call::ProducesEarly { client },
                }
            }
            Request::BeginGeneration(Named { name }) => {
                Call::Begins { group: name.clone(), reported: self.reported(name) }
            }
            Request::Commit(commit) => {
                let position = commit.progress.first().map_or(0, |progress| progress.position);
                let put = KvCall::Put(Value::from(position.to_string().as_str()));
                let operation = self.invoke(&commit.group, put, now);
                Call::Commits {
                    generation: commit.generation,
                    reported: self.reported(&commit.group),
                    operation,
                }
            }
            Request::GroupOf(Named { name }) => {
                let operation = self.invoke(name, KvCall::Get, now);
                Call::Asks { group: name.clone(), reported: self.reported(name), operation }
            }
            _ => return,
        };
        self.calls.insert(id, call);
    }

    fn invoke(&mut self, group: &str, call: KvCall, now: u64) -> OperationId {
        self.processes += 1;
        self.progress.invoke(Process(self.processes), group, call, Time(now))
    }

    pub(crate) fn answered<N: kernel::Node>(
        &mut self,
        id: RequestId,
        answer: &Answer,
        now: u64,
        control: &mut Control<'_, N>,
    ) {
        let Some(call) = self.calls.remove(&id) else { return };
        match (call, answer) {
            (Call::Produces { client, count }, Answer::Appended(_)) => {
                let producer = self.producers.entry(client).or_default();
                producer.next += count;
                producer.known = Some(producer.epoch);
                producer.sent = None;
            }
            (Call::ProducesLate { client }, Answer::Appended(firsts)) => {
                invariant!(UNIQ, false, "producer {client} appends in an earlier epoch, at {firsts:?}");
            }
            (Call::ProducesEarly { client }, Answer::Appended(firsts)) => {
                invariant!(UNIQ, false, "producer {client} begins an epoch in the middle, at {firsts:?}");
            }
            (Call::ProducesLate { .. }, Answer::Rejected(_)) => control.mark("log.fenced_a_producer_off"),
            (Call::Produces { client, .. }, Answer::Rejected(rejected)) => {
                let sent = self.producers.get(&client).and_then(|producer| producer.sent.as_ref());
                invariant!(LIN, false, "producer {client} is refused: {rejected:?} of {sent:?}");
            }
            (Call::Begins { group, reported }, Answer::Group(state)) => {
                invariant!(
                    LIN,
                    state.generation > reported,
                    "{group} begins generation {} after {reported}",
                    state.generation
                );
                let is_new = self.begun.insert((group.clone(), state.generation));
                invariant!(UNIQ, is_new, "{group} has begun generation {} twice", state.generation);
                self.notify(group, state.generation);
            }
            (Call::Commits { generation, reported, operation }, Answer::Done) => {
                invariant!(
                    LIN,
                    generation.is_none_or(|generation| generation >= reported),
                    "generation {generation:?} commits after {reported} has begun"
                );
                self.progress.complete(operation, KvReply::Written { value: None, version: None }, Time(now));
            }
            (Call::Commits { generation, .. }, Answer::Rejected(rejected)) => {
                control.mark("log.fenced_readers_off");
                let other = shared_log::Rejected::Fenced(u64::from(generation.unwrap_or(0)));
                invariant!(LIN, *rejected != other, "generation {generation:?} is fenced off by itself");
            }
            (Call::Asks { group, reported, operation }, Answer::Group(state)) => {
                let generation = state.generation;
                invariant!(
                    LIN,
                    generation >= reported,
                    "{group} is in generation {generation}, not {reported}"
                );
                let found = state.progress.iter().find(|progress| progress.log == READ);
                let value =
                    found.map_or(Value::Nil, |found| Value::from(found.position.to_string().as_str()));
                let reply = KvReply::Found { value: Some(value), version: None };
                self.progress.complete(operation, reply, Time(now));
                self.notify(group, generation);
            }
            // Nobody knows what became of it, or nothing was done.
            _ => {}
        }
    }

    fn notify(&mut self, group: String, generation: u32) {
        let known = self.generations.entry(group).or_insert(0);
        *known = generation.max(*known);
    }

    pub(crate) fn check(&self) {
        if let KvVerdict::Violated { sentences, .. } =
            self.progress.check_linearizable_within(&mut SearchBudget::default())
        {
            panic!("LIN: {sentences:?}");
        }
    }
}
