//! Requests of ZooKeeper's protocol, and sessions that are waited for.

use super::cluster::PATIENCE;
use super::raw::{Pass, Raw};
use coordination::wire::JuteOutput;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// In milliseconds.
const SESSION_TIMEOUT: i32 = 30_000;

/// The body of a create that lets everybody do everything.
pub fn create_body(path: &str, data: &[u8], flags: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_buffer(Some(data));
    body.put_i32(1);
    body.put_i32(31);
    body.put_text("world");
    body.put_text("anyone");
    body.put_i32(flags);
    body
}

/// The body of a read of one node.
pub fn read_body(path: &str, watch: bool) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.push(u8::from(watch));
    body
}

/// The body of a setData whatever the version.
pub fn set_body(path: &str, data: &[u8]) -> Vec<u8> {
    set_version_body(path, data, -1)
}

/// The body of a setData of this version.
pub fn set_version_body(path: &str, data: &[u8], version: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_buffer(Some(data));
    body.put_i32(version);
    body
}

/// A session as soon as there is one.
pub fn session(address: SocketAddr) -> Raw {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Raw::connect(address, &Pass::default(), SESSION_TIMEOUT, 0) {
            Ok(raw) if raw.timeout > 0 => return raw,
            refused => assert!(Instant::now() < deadline, "no session at {address}: {refused:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
