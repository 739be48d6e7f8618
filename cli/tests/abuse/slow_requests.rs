//! Requests to the admin port that never come to their end.

use crate::support::alone;
use crate::support::cluster::Cluster;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Sends the beginning of a request, and says what came and how long the host waited for the rest.
fn wait_for_the_end(address: SocketAddr, beginning: &str) -> (String, Duration) {
    let mut stream = TcpStream::connect(address).expect("the port listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.write_all(beginning.as_bytes()).expect("written");
    let (begun, mut answer) = (Instant::now(), Vec::new());
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut answer);
    (String::from_utf8_lossy(&answer).into_owned(), begun.elapsed())
}

// A head, a body or a connection that never ends takes a descriptor and memory for ever.
#[test]
fn slow_requests_to_the_admin_port_are_ended() {
    alone(async {
        let cluster = Cluster::start(1, "", "").await;
        let admin = cluster.hosts[0].admin;
        let slow = [
            ("GET /v1/status HTTP/1.1\r\nhost: a\r\n", 10, ""),
            ("PUT /v1/kv/slow HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nhalf", 20, "HTTP/1.1 408"),
            (
                "PUT /v1/kv/slow HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                20,
                "HTTP/1.1 408",
            ),
            ("PUT /v1/kv/slow HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000\r\n\r\n", 0, "HTTP/1.1 413"),
        ];
        let waits = slow
            .map(|(beginning, ..)| tokio::task::spawn_blocking(move || wait_for_the_end(admin, beginning)));
        for (wait, (beginning, seconds, wanted)) in waits.into_iter().zip(slow) {
            let (answer, waited) = wait.await.expect("it does not panic");
            assert!(answer.starts_with(wanted), "{beginning}: {answer}");
            let least = Duration::from_secs(seconds).saturating_sub(Duration::from_millis(500));
            assert!(waited >= least && waited < least + Duration::from_secs(15), "{beginning}: {waited:?}");
        }
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        for reason in ["a request's head took too long", "a request's body took too long"] {
            let line = format!("ordinate_admin_closes_total{{reason=\"{reason}\"}}");
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
    });
}
