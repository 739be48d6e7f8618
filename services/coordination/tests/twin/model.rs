//! A dumb ZooKeeper: one map, written from its documentation and not from our code.

use coordination::wire::Stat;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
    /// Bits and the digest user; "" for anyone.
    pub(crate) acl: (i32, String),
    pub(crate) creates: i32,
    pub(crate) flags: i32,
    pub(crate) ttl: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { path: String, data: Vec<u8>, flags: i32, ttl: i64, acl: (i32, String), with_stat: bool },
    Delete { path: String, version: i32 },
    Set { path: String, data: Vec<u8>, version: i32 },
    SetAcl { path: String, acl: (i32, String), version: i32 },
    Check { path: String, version: i32 },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Result_ {
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Nothing,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Twin {
    pub(crate) nodes: BTreeMap<String, Node>,
}

fn parent(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/".to_owned(),
        Some((above, _)) => above.to_owned(),
    }
}

fn may(node: &Node, bit: i32, user: &str) -> Result<(), i32> {
    let (bits, who) = &node.acl;
    if bits & bit != 0 && (who.is_empty() || who == user) { Ok(()) } else { Err(-102) }
}

fn bump(found: i32, expected: i32) -> Result<i32, i32> {
    if expected != -1 && expected != found { Err(-103) } else { Ok(found + 1) }
}

impl Twin {
    pub(crate) fn new() -> Self {
        let mut twin = Self::default();
        for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            let bits = if path == "/zookeeper/config" { 1 } else { 31 };
            let acl = (bits, String::new());
            // ZooKeeper sets the list of this node with version -1.
            let aversion = if path == "/zookeeper/config" { -1 } else { 0 };
            let (data, stat) = (Vec::new(), Stat { aversion, ..Stat::default() });
            twin.nodes.insert(path.to_owned(), Node { data, stat, acl, creates: 0, flags: 0, ttl: -1 });
        }
        for (path, count) in [("/", 1), ("/zookeeper", 2)] {
            let stat = &mut twin.nodes.get_mut(path).expect("made above").stat;
            (stat.num_children, stat.cversion) = (count, -count);
        }
        twin
    }

    pub(crate) fn step(
        &mut self,
        step: &Step,
        session: i64,
        user: &str,
        zxid: i64,
        time: i64,
    ) -> Result<Result_, i32> {
        match step {
            Step::Create { path, data, flags, ttl, acl, with_stat } => {
                self.create(path, data, *flags, *ttl, acl, *with_stat, session, user, zxid, time)
            }
            Step::Delete { path, version } => {
                if path == "/" || path == "/zookeeper" {
                    return Err(-8);
                }
                may(self.nodes.get(&parent(path)).ok_or(-101)?, 8, user)?;
                let node = self.nodes.get(path).ok_or(-101)?;
                bump(node.stat.version, *version)?;
                if node.stat.num_children > 0 {
                    return Err(-111);
                }
                self.remove(path, zxid);
                Ok(Result_::Nothing)
            }
            Step::Set { path, data, version } => {
                let node = self.nodes.get_mut(path).ok_or(-101)?;
                may(node, 2, user)?;
                node.stat.version = bump(node.stat.version, *version)?;
                (node.stat.mzxid, node.stat.mtime) = (zxid, time);
                node.stat.data_length = data.len() as i32;
                node.data = data.clone();
                Ok(Result_::Stat(node.stat))
            }
            Step::SetAcl { path, acl, version } => {
                let node = self.nodes.get_mut(path).ok_or(-101)?;
                may(node, 16, user)?;
                node.stat.aversion = bump(node.stat.aversion, *version)?;
                node.acl = acl.clone();
                Ok(Result_::Stat(node.stat))
            }
            Step::Check { path, version } => {
                let node = self.nodes.get(path).ok_or(-101)?;
                may(node, 1, user)?;
                bump(node.stat.version, *version)?;
                Ok(Result_::Nothing)
            }
        }
    }

    fn create(
        &mut self,
        path: &str,
        data: &[u8],
        flags: i32,
        ttl: i64,
        acl: &(i32, String),
        with_stat: bool,
        session: i64,
        user: &str,
        zxid: i64,
        time: i64,
    ) -> Result<Result_, i32> {
        let timed = matches!(flags, 5 | 6);
        if !(0..=6).contains(&flags) || timed != (ttl > 0) {
            return Err(-8);
        }
        let above = self.nodes.get_mut(&parent(path)).ok_or(-101)?;
        may(above, 4, user)?;
        let path =
            if matches!(flags, 2 | 3 | 6) { format!("{path}{:010}", above.creates) } else { path.to_owned() };
        let above_is_ephemeral = above.stat.ephemeral_owner != 0;
        if self.nodes.contains_key(&path) {
            return Err(-110);
        }
        if above_is_ephemeral {
            return Err(-108);
        }
        let owner = if matches!(flags, 1 | 3) { session } else { 0 };
        let stat = Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            ephemeral_owner: owner,
            data_length: data.len() as i32,
            ..Stat::default()
        };
        let node = Node { data: data.to_vec(), stat, acl: acl.clone(), creates: 0, flags, ttl };
        self.nodes.insert(path.clone(), node);
        self.child(&parent(&path), 1, zxid);
        Ok(if with_stat { Result_::PathStat(path, stat) } else { Result_::Path(path) })
    }

    fn child(&mut self, above: &str, change: i32, zxid: i64) {
        let node = self.nodes.get_mut(above).expect("checked by the caller");
        node.creates += i32::from(change > 0);
        node.stat.num_children += change;
        node.stat.cversion = 2 * node.creates - node.stat.num_children;
        node.stat.pzxid = zxid;
    }

    fn remove(&mut self, path: &str, zxid: i64) {
        self.nodes.remove(path);
        self.child(&parent(path), -1, zxid);
    }

    /// All or nothing; codes by step.
    pub(crate) fn multi(
        &mut self,
        steps: &[Step],
        session: i64,
        user: &str,
        zxid: i64,
        time: i64,
    ) -> Result<Vec<Result_>, (usize, i32)> {
        let before = self.nodes.clone();
        let mut results = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            match self.step(step, session, user, zxid, time) {
                Ok(result) => results.push(result),
                Err(code) => {
                    self.nodes = before;
                    return Err((at, code));
                }
            }
        }
        Ok(results)
    }

    pub(crate) fn clean_up(&mut self, session: i64, zxid: i64) {
        let owned = self.nodes.iter().filter(|(_, node)| node.stat.ephemeral_owner == session);
        let owned: Vec<String> = owned.map(|(path, _)| path.clone()).collect();
        owned.iter().for_each(|path| self.remove(path, zxid));
    }

    pub(crate) fn reap(&mut self, path: &str, zxid: i64, time: i64) {
        let served = self.nodes.get(path).is_some_and(|node| {
            let timed = matches!(node.flags, 5 | 6) && time - node.stat.mtime > node.ttl;
            node.stat.num_children == 0 && (timed || node.flags == 4 && node.creates > 0)
        });
        if served {
            self.remove(path, zxid);
        }
    }

    pub(crate) fn children(&self, path: &str) -> Vec<&str> {
        let below = self.nodes.keys().filter(|found| *found != "/" && parent(found) == path);
        below.filter_map(|found| found.rsplit_once('/').map(|(_, name)| name)).collect()
    }
}
