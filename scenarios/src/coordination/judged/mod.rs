//! A shard of znodes beside a model of the whole tree, and of what is watched at its server.
//!
//! Every answer is the model's, also that of each operation over several shards; each node that an operation has touched is; whom a
//! change is announced to is; and so are reads at servers that have executed all that any server of their shard has.

mod queries;
mod sessions;
mod tree;
mod watched;

use coordination::wire::{
    Caller, Code, EventKind, Identity, JuteInput, Query, Stat, WatchSeq, is_open, op, read_acls,
};
use coordination::{Placement, Znodes};
use kernel::{BlobRange, Bytes, DecodeError, NodeId, Recount, SnapshotStep, invariant};
use mason::{Gsn, Order, Resharded, Shard, ShardMap, ShardOut, Space};
pub(crate) use sessions::JudgedSessions;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tree::{Shown, Tree};
use watched::{CHILD, DATA, Moved, PERSISTENT, RECURSIVE, Watched, own_watches};

/// The model that all servers of a run share, and what watches have moved between servers of one host.
#[derive(Clone, Debug)]
pub(crate) struct SharedTree(Rc<RefCell<Tree>>, Rc<RefCell<Moved>>);

impl SharedTree {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(Tree::new())), Rc::default())
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct JudgedTree {
    znodes: Znodes,
    space: Space,
    placement: Placement,
    tree: SharedTree,
    watched: Watched,
    /// Of its host's incarnation.
    number: u64,
    /// Of the last operation; none while a snapshot is installed.
    gsn: Option<u64>,
}

impl JudgedTree {
    pub(crate) fn new(space: Space, placement: Placement, number: u64, tree: SharedTree) -> Self {
        let (znodes, watched) = (Znodes::new(space, placement, number), Watched::default());
        Self { znodes, space, placement, tree, watched, number, gsn: Some(0) }
    }

    /// The shard itself.
    pub(crate) fn znodes(&self) -> &Znodes {
        &self.znodes
    }

    fn is_newest(&self) -> bool {
        self.gsn.is_some_and(|gsn| self.tree.0.borrow().is_newest(self.space, gsn))
    }

    fn owns(&self, path: &str) -> bool {
        self.placement.space_of(path) == self.space
    }

    /// A node is what the model has, in all that a superuser reads of it.
    fn judge_node(&mut self, path: &str) {
        let caller = Caller::of(&[Identity::new("super", "")]);
        for opcode in [op::GET_DATA, op::GET_CHILDREN2, op::GET_ACL] {
            let query = Query::Node { caller: caller.borrowed(), opcode, path, watch: None }.written();
            let mut answer = Vec::new();
            self.znodes.read(NodeId::ZERO, &query, &mut answer);
            self.judge_read(&caller, opcode, path, &answer);
        }
    }

    fn judge_read(&self, caller: &Caller<'_>, opcode: i32, path: &str, answer: &[u8]) {
        let tree = self.tree.0.borrow();
        let mut wanted = tree.shown(caller, opcode, path).map_err(Code::number);
        let given = read_shown(opcode, answer, tree.acl(path).unwrap_or_default());
        if let (Some(Ok(Shown { changed: 0, .. })), Ok(wanted)) = (&given, &mut wanted) {
            // What was skipped goes out behind all that the shard had executed.
            wanted.changed = 0;
        }
        invariant!(
            LIN,
            given.as_ref() == Some(&wanted),
            "shard {} answers {opcode} of {path} with {:.300}, and the model says {:.300}",
            self.space,
            format!("{given:?}"),
            format!("{wanted:?}")
        );
    }

    /// All nodes that live here are the model's, and no other is here.
    fn judge_all(&mut self) {
        if !self.is_newest() {
            return;
        }
        let here: BTreeSet<String> = self.znodes.paths().map(str::to_owned).collect();
        let wanted: BTreeSet<String> = {
            let tree = self.tree.0.borrow();
            tree.paths().filter(|path| self.owns(path)).map(str::to_owned).collect()
        };
        let other = here.symmetric_difference(&wanted).next();
        invariant!(LIN, other.is_none(), "{other:?} is in shard {} or in the model of it alone", self.space);
        here.iter().for_each(|path| self.judge_node(path));
    }

    fn judge_query(&mut self, reader: NodeId, query: &[u8], answer: &[u8]) {
        let is_newest = self.is_newest();
        match Query::read(query) {
            Ok(Query::Node { caller, opcode, path, watch }) => {
                if is_newest {
                    self.judge_read(&caller, opcode, path, answer);
                }
                if let (Some(seq), Some(code)) = (watch, code_of(answer)) {
                    let kinds = match (opcode, code) {
                        (op::EXISTS, 0 | -101) | (op::GET_DATA, 0) => DATA,
                        (op::GET_CHILDREN | op::GET_CHILDREN2, 0) => CHILD,
                        _ => return,
                    };
                    self.watched.register(reader, path, kinds, seq);
                }
            }
            Ok(Query::SetWatches { seq, relative_zxid, paths, lasting }) => {
                self.judge_missed(reader, (seq, relative_zxid), &paths, answer);
                for (kinds, paths) in [PERSISTENT, RECURSIVE].into_iter().zip(&lasting) {
                    paths.iter().for_each(|path| self.watched.register(reader, path, kinds, seq));
                }
            }
            Ok(Query::Forget { through, paths }) => {
                paths.iter().for_each(|path| self.watched.forget(reader, path, through));
            }
            Ok(
                survey @ (Query::Nodes { .. }
                | Query::Ephemerals { .. }
                | Query::Owners { .. }
                | Query::Descendants { .. }
                | Query::Reapable { .. }
                | Query::Sizes
                | Query::Quotas { .. }),
            ) => self.judge_survey(&survey, answer),
            Err(_) => {}
        }
    }

    /// What a client that comes back has missed is answered, the rest is watched.
    fn judge_missed(
        &mut self,
        reader: NodeId,
        (seq, since): (WatchSeq, i64),
        paths: &[Vec<&str>; 3],
        answer: &[u8],
    ) {
        let mut given = Vec::new();
        let mut input = JuteInput(answer.get(12..).unwrap_or_default());
        while let (Ok(kind), Ok(path)) = (input.i32(), input.text()) {
            given.push((kind, path));
        }
        let kinds = [EventKind::DataChanged, EventKind::Created, EventKind::ChildrenChanged];
        let all = kinds
            .into_iter()
            .zip(paths)
            .flat_map(|(kind, paths)| paths.iter().map(move |path| (kind, *path)));
        let mut reported = given.iter().copied().peekable();
        for (watched, path) in all {
            let missed = self.tree.0.borrow().missed(path, watched, since).map(|kind| kind as i32);
            let said = reported.next_if(|(kind, at)| {
                *at == path
                    && (missed == Some(*kind)
                        || *kind == watched as i32
                        || *kind == EventKind::Deleted as i32)
            });
            invariant!(
                WATCH,
                !self.is_newest() || said.map(|(kind, _)| kind) == missed,
                "{reader} is answered {said:?} of {path} since {since:#x}, and the model says {missed:?}"
            );
            if said.is_none() {
                let kinds = if watched == EventKind::ChildrenChanged { CHILD } else { DATA };
                self.watched.register(reader, path, kinds, seq);
            }
        }
    }
}

fn code_of(answer: &[u8]) -> Option<i32> {
    JuteInput(answer.get(8..)?).i32().ok()
}

/// What an answer shows of a node whose list is `list`, or its error; none if it does not decode.
fn read_shown(opcode: i32, answer: &[u8], list: &[coordination::wire::Acl]) -> Option<Result<Shown, i32>> {
    let mut input = JuteInput(answer);
    let (changed, code) = (input.u64().ok()?, input.i32().ok()?);
    if code != 0 {
        return (changed == 0 && input.0.is_empty()).then_some(Err(code));
    }
    let (mut data, mut names) = (None, Vec::new());
    match opcode {
        op::GET_DATA => data = input.buffer().ok()?.map(Rc::from),
        op::GET_CHILDREN | op::GET_CHILDREN2 => {
            names = input.texts().ok()?.into_iter().map(str::to_owned).collect();
            names.sort_unstable();
        }
        op::GET_ACL => {
            let given = read_acls(&mut input).ok()?;
            let same = given == list || is_open(&given) && is_open(list);
            same.then_some(())?;
        }
        _ => {}
    }
    let stat = if opcode == op::GET_CHILDREN { Stat::default() } else { Stat::read(&mut input).ok()? };
    input.0.is_empty().then_some(Ok(Shown { changed, stat, data, names }))
}

impl Shard for JudgedTree {
    fn inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>) {
        self.znodes.inputs(body, order, out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        let mut own = ShardOut::default();
        self.znodes.execute(body, order, others, &mut own);
        let (answer, notices) = own.into_parts();
        let (executed, is_first) = self.tree.0.borrow_mut().execute(body, order);
        invariant!(
            LIN,
            answer == executed.answer,
            "shard {} answers operation {:#x} with {answer:?}, and the model with {:?}",
            self.space,
            order.gsn.0,
            executed.answer
        );
        let placement = self.placement;
        let here = executed.events.iter().filter(|event| placement.space_of(&event.path) == self.space);
        self.watched.judge(order.gsn.0, executed.is_clean_up, here, &notices);
        self.gsn = Some(order.gsn.0);
        if is_first {
            let touched: Vec<&String> = executed.touched.iter().filter(|path| self.owns(path)).collect();
            touched.into_iter().for_each(|path| self.judge_node(path));
        }
        out.answer().extend(answer);
        notices.into_iter().for_each(|(reader, notice)| out.notify(reader, notice));
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        let (at, known) = (out.len(), self.znodes.answer_bytes(query));
        let range = self.znodes.read(reader, query, out);
        let bytes = out.len() - at;
        invariant!(
            BOUND,
            known.is_none_or(|known| known == bytes),
            "an answer of {bytes} bytes was said to have {known:?}"
        );
        let answer = out[at..].to_vec();
        self.judge_query(reader, query, &answer);
        range
    }

    fn answer_bytes(&self, query: &[u8]) -> Option<usize> {
        self.znodes.answer_bytes(query)
    }

    fn forget_reader(&mut self, reader: NodeId) {
        self.watched.forget_reader(reader);
        self.znodes.forget_reader(reader);
    }

    fn begin_snapshot(&mut self) {
        self.judge_all();
        self.znodes.begin_snapshot();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        self.znodes.snapshot_step(budget, chunk)
    }

    fn reset(&mut self) {
        self.gsn = None;
        self.znodes.reset();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.znodes.install(chunk)?;
        self.gsn = Some(self.znodes.gsn());
        Ok(())
    }

    fn remark(&mut self) -> Option<Bytes> {
        self.znodes.remark()
    }

    fn installed(&mut self, out: &mut ShardOut) {
        self.znodes.installed(out);
        self.watched.begin_with(&self.znodes);
        self.judge_all();
    }

    fn as_resharded(&self) -> Option<&dyn Resharded> {
        Some(self)
    }

    fn as_resharded_mut(&mut self) -> Option<&mut dyn Resharded> {
        Some(self)
    }

    fn digest(&self) -> u64 {
        self.znodes.digest()
    }

    fn recounts(&self) -> Vec<Recount> {
        self.znodes.recounts()
    }
}

impl Resharded for JudgedTree {
    fn use_shard_map(&mut self, shard_map: &ShardMap) {
        self.placement = self.placement.over(shard_map.shards);
        self.znodes.use_shard_map(shard_map);
    }

    fn leaving(&self, shard_map: &ShardMap, page_bytes: usize) -> Vec<(Space, Vec<Bytes>)> {
        self.znodes.leaving(shard_map, page_bytes)
    }

    fn watches_leaving(&mut self, shard_map: &ShardMap, through: Gsn) -> Vec<(Space, Bytes)> {
        let before = own_watches(&self.znodes);
        let leaving = self.znodes.watches_leaving(shard_map, through);
        self.tree.1.borrow_mut().leave(self.number, before, &own_watches(&self.znodes));
        self.watched.begin_with(&self.znodes);
        leaving
    }

    fn reshard(&mut self, shard_map: &ShardMap, order: &Order, pages: &[(Space, Vec<Bytes>)]) {
        self.znodes.reshard(shard_map, order, pages);
        self.placement = self.placement.over(shard_map.shards);
        self.gsn = Some(order.gsn.0);
        self.tree.0.borrow_mut().note(order);
        self.watched.begin_with(&self.znodes);
        self.judge_all();
    }

    fn take_watches(&mut self, watches: &Bytes, out: &mut ShardOut) {
        self.znodes.take_watches(watches, out);
        self.tree.1.borrow().check_taken(self.number, own_watches(&self.znodes));
        self.watched.begin_with(&self.znodes);
    }
}
