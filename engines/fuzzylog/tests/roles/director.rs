//! A director, message by message.

use crate::server::PARTITION;
use fuzzylog::chain_server::{ChainServerIn, FromDirector};
use fuzzylog::director::{DirectorHears, DirectorTimer};
use fuzzylog::messages::director::{
    ChangeDecided, ComingColours, DirectorIn, FollowedMembers, MembersSettled, MovesSeen, Pong,
};
use fuzzylog::partition::command::MovePoint;
use fuzzylog::{
    ChainEpoch, ChainJournal, ChainMember, ChainProjection, Colour, ColourMove, ColourMoves, Director,
    FuzzyDeployment, FuzzyLog, FuzzyMember, FuzzyMessage, FuzzyParameters, FuzzyRequest, MapVersion,
    PartitionId, RowIndex,
};
use kernel::{Decode as _, Effect, Encode as _, HostId, NodeId, Reader, RequestId, Role as _};
use parts::{Ballot, Slot};
use paxos::multipaxos::Pulse;
use paxos::multipaxos::batcher::{BatcherIn, Heartbeat};
use paxos::multipaxos::client::{ClientIn, Notice};
use paxos::multipaxos::leader::{LeaderIn, Propose};
use paxos::{Configurations, HostEntry, LogRole, Members, Value};
use std::collections::BTreeSet;
use std::time::Duration;
use table::{Did, Table, sent};

/// Three hosts, each with a server of the only partition.
struct Directed {
    deployment: FuzzyDeployment,
    hosts: Vec<HostId>,
    table: Table<Director>,
}

impl Directed {
    /// The director of the first host leads. Two partitions may be added.
    fn new() -> Self {
        let entry = |name: &str| HostEntry { name: name.to_owned(), address: format!("{name}:1") };
        let entries = ["a", "b", "c"].map(entry);
        let hosts: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let (parameters, log) = (FuzzyParameters::default(), paxos::Parameters::default());
        let deployment = FuzzyDeployment::new(0, &entries, 1, (2, 1), parameters, log).with_room(3);
        let nodes = deployment.build(hosts[0]);
        let director = nodes.into_iter().find_map(|(_, node)| match node {
            FuzzyMember::Director(director) => Some(*director),
            FuzzyMember::Client(_) | FuzzyMember::ChainServer(_) | FuzzyMember::Log(_) => None,
        });
        let director = director.expect("the first hosts direct");
        let table = Table::new(director, deployment.director_of(hosts[0]));
        let mut directed = Self { deployment, hosts, table };
        directed.lead();
        directed.tick(FuzzyParameters::default().start_for);
        directed
    }

    fn lead(&mut self) {
        let log = self.deployment.embedded_log();
        let leader = log.node(self.hosts[0], LogRole::Leader);
        let configuration = log.configuration_on(0, self.hosts.clone(), Vec::new()).expect("three hosts");
        let pulse = Pulse {
            ballot: Ballot { round: 1, leader },
            configurations: Configurations::starting_with(configuration),
            executed: Slot(0),
            truncate_below: Slot(0),
            alive: Vec::new(),
        };
        let heard = paxos::Message::Batcher(BatcherIn::Heartbeat(Heartbeat { pulse }));
        self.table.burst(leader, DirectorHears::Log(heard));
    }

    fn server(&self, host: usize) -> NodeId {
        self.deployment.server_of(self.hosts[host], PARTITION)
    }

    /// The chain of an epoch has these servers, each with its journal.
    fn decide(&mut self, epoch: u64, members: [(usize, u64); 2]) {
        let member =
            |(host, journal)| ChainMember { node: self.server(host), journal: Some(ChainJournal(journal)) };
        let members = members.map(member).to_vec();
        let (epoch, whole_from) = (ChainEpoch(epoch), RowIndex(0));
        let projection = ChainProjection { partition: PARTITION, epoch, members, whole_from };
        self.hear(ChangeDecided { projections: vec![projection], followed: None, moves: None });
    }

    /// The log has this.
    fn hear(&mut self, decided: ChangeDecided) {
        let decided = DirectorIn::from(decided);
        let replica = self.deployment.embedded_log().node(self.hosts[0], LogRole::Replica);
        let notice = paxos::Message::Client(ClientIn::Notice(Notice { bytes: decided.encoded().into() }));
        self.table.burst(replica, DirectorHears::Log(notice));
    }

    /// The server of a host says by which journal it is there, and serves an epoch.
    fn pong(&mut self, host: usize, journal: u64, epoch: u64) {
        let (journal, epoch) = (ChainJournal(journal), ChainEpoch(epoch));
        let pong = Pong {
            partition: PARTITION,
            journal,
            sealed: epoch,
            notified: epoch,
            serves: true,
            copy: None,
            run: 1,
            has_all: Some(true),
            moves: None,
        };
        self.table.burst(self.server(host), DirectorHears::Own(pong.into()));
    }

    fn tick(&mut self, passed: std::time::Duration) -> Did<FuzzyLog> {
        self.table.pass(passed);
        self.lead();
        self.table.timer(DirectorTimer::Tick)
    }
}

/// The servers that are to be sealed.
fn sealed(did: &Did<FuzzyLog>) -> Vec<NodeId> {
    let of = |(to, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Director(FromDirector::SealChain(_))) => Some(to),
        FuzzyMessage::ChainServer(_)
        | FuzzyMessage::Client(_)
        | FuzzyMessage::Director(_)
        | FuzzyMessage::Log(_) => None,
    };
    sent(did).into_iter().filter_map(of).collect()
}

// A server that joined with a new disk, whose host a director had heard of by the old one last, is a member like others: without its row a
// chain of two never goes on.
#[test]
fn who_was_taken_for_a_stranger_is_sealed_too() {
    let tick = FuzzyParameters::default().tick;
    let mut directed = Directed::new();
    directed.pong(1, 20, 2);
    directed.decide(3, [(0, 10), (1, 21)]);
    directed.pong(0, 10, 3);
    let did = directed.tick(tick);
    assert_eq!(sealed(&did), [directed.server(0)], "the other one's disk is not the one that is meant");
    directed.pong(1, 21, 3);
    let did = directed.tick(tick);
    assert_eq!(sealed(&did), [directed.server(0), directed.server(1)]);
}

// A host that hears late that all have followed lets nobody make the next change meanwhile.
#[test]
fn all_hosts_hear_that_members_are_followed() {
    let tick = FuzzyParameters::default().tick;
    let mut directed = Directed::new();
    directed.decide(2, [(0, 10), (1, 20)]);
    let entry = |name: &str| HostEntry { name: name.to_owned(), address: format!("{name}:1") };
    let members = Members { version: 1, hosts: ["a", "b", "c"].map(entry).to_vec() };
    let request = FuzzyRequest::Follow(members);
    directed.table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    let proposed = |did: &Did<FuzzyLog>| {
        sent(did).into_iter().find_map(|(_, message, _)| match message {
            FuzzyMessage::Log(paxos::Message::Leader(LeaderIn::Propose(Propose {
                value: Value::Entry(it),
            }))) => Some(it.bytes().clone()),
            _ => None,
        })
    };
    let mut entry = Reader::new(proposed(&directed.tick(tick)).expect("members are proposed"));
    ChainProjection::decode(&mut entry).expect("it is of no partition");
    let followed = Some(FollowedMembers::decode(&mut entry).expect("members"));
    directed.hear(ChangeDecided { projections: Vec::new(), followed, moves: None });
    let did = directed.tick(tick);
    let settled = sent(&did).into_iter().filter_map(|(to, message, _)| match message {
        FuzzyMessage::Director(DirectorIn::MembersSettled(MembersSettled { version: 1 })) => Some(to),
        _ => None,
    });
    let others = [1, 2].map(|host| directed.deployment.director_of(directed.hosts[host]));
    assert_eq!(settled.collect::<Vec<_>>(), others);
    assert_eq!(directed.table.role.settled_on(), 1);
}

// Who asks servers of partitions that nobody has added wakes all hosts for nothing.
#[test]
fn nobody_is_asked_about_partitions_that_may_be_added() {
    let mut directed = Directed::new();
    directed.decide(2, [(0, 10), (1, 20)]);
    let did = directed.tick(FuzzyParameters::default().tick);
    let asked = sent(&did).into_iter().filter_map(|(to, message, _)| match message {
        FuzzyMessage::ChainServer(_) => Some(to),
        FuzzyMessage::Client(_) | FuzzyMessage::Director(_) | FuzzyMessage::Log(_) => None,
    });
    let asked: BTreeSet<NodeId> = asked.collect();
    assert_eq!(asked, (0..3).map(|host| directed.server(host)).collect());
}

// What takes longer to copy than directors wait would be taken back and begun anew for ever, and its colours pause all the time.
#[test]
fn a_move_of_which_more_comes_is_not_taken_back() {
    const MOVE: MapVersion = MapVersion(2);
    let (from, to) = (PARTITION, PartitionId(1));
    let mut directed = Directed::new();
    directed.decide(2, [(0, 10), (1, 20)]);
    let target = directed.deployment.server_of(directed.hosts[0], to);
    let member = ChainMember { node: target, journal: Some(ChainJournal(30)) };
    let projection = ChainProjection {
        partition: to,
        epoch: ChainEpoch(2),
        members: vec![member],
        whole_from: RowIndex(0),
    };
    let moving = ColourMove { id: MOVE, colours: vec![Colour(7)], from, to };
    let moves =
        ColourMoves { version: MOVE, moving: Some(moving), added: vec![to], ..ColourMoves::default() };
    directed.hear(ChangeDecided { projections: vec![projection], followed: None, moves: Some(moves) });
    let move_for = FuzzyParameters::default().move_for;
    let is_taken_back = |did: &Did<FuzzyLog>| {
        let mark = "director.took_back_a_move_that_took_too_long";
        did.iter().any(|effect| matches!(effect, Effect::Mark { name } if *name == mark))
    };
    let step = Duration::from_millis(500);
    let mut after_a_page = |page: u64| {
        let next = MovePoint { client: page, ..MovePoint::default() };
        let coming = Some(ComingColours { id: MOVE, next });
        let (taken, has_no_room) = (None, None);
        let pong = Pong {
            partition: to,
            journal: ChainJournal(30),
            sealed: ChainEpoch(2),
            notified: ChainEpoch(2),
            serves: true,
            copy: None,
            run: 1,
            has_all: Some(true),
            moves: Some(MovesSeen { version: MOVE, taken, has_no_room, coming }),
        };
        directed.table.burst(target, DirectorHears::Own(pong.into()));
        let steps = (0..move_for.as_millis() / step.as_millis() * 3 / 4).map(|_| directed.tick(step));
        steps.filter(is_taken_back).count()
    };
    assert_eq!([1, 2].map(&mut after_a_page), [0, 0]);
    assert_ne!(after_a_page(2), 0, "nothing more has come");
}
