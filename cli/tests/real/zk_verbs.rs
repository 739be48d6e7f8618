//! `ordinate zk` against a real cluster.

use crate::support::cluster::{Cluster, ORDINATE, free_address};
use crate::support::raw::{Pass, Raw};
use crate::support::side_by_side;
use crate::support::zookeeper::create_body;
use crate::zookeeper::cluster as new_cluster;
use coordination::wire::op;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Command, Output};

async fn zk(cluster: &Cluster, servers: SocketAddr, arguments: &[&str]) -> Output {
    let servers = servers.to_string();
    cluster.ordinate(&[&["zk", "--servers", &servers], arguments].concat()).await
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

// A multi that leaves half of its changes, or does not say which step failed; a list of sessions that lacks some, or names the wrong
// owner.
#[test]
fn several_changes_at_once_and_the_sessions() {
    side_by_side(async {
        let (cluster, addresses) = new_cluster("").await;
        let steps =
            ["create /m 'two words'", "create /m/n- x --sequential", "set /m y --if-version 0", "check /m 1"];
        let done = zk(&cluster, addresses[0], &[&["multi"][..], &steps].concat()).await;
        assert_eq!(
            said(&done),
            (
                Some(0),
                "created /m\ncreated /m/n-0000000000\nset /m version 1\nchecked /m\n".to_owned(),
                String::new()
            )
        );
        let refused = zk(&cluster, addresses[1], &["multi", "set /m z", "rm /m", "create /never"]).await;
        let (code, out, err) = said(&refused);
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(
            err.starts_with("error[O4101]: the multi was refused, nothing was changed\n  operation 2, rm /m: the node has children"),
            "{err}"
        );
        let unchanged = zk(&cluster, addresses[2], &["get", "/m"]).await;
        assert_eq!(said(&unchanged).1, "y", "a step of a refused multi was executed");
        let (code, _, err) = said(&zk(&cluster, addresses[0], &["multi", "paint /m red"]).await);
        assert!(code == Some(2) && err.starts_with("error[O4104]"), "{err}");
        let json = zk(
            &cluster,
            addresses[0],
            &["-o", "json", "multi", "rm /m/n-0000000000", "rm /m --if-version 1"],
        )
        .await;
        assert_eq!(said(&json).1, "[{\"deleted\":\"/m/n-0000000000\"},{\"deleted\":\"/m\"}]\n");

        let mut held = Vec::new();
        for (host, address) in addresses.iter().enumerate() {
            let mut raw = Raw::connect(*address, &Pass::default(), 20_000, 0).expect("it serves");
            for node in 0..=host {
                let path = format!("/mine-{host}-{node}");
                assert_eq!(raw.call(op::CREATE, &create_body(&path, b"", 1)).expect("it serves").error, 0);
            }
            held.push(raw);
        }
        // Another host's copy of the sessions may be a moment behind.
        let deadline = std::time::Instant::now() + crate::support::cluster::PATIENCE;
        loop {
            let listed = zk(&cluster, addresses[0], &["-o", "json", "sessions"]).await;
            let lines: Vec<Value> = said(&listed)
                .1
                .lines()
                .map(|line| serde_json::from_str(line).expect("a line is JSON"))
                .collect();
            let right = held.iter().enumerate().all(|(host, raw)| {
                let wanted = format!("{:#x}", raw.pass.session);
                let line = lines.iter().find(|line| line["session"].as_str() == Some(&wanted));
                line.is_some_and(|line| {
                    line["ephemerals"] == host + 1
                        && line["host"].as_str() == Some(&cluster.hosts[host].name)
                        && line["timeout_ms"] == 20_000
                        && line["address"] == "127.0.0.1"
                        && line["expires_in_ms"].as_u64().is_some_and(|left| (1..=22_000).contains(&left))
                })
            });
            if right && lines.len() >= 3 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{lines:?}\n{}", cluster.logs());
        }
        let table = said(&zk(&cluster, addresses[0], &["sessions"]).await).1;
        assert!(table.starts_with("SESSION ") && table.lines().count() >= 4, "{table}");
    });
}

// A certificate that is checked and then forgotten opens nothing, or everything, to its owner.
#[test]
fn certificates_are_identities_of_access_lists() {
    side_by_side(async {
        let settings = "[coordination]\nengine = \"mason\"\nshards = 4";
        let mut cluster = Cluster::planned(3, settings, "");
        let addresses: Vec<SocketAddr> = (0..3).map(|_| free_address()).collect();
        let folder = cluster.folder.join("tls");
        let made = Command::new(ORDINATE)
            .args(["tls", "init", "--out"])
            .arg(&folder)
            .arg("--config")
            .arg(cluster.file_of(0))
            .output();
        assert!(made.is_ok_and(|output| output.status.success()), "ordinate tls init");
        for (host, address) in addresses.iter().enumerate() {
            let name = cluster.hosts[host].name.clone();
            for (key, file) in
                [("CA", "ca.pem"), ("CERT", &format!("{name}.pem")), ("KEY", &format!("{name}.key"))]
            {
                let path = folder.join(file).display().to_string();
                cluster.set_environment(host, &format!("ORDINATE_TLS__{key}"), &path);
            }
            cluster.set_environment(host, "ORDINATE_LISTEN__ZOOKEEPER", &address.to_string());
        }
        cluster.launch_all();
        cluster.until_ready().await;
        let file = |name: &str| folder.join(name).display().to_string();
        let zk = async |who: &str, arguments: &[&str]| {
            let (servers, ca) = (addresses[1].to_string(), file("ca.pem"));
            let (cert, key) = (file(&format!("{who}.pem")), file(&format!("{who}.key")));
            let flags =
                ["zk", "--servers", &servers, "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
            said(&cluster.ordinate(&[&flags[..], arguments].concat()).await)
        };
        let (code, out, err) = zk("client", &["whoami"]).await;
        assert_eq!((code, out.as_str()), (Some(0), "ip:127.0.0.1\nx509:CN=client\n"), "{err}");
        assert_eq!(zk("client", &["create", "/mine", "secret"]).await.0, Some(0));
        assert_eq!(zk("client", &["acl", "/mine", "--set", "x509:CN=client:cdrwa"]).await.0, Some(0));
        assert_eq!(zk("client", &["acl", "/mine"]).await.1, "x509:CN=client:cdrwa\n");
        assert_eq!(zk("client", &["get", "/mine"]).await.1, "secret");
        let (code, out, err) = zk("a", &["get", "/mine"]).await;
        assert!(code == Some(1) && out.is_empty() && err.contains("ZooKeeper error -102"), "{out} {err}");
        let plain = cluster.ordinate(&["zk", "--servers", &addresses[1].to_string(), "get", "/mine"]).await;
        assert!(!plain.status.success(), "plaintext was answered");
        // Who moves away from servers with TLS is known there by a certificate as well.
        let list = ["x509:CN=client:cdrwa", "world:anyone:r"];
        let set = ["acl", "/mine", "--set", list[0], "--set", list[1]];
        assert_eq!(zk("client", &set).await.0, Some(0));
        let (target, servers) = new_cluster("").await;
        let (from, servers) = (addresses[0].to_string(), servers[0].to_string());
        let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
        let migrate = ["zk", "--servers", &servers, "migrate", "--cutover", "--from", &from];
        let certificates = ["--from-tls-ca", &ca, "--from-tls-cert", &cert, "--from-tls-key", &key];
        let halves = said(&target.ordinate(&[&migrate[..], &certificates[..2]].concat()).await);
        assert!(halves.0 == Some(2) && halves.2.contains("--from-tls-cert"), "{halves:?}");
        let moved = said(&target.ordinate(&[&migrate[..], &certificates].concat()).await);
        assert!(moved.0 == Some(0) && moved.1.contains("no difference"), "{moved:?}");
        let acl = said(&target.ordinate(&["zk", "--servers", &servers, "acl", "/mine"]).await);
        assert_eq!(acl.1, format!("{}\n", list.join("\n")));
    });
}
