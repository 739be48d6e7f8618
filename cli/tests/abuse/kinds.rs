//! What troublemakers do, each on a thread of its own until it is asked to stop. None of them counts on being served.

use crate::stage::Target;
use crate::support::http;
use crate::support::kafka::fetch_request;
use crate::support::raw::{Pass, Raw, hello};
use crate::support::zookeeper::{create_body, read_body, session, set_body};
use crate::topic::{BYTES, TOPIC};
use coordination::wire::{JuteOutput, op};
use kernel::{FrameWriter, Rng};
use ordinate_client::protocol;
use parts::{Sequence, SessionId, Slot};
use paxos::multipaxos::batcher::Query;
use paxos::{Commands, Level, Message};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// One kind of load.
pub struct Kind {
    pub name: &'static str,
    pub run: fn(&Target),
}

const fn kind(name: &'static str, run: fn(&Target)) -> Kind {
    Kind { name, run }
}

pub const KINDS: &[Kind] = &[
    kind("zk: 64 mute readers, each 1,000 reads of 1 MB", zk_mute_readers),
    kind("zk: 8 readers of 1 MB, pipelined", zk_fast_readers),
    kind("zk: 16 mute readers of 3 MiB of children", zk_many_children),
    kind("zk: 16 readers of the children", zk_children_read),
    kind("zk: large multis", zk_large_multis),
    kind("zk: 1 MB writes, pipelined", zk_large_writes),
    kind("zk: a watch storm", zk_watch_storm),
    kind("zk: churn of ephemerals", zk_ephemeral_churn),
    kind("zk: abandoned sessions", zk_abandoned_sessions),
    kind("zk: byte by byte", zk_byte_by_byte),
    kind("zk: garbage", zk_garbage),
    kind("zk: frames announced and not sent", zk_giant_frames),
    kind("zk: a flood of pings, never read", zk_ping_flood),
    kind("zk: a hot node", zk_hot_node),
    kind("native: garbage", native_garbage),
    kind("native: mute readers", native_mute_readers),
    kind("native: 8 readers of 200 KiB, pipelined", native_fast_readers),
    kind("all ports: connect floods", connect_floods),
    kind("all ports: 1,200 idle connections", idle_connections),
    kind("http: slow heads", http_slow_heads),
    kind("http: slow bodies, large writes", http_bodies),
    kind("http: mute readers, pipelined", http_mute_readers),
    kind("http: 8 readers of a log", http_fast_readers),
    kind("http: tails that stall", http_stalled_tails),
    kind("kafka: fetches that are not read", kafka_mute_fetches),
    kind("kafka: 8 readers of a topic", kafka_fast_fetches),
    kind("kafka: garbage", kafka_garbage),
    kind("hosts' port: strangers", strangers_at_the_hosts_port),
];

/// Runs `one` on so many threads, again and again.
fn crowd(target: &Target, count: u64, one: impl Fn(&mut Rng) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let one = &one;
            scope.spawn(move || {
                let mut rng = Rng::seeded(number);
                while target.goes_on() {
                    one(&mut rng);
                    target.count();
                }
            });
        }
    });
}

/// A connection whose writes and reads end soon.
fn dial(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
    Some(stream)
}

fn raw(target: &Target) -> Option<Raw> {
    let raw = Raw::connect(target.zookeeper, &Pass::default(), 20_000, 0).ok()?;
    (raw.timeout > 0).then_some(raw)
}

/// Opens sessions that ask for much, and keeps them without reading.
fn mute(target: &Target, sessions: usize, requests: usize, opcode: i32, body: &[u8]) {
    let mut mute = Vec::new();
    for _ in 0..sessions {
        let Some(mut session) = raw(target).filter(|_| target.goes_on()) else { break };
        for _ in 0..requests {
            session.push(opcode, body);
        }
        if session.flush().is_ok() {
            target.count();
            mute.push(session);
        }
    }
    target.wait();
}

fn zk_mute_readers(target: &Target) {
    mute(target, 64, 1_000, op::GET_DATA, &read_body("/large", false));
}

fn zk_many_children(target: &Target) {
    mute(target, 16, 20, op::GET_CHILDREN2, &read_body("/many", false));
}

/// Reads as fast as answers come, with some in flight.
fn read_on(target: &Target, sessions: u64, in_flight: usize, opcode: i32, body: &[u8]) {
    crowd(target, sessions, |_| {
        let Some(mut session) = raw(target) else { return };
        (0..in_flight).for_each(|_| _ = session.push(opcode, body));
        while target.goes_on() && session.flush().is_ok() && session.reply().is_ok() {
            session.push(opcode, body);
            target.count();
        }
    });
}

fn zk_fast_readers(target: &Target) {
    read_on(target, 8, 8, op::GET_DATA, &read_body("/large", false));
}

fn zk_children_read(target: &Target) {
    read_on(target, 16, 2, op::GET_CHILDREN2, &read_body("/many", false));
}

fn zk_large_multis(target: &Target) {
    let mut multi = Vec::new();
    for _ in 0..800 {
        multi.put_i32(op::SET_DATA);
        multi.push(0);
        multi.put_i32(-1);
        multi.extend(set_body("/hot", &[b'm'; 1_000]));
    }
    multi.put_i32(-1);
    multi.push(1);
    multi.put_i32(-1);
    read_on(target, 2, 2, op::MULTI, &multi);
}

fn zk_large_writes(target: &Target) {
    read_on(target, 3, 4, op::SET_DATA, &set_body("/churn", &vec![b'w'; 1_000_000]));
}

fn zk_hot_node(target: &Target) {
    read_on(target, 8, 32, op::SET_DATA, &set_body("/hot", b"hot"));
}

fn zk_watch_storm(target: &Target) {
    crowd(target, 24, |rng| {
        let Some(mut session) = raw(target) else { return };
        while target.goes_on() {
            (0..50).for_each(|_| _ = session.push(op::EXISTS, &read_body("/hot", true)));
            session.push(op::SET_DATA, &set_body("/hot", rng.bits().to_string().as_bytes()));
            if session.flush().is_err() || (0..51).any(|_| session.reply().is_err()) {
                return;
            }
            session.events.clear();
            target.count();
        }
    });
}

fn zk_ephemeral_churn(target: &Target) {
    crowd(target, 6, |rng| {
        let Some(mut session) = raw(target) else { return };
        for number in 0..20 {
            session.push(op::CREATE, &create_body(&format!("/churn/{:x}-{number}", rng.bits()), b"", 1));
        }
        session.push(op::CLOSE, &[]);
        let _ = session.flush();
        while session.reply().is_ok() {}
    });
}

fn zk_abandoned_sessions(target: &Target) {
    crowd(target, 6, |_| drop(raw(target)));
}

fn zk_byte_by_byte(target: &Target) {
    crowd(target, 8, |_| {
        let Some(mut stream) = dial(target.zookeeper) else { return };
        let _ = stream.set_nodelay(true);
        let mut bytes = hello(&Pass::default(), 10_000, 0);
        for xid in 1..20 {
            coordination::wire::frame(&mut bytes, |out| {
                out.put_i32(xid);
                out.put_i32(op::EXISTS);
                out.extend(read_body("/hot", false));
            });
        }
        for byte in bytes {
            if !target.goes_on() || stream.write_all(&[byte]).is_err() {
                return;
            }
        }
        let _ = stream.read(&mut [0; 4_096]);
    });
}

fn garbage(target: &Target, address: SocketAddr, opening: &[u8]) {
    crowd(target, 6, |rng| {
        let Some(mut stream) = dial(address) else { return };
        let bytes: Vec<u8> = (0..rng.between(1, 4_000)).map(|_| rng.bits() as u8).collect();
        let _ = stream.write_all(opening).and_then(|()| stream.write_all(&bytes));
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 4_096]);
    });
}

fn zk_garbage(target: &Target) {
    garbage(target, target.zookeeper, b"");
}

fn native_garbage(target: &Target) {
    garbage(target, target.native, &protocol::preface(protocol::VERSION));
}

fn kafka_garbage(target: &Target) {
    garbage(target, target.kafka, &[0, 0, 1]);
}

fn zk_giant_frames(target: &Target) {
    let mut open = Vec::new();
    for length in [i32::MAX, 1_000_000, 1_048_575, -1, 900_000].into_iter().cycle().take(150) {
        let Some(mut session) = dial(target.zookeeper) else { continue };
        // All but the last byte of what is announced.
        let sent = usize::try_from(length).unwrap_or(0).min(1_000_000).saturating_sub(1);
        if session.write_all(&length.to_be_bytes()).and_then(|()| session.write_all(&vec![0; sent])).is_ok() {
            target.count();
        }
        open.push(session);
        if !target.goes_on() {
            break;
        }
    }
    target.wait();
}

fn zk_ping_flood(target: &Target) {
    let mut ping = Vec::new();
    for _ in 0..2_000 {
        coordination::wire::frame(&mut ping, |out| {
            out.put_i32(-2);
            out.put_i32(op::PING);
        });
    }
    crowd(target, 4, |_| {
        let Some(mut stream) = dial(target.zookeeper) else { return };
        if stream.write_all(&hello(&Pass::default(), 10_000, 0)).is_err() {
            return;
        }
        // A write that finds no room ends in the middle of a ping: then nothing more can be said.
        while target.goes_on() && stream.write_all(&ping).is_ok() {
            target.count();
        }
        target.wait();
    });
}

/// A connection that has said hello.
fn greeted(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = dial(address)?;
    stream.write_all(&protocol::preface(protocol::VERSION)).ok()?;
    Some(stream)
}

/// One read of a large value.
fn native_read(session: u64, sequence: u64) -> Vec<u8> {
    let (mut get, mut row) = (Vec::new(), Vec::new());
    kv::Query::Get { key: b"large" }.encode(&mut get);
    Commands::push(&mut row, Sequence(1 << 63 | sequence), &get);
    let queries = Commands::from_row(row);
    let query = Query { session: SessionId(session), level: Level::Eventual, seen: Slot(0), queries };
    let mut writer = FrameWriter::default();
    writer.message(&Message::from(query));
    writer.bytes().to_vec()
}

fn native_mute_readers(target: &Target) {
    let mut open = Vec::new();
    for number in 0..64 {
        let Some(mut stream) = greeted(target.native).filter(|_| target.goes_on()) else { break };
        for sequence in 0..1_000 {
            if stream.write_all(&native_read(number, sequence)).is_err() {
                break;
            }
        }
        target.count();
        open.push(stream);
    }
    target.wait();
}

/// Eight connections that take all that comes, and ask for more for each so many bytes.
fn take_on(
    target: &Target,
    port: SocketAddr,
    greeting: &[u8],
    each: usize,
    ask: impl Fn(u64) -> Vec<u8> + Sync,
) {
    crowd(target, 8, |_| {
        let Some(mut stream) = dial(port) else { return };
        let first: Vec<u8> = (0..8).flat_map(&ask).collect();
        if stream.write_all(greeting).and_then(|()| stream.write_all(&first)).is_err() {
            return;
        }
        let (mut taken, mut asked, mut buffer) = (0, 8, vec![0; 256 << 10]);
        while target.goes_on() {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(bytes) => taken += bytes,
            }
            while taken / each + 8 > asked {
                if stream.write_all(&ask(asked as u64)).is_err() {
                    return;
                }
                asked += 1;
                target.count();
            }
        }
    });
}

fn native_fast_readers(target: &Target) {
    let greeting = protocol::preface(protocol::VERSION);
    take_on(target, target.native, &greeting, 200 << 10, |sequence| native_read(7, sequence));
}

fn http_fast_readers(target: &Target) {
    let read = b"GET /v1/log/lines?from=0&limit=1000 HTTP/1.1\r\nhost: a\r\n\r\n";
    take_on(target, target.admin, b"", 1_000_000, |_| read.to_vec());
}

fn kafka_fast_fetches(target: &Target) {
    take_on(target, target.kafka, b"", 1 << 20, |_| fetch_request(TOPIC, 1 << 20));
}

fn connect_floods(target: &Target) {
    let ports = [target.zookeeper, target.native, target.admin, target.kafka];
    crowd(target, 8, |rng| drop(rng.pick(&ports).and_then(|&port| dial(port))));
}

fn idle_connections(target: &Target) {
    let mut open = Vec::new();
    for port in [target.zookeeper, target.native, target.kafka].into_iter().cycle().take(1_200) {
        if !target.goes_on() {
            break;
        }
        open.extend(dial(port).inspect(|_| target.count()));
    }
    target.wait();
}

fn http_slow_heads(target: &Target) {
    let mut open: Vec<TcpStream> = (0..600).filter_map(|_| dial(target.admin)).collect();
    for stream in &mut open {
        let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\n");
        target.count();
    }
    while target.goes_on() {
        open.retain_mut(|stream| stream.write_all(b"a: b\r\n").is_ok());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn http_bodies(target: &Target) {
    let mut slow: Vec<TcpStream> = (0..100).filter_map(|_| dial(target.admin)).collect();
    for stream in &mut slow {
        let _ = stream.write_all(b"PUT /v1/kv/slow HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n");
    }
    let body = vec![b'b'; 200_000];
    crowd(target, 8, |rng| {
        let _ = http::ask(target.admin, "PUT", &format!("/v1/kv/body/{}", rng.below(32)), &body);
    });
}

fn http_mute_readers(target: &Target) {
    let mut open = Vec::new();
    for path in ["/v1/kv/large?raw", "/v1/log/lines?from=0&limit=10000"].into_iter().cycle().take(300) {
        let Some(mut stream) = dial(target.admin).filter(|_| target.goes_on()) else { break };
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(100);
        let _ = stream.write_all(request.as_bytes());
        target.count();
        open.push(stream);
    }
    target.wait();
}

fn http_stalled_tails(target: &Target) {
    let mut open = Vec::new();
    for _ in 0..300 {
        let Some(mut stream) = dial(target.admin).filter(|_| target.goes_on()) else { break };
        let _ = stream.write_all(b"GET /v1/log/lines/tail?from=0 HTTP/1.1\r\nhost: a\r\n\r\n");
        target.count();
        open.push(stream);
    }
    target.wait();
}

fn kafka_mute_fetches(target: &Target) {
    let fetch = fetch_request(TOPIC, BYTES).repeat(60);
    let mut open = Vec::new();
    for _ in 0..64 {
        let Some(mut stream) = dial(target.kafka).filter(|_| target.goes_on()) else { break };
        let _ = stream.write_all(&fetch);
        target.count();
        open.push(stream);
    }
    target.wait();
}

fn strangers_at_the_hosts_port(target: &Target) {
    let mut open = Vec::new();
    crowd(target, 2, |rng| {
        let Some(mut stream) = dial(target.peer) else { return };
        let bytes: Vec<u8> = (0..rng.between(1, 4_000)).map(|_| rng.bits() as u8).collect();
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 64]);
    });
    open.extend((0..100).filter_map(|_| dial(target.peer)));
    // The host that is served meanwhile is one of the cluster.
    drop(session(target.zookeeper));
}
