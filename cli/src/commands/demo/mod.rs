//! `ordinate demo`: a three-host cluster in this process, or one in each of several regions, and a prompt that breaks it and judges what
//! happened.

mod editor;
mod faults;
mod given;
mod lines;
mod photos;
mod prompt;
mod regions;
mod sessions;
mod stage;
mod verdict;
mod words;
mod writers;

use crate::failure::Failure;
use ordinate_client::Client;
use runtime::{Descriptors, Host};
use server::access::Access;
use server::admin::{self, Admin};
use server::cluster::ClusterFile;
use server::cluster::file::Overrides;
use server::cluster::values::FileError;
use server::family::HostedNode;
use server::gate::Gate;
use server::health::HealthWatch;
use server::host::{self, Sockets};
use server::latency::Latencies;
use server::status::HostStatus;
use server::trace::Traces;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Start a three-host cluster in this process, with a prompt to break it.
#[derive(clap::Args)]
pub struct Demo {
    /// What an acknowledgement promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// The first port to try, of the admin ports, native ports and peers' ports; the next free ones are taken
    #[arg(long, default_value_t = ADMIN_PORT)]
    port: u16,
    /// The first port to try for ZooKeeper's clients; the next free ones are taken
    #[arg(long, default_value_t = ZOOKEEPER_PORT)]
    zookeeper: u16,
    /// The first port to try for Kafka's clients; the next free ones are taken
    #[arg(long, default_value_t = 9092)]
    kafka: u16,
    /// Regions of three hosts each that have the partially ordered log, and links between them that can be cut
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',')]
    regions: Option<Vec<String>>,
    /// How long a message takes from one region to another and back [default: 168ms]
    #[arg(long, value_name = "TIME", requires = "regions", value_parser = regions::rtt)]
    rtt: Option<Duration>,
}

/// What the command line's verbs assume when they are not given an address.
const ADMIN_PORT: u16 = 7070;
const NATIVE_PORT: u16 = 7071;
const ZOOKEEPER_PORT: u16 = 2181;
const TXN_SHARDS: u16 = 4;
const TXN_SPREAD_LEVELS: u32 = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];
const LEADER_WITHIN: Duration = Duration::from_secs(15);
const SERVING_WITHIN: Duration = Duration::from_secs(5);

struct Member {
    running: Option<Running>,
    peer: u16,
    native: u16,
    admin: u16,
    /// Those of services with a port of their own, by the cluster file's names.
    users: BTreeMap<&'static str, u16>,
    paused: bool,
}

impl Member {
    fn user_port(&self, name: &str) -> u16 {
        self.users.get(name).copied().unwrap_or_default()
    }
}

struct Running {
    host: Host<HostedNode>,
    health: HealthWatch,
    /// The cluster file as the host sees it.
    file: ClusterFile,
    /// Dropping it stops the admin port.
    _admin: oneshot::Sender<()>,
}

struct Cluster {
    file: ClusterFile,
    folder: PathBuf,
    members: BTreeMap<&'static str, Member>,
    client: Client,
    rounds: u64,
}

fn failed(what: &str, fact: impl std::fmt::Display) -> Failure {
    Failure::failed("O5001", what, fact.to_string(), "ordinate demo --port 17070")
}

impl Demo {
    /// Runs until the prompt ends.
    pub fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| failed("the demo cannot start", error))?;
        match &self.regions {
            None => runtime.block_on(self.serve()),
            Some(names) => runtime.block_on(self.serve_regions(names)),
        }
    }

    async fn serve(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        // Without more files than usual the demo has fewer clients.
        let _ = runtime::descriptors::raise_limit();
        println!(
            "ordinate {}  demo cluster, 3 hosts in this process, data gone on exit",
            env!("CARGO_PKG_VERSION")
        );
        println!("  one machine, one clock: its hosts assume that they are within 1 ms of each other");
        let mut cluster = self.start()?;
        println!(
            "  a b c started          {:.2} s   engine      paxos (co-located MultiPaxos, f = 1)",
            begun.elapsed().as_secs_f64()
        );
        let leader = cluster.wait_for_leader().await?;
        println!(
            "  {leader} leads                {:.2} s   durability  {}",
            begun.elapsed().as_secs_f64(),
            cluster.file.durability
        );
        cluster.load_sample().await?;
        println!(
            "  sample data loaded     {:.2} s   100 accounts under bank/",
            begun.elapsed().as_secs_f64()
        );
        if cluster.serves().await {
            println!("  all services serve     {:.2} s", begun.elapsed().as_secs_f64());
        }
        cluster.print_addresses();
        let outcome = prompt::prompt(&mut cluster).await;
        cluster.stop();
        outcome
    }

    fn start(&self) -> Result<Cluster, Failure> {
        let ports = Ports::free(self.port, NAMES.len())?;
        let zookeeper = free_ports_from(self.zookeeper, NAMES.len())?;
        let kafka = free_ports_from(self.kafka, NAMES.len())?;
        let brokers: Vec<String> =
            NAMES.iter().zip(&kafka).map(|(name, port)| format!("{name}=127.0.0.1:{port}")).collect();
        let text = format!(
            "cluster = \"demo\"\n[durability]\nack = \"{}\"\n[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = {TXN_SHARDS}\nspread_levels = {TXN_SPREAD_LEVELS}\nfence_bound = \"2s\"\n[coordination]\nengine = \"mason\"\n[log]\nspaces = 2\n[sequence]\nspaces = [\"orders\", \"payments\"]\n[fuzzylog]\npartitions = 2\n\
             [listen]\nkafka = \"127.0.0.1:{}\"\n[kafka]\nbrokers = \"{}\"\n{}",
            self.durability,
            kafka[0],
            brokers.join(","),
            ports.hosts_section(&NAMES)
        );
        let users = BTreeMap::from([("listen.zookeeper", zookeeper), ("listen.kafka", kafka)]);
        let wrong = |error: FileError| failed("the demo's cluster file is wrong", error.what);
        Cluster::begin(&text, &NAMES, &ports, &users, wrong)
    }
}

/// Ports of hosts, in their order: native and admin ports, and those for other hosts.
struct Ports(Vec<u16>);

impl Ports {
    fn free(first: u16, hosts: usize) -> Result<Self, Failure> {
        free_ports_from(first, 3 * hosts).map(Self)
    }

    fn peers(&self) -> &[u16] {
        &self.0[self.0.len() / 3 * 2..]
    }

    fn hosts_section(&self, names: &[&str]) -> String {
        let line = |(name, port): (&&str, &u16)| format!("{name} = \"127.0.0.1:{port}\"\n");
        format!("[hosts]\n{}", names.iter().zip(self.peers()).map(line).collect::<String>())
    }
}

/// What a verb of the command line needs to find this host: nothing, if it is where it looks by itself.
fn flag(name: &str, port: u16, usual: u16) -> String {
    if port == usual { String::new() } else { format!(" {name} 127.0.0.1:{port}") }
}

/// Whether colours are wanted: by a terminal, unless the environment says no.
fn colours() -> bool {
    let off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !off && !dumb
}

/// `text` in a colour, where colours are wanted.
fn painted(colour: reedline::Color, text: &str) -> String {
    if colours() { colour.paint(text).to_string() } else { text.to_owned() }
}

/// The first free ports from `first` on: the same ones on every start, if they can be had.
fn free_ports_from(first: u16, count: usize) -> Result<Vec<u16>, Failure> {
    let free = (first..=u16::MAX).filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    if ports.len() < count {
        return Err(failed("there are not enough free ports", format!("from {first} on")));
    }
    if let Some(taken) = (first..).zip(&ports).find_map(|(port, free)| (port != *free).then_some(port)) {
        println!("  port {taken} is taken: the next free one is used");
    }
    Ok(ports)
}

impl Cluster {
    /// Starts hosts with a cluster file of this text, and ports of services by the names of the file.
    fn begin(
        text: &str,
        names: &[&'static str],
        ports: &Ports,
        users: &BTreeMap<&'static str, Vec<u16>>,
        wrong: impl FnOnce(FileError) -> Failure,
    ) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("ordinate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| failed("no folder for the demo's data", error))?;
        let mut file = ClusterFile::parse(text, &folder, &Overrides::default()).map_err(wrong)?;
        file.data = folder.clone();
        let member = |index: usize| Member {
            running: None,
            peer: ports.peers()[index],
            native: ports.0[2 * index + 1],
            admin: ports.0[2 * index],
            users: users.iter().map(|(&name, ports)| (name, ports[index])).collect(),
            paused: false,
        };
        let members: BTreeMap<&'static str, Member> =
            names.iter().enumerate().map(|(index, &name)| (name, member(index))).collect();
        let endpoints = members.values().map(|member| format!("127.0.0.1:{}", member.native));
        let client = Client::connect(endpoints.collect::<Vec<_>>());
        let mut cluster = Self { file, folder, members, client, rounds: 0 };
        for name in names {
            cluster.start_host(name)?;
        }
        Ok(cluster)
    }

    fn start_host(&mut self, name: &'static str) -> Result<(), Failure> {
        let file = self.file.clone().seen_from(name);
        let Some(member) = self.members.get_mut(name) else { return Ok(()) };
        let listen = |port: u16| {
            TcpListener::bind(("127.0.0.1", port))
                .map_err(|error| failed("a port of the demo was taken", error))
        };
        let mut users = BTreeMap::new();
        for (&name, &port) in &member.users {
            users.insert(name, listen(port)?);
        }
        let sockets = Sockets { peer: listen(member.peer)?, native: listen(member.native)?, users };
        let admin = listen(member.admin)?;
        let latencies = Latencies::default();
        let host = host::start(
            &file,
            name,
            false,
            sockets,
            Gate::default(),
            &latencies,
            None,
            Descriptors::default(),
            None,
            &Access::default(),
            None,
        )
        .map_err(|error| failed("a host did not start", error))?;
        let health = HealthWatch::start(host.handle(), file.clone(), name.to_owned(), Instant::now(), None)
            .map_err(|error| failed("a host cannot be watched", error))?;
        let shared = Arc::new(Admin::new(
            host.handle(),
            file.clone(),
            name,
            Instant::now(),
            latencies,
            health.clone(),
            Access::default(),
            None,
            Traces::default(),
        ));
        let _admin = admin::serve(admin, &shared, Descriptors::new(admin::CONNECTIONS_MAX))
            .map_err(|error| failed("the admin port cannot be served", error))?;
        member.running = Some(Running { host, health, file, _admin });
        member.paused = false;
        Ok(())
    }

    async fn statuses(&self) -> Vec<(&'static str, Option<HostStatus>)> {
        let mut statuses = Vec::new();
        for (&name, member) in &self.members {
            let status = match &member.running {
                Some(running) if !member.paused => {
                    let health = running.health.latest().await;
                    let status = HostStatus::of(&running.host.handle(), &running.file, name).await;
                    status.map(|(status, _)| status.with(&health))
                }
                Some(_) | None => None,
            };
            statuses.push((name, status));
        }
        statuses
    }

    /// The leader that most recently won, as the running hosts see it.
    async fn leader(&self) -> Option<String> {
        let statuses = self.statuses().await;
        let known =
            statuses.into_iter().filter_map(|(_, status)| status).filter(|status| status.leader.is_some());
        known.max_by_key(|status| status.round).and_then(|status| status.leader)
    }

    async fn wait_for_leader(&self) -> Result<String, Failure> {
        let deadline = Instant::now() + LEADER_WITHIN;
        while Instant::now() < deadline {
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(failed("no leader was elected", format!("within {LEADER_WITHIN:?}")))
    }

    /// Waits a little until every host says that it serves all services, so that what is shown next is no start half-way.
    async fn serves(&self) -> bool {
        let deadline = Instant::now() + SERVING_WITHIN;
        while Instant::now() < deadline {
            let statuses = self.statuses().await;
            if statuses.iter().all(|(_, it)| it.as_ref().is_some_and(|it| it.not_serving.is_none())) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn load_sample(&self) -> Result<(), Failure> {
        let accounts = (0..100).map(|number| {
            let client = self.client.clone();
            tokio::spawn(async move { client.put(format!("bank/{number:03}"), "100").await })
        });
        for account in accounts.collect::<Vec<_>>() {
            let written = account.await.map_err(|error| failed("loading sample data", error))?;
            written.map_err(|error| failed("sample data could not be written", error))?;
        }
        Ok(())
    }

    fn print_addresses(&self) {
        let a = &self.members["a"];
        let of_all = |port: fn(&Member) -> u16| {
            let addresses: Vec<String> =
                self.members.values().map(|member| format!("127.0.0.1:{}", port(member))).collect();
            addresses.join(",")
        };
        println!();
        println!("  Web page   http://127.0.0.1:{}", a.admin);
        println!("  Kafka      {}   (topics are logs)", of_all(|member| member.user_port("listen.kafka")));
        println!(
            "  ZooKeeper  {}   (4 shards, ordered by Mason)",
            of_all(|member| member.user_port("listen.zookeeper"))
        );
        println!("  HTTP       curl 127.0.0.1:{}/v1/kv/bank/001", a.admin);
        let native = flag("--endpoints", a.native, NATIVE_PORT);
        let zookeeper = flag("--servers", a.user_port("listen.zookeeper"), ZOOKEEPER_PORT);
        println!();
        println!("  Key-value  ordinate kv get bank/001{native}");
        println!("  Txn        ordinate txn put from/alice 5 to/bob 5{native}");
        println!("  Log        ordinate log create jobs{native}");
        println!("  Sequence   ordinate sequence next --spaces orders,payments{native}");
        let admin = flag("--admin", a.admin, ADMIN_PORT);
        println!("  Colours    ordinate fuzzylog append red,blue hello{admin}");
        println!("  Znodes     ordinate zk ls /{zookeeper}");
        println!("  Status     ordinate status{admin}");
        println!();
        println!("  Try:  put greeting hello     kill a     restart a     partition b     heal     help");
    }

    fn endpoints(&self) -> Vec<String> {
        self.members.values().map(|member| format!("127.0.0.1:{}", member.native)).collect()
    }

    fn stop(&mut self) {
        for member in self.members.values_mut() {
            if let Some(running) = member.running.take() {
                // The data is thrown away next: how it ended does not matter.
                let _ = running.host.kill();
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A demo at its own ports whose commands need flags is not found by who types the verb alone.
    #[test]
    fn verbs_need_no_flags_at_the_usual_ports() {
        assert_eq!(flag("--endpoints", ADMIN_PORT + 1, NATIVE_PORT), "");
        assert_eq!(flag("--endpoints", 9000, NATIVE_PORT), " --endpoints 127.0.0.1:9000");
    }
}
