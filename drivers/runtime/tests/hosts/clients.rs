//! Clients of a front end, over real sockets.

use super::support::*;
use bytes::BytesMut;
use kernel::NodeId;
use runtime::{ClientLimits, CloseReason, FrontEnd, FrontEndConfig, Host, HostConfig, Session, SessionCx};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One answer that is larger than any bound on what waits for a client.
const HUGE_BYTES: usize = 20 << 20;

/// A protocol for tests: `!` says hello, `?` asks the oracle (the answer is `.`), `#` asks for 64 KiB of output, `*` for 20 MiB; a `(`
/// begins a request that never ends.
struct Marks;

#[derive(Default)]
struct MarksSession {
    /// As many bytes of the input belong to requests that never end.
    unfinished: usize,
}

impl FrontEnd<Talk> for Marks {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Talk>> {
        Box::new(MarksSession::default())
    }
}

impl Session<Talk> for MarksSession {
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        let fresh = input.split_off(self.unfinished);
        for byte in &fresh[..] {
            match byte {
                b'!' => cx.established(),
                b'?' => cx.send(oracle_of("a"), Ask { number: 0, payload: kernel::Bytes::new() }),
                b'#' => cx.output().extend_from_slice(&[b'#'; 64 << 10]),
                b'*' => cx.output().extend_from_slice(&vec![b'*'; HUGE_BYTES]),
                b'(' => self.unfinished += 1,
                b'q' => {
                    cx.output().extend_from_slice(b"bye");
                    cx.finish(CloseReason("asked to"));
                }
                _ => return Err(CloseReason("unknown mark")),
            }
        }
        input.resize(self.unfinished, b'(');
        Ok(())
    }

    fn on_message(
        &mut self,
        _from: NodeId,
        message: Message,
        cx: &mut SessionCx<'_, Talk>,
    ) -> Result<(), CloseReason> {
        match message {
            Message::Asker(AskerIn::Reported(_)) => cx.output().push(b'.'),
            Message::Oracle(_) => return Err(CloseReason("no oracle here")),
        }
        Ok(())
    }
}

fn host_with(limits: ClientLimits) -> (Host<Member>, SocketAddr) {
    let listen = listener();
    let address = listen.local_addr().expect("it is bound");
    let front_end = FrontEndConfig { limits, ..FrontEndConfig::new(listen, || Box::new(Marks)) };
    let host = Host::start(HostConfig::new("test", "a"), both, vec![front_end]).expect("the host starts");
    (host, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the port listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    stream
}

fn read_exactly(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).expect("the host answers");
    read
}

/// True if the host has closed it, whatever it sent before.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn closes(host: &Host<Member>, reason: &str) -> u64 {
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    metrics.closes.get(reason).copied().unwrap_or(0)
}

// A client's request must reach a node, and the node's answer this client and no other.
#[test]
fn clients_ask_nodes_and_are_answered() {
    let (host, address) = host_with(ClientLimits::default());
    let mut clients: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.write_all(b"!").expect("written");
        client.write_all(&b"?".repeat(index + 1)).expect("written");
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(read_exactly(client, index + 1), b".".repeat(index + 1));
    }
    clients[0].write_all(b"q").expect("written");
    let mut rest = String::new();
    clients[0].read_to_string(&mut rest).expect("closed after the last word");
    assert_eq!(rest, "bye");
    clients[1].write_all(b"x").expect("written");
    assert!(is_closed(&mut clients[1]));
    assert_eq!((closes(&host, "asked to"), closes(&host, "unknown mark")), (1, 1));
    drop(clients);
    eventually("all clients are gone", || {
        host.handle().metrics().wait(LIMIT).expect("the host runs").clients == 0
    });
}

// A request and the end of the connection that come together are announced once: both must be seen.
#[test]
fn a_request_right_before_the_end_is_served() {
    let (host, address) = host_with(ClientLimits::default());
    let mut client = connect(address);
    client.write_all(b"!?").expect("written");
    assert_eq!(read_exactly(&mut client, 1), b".");
    host.handle().pause();
    host.handle().metrics().wait(LIMIT).expect("the host obeys");
    client.write_all(b"#?").expect("written");
    client.shutdown(std::net::Shutdown::Write).expect("half closed");
    host.handle().resume();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("closed by the host");
    assert!(rest.len() >= 64 << 10, "what is answered at once is sent before the end");
    eventually("the client is gone", || {
        host.handle().metrics().wait(LIMIT).expect("the host runs").clients == 0
    });
    let journaled = host.handle().inspect(|view| match view.node(ORACLE) {
        Some(Member::Oracle(oracle)) => oracle.journaled,
        Some(Member::Asker(_)) | None => 0,
    });
    assert_eq!(journaled.wait(LIMIT), Ok(2), "the last request has reached its node");
}

// A flood of connections, a half-open one, or an endless request must cost a bounded amount and spare the others.
#[test]
fn limits_hold() {
    let limits = ClientLimits {
        connections_per_address_max: 3,
        input_bytes_max: 1000,
        // Long enough for the two that do say who they are, on any machine.
        handshake_within: Duration::from_secs(3),
        ..ClientLimits::default()
    };
    let (host, address) = host_with(limits);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
    for client in &mut clients[..2] {
        client.write_all(b"!?").expect("written");
        assert_eq!(read_exactly(client, 1), b".");
    }
    let mut fourth = connect(address);
    assert!(is_closed(&mut fourth), "the fourth connection stays out");
    clients[1].write_all(&[b'('; 2000]).expect("written");
    assert!(is_closed(&mut clients[1]), "a request beyond the bound");
    assert!(is_closed(&mut clients[2]), "said nothing");
    clients[0].write_all(b"?").expect("written");
    assert_eq!(read_exactly(&mut clients[0], 1), b".", "the first is not disturbed");
    assert_eq!(closes(&host, "too many connections from one address"), 1);
    assert_eq!(closes(&host, "request too large"), 1);
    assert_eq!(closes(&host, "said too late who it is"), 1);
}

/// Six clients that ask for 16 MiB each, beyond what the sockets between us can hold, and never read.
fn deaf_clients(address: SocketAddr) -> Vec<TcpStream> {
    let mut deaf: Vec<TcpStream> = (0..6).map(|_| connect(address)).collect();
    for client in &mut deaf {
        client.write_all(&[&b"!"[..], &[b'#'; 256]].concat()).expect("written");
    }
    deaf
}

// What waits for clients that never read must stay within the port's bound, and some client has to go for it.
#[test]
fn clients_that_do_not_read_are_disconnected() {
    let total = 24 << 20;
    let limits =
        ClientLimits { output_bytes_max: 8 << 20, output_bytes_max_total: total, ..ClientLimits::default() };
    let (host, address) = host_with(limits);
    let mut reader = connect(address);
    reader.write_all(b"!").expect("written");
    let _deaf = deaf_clients(address);
    eventually("somebody is disconnected", || {
        let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
        assert!(metrics.buffered_bytes <= total as u64, "{} bytes", metrics.buffered_bytes);
        metrics.closes.contains_key("does not read what it is sent")
    });
    reader.write_all(b"?").expect("written");
    assert_eq!(read_exactly(&mut reader, 1), b".", "others are not affected");
}

// A client that takes nothing keeps its memory for ever, however little it is; one that takes something now and then is slow,
// and keeps its connection.
#[test]
fn clients_that_take_nothing_for_long_are_closed() {
    let limits = ClientLimits {
        output_bytes_max_total: 1 << 30,
        unread_for_max: Duration::from_secs(2),
        ..ClientLimits::default()
    };
    let (host, address) = host_with(limits);
    let mut slow = connect(address);
    slow.write_all(b"!*").expect("written");
    let _deaf = deaf_clients(address);
    let mut left = HUGE_BYTES;
    eventually("those that take nothing are closed", || {
        // Some at a time, but more than the sockets hold within the time given.
        let piece = left.min(64 << 10);
        left -= read_exactly(&mut slow, piece).len();
        closes(&host, "has read nothing for long while answers wait") == 6
    });
    read_exactly(&mut slow, left);
    slow.write_all(b"?").expect("written");
    assert_eq!(read_exactly(&mut slow, 1), b".", "who reads keeps its connection");
    let left = host.handle().metrics().wait(LIMIT).expect("the host runs").buffered_bytes;
    assert_eq!(left, 0, "their memory is given back");
}

// Requests that never end must not take the host's memory together; a client that ends its own is served.
#[test]
fn unfinished_requests_are_bounded_together() {
    let (host, address) = host_with(ClientLimits::default());
    let mut slow: Vec<TcpStream> = (0..30).map(|_| connect(address)).collect();
    for client in &mut slow {
        client.write_all(b"!").expect("written");
        // Nearly what one request may have.
        let _ = client.write_all(&vec![b'('; 3 << 20]);
    }
    eventually("the oldest are closed", || closes(&host, "its request is not whole for long") > 10);
    let mut polite = connect(address);
    polite.write_all(b"!?").expect("written");
    assert_eq!(read_exactly(&mut polite, 1), b".");
}

// A thousand idle connections must cost next to nothing, be served when they speak, and leave nothing behind.
#[test]
fn a_thousand_connections_are_served() {
    let limits = ClientLimits { connections_per_address_max: 1000, ..ClientLimits::default() };
    let (host, address) = host_with(limits);
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| connect(address)).collect();
    for client in &mut clients {
        client.write_all(b"!?").expect("written");
    }
    for client in &mut clients {
        assert_eq!(read_exactly(client, 1), b".");
    }
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    assert_eq!((metrics.clients, metrics.buffered_bytes), (1000, 0));
    drop(clients);
    eventually("all clients are gone", || {
        host.handle().metrics().wait(LIMIT).expect("the host runs").clients == 0
    });
}

// A client that reads gets an answer of any size: disconnected for it, it asks again and again, and never has it.
#[test]
fn one_answer_beyond_the_bound_reaches_a_client_that_reads() {
    let limits = ClientLimits { output_bytes_max: 1 << 20, ..ClientLimits::default() };
    let (host, address) = host_with(limits);
    let mut client = connect(address);
    client.write_all(b"!*").expect("written");
    eventually("the answer waits", || {
        host.handle().metrics().wait(LIMIT).expect("the host runs").buffered_bytes > 4 << 20
    });
    // What comes meanwhile is small, and no reason to disconnect it either.
    client.write_all(b"??").expect("written");
    let read = read_exactly(&mut client, HUGE_BYTES + 2);
    assert!(read[..HUGE_BYTES].iter().all(|byte| *byte == b'*') && read.ends_with(b".."));
    assert_eq!(closes(&host, "does not read what it is sent"), 0);
    let left = host.handle().metrics().wait(LIMIT).expect("the host runs").buffered_bytes;
    assert_eq!(left, 0, "its memory is given back");
}

// One client's flood of requests must not keep the answers of another waiting.
#[test]
fn a_flood_of_requests_leaves_time_to_others() {
    let (_host, address) = host_with(ClientLimits::default());
    let mut polite = connect(address);
    polite.write_all(b"!?").expect("written");
    assert_eq!(read_exactly(&mut polite, 1), b".");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods: Vec<_> = (0..8)
        .map(|_| {
            let (stop, mut writer) = (std::sync::Arc::clone(&stop), connect(address));
            let mut reader = writer.try_clone().expect("a socket");
            std::thread::spawn(move || {
                let mut read = vec![0; 1 << 20];
                while matches!(reader.read(&mut read), Ok(bytes) if bytes > 0) {}
            });
            std::thread::spawn(move || {
                let _ = writer.write_all(b"!");
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = writer.write_all(&[b'?'; 64 << 10]);
                }
                let _ = writer.shutdown(std::net::Shutdown::Both);
            })
        })
        .collect();
    let mut waits: Vec<Duration> = (0..60)
        .map(|_| {
            let since = std::time::Instant::now();
            polite.write_all(b"?").expect("written");
            read_exactly(&mut polite, 1);
            since.elapsed()
        })
        .collect();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("it ends"));
    waits.sort();
    println!("a client beside a flood waited {:?} at the median, {:?} at most", waits[30], waits[59]);
    // Without a bound on what is read at a time it waits for a minute; with it, as long as it takes on a busy machine.
    assert!(waits[30] < Duration::from_secs(1), "{waits:?}");
}
