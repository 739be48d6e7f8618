//! A topic of Kafka's that is worth fetching.

use crate::support::cluster::PATIENCE;
use crate::support::kafka::{Client, record};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub const TOPIC: &str = "topic";
/// More than there is in it.
pub const BYTES: i32 = 50 << 20;

/// Makes a topic with 8 MiB in it.
pub fn produce(address: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    let entries = vec![record(vec![b'k'; 64 << 10]); 8];
    let mut produced = 0;
    while produced < 16 {
        assert!(Instant::now() < deadline, "the topic was not made");
        // The topic has to be made first; until then appends are refused.
        let mut client = Client::connect(address);
        let answer = client.metadata(TOPIC).and_then(|_| client.produce(TOPIC, &entries));
        if answer.is_some_and(|(code, _)| code == 0) {
            produced += 1;
        } else {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
