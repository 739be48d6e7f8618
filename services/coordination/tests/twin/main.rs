//! The tree held against a dumb twin: the same random operations on one shard, on four and on the twin must be answered alike,
//! and leave the same nodes.

mod model;
mod shards;

use crate::model::{Result_, Step, Twin};
use crate::shards::Shards;
use coordination::Placement;
use coordination::wire::{
    Acl, Body, Caller, ConnectionEpoch, Identity, JuteInput, JuteOutput, Query, Stat, WriteHead, ZkSessionId,
    op, write_acls,
};
use kernel::{Bytes, NodeId, Rng};
use mason::Shard;
use std::collections::BTreeSet;

const USERS: [&str; 3] = ["", "ann:x", "bob:y"];

fn caller(user: &str) -> Caller<'static> {
    let digest = (!user.is_empty()).then(|| Identity::new("digest", user));
    Caller::of(digest.as_slice())
}

fn acls((bits, user): &(i32, String)) -> Vec<Acl> {
    let who = if user.is_empty() { Identity::new("world", "anyone") } else { Identity::new("digest", user) };
    vec![Acl { permissions: *bits, who }]
}

fn opcode(step: &Step) -> i32 {
    match step {
        Step::Create { flags: 5 | 6, .. } => op::CREATE_TTL,
        Step::Create { with_stat: true, .. } => op::CREATE2,
        Step::Create { .. } => op::CREATE,
        Step::Delete { .. } => op::DELETE,
        Step::Set { .. } => op::SET_DATA,
        Step::SetAcl { .. } => op::SET_ACL,
        Step::Check { .. } => op::CHECK,
    }
}

fn request(step: &Step, out: &mut Vec<u8>) {
    match step {
        Step::Create { path, data, flags, ttl, acl, .. } => {
            out.put_text(path);
            out.put_buffer(Some(data));
            write_acls(&acls(acl), out);
            out.put_i32(*flags);
            if matches!(flags, 5 | 6) {
                out.put_i64(*ttl);
            }
        }
        Step::Delete { path, version } | Step::Check { path, version } => {
            out.put_text(path);
            out.put_i32(*version);
        }
        Step::Set { path, data, version } => {
            out.put_text(path);
            out.put_buffer(Some(data));
            out.put_i32(*version);
        }
        Step::SetAcl { path, acl, version } => {
            out.put_text(path);
            write_acls(&acls(acl), out);
            out.put_i32(*version);
        }
    }
}

fn result(result: &Result_, out: &mut Vec<u8>) {
    match result {
        Result_::Path(path) => out.put_text(path),
        Result_::PathStat(path, stat) => {
            out.put_text(path);
            stat.write(out);
        }
        Result_::Stat(stat) => stat.write(out),
        Result_::Nothing => {}
    }
}

fn header(kind: i32, done: u8, error: i32, out: &mut Vec<u8>) {
    out.put_i32(kind);
    out.push(done);
    out.put_i32(error);
}

fn random_path(rng: &mut Rng) -> String {
    const NAMES: [&str; 5] = ["a", "b", "a0000000001", "a0000000002", "b0000000001"];
    let depth = 1 + rng.index(3);
    (0..depth).map(|_| format!("/{}", NAMES[rng.index(NAMES.len())])).collect()
}

fn random_acl(rng: &mut Rng) -> (i32, String) {
    if rng.chance(0.85) {
        (31, String::new())
    } else {
        (rng.below(32) as i32, USERS[rng.index(3)].to_owned())
    }
}

fn random_step(rng: &mut Rng) -> Step {
    let version = if rng.chance(0.6) { -1 } else { rng.below(3) as i32 };
    let data = vec![rng.below(256) as u8; rng.index(5)];
    let path = if rng.chance(0.03) { "/".to_owned() } else { random_path(rng) };
    match rng.below(10) {
        0..=4 => {
            let flags = [0, 0, 0, 0, 1, 2, 2, 3, 4, 5, 6][rng.index(11)];
            let ttl = if flags >= 5 { 1 + rng.below(50) as i64 } else { -1 };
            let with_stat = flags >= 5 || rng.chance(0.3);
            let path = match flags {
                2 | 3 | 6 if path != "/" && rng.chance(0.3) => format!("{path}/"),
                _ => path,
            };
            Step::Create { path, data, flags, ttl, acl: random_acl(rng), with_stat }
        }
        5 | 6 => Step::Delete { path, version },
        7 => Step::Set { path, data, version },
        8 => Step::SetAcl { path, acl: random_acl(rng), version },
        _ => Step::Check { path, version },
    }
}

struct Trial {
    rng: Rng,
    twin: Twin,
    shards: Shards,
    /// What readers were sent.
    reported: Vec<(NodeId, Bytes)>,
    gsn: u64,
    time: u64,
    succeeded: u32,
    failed: u32,
}

impl Trial {
    fn new(seed: u64, shards: u16) -> Self {
        Self::of(seed, Placement::new(shards))
    }

    fn of(seed: u64, placement: Placement) -> Self {
        let (rng, twin, shards) = (Rng::seeded(seed), Twin::new(), Shards::of(placement));
        Self { rng, twin, shards, reported: Vec::new(), gsn: 0, time: 1000, succeeded: 0, failed: 0 }
    }

    fn write(&mut self, opcode: i32, request: &[u8], session: i64, user: &str) -> Vec<u8> {
        let head = WriteHead {
            session: ZkSessionId(session as u64),
            epoch: ConnectionEpoch(1),
            ephemeral: false,
            ttl_allowed: true,
            caller: caller(user),
            opcode,
        };
        self.execute(&Body::Write { head, request })
    }

    fn execute(&mut self, body: &Body<'_>) -> Vec<u8> {
        let (answer, reported) = self.shards.execute(body, self.gsn, self.time);
        self.reported.extend(reported);
        answer
    }

    fn one(&mut self) {
        self.gsn += 1 + self.rng.below(3);
        self.time += self.rng.below(20);
        let (session, user) = (1 + self.rng.below(3) as i64, USERS[self.rng.index(3)]);
        let (zxid, time) = (self.gsn as i64, self.time as i64);
        match self.rng.below(40) {
            0 => {
                self.twin.clean_up(session, zxid);
                let body = Body::CleanUp { session: ZkSessionId(session as u64), spaces: Vec::new() };
                self.execute(&body);
            }
            1..=3 => {
                let paths: Vec<&String> = self.twin.nodes.keys().collect();
                let path = (*self.rng.pick(&paths).expect("never empty")).clone();
                self.twin.reap(&path, zxid, time);
                self.execute(&Body::Reap { path: &path });
            }
            4..=15 => {
                let steps: Vec<Step> = (0..self.rng.index(6)).map(|_| random_step(&mut self.rng)).collect();
                // setACL is not allowed in a multi.
                let steps: Vec<Step> =
                    steps.into_iter().filter(|step| !matches!(step, Step::SetAcl { .. })).collect();
                self.multi(&steps, session, user);
            }
            _ => {
                let step = random_step(&mut self.rng);
                let mut bytes = Vec::new();
                request(&step, &mut bytes);
                let answer = self.write(opcode(&step), &bytes, session, user);
                let mut expected = Vec::new();
                match self.twin.step(&step, session, user, zxid, time) {
                    Ok(found) => {
                        self.succeeded += 1;
                        expected.put_i32(0);
                        result(&found, &mut expected);
                    }
                    Err(code) => {
                        self.failed += 1;
                        expected.put_i32(code);
                    }
                }
                assert_eq!(answer, expected, "{step:?} of {session} as {user:?} at {}", self.gsn);
            }
        }
    }

    fn multi(&mut self, steps: &[Step], session: i64, user: &str) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for step in steps {
            header(opcode(step), 0, -1, &mut bytes);
            request(step, &mut bytes);
        }
        header(-1, 1, -1, &mut bytes);
        let answer = self.write(op::MULTI, &bytes, session, user);
        expected.put_i32(0);
        // As a step of a multi, whatever makes a container answers with its stat.
        let as_step = |step: &Step| {
            let mut step = step.clone();
            if let Step::Create { flags: 4, with_stat, .. } = &mut step {
                *with_stat = true;
            }
            step
        };
        let steps: Vec<Step> = steps.iter().map(as_step).collect();
        let steps = &steps[..];
        match self.twin.multi(steps, session, user, self.gsn as i64, self.time as i64) {
            Ok(results) => {
                for (step, found) in steps.iter().zip(&results) {
                    let kind = if opcode(step) == op::CREATE_TTL { op::CREATE2 } else { opcode(step) };
                    header(kind, 0, 0, &mut expected);
                    result(found, &mut expected);
                }
            }
            Err((at, code)) => {
                for tried in 0..steps.len() {
                    let code = [0, code, -2][usize::from(tried >= at) + usize::from(tried > at)];
                    header(-1, 0, code, &mut expected);
                    expected.put_i32(code);
                }
            }
        }
        header(-1, 1, -1, &mut expected);
        assert_eq!(answer, expected, "{steps:?} of {session} as {user:?} at {}", self.gsn);
    }

    /// Every node of the twin is there with data, stat and children, and no other.
    fn compare(&mut self) {
        let all: usize = self.shards.shards.iter().map(|shard| shard.len()).sum();
        assert_eq!(all, self.twin.nodes.len());
        let admin = Caller::of(&[Identity::new("super", "")]);
        for (path, node) in &self.twin.nodes {
            let query = |opcode| Query::Node { caller: admin.clone(), opcode, path, watch: None };
            let (code, data) = self.shards.read(path, &query(op::GET_DATA));
            let mut input = JuteInput(&data);
            assert_eq!((code, input.buffer()), (0, Ok(Some(&node.data[..]))), "{path}");
            assert_eq!(Stat::read(&mut input), Ok(node.stat), "{path}");
            let (_, children) = self.shards.read(path, &query(op::GET_CHILDREN));
            assert_eq!(JuteInput(&children).texts(), Ok(self.twin.children(path)), "{path}");
        }
    }
}

// A tree that answers otherwise when it is sharded is not the one that clients know.
#[test]
fn one_shard_four_shards_and_the_twin_agree() {
    for shards in [1, 4, 7] {
        let (mut succeeded, mut failed) = (0, 0);
        for seed in 0..60 {
            let mut trial = Trial::new(seed, shards);
            for round in 0..400 {
                trial.one();
                if round % 50 == 49 {
                    trial.compare();
                }
            }
            (succeeded, failed) = (succeeded + trial.succeeded, failed + trial.failed);
        }
        assert!(succeeded > 2000 && failed > 2000, "{succeeded} {failed}");
    }
}

// A snapshot torn by what is executed meanwhile restores a tree that never was.
#[test]
fn a_snapshot_is_of_the_moment_it_began() {
    for seed in 0..60 {
        let mut trial = Trial::new(1000 + seed, 1 + (seed % 3) as u16);
        (0..150).for_each(|_| trial.one());
        // A directory whose names take several chunks.
        for n in 0..(seed % 4) * 100 {
            trial.gsn += 1;
            let path = format!("/n{n:0>20}");
            let step = Step::Create {
                path,
                data: vec![],
                flags: 0,
                ttl: -1,
                acl: (31, String::new()),
                with_stat: false,
            };
            let mut bytes = Vec::new();
            request(&step, &mut bytes);
            trial.write(op::CREATE, &bytes, 1, "");
            let (zxid, time) = (trial.gsn as i64, trial.time as i64);
            assert!(trial.twin.step(&step, 1, "", zxid, time).is_ok());
        }
        let budget = 1 + trial.rng.index(400);
        let mut shards = std::mem::replace(&mut trial.shards, Shards::new(1));
        let expected = shards.shards[0].digest();
        let copy = shards.copy(0, budget, |shards| {
            std::mem::swap(&mut trial.shards, shards);
            (0..3).for_each(|_| trial.one());
            std::mem::swap(&mut trial.shards, shards);
        });
        assert_eq!(copy.digest(), expected, "seed {seed}");
        // And the copy goes on as the original does.
        let now = shards.shards[0].digest();
        shards.shards[0] = shards.copy(0, 1 << 20, |_| {});
        assert_eq!(shards.shards[0].digest(), now);
        trial.shards = shards;
        (0..100).for_each(|_| trial.one());
        trial.compare();
    }
}

// A server that jumps ahead by a snapshot executes nothing on the way: what was watched meanwhile must be announced.
#[test]
fn watches_outlive_an_installed_snapshot() {
    let (reader, admin) = (kernel::NodeId::from_u64(7), Caller::of(&[Identity::new("super", "")]));
    let mut reported = 0;
    for seed in 0..40 {
        let mut trial = Trial::new(2000 + seed, 1);
        (0..60).for_each(|_| trial.one());
        let mut lagging = trial.shards.copy(0, 1 << 20, |_| {});
        let before = trial.twin.clone();
        let paths: Vec<String> = (0..12).map(|_| random_path(&mut trial.rng)).collect();
        for (path, opcode) in paths.iter().flat_map(|path| [(path, op::EXISTS), (path, op::GET_CHILDREN)]) {
            let watch = Some(coordination::wire::WatchSeq(1));
            let query = Query::Node { caller: admin.clone(), opcode, path, watch };
            lagging.read(reader, &query.written(), &mut Vec::new());
        }
        (0..20).for_each(|_| trial.one());
        trial.shards.shards[0].begin_snapshot();
        let mut chunk = Vec::new();
        while trial.shards.shards[0].snapshot_step(1 << 20, &mut chunk) == kernel::SnapshotStep::More {}
        lagging.reset();
        assert_eq!(lagging.install(&chunk), Ok(()));
        let mut out = mason::ShardOut::default();
        lagging.installed(&mut out);
        let notices = out.into_parts().1;
        let events: Vec<(i32, String)> = notices
            .iter()
            .flat_map(|(_, body)| coordination::wire::WatchEvent::read_all(body).expect("as shards write it"))
            .map(|event| (event.kind, event.path.to_owned()))
            .collect();
        for path in &paths {
            let (old, new) = (before.nodes.get(path), trial.twin.nodes.get(path));
            let has = |kind: i32| events.contains(&(kind, path.clone()));
            match (old, new) {
                (None, None) => assert!(!has(1) && !has(2) && !has(3) && !has(4), "seed {seed} {path}"),
                (None, Some(_)) => assert!(has(1), "seed {seed} {path}"),
                (Some(_), None) => assert!(has(2), "seed {seed} {path}"),
                (Some(old), Some(new)) => {
                    assert_eq!(has(1) || has(3), old.stat.mzxid != new.stat.mzxid, "seed {seed} {path}");
                    assert_eq!(has(4), old.stat.pzxid != new.stat.pzxid, "seed {seed} {path}");
                    // The event has the snapshot's number: an answer with the change's own would go out before it.
                    let query = Query::Node { caller: admin.clone(), opcode: op::EXISTS, path, watch: None };
                    let mut answer = Vec::new();
                    lagging.read(reader, &query.written(), &mut answer);
                    let changed = old.stat.mzxid != new.stat.mzxid || old.stat.pzxid != new.stat.pzxid;
                    assert_eq!(answer[..8] == [0; 8], changed, "seed {seed} {path}");
                }
            }
        }
        reported += events.len();
    }
    assert!(reported > 40, "{reported} events only");
}

fn events(reported: &[(NodeId, Bytes)]) -> Vec<(i32, String)> {
    let of = |(_, body): &(NodeId, Bytes)| {
        let events = coordination::wire::WatchEvent::read_all(body).expect("as shards write it");
        events.into_iter().map(|event| (event.kind, event.path.to_owned())).collect::<Vec<_>>()
    };
    reported.iter().flat_map(of).collect()
}

// A node that is lost, doubled, or comes without its children's names, its version or its owner is another tree than was handed over.
#[test]
fn a_tree_that_was_handed_over_is_the_same() {
    for seed in 0..60 {
        let levels = (seed % 3) as u16;
        let mut trial = Trial::of(3000 + seed, Placement::new(1 + (seed % 4) as u16).resharding(levels));
        for _ in 0..6 {
            (0..60).for_each(|_| trial.one());
            let shards = 1 + trial.rng.below(7) as u16;
            let page_bytes = 1 + trial.rng.index(2000);
            trial.gsn += 1;
            let gsn = trial.gsn;
            assert_eq!(trial.shards.reshard(shards, gsn, page_bytes), [], "nobody watches");
            assert!(trial.shards.shards.iter().all(|shard| shard.misplaced().is_none()));
            trial.compare();
        }
        let copy = trial.shards.copy(0, 100, |_| {});
        assert_eq!(copy.digest(), trial.shards.shards[0].digest(), "seed {seed}");
    }
}

// A watch that stays behind never fires; one that both have fires twice.
#[test]
fn watches_fire_where_their_nodes_are() {
    let (reader, admin) = (NodeId::from_u64(7), Caller::of(&[Identity::new("super", "")]));
    let mut fired = 0;
    for seed in 0..60 {
        let mut trial = Trial::of(4000 + seed, Placement::new(2));
        (0..60).for_each(|_| trial.one());
        let paths: BTreeSet<String> = (0..12).map(|_| random_path(&mut trial.rng)).collect();
        for path in &paths {
            let watch = Some(coordination::wire::WatchSeq(1));
            let query = Query::Node { caller: admin.clone(), opcode: op::EXISTS, path, watch };
            trial.shards.read_as(reader, path, &query);
        }
        let below = (trial.rng.chance(0.5)).then_some("/a");
        for space in 0..below.map_or(0, |_| 2) {
            let (seq, lasting) = (coordination::wire::WatchSeq(2), [vec![], vec!["/a"]]);
            let query = Query::SetWatches { seq, relative_zxid: 0, paths: Default::default(), lasting };
            trial.shards.shards[space].read(reader, &query.written(), &mut Vec::new());
        }
        for shards in [5, 3, 1, 4] {
            trial.gsn += 1;
            let gsn = trial.gsn;
            let reported = trial.shards.reshard(shards, gsn, 100);
            assert_eq!(
                reported,
                [],
                "seed {seed} {shards} nothing has happened to any node; {:?}",
                events(&reported)
                    .iter()
                    .map(|(k, p)| (
                        *k,
                        p.clone(),
                        trial.twin.nodes.get(p).map(|n| n.stat),
                        trial.shards.placement.space_of(p)
                    ))
                    .collect::<Vec<_>>()
            );
        }
        trial.reported.clear();
        let mut waiting = paths;
        for _ in 0..80 {
            let before = trial.twin.clone();
            trial.one();
            let reported = events(&std::mem::take(&mut trial.reported));
            let is_below = |path: &str| below.is_some_and(|above| path == above || path.starts_with("/a/"));
            for path in before.nodes.keys().chain(trial.twin.nodes.keys()).collect::<BTreeSet<_>>() {
                let (old, new) = (before.nodes.get(path), trial.twin.nodes.get(path));
                let changed = old.map(|node| node.stat.mzxid) != new.map(|node| node.stat.mzxid);
                let due = changed && (is_below(path) || waiting.contains(path));
                let count = reported.iter().filter(|(kind, reported)| reported == path && *kind != 4).count();
                if due {
                    // One step of a multi may undo another's: then more than one thing has happened.
                    assert!(count >= 1, "seed {seed} {path}: {reported:?}");
                    fired += 1;
                } else if !changed && count == 0 {
                    continue;
                }
                waiting.remove(path);
            }
        }
    }
    assert!(fired > 100, "{fired} only");
}
