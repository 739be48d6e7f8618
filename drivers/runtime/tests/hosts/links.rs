//! Links between hosts that go wrong.

use super::support::*;
use kernel::{FrameWriter, NodeId};
use runtime::{Admission, Direction, Host, HostConfig, HostEvent, LinkFault, PeerConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

fn events_of(config: &mut HostConfig) -> Receiver<HostEvent> {
    let (outbox, events) = channel();
    // The receiver may be gone when the host stops.
    config.events = Some(Box::new(move |event| _ = outbox.send(event.clone())));
    events
}

/// The first event that `pick` takes; the test fails if none comes.
fn wait_for<T>(events: &Receiver<HostEvent>, mut pick: impl FnMut(&HostEvent) -> Option<T>) -> T {
    loop {
        let event = events.recv_timeout(LIMIT).expect("the event comes");
        if let Some(found) = pick(&event) {
            return found;
        }
    }
}

fn down_reason(event: &HostEvent) -> Option<String> {
    match event {
        HostEvent::LinkDown { reason, .. } => Some(reason.clone()),
        HostEvent::LinkUp { .. }
        | HostEvent::PeerRefused { .. }
        | HostEvent::PeerEnded { .. }
        | HostEvent::ClientClosed { .. }
        | HostEvent::DiskFull
        | HostEvent::DiskSlow { .. }
        | HostEvent::Short { .. }
        | HostEvent::NoLongerShort
        | HostEvent::DiskBack
        | HostEvent::ArchiveFails { .. }
        | HostEvent::ArchiveBack
        | HostEvent::ClockUnusable { .. }
        | HostEvent::ClockBack
        | HostEvent::Stopping { .. }
        | HostEvent::Note { .. } => None,
    }
}

fn pair() -> (HostConfig, HostConfig) {
    let mut configs = cluster(&["a", "b"]).into_iter();
    (configs.next().expect("a"), configs.next().expect("b"))
}

// A heartbeat that is lost in a list of numbers, or heard as another one, costs a leader its place; so does one after a restart whose
// number only the connection before knew.
#[test]
fn what_is_said_again_is_heard_again() {
    for (version, repeats) in [(4, true), (3, false)] {
        let (mut a, mut b) = pair();
        (a.message_version, b.message_version) = (4, version);
        let b_listen = b.listen.as_ref().expect("b listens").try_clone().expect("a listener can be cloned");
        let peers = b.peers.clone();
        let a = Host::start(a, both, vec![]).expect("a starts");
        let mut b = Host::start(b, both, vec![]).expect("b starts");
        let greetings = || Question {
            window: 1,
            payload: kernel::Bytes::from_static(GREETING),
            durable: false,
            ..question("b", 12)
        };
        for _ in 0..2 {
            assert_eq!(a.handle().request(ASKER, greetings()).wait(LIMIT), Ok(12));
            let said = b.handle().metrics().wait(LIMIT).expect("b runs");
            // The first may leave before the greeting is over, and before anybody knows what the other end understands.
            assert_eq!(said.repeats_out >= 6, repeats, "{said:?}");
            b.kill().expect("killed in peace");
            let listen = b_listen.try_clone().expect("a listener can be cloned");
            let config = HostConfig {
                listen: Some(listen),
                peers: peers.clone(),
                message_version: version,
                ..HostConfig::new("test", "b")
            };
            b = Host::start(config, both, vec![]).expect("b starts again");
        }
    }
}

fn asking(payload: &'static [u8], count: u64) -> Question {
    Question {
        window: 1,
        payload: kernel::Bytes::from_static(payload),
        durable: false,
        ..question("b", count)
    }
}

/// How old the beacon of b's oracle is at a, in milliseconds.
fn age(a: &Host<Member>) -> u64 {
    a.handle().request(ASKER, asking(AGE, 1)).wait(LIMIT).expect("a runs")
}

/// A look at the right moment is younger than a beacon's period; machines that run tests are slow.
fn is_lit(a: &Host<Member>) -> bool {
    age(a) <= 50
}

// A beacon that is heard though its host is gone hides the failure; one that is lost with a connection, or by a fault that is over, looks like
// one; one that its receiver is called for again and again spares nothing.
#[test]
fn a_beacon_is_heard_while_its_host_is() {
    let (mut a, mut b) = pair();
    (a.message_version, b.message_version) = (5, 5);
    let b_listen = b.listen.as_ref().expect("b listens").try_clone().expect("a listener can be cloned");
    let (peers, b_host) = (b.peers.clone(), kernel::HostId::named("b"));
    let a_address = peers[0].address.clone();
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(age(&a), NEVER);
    assert_eq!(a.handle().request(ASKER, asking(WATCH, 1)).wait(LIMIT), Ok(1));
    eventually("it is lit", || is_lit(&a));
    let heard = || a.handle().metrics().wait(LIMIT).expect("a runs");
    let before = heard();
    std::thread::sleep(Duration::from_millis(300));
    eventually("it stays lit", || is_lit(&a));
    let after = heard();
    let messages = after.messages_in + after.repeats_in - before.messages_in - before.repeats_in;
    assert!(messages >= 2, "{messages} messages say that it is lit");
    assert_eq!(after.repeats_in, 0, "nobody is called again: {after:?}");
    for direction in [Direction::From, Direction::To] {
        let (host, other) = match direction {
            Direction::From => (&a, b_host),
            Direction::To => (&b, kernel::HostId::named("a")),
        };
        host.handle().fault(other, LinkFault::Sever(direction));
        eventually("it is not heard", || age(&a) >= 200);
        host.handle().fault(other, LinkFault::Heal(direction));
        eventually("it is heard again", || is_lit(&a));
    }
    a.handle().fault(b_host, LinkFault::Sever(Direction::From));
    eventually("it is not heard", || age(&a) >= 200);
    b.handle().inject(NodeId::new(kernel::HostId::named("a"), ASKER), oracle_of("b"), Dark {});
    assert!(b.handle().metrics().wait(LIMIT).is_ok(), "it is stopped by now");
    a.handle().fault(b_host, LinkFault::Heal(Direction::From));
    eventually("it is out", || age(&a) == NEVER);

    assert_eq!(a.handle().request(ASKER, asking(WATCH, 1)).wait(LIMIT), Ok(1));
    b.kill().expect("killed in peace");
    eventually("the host is gone", || age(&a) >= 200);
    let config =
        HostConfig { listen: Some(b_listen), peers, message_version: 5, ..HostConfig::new("test", "b") };
    let b = Host::start(config, both, vec![]).expect("b starts again");
    assert_eq!(a.handle().request(ASKER, asking(GREETING, 1)).wait(LIMIT), Ok(1), "it is heard");
    assert!(age(&a) >= 200, "but it has lit nothing");
    assert_eq!(a.handle().request(ASKER, asking(WATCH, 1)).wait(LIMIT), Ok(1));
    eventually("it is lit by the new run", || is_lit(&a));
    let address = a_address.replace("127.0.0.1", "localhost");
    b.handle().set_peers(vec![PeerConfig { name: "a".to_owned(), address }]);
    std::thread::sleep(Duration::from_millis(300));
    eventually("it is seen at another address", || is_lit(&a));
    assert_eq!(a.handle().request(ASKER, asking(DARK, 1)).wait(LIMIT), Ok(0));
    eventually("it is out", || age(&a) == NEVER);
    b.stop().expect("stopped in peace");
}

// Hosts that nobody uses are busy with saying that they are alive; one that says it rarely, and is not trusted meanwhile, looks dead; one that
// says it rarely while another is used is missed late.
#[test]
fn hosts_that_nobody_uses_say_rarely_that_they_are_alive() {
    let (mut a, mut b) = pair();
    (a.message_version, b.message_version) = (6, 6);
    let b_host = kernel::HostId::named("b");
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    for (host, other) in [(&a, "b"), (&b, "a")] {
        let watch = Question { oracle: oracle_of(other), ..asking(WATCH, 1) };
        assert_eq!(host.handle().request(ASKER, watch).wait(LIMIT), Ok(1));
    }
    let look = || a.handle().request_unused(ASKER, asking(AGE, 1)).wait(LIMIT).expect("a runs");
    let heard_in = |span: Duration| {
        let messages = || a.handle().metrics().wait(LIMIT).expect("a runs").messages_in;
        let (before, began) = (messages(), std::time::Instant::now());
        std::thread::sleep(span);
        (messages() - before) as f64 / began.elapsed().as_secs_f64()
    };
    let often = heard_in(Duration::from_secs(1));
    eventually("nobody uses them, and they say little", || heard_in(Duration::from_secs(1)) < often / 2.0);
    let oldest = (0..50).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        look()
    });
    assert!(oldest.max() < Some(150), "it is trusted until it speaks again");
    assert_eq!(b.handle().request(ASKER, asking(GREETING, 1)).wait(LIMIT), Ok(1), "b is used");
    eventually("both say it often", || heard_in(Duration::from_millis(500)) > often / 2.0);
    eventually("nobody uses them again", || heard_in(Duration::from_secs(1)) < often / 2.0);
    a.handle().fault(b_host, LinkFault::Sever(Direction::From));
    eventually("what it has promised is over", || look() >= 200);
    a.handle().fault(b_host, LinkFault::Heal(Direction::From));
    eventually("it is heard again", || look() <= 50);
    b.kill().expect("killed in peace");
    eventually("it is gone", || look() >= 200);
}

// A host of the version before understands no beacons: it must be sent each again, or it hears a leader once and no more.
#[test]
fn a_host_without_beacons_is_sent_them_again_and_again() {
    let (mut a, mut b) = pair();
    (a.message_version, b.message_version) = (4, 5);
    let a = Host::start(a, both, vec![]).expect("a starts");
    let _b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, asking(WATCH, 5)).wait(LIMIT), Ok(5));
    assert_eq!(age(&a), NEVER);
    assert_eq!(a.handle().request(ASKER, asking(DARK, 1)).wait(LIMIT), Ok(0));
    let reports = || a.handle().metrics().wait(LIMIT).expect("a runs").repeats_in;
    eventually("it is out", || {
        let before = reports();
        std::thread::sleep(Duration::from_millis(300));
        reports() == before
    });
}

// A restarted peer must be found again without anybody's help, and so must one that has moved to another port.
#[test]
fn links_come_back_after_a_restart_and_a_move() {
    let (a, b) = pair();
    let a_address = PeerConfig { name: "a".to_owned(), address: b.peers[0].address.clone() };
    let b_listen = b.listen.as_ref().expect("b listens").try_clone().expect("a listener can be cloned");
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 50)).wait(LIMIT), Ok(50));
    b.kill().expect("killed in peace");
    let again = a.handle().request(ASKER, question("b", 50));
    let config =
        HostConfig { listen: Some(b_listen), peers: vec![a_address.clone()], ..HostConfig::new("test", "b") };
    let b = Host::start(config, both, vec![]).expect("b starts again");
    assert_eq!(again.wait(LIMIT), Ok(50), "after a restart");
    b.stop().expect("stopped in peace");
    let moved = listener();
    // A name, so that the resolver's thread is asked.
    let address = format!("localhost:{}", moved.local_addr().expect("it is bound").port());
    let config = HostConfig { listen: Some(moved), peers: vec![a_address], ..HostConfig::new("test", "b") };
    let _b = Host::start(config, both, vec![]).expect("b starts elsewhere");
    a.handle().set_peers(vec![PeerConfig { name: "b".to_owned(), address }]);
    assert_eq!(a.handle().request(ASKER, question("b", 50)).wait(LIMIT), Ok(50), "after a move");
}

// Hosts of another cluster, unknown hosts, and hosts that answer to another name must learn why they are turned away.
#[test]
fn strangers_are_refused_with_a_reason() {
    for (cluster, name, called, expected) in [
        ("other", "a", "b", "this is cluster test, the caller is of other"),
        ("test", "c", "b", "cluster test has no host c"),
        ("test", "a", "d", "this is host b, not d"),
    ] {
        let (a, mut b) = pair();
        let refusals = events_of(&mut b);
        let address = a.peers[0].address.clone();
        let _b = Host::start(b, both, vec![]).expect("b starts");
        let peers = vec![PeerConfig { name: called.to_owned(), address }];
        let mut caller = HostConfig { peers, ..HostConfig::new(cluster, name) };
        let events = events_of(&mut caller);
        let _caller = Host::start(caller, both, vec![]).expect("the caller starts");
        let notified = format!("refused: {expected}");
        wait_for(&events, |event| down_reason(event).filter(|reason| *reason == notified));
        wait_for(&refusals, |event| match event {
            HostEvent::PeerRefused { reason, .. } => (reason == expected).then_some(()),
            _ => None,
        });
    }
}

// Hosts that decide by different settings agree on nothing, and nobody notices before their data differ.
#[test]
fn hosts_with_other_settings_are_refused() {
    for (ours, theirs, refused) in [("2", Some("3"), true), ("2", Some("2"), false), ("2", None, false)] {
        let (mut a, mut b) = pair();
        b.agreement.add("levels", ours, false);
        if let Some(value) = theirs {
            a.agreement.add("levels", value, false);
        }
        a.agreement.add("known to a alone", "1", true);
        let (a_events, b_events) = (events_of(&mut a), events_of(&mut b));
        let _b = Host::start(b, both, vec![]).expect("b starts");
        let a = Host::start(a, both, vec![]).expect("a starts");
        if !refused {
            assert_eq!(a.handle().request(ASKER, question("b", 50)).wait(LIMIT), Ok(50));
            continue;
        }
        let notified = "all hosts must agree: levels is \"2\" at host b and \"3\" at host a";
        wait_for(&a_events, |event| {
            down_reason(event).filter(|reason| *reason == format!("refused: {notified}"))
        });
        wait_for(&b_events, |event| match event {
            HostEvent::PeerRefused { reason, .. } => (reason == notified).then_some(()),
            _ => None,
        });
    }
}

// A host that lost its disk has lost its promises: it must stay out until the membership says otherwise.
#[test]
fn another_incarnation_is_refused_unless_somebody_admits_it() {
    let (a, mut b) = pair();
    let a_listen = a.listen.as_ref().expect("a listens").try_clone().expect("a listener can be cloned");
    let b_address = a.peers.clone();
    b.admission = Some(Admission::FirstSeen);
    let b_events = events_of(&mut b);
    let _b = Host::start(b, both, vec![]).expect("b starts");
    let first = Host::start(a, both, vec![]).expect("a starts");
    assert_eq!(first.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    first.stop().expect("stopped in peace");
    // In memory every start is another incarnation.
    let mut a = HostConfig { listen: Some(a_listen), peers: b_address, ..HostConfig::new("test", "a") };
    let events = events_of(&mut a);
    let _second = Host::start(a, both, vec![]).expect("a starts again");
    let lost = |reason: &String| reason.starts_with("refused: host a has lost its data directory");
    wait_for(&events, |event| down_reason(event).filter(lost));
    // Nor may b, which knew a, send anything to the new one.
    let reason = wait_for(&b_events, |event| match event {
        HostEvent::LinkDown { reason, .. } => reason.contains("incarnation").then(|| reason.clone()),
        _ => None,
    });
    assert!(reason.starts_with("host a has lost its data directory"), "{reason}");

    let (a, mut b) = pair();
    let (outbox, asked) = channel();
    b.admission = Some(Admission::Ask(Box::new(move |name, incarnation| {
        outbox.send((name.to_owned(), incarnation)).map_err(|error| error.to_string())
    })));
    let b = Host::start(b, both, vec![]).expect("b starts");
    let a = Host::start(a, both, vec![]).expect("a starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    assert_eq!(asked.recv_timeout(LIMIT), Ok(("a".to_owned(), a.incarnation())));
    let links = a.handle().inspect(|view| view.links().to_vec()).wait(LIMIT).expect("a runs");
    let partner = links[0].partner.expect("the link is up");
    assert_eq!((partner.incarnation, partner.message_version), (b.incarnation(), 1));
}

// Hosts whose messages do not fit must not talk, and both sides must say which one is to be upgraded; in a rolling upgrade
// the newer one that still understands the older one must be let in.
#[test]
fn versions_that_do_not_fit_are_refused_and_newer_ones_that_do_are_let_in() {
    for ((a_min, a_max), (b_min, b_max), expected) in [
        (
            (1, 1),
            (2, 3),
            Some("host a understands messages up to version 1, host b needs 2 at least: upgrade a"),
        ),
        (
            (4, 5),
            (2, 3),
            Some("host a needs messages of version 4 at least, host b understands them up to 3: upgrade b"),
        ),
        ((1, 2), (1, 1), None),
        ((2, 3), (1, 2), None),
    ] {
        let (mut a, mut b) = pair();
        (a.message_version_min, a.message_version) = (a_min, a_max);
        (b.message_version_min, b.message_version) = (b_min, b_max);
        // Only a dials: what is to be seen is what b makes of it.
        b.peers[0].address = "127.0.0.1:1".to_owned();
        let (events, refusals) = (events_of(&mut a), events_of(&mut b));
        let a = Host::start(a, both, vec![]).expect("a starts");
        let b = Host::start(b, both, vec![]).expect("b starts");
        let Some(expected) = expected else {
            let up = |event: &HostEvent| matches!(event, HostEvent::LinkUp { .. }).then_some(());
            wait_for(&events, up);
            let links = a.handle().inspect(|view| view.links().to_vec()).wait(LIMIT).expect("a runs");
            assert_eq!(links[0].partner.map(|partner| partner.message_version), Some(a_max.min(b_max)));
            continue;
        };
        let notified = format!("refused: {expected}");
        wait_for(&events, |event| down_reason(event).filter(|reason| *reason == notified));
        wait_for(&refusals, |event| match event {
            HostEvent::PeerRefused { reason, .. } => (reason == expected).then_some(()),
            _ => None,
        });
        drop((a, b));
    }
}

// A host from before the bound was part of the greeting welcomes anybody: it is for the caller to leave it.
#[test]
fn a_host_that_understands_too_little_is_left() {
    let called = listener();
    let address = called.local_addr().expect("it is bound").to_string();
    let mut a = HostConfig {
        peers: vec![PeerConfig { name: "b".to_owned(), address }],
        message_version: 3,
        message_version_min: 2,
        ..HostConfig::new("test", "a")
    };
    let events = events_of(&mut a);
    let _a = Host::start(a, both, vec![]).expect("a starts");
    let (mut caller, _) = called.accept().expect("a dials");
    caller.read_exact(&mut [0; 32]).expect("a greets");
    let mut welcome = FrameWriter::default();
    welcome.body().extend_from_slice(b"ORDP\0");
    welcome.body().extend_from_slice(&[&7u128.to_le_bytes()[..], &1u32.to_le_bytes()].concat());
    caller.write_all(welcome.bytes()).expect("a listens");
    let reason = wait_for(&events, down_reason);
    let expected = "host b understands messages up to version 1, this host needs 2 at least: upgrade b";
    assert_eq!(reason, expected);
}

// Noise, other protocols, hostile lengths and half-open greetings on the hosts' port must end those connections alone.
#[test]
fn garbage_on_the_hosts_port_harms_nobody() {
    let (a, mut b) = pair();
    b.frame_body_max = 1 << 20;
    let refusals = events_of(&mut b);
    let address = a.peers[0].address.clone();
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    let oversized = [&u32::MAX.to_le_bytes()[..], &[0; 12]].concat();
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut wrong_sum = FrameWriter::default();
    wrong_sum.body().extend_from_slice(b"ORDP and so on");
    let mut wrong_sum = std::mem::take(wrong_sum.bytes());
    wrong_sum[6] ^= 1;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &oversized, &noise, &wrong_sum] {
        let mut stream = TcpStream::connect(&address).expect("b listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
        stream.write_all(garbage).expect("written");
        let mut rest = Vec::new();
        // Ended, with or without unread bytes of ours.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "garbage is answered by {rest:?}");
        let reason = wait_for(&refusals, |event| match event {
            // A link of a's that was slow to come up may be reported as well.
            HostEvent::PeerRefused { reason, .. } if reason.starts_with("not a host") => Some(reason.clone()),
            _ => None,
        });
        assert!(reason.starts_with("not a host of Ordinate"), "{reason}");
    }
    // Says nothing: disconnected after a while.
    let mut silent = TcpStream::connect(&address).expect("b listens");
    silent.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    assert_eq!(silent.read(&mut [0; 8]).expect("b ends it"), 0);
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    drop(b);
}

// A message beyond the frame's bound can never arrive: it must be dropped and counted, and the link must live on.
#[test]
fn a_message_larger_than_a_frame_is_dropped_alone() {
    let (mut a, b) = pair();
    a.frame_body_max = 64 << 10;
    let a = Host::start(a, both, vec![]).expect("a starts");
    let _b = Host::start(b, both, vec![]).expect("b starts");
    let large = Question { payload: vec![1; 100 << 10].into(), ..question("b", 1) };
    let lost = a.handle().request(ASKER, large);
    eventually("the message is dropped", || {
        let metrics = a.handle().metrics().wait(LIMIT).expect("a runs");
        metrics.drops.contains_key("message larger than a frame")
    });
    drop(lost);
    let fitting = Question { payload: vec![1; 60 << 10].into(), ..question("b", 40) };
    assert_eq!(a.handle().request(ASKER, fitting).wait(LIMIT), Ok(40));
}

// A peer that stops reading must cost a bounded queue, and must be talked to again when it reads on.
#[test]
fn a_peer_that_stands_still_costs_a_bounded_queue() {
    let (mut a, b) = pair();
    let bound = 1 << 20;
    a.queue_bytes_max = bound;
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    b.handle().pause();
    let flood = Question { window: 400, payload: vec![1; 60 << 10].into(), ..question("b", 400) };
    let answer = a.handle().request(ASKER, flood);
    eventually("something is dropped", || {
        let metrics = a.handle().metrics().wait(LIMIT).expect("a runs");
        assert!(metrics.buffered_bytes <= bound as u64 + (128 << 10), "{} bytes", metrics.buffered_bytes);
        metrics.drops.contains_key("queue to host full")
    });
    b.handle().resume();
    assert_eq!(answer.wait(LIMIT), Ok(400));
}

// What was half sent when a connection broke must not be taken for the beginning of the next one.
#[test]
fn a_truncated_frame_is_forgotten() {
    let (a, b) = pair();
    let peers = b.peers.clone();
    let b_listen = b.listen.as_ref().expect("b listens").try_clone().expect("a listener can be cloned");
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    b.handle().pause();
    let flood = Question { window: 400, payload: vec![1; 60 << 10].into(), ..question("b", 400) };
    let answer = a.handle().request(ASKER, flood);
    eventually("more is queued than the socket takes", || {
        a.handle().metrics().wait(LIMIT).expect("a runs").buffered_bytes > 0
    });
    b.kill().expect("killed in peace");
    let mut again = HostConfig { listen: Some(b_listen), peers, ..HostConfig::new("test", "b") };
    let refusals = events_of(&mut again);
    let _b = Host::start(again, both, vec![]).expect("b starts again");
    assert_eq!(answer.wait(LIMIT), Ok(400));
    let is_frames = |event: &HostEvent| match event {
        HostEvent::PeerRefused { reason, .. } | HostEvent::PeerEnded { reason, .. } => {
            reason.contains("frame") || reason.contains("checksum")
        }
        _ => false,
    };
    let refused: Vec<HostEvent> = refusals.try_iter().filter(is_frames).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

// A delay on purpose must delay, and its end must leave no message behind.
#[test]
fn delayed_links_deliver_later() {
    let (a, b) = pair();
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    a.handle().fault(b.handle().host(), LinkFault::Delay(Duration::from_millis(20)));
    let start = std::time::Instant::now();
    let question = question("b", 1);
    assert_eq!(a.handle().request(ASKER, question.clone()).wait(LIMIT), Ok(1));
    assert!(start.elapsed() >= Duration::from_millis(20), "the trip took {:?}", start.elapsed());
    a.handle().fault(b.handle().host(), LinkFault::Delay(Duration::ZERO));
    a.handle().fault(b.handle().host(), LinkFault::Heal(Direction::To));
    assert_eq!(a.handle().request(ASKER, question).wait(LIMIT), Ok(1));
}

// A host that was taken out of the cluster must no longer be heard.
#[test]
fn a_removed_host_is_no_longer_heard() {
    let (a, mut b) = pair();
    let refusals = events_of(&mut b);
    let a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 5)).wait(LIMIT), Ok(5));
    b.handle().set_peers(vec![]);
    wait_for(&refusals, |event| match event {
        HostEvent::PeerRefused { reason, .. } => reason.contains("has no host a").then_some(()),
        _ => None,
    });
}
