//! A client of Kafka's protocol as small as it can be.

use kafka::{PutKafka as _, Record, RequestBytes, key, write_batch};
use shared_log::Rows;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, in the clear or not.
pub struct Client<S = TcpStream>(pub S);

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(stream)
    }
}

impl<S: Read + Write> Client<S> {
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

    /// Logs in by SCRAM-SHA-256; false if that is refused.
    pub fn log_in(&mut self, user: &str, password: &str) -> bool {
        let mut body = Vec::new();
        body.put_text(Some("SCRAM-SHA-256"));
        let handshake = self.call(key::SASL_HANDSHAKE, 1, &body).and_then(|mut answer| answer.i16().ok());
        assert_eq!(handshake, Some(0));
        let bare = format!("n={user},r=abc");
        let Some(challenge) = self.authenticate(format!("n,,{bare}").as_bytes()) else { return false };
        let challenge = String::from_utf8(challenge).expect("text");
        self.authenticate(&scram_proof(password, &bare, &challenge)).is_some()
    }

    /// Logs in by PLAIN: the code of what the server says to that.
    pub fn log_in_plain(&mut self, user: &str, password: &str) -> i16 {
        let mut body = Vec::new();
        body.put_text(Some("PLAIN"));
        let handshake = self.call(key::SASL_HANDSHAKE, 1, &body).and_then(|mut answer| answer.i16().ok());
        if handshake != Some(0) {
            return handshake.expect("it is answered");
        }
        let mut body = Vec::new();
        body.put_bytes(format!("\0{user}\0{password}").as_bytes());
        let answer = self.call(key::SASL_AUTHENTICATE, 1, &body);
        answer.and_then(|mut answer| answer.i16().ok()).expect("it is answered")
    }

    fn authenticate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        body.put_bytes(message);
        let mut answer = self.call(key::SASL_AUTHENTICATE, 1, &body)?;
        let code = answer.i16().ok()?;
        answer.text_or_null().ok()?;
        (code == 0).then(|| answer.bytes().ok().flatten().unwrap_or_default().to_vec())
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

    /// Commits how far a group that is in no generation has come in a topic: the code.
    pub fn commit(&mut self, group: &str, topic: &str, offset: i64) -> Option<i16> {
        let mut body = Vec::new();
        body.put_text(Some(group));
        body.put_i32(-1);
        body.put_text(Some(""));
        body.put_i64(-1);
        body.put_count(1);
        body.put_text(Some(topic));
        body.put_count(1);
        body.put_i32(0);
        body.put_i64(offset);
        body.put_text(Some(""));
        let mut answer = self.call(key::OFFSET_COMMIT, 2, &body)?;
        skip_topic(&mut answer);
        answer.i16().ok()
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

/// A client's side of RFC 7677.
fn scram_proof(password: &str, bare: &str, challenge: &str) -> Vec<u8> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha2::{Digest as _, Sha256};
    let mac = |key: &[u8], message: &[u8]| -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do");
        mac.update(message);
        mac.finalize().into_bytes().into()
    };
    let field = |name: &str| challenge.split(',').find_map(|it| it.strip_prefix(name)).expect("it is there");
    let without_proof = format!("c={},r={}", BASE64.encode("n,,"), field("r="));
    let salt = BASE64.decode(field("s=")).expect("base64");
    let mut last = mac(password.as_bytes(), &[&salt[..], &[0, 0, 0, 1]].concat());
    let mut salted = last;
    for _ in 1..field("i=").parse::<u32>().expect("a number") {
        last = mac(password.as_bytes(), &last);
        salted.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
    }
    let client_key = mac(&salted, b"Client Key");
    let said = format!("{bare},{challenge},{without_proof}");
    let signature = mac(&Sha256::digest(client_key), said.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes()
}

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
