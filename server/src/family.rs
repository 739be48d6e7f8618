//! What a host runs: the roles of all services, side by side on one reactor.
//!
//! Services over one engine share its messages: slots distinguish them, since no node plays a part in two of them.

use coordination::{Gateway, HomeSessions, Znodes};
use kernel::client::{self, ConnectionIn, Event};
use kernel::{Bytes, Decode as _, Embedded, Embeds, Family};
use kv::Store;

/// The family of all services.
#[derive(Debug)]
pub struct Ordinate;

impl Family for Ordinate {
    type Message = OrdinateMessage;
    type Request = LocalRequest;
    type Response = LocalResponse;
}

kernel::sum! {
    /// Everything that travels between hosts, and between the roles of one.
    pub enum OrdinateMessage {
        /// Of the key-value store.
        1 => Kv(paxos::Message),
        /// Of a service over Mason.
        2 => Mason(mason::MasonMessage),
        /// Of the log over CORFU'.
        3 => Corfu(corfu::CorfuMessage),
        /// Of a user's connection to a gateway; never leaves its host.
        4 => User(Event),
        /// Of a gateway to a user's connection; never leaves its host.
        5 => Connection(ConnectionIn),
        /// Of transactions.
        6 => Spanner(spanner::SpannerMessage),
        /// Of the partially ordered log.
        7 => Fuzzy(fuzzylog::FuzzyMessage),
    }
}

/// What a local application asks.
#[derive(Clone, Debug)]
pub enum LocalRequest {
    /// Of the key-value store.
    Kv(paxos::Call),
    /// Of a node of another service, in that service's encoding: its requests, and for proxies the [`mason::Members`] to follow.
    Service(Bytes),
}

impl LocalRequest {
    fn of_service(self) -> Option<Bytes> {
        match self {
            Self::Service(request) => Some(request),
            Self::Kv(_) => None,
        }
    }
}

/// What it is answered.
#[derive(Clone, Debug)]
pub enum LocalResponse {
    /// By the key-value store.
    Kv(paxos::Outcome),
    /// By another service's gateway or proxy, in that service's encoding.
    Service(Bytes),
}

impl LocalResponse {
    /// What the key-value store has answered; none if it was another service.
    pub fn of_kv(self) -> Option<paxos::Outcome> {
        if let Self::Kv(outcome) = self { Some(outcome) } else { None }
    }

    /// What another service's gateway or proxy has answered; none if it was somebody else.
    pub fn of_service(self) -> Option<Bytes> {
        if let Self::Service(body) = self { Some(body) } else { None }
    }
}

impl From<paxos::Message> for OrdinateMessage {
    fn from(message: paxos::Message) -> Self {
        Self::Kv(message)
    }
}

impl From<Event> for OrdinateMessage {
    fn from(event: Event) -> Self {
        Self::User(event)
    }
}

/// A role of the key-value store.
pub type KvMember = paxos::Member<Store>;
/// A role of the coordination service.
pub type CoordinationMember = mason::MasonMember<HomeSessions, Znodes, Gateway>;
/// A role of the sequence.
pub type SequenceMember = mason::MasonMember<sequence::Spaces, sequence::Labels, sequence::Gateway>;

/// A role of the shared log.
pub type LogMember = mason::MasonMember<shared_log::Names, shared_log::Logs, shared_log::Gateway>;

/// A role hosted beside those of other services.
type Hosted<N> = Box<Embedded<N, Ordinate>>;

kernel::nodes! {
    /// Any role.
    pub enum HostedNode of Ordinate {
        /// Of the key-value store.
        node Kv(Hosted<KvMember>),
        /// Of the coordination service.
        node Coordination(Hosted<CoordinationMember>),
        /// Of the sequence.
        node Sequence(Hosted<SequenceMember>),
        /// Of the shared log.
        node Log(Hosted<LogMember>),
        /// Of CORFU', under the shared log.
        node Corfu(Hosted<corfu::Member>),
        /// The shared log's gateway over CORFU'.
        node CorfuGateway(Hosted<shared_log::corfu::GatewayNode>),
        /// Of transactions.
        node Txn(Hosted<spanner::SpannerMember>),
        /// Of the partially ordered log.
        node Fuzzy(Hosted<fuzzylog::FuzzyMember>),
        /// The partially ordered log's gateway.
        node ColourGateway(Hosted<colours::ColourGatewayNode>),
        /// Of the chains under the shared log over FuzzyLog.
        node LogChains(Hosted<fuzzylog::FuzzyMember>),
        /// Stands there where Mason's proxies do.
        node LogFeeder(Hosted<shared_log::feeder::FeederNode>),
        /// Of the chain under the coordination service over FuzzyLog.
        node TreeChain(Hosted<fuzzylog::FuzzyMember>),
        /// Stands there where Mason's proxies do.
        node TreeFeeder(Hosted<coordination::feeder::TreeFeederNode>),
        /// Executes there what concerns sessions.
        node TreeHome(Hosted<coordination::feeder::HomeNode>),
    }
}

impl Embeds<paxos::Paxos> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<paxos::Message> {
        match message {
            OrdinateMessage::Kv(message) => Some(message),
            OrdinateMessage::Mason(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_)
            | OrdinateMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: LocalRequest) -> Option<paxos::Call> {
        match request {
            LocalRequest::Kv(call) => Some(call),
            LocalRequest::Service(_) => None,
        }
    }

    fn outer_message(message: paxos::Message) -> OrdinateMessage {
        OrdinateMessage::Kv(message)
    }

    fn outer_response(response: paxos::Outcome) -> LocalResponse {
        LocalResponse::Kv(response)
    }
}

impl Embeds<mason::Mason> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<mason::MasonMessage> {
        match message {
            OrdinateMessage::Mason(message) => Some(message),
            OrdinateMessage::User(event) => Some(event.into()),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_)
            | OrdinateMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: mason::MasonMessage) -> OrdinateMessage {
        match message {
            mason::MasonMessage::Connection(message) => OrdinateMessage::Connection(message),
            message => OrdinateMessage::Mason(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl Embeds<corfu::Corfu> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<corfu::CorfuMessage> {
        match message {
            OrdinateMessage::Corfu(message) => Some(message),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Mason(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_)
            | OrdinateMessage::Fuzzy(_) => None,
        }
    }

    /// The engine's roles are asked nothing by local applications, their gateway is.
    fn inner_request(_request: LocalRequest) -> Option<corfu::CorfuRequest> {
        None
    }

    fn outer_message(message: corfu::CorfuMessage) -> OrdinateMessage {
        OrdinateMessage::Corfu(message)
    }

    fn outer_response(_response: corfu::CorfuResponse) -> LocalResponse {
        LocalResponse::Service(Bytes::new())
    }
}

impl Embeds<shared_log::corfu::CorfuLog> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<shared_log::corfu::CorfuLogMessage> {
        match message {
            OrdinateMessage::Corfu(message) => Some(shared_log::corfu::CorfuLogMessage::Corfu(message)),
            OrdinateMessage::User(event) => Some(shared_log::corfu::CorfuLogMessage::User(event)),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Mason(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_)
            | OrdinateMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: shared_log::corfu::CorfuLogMessage) -> OrdinateMessage {
        match message {
            shared_log::corfu::CorfuLogMessage::Corfu(message) => OrdinateMessage::Corfu(message),
            shared_log::corfu::CorfuLogMessage::User(event) => OrdinateMessage::User(event),
            shared_log::corfu::CorfuLogMessage::Connection(message) => OrdinateMessage::Connection(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl Embeds<spanner::Spanner> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<spanner::SpannerMessage> {
        match message {
            OrdinateMessage::Spanner(message) => Some(message),
            OrdinateMessage::User(event) => Some(spanner::SpannerMessage::User(event)),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Mason(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: spanner::SpannerMessage) -> OrdinateMessage {
        match message {
            spanner::SpannerMessage::Connection(message) => OrdinateMessage::Connection(message),
            message => OrdinateMessage::Spanner(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl Embeds<fuzzylog::FuzzyLog> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<fuzzylog::FuzzyMessage> {
        match message {
            OrdinateMessage::Fuzzy(message) => Some(message),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Mason(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_) => None,
        }
    }

    /// Directors are asked to follow the members; whatever else users ask, they ask the gateway.
    fn inner_request(request: LocalRequest) -> Option<fuzzylog::FuzzyRequest> {
        let members = paxos::Members::decoded(&request.of_service()?);
        members.ok().map(fuzzylog::FuzzyRequest::Follow)
    }

    fn outer_message(message: fuzzylog::FuzzyMessage) -> OrdinateMessage {
        OrdinateMessage::Fuzzy(message)
    }

    fn outer_response(_response: fuzzylog::FuzzyResponse) -> LocalResponse {
        LocalResponse::Service(Bytes::new())
    }
}

impl Embeds<colours::Colours> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<colours::ColoursMessage> {
        match message {
            OrdinateMessage::Fuzzy(message) => Some(colours::ColoursMessage::Fuzzy(message)),
            OrdinateMessage::User(event) => Some(colours::ColoursMessage::User(event)),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Mason(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_) => None,
        }
    }

    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: colours::ColoursMessage) -> OrdinateMessage {
        match message {
            colours::ColoursMessage::Fuzzy(message) => OrdinateMessage::Fuzzy(message),
            colours::ColoursMessage::User(event) => OrdinateMessage::User(event),
            colours::ColoursMessage::Connection(message) => OrdinateMessage::Connection(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl Embeds<shared_log::feeder::FedLog> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<shared_log::feeder::FedMessage> {
        match message {
            OrdinateMessage::Mason(message) => Some(shared_log::feeder::FedMessage::Mason(message)),
            OrdinateMessage::Fuzzy(message) => Some(shared_log::feeder::FedMessage::Fuzzy(message)),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_) => None,
        }
    }

    /// It is asked to follow the members; users ask the gateway.
    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: shared_log::feeder::FedMessage) -> OrdinateMessage {
        match message {
            shared_log::feeder::FedMessage::Mason(message) => OrdinateMessage::Mason(message),
            shared_log::feeder::FedMessage::Fuzzy(message) => OrdinateMessage::Fuzzy(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl Embeds<coordination::feeder::FedTree> for Ordinate {
    fn inner_message(message: OrdinateMessage) -> Option<coordination::feeder::FedTreeMessage> {
        match message {
            OrdinateMessage::Mason(message) => Some(coordination::feeder::FedTreeMessage::Mason(message)),
            OrdinateMessage::Fuzzy(message) => Some(coordination::feeder::FedTreeMessage::Fuzzy(message)),
            OrdinateMessage::Kv(_)
            | OrdinateMessage::Corfu(_)
            | OrdinateMessage::User(_)
            | OrdinateMessage::Connection(_)
            | OrdinateMessage::Spanner(_) => None,
        }
    }

    /// It is asked to follow the members, and for other shards; users ask the gateway.
    fn inner_request(request: LocalRequest) -> Option<Bytes> {
        request.of_service()
    }

    fn outer_message(message: coordination::feeder::FedTreeMessage) -> OrdinateMessage {
        match message {
            coordination::feeder::FedTreeMessage::Mason(message) => OrdinateMessage::Mason(message),
            coordination::feeder::FedTreeMessage::Fuzzy(message) => OrdinateMessage::Fuzzy(message),
        }
    }

    fn outer_response(response: client::Response) -> LocalResponse {
        LocalResponse::Service(response.0)
    }
}

impl HostedNode {
    /// The role of the key-value store that it is, if it is one.
    pub fn as_kv(&self) -> Option<&KvMember> {
        let Self::Kv(embedded) = self else { return None };
        Some(embedded.node())
    }

    /// If it is a proxy: the version of the members that its group needs none beside.
    pub fn settled_on(&self) -> Option<u64> {
        match self {
            // Its chains keep the hosts that they began with.
            Self::Kv(_) | Self::Corfu(_) | Self::CorfuGateway(_) | Self::ColourGateway(_) => None,
            Self::Coordination(embedded) => embedded.node().settled_on(),
            Self::Sequence(embedded) => embedded.node().settled_on(),
            Self::Log(embedded) => embedded.node().settled_on(),
            Self::Txn(embedded) => match embedded.node() {
                spanner::SpannerMember::Shard(shard) => Some(shard.settled_on()),
                spanner::SpannerMember::Gateway(_) | spanner::SpannerMember::Log(_) => None,
            },
            Self::LogFeeder(embedded) => {
                let shared_log::feeder::FeederNode::Feeder(feeder) = embedded.node();
                Some(feeder.settled_on())
            }
            Self::TreeFeeder(embedded) => {
                let coordination::feeder::TreeFeederNode::Feeder(feeder) = embedded.node();
                Some(feeder.settled_on())
            }
            Self::TreeHome(_) => None,
            Self::Fuzzy(embedded) | Self::LogChains(embedded) | Self::TreeChain(embedded) => {
                match embedded.node() {
                    fuzzylog::FuzzyMember::Director(director) => Some(director.settled_on()),
                    fuzzylog::FuzzyMember::ChainServer(_)
                    | fuzzylog::FuzzyMember::Client(_)
                    | fuzzylog::FuzzyMember::Log(_) => None,
                }
            }
        }
    }
}

/// Every role becomes a node.
macro_rules! hosted {
    ($($Name:ident($Role:ty)),+ $(,)?) => {
        $(impl From<$Role> for HostedNode {
            fn from(role: $Role) -> Self {
                Self::$Name(Box::new(Embedded::new(role)))
            }
        })+
    };
}

hosted! {
    Kv(KvMember),
    Coordination(CoordinationMember),
    Sequence(SequenceMember),
    Log(LogMember),
    Corfu(corfu::Member),
    CorfuGateway(shared_log::corfu::GatewayNode),
    Txn(spanner::SpannerMember),
    Fuzzy(fuzzylog::FuzzyMember),
    ColourGateway(colours::ColourGatewayNode),
    LogFeeder(shared_log::feeder::FeederNode),
    TreeFeeder(coordination::feeder::TreeFeederNode),
    TreeHome(coordination::feeder::HomeNode),
}
