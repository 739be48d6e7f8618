//! Kafka's port: frames in, responses out; the log's gateway of this host does the rest. See [`::kafka`].

use super::SharedLog;
use super::permits;
use crate::access::{Access, PortCaller};
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, Ordinate, OrdinateMessage};
use crate::gate::Gate;
use crate::latency::{CallFailure, Latencies};
use crate::status::{HostStatus, OF_LATE};
use crate::unique::unique_number;
use ::kafka::{
    Broker, Brokers, Connection, Fault, Outgoing, Permitted, ProducerIds, Settings, Shared, node_of,
};
use bytes::BytesMut;
use kernel::client::{ConnectionIn, Input};
use kernel::{Decode as _, Encode as _, HostId, NodeId};
use runtime::{CloseReason, FrontEnd, HostHandle, Session, SessionCx};
use shared_log::native::{Call, Native, Reply};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Serves Kafka's protocol on one port.
pub struct Kafka {
    /// The log's gateway of this host.
    pub gateway: NodeId,
    /// Who else serves it.
    pub directory: Directory,
    /// What it is configured with.
    pub settings: Settings,
    /// What its connections share.
    pub shared: Shared,
    /// The largest request.
    pub request_bytes_max: usize,
    /// Whether clients are served here at all.
    pub gate: Gate,
    /// How long requests take.
    pub latencies: Latencies,
    /// Who may do what.
    pub access: Access,
    /// Under TLS.
    pub is_secure: bool,
}

/// What the connections of a host share, at its start.
pub fn shared() -> Shared {
    Shared { producer_ids: ProducerIds::beginning_at(unique_number()), groups: Rc::default() }
}

/// Waiting responses are looked at this often.
const TICK: Duration = Duration::from_millis(100);
const LENGTH_BYTES: usize = 4;

impl FrontEnd<Ordinate> for Kafka {
    fn open(&mut self, _client: NodeId, address: SocketAddr) -> Box<dyn Session<Ordinate>> {
        Box::new(Client {
            gateway: self.gateway,
            directory: self.directory.clone(),
            request_bytes_max: self.request_bytes_max,
            gate: self.gate.clone(),
            latencies: self.latencies.clone(),
            connection: None,
            settings: self.settings,
            shared: self.shared.clone(),
            caller: Some(PortCaller::at(&self.access, "kafka", address.ip())),
            is_secure: self.is_secure,
        })
    }

    fn tick_every(&self) -> Option<Duration> {
        Some(TICK)
    }
}

struct Client {
    gateway: NodeId,
    directory: Directory,
    request_bytes_max: usize,
    gate: Gate,
    latencies: Latencies,
    /// From its first bytes on: before, nobody knows its certificate.
    connection: Option<Connection>,
    settings: Settings,
    shared: Shared,
    caller: Option<PortCaller>,
    is_secure: bool,
}

impl Client {
    /// Has the connection act, and sends what that leaves.
    fn act(
        &mut self,
        cx: &mut SessionCx<'_, Ordinate>,
        act: impl FnOnce(&mut Connection, &Brokers, kernel::Instant, &mut Outgoing) -> Result<(), Fault>,
    ) -> Result<(), CloseReason> {
        let mut out = Outgoing::default();
        let brokers = self.directory.brokers();
        let connection = self.connection.get_or_insert_with(|| {
            let caller = self.caller.take().unwrap_or(PortCaller::unchecked());
            let client = permits::Client::new(caller, cx.certificate(), self.is_secure);
            Connection::new(self.settings, self.shared.clone(), Permitted::by(client))
        });
        connection.hold(!cx.has_room());
        let outcome = act(connection, &brokers, cx.now(), &mut out);
        let is_full = connection.is_full();
        for (id, request) in out.calls {
            let bytes = Native::Call(Call { id, request }).encoded().into();
            cx.send(self.gateway, OrdinateMessage::User(Input { bytes }.into()));
        }
        cx.output().extend_from_slice(&out.bytes);
        out.answered.into_iter().for_each(|(api, took)| self.latencies.record(("kafka", api), took));
        for (api, code) in out.failed {
            let of = if code.is_of_service() { CallFailure::of_service } else { CallFailure::of_caller };
            self.latencies.fail(("kafka", api), of(code.name()));
        }
        cx.pause_input(is_full);
        if out.ends {
            cx.finish(CloseReason("kafka login refused"));
        }
        outcome.map_err(|fault| match fault {
            Fault::Malformed => CloseReason("malformed kafka request, or one that is not served"),
            Fault::UnacknowledgedAppend => CloseReason("kafka append without acknowledgement failed"),
        })
    }
}

impl Session<Ordinate> for Client {
    fn on_input(
        &mut self,
        input: &mut BytesMut,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        if self.gate.is_closed() {
            return Err(CloseReason("this host is no member of the cluster"));
        }
        while let Some(length) = input.first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > self.request_bytes_max {
                return Err(CloseReason("kafka request larger than allowed"));
            }
            if input.len() < LENGTH_BYTES + length {
                break;
            }
            let _ = input.split_to(LENGTH_BYTES);
            let frame = input.split_to(length).freeze();
            self.act(cx, |connection, brokers, now, out| connection.on_frame(frame, brokers, now, out))?;
            cx.established();
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        _from: NodeId,
        message: OrdinateMessage,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        let OrdinateMessage::Connection(ConnectionIn::Output(message)) = message else {
            return Ok(());
        };
        let Ok(Native::Reply(Reply { id, answer })) = Native::decoded(&message.bytes) else { return Ok(()) };
        self.act(cx, |connection, brokers, now, out| connection.on_answer(id, answer, brokers, now, out))
    }

    fn on_taken(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        self.on_tick(cx)
    }

    fn on_tick(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        if self.connection.is_none() {
            return Ok(());
        }
        self.act(cx, |connection, brokers, now, out| connection.on_tick(brokers, now, out))
    }
}

/// The hosts that serve Kafka's protocol, as far as this one knows. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Directory(Arc<Mutex<Arc<Brokers>>>);

impl Directory {
    /// Those of the cluster file, until [`Self::follow`] says more: only this host is known to be up.
    pub fn new(file: &ClusterFile, logs: &SharedLog, host: &str) -> Self {
        let members = file.hosts.iter().map(|it| (it.name.as_str(), it.address.as_str()));
        let brokers = brokers(file, logs, members, |name| name == host);
        Self(Arc::new(Mutex::new(Arc::new(brokers))))
    }

    fn brokers(&self) -> Arc<Brokers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over what the host knows now.
    fn follow(&self, file: &ClusterFile, logs: &SharedLog, status: &HostStatus) {
        let members = status.membership.hosts.iter().map(|(name, address)| (name.as_str(), address.as_str()));
        let is_up = |name: &str| name == status.host || status.links.get(name).is_some_and(|link| link.up);
        let brokers = Arc::new(brokers(file, logs, members, is_up));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = brokers;
    }
}

/// Clients reach a host where `log.kafka_brokers` says, or else at its peers' name and the port that this one listens at.
fn brokers<'a>(
    file: &ClusterFile,
    logs: &SharedLog,
    members: impl Iterator<Item = (&'a str, &'a str)>,
    is_up: impl Fn(&str) -> bool,
) -> Brokers {
    let own_port = logs.kafka.as_ref().and_then(|kafka| split_address(&kafka.listen)).map_or(0, |it| it.1);
    let broker = |(name, address): (&str, &str)| {
        let reported = logs.kafka.as_ref().and_then(|kafka| kafka.brokers.get(name));
        let (address, port) = match reported.and_then(|reported| split_address(reported)) {
            Some(reported) => reported,
            None => (split_address(address)?.0, own_port),
        };
        Some(Broker { node: node_of(HostId::named(name)), address, port, is_up: is_up(name) })
    };
    let mut all: Vec<Broker> = members.filter_map(broker).collect();
    all.sort_by_key(|broker| broker.node);
    Brokers { cluster: file.cluster.clone(), all }
}

fn split_address(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// How often it is looked which hosts are up.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// Keeps the directory to what the host knows, from a thread of its own until nobody else has the directory.
pub fn watch(
    handle: HostHandle<HostedNode>,
    file: ClusterFile,
    logs: SharedLog,
    host: String,
    directory: &Directory,
) {
    let directory = Arc::downgrade(&directory.0);
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        while let Some(directory) = directory.upgrade() {
            let of_late = HostStatus::of_late(&handle, &file, &host, OF_LATE);
            if let Some((status, _)) = runtime.block_on(of_late).as_deref() {
                Directory(directory).follow(&file, &logs, status);
            }
            std::thread::sleep(WATCH_EVERY);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn parse(settings: &str) -> Result<ClusterFile, String> {
        let text = format!(
            "cluster = \"c\"\n{settings}\n[hosts]\na = \"a.example:7072\"\nb = \"b.example:7072\"\nd = \"[::1]:7072\""
        );
        ClusterFile::parse(&text, Path::new("."), &Overrides::default()).map_err(|error| error.what)
    }

    // An address that clients cannot reach lets them connect to the first host and time out at the others.
    #[test]
    fn clients_are_sent_where_hosts_are() {
        let kafka = "[listen]\nkafka = \"0.0.0.0:9092\"\n[log]\nspaces = 1\n[kafka]\nbrokers = \"b=far.example:19092\"";
        let file = parse(kafka).expect("it is sound");
        let logs = file.service::<SharedLog>().expect("it has logs");
        let brokers = Directory::new(&file, logs, "a").brokers();
        let all = brokers.all.iter().map(|broker| (broker.address.as_str(), broker.port, broker.is_up));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        assert_eq!(all, [("::1", 9092, false), ("a.example", 9092, true), ("far.example", 19092, false)]);
        assert!(brokers.all.is_sorted_by_key(|broker| broker.node));
    }

    // Topics that are nowhere, or an address that is dropped without a word.
    #[test]
    fn what_cannot_be_served_is_refused() {
        let refused = |settings: &str| parse(settings).expect_err("it is wrong");
        assert!(refused("[listen]\nkafka = \"0.0.0.0:9092\"").contains("no shared log"));
        let wrong = "[log]\nspaces = 1\n[kafka]\nbrokers = \"b\"";
        assert!(
            refused(wrong).contains("kafka.brokers: \"b\" is not hosts with addresses"),
            "{}",
            refused(wrong)
        );
        assert!(
            parse("[log]\nspaces = 1")
                .expect("it is sound")
                .service::<SharedLog>()
                .is_some_and(|logs| logs.kafka.is_none())
        );
    }
}
