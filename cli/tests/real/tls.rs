//! TLS on every port but the admin port.

use crate::load::Load;
use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::{Client, Level, Tls, TlsFiles};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

// Plaintext that is answered on a port of a cluster with TLS, hosts that cannot talk, or a client that trusts anybody.
#[test]
fn hosts_and_clients_speak_tls_and_plaintext_is_refused() {
    side_by_side(async {
        let mut cluster = Cluster::planned(3, "", "");
        // Clients dial a by its address in the cluster file, b by one that only a flag has named.
        for (host, last) in [(0, 3), (1, 2)] {
            cluster.hosts[host].native.set_ip([127, 0, 0, last].into());
        }
        cluster.hosts[0].peer.set_ip([127, 0, 0, 3].into());
        cluster.write_file();
        let more = ["--san", "b=127.0.0.2"];
        let (folder, foreign) = (cluster.use_tls(&more), cluster.make_certificates("foreign", &more));
        cluster.launch_all();
        cluster.until_ready().await;
        let load_tls = |folder: &std::path::Path| {
            let (ca, cert, key) =
                (folder.join("ca.pem"), folder.join("client.pem"), folder.join("client.key"));
            Tls::load(&TlsFiles { ca, cert, key }).expect("ordinate tls init made them")
        };
        let client = |number| Client::connect_tls(cluster.endpoints_from(number), load_tls(&folder));
        for host in 0..3 {
            let alone = Client::connect_tls([cluster.hosts[host].native.to_string()], load_tls(&folder));
            let served = alone.with_timeout(PATIENCE).put("dialled", "by address").await;
            assert!(served.is_ok(), "host {host}: {served:?}");
        }
        let load = Load::start("tls", (0..4).map(client).collect());
        load.until_acknowledged(100, PATIENCE).await;

        let refused = |client: Client| async move {
            client.with_timeout(Duration::from_secs(1)).get("x", Level::Eventual).await
        };
        let plain = refused(Client::connect(cluster.endpoints_from(0))).await;
        assert!(plain.is_err(), "a plaintext client was answered: {plain:?}");
        let foreign = load_tls(&foreign);
        let foreign = refused(Client::connect_tls(cluster.endpoints_from(0), foreign)).await;
        assert!(foreign.is_err(), "a client with a foreign certificate was answered: {foreign:?}");
        let mut raw = TcpStream::connect(cluster.hosts[0].native).expect("it listens");
        raw.set_read_timeout(Some(PATIENCE)).expect("a socket");
        raw.write_all(&ordinate_client::protocol::preface(1)).expect("it is open");
        let mut answer = Vec::new();
        // A reset is as good an end as any.
        let _ = raw.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"ORDINATE"), "plaintext was answered in plaintext");

        let file = |name: &str| folder.join(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
        let flags = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        let put = cluster.ordinate(&[&["kv", "put", "city", "Bern"][..], &flags].concat()).await;
        assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        let got = cluster.ordinate(&[&["kv", "get", "city"][..], &flags].concat()).await;
        assert_eq!(String::from_utf8_lossy(&got.stdout), "Bern\n");
        let halves = cluster.ordinate(&["kv", "get", "city", "--tls-ca", &ca]).await;
        assert!(!halves.status.success(), "TLS by halves was taken for none");

        // The leader's end is no different with TLS.
        let leader = cluster.leader().await;
        let struck_at = load.now();
        cluster.kill(leader);
        load.until_everybody_is_served(struck_at, PATIENCE).await;
        let gap = load.longest_gap_after(struck_at);
        let verdict = load.finish().await;
        println!("TLS: {} operations, linearizable; kill -9 of the leader: gap {gap:?}", verdict.answered);
    });
}

/// When a host's certificate ends, by its metrics.
async fn ends_at(cluster: &Cluster, host: usize) -> f64 {
    let page = cluster.page(host, "/metrics", 200).await.text();
    let found =
        page.lines().find_map(|line| line.strip_prefix("ordinate_certificate_ends_seconds{of=\"host\"} "));
    found.and_then(|ends| ends.parse().ok()).unwrap_or_else(|| panic!("{page}"))
}

// A certificate that is renewed in time and used only after a restart; or links and clients that break when it is replaced.
#[test]
fn certificates_are_renewed_under_load_without_a_failed_request() {
    side_by_side(async {
        let mut cluster = Cluster::planned(3, "", "");
        let folder = cluster.use_tls(&["--days", "20"]);
        cluster.launch_all();
        cluster.until_ready().await;
        for host in 0..3 {
            let said = cluster.log(host);
            let warned = said.contains("tls: the certificate of the host ends in ")
                && said.contains("; ordinate tls renew");
            assert!(warned, "no warning before it ends\n{said}");
        }
        let load_tls = || {
            let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| folder.join(file));
            Tls::load(&TlsFiles { ca, cert, key }).expect("ordinate tls init made them")
        };
        let before = ends_at(&cluster, 0).await;
        let client = |number| Client::connect_tls(cluster.endpoints_from(number), load_tls());
        let mut load = Load::start("tls renewed", (0..4).map(client).collect());
        load.until_acknowledged(100, PATIENCE).await;
        let renewed = Command::new(ORDINATE).args(["tls", "renew", "--out"]).arg(&folder).output();
        let renewed = renewed.expect("the binary under test runs");
        let said = String::from_utf8_lossy(&renewed.stdout).into_owned();
        assert!(renewed.status.success() && said.matches("is good for 365 days").count() == 4, "{renewed:?}");
        let taken_over = |cluster: &Cluster| (0..3).all(|host| cluster.log(host).contains(", good for 36"));
        cluster.until("the certificates are taken over", PATIENCE, taken_over).await;
        let year = 340.0 * 24.0 * 3600.0;
        for host in 0..3 {
            assert!(ends_at(&cluster, host).await - before > year, "host {host} shows the old certificate");
        }
        // Those who come now shake hands with it, and links that break come back with it.
        load.join((4..8).map(client).collect());
        load.until_acknowledged(200, PATIENCE).await;
        let struck_at = load.now();
        for host in 0..3 {
            cluster.signal(host, "-STOP");
            tokio::time::sleep(Duration::from_millis(50)).await;
            cluster.signal(host, "-CONT");
        }
        load.until_everybody_is_served(struck_at, PATIENCE).await;
        // Half of a pair must not be taken over, and what is broken must be said.
        let key = folder.join("a.key");
        let pair = std::fs::read(&key).expect("it was made");
        std::fs::copy(folder.join("b.key"), &key).expect("it is writable");
        let refused = |cluster: &Cluster| cluster.log(0).contains("cannot be used; those before hold");
        cluster.until("the wrong key is noticed", PATIENCE, refused).await;
        let alone = Client::connect_tls([cluster.hosts[0].native.to_string()], load_tls());
        alone.with_timeout(PATIENCE).put("after", "x").await.expect("the certificate before holds");
        std::fs::write(&key, pair).expect("it is writable");
        let deadline = Instant::now() + PATIENCE;
        while !cluster.page(0, "/metrics", 200).await.text().contains("ordinate_certificate_files_sound 1") {
            assert!(Instant::now() < deadline, "{}", cluster.logs());
        }
        let verdict = load.finish().await;
        assert!(verdict.errors.is_empty(), "requests failed: {:?}", verdict.errors);
        println!("{} requests while certificates were renewed, none failed", verdict.answered);
    });
}

// Everybody with a client's certificate could be a host to the others: vote for it, and read everything.
#[test]
fn a_certificate_of_a_client_is_none_of_a_host() {
    side_by_side(async {
        let mut cluster = Cluster::planned(3, "", "");
        let folder = cluster.use_tls(&[]);
        let ordinate = |arguments: &[&str]| {
            let output = Command::new(ORDINATE).args(arguments).output().expect("the binary under test runs");
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let path = folder.display().to_string();
        let names = ["--san", "c", "--san", "localhost", "--san", "127.0.0.1"];
        ordinate(&[&["tls", "add-client", "rogue", "--out", &path], &names[..]].concat());
        let show = |cluster: &mut Cluster, name: &str| {
            for (key, end) in [("CERT", "pem"), ("KEY", "key")] {
                let file = folder.join(format!("{name}.{end}")).display().to_string();
                cluster.set_environment(2, &format!("ORDINATE_TLS__{key}"), &file);
            }
        };
        show(&mut cluster, "rogue");
        cluster.launch_all();
        let refused = |it: &Cluster| {
            (0..2).all(|host| it.log(host).contains("the caller shows no certificate of host c"))
        };
        cluster.until("it is refused", PATIENCE, refused).await;
        assert!((0..2).all(|host| !cluster.is_ready(host)), "a cluster begins with all of its hosts");
        cluster.kill(2);
        show(&mut cluster, "c");
        cluster.launch(2);
        cluster.until_ready().await;
        // What is renewed is for the same purpose as before.
        ordinate(&["tls", "renew", "rogue", "c", "client", "--out", &path]);
        let shown = ordinate(&["tls", "show", &path, "--output", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
        let of = |name: &str| {
            let found = shown.as_array().into_iter().flatten().find(|it| it["name"] == name);
            found.map(|it| it["of"].as_str().unwrap_or_default().to_owned())
        };
        let expected = ["a", "c", "client", "rogue"].map(of);
        assert_eq!(expected, ["host", "host", "client", "client"].map(|of| Some(of.to_owned())));
    });
}
