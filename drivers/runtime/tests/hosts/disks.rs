//! Hosts whose disk fails, fills up, or belongs to somebody else.

use super::support::*;
use bytes::BytesMut;
use kernel::NodeId;
use runtime::disk::{Disk, DiskFile, RealDisk};
use runtime::{
    CloseReason, FrontEnd, FrontEndConfig, FsyncPlacement, Host, HostConfig, HostError, HostEvent,
    JournalOptions, NoAnswer, Session, SessionCx, Storage,
};
use std::io;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SMALL: JournalOptions =
    JournalOptions { segment_bytes: 1 << 20, placement: FsyncPlacement::Adaptive, prepare_inline: false };

fn config_in(path: &Path) -> HostConfig {
    let storage = Storage::Directory { path: path.to_owned(), journal: SMALL };
    HostConfig { storage, ..HostConfig::new("test", "a") }
}

/// A disk whose syncs fail once it is asked to, and are slow all along.
struct FailingDisk {
    real: RealDisk,
    takes: Duration,
    broken: Arc<AtomicBool>,
}

struct FailingFile {
    real: Arc<dyn DiskFile>,
    takes: Duration,
    broken: Arc<AtomicBool>,
}

impl FailingDisk {
    fn file(&self, real: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FailingFile { real, takes: self.takes, broken: Arc::clone(&self.broken) })
    }
}

impl Disk for FailingDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        self.real.names()
    }
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.real.create(name, bytes).map(|file| self.file(file))
    }
    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.real.write_new(name, bytes)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.real.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.real.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.real.remove(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.real.sync_directory()
    }
    fn path_of(&self, name: &str) -> PathBuf {
        self.real.path_of(name)
    }
}

impl DiskFile for FailingFile {
    fn bytes(&self) -> io::Result<u64> {
        self.real.bytes()
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.real.read(offset, into)
    }
    fn write(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.real.write(offset, blocks)
    }
    fn sync(&self) -> io::Result<()> {
        std::thread::sleep(self.takes);
        match self.broken.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => self.real.sync(),
        }
    }
}

// A host whose sync failed must stop with an error that names the file, and acknowledge nothing more.
#[test]
fn a_failed_sync_stops_the_host() {
    for placement in [FsyncPlacement::Inline, FsyncPlacement::Thread] {
        let directory = Scratch::new("eio");
        let broken = Arc::new(AtomicBool::new(false));
        let real = RealDisk::new(directory.path().to_owned()).expect("the directory can be made");
        let disk = Arc::new(FailingDisk { real, takes: Duration::ZERO, broken: Arc::clone(&broken) });
        let storage = Storage::Disk { disk, journal: JournalOptions { placement, ..SMALL } };
        let host = Host::start(HostConfig { storage, ..HostConfig::new("test", "a") }, both, vec![])
            .expect("it starts");
        assert_eq!(host.handle().request(ASKER, question("a", 100)).wait(LIMIT), Ok(100));
        broken.store(true, Ordering::SeqCst);
        assert_eq!(host.handle().request(ASKER, question("a", 100)).wait(LIMIT), Err(NoAnswer::Stopped));
        let error = host.join().expect_err("stopped by itself").to_string();
        assert!(error.starts_with("cannot sync ") && error.contains("segment-"), "{error}");
    }
}

// A slow disk must hold up only what waits for it: the reactor must not wait with it.
#[test]
fn a_slow_disk_is_left_to_a_thread() {
    let directory = Scratch::new("slow");
    let mut configs = cluster(&["a", "b"]).into_iter();
    let a = Host::start(configs.next().expect("a"), both, vec![]).expect("a starts");
    let real = RealDisk::new(directory.path().to_owned()).expect("the directory can be made");
    let disk = Arc::new(FailingDisk { real, takes: Duration::from_millis(3), broken: Arc::default() });
    let mut config = configs.next().expect("b");
    config.storage = Storage::Disk { disk, journal: SMALL };
    let b = Host::start(config, both, vec![]).expect("b starts");
    let slow = b.handle().request(ASKER, Question { window: 1, ..question("b", 100) });
    eventually("the thread has taken over", || {
        let metrics = b.handle().metrics().wait(LIMIT).expect("b runs");
        metrics.fsyncs > 3 && !metrics.fsync_inline
    });
    let start = Instant::now();
    let glances = Question { window: 1, durable: false, ..question("b", 1000) };
    assert_eq!(a.handle().request(ASKER, glances).wait(LIMIT), Ok(1000));
    println!("1000 messages and answers beside a slow disk: {:?}", start.elapsed());
    assert_eq!(slow.wait(LIMIT), Ok(100));
}

// A disk that takes a second for a sync makes every write wait, and nobody learns why.
#[test]
fn a_slow_sync_is_reported_and_counted() {
    let directory = Scratch::new("slow-sync");
    let real = RealDisk::new(directory.path().to_owned()).expect("the directory can be made");
    let disk = Arc::new(FailingDisk { real, takes: Duration::from_millis(600), broken: Arc::default() });
    let storage = Storage::Disk { disk, journal: SMALL };
    let mut config = HostConfig { storage, ..HostConfig::new("test", "a") };
    let (outbox, events) = channel();
    config.events = Some(Box::new(move |event| _ = outbox.send(event.clone())));
    let host = Host::start(config, both, vec![]).expect("it starts");
    assert_eq!(host.handle().request(ASKER, question("a", 1)).wait(LIMIT), Ok(1));
    let event = events.recv_timeout(LIMIT).expect("it is reported");
    assert!(matches!(event, HostEvent::DiskSlow { took } if took >= Duration::from_millis(600)), "{event}");
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    let recent = metrics.fsync_latency_recent;
    assert!(recent.count() > 0 && recent.quantile(0.5) >= Duration::from_millis(500), "{recent:?}");
    host.stop().expect("stopped in peace");
}

// A panic in a role must end the host with its text, and free the callers that wait.
#[test]
fn a_panicking_role_ends_the_host() {
    let host = Host::start(HostConfig::new("test", "a"), both, vec![]).expect("it starts");
    let waiting = host.handle().request(ASKER, question("nowhere", 1));
    let poisoned = host.handle().inspect(|_| -> u8 { panic!("as a role would") });
    assert_eq!(poisoned.wait(LIMIT), Err(NoAnswer::Stopped));
    assert_eq!(waiting.wait(LIMIT), Err(NoAnswer::Stopped));
    match host.join() {
        Err(HostError::Panicked(text)) => assert_eq!(text, "as a role would"),
        other => panic!("{other:?}"),
    }
}

// Two processes on one directory, or a directory of another cluster or host, would mix two histories.
#[test]
fn a_directory_has_one_owner() {
    let directory = Scratch::new("owner");
    let host = Host::start(config_in(directory.path()), both, vec![]).expect("it starts");
    let incarnation = host.incarnation();
    let error = Host::start(config_in(directory.path()), both, vec![]).err().expect("refused").to_string();
    assert!(error.ends_with("is in use by another process"), "{error}");
    host.stop().expect("stopped in peace");
    for (cluster, name) in [("other", "a"), ("test", "b")] {
        let storage = Storage::Directory { path: directory.path().to_owned(), journal: SMALL };
        let config = HostConfig { storage, ..HostConfig::new(cluster, name) };
        let error = Host::start(config, both, vec![]).err().expect("refused").to_string();
        assert!(error.contains(&format!("belongs to host test/a, not to {cluster}/{name}")), "{error}");
    }
    let again = Host::start(config_in(directory.path()), both, vec![]).expect("it starts");
    assert_eq!(again.incarnation(), incarnation, "the incarnation is the directory's");
    drop(again);
    let meta = directory.path().join("ordinate.meta");
    let text = std::fs::read_to_string(&meta).expect("it is text");
    for (changed, expected) in [
        (text.replace("format 1", "format 9"), "has format 9"),
        (text.replace("host a", "host b"), "checksum"),
    ] {
        std::fs::write(&meta, changed).expect("written");
        let error =
            Host::start(config_in(directory.path()), both, vec![]).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

// A host that forgets how it began takes the file it was started with for the cluster's bootstrap.
#[test]
fn a_directory_remembers_that_its_host_joined() {
    for joins in [true, false] {
        let directory = Scratch::new("joined");
        let remembers = || runtime::has_joined(directory.path()).expect("it can be read");
        assert!(!remembers(), "nothing is there yet");
        // What a later start says changes nothing: the votes are those of the first one.
        for said in [joins, !joins] {
            let config = HostConfig { joins: said, ..config_in(directory.path()) };
            Host::start(config, both, vec![]).expect("it starts").stop().expect("stopped in peace");
            assert_eq!(remembers(), joins);
        }
    }
}

// Data that are used with other settings than they were made with are read as what they are not.
#[test]
fn a_directory_remembers_what_it_was_made_with() {
    let directory = Scratch::new("made-with");
    let start = |settings: &[(&str, &str, bool)]| {
        let mut config = config_in(directory.path());
        for (name, value, fixed) in settings {
            config.agreement.add(name, value, *fixed);
        }
        Host::start(config, both, vec![]).map(|host| host.stop().expect("stopped in peace"))
    };
    start(&[("levels", "2", true), ("sessions", "7", false)]).expect("it starts");
    // What is not for run may change; a service may be switched off, and another on.
    start(&[("sessions", "8", false), ("spaces", "a b\nhost z", true)]).expect("it starts");
    for (name, value) in [("levels", "3"), ("spaces", "a b")] {
        let error = start(&[(name, value, true)]).expect_err("refused").to_string();
        assert!(error.contains(&format!("{name} is \"{value}\" now and \"")), "{error}");
    }
    start(&[("levels", "2", true), ("spaces", "a b\nhost z", true)]).expect("it starts");
}

// A node that is no longer placed here must not lose its records in silence, nor keep the journal for ever.
#[test]
fn records_of_a_missing_node_are_an_error_until_they_are_given_up() {
    let directory = Scratch::new("orphan");
    let host = Host::start(config_in(directory.path()), both, vec![]).expect("it starts");
    assert_eq!(host.handle().request(ASKER, question("a", 10)).wait(LIMIT), Ok(10));
    host.stop().expect("stopped in peace");
    let asker_only = || vec![(ASKER, Member::Asker(Asker::default()))];
    match Host::start(config_in(directory.path()), asker_only, vec![]) {
        Err(HostError::Orphan { host_slot, records }) => assert!(host_slot == ORACLE && records >= 10),
        other => panic!("{:?}", other.err()),
    }
    for forget in [vec![ORACLE], vec![]] {
        let config = HostConfig { forget, ..config_in(directory.path()) };
        Host::start(config, asker_only, vec![]).expect("given up").stop().expect("stopped in peace");
    }
}

/// Asks the oracle for every byte; each answer is a byte.
struct Relay;

impl FrontEnd<Talk> for Relay {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Talk>> {
        Box::new(Relay)
    }
}

impl Session<Talk> for Relay {
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        cx.established();
        for _ in input.split() {
            cx.send(oracle_of("a"), Ask { number: 0, payload: vec![1; 100_000].into() });
        }
        Ok(())
    }

    fn on_message(&mut self, _: NodeId, _: Message, cx: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        cx.output().push(b'.');
        Ok(())
    }
}

fn run_command(command: &str, arguments: &[&str]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A file system of its own; unmounted with the value.
struct SmallDisk(Scratch);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let scratch = Scratch::new("enospc");
        let path = scratch.path().to_str().expect("an ASCII path");
        run_command("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", path])
            .then_some(Self(scratch))
    }

    fn grow(&self, size: &str) {
        let path = self.0.path().to_str().expect("an ASCII path");
        assert!(run_command("mount", &["-o", &format!("remount,size={size}"), path]), "it can be grown");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = self.0.path().to_str().expect("an ASCII path");
        assert!(run_command("umount", &[path]), "it can be unmounted");
    }
}

// A really full disk must acknowledge nothing that is not on it, say so once and steadily, and go on by itself; what needs no disk is
// answered meanwhile.
#[test]
fn a_full_disk_acknowledges_nothing_until_there_is_space() {
    let Some(disk) = SmallDisk::mount("2560k") else {
        eprintln!(
            "SKIPPED: a_full_disk_acknowledges_nothing_until_there_is_space needs the right to mount a tmpfs"
        );
        return;
    };
    let listen = listener();
    let address = listen.local_addr().expect("it is bound");
    let mut config = config_in(disk.0.path());
    let (outbox, events) = channel();
    // The receiver may be gone when the host stops.
    config.events = Some(Box::new(move |event| _ = outbox.send(event.clone())));
    let front_end = FrontEndConfig::new(listen, || Box::new(Relay));
    let host = Host::start(config, both, vec![front_end]).expect("two segments fit");
    let mut client = TcpStream::connect(address).expect("the port listens");
    client.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    let mut answered = 0;
    client.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out can be set");
    'full: loop {
        client.write_all(b"?").expect("written");
        let asked = Instant::now();
        // A slow disk is no full one: no answer counts only together with the event.
        while client.read_exact(&mut [0; 1]).is_err() {
            if let Ok(event) = events.try_recv()
                && !matches!(event, HostEvent::DiskSlow { .. })
            {
                assert_eq!(event, HostEvent::DiskFull);
                break 'full;
            }
            assert!(asked.elapsed() < LIMIT, "neither an answer nor a full disk");
        }
        answered += 1;
        assert!(answered < 100, "2.5 MiB took {answered} records of 100 kB");
    }
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    assert!(metrics.disk_full && metrics.staged_bytes >= 100_000, "{metrics:?}");
    let read_before = metrics.bytes_in;
    client.write_all(b"???").expect("the socket takes it");
    // Longer than it takes to try again.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
        assert!(metrics.disk_full, "it is full all the time");
        assert!(events.try_recv().is_err(), "it is reported once");
        std::thread::sleep(Duration::from_millis(5));
    }
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    assert_eq!(metrics.bytes_in, read_before + 3, "roles are asked, and may refuse");
    client.read_exact(&mut [0; 1]).expect_err("nothing is acknowledged");
    disk.grow("32m");
    assert_eq!(events.recv_timeout(LIMIT), Ok(HostEvent::DiskBack));
    client.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    client.read_exact(&mut [0; 4]).expect("what was held and what waited is answered");
    drop(client);
    host.kill().expect("killed in peace");
    let host = Host::start(config_in(disk.0.path()), both, vec![]).expect("it starts again");
    let restored = host.handle().inspect(|view| match view.node(ORACLE) {
        Some(Member::Oracle(oracle)) => oracle.restored.len(),
        Some(Member::Asker(_)) | None => 0,
    });
    assert_eq!(restored.wait(LIMIT), Ok(answered + 4));
    drop(host);
}
