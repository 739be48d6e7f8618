//! The toy service over the toy engine, in the simulator: hosts crash and come back, messages are lost, disks are slow.

use examples::primary_backup::{Backup, Client, Member, Primary};
use examples::tally::Tally;
use kernel::{Bytes, Decode, HostId, HostSlot, NodeId, RequestId, Rng};
use sim::{Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Scenario, Sweep};
use std::collections::BTreeMap;

type Node = Member<Tally>;

const PRIMARY: NodeId = NodeId::new(HostId(1), HostSlot(0));
const BACKUP: NodeId = NodeId::new(HostId(2), HostSlot(0));
const CLIENTS: [HostId; 2] = [HostId(11), HostId(12)];
const WORDS: [&[u8]; 2] = [b"yes", b"no"];

/// A cluster, and what its clients know.
#[derive(Default)]
struct TallyScenario {
    asked: BTreeMap<RequestId, (&'static [u8], u64)>,
    /// The largest count of each word that was answered.
    answered: BTreeMap<&'static [u8], u64>,
}

impl Scenario for TallyScenario {
    type Node = Node;

    const FAMILY: &'static str = "primary";
    const MARKS: &'static [&'static str] = &["primary.sent_again", "client.asked_again"];

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = [PRIMARY, BACKUP].map(|node| HostSpec::server(node.host()));
        servers.into_iter().chain(CLIENTS.map(HostSpec::client)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        CLIENTS.map(|host| NodeId::new(host, HostSlot(0))).to_vec()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.without(Class::ClockLie)
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        let node = match incarnation.host {
            host if host == PRIMARY.host() => Member::Primary(Primary::new(BACKUP, Tally::default())),
            host if host == BACKUP.host() => Member::Backup(Backup::new(PRIMARY)),
            _ => Member::Client(Client::new(PRIMARY)),
        };
        vec![(HostSlot(0), node)]
    }

    fn operate(&mut self, _: OperationId, node: NodeId, rng: &mut Rng, control: &mut Control<'_, Node>) {
        let word = WORDS[rng.index(WORDS.len())];
        let before = self.answered.get(word).copied().unwrap_or(0);
        let id = control.request(node, Bytes::from_static(word));
        self.asked.insert(id, (word, before));
    }

    // What was answered before a command was sent is counted in its answer.
    fn on_response(&mut self, _: NodeId, id: RequestId, response: Bytes, _: &mut Control<'_, Node>) {
        let (word, before) = self.asked.remove(&id).expect("the simulator passes on owed answers only");
        let count = u64::decoded(&response).expect("a count");
        kernel::invariant!(LIN, count > before, "{count} after {before}");
        let latest = self.answered.entry(word).or_insert(0);
        *latest = count.max(*latest);
    }

    // What is executed is in the backup's journal.
    fn after_burst(&mut self, _: HostId, cluster: &Cluster<'_, Node>) {
        let executed = cluster.node(PRIMARY).map(|node| match node {
            Member::Primary(primary) => primary.executed(),
            Member::Backup(_) | Member::Client(_) => 0,
        });
        if let (Some(executed), Some(Member::Backup(backup))) = (executed, cluster.node(BACKUP)) {
            let copied = backup.entries();
            kernel::invariant!(DUR, executed <= copied, "{executed} executed, {copied} copied");
        }
    }

    fn core(&mut self, _: &Cluster<'_, Node>, _: &mut Rng) -> Core {
        Core::Hosts([PRIMARY.host(), BACKUP.host()].into_iter().chain(CLIENTS).collect())
    }
}

fn draw(_: &mut Rng) -> TallyScenario {
    TallyScenario::default()
}

// An acknowledged word that is not counted any more.
#[test]
fn what_was_counted_stays_counted() {
    let report = sim::sweep(&draw, &Sweep::of(0..50));
    assert!(report.passed(), "{}", report.to_json());
    assert!(report.operations > 1_000, "{}", report.to_json());
}

// An invariant that no mistake can break guards nothing.
#[cfg(feature = "planted")]
#[test]
fn the_planted_bug_is_caught() {
    let options =
        sim::Options { planted: Some(&examples::planted::one_copy_is_enough), ..sim::Options::default() };
    let broken = (0..50).find_map(|seed| sim::run_seed(&draw, seed, &options).violation);
    assert_eq!(broken.expect("it is caught").invariant, "DUR");
}
