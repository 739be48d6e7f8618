//! ZooKeeper's protocol at two ports of a host: with TLS, and without.

use crate::support::cluster::Cluster;
use crate::support::raw::{Pass, Raw, hello, word};
use crate::support::zookeeper::{create_body, read_body, session, set_version_body};
use crate::support::{side_by_side, tls};
use coordination::wire::op;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[coordination]\nengine = \"mason\"\nshards = 2\n[limits]\nconnections_max = 500";
/// A client that speaks the wrong protocol is refused at once, and not when nobody has said anything for long (10 s).
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// A host that serves at both ports: the plain one, the other one, and the folder of certificates.
async fn start() -> (Cluster, SocketAddr, SocketAddr, PathBuf) {
    let mut cluster = Cluster::planned(1, SETTINGS, "");
    let folder = cluster.use_tls(&[]);
    let (plain, secure) = (cluster.listen(0, "ZOOKEEPER"), cluster.listen(0, "ZOOKEEPER_SECURE"));
    cluster.launch_all();
    cluster.until_ready().await;
    (cluster, plain, secure, folder)
}

/// One who goes on whatever others do: each of its writes is of the version that it expects.
struct Bystander {
    raw: Raw,
    path: &'static str,
    written: i32,
}

impl Bystander {
    fn new(mut raw: Raw, path: &'static str) -> Self {
        let created = raw.call(op::CREATE, &create_body(path, b"", 1)).expect("it is served");
        assert_eq!(created.error, 0, "{path}");
        Self { raw, path, written: 0 }
    }

    fn goes_on(&mut self) {
        let body = set_version_body(self.path, b"x", self.written);
        let reply = self.raw.call(op::SET_DATA, &body).expect("its connection is open");
        assert_eq!(reply.error, 0, "{} is there, in the version that was written", self.path);
        self.written += 1;
    }
}

/// Takes a session over, as its client does with a new connection.
fn moved(connected: io::Result<Raw>, before: &mut Raw, path: &str) -> Raw {
    let mut raw = connected.expect("the port serves");
    assert!(raw.timeout > 0 && raw.pass.session == before.pass.session, "the session is the same");
    assert!(before.is_closed(), "its connection before is closed");
    let there = raw.call(op::EXISTS, &read_body(path, false)).expect("it is served");
    assert_eq!(there.error, 0, "what the session owns lasts as long as it does");
    raw
}

/// What comes before the end, which must come.
fn said_before_the_end(mut stream: impl Read + Write, bytes: &[u8]) -> Vec<u8> {
    let begun = Instant::now();
    // A client that is refused while it shakes hands cannot write.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert!(!matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }
    assert!(begun.elapsed() < REFUSED_WITHIN, "refused after {:?}", begun.elapsed());
    said
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(2 * REFUSED_WITHIN)).expect("a socket");
    stream
}

fn is_answered_in_the_clear(secure: SocketAddr, bytes: &[u8]) -> bool {
    let stream = patient(TcpStream::connect(secure).expect("it listens"));
    // An alert of TLS is a record of kind 21.
    let said = said_before_the_end(stream, bytes);
    !said.is_empty() && said[0] != 21
}

fn is_answered_under_tls(plain: SocketAddr, folder: &Path) -> bool {
    let stream = tls::connect(plain, folder).expect("it listens");
    stream.sock.set_read_timeout(Some(2 * REFUSED_WITHIN)).expect("a socket");
    !said_before_the_end(stream, &hello(&Pass::default(), 10_000, 0)).is_empty()
}

// Clients cannot move one at a time from one port to the other: sessions that end on the way, or a port that serves anybody.
#[test]
fn sessions_move_between_the_plain_and_the_secure_port() {
    side_by_side(async {
        let (cluster, plain, secure, folder) = start().await;
        let connect_tls = |pass: &Pass| Raw::connect_tls(secure, &folder, pass);
        let mut in_the_clear = Bystander::new(session(plain), "/plain");
        let mut under_tls = Bystander::new(connect_tls(&Pass::default()).expect("it serves"), "/secure");
        let mut moves = session(plain);
        let made = moves.call(op::CREATE, &create_body("/moves", b"", 1)).expect("it is served");
        assert_eq!(made.error, 0);
        for _ in 0..3 {
            moves = moved(connect_tls(&moves.pass.clone()), &mut moves, "/moves");
            moves = moved(Raw::connect(plain, &moves.pass.clone(), 30_000, 0), &mut moves, "/moves");
            in_the_clear.goes_on();
            under_tls.goes_on();
        }
        // Each sees what the other has written.
        for (raw, path) in [(&mut in_the_clear.raw, "/secure"), (&mut under_tls.raw, "/plain")] {
            let there = raw.call(op::EXISTS, &read_body(path, false)).expect("it is served");
            assert_eq!(there.error, 0, "{path}");
        }
        let closed = moves.call(op::CLOSE, &[]).expect("it is served");
        assert_eq!(closed.error, 0);
        let gone = under_tls.raw.call(op::EXISTS, &read_body("/moves", false)).expect("it is served");
        assert_eq!(gone.error, -101, "what the session owned is gone with it");
        // The limit is for both ports together.
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        assert!(
            metrics.lines().any(|line| line == "ordinate_clients_max{protocol=\"zookeeper\"} 500"),
            "{metrics}"
        );
    });
}

// The wrong protocol at a port that waits for more, or an answer to somebody who has shown no certificate.
#[test]
fn the_wrong_protocol_ends_at_once_and_disturbs_nobody() {
    side_by_side(async {
        let (mut cluster, plain, secure, folder) = start().await;
        let mut in_the_clear = Bystander::new(session(plain), "/plain");
        let tls_session = Raw::connect_tls(secure, &folder, &Pass::default()).expect("it serves");
        let mut under_tls = Bystander::new(tls_session, "/secure");
        // One who knows our authority, and is not known to it.
        let foreign = cluster.make_certificates("foreign", &[]);
        std::fs::copy(folder.join("ca.pem"), foreign.join("ca.pem")).expect("the folder is writable");
        for _ in 0..20 {
            let hello = hello(&Pass::default(), 10_000, 0);
            assert!(!is_answered_in_the_clear(secure, &hello), "a session in the clear at the secure port");
            assert!(!is_answered_in_the_clear(secure, b"GET / HTTP/1.1\r\n\r\n"), "HTTP at the secure port");
            assert!(!is_answered_under_tls(plain, &folder), "TLS at the plain port");
            assert!(!is_answered_under_tls(secure, &foreign), "somebody whom nobody has certified");
            in_the_clear.goes_on();
            under_tls.goes_on();
        }
        assert_eq!(word(plain, "ruok").expect("it serves"), "imok");
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        for (reason, count) in [
            ("it speaks without TLS, at a port with TLS", 40),
            ("its certificate is of another authority", 20),
        ] {
            let refused = format!("ordinate_client_closes_total{{reason=\"{reason}\"}} ");
            let refused = metrics.lines().find_map(|line| line.strip_prefix(&refused)?.parse::<u64>().ok());
            assert!(refused.is_some_and(|found| found >= count), "{reason}\n{metrics}");
            assert!(cluster.log(0).contains(reason), "{}", cluster.logs());
        }
        assert!(cluster.is_alive(0) && !cluster.log(0).contains("panicked"), "{}", cluster.logs());
    });
}
