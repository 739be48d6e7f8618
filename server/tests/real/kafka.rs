//! Kafka's port: strangers at it, and what native clients and Kafka's make of each other's entries.

use crate::cluster::{Cluster, free_address};
use crate::{alone, http};
use kafka::{Input, Output as _, Record, key, write_batch};
use ordinate_client::{Log, Rows};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A host that serves Kafka's protocol.
async fn start() -> (Cluster, SocketAddr) {
    let mut cluster = Cluster::planned(1, "[log]\nspaces = 2", "");
    let address = free_address();
    cluster.set_environment(0, "ORDINATE_LISTEN__KAFKA", &address.to_string());
    cluster.launch_all();
    cluster.until_ready().await;
    (cluster, address)
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        Self(stream)
    }

    /// Sends a request; the answer's body, or none if the connection is closed.
    fn call(&mut self, api: i16, version: i16, body: &[u8]) -> Option<Input> {
        let mut frame = Vec::new();
        frame.put_i32(10 + body.len() as i32);
        frame.put_i16(api);
        frame.put_i16(version);
        frame.put_i32(77);
        frame.put_text(Some(""));
        frame.extend_from_slice(body);
        self.0.write_all(&frame).ok()?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).ok()?;
        let mut input = Input(answer.into());
        assert_eq!(input.i32(), Ok(77));
        Some(input)
    }

    fn speaks(&mut self) -> bool {
        self.call(key::API_VERSIONS, 0, b"").is_some_and(|mut answer| answer.i16() == Ok(0))
    }

    fn metadata(&mut self, topic: &str) -> Option<Input> {
        let mut body = Vec::new();
        body.put_count(1);
        body.put_text(Some(topic));
        self.call(key::METADATA, 1, &body)
    }
}

fn closes(admin: SocketAddr, reason: &str) -> u64 {
    let metrics = http::ask(admin, "GET", "/metrics", b"").expect("it answers").text();
    let wanted = format!("ordinate_client_closes_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&wanted)?.parse().ok()).unwrap_or(0)
}

// One stranger must not end anybody else's connection, nor take memory by naming a length.
#[test]
fn strangers_at_kafkas_port_lose_their_own_connection_only() {
    alone(async {
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
    alone(async {
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
        let (mut entry, mut rows, mut batch) = (Vec::new(), shared_log::Rows::default(), Vec::new());
        record.write(&mut entry);
        rows.push(&entry);
        write_batch(0, &rows.into_bytes(), &mut batch);
        let mut body = Vec::new();
        body.put_text(None);
        body.put_i16(1);
        body.put_i32(10_000);
        body.put_count(1);
        body.put_text(Some("shared"));
        body.put_count(1);
        body.put_i32(0);
        body.put_count(batch.len());
        body.extend(batch);
        let mut produced = client.call(key::PRODUCE, 3, &body).expect("it answers");
        produced.take(4 + 8 + 4 + 4).expect("a partition");
        assert_eq!((produced.i16(), produced.i64()), (Ok(0), Ok(1)));
        let page = log.read("shared", 0, 10, Duration::ZERO).await.expect("it can be read");
        assert_eq!(page.entries[0].as_ref(), b"from a native client");
        assert_eq!(Record::of(&page.entries[1].clone()), record);
        let mut body = Vec::new();
        for number in [-1, 0, 0, 1 << 20] {
            body.put_i32(number);
        }
        body.push(0);
        body.put_count(1);
        body.put_text(Some("shared"));
        body.put_count(1);
        body.put_i32(0);
        body.put_i64(0);
        body.put_i32(1 << 20);
        let mut fetched = client.call(key::FETCH, 4, &body).expect("it answers");
        fetched.take(4 + 4 + 8 + 4 + 4 + 2 + 8 + 8 + 4).expect("a partition");
        let records = fetched.bytes().expect("records").expect("records");
        let mut expected = Vec::new();
        let mut rows = shared_log::Rows::default();
        rows.push(b"from a native client");
        rows.push(&entry);
        write_batch(0, &rows.into_bytes(), &mut expected);
        assert_eq!(records, expected);
    });
}
