//! Hosts that come, go, are replaced, or come back without their disks, under load.

use crate::failover::clients;
use crate::load::Load;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http;
use crate::support::side_by_side;
use ordinate_client::{CallError, Client};
use std::time::{Duration, Instant};

/// Runs a change of membership to its end.
pub async fn change(cluster: &Cluster, through: usize, arguments: &[&str]) {
    let admin = cluster.hosts[through].admin.to_string();
    let all = [&["cluster", "members"], arguments, &["--admin", &admin, "--timeout", "60"]].concat();
    let output = cluster.ordinate(&all).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn votes(cluster: &Cluster, host: usize) -> bool {
    cluster.status(host).is_some_and(|status| status["acceptor"] == "votes")
}

// A membership change that stops the service, forgets what the old members acknowledged, or lets old and new members decide
// apart from each other.
#[test]
fn hosts_come_and_go_under_load() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        // In the end these know only hosts that left: what they ask then must not be waited for long.
        let founders =
            clients(&cluster, 6).into_iter().map(|client| client.with_timeout(Duration::from_secs(3)));
        let load = Load::start("members", founders.collect());
        load.until_acknowledged(100, PATIENCE).await;
        let mut gaps = Vec::new();

        let begun = load.now();
        let d = cluster.plan_host(true);
        cluster.launch(d);
        let d_line = format!("d={}", cluster.hosts[d].peer);
        change(&cluster, 0, &["add", &d_line]).await;
        cluster.until("d votes", PATIENCE, |it| votes(it, d) && it.is_ready(d)).await;
        // Where its state came from is in its log.
        let said = |it: &Cluster| it.log(d).contains("of other hosts installed: this host is new");
        cluster.until("d says that it installed a snapshot", PATIENCE, said).await;
        load.until_acknowledged(100, PATIENCE).await;
        gaps.push(("a fourth host is added", load.longest_gap_after(begun)));

        let begun = load.now();
        change(&cluster, 0, &["remove", "b"]).await;
        cluster.kill(1);
        load.until_everybody_is_served(load.now(), PATIENCE).await;
        gaps.push(("a host is removed", load.longest_gap_after(begun)));

        let begun = load.now();
        cluster.kill(2);
        cluster.wipe(2);
        let e = cluster.plan_host(true);
        cluster.launch(e);
        let e_line = format!("e={}", cluster.hosts[e].peer);
        change(&cluster, 0, &["replace", "c", &e_line]).await;
        cluster.until("e votes", PATIENCE, |it| votes(it, e) && it.is_ready(e)).await;
        load.until_acknowledged(100, PATIENCE).await;
        gaps.push(("a lost host is replaced", load.longest_gap_after(begun)));

        // The last of the first members leaves: everything rests on d and e.
        let begun = load.now();
        let a_leaves_through = d;
        let joined: Vec<String> = [d, e].map(|host| cluster.hosts[host].native.to_string()).into();
        let mut load = load;
        load.join(vec![ordinate_client::Client::connect(joined)]);
        change(&cluster, a_leaves_through, &["remove", "a"]).await;
        load.until_acknowledged(100, PATIENCE).await;
        gaps.push(("the last founder is removed", load.longest_gap_after(begun)));
        let status = cluster.status_of(d).await;
        let hosts = status["membership"]["hosts"].as_object();
        let names = hosts.map(|hosts| hosts.keys().cloned().collect::<Vec<String>>());
        assert_eq!(names, Some(vec!["d".to_owned(), "e".to_owned()]));

        let verdict = load.finish().await;
        let shown: Vec<String> =
            gaps.iter().map(|(what, gap)| format!("{what}: {:.0} ms", gap.as_secs_f64() * 1e3)).collect();
        println!(
            "membership, longest time without an acknowledged write: {}; {} operations, linearizable; errors: {:?}",
            shown.join(", "),
            verdict.answered,
            verdict.errors
        );
    });
}

// A host that joined and is started again without the flag takes its cluster file for the founders' word. One that lists
// founders only must be able to join under a leader that came later.
#[test]
fn joining_hosts_remember_it_and_are_handed_on() {
    side_by_side(async {
        // Replacing a by d puts d among those who may lead.
        let placement = "[[place]]\nrole = \"paxos.leader\"\non = [\"a\", \"b\"]\n";
        let mut cluster = Cluster::start(3, "", placement).await;
        let d = cluster.plan_host(true);
        cluster.launch(d);
        let waits = |cluster: &Cluster, host: usize| {
            cluster.status(host).is_some_and(|status| status["joining"] == true)
        };
        cluster.until("d joins", PATIENCE, |it| waits(it, d)).await;
        cluster.kill(d);
        cluster.forget_join(d);
        cluster.launch(d);
        cluster.until("d still joins", PATIENCE, |it| it.status(d).is_some()).await;
        assert!(
            waits(&cluster, d),
            "d takes its cluster file for the cluster's bootstrap: {}",
            cluster.log(d)
        );
        let d_line = format!("d={}", cluster.hosts[d].peer);
        change(&cluster, 1, &["replace", "a", &d_line]).await;
        cluster.until("d votes", PATIENCE, |it| votes(it, d)).await;

        // Nobody but d can lead while b is away, and goes on when b is back.
        cluster.kill(0);
        cluster.kill(1);
        cluster
            .until("d leads", PATIENCE, |it| it.status(d).is_some_and(|status| status["leader"] == "d"))
            .await;
        cluster.launch(1);
        cluster.until("b is back", PATIENCE, |it| it.is_ready(1)).await;
        let e = cluster.plan_host(true);
        let file = cluster.file_of(e);
        let listed = std::fs::read_to_string(&file).expect("it was just written");
        let founders: Vec<&str> = listed.lines().filter(|line| !line.starts_with("d = ")).collect();
        std::fs::write(&file, founders.join("\n")).expect("the folder is writable");
        cluster.launch(e);
        let e_line = format!("e={}", cluster.hosts[e].peer);
        change(&cluster, d, &["add", &e_line]).await;
        cluster.until("e votes", PATIENCE, |it| votes(it, e) && it.is_ready(e)).await;
        let leader = cluster.status_of(e).await["leader"].clone();
        assert_eq!(leader, "d", "the case that this test is about");
        let client = Client::connect([cluster.hosts[e].native.to_string()]).with_timeout(PATIENCE);
        assert!(client.put("key", "value").await.is_ok());
    });
}

// A host that lost its disk has forgotten its votes. If it votes again, a majority of those who are left can be a minority of
// those who promised.
#[test]
fn a_wiped_host_does_not_vote_and_says_why() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        let load = Load::start("wiped", clients(&cluster, 3));
        load.until_acknowledged(60, PATIENCE).await;
        cluster.kill(2);
        cluster.wipe(2);
        cluster.launch(2);
        let says_why = |cluster: &Cluster| {
            http::get(cluster.hosts[2].admin, "/readyz").is_some_and(|answer| {
                answer.code == 503 && answer.text().contains("members replace c NEW=ADDRESS")
            })
        };
        cluster.until("c says that it must be replaced", PATIENCE, says_why).await;
        load.until_acknowledged(60, PATIENCE).await;
        let status = cluster.status_of(2).await;
        assert_ne!(status["acceptor"], "votes", "{status}");
        let why = status["refused_by"]["a"].as_str().unwrap_or_default();
        assert!(why.contains("host c has lost its data directory"), "{status}");
        load.finish().await;

        // With b gone as well, only a and the wiped c are left: nobody may acknowledge anything.
        cluster.kill(1);
        let client = ordinate_client::Client::connect(cluster.endpoints_from(0));
        let client = client.with_timeout(Duration::from_secs(2));
        let asked = Instant::now();
        let answer = client.put("after", "the loss").await;
        assert!(answer.is_err(), "acknowledged by one host with a disk and one without: {answer:?}");
        assert!(asked.elapsed() >= Duration::from_secs(2), "refused instead of waiting");
        cluster.launch(1);
        let served = client.with_timeout(PATIENCE).put("after", "the loss").await;
        assert!(served.is_ok(), "{served:?}");
    });
}

// A client that knows only hosts that left, or that never served clients, waits without a word and its user looks for the
// fault in the network; a host that left is dialled for ever.
#[test]
fn hosts_that_serve_no_clients_say_who_does() {
    side_by_side(async {
        let placement = "[[place]]\nrole = \"paxos.batcher\"\non = [\"a\", \"b\"]\n";
        let cluster = Cluster::start(3, "", placement).await;
        let native = |host: usize| cluster.hosts[host].native.to_string();
        let client = |endpoints: Vec<String>, within| Client::connect(endpoints).with_timeout(within);
        let why = turned_away(&client(vec![native(2)], Duration::from_secs(1))).await;
        assert!(
            why.contains("host c of cluster ") && why.ends_with(" serves no clients; hosts a and b do"),
            "{why}"
        );
        let served = client(vec![native(2), native(0)], PATIENCE).put("key", "value").await;
        assert!(served.is_ok(), "{served:?}");
        let printed =
            cluster.ordinate(&["kv", "get", "key", "--timeout", "1", "--endpoints", &native(2)]).await;
        let said = String::from_utf8_lossy(&printed.stderr).into_owned();
        assert_eq!(printed.status.code(), Some(4), "{said}");
        assert!(said.starts_with("error[O4002]: ") && said.contains("hosts a and b do"), "{said}");
        drop(cluster);

        let cluster = Cluster::start(3, "", "").await;
        let only_c = Client::connect([cluster.hosts[2].native.to_string()]);
        assert!(only_c.clone().with_timeout(PATIENCE).put("key", "value").await.is_ok());
        change(&cluster, 0, &["remove", "c"]).await;
        let why = turned_away(&only_c.with_timeout(Duration::from_secs(1))).await;
        assert!(
            why.contains("host c is no member of cluster ") && why.contains("; hosts a and b do"),
            "{why}"
        );
        let dials = |cluster: &Cluster, host: usize| {
            cluster.status(host).is_none_or(|status| !status["links"]["c"].is_null())
        };
        cluster.until("c is dialled no more", PATIENCE, |it| !dials(it, 0) && !dials(it, 1)).await;
        assert!(cluster.is_ready(0) && cluster.is_ready(1));
    });
}

/// Asks until the client is turned away, and returns the refusal.
async fn turned_away(client: &Client) -> String {
    let asked = Instant::now();
    loop {
        match client.put("key", "other").await {
            Err(CallError::TurnedAway { why, .. }) => return why,
            other => assert!(asked.elapsed() < PATIENCE, "not turned away: {other:?}"),
        }
    }
}
