//! `ordinate zk migrate`: the nodes of a living ZooKeeper, pass after pass, until its clients move.

use super::client::{ZkClient, ZkError};
use super::target::{Ask, Seen, Target, TargetKind, is_the_clusters_own, progress, walk};
use crate::commands::kv::load_tls;
use crate::failure::Failure;
use coordination::wire::{JuteInput, RestoredNode, Stat, read_acls};
use ordinate_client::Tls;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// From where, and how.
#[derive(clap::Args)]
pub struct Migrate {
    /// Servers of the living ZooKeeper, comma-separated
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// Who to be there, for lists that do not let everybody read: SCHEME:TOKEN, for example digest:user:password
    #[arg(long, value_name = "SCHEME:TOKEN", env = "ORDINATE_FROM_AUTH")]
    from_auth: Option<String>,
    /// The authority that signed its certificates; switches TLS to it on
    #[arg(long, value_name = "FILE", requires = "from_tls_cert")]
    from_tls_ca: Option<PathBuf>,
    /// Our certificate there
    #[arg(long, value_name = "FILE", requires = "from_tls_key")]
    from_tls_cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", requires = "from_tls_ca")]
    from_tls_key: Option<PathBuf>,
    /// Do not follow: end as soon as a pass finds nothing new and both sides are the same. Writers must be stopped
    #[arg(long)]
    cutover: bool,
    /// Seconds between two passes while following
    #[arg(long, default_value = "2", value_parser = crate::commands::seconds)]
    every: Duration,
    /// The target is a ZooKeeper, and this the way back: nodes are made by its own calls, so their versions, times and sequential names
    /// begin anew
    #[arg(long)]
    to_zookeeper: bool,
    /// Into a cluster that has nodes already: those that the source has are made over, others stay. Resumes a migration
    #[arg(long)]
    merge: bool,
}

/// Passes at a cutover before it is said that somebody still writes.
const CUTOVER_PASSES_MAX: u32 = 10;
/// Sessions send heartbeats at least this often.
const PING_EVERY: Duration = Duration::from_secs(2);

/// What decides whether a node has changed since it was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    czxid: i64,
    mzxid: i64,
    aversion: i32,
    creates: i32,
    version: i32,
}

fn creates_of(stat: &Stat) -> i32 {
    // What is shown is twice the creates less the children that are left.
    stat.cversion.wrapping_add(stat.num_children) / 2
}

impl Mark {
    fn of(stat: &Stat) -> Self {
        let Stat { czxid, mzxid, aversion, version, .. } = *stat;
        Self { czxid, mzxid, aversion, creates: creates_of(stat), version }
    }
}

/// What one pass did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Pass {
    nodes: u64,
    copied: u64,
    deleted: u64,
    ephemerals: u64,
}

impl Migrate {
    /// TLS to the source, if it is on.
    pub fn source_tls(&self) -> Result<Option<Tls>, Failure> {
        load_tls([&self.from_tls_ca, &self.from_tls_cert, &self.from_tls_key])
    }

    /// Runs until the cutover.
    pub fn run(&self, target: ZkClient, source_tls: Option<&Tls>, json: bool) -> Result<(), ZkError> {
        let mut source = ZkClient::connect(&self.from, source_tls)?;
        if let Some(auth) = &self.from_auth {
            source.authenticate(auth)?;
        }
        let mut target = Target::new(target, self.merge)?;
        let mut known = BTreeMap::new();
        let first = self.pass(&mut source, &mut target, &mut known, "first pass")?;
        say(json, "first pass", &first);
        if !self.cutover {
            self.follow(&mut source, &mut target, &mut known, json)?;
        }
        let mut passes = 0;
        loop {
            let pass = self.pass(&mut source, &mut target, &mut known, "last pass")?;
            say(json, "last pass", &pass);
            passes += 1;
            if (pass.copied, pass.deleted) == (0, 0) {
                break;
            }
            if passes == CUTOVER_PASSES_MAX {
                return Err(ZkError::Input(format!(
                    "the source still changes after {passes} passes: stop its writers, and migrate again with --merge --cutover"
                )));
            }
        }
        let differences = compare(self.kind(), &known, &mut source, &mut target.client)?;
        if let Some(first) = differences.first() {
            return Err(ZkError::Input(format!("{} nodes differ, {first} among them", differences.len())));
        }
        if json {
            println!("{}", json!({ "cutover": true, "nodes": known.len(), "differences": 0 }));
        } else {
            println!(
                "cutover: {} nodes, no difference. Clients can be pointed at the new servers.",
                known.len()
            );
        }
        target.client.close();
        source.close();
        Ok(())
    }

    fn kind(&self) -> TargetKind {
        if self.to_zookeeper { TargetKind::ZooKeeper } else { TargetKind::Ordinate }
    }

    fn bring(&self, target: &mut Target, node: &RestoredNode<'_>, is_known: bool) -> Result<(), ZkError> {
        match self.kind() {
            TargetKind::Ordinate => target.restore(node),
            TargetKind::ZooKeeper => target.write(node, self.merge || is_known),
        }
    }

    fn follow(
        &self,
        source: &mut ZkClient,
        target: &mut Target,
        known: &mut BTreeMap<String, Mark>,
        json: bool,
    ) -> Result<(), ZkError> {
        eprintln!("following. Stop the writers of the source, and press Enter for the cutover");
        let cutover = enter_pressed();
        loop {
            let mut left = self.every;
            while !left.is_zero() {
                let nap = left.min(PING_EVERY);
                left -= nap;
                match cutover.recv_timeout(nap) {
                    Ok(()) => return Ok(()),
                    Err(RecvTimeoutError::Timeout) => {}
                    // Nobody can press anything: the caller ends it, and switches over by --merge --cutover.
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(nap),
                }
                source.ping()?;
                target.client.ping()?;
            }
            let pass = self.pass(source, target, known, "following")?;
            if (pass.copied, pass.deleted) != (0, 0) {
                say(json, "following", &pass);
            }
        }
    }

    /// Copies what has changed since `known`, and deletes what has gone.
    fn pass(
        &self,
        source: &mut ZkClient,
        target: &mut Target,
        known: &mut BTreeMap<String, Mark>,
        what: &str,
    ) -> Result<Pass, ZkError> {
        let bar = progress(None, what);
        let mut pass = Pass::default();
        let mut seen: BTreeMap<String, Mark> = BTreeMap::new();
        let copied = RefCell::new((0_u64, BTreeMap::<String, Mark>::new()));
        let mut data: Option<(Vec<u8>, Stat)> = None;
        walk(
            source,
            |_, Seen { path, stat }, waiting| {
                bar.inc(1);
                if is_the_clusters_own(&path) {
                    return Ok(());
                }
                if stat.ephemeral_owner != 0 {
                    pass.ephemerals += 1;
                    return Ok(());
                }
                pass.nodes += 1;
                let mark = Mark::of(&stat);
                if known.get(&path) != Some(&mark) {
                    waiting.push_back(Ask::Data(path.clone()));
                    waiting.push_back(Ask::Acl(path.clone()));
                }
                seen.insert(path, mark);
                Ok(())
            },
            |ask, error, body| {
                let (path, is_data) = match ask {
                    Ask::Data(path) => (path, true),
                    Ask::Acl(path) | Ask::Children(path) => (path, false),
                };
                match (error, is_data) {
                    // It has gone meanwhile; the next pass finds out.
                    (-101, _) => data = None,
                    (0, true) => {
                        let mut input = JuteInput(body);
                        let found = input.buffer()?.unwrap_or_default().to_vec();
                        data = Some((found, Stat::read(&mut input)?));
                    }
                    (0, false) => {
                        if let Some((data, stat)) = data.take() {
                            let acl = read_acls(&mut JuteInput(body))?;
                            let restored = restored(&path, &data, &stat, acl);
                            self.bring(target, &restored, known.contains_key(&path))?;
                            let mut copied = copied.borrow_mut();
                            copied.0 += 1;
                            copied.1.insert(path, Mark::of(&stat));
                        }
                    }
                    (code, _) => return Err(ZkError::Node { path, code }),
                }
                Ok(())
            },
        )?;
        let (count, marks) = copied.into_inner();
        pass.copied = count;
        pass.deleted = delete_gone(target, known, &seen)?;
        target.finish()?;
        bar.finish_and_clear();
        known.retain(|path, _| seen.contains_key(path));
        known.extend(marks);
        Ok(pass)
    }
}

/// Deletes what is known and was not seen, children before their parents; returns how many.
fn delete_gone(
    target: &mut Target,
    known: &BTreeMap<String, Mark>,
    seen: &BTreeMap<String, Mark>,
) -> Result<u64, ZkError> {
    let mut deleted = 0;
    for path in known.keys().rev().filter(|path| !seen.contains_key(*path)) {
        target.delete(path)?;
        deleted += 1;
    }
    Ok(deleted)
}

fn restored<'a>(
    path: &'a str,
    data: &'a [u8],
    stat: &Stat,
    acl: Vec<coordination::wire::Acl>,
) -> RestoredNode<'a> {
    RestoredNode {
        path,
        data: Some(data),
        acl,
        flags: 0,
        ttl: -1,
        version: stat.version,
        creates: creates_of(stat),
        aversion: stat.aversion,
        ctime: stat.ctime.max(0),
        mtime: stat.mtime.max(0),
    }
}

fn say(json: bool, what: &str, pass: &Pass) {
    let Pass { nodes, copied, deleted, ephemerals } = pass;
    if json {
        println!(
            "{}",
            json!({ "pass": what, "nodes": nodes, "copied": copied, "deleted": deleted, "ephemerals_dropped": ephemerals })
        );
    } else {
        println!(
            "{what}: {nodes} nodes, {copied} copied, {deleted} deleted; {ephemerals} ephemeral nodes left out"
        );
    }
}

/// Notified once, when a line comes from standard input; hangs up when that ends without one.
fn enter_pressed() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).is_ok_and(|length| length > 0) {
            // The waiting thread may have ended.
            let _ = sender.send(());
        }
    });
    receiver
}

/// What is compared of a node.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Face {
    /// Versions, times and counts; none where they begin anew.
    counts: Option<(i32, i32, i64, i64, i32, i32)>,
    /// Data and list, where nothing else says that they are the same.
    data: Vec<u8>,
    acls: String,
}

/// All nodes but ephemeral ones and the cluster's own, as they are compared.
fn faces(client: &mut ZkClient, kind: TargetKind) -> Result<BTreeMap<String, Face>, ZkError> {
    let faces: RefCell<BTreeMap<String, Face>> = RefCell::default();
    walk(
        client,
        |_, Seen { path, stat }, waiting| {
            if stat.ephemeral_owner != 0 || is_the_clusters_own(&path) {
                return Ok(());
            }
            let Stat { version, aversion, ctime, mtime, data_length, .. } = stat;
            let counts = match kind {
                TargetKind::Ordinate => {
                    Some((version, aversion, ctime, mtime, data_length, creates_of(&stat)))
                }
                TargetKind::ZooKeeper => {
                    waiting.extend([Ask::Data(path.clone()), Ask::Acl(path.clone())]);
                    None
                }
            };
            faces.borrow_mut().insert(path, Face { counts, ..Face::default() });
            Ok(())
        },
        |ask, error, body| {
            let (path, is_data) = match ask {
                Ask::Data(path) => (path, true),
                Ask::Acl(path) | Ask::Children(path) => (path, false),
            };
            if error != 0 {
                return Err(ZkError::Node { path, code: error });
            }
            let mut faces = faces.borrow_mut();
            let face = faces.entry(path).or_default();
            if is_data {
                let found = JuteInput(body).buffer()?.unwrap_or_default().to_vec();
                face.data = Sha256::digest(found).to_vec();
            } else {
                face.acls = format!("{:?}", read_acls(&mut JuteInput(body))?);
            }
            Ok(())
        },
    )?;
    Ok(faces.into_inner())
}

/// Paths whose nodes are not the same on both sides, or only on one.
fn compare(
    kind: TargetKind,
    known: &BTreeMap<String, Mark>,
    source: &mut ZkClient,
    target: &mut ZkClient,
) -> Result<Vec<String>, ZkError> {
    let (there, here) = (faces(source, kind)?, faces(target, kind)?);
    let differs = |path: &&String| match (here.get(*path), there.get(*path)) {
        (Some(here), Some(there)) => here != there,
        _ => true,
    };
    Ok(known.keys().chain(there.keys()).filter(differs).cloned().collect())
}
