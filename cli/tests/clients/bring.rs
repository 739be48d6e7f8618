//! `ordinate zk import` and `migrate`, from what a real ZooKeeper has written.

use crate::generate::SUPER_DIGEST;
use crate::peers::{self, ZooKeeper};
use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::raw::{Pass, Raw};
use crate::support::side_by_side;
use coordination::wire::{Acl, Identity, JuteInput, JuteOutput as _, Stat, op, write_acls};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SUPERUSER: &str = "digest:super:test";

fn raw(address: SocketAddr) -> Raw {
    let mut raw = Raw::connect(address, &Pass::default(), 30_000, 0).expect("it serves");
    let mut auth = Vec::new();
    auth.put_i32(0);
    auth.put_text("digest");
    auth.put_buffer(Some(b"super:test"));
    assert_eq!(raw.call(op::AUTH, &auth).expect("it serves").error, 0);
    raw
}

fn create(path: &str, data: Option<&[u8]>, acl: &[(i32, &str, &str)], flags: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_buffer(data);
    let acl: Vec<Acl> = acl
        .iter()
        .map(|(permissions, scheme, id)| Acl { permissions: *permissions, who: Identity::new(scheme, id) })
        .collect();
    write_acls(&acl, &mut body);
    body.put_i32(flags);
    body
}

fn path_and(path: &str, number: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_i32(number);
    body
}

fn set(path: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_buffer(data);
    body.put_i32(-1);
    body
}

const OPEN: &[(i32, &str, &str)] = &[(31, "world", "anyone")];
const CLOSED: &[(i32, &str, &str)] =
    &[(31, "digest", "one:4nLUhW3dB5h9kAFU3zy2wRSm+Bc="), (1, "ip", "10.0.0.0/8")];

#[track_caller]
fn done(raw: &mut Raw, opcode: i32, body: &[u8]) -> Vec<u8> {
    let reply = raw.call(opcode, body).expect("it serves");
    assert_eq!(reply.error, 0, "opcode {opcode}");
    reply.body
}

/// Nodes of all kinds, changed in all ways; round after round more of them.
fn fill(raw: &mut Raw, round: usize) {
    let base = format!("/r{round}");
    done(raw, op::CREATE, &create(&base, Some(b"base"), OPEN, 0));
    for n in 0..12 {
        let path = format!("{base}/n{n}");
        done(raw, op::CREATE, &create(&path, if n % 3 == 0 { None } else { Some(&[b'x'; 300]) }, OPEN, 0));
        (0..n % 4).for_each(|_| drop(done(raw, op::SET_DATA, &set(&path, Some(path.as_bytes())))));
    }
    done(raw, op::DELETE, &path_and(&format!("{base}/n7"), -1));
    done(raw, op::CREATE, &create(&format!("{base}/locks"), Some(b""), OPEN, 0));
    for n in 0..9 {
        let made = done(raw, op::CREATE, &create(&format!("{base}/locks/l-"), Some(b""), OPEN, 2));
        if n % 2 == 0 {
            let made = JuteInput(&made).text().expect("a path").to_owned();
            done(raw, op::DELETE, &path_and(&made, -1));
        }
    }
    done(raw, op::CREATE, &create(&format!("{base}/mine"), Some(b"gone"), OPEN, 1));
    done(raw, op::CREATE_CONTAINER, &create(&format!("{base}/box"), Some(b""), OPEN, 4));
    done(raw, op::CREATE, &create(&format!("{base}/box/in"), Some(b""), OPEN, 0));
    let mut mortal = create(&format!("{base}/mortal"), Some(b"t"), OPEN, 5);
    mortal.put_i64(3_600_000);
    done(raw, op::CREATE_TTL, &mortal);
    done(raw, op::CREATE, &create(&format!("{base}/closed"), Some(b"secret"), CLOSED, 0));
    done(raw, op::CREATE, &create(&format!("{base}/closed/below"), Some(b"secret"), CLOSED, 0));
    let mut acl = Vec::new();
    acl.put_text(&format!("{base}/n1"));
    acl.put_i32(1);
    acl.put_i32(1);
    acl.put_text("world");
    acl.put_text("anyone");
    acl.put_i32(-1);
    done(raw, op::SET_ACL, &acl);
    let mut multi = Vec::new();
    let step = |kind: i32, body: Vec<u8>, multi: &mut Vec<u8>| {
        multi.put_i32(kind);
        multi.push(0);
        multi.put_i32(-1);
        multi.extend(body);
    };
    step(op::CREATE, create(&format!("{base}/multi"), Some(b"m"), OPEN, 0), &mut multi);
    step(op::SET_DATA, set(&format!("{base}/n2"), None), &mut multi);
    step(op::DELETE, path_and(&format!("{base}/n3"), -1), &mut multi);
    let failing = {
        let mut failing = multi.clone();
        step(op::CHECK, path_and(&format!("{base}/nowhere"), -1), &mut failing);
        failing
    };
    for (mut body, fails) in [(failing, true), (multi, false)] {
        body.put_i32(-1);
        body.push(1);
        body.put_i32(-1);
        let answer = done(raw, op::MULTI, &body);
        assert_eq!(JuteInput(&answer).i32() == Ok(op::ERROR), fails);
    }
}

/// What of a node must be the same on both sides: data, list, version, aversion, creates, ctime, mtime.
type Shape = (Vec<u8>, Vec<u8>, [i32; 3], [i64; 2]);

/// All nodes but ephemeral ones and the cluster's own.
fn shapes(address: SocketAddr) -> BTreeMap<String, Shape> {
    let mut raw = raw(address);
    let (mut shapes, mut waiting) = (BTreeMap::new(), vec!["/".to_owned()]);
    while let Some(path) = waiting.pop() {
        let mut body = Vec::new();
        body.put_text(&path);
        body.push(0);
        let found = done(&mut raw, op::GET_DATA, &body);
        let mut input = JuteInput(&found);
        let data = input.buffer().expect("data").unwrap_or_default().to_vec();
        let stat = Stat::read(&mut input).expect("a stat");
        let acl = done(&mut raw, op::GET_ACL, &body[..body.len() - 1]);
        // The Stat behind the list is not compared here.
        let acl = acl[..acl.len().saturating_sub(68)].to_vec();
        let names = done(&mut raw, op::GET_CHILDREN, &body);
        let prefix = if path == "/" { "" } else { &path };
        let names = JuteInput(&names).texts().expect("names");
        waiting.extend(names.iter().map(|name| format!("{prefix}/{name}")));
        if stat.ephemeral_owner == 0 && !path.starts_with("/zookeeper") {
            let creates = (stat.cversion + stat.num_children) / 2;
            let versions = [stat.version, stat.aversion, creates];
            shapes.insert(path, (data, acl, versions, [stat.ctime, stat.mtime]));
        }
    }
    shapes
}

#[track_caller]
fn same(theirs: &BTreeMap<String, Shape>, ours: &BTreeMap<String, Shape>) {
    let paths = |shapes: &BTreeMap<String, Shape>| shapes.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(theirs), paths(ours));
    for (path, shape) in theirs {
        assert_eq!(shape, &ours[path], "{path}");
    }
}

async fn cluster() -> (Cluster, SocketAddr) {
    let coordination =
        format!("[coordination]\nengine = \"mason\"\nshards = 4\nsuper_digest = \"{SUPER_DIGEST}\"");
    let (cluster, addresses) = peers::ordinate(&coordination).await;
    (cluster, addresses[0])
}

fn import(data: &Path, servers: SocketAddr, more: &[&str]) -> Output {
    Command::new(ORDINATE)
        .args(["zk", "--servers", &servers.to_string(), "--auth", SUPERUSER, "-o", "json", "import"])
        .arg(data)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built")
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

fn newest_log(data: &Path) -> PathBuf {
    let files = std::fs::read_dir(data.join("version-2")).expect("ZooKeeper has written");
    let logs = files.map(|file| file.expect("readable").path());
    let mut logs: Vec<PathBuf> = logs.filter(|path| path.to_string_lossy().contains("/log.")).collect();
    logs.sort_by_key(|path| std::fs::metadata(path).and_then(|found| found.modified()).ok());
    logs.pop().expect("there is a log")
}

/// ZooKeeper chooses at random when it writes a snapshot: the last transaction may be in one, and the log is to be read too.
fn write_after_snapshots(raw: &mut Raw, data: &Path) {
    let snapshots = || {
        let files = std::fs::read_dir(data.join("version-2")).expect("ZooKeeper has written");
        let names = files.map(|file| file.expect("readable").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("snapshot.")).collect::<BTreeSet<_>>()
    };
    for n in 0.. {
        let before = snapshots();
        done(raw, op::CREATE, &create(&format!("/after{n}"), Some(b""), OPEN, 0));
        std::thread::sleep(Duration::from_millis(300));
        if snapshots() == before {
            return;
        }
    }
}

// A node that is lost, changed or protected otherwise on its way is found out when its owner needs it.
#[test]
fn files_of_a_real_zookeeper_are_imported() {
    side_by_side(async {
        let Some(folder) = peers::installed("java") else { return };
        for method in ["", "gz"] {
            let compression = format!("-Dzookeeper.snapshot.compression.method={method}");
            let mut zookeeper =
                ZooKeeper::start_with(&folder, SUPER_DIGEST, &["-Dzookeeper.snapCount=100", &compression]);
            let mut session = raw(zookeeper.address);
            let rounds = 6;
            (0..rounds).for_each(|round| fill(&mut session, round));
            write_after_snapshots(&mut session, &zookeeper.data());
            let theirs = shapes(zookeeper.address);
            zookeeper.stop();
            let (_cluster, address) = cluster().await;
            let first = report(&import(&zookeeper.data(), address, &[]));
            assert!(
                first["snapshot"].as_str().is_some_and(|name| name.ends_with(".gz") == (method == "gz")),
                "{first}"
            );
            assert!(first["transactions"].as_u64().is_some_and(|count| count > 0), "{first}");
            assert_eq!(
                [&first["containers"], &first["ttl_nodes"], &first["ephemerals_dropped"]],
                [rounds, rounds, rounds],
                "{first}"
            );
            assert_eq!(first["nodes"].as_u64(), Some(theirs.len() as u64), "{first}");
            same(&theirs, &shapes(address));
            let mut ours = raw(address);
            let next = done(&mut ours, op::CREATE, &create("/r0/locks/l-", Some(b""), OPEN, 2));
            assert_eq!(JuteInput(&next).text(), Ok("/r0/locks/l-0000000009"), "names go on where they were");
            let again = import(&zookeeper.data(), address, &[]);
            let said = String::from_utf8_lossy(&again.stderr).into_owned();
            assert!(again.status.code() == Some(2) && said.contains("the target is not empty"), "{said}");
            let merged = report(&import(&zookeeper.data(), address, &["--merge"]));
            assert_eq!(merged["nodes"], first["nodes"]);
            let next = done(&mut ours, op::CREATE, &create("/r0/locks/l-", Some(b""), OPEN, 0));
            drop(next);

            // A crash truncates the last record; a disk flips a bit of the first.
            let log = newest_log(&zookeeper.data());
            let whole = std::fs::read(&log).expect("there is a log");
            let end = whole.iter().rposition(|byte| *byte != 0).expect("it holds something");
            std::fs::write(&log, &whole[..end]).expect("the folder is writable");
            let torn = report(&import(&zookeeper.data(), address, &["--dry-run"]));
            let count = |report: &Value| report["transactions"].as_u64().unwrap_or(0);
            assert_eq!((count(&torn) + 1, &torn["imported"]), (count(&first), &Value::Bool(false)));
            let mut flipped = whole.clone();
            flipped[16 + 12 + 20] ^= 4;
            std::fs::write(&log, &flipped).expect("the folder is writable");
            let refused = import(&zookeeper.data(), address, &["--dry-run"]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(refused.status.code() == Some(2), "{said}");
            assert!(said.starts_with("error[O4105]") && said.contains("at byte 16: the checksum"), "{said}");
        }
    });
}

// A change that is made while others are copied, and is not followed, is lost at the cutover.
#[test]
fn a_living_zookeeper_is_followed_until_the_cutover() {
    side_by_side(async {
        let Some(folder) = peers::installed("java") else { return };
        let zookeeper = ZooKeeper::start(&folder, SUPER_DIGEST);
        let mut session = raw(zookeeper.address);
        (0..4).for_each(|round| fill(&mut session, round));
        let (_cluster, address) = cluster().await;
        let (from, servers) = (zookeeper.address.to_string(), address.to_string());
        let migrate = |more: &[&str]| {
            let mut command = Command::new(ORDINATE);
            command.args(["zk", "--servers", &servers, "--auth", SUPERUSER, "migrate", "--from", &from]);
            command.args(["--from-auth", SUPERUSER, "--every", "0.2"]).args(more);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the binary was built")
        };
        let mut child = migrate(&[]);
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let said = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(said.starts_with("first pass: "), "{said}");
        // While it follows: more nodes, other data, and some go.
        fill(&mut session, 4);
        for n in [0, 2, 4] {
            done(&mut session, op::SET_DATA, &set(&format!("/r1/n{n}"), Some(b"changed")));
        }
        done(&mut session, op::DELETE, &path_and("/r2/box/in", -1));
        done(&mut session, op::DELETE, &path_and("/r2/mortal", -1));
        let said = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(said.starts_with("following: "), "{said}");
        fill(&mut session, 5);
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(b"\n").expect("it reads its input");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                break status;
            }
            assert!(Instant::now() < deadline, "no cutover");
            std::thread::sleep(Duration::from_millis(20));
        };
        let last = lines.map_while(Result::ok).last().unwrap_or_default();
        assert!(status.success() && last.contains("no difference"), "{last}");
        let theirs = shapes(zookeeper.address);
        same(&theirs, &shapes(address));
        // Taken up again, it makes over what is there and finds it the same.
        done(&mut session, op::SET_DATA, &set("/r3/n5", Some(b"late")));
        let resumed = migrate(&["--merge", "--cutover"]).wait_with_output().expect("our own child");
        assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
        same(&shapes(zookeeper.address), &shapes(address));
        let refused = migrate(&["--cutover"]).wait_with_output().expect("our own child");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("the target is not empty"));
    });
}

// Who moved and cannot go back moves never: what was written since must come back into a ZooKeeper.
#[test]
fn what_was_written_comes_back_into_a_zookeeper() {
    side_by_side(async {
        let Some(folder) = peers::installed("java") else { return };
        let (_cluster, address) = cluster().await;
        let mut session = raw(address);
        (0..3).for_each(|round| fill(&mut session, round));
        let zookeeper = ZooKeeper::start(&folder, SUPER_DIGEST);
        let (from, servers) = (address.to_string(), zookeeper.address.to_string());
        let back = |more: &[&str]| {
            let mut command = Command::new(ORDINATE);
            command.args(["zk", "--servers", &servers, "--auth", SUPERUSER, "migrate", "--from", &from]);
            command.args(["--from-auth", SUPERUSER, "--to-zookeeper", "--cutover"]).args(more);
            let output = command.stdin(Stdio::null()).output().expect("the binary was built");
            (
                output.status.success(),
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            )
        };
        let same = || {
            let faces = |address| {
                let shapes = shapes(address).into_iter();
                shapes.map(|(path, (data, acl, ..))| (path, (data, acl))).collect::<BTreeMap<_, _>>()
            };
            let (ours, theirs) = (faces(address), faces(zookeeper.address));
            assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
            ours.iter().for_each(|(path, face)| assert_eq!(face, &theirs[path], "{path}"));
            ours.len()
        };
        let (well, said) = back(&[]);
        assert!(well && said.contains("no difference"), "{said}");
        let before = same();
        // What is changed and made meanwhile comes with another run; into what is there only if that is meant.
        // The session before may have ended while a ZooKeeper started.
        let mut session = raw(address);
        fill(&mut session, 3);
        done(&mut session, op::SET_DATA, &set("/r1/n5", Some(b"late")));
        let (well, said) = back(&[]);
        assert!(!well && said.contains("the target is not empty"), "{said}");
        let (well, said) = back(&["--merge"]);
        assert!(well, "{said}");
        assert!(same() > before);
        // A node that differs is found, no matter who wrote it.
        let mut theirs = raw(zookeeper.address);
        done(&mut theirs, op::CREATE, &create("/stranger", Some(b""), OPEN, 0));
        let (well, said) = back(&["--merge"]);
        assert!(well, "nodes that only the target has stay: {said}");
    });
}
