//! Kafka's clients, unmodified: what they produce while a host dies comes back byte for byte.

use crate::peers;
use crate::support::cluster::{Cluster, PATIENCE, free_address};
use crate::support::{number, side_by_side};
use kafka::{Broker, Brokers, node_of};
use kernel::HostId;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Three hosts that serve Kafka's protocol, and where.
async fn start() -> (Cluster, Vec<SocketAddr>) {
    let mut cluster = Cluster::planned(3, "[log]\nspaces = 3\nspace_bytes = \"1GiB\"", "");
    let addresses: Vec<SocketAddr> = (0..3).map(|_| free_address()).collect();
    let of = |(host, address): (usize, &SocketAddr)| format!("{}={address}", cluster.hosts[host].name);
    let brokers: Vec<String> = addresses.iter().enumerate().map(of).collect();
    for (host, address) in addresses.iter().enumerate() {
        cluster.set_environment(host, "ORDINATE_LISTEN__KAFKA", &address.to_string());
        cluster.set_environment(host, "ORDINATE_KAFKA__BROKERS", &brokers.join(","));
    }
    cluster.launch_all();
    cluster.until_ready().await;
    (cluster, addresses)
}

fn records() -> usize {
    number("ORDINATE_RECORDS", 50_000)
}

fn python(folder: &Path) -> Command {
    let mut command = Command::new(folder.join("kafka/venv/bin/python"));
    command.arg(peers::root().join("cli/tests/clients/kafka/smoke.py"));
    command
}

fn java(folder: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(["-cp", &format!("{0}/kafka/classes:{0}/kafka/jars/*", folder.display()), "KafkaSmoke"]);
    command
}

/// Produces, kills the host that leads in the middle of it, and consumes from it once it is back.
async fn goes_in_and_comes_out(client: impl Fn() -> Command, producer: &str, compression: &str) {
    let (mut cluster, addresses) = start().await;
    let servers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let count = records().to_string();
    let mut command = client();
    command.args([&servers, &count, "produce", producer, compression]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs, or its peers would not be there");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let leader = lines.next().expect("it says who leads");
    let is_leader = |address: &SocketAddr| leader == format!("leader {}", address.port());
    let leader =
        addresses.iter().position(is_leader).unwrap_or_else(|| panic!("{leader}: none of {addresses:?}"));
    let mut verdict = String::new();
    let mut killed = false;
    for line in lines {
        let acknowledged = line.strip_prefix("acknowledged ").and_then(|count| count.parse::<usize>().ok());
        if !killed && acknowledged.is_some_and(|acknowledged| acknowledged >= records() / 5) {
            cluster.kill(leader);
            killed = true;
        }
        verdict = line;
    }
    assert!(child.wait().expect("it can be waited for").success(), "{verdict}\n{}", cluster.logs());
    assert!(killed, "it was over before a host could be killed");
    cluster.launch(leader);
    cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(leader)).await;
    let mut command = client();
    command.args([&addresses[leader].to_string(), &count, "consume", producer]);
    let output = command.output().expect("it runs, or its peers would not be there");
    let (said, trouble) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{trouble}\n{}", cluster.logs());
    println!("{verdict}; {}", said.trim());
    read_by_a_group(&mut cluster, &addresses, &client).await;
}

/// The host that is the broker that `find` finds, all being up.
fn broker_of(cluster: &Cluster, find: impl Fn(&Brokers) -> Option<&Broker>) -> usize {
    let broker = |host: &crate::support::cluster::Host| Broker {
        node: node_of(HostId::named(&host.name)),
        address: host.name.clone(),
        port: 0,
        is_up: true,
    };
    let mut all: Vec<Broker> = cluster.hosts.iter().map(broker).collect();
    all.sort_by_key(|broker| broker.node);
    let brokers = Brokers { cluster: String::new(), all };
    let found = find(&brokers).expect("there are hosts").address.clone();
    cluster.hosts.iter().position(|host| host.name == found).expect("it is a host")
}

/// A group reads it all while the host that coordinates the group is killed.
async fn read_by_a_group(cluster: &mut Cluster, addresses: &[SocketAddr], client: &impl Fn() -> Command) {
    let coordinator = broker_of(cluster, |brokers| brokers.coordinator_of("readers/1"));
    let servers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut command = client();
    command.args([&servers, &records().to_string(), "group", "plain"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs, or its peers would not be there");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let (mut verdict, mut killed) = (String::new(), false);
    for line in lines {
        if !killed && line.starts_with("acknowledged ") {
            cluster.kill(coordinator);
            killed = true;
        }
        verdict = line;
    }
    assert!(child.wait().expect("it can be waited for").success(), "{verdict}\n{}", cluster.logs());
    assert!(killed && verdict.ends_with("by two members of a group"), "{verdict}");
    println!("{verdict}");
}

// A record that a client was assured is durable and that nobody can read, or reads with another key, header or time.
#[test]
fn librdkafkas_records_survive_a_killed_host() {
    side_by_side(async {
        let Some(folder) = peers::installed("kafka") else { return };
        goes_in_and_comes_out(|| python(&folder), "plain", "zstd").await;
    });
}

// The same with the client of most programs on the JVM.
#[test]
fn the_java_clients_records_survive_a_killed_host() {
    side_by_side(async {
        let Some(folder) = peers::installed("kafka") else { return };
        goes_in_and_comes_out(|| java(&folder), "plain", "snappy").await;
    });
}

// A record that is there twice because the host died between append and answer: what idempotent producers are for.
#[test]
fn idempotent_producers_records_are_there_once() {
    side_by_side(async {
        let Some(folder) = peers::installed("kafka") else { return };
        goes_in_and_comes_out(|| python(&folder), "idempotent", "lz4").await;
        goes_in_and_comes_out(|| java(&folder), "idempotent", "gzip").await;
    });
}

// A client that cannot log in as it does everywhere, or retries for ever what it was not granted.
#[test]
fn librdkafka_logs_in_by_scram_and_is_refused_by_kafkas_errors() {
    side_by_side(async {
        let Some(folder) = peers::installed("kafka") else { return };
        let mut cluster = Cluster::planned(1, "[log]\nspaces = 1", "");
        let keys = server::access::secrets::ScramKeys::of("pencil").expect("the system is random");
        let grants = "grants = [\"all log mine*\", \"read group sasl\"]";
        let file = cluster.folder.join("access.toml");
        std::fs::write(&file, format!("[identity.alice]\npassword = \"{keys}\"\n{grants}\n"))
            .expect("a file");
        cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file.display().to_string());
        let address = cluster.listen(0, "KAFKA");
        cluster.launch_all();
        cluster.until_ready().await;
        let mut command = Command::new(folder.join("kafka/venv/bin/python"));
        command.arg(peers::root().join("cli/tests/clients/kafka/sasl.py"));
        command.args([&address.to_string(), "alice", "pencil", "mine", "others"]);
        let output = command.output().expect("it runs, or its peers would not be there");
        let (said, trouble) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}\n{trouble}\n{}", cluster.logs());
        println!("librdkafka by SCRAM: {}", said.trim());
    });
}

// A program that waits for its time-out, again and again, for what will never be there.
#[test]
fn transactions_are_refused_at_once() {
    side_by_side(async {
        let Some(folder) = peers::installed("kafka") else { return };
        let (cluster, addresses) = start().await;
        let program = "import sys, time\n\
            from confluent_kafka import KafkaException, Producer\n\
            producer = Producer({'bootstrap.servers': sys.argv[1], 'transactional.id': 't'})\n\
            began = time.monotonic()\n\
            try:\n    producer.init_transactions(30)\n\
            except KafkaException as error:\n    print(time.monotonic() - began, error)\n";
        let mut command = Command::new(folder.join("kafka/venv/bin/python"));
        command.args(["-c", program, &addresses[0].to_string()]);
        let output = command.output().expect("it runs, or its peers would not be there");
        let said = String::from_utf8_lossy(&output.stdout);
        let took = said.split(' ').next().and_then(|took| took.parse::<f64>().ok());
        assert!(took.is_some_and(|took| took < 5.0), "{output:?}\n{}", cluster.logs());
        println!("init_transactions is refused after {}", said.trim());
    });
}

// A line that is lost or there twice when the shell's client feeds a file in while a host dies.
#[test]
fn a_file_goes_through_kcat_while_a_host_dies() {
    side_by_side(async {
        if Command::new("kcat").arg("-V").output().is_err() {
            println!("SKIPPED: there is no kcat (scripts/test-tools.sh)");
            return;
        }
        let (mut cluster, addresses) = start().await;
        let servers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let folder = cluster.folder.clone();
        let (into, out) = (folder.join("lines"), folder.join("lines.back"));
        // 100 bytes each, with the end of the line.
        let lines: String = (0..records()).map(|number| format!("{number:099}\n")).collect();
        std::fs::write(&into, &lines).expect("the target folder is writable");
        let log = ordinate_client::Log::connect(cluster.endpoints_from(0));
        log.create("lines", 512 << 20, None).await.expect("a log is made");
        let began = std::time::Instant::now();
        let mut command = Command::new("kcat");
        command.args(["-P", "-b", &servers, "-t", "lines", "-p", "0", "-X", "enable.idempotence=true", "-l"]);
        let mut child = command.arg(&into).spawn().expect("it is there");
        let leader = broker_of(&cluster, |brokers| {
            let node = brokers.leader_of("lines");
            brokers.all.iter().find(|broker| broker.node == node)
        });
        let wanted = records() as u64 / 5;
        let there = async |log: &ordinate_client::Log| log.stat("lines").await.map_or(0, |stat| stat.next);
        while there(&log).await < wanted {
            assert!(child.try_wait().expect("it can be waited for").is_none(), "it is over too early");
        }
        cluster.kill(leader);
        let ended = tokio::task::spawn_blocking(move || child.wait()).await.expect("no panic");
        assert!(ended.expect("it can be waited for").success(), "{}", cluster.logs());
        let produced = began.elapsed();
        cluster.launch(leader);
        cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(leader)).await;
        let began = std::time::Instant::now();
        let mut command = Command::new("kcat");
        let from = addresses[leader].to_string();
        command.args(["-C", "-b", &from, "-t", "lines", "-p", "0", "-o", "beginning", "-e", "-q"]);
        command.stdout(std::fs::File::create(&out).expect("the folder is writable"));
        assert!(command.status().expect("it is there").success(), "{}", cluster.logs());
        println!("kcat: {} records in within {produced:?}, out within {:?}", records(), began.elapsed());
        assert!(std::fs::read(&out).expect("it was written") == lines.as_bytes(), "other lines came back");
    });
}

/// What is produced into a topic that nobody has configured, in bytes.
const DEFAULT_TOPIC_BYTES: usize = 40_000_000;

// Records of a topic that nobody limited go before anybody has read them.
#[test]
fn all_that_goes_into_a_default_topic_comes_out_again() {
    side_by_side(async {
        if Command::new("kcat").arg("-V").output().is_err() {
            println!("SKIPPED: there is no kcat (scripts/test-tools.sh)");
            return;
        }
        let (cluster, addresses) = Cluster::serving("KAFKA", 1, "[log]\nspaces = 2").await;
        let address = addresses[0].to_string();
        let (into, out) = (cluster.folder.join("lines"), cluster.folder.join("lines.back"));
        let lines: String = (0..DEFAULT_TOPIC_BYTES / 100).map(|number| format!("{number:099}\n")).collect();
        std::fs::write(&into, &lines).expect("the target folder is writable");
        let mut produce = Command::new("kcat");
        produce.args(["-P", "-b", &address, "-t", "unlimited", "-p", "0", "-l"]);
        assert!(produce.arg(&into).status().expect("it is there").success(), "{}", cluster.logs());
        let mut consume = Command::new("kcat");
        consume.args(["-C", "-b", &address, "-t", "unlimited", "-p", "0", "-o", "beginning", "-e", "-q"]);
        consume.stdout(std::fs::File::create(&out).expect("the folder is writable"));
        assert!(consume.status().expect("it is there").success(), "{}", cluster.logs());
        assert!(std::fs::read(&out).expect("it was written") == lines.as_bytes(), "other lines came back");
        let log = ordinate_client::Log::connect(cluster.endpoints_from(0));
        let described = log.describe("unlimited").await.expect("the topic is a log");
        let week = 7 * 24 * 60 * 60 * 1_000;
        assert_eq!((described.stat.retain_bytes, described.stat.retain_ms, described.dropped), (0, week, 0));
    });
}
