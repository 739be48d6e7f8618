//! What a replica executes, answers and compares.

use super::*;
use kernel::{DecodeError, SnapshotStep, StateMachine};
use paxos::multipaxos::replica::{self, ReadGroup, Replica, ReplicaIn, ReplicaTimer};
use paxos::multipaxos::unbatcher::UnbatcherIn;
use paxos::{
    Batch, BatchId, CommandGroup, GroupKind, Message, REPEATED_BYTES_MAX, RETAINED_ANSWERS_BYTES_MAX, Rules,
};

/// Answers how many commands it has executed. Its snapshot would be as many MiB, it says.
#[derive(Debug, Default)]
pub(super) struct Counter(u64);

impl StateMachine for Counter {
    fn apply(&mut self, _command: &[u8], response: &mut Vec<u8>) {
        self.0 += 1;
        response.extend_from_slice(&self.0.to_le_bytes());
    }

    fn query(&self, _query: &[u8], response: &mut Vec<u8>) {
        response.extend_from_slice(&self.0.to_le_bytes());
    }

    fn begin_snapshot(&mut self) {}

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        chunk.extend_from_slice(&self.0.to_le_bytes());
        SnapshotStep::Done
    }

    fn snapshot_bytes(&self) -> u64 {
        self.0 << 20
    }

    fn reset(&mut self) {
        self.0 = 0;
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.0 = u64::from_le_bytes(chunk.try_into().map_err(|_| DecodeError::Truncated)?);
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.0
    }
}

/// One that has started and had nothing executed before.
pub(super) fn replica() -> Table<Replica<Counter>> {
    let replica = Replica::new(Parameters::default(), configurations(1), Counter::default());
    let mut bench = Table::new(replica, node(1, REPLICA));
    bench.hear(node(1, ACCEPTOR), replica::Resumed { from: Slot(0), values: Vec::new() });
    bench
}

pub(super) fn batch(number: u64) -> Value {
    let id = BatchId { batcher: node(1, BATCHER), number };
    let batch = Batch { id, unbatcher: node(1, UNBATCHER), groups: Vec::new(), rules: None };
    Value::batch(kernel::Encode::encoded(&batch)).expect("it is small")
}

pub(super) fn chosen(slot: u64, round: u64, value: Option<Value>) -> replica::Chosen {
    replica::Chosen { ballot: ballot(round), slot: Slot(slot), value }
}

// Executed out of order, twice, or past a hole, a command sees a state that it has on no other replica.
#[test]
fn a_replica_executes_in_order_and_once() {
    let mut bench = replica();
    assert!(sends(&bench.hear(node(1, PROXY), chosen(1, 1, Some(batch(1))))).is_empty());
    assert_eq!(bench.role.executed(), Slot(0));
    let did = bench.hear(node(1, PROXY), chosen(0, 1, Some(batch(0))));
    assert_eq!(bench.role.executed(), Slot(2));
    let answers = sends(&did).iter().filter(|(to, _)| *to == node(1, UNBATCHER)).count();
    assert_eq!(answers, 2, "the clients of this host are answered from here");
    assert!(sends(&bench.hear(node(1, PROXY), chosen(0, 1, Some(batch(7))))).is_empty());
    assert_eq!(bench.role.executed(), Slot(2));
}

/// Repeats what is stored, 40,000 bytes, as far as it may.
struct Repeats(usize);

impl StateMachine for Repeats {
    fn repeat_at_most(&mut self, bytes: usize) {
        self.0 = bytes;
    }

    fn apply(&mut self, _command: &[u8], response: &mut Vec<u8>) {
        response.resize(self.0.min(40_000), b'x');
    }

    fn query(&self, _query: &[u8], _response: &mut Vec<u8>) {}

    fn begin_snapshot(&mut self) {}

    fn snapshot_step(&mut self, _budget: usize, _chunk: &mut Vec<u8>) -> SnapshotStep {
        SnapshotStep::Done
    }

    fn reset(&mut self) {}

    fn install(&mut self, _chunk: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn digest(&self) -> u64 {
        0
    }
}

// Rules that hold from a restart on, and not from a slot on, have replicas answer one log differently; rules that do not count what is
// retained leave the memory of all replicas to any client.
#[test]
fn a_batch_is_answered_by_its_own_rules() {
    let replica = Replica::new(Parameters::default(), configurations(1), Repeats(usize::MAX));
    let mut bench = Table::new(replica, node(1, REPLICA));
    bench.hear(node(1, ACCEPTOR), replica::Resumed { from: Slot(0), values: Vec::new() });
    let mut slot = 0;
    let mut answered = |rules, sequences: std::ops::Range<u64>| {
        let mut row = Vec::new();
        sequences.for_each(|sequence| Commands::push(&mut row, Sequence(sequence), b"swap"));
        let commands = Commands::from_row(row);
        let kind = if slot == 0 { GroupKind::Open } else { GroupKind::Execute };
        let group = CommandGroup {
            client: node(9, CLIENT),
            session: SessionId(4),
            acknowledged: Sequence(0),
            kind,
            commands,
        };
        let id = BatchId { batcher: node(1, BATCHER), number: slot };
        let batch = Batch { id, unbatcher: node(1, UNBATCHER), groups: vec![group], rules };
        let value = Value::batch(kernel::Encode::encoded(&batch)).expect("it is small");
        let did = bench.hear(node(1, PROXY), chosen(slot, 1, Some(value)));
        slot += 1;
        let mut bytes = Vec::new();
        for (_, message) in sends(&did) {
            if let Message::Unbatcher(UnbatcherIn::BatchResults(results)) = message {
                let rows = results.replies.iter().flat_map(|reply| reply.results.iter().collect::<Vec<_>>());
                bytes.extend(rows.map(|answer| answer.bytes.len()));
            }
        }
        bytes
    };
    answered(None, 0..0);
    assert_eq!(answered(None, 0..2), [40_000, 40_000], "of a version that had no rules");
    assert_eq!(answered(Some(Rules::BRIEF), 2..4), [REPEATED_BYTES_MAX, REPEATED_BYTES_MAX]);
    assert_eq!(answered(None, 4..5), [40_000], "the rules are the batch's");
    let many = RETAINED_ANSWERS_BYTES_MAX as u64 / 40_000;
    answered(None, 5..5 + many);
    assert_eq!(
        answered(Some(Rules::BRIEF), 5 + many..6 + many),
        [0],
        "the answers that are retained are too many"
    );
}

// A vote of an older ballot may have lost; only one of the ballot that won, or a later one, is the chosen value.
#[test]
fn a_replica_takes_the_vote_of_the_winning_ballot() {
    let mut bench = replica();
    let voted = |round, value| replica::Voted { ballot: ballot(round), slot: Slot(0), value };
    bench.hear(node(1, ACCEPTOR), voted(1, batch(1)));
    bench.hear(node(1, PROXY), chosen(0, 2, None));
    assert_eq!(bench.role.executed(), Slot(0));
    bench.hear(node(1, ACCEPTOR), voted(1, batch(1)));
    assert_eq!(bench.role.executed(), Slot(0), "a vote that comes late has lost all the same");
    bench.hear(node(1, ACCEPTOR), voted(2, batch(2)));
    assert_eq!(bench.role.retained().map(|(_, value)| value.clone()).collect::<Vec<_>>(), [batch(2)]);
}

/// One read.
fn reads_of(query: &[u8]) -> Vec<ReadGroup> {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(1), query);
    vec![ReadGroup { client: node(9, CLIENT), session: SessionId(4), queries: Commands::from_row(row) }]
}

// A read answered before its slot is executed misses a write that was acknowledged.
#[test]
fn a_read_waits_for_its_slot_and_has_idle_ones_filled() {
    let mut bench = replica();
    bench.hear(node(1, LEADER), replica::Heartbeat { pulse: pulse(1) });
    let reads = reads_of(b"get");
    let read = replica::ReadBatch { through: Slot(1), unbatcher: node(1, UNBATCHER), reads };
    let did = bench.hear(node(1, BATCHER), read);
    assert_eq!(did.last(), now(node(1, LEADER), leader::Wanted { through: Slot(1) }).last());
    assert!(sends(&did).iter().all(|(to, _)| *to != node(1, UNBATCHER)));
    let did = bench.hear(node(1, PROXY), chosen(0, 1, Some(Value::Noop)));
    assert_eq!(sends(&did).iter().filter(|(to, _)| *to == node(1, UNBATCHER)).count(), 1);
}

// A peer that lags is helped with entries as long as they are retained, and sent nothing that was not executed.
#[test]
fn a_replica_gives_what_it_has_executed() {
    let mut bench = replica();
    for slot in 0..3 {
        bench.hear(node(1, PROXY), chosen(slot, 1, Some(Value::Noop)));
    }
    let did = bench.hear(node(2, REPLICA), replica::Fetch { from: Slot(1) });
    let values = vec![Value::Noop; 2];
    let entries = replica::ChosenValues { from: Slot(1), values, executed: Slot(3) };
    assert_eq!(did, now(node(2, REPLICA), entries));
    assert!(bench.hear(node(2, REPLICA), replica::Fetch { from: Slot(3) }).is_empty());
    bench.hear(node(1, LEADER), replica::Heartbeat { pulse: Pulse { truncate_below: Slot(2), ..pulse(1) } });
    let did = bench.hear(node(2, REPLICA), replica::Fetch { from: Slot(1) });
    assert_eq!(did, now(node(2, REPLICA), replica::Behind { executed: Slot(3) }));
}

// By an unconfirmed configuration a joining replica would execute slots under a configuration that never governed them.
#[test]
fn a_joining_replica_waits_for_a_snapshot() {
    let joining = Replica::joining(
        Parameters::default(),
        Configurations::unconfirmed(configurations(1).latest().clone()),
        Counter::default(),
    );
    let mut bench = Table::new(joining, node(4, REPLICA));
    bench.hear(node(1, PROXY), chosen(0, 1, Some(batch(0))));
    assert_eq!(bench.role.executed(), Slot(0));
    assert!(bench.hear(node(1, LEADER), replica::Describe {}).is_empty(), "it has no word to give");
    let pulls = |bench: &mut Table<Replica<Counter>>| {
        let did = bench.timer(ReplicaTimer::CatchUp);
        let begins = |message: &Message| matches!(message, Message::Replica(ReplicaIn::PullSnapshot(pull)) if pull.index == 0);
        sends(&did).iter().filter(|(_, message)| begins(message)).count()
    };
    assert_eq!((pulls(&mut bench), pulls(&mut bench)), (1, 0), "one transfer at a time");
}

// A snapshot may end with the last slot there is: a read that waits for the next one to be executed waits for ever on an idle log.
#[test]
fn a_read_that_waits_is_answered_by_a_snapshot() {
    let mut donor = replica();
    for slot in 0..3 {
        donor.hear(node(1, PROXY), chosen(slot, 1, Some(batch(slot))));
    }
    let unconfirmed = Configurations::unconfirmed(configurations(1).latest().clone());
    let mut joins = Table::new(
        Replica::joining(Parameters::default(), unconfirmed, Counter::default()),
        node(4, REPLICA),
    );
    let read =
        replica::ReadBatch { through: Slot(3), unbatcher: node(1, UNBATCHER), reads: reads_of(b"get") };
    let answers = |did: &Did| sends(did).iter().filter(|(to, _)| *to == node(1, UNBATCHER)).count();
    assert_eq!(answers(&joins.hear(node(1, BATCHER), read)), 0);
    let (mut asked, mut answered) = (sends(&joins.timer(ReplicaTimer::CatchUp)), 0);
    while let Some((to, Message::Replica(ReplicaIn::PullSnapshot(pull)))) = asked
        .iter()
        .find(|(_, message)| matches!(message, Message::Replica(ReplicaIn::PullSnapshot(_))))
        .cloned()
    {
        let chunk =
            sends(&donor.hear(node(4, REPLICA), pull)).into_iter().find_map(|(_, message)| match message {
                Message::Replica(ReplicaIn::SnapshotChunk(chunk)) => Some(chunk),
                _ => None,
            });
        // The last question says that all has come.
        let Some(chunk) = chunk else { break };
        let did = joins.hear(to, chunk);
        answered += answers(&did);
        asked = sends(&did);
    }
    assert_eq!((joins.role.executed(), answered), (Slot(3), 1));
}

// A replica whose state went another way answers clients what never happened, as long as nobody compares.
#[test]
fn a_replica_that_most_others_contradict_stops() {
    let run = |values: [u64; 16]| {
        let mut bench = replica();
        for (slot, number) in (0..).zip(values) {
            bench.hear(node(1, PROXY), chosen(slot, 1, Some(batch(number))));
        }
        bench
    };
    let same = [3; 16];
    let mut other = same;
    other[5] = 4;
    let (mut good, mut bad) = (run(same), run(other));
    let reported = |bench: &mut Table<Replica<Counter>>| {
        let did = bench.timer(ReplicaTimer::CatchUp);
        sends(&did).into_iter().find_map(|(_, message)| match message {
            Message::Replica(ReplicaIn::Checkpoint(checkpoint)) => Some(checkpoint),
            _ => None,
        })
    };
    let right = reported(&mut good).expect("sixteen slots are a checkpoint");
    let wrong = reported(&mut bad).expect("sixteen slots are a checkpoint");
    assert_ne!(right.digest, wrong.digest);
    good.hear(node(2, REPLICA), wrong);
    good.hear(node(3, REPLICA), right.clone());
    assert_eq!(good.role.diverged(), None, "one of three is wrong, and it is not this one");
    bad.hear(node(2, REPLICA), right.clone());
    assert_eq!(bad.role.diverged(), None, "one against one");
    let did = bad.hear(node(3, REPLICA), right);
    assert_eq!(bad.role.diverged(), Some(Slot(16)));
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");
    assert!(bad.hear(node(2, REPLICA), replica::Fetch { from: Slot(0) }).is_empty(), "it helps nobody");
}

// A batch that always falls to a dead replica, because another is proposed again in step with it, is never answered.
#[test]
fn batches_proposed_in_step_fall_to_every_replica_in_turn() {
    let id = BatchId { batcher: node(8, BATCHER), number: 1 };
    let abroad = Batch { id, unbatcher: node(8, UNBATCHER), groups: Vec::new(), rules: None };
    let abroad = Value::batch(kernel::Encode::encoded(&abroad)).expect("it is small");
    for stride in 1..=6 {
        let mut bench = replica();
        let mut answers = 0;
        for slot in 0..60 * stride {
            let value = if slot % stride == 0 { abroad.clone() } else { Value::Noop };
            let did = bench.hear(node(1, PROXY), chosen(slot, 1, Some(value)));
            answers += sends(&did).iter().filter(|(to, _)| *to == node(8, UNBATCHER)).count();
        }
        assert!(
            (10..=30).contains(&answers),
            "one of three replicas answered {answers} of 60, each {stride} apart"
        );
    }
}

// A leader that the latest change removes fills the slots up to that change: it must go on hearing how far replicas are, also
// where nothing else happens.
#[test]
fn a_leader_that_is_to_go_hears_what_is_executed() {
    let mut bench = replica();
    let removed = Ballot { round: 3, leader: node(9, LEADER) };
    bench.hear(removed.leader, replica::Heartbeat { pulse: Pulse { ballot: removed, ..pulse(3) } });
    let done = replica::Chosen { ballot: removed, slot: Slot(0), value: Some(batch(0)) };
    bench.hear(node(1, PROXY), done);
    let did = bench.timer(ReplicaTimer::CatchUp);
    let reported = did.iter().any(|effect| match effect {
        Effect::SendDurable { to, message: Message::Leader(leader::LeaderIn::Executed(report)), .. } => {
            *to == removed.leader && report.executed == Slot(1)
        }
        _ => false,
    });
    assert!(reported, "{did:?}");
}

// A leader has votes forgotten by what replicas report: a snapshot that a crash would take along may be reported to nobody, asked or not.
#[test]
fn a_leader_that_asks_a_replica_is_answered_what_is_durable() {
    let mut bench = replica();
    let did = bench.hear(node(1, LEADER), replica::Describe {});
    let [(to, Message::Leader(leader::LeaderIn::Executed(_)), durable)] = &table::sent(&did)[..] else {
        panic!("{did:?}")
    };
    assert_eq!((*to, *durable), (node(1, LEADER), true));
}

// A snapshot that is in memory as a whole while it is installed takes twice its size; one that is installed before it is known to be whole
// leaves half of a state.
#[test]
fn a_snapshot_that_must_be_whole_is_installed_chunk_by_chunk() {
    let parameters = Parameters { snapshot_every_bytes: 1, ..Parameters::default() };
    let role = || Replica::new(parameters.clone(), configurations(1), Counter::default());
    let mut bench = Table::new(role(), node(1, REPLICA));
    bench.hear(node(1, ACCEPTOR), replica::Resumed { from: Slot(0), values: Vec::new() });
    for slot in 0..3 {
        let entry = Value::entry(&b"x"[..]).expect("it is small");
        bench.hear(node(1, PROXY), chosen(slot, 1, Some(entry)));
    }
    for _ in 0..9 {
        bench.pass(Duration::from_millis(2));
        bench.end();
    }
    let journal = bench.journal();
    let last = journal.len() - 1;
    let restore = |role: &mut Replica<Counter>, first: u64, records: &[kernel::Bytes]| {
        for (position, record) in (first..).zip(records) {
            role.restore(Position(position), kernel::Decode::decoded(record).expect("just written"));
        }
    };
    for (first, early) in [(0, 0), (7, 3)] {
        let mut role = role();
        restore(&mut role, first, &journal[..last]);
        assert_eq!(role.machine().0, early, "from position {first}");
        assert_eq!(role.executed(), Slot(0));
        restore(&mut role, first + last as u64, &journal[last..]);
        assert_eq!((role.machine().0, role.executed(), role.snapshot_through()), (3, Slot(3), Slot(3)));
        // Another one had been begun when the host died.
        restore(&mut role, first + last as u64 + 1, &journal[..last]);
        let bench = Table::new(role, node(1, REPLICA));
        assert_eq!((bench.role.machine().0, bench.role.executed()), (3, Slot(3)));
    }
}
