//! A topic of Kafka's: made, filled, and fetched whole.

use crate::cluster::PATIENCE;
use kafka::{Output as _, Record, key, write_batch};
use ordinate_client::Rows;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A request for everything in the topic.
pub fn fetch_all() -> Vec<u8> {
    let mut body = Vec::new();
    // Replica, wait, least and most bytes; then everything of the topic.
    for number in [-1, 100, 1, 50 << 20] {
        body.put_i32(number);
    }
    body.push(0);
    body.put_count(1);
    body.put_text(Some("topic"));
    body.put_count(1);
    body.put_i32(0);
    body.put_i64(0);
    body.put_i32(50 << 20);
    kafka_request(key::FETCH, 4, &body)
}

/// Makes a topic with 8 MiB in it.
pub fn produce(address: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    let mut rows = Rows::default();
    for _ in 0..8 {
        let mut entry = Vec::new();
        let value = Some(vec![b'k'; 64 << 10].into());
        Record { timestamp: 50, key: None, value, headers: Vec::new() }.write(&mut entry);
        rows.push(&entry);
    }
    let mut batch = Vec::new();
    write_batch(0, &rows.into_bytes(), &mut batch);
    let mut body = Vec::new();
    body.put_text(None);
    body.put_i16(-1);
    body.put_i32(5_000);
    body.put_count(1);
    body.put_text(Some("topic"));
    body.put_count(1);
    body.put_i32(0);
    body.put_count(batch.len());
    body.extend_from_slice(&batch);
    let mut metadata = Vec::new();
    metadata.put_count(1);
    metadata.put_text(Some("topic"));
    let mut produced = 0;
    while produced < 16 {
        assert!(Instant::now() < deadline, "the topic was not made");
        // The topic has to be made first; until then appends are refused.
        let made = call(address, key::METADATA, 1, &metadata);
        let answer = made.and_then(|_| call(address, key::PRODUCE, 3, &body));
        // One topic, its name, one partition, its number, and the code.
        let code = answer.as_ref().and_then(|answer| answer.get(4 + 2 + 5 + 4 + 4..)?.first_chunk().copied());
        match code.map(i16::from_be_bytes) {
            Some(0) => produced += 1,
            Some(_) | None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Frames a request of Kafka's protocol.
fn kafka_request(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(10 + body.len() as i32);
    frame.put_i16(api);
    frame.put_i16(version);
    frame.put_i32(77);
    frame.put_text(Some(""));
    frame.extend_from_slice(body);
    frame
}

fn call(address: SocketAddr, api: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(&kafka_request(api, version, body)).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).ok()?;
    Some(answer.split_off(4))
}
