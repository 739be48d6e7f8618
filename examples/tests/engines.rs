//! The toy service over MultiPaxos: the same code as over the toy engine, on three hosts.

use examples::tally::Tally;
use kernel::{Bytes, Decode, HostId, HostSlot, NodeId, RequestId, Rng};
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::batcher::Batcher;
use paxos::multipaxos::client::CommandClient;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::proxy_leader::ProxyLeader;
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::unbatcher::Unbatcher;
use paxos::{Call, Configuration, Configurations, HostEntry, Member, Outcome, Parameters, RoleSlots};
use sim::{Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Scenario, Sweep};
use std::collections::BTreeMap;
use std::time::Duration;

type Node = Member<Tally>;

const SERVERS: [HostId; 3] = [HostId(1), HostId(2), HostId(3)];
const CLIENT: NodeId = NodeId::new(HostId(9), HostSlot(7));
const BATCHER: HostSlot = HostSlot(1);
const LEADER: HostSlot = HostSlot(2);
const PROXY_LEADER: HostSlot = HostSlot(3);
const ACCEPTOR: HostSlot = HostSlot(4);
const REPLICA: HostSlot = HostSlot(5);
const UNBATCHER: HostSlot = HostSlot(6);

fn configuration() -> Configuration {
    let entry = |host| HostEntry { name: format!("{host:?}"), address: String::new() };
    let hosts = SERVERS.map(entry).to_vec();
    RoleSlots::STANDALONE.configuration(0, &SERVERS, hosts).expect("hosts are different")
}

/// A cluster whose client counts one word.
#[derive(Default)]
struct TallyScenario {
    asked: BTreeMap<RequestId, u64>,
    answered: u64,
}

impl Scenario for TallyScenario {
    type Node = Node;

    const FAMILY: &'static str = "tally";

    fn hosts(&self) -> Vec<HostSpec> {
        SERVERS.map(HostSpec::server).into_iter().chain([HostSpec::client(CLIENT.host())]).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        vec![CLIENT]
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        if incarnation.host == CLIENT.host() {
            let client = CommandClient::new(configuration().batchers, Duration::from_millis(300));
            return vec![(CLIENT.host_slot(), Member::Client(client))];
        }
        let (parameters, known) = (Parameters::default, || Configurations::starting_with(configuration()));
        let of = |slot| NodeId::new(incarnation.host, slot);
        vec![
            (BATCHER, Member::Batcher(Batcher::new(parameters(), known(), of(UNBATCHER)))),
            (UNBATCHER, Member::Unbatcher(Unbatcher)),
            (LEADER, Member::Leader(Leader::new(parameters(), known()))),
            (PROXY_LEADER, Member::ProxyLeader(ProxyLeader::new(parameters(), known()))),
            (ACCEPTOR, Member::Acceptor(Acceptor::new(parameters(), known(), Some(of(REPLICA))))),
            (REPLICA, Member::Replica(Replica::new(parameters(), known(), Tally::default()))),
        ]
    }

    fn operate(&mut self, _: OperationId, node: NodeId, _: &mut Rng, control: &mut Control<'_, Node>) {
        let id = control.request(node, Call::Write(Bytes::from_static(b"yes")));
        self.asked.insert(id, self.answered);
    }

    // What was answered before a command was sent is counted in its answer.
    fn on_response(&mut self, _: NodeId, id: RequestId, outcome: Outcome, _: &mut Control<'_, Node>) {
        let before = self.asked.remove(&id).expect("the simulator passes on owed answers only");
        if let Outcome::Done(response) = outcome {
            let count = u64::decoded(&response).expect("a count");
            kernel::invariant!(LIN, count > before, "{count} after {before}");
            self.answered = self.answered.max(count);
        }
    }

    fn core(&mut self, _: &Cluster<'_, Node>, _: &mut Rng) -> Core {
        Core::Hosts(SERVERS.into_iter().chain([CLIENT.host()]).collect())
    }
}

// A service that only one engine can carry.
#[test]
fn the_service_runs_over_multipaxos() {
    let report = sim::sweep(&|_: &mut Rng| TallyScenario::default(), &Sweep::of(0..10));
    assert!(report.passed() && report.operations > 100, "{}", report.to_json());
}
