//! Kafka's port: strangers at it, and what native clients and Kafka's make of each other's entries.

use crate::support::cluster::Cluster;
use crate::support::kafka::{Client, batch};
use crate::support::{http, side_by_side};
use kafka::Record;
use ordinate_client::{Log, Rows};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// A host that serves Kafka's protocol.
async fn start() -> (Cluster, SocketAddr) {
    let (cluster, addresses) = Cluster::serving("KAFKA", 1, "[log]\nspaces = 2").await;
    (cluster, addresses[0])
}

fn closes(admin: SocketAddr, reason: &str) -> u64 {
    let metrics = http::ask(admin, "GET", "/metrics", b"").expect("it answers").text();
    let wanted = format!("ordinate_client_closes_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&wanted)?.parse().ok()).unwrap_or(0)
}

// One stranger must not end anybody else's connection, nor take memory by naming a length.
#[test]
fn strangers_at_kafkas_port_lose_their_own_connection_only() {
    side_by_side(async {
        let (cluster, address) = start().await;
        let mut bystander = Client::connect(address);
        assert!(bystander.speaks());
        let strange: [(&[u8], &str); 4] = [
            (b"GET / HTTP/1.1\r\n\r\n", "kafka request larger than allowed"),
            (&[255; 64], "kafka request larger than allowed"),
            (&[0, 0, 0, 8, 0, 99, 0, 0, 0, 0, 0, 0], "malformed kafka request, or one that is not served"),
            (&[0, 0, 0, 2, 0, 18], "malformed kafka request, or one that is not served"),
        ];
        let admin = cluster.hosts[0].admin;
        for (bytes, reason) in strange {
            let before = closes(admin, reason);
            let mut client = Client::connect(address);
            client.0.write_all(bytes).expect("it listens");
            let mut rest = Vec::new();
            // A reset is an end as well.
            let _ = client.0.read_to_end(&mut rest);
            assert_eq!(rest, b"");
            assert_eq!(closes(admin, reason), before + 1, "{bytes:?}");
        }
        let mut torn = Client::connect(address);
        assert!(torn.speaks());
        torn.0.write_all(&[0, 0, 1, 0, 0]).expect("it listens");
        drop(torn);
        assert!(bystander.speaks());
    });
}

// Two kinds of clients that cannot read each other's entries share nothing but a name.
#[test]
fn native_and_kafka_clients_read_each_others_entries() {
    side_by_side(async {
        let (cluster, address) = start().await;
        let mut client = Client::connect(address);
        let mut metadata = client.metadata("shared").expect("it answers");
        assert_eq!((metadata.i32(), metadata.i32().is_ok()), (Ok(1), true));
        assert_eq!(
            (metadata.text(), metadata.i32()),
            (Ok("127.0.0.1".to_owned()), Ok(address.port().into()))
        );
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(30));
        let mut rows = Rows::default();
        rows.push(b"from a native client");
        log.append_to_all(vec![("shared".to_owned(), rows)]).await.expect("Metadata has made the log");
        let record = Record {
            timestamp: 5,
            key: Some("k".into()),
            value: Some("from Kafka".into()),
            headers: Vec::new(),
        };
        let mut entry = Vec::new();
        record.write(&mut entry);
        assert_eq!(client.produce("shared", std::slice::from_ref(&entry)), Some((0, 1)));
        let page = log.read("shared", 0, 10, Duration::ZERO).await.expect("it can be read");
        assert_eq!(page.entries[0].as_ref(), b"from a native client");
        assert_eq!(Record::of(&page.entries[1].clone()), record);
        let expected = batch(&[b"from a native client".to_vec(), entry]);
        assert_eq!(client.fetch("shared"), Some((0, expected)));
    });
}
