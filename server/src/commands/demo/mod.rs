//! `ordinate demo`: a three-host cluster in this process, and a prompt that breaks it and judges what happened.

mod faults;
mod photos;
mod stage;
mod verdict;

use super::kv::end_of_prefix;
use crate::failure::Failure;
use ordinate_client::{CallError, Client, Level};
use runtime::{Descriptors, Host};
use server::access::Access;
use server::admin::{self, Admin};
use server::cluster::ClusterFile;
use server::cluster::file::Overrides;
use server::family::HostedNode;
use server::gate::Gate;
use server::health::HealthWatch;
use server::host::{self, Sockets};
use server::latency::Latencies;
use server::services::kv::KvStatus;
use server::status::HostStatus;
use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use verdict::Verdict;

/// Start a three-host cluster in this process, with a prompt to break it.
#[derive(clap::Args)]
pub struct Demo {
    /// What an acknowledgement promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// The first port to try; the next free ones are taken
    #[arg(long, default_value_t = 7070)]
    port: u16,
    /// The first port to try for ZooKeeper's clients; the next free ones are taken
    #[arg(long, default_value_t = 2181)]
    zookeeper: u16,
    /// The first port to try for Kafka's clients; the next free ones are taken
    #[arg(long, default_value_t = 9092)]
    kafka: u16,
}

const TXN_SHARDS: u16 = 4;
const TXN_SPREAD_LEVELS: u32 = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];
const LEADER_WITHIN: Duration = Duration::from_secs(15);

const HELP: &str = "\
  put KEY VALUE    get KEY    del KEY    incr KEY [BY]    scan [PREFIX]
  status           which host leads, how far each is
  kill HOST|all    stop as a crash does       restart HOST|all
  pause HOST       as a hanging process       resume HOST
  partition HOST   no link to the others      heal
  photos [strict|rss|process-ordered] [--no-fence]   what each level shows of a commit half-way
  help             quit";

struct Member {
    running: Option<Running>,
    peer: u16,
    native: u16,
    zookeeper: u16,
    kafka: u16,
    admin: u16,
    paused: bool,
}

struct Running {
    host: Host<HostedNode>,
    health: HealthWatch,
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
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Failure> {
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
        cluster.print_addresses();
        let outcome = prompt(&mut cluster).await;
        cluster.stop();
        outcome
    }

    fn start(&self) -> Result<Cluster, Failure> {
        let ports = free_ports_from(self.port, 9)?;
        let zookeeper = free_ports_from(self.zookeeper, 3)?;
        let kafka = free_ports_from(self.kafka, 3)?;
        let brokers: Vec<String> =
            NAMES.iter().zip(&kafka).map(|(name, port)| format!("{name}=127.0.0.1:{port}")).collect();
        let mut text = format!(
            "cluster = \"demo\"\n[durability]\nack = \"{}\"\n[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = {TXN_SHARDS}\nspread_levels = {TXN_SPREAD_LEVELS}\nfence_bound = \"2s\"\n[coordination]\nengine = \"mason\"\n[log]\nspaces = 2\n\
             [listen]\nkafka = \"127.0.0.1:{}\"\n[kafka]\nbrokers = \"{}\"\n[hosts]\n",
            self.durability,
            kafka[0],
            brokers.join(",")
        );
        for (name, port) in NAMES.iter().zip(&ports[6..]) {
            text += &format!("{name} = \"127.0.0.1:{port}\"\n");
        }
        let folder = std::env::temp_dir().join(format!("ordinate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| failed("no folder for the demo's data", error))?;
        let mut file = ClusterFile::parse(&text, &folder, &Overrides::default())
            .map_err(|error| failed("the demo's cluster file is wrong", error.what))?;
        file.data = folder.clone();
        let member = |index: usize| Member {
            running: None,
            peer: ports[6 + index],
            native: ports[3 + index],
            zookeeper: zookeeper[index],
            kafka: kafka[index],
            admin: ports[index],
            paused: false,
        };
        let members = NAMES.iter().enumerate().map(|(index, &name)| (name, member(index))).collect();
        let endpoints: Vec<String> = ports[3..6].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut cluster = Cluster { file, folder, members, client: Client::connect(endpoints), rounds: 0 };
        for name in NAMES {
            cluster.start_host(name)?;
        }
        Ok(cluster)
    }
}

/// The first free ports from `first` on: the same ones on every start, if they can be had.
fn free_ports_from(first: u16, count: usize) -> Result<Vec<u16>, Failure> {
    let free = (first..=u16::MAX).filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    if ports.len() < count {
        return Err(failed("there are not enough free ports", format!("from {first} on")));
    }
    if ports[0] != first {
        println!("  port {first} is taken; the first free one is {}", ports[0]);
    }
    Ok(ports)
}

impl Cluster {
    fn start_host(&mut self, name: &'static str) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(name) else { return Ok(()) };
        let listen = |port: u16| {
            TcpListener::bind(("127.0.0.1", port))
                .map_err(|error| failed("a port of the demo was taken", error))
        };
        let sockets = Sockets {
            peer: listen(member.peer)?,
            native: listen(member.native)?,
            users: BTreeMap::from([
                ("listen.zookeeper", listen(member.zookeeper)?),
                ("listen.kafka", listen(member.kafka)?),
            ]),
        };
        let admin = listen(member.admin)?;
        let latencies = Latencies::default();
        let host = host::start(
            &self.file,
            name,
            false,
            sockets,
            Gate::default(),
            &latencies,
            None,
            Descriptors::default(),
            None,
            &Access::default(),
        )
        .map_err(|error| failed("a host did not start", error))?;
        let health =
            HealthWatch::start(host.handle(), self.file.clone(), name.to_owned(), Instant::now(), None)
                .map_err(|error| failed("a host cannot be watched", error))?;
        let shared = Arc::new(Admin::new(
            host.handle(),
            self.file.clone(),
            name,
            Instant::now(),
            latencies,
            health.clone(),
            Access::default(),
            None,
        ));
        let _admin = admin::serve(admin, &shared, Descriptors::new(admin::CONNECTIONS_MAX))
            .map_err(|error| failed("the admin port cannot be served", error))?;
        member.running = Some(Running { host, health, _admin });
        member.paused = false;
        Ok(())
    }

    async fn statuses(&self) -> Vec<(&'static str, Option<HostStatus>)> {
        let mut statuses = Vec::new();
        for (&name, member) in &self.members {
            let status = match &member.running {
                Some(running) if !member.paused => {
                    let health = running.health.latest().await;
                    let status = HostStatus::of(&running.host.handle(), &self.file, name).await;
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
        println!();
        println!("  Web page   http://127.0.0.1:{}", a.admin);
        let zookeeper: Vec<String> =
            self.members.values().map(|member| format!("127.0.0.1:{}", member.zookeeper)).collect();
        println!("  ZooKeeper  {}   (4 shards, ordered by Mason)", zookeeper.join(","));
        let kafka: Vec<String> =
            self.members.values().map(|member| format!("127.0.0.1:{}", member.kafka)).collect();
        println!("  Kafka      {}   (topics are logs)", kafka.join(","));
        println!("  HTTP       curl 127.0.0.1:{}/v1/kv/bank/001", a.admin);
        println!(
            "  Txn        curl -d '{{\"put\": {{\"a\": \"1\", \"b\": \"2\"}}}}' 127.0.0.1:{}/v1/txn   (4 shards, by Spanner-RSS)",
            a.admin
        );
        println!("  Native     ordinate kv get bank/001 --endpoints 127.0.0.1:{}", a.native);
        println!("  Status     ordinate status --admin 127.0.0.1:{}", a.admin);
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

async fn prompt(cluster: &mut Cluster) -> Result<(), Failure> {
    let interactive = std::io::stdin().is_terminal();
    let (lines, mut typed) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut broken = false;
    loop {
        if interactive {
            print!("ordinate> ");
            // A prompt that cannot be shown is no reason to stop.
            let _ = std::io::stdout().flush();
        }
        let line = tokio::select! {
            line = typed.recv() => line,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(line) = line else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["quit" | "exit"] => break,
            words => match cluster.obey(words).await {
                Ok(verdict) => broken |= verdict.is_some_and(|verdict| verdict.violation.is_some()),
                Err(why) => {
                    println!("  {why}");
                    if !interactive {
                        return Err(Failure::failed(
                            "O5002",
                            format!("{line:?} failed"),
                            why,
                            "ordinate demo",
                        ));
                    }
                }
            },
        }
    }
    if broken {
        return Err(Failure::failed(
            "O5003",
            "a history was not linearizable",
            "see above",
            "report it with the output",
        ));
    }
    Ok(())
}

impl Cluster {
    async fn obey(&mut self, words: &[&str]) -> Result<Option<Verdict>, String> {
        let failed = |error: CallError| error.to_string();
        match words {
            ["help"] => println!("{HELP}"),
            ["put", key, value @ ..] if !value.is_empty() => {
                println!("  version {}", self.client.put(key, value.join(" ")).await.map_err(failed)?);
            }
            ["get", key] => match self.client.get(key, Level::Linearizable).await.map_err(failed)? {
                Some(found) => {
                    println!("  {}   (version {})", String::from_utf8_lossy(&found.value), found.version)
                }
                None => println!("  no such key"),
            },
            ["del", key] => {
                let deleted = self.client.delete(key).await.map_err(failed)?;
                println!("  {}", if deleted { "deleted" } else { "no such key" });
            }
            ["incr", key] => println!("  {}", self.client.increment(key, 1).await.map_err(failed)?),
            ["incr", key, by] => {
                let by = by.parse().map_err(|_| format!("{by} is no number"))?;
                println!("  {}", self.client.increment(key, by).await.map_err(failed)?);
            }
            ["scan", prefix @ ..] if prefix.len() < 2 => {
                let prefix = prefix.first().copied().unwrap_or("");
                let end = end_of_prefix(prefix);
                let page = self
                    .client
                    .scan(prefix, end.as_deref(), 20, Level::Linearizable)
                    .await
                    .map_err(failed)?;
                for item in page.items {
                    println!(
                        "  {}  {}",
                        String::from_utf8_lossy(&item.key),
                        String::from_utf8_lossy(&item.versioned.value)
                    );
                }
                if page.next.is_some() {
                    println!("  ...");
                }
            }
            ["status"] => self.print_status().await,
            [fault @ ("kill" | "restart" | "pause" | "resume" | "partition"), host] => {
                return self.judge(fault, host).await.map(Some);
            }
            ["photos", options @ ..] => return self.photos(options).await.map(|()| None),
            ["heal"] => return self.judge("heal", "all").await.map(Some),
            _ => return Err(format!("no such command: {}; try help", words.join(" "))),
        }
        Ok(None)
    }

    async fn print_status(&self) {
        for (name, status) in self.statuses().await {
            match status {
                Some(status) => println!(
                    "  {name}  leader {}  executed {}  keys {}  links {}{}",
                    status.leader.as_deref().unwrap_or("none heard"),
                    status.executed.unwrap_or(0),
                    status.services.get::<KvStatus>().and_then(|kv| kv.keys).unwrap_or(0),
                    status.links_up,
                    status.not_serving.map_or(String::new(), |why| format!("  NOT SERVING: {why}"))
                ),
                None if self.members[name].paused => println!("  {name}  paused"),
                None => println!("  {name}  stopped"),
            }
        }
    }
}
