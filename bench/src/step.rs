//! Kinds of messages, as tariffs know them.

use crate::services::Services;
use corfu::sequencer::SequencerIn as CorfuSequencerIn;
use corfu::storage::StorageIn;
use fuzzylog::chain_server::{ChainServerIn, FromClient, FromServer};
use fuzzylog::client::FuzzyClientIn;
use mason::client::GatewayIn;
use mason::proxy::{FromGateway, FromReplica, FromSequencer, ProxyIn};
use mason::sequencer::SequencerIn;
use mason::shard::ShardIn;
use paxos::Value;
use paxos::multipaxos::acceptor::AcceptorIn;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::ClientIn;
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::proxy_leader::ProxyLeaderIn;
use paxos::multipaxos::replica::ReplicaIn;
use paxos::multipaxos::unbatcher::UnbatcherIn;
use sim::cost::{MessageKind, Scale, Weight};
use spanner::messages::shard::ShardIn as TxnShardIn;

macro_rules! steps {
    ($( $(#[$doc:meta])* $PricedStep:ident => $name:literal ),+ $(,)?) => {
        /// What a role is asked to do by one message; profiles price them by name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum PricedStep { $( $(#[$doc])* $PricedStep ),+ }

        impl PricedStep {
            /// All of them.
            pub const ALL: &'static [PricedStep] = &[ $( PricedStep::$PricedStep ),+ ];

            /// Its name in profiles: the role, then the message.
            pub fn name(self) -> &'static str {
                match self { $( Self::$PricedStep => $name ),+ }
            }
        }
    };
}

steps! {
    /// A client's commands.
    Submit => "batcher.submit",
    /// A client's reads.
    Query => "batcher.query",
    /// An acceptor's answer to a read batch.
    PreReadAck => "batcher.pre_read_ack",
    /// A batch is through.
    Done => "batcher.done",
    /// A batch for the leader.
    Propose => "leader.propose",
    /// A replica's report.
    Executed => "leader.executed",
    /// The leader's assignment.
    Assign => "proxy_leader.assign",
    /// A vote.
    Phase2b => "proxy_leader.phase2b",
    /// A vote is asked for.
    Phase2a => "acceptor.phase2a",
    /// How far an acceptor has voted is asked for.
    PreRead => "acceptor.pre_read",
    /// A slot is chosen.
    Chosen => "replica.chosen",
    /// A vote of the same host.
    Voted => "replica.voted",
    /// Reads for a replica.
    Read => "replica.read",
    /// Results for an unbatcher.
    Unbatch => "unbatcher.results",
    /// A batch for a state machine that is not replicated.
    Unreplicated => "unreplicated.propose",
    /// Operations for a proxy of Mason.
    ProxySubmit => "proxy.submit",
    /// Numbers from the sequencer.
    Allocated => "proxy.allocated",
    /// A batch of numbers was applied.
    Applied => "proxy.applied",
    /// Numbers are asked for.
    Allocate => "sequencer.allocate",
    /// Operations for a shard.
    Deliver => "shard.deliver",
    /// Reads for a shard.
    ShardRead => "shard.read",
    /// A batch of numbered operations is chosen.
    ChosenEntry => "replica.chosen_entry",
    /// A position is asked for.
    NextPosition => "corfu.next",
    /// An entry for a storage server.
    StorageWrite => "storage.write",
    /// A storage server is asked for an entry.
    StorageRead => "storage.read",
    /// A read under locks for a shard's leader.
    ReadLocked => "txn.read_locked",
    /// A commit, or the first phase of one.
    PrepareTxn => "txn.prepare",
    /// A participant is prepared.
    DidPrepare => "txn.did_prepare",
    /// How a transaction has ended.
    Decided => "txn.decided",
    /// A read at a timestamp.
    ReadAt => "txn.read_at",
    /// A command for a chain's head.
    SubmitCommand => "chain.submit",
    /// Commands for the next server of a chain.
    ForwardCommands => "chain.forward",
    /// How far the chain's disks are.
    ChainWord => "chain.word",
    /// What came of a command.
    CommandDone => "chain.done",
    /// Nodes of a colour, for a client that plays them.
    NodesPage => "client.nodes",
    /// Everything else: heartbeats, elections, answers to clients.
    Other => "other",
}

impl PricedStep {
    /// Its index in a tariff's table.
    pub fn kind(self) -> MessageKind {
        MessageKind(self as u16)
    }

    fn of(self, items: usize) -> Weight {
        Weight { kind: self.kind(), items: items as u32 }
    }
}

/// Weighs the messages of every engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps;

/// The commands of a batch lie behind its name (batcher, number) and its unbatcher: eight bytes each, then their number.
const GROUPS_AT: usize = 24;

fn items_of(value: &Value) -> usize {
    let Value::Batch(payload) = value else { return 0 };
    let count = payload.bytes().get(GROUPS_AT..GROUPS_AT + 4).and_then(|bytes| bytes.try_into().ok());
    count.map_or(0, |count| u32::from_le_bytes(count) as usize)
}

fn weigh_log(message: &paxos::Message) -> Weight {
    match message {
        paxos::Message::Batcher(BatcherIn::Submit(_)) => PricedStep::Submit.of(1),
        paxos::Message::Batcher(BatcherIn::Query(_)) => PricedStep::Query.of(1),
        paxos::Message::Batcher(BatcherIn::PreReadAck(_)) => PricedStep::PreReadAck.of(0),
        paxos::Message::Batcher(BatcherIn::Done(_)) => PricedStep::Done.of(0),
        paxos::Message::Leader(LeaderIn::Propose(message)) => {
            PricedStep::Propose.of(items_of(&message.value))
        }
        paxos::Message::Leader(LeaderIn::Executed(_)) => PricedStep::Executed.of(0),
        paxos::Message::ProxyLeader(ProxyLeaderIn::Assign(message)) => {
            PricedStep::Assign.of(items_of(&message.value))
        }
        paxos::Message::ProxyLeader(ProxyLeaderIn::Phase2b(_)) => PricedStep::Phase2b.of(0),
        paxos::Message::Acceptor(AcceptorIn::Phase2a(message)) => {
            PricedStep::Phase2a.of(items_of(&message.value))
        }
        paxos::Message::Acceptor(AcceptorIn::PreRead(_)) => PricedStep::PreRead.of(0),
        paxos::Message::Replica(ReplicaIn::Chosen(message)) => match &message.value {
            Some(Value::Entry(entry)) => PricedStep::ChosenEntry.of(entry.bytes().len()),
            Some(value) => PricedStep::Chosen.of(items_of(value)),
            // The value came with the vote of the same host.
            None => PricedStep::Chosen.of(0),
        },
        paxos::Message::Replica(ReplicaIn::Voted(message)) => match &message.value {
            Value::Entry(entry) => PricedStep::ChosenEntry.of(entry.bytes().len()),
            value => PricedStep::Voted.of(items_of(value)),
        },
        paxos::Message::Replica(ReplicaIn::ReadBatch(message)) => PricedStep::Read.of(message.reads.len()),
        paxos::Message::Unbatcher(UnbatcherIn::BatchResults(message)) => {
            PricedStep::Unbatch.of(message.replies.len())
        }
        paxos::Message::Client(ClientIn::Results(_) | ClientIn::Notice(_))
        | paxos::Message::Batcher(_)
        | paxos::Message::Leader(_)
        | paxos::Message::ProxyLeader(_)
        | paxos::Message::Acceptor(_)
        | paxos::Message::Replica(_) => PricedStep::Other.of(0),
    }
}

impl Scale<paxos::Paxos> for Steps {
    fn weigh(&self, message: &paxos::Message) -> Weight {
        weigh_log(message)
    }
}

impl Scale<mason::Mason> for Steps {
    fn weigh(&self, message: &mason::MasonMessage) -> Weight {
        match message {
            mason::MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::SubmitOperations(message))) => {
                PricedStep::ProxySubmit.of(message.operations.len())
            }
            mason::MasonMessage::Proxy(ProxyIn::Sequencer(FromSequencer::Allocated(_))) => {
                PricedStep::Allocated.of(0)
            }
            mason::MasonMessage::Proxy(ProxyIn::Replica(FromReplica::Applied(_))) => {
                PricedStep::Applied.of(0)
            }
            mason::MasonMessage::Sequencer(SequencerIn::Allocate(message)) => {
                PricedStep::Allocate.of(message.counts.len())
            }
            mason::MasonMessage::Shard(ShardIn::Deliver(message)) => {
                PricedStep::Deliver.of(message.runs.iter().map(|run| run.count as usize).sum())
            }
            mason::MasonMessage::Shard(ShardIn::ReadShard(message)) => {
                PricedStep::ShardRead.of(message.reads.len())
            }
            mason::MasonMessage::Client(GatewayIn::Input(_)) => PricedStep::Submit.of(1),
            mason::MasonMessage::Log(message) => weigh_log(message),
            mason::MasonMessage::Proxy(_)
            | mason::MasonMessage::Sequencer(_)
            | mason::MasonMessage::Shard(_)
            | mason::MasonMessage::Client(_)
            | mason::MasonMessage::Connection(_) => PricedStep::Other.of(0),
        }
    }
}

impl Scale<corfu::Corfu> for Steps {
    fn weigh(&self, message: &corfu::CorfuMessage) -> Weight {
        match message {
            corfu::CorfuMessage::Sequencer(CorfuSequencerIn::Next(_) | CorfuSequencerIn::Tail(_)) => {
                PricedStep::NextPosition.of(1)
            }
            corfu::CorfuMessage::Storage(StorageIn::Write(_)) => PricedStep::StorageWrite.of(1),
            corfu::CorfuMessage::Storage(StorageIn::Read(_)) => PricedStep::StorageRead.of(1),
            corfu::CorfuMessage::Sequencer(_)
            | corfu::CorfuMessage::Storage(_)
            | corfu::CorfuMessage::Auxiliary(_)
            | corfu::CorfuMessage::Client(_) => PricedStep::Other.of(0),
        }
    }
}

impl Scale<spanner::Spanner> for Steps {
    fn weigh(&self, message: &spanner::SpannerMessage) -> Weight {
        match message {
            spanner::SpannerMessage::Shard(TxnShardIn::ReadLocked(message)) => {
                PricedStep::ReadLocked.of(message.what.keys.len())
            }
            spanner::SpannerMessage::Shard(TxnShardIn::PrepareTxn(message)) => {
                PricedStep::PrepareTxn.of(message.writes.len())
            }
            spanner::SpannerMessage::Shard(TxnShardIn::DidPrepare(_)) => PricedStep::DidPrepare.of(0),
            spanner::SpannerMessage::Shard(TxnShardIn::Decided(_)) => PricedStep::Decided.of(0),
            spanner::SpannerMessage::Shard(TxnShardIn::ReadAt(message)) => {
                PricedStep::ReadAt.of(message.what.keys.len())
            }
            spanner::SpannerMessage::Log(message) => weigh_log(message),
            spanner::SpannerMessage::Shard(_)
            | spanner::SpannerMessage::Gateway(_)
            | spanner::SpannerMessage::User(_)
            | spanner::SpannerMessage::Connection(_) => PricedStep::Other.of(0),
        }
    }
}

impl Scale<fuzzylog::FuzzyLog> for Steps {
    fn weigh(&self, message: &fuzzylog::FuzzyMessage) -> Weight {
        match message {
            fuzzylog::FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(message))) => {
                PricedStep::SubmitCommand.of(message.command.count())
            }
            fuzzylog::FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::Forward(message))) => {
                PricedStep::ForwardCommands.of(message.entries.iter().map(|it| it.command.count()).sum())
            }
            fuzzylog::FuzzyMessage::ChainServer(ChainServerIn::Server(_)) => PricedStep::ChainWord.of(0),
            fuzzylog::FuzzyMessage::Client(FuzzyClientIn::CommandDone(_)) => PricedStep::CommandDone.of(1),
            fuzzylog::FuzzyMessage::Client(FuzzyClientIn::CommandsDone(message)) => {
                PricedStep::CommandDone.of(message.outcomes.len())
            }
            fuzzylog::FuzzyMessage::Client(FuzzyClientIn::NodesPage(message)) => {
                PricedStep::NodesPage.of(message.nodes.len())
            }
            fuzzylog::FuzzyMessage::Log(message) => weigh_log(message),
            fuzzylog::FuzzyMessage::ChainServer(_)
            | fuzzylog::FuzzyMessage::Client(_)
            | fuzzylog::FuzzyMessage::Director(_) => PricedStep::Other.of(0),
        }
    }
}

impl Scale<Services> for Steps {
    fn weigh(&self, message: &crate::services::ServiceMessage) -> Weight {
        match message {
            crate::services::ServiceMessage::Mason(message) => Scale::<mason::Mason>::weigh(self, message),
            crate::services::ServiceMessage::Corfu(message) => Scale::<corfu::Corfu>::weigh(self, message),
        }
    }
}
