//! A majority that is lost for good, and the cluster that is made of one survivor.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use crate::support::zookeeper::{create_body, read_body, session};
use coordination::wire::{JuteInput, op};
use ordinate_client::{Client, Level, Log, LogOptions, Rows};
use std::net::SocketAddr;
use std::time::Duration;

const SETTINGS: &str =
    "[paxos]\nsnapshot_every_bytes = \"64KiB\"\n[coordination]\nengine = \"mason\"\n[log]\nspaces = 2\n";
const KEYS: u64 = 200;

fn one(number: u64) -> Rows {
    let mut rows = Rows::default();
    rows.push(&number.to_le_bytes().repeat(100));
    rows
}

fn plan() -> (Cluster, Vec<SocketAddr>) {
    let mut cluster = Cluster::planned(3, SETTINGS, "");
    let addresses = (0..3).map(|host| cluster.listen(host, "ZOOKEEPER")).collect();
    (cluster, addresses)
}

async fn write(cluster: &Cluster, zookeeper: SocketAddr) {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let log = Log::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    log.create_with("jobs", LogOptions::default()).await.expect("a log is made");
    let mut session = session(zookeeper);
    for number in 0..KEYS {
        client.put(format!("key/{number}"), vec![7; 1_000]).await.expect("a write");
        assert_eq!(log.append("jobs", one(number)).await, Ok(number));
        let body = create_body(&format!("/node-{number}"), &number.to_le_bytes(), 0);
        assert_eq!(session.call(op::CREATE, &body).expect("it serves").error, 0);
    }
}

/// What a host knows: all hosts agree once nothing is in flight.
fn known(cluster: &Cluster, host: usize) -> Option<(u64, u64, u64)> {
    let status = cluster.status(host)?;
    let number = |value: &serde_json::Value| value.as_u64();
    Some((number(&status["keys"])?, number(&status["log"]["entries"])?, number(&status["executed"])?))
}

async fn stays_out(old: &mut Cluster, new: &mut Cluster) {
    // An old host that calls the new ones is turned away, and does not serve.
    for (host, there) in old.hosts.iter_mut().zip(&new.hosts).take(2) {
        host.peer = there.peer;
    }
    old.write_file();
    old.launch(2);
    let refused = |it: &Cluster| it.log(2).contains("the caller is of");
    old.until("it is refused", PATIENCE, refused).await;
    assert!(!old.is_ready(2));
    old.kill(2);
    // Nor does it start under the new name on what it has, where a new host has made room.
    new.kill(2);
    std::fs::write(old.file_of(2), std::fs::read(new.file_of(2)).expect("it was written")).expect("writable");
    let refused = old.refusal(2);
    assert!(refused.said.contains("O2107"), "{}", refused.said);
}

// What a majority acknowledged and the survivor has is lost, or what it lacks is not spoken of, or a host of old comes back among the new.
#[test]
fn one_survivor_of_three_becomes_a_cluster_and_the_old_hosts_stay_out() {
    side_by_side(async {
        let (mut old, addresses) = plan();
        old.launch_all();
        old.until_ready().await;
        write(&old, addresses[0]).await;
        let settled = |it: &Cluster| {
            let first = known(it, 0);
            first.is_some_and(|first| first.0 == KEYS) && (1..3).all(|host| known(it, host) == first)
        };
        old.until("all hosts know the same", PATIENCE, settled).await;
        old.kill(0);
        // What only the hosts have that are lost.
        let client = Client::connect(old.endpoints_from(1)).with_timeout(PATIENCE);
        client.put("after", "it is lost").await.expect("two of three write");
        old.kill_all();

        let (mut new, addresses) = plan();
        let survivor = old.data_of(0).display().to_string();
        let data = new.data_of(0).parent().expect("it is in the data folder").to_owned();
        let file = std::fs::read_to_string(new.file_of(0)).expect("it was written");
        let name = file.split('"').nth(1).expect("its first key is its name").to_owned();
        let into = data.display().to_string();
        let recover = [
            "recover",
            "--from-survivors",
            &survivor,
            "--cluster",
            &name,
            "--hosts",
            "a,b,c",
            "--into",
            &into,
        ];
        let asked = old.ordinate(&recover).await;
        assert!(!asked.status.success() && !data.exists(), "nobody confirmed it");
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(said.contains("kv: chosen below slot") && said.contains("lost, if there was more"), "{said}");
        let recovered = old.ordinate(&[&recover[..], &["--yes"]].concat()).await;
        let said = String::from_utf8_lossy(&[recovered.stdout, recovered.stderr].concat()).into_owned();
        assert!(recovered.status.success(), "{said}");
        println!("{said}");

        new.launch_all();
        new.until_ready().await;
        let client = Client::connect(new.endpoints_from(0)).with_timeout(PATIENCE);
        for number in 0..KEYS {
            let found = client.get(format!("key/{number}"), Level::Linearizable).await.expect("a read");
            assert!(found.is_some_and(|found| *found.value == [7; 1_000]), "key/{number}");
        }
        assert_eq!(client.get("after", Level::Linearizable).await.map(|it| it.is_some()), Ok(false));
        client.put("after", "new").await.expect("it takes writes");
        let log = Log::connect(new.endpoints_from(1)).with_timeout(PATIENCE);
        let page = log.read("jobs", 0, 10_000, Duration::ZERO).await.expect("a read");
        assert_eq!(page.entries.len() as u64, KEYS);
        assert_eq!(log.append("jobs", one(KEYS)).await, Ok(KEYS));
        let mut session = session(addresses[2]);
        for number in 0..KEYS {
            let read =
                session.call(op::GET_DATA, &read_body(&format!("/node-{number}"), false)).expect("a read");
            assert_eq!(read.error, 0, "/node-{number}");
            assert_eq!(JuteInput(&read.body).buffer(), Ok(Some(&number.to_le_bytes()[..])));
        }
        let body = create_body("/new", b"", 0);
        assert_eq!(session.call(op::CREATE, &body).expect("it serves").error, 0);

        stays_out(&mut old, &mut new).await;
        let there = client.get("after", Level::Linearizable).await.expect("a read").expect("it was written");
        assert_eq!(*there.value, *b"new");
    });
}
