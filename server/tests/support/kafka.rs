//! A client of Kafka's protocol as small as it can be.

use kafka::{PutKafka as _, Record, RequestBytes, key, write_batch};
use shared_log::Rows;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client(pub TcpStream);

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(stream)
    }

    /// Sends a request; the answer's body, or none if the connection is closed.
    pub fn call(&mut self, api: i16, version: i16, body: &[u8]) -> Option<RequestBytes> {
        self.0.write_all(&request(api, version, body)).ok()?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).ok()?;
        let mut input = RequestBytes(answer.into());
        assert_eq!(input.i32(), Ok(CORRELATION));
        Some(input)
    }

    /// Whether it is answered at all.
    pub fn speaks(&mut self) -> bool {
        self.call(key::API_VERSIONS, 0, b"").is_some_and(|mut answer| answer.i16() == Ok(0))
    }

    /// What there is of a topic, which is made if it is not there.
    pub fn metadata(&mut self, topic: &str) -> Option<RequestBytes> {
        let mut body = Vec::new();
        body.put_count(1);
        body.put_text(Some(topic));
        self.call(key::METADATA, 1, &body)
    }

    /// Appends entries to a topic: the code, and the offset of the first.
    pub fn produce(&mut self, topic: &str, entries: &[Vec<u8>]) -> Option<(i16, i64)> {
        let batch = batch(entries);
        let mut body = Vec::new();
        body.put_text(None);
        body.put_i16(-1);
        body.put_i32(10_000);
        body.put_count(1);
        body.put_text(Some(topic));
        body.put_count(1);
        body.put_i32(0);
        body.put_count(batch.len());
        body.extend(batch);
        let mut answer = self.call(key::PRODUCE, 3, &body)?;
        skip_topic(&mut answer);
        Some((answer.i16().ok()?, answer.i64().ok()?))
    }

    /// The code, and the records from the first offset on.
    pub fn fetch(&mut self, topic: &str) -> Option<(i16, Vec<u8>)> {
        let mut answer = self.call(key::FETCH, FETCH_VERSION, &fetch_body(topic, 1 << 20))?;
        // How long to wait before the next request.
        answer.i32().ok()?;
        skip_topic(&mut answer);
        let code = answer.i16().ok()?;
        // Two marks, and aborted transactions.
        answer.take(8 + 8 + 4).ok()?;
        Some((code, answer.bytes().ok()?.unwrap_or_default().to_vec()))
    }
}

const CORRELATION: i32 = 77;
const FETCH_VERSION: i16 = 4;

/// Frames a request.
fn request(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(10 + body.len() as i32);
    frame.put_i16(api);
    frame.put_i16(version);
    frame.put_i32(CORRELATION);
    frame.put_text(Some(""));
    frame.extend_from_slice(body);
    frame
}

/// A request for everything in a topic, as far as it fits.
pub fn fetch_request(topic: &str, bytes_max: i32) -> Vec<u8> {
    request(key::FETCH, FETCH_VERSION, &fetch_body(topic, bytes_max))
}

fn fetch_body(topic: &str, bytes_max: i32) -> Vec<u8> {
    let mut body = Vec::new();
    // Replica, wait, least and most bytes; then the first partition of the topic, from its beginning.
    for number in [-1, 100, 1, bytes_max] {
        body.put_i32(number);
    }
    body.push(0);
    body.put_count(1);
    body.put_text(Some(topic));
    body.put_count(1);
    body.put_i32(0);
    body.put_i64(0);
    body.put_i32(bytes_max);
    body
}

/// A batch from offset 0 on.
pub fn batch(entries: &[Vec<u8>]) -> Vec<u8> {
    let (mut rows, mut batch) = (Rows::default(), Vec::new());
    entries.iter().for_each(|entry| rows.push(entry));
    write_batch(0, &rows.into_bytes(), &mut batch);
    batch
}

/// A record without a key.
pub fn record(value: Vec<u8>) -> Vec<u8> {
    let mut entry = Vec::new();
    Record { timestamp: 50, key: None, value: Some(value.into()), headers: Vec::new() }.write(&mut entry);
    entry
}

/// What an answer about one partition of one topic begins with.
fn skip_topic(answer: &mut RequestBytes) {
    let topics = answer.i32();
    assert_eq!(topics, Ok(1));
    answer.text().expect("the topic");
    answer.take(4 + 4).expect("a partition");
}
