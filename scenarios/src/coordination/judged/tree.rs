//! The whole tree of znodes as ZooKeeper describes it: one map, executed in the order of the global sequence numbers.
//!
//! No shards, no inputs of others, no number beside what it counts: children are counted where a count is asked for.

use coordination::wire::{
    Acl, Body, Caller, Code, Create, EventKind, Identity, JuteOutput, Malformed, Mode, Permission, Stat,
    Update, WriteHead, WriteOperation, allowed, fixed, name_of, op, parent_of, sequential_name, validate,
};
use kernel::invariant;
use mason::{Order, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The longest time to live, in milliseconds.
const TTL_MAX: i64 = (1 << 40) - 1;
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 65_535;
/// Nodes that nobody deletes.
pub(super) const ESSENTIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", CONFIG];
const CONFIG: &str = "/zookeeper/config";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Persistent,
    Ephemeral(u64),
    Container,
    Ttl(u64),
}

#[derive(Clone, Debug)]
struct Znode {
    data: Option<Rc<[u8]>>,
    acl: Rc<[Acl]>,
    kind: Kind,
    czxid: u64,
    mzxid: u64,
    pzxid: u64,
    ctime: u64,
    mtime: u64,
    version: i32,
    creates: i32,
    aversion: i32,
}

/// What happens to those who watch a node.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Happened {
    pub(super) position: u32,
    pub(super) kind: EventKind,
    pub(super) path: String,
    pub(super) acl: Rc<[Acl]>,
}

/// What an operation came to.
#[derive(Debug, Default)]
pub(super) struct Executed {
    pub(super) answer: Vec<u8>,
    pub(super) events: Vec<Happened>,
    /// Several shards count the events of a clean-up each by itself.
    pub(super) is_clean_up: bool,
    /// Nodes that have come, gone or changed.
    pub(super) touched: BTreeSet<String>,
}

/// What a read shows of a node.
#[derive(PartialEq, Debug)]
pub(super) struct Shown {
    pub(super) changed: u64,
    pub(super) stat: Stat,
    pub(super) data: Option<Rc<[u8]>>,
    pub(super) names: Vec<String>,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Znode>,
    executed: BTreeMap<u64, Rc<Executed>>,
    /// The last operation that concerns a shard, as far as any server has come.
    last: BTreeMap<Space, u64>,
}

fn open_list() -> Rc<[Acl]> {
    Rc::new([Acl { permissions: 31, who: Identity::new("world", "anyone") }])
}

impl Tree {
    pub(super) fn new() -> Self {
        let mut nodes = BTreeMap::new();
        for path in ESSENTIAL {
            let readable = [Acl { permissions: 1, who: Identity::new("world", "anyone") }];
            let (acl, aversion) = if path == CONFIG { (readable.into(), -1) } else { (open_list(), 0) };
            let data = Some(Rc::from(&b""[..]));
            let node = Znode { data, acl, aversion, ..Znode::at(0, 0, Kind::Persistent) };
            nodes.insert(path.to_owned(), node);
        }
        Self { nodes, executed: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// True if a server that has executed this last has all that any server of its shard has executed.
    pub(super) fn is_newest(&self, space: Space, gsn: u64) -> bool {
        self.last.get(&space).is_none_or(|&last| gsn >= last)
    }

    /// Somebody has executed what has these numbers.
    pub(super) fn note(&mut self, order: &Order) {
        for placed in &order.numbers {
            let last = self.last.entry(placed.space).or_insert(0);
            *last = order.gsn.0.max(*last);
        }
    }

    /// What the operation comes to, and whether this is the first that is heard of it. Every shard executes what comes before in it first,
    /// and says so to the others: where an operation is executed first, all that it depends on was executed here before.
    pub(super) fn execute(&mut self, body: &[u8], order: &Order) -> (Rc<Executed>, bool) {
        if let Some(known) = self.executed.get(&order.gsn.0) {
            return (Rc::clone(known), false);
        }
        self.note(order);
        let mut executed = Executed::default();
        if self.carry_out(body, order, &mut executed) == Err(Malformed) {
            executed.answer.clear();
            executed.answer.put_i32(Code::MarshallingError.number());
        }
        let executed = Rc::new(executed);
        self.executed.insert(order.gsn.0, Rc::clone(&executed));
        (executed, true)
    }

    fn carry_out(&mut self, body: &[u8], order: &Order, out: &mut Executed) -> Result<(), Malformed> {
        match Body::read(body)? {
            Body::Write { head, request } => {
                let operation = head.operation(request)?;
                self.write(&head, &operation, order, out);
            }
            Body::CleanUp { session, .. } => {
                out.is_clean_up = true;
                let owned = self.nodes.iter().filter(|(_, node)| node.kind == Kind::Ephemeral(session.0));
                let paths: Vec<String> = owned.map(|(path, _)| path.clone()).collect();
                (0..).zip(paths).for_each(|(position, path)| self.remove(&path, position, order, out));
            }
            Body::Reap { path } => {
                let is_over = self.nodes.get(path).is_some_and(|node| node.has_served(order.time));
                if is_over && self.children(path).next().is_none() {
                    self.remove(path, 0, order, out);
                }
            }
            Body::Advertise { host, line, members } => self.advertise((host, line), &members, order, out),
            Body::Open { .. } | Body::Attach { .. } | Body::Touch { .. } | Body::Close { .. } => {
                return Err(Malformed);
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        head: &WriteHead<'_>,
        operation: &WriteOperation<'_>,
        order: &Order,
        out: &mut Executed,
    ) {
        let updates = match operation {
            WriteOperation::Multi(updates) => updates,
            WriteOperation::Single(update) => {
                match self.step(update, head, order, 0, out) {
                    Ok((_, shown)) => {
                        out.answer.put_i32(Code::Ok.number());
                        out.answer.extend(shown);
                    }
                    Err(code) => out.answer.put_i32(code.number()),
                }
                return;
            }
        };
        let before = self.nodes.clone();
        out.answer.put_i32(Code::Ok.number());
        let steps = (0..).zip(updates).map(|(at, update)| self.step(update, head, order, at, out));
        match steps.collect::<Result<Vec<_>, Code>>() {
            Ok(steps) => {
                for (opcode, shown) in steps {
                    put_step(opcode, Code::Ok, &mut out.answer);
                    out.answer.extend(shown);
                }
            }
            Err(code) => {
                let refused = self.refused_at(&before, updates, head, order);
                (self.nodes, out.events) = (before, Vec::new());
                out.touched.clear();
                for step in 0..updates.len() {
                    let code = match step.cmp(&refused) {
                        std::cmp::Ordering::Less => Code::Ok,
                        std::cmp::Ordering::Equal => code,
                        std::cmp::Ordering::Greater => Code::RuntimeInconsistency,
                    };
                    put_step(op::ERROR, code, &mut out.answer);
                    out.answer.put_i32(code.number());
                }
            }
        }
        out.answer.put_i32(-1);
        out.answer.push(1);
        out.answer.put_i32(-1);
    }

    /// Which step is the first that fails.
    fn refused_at(
        &mut self,
        before: &BTreeMap<String, Znode>,
        updates: &[Update<'_>],
        head: &WriteHead<'_>,
        order: &Order,
    ) -> usize {
        self.nodes.clone_from(before);
        let mut out = Executed::default();
        updates.iter().take_while(|update| self.step(update, head, order, 0, &mut out).is_ok()).count()
    }

    /// The opcode of its result, and what that shows.
    fn step(
        &mut self,
        update: &Update<'_>,
        head: &WriteHead<'_>,
        order: &Order,
        position: u32,
        out: &mut Executed,
    ) -> Result<(i32, Vec<u8>), Code> {
        let caller = &head.caller;
        match update {
            Update::Create(create) => self.create(create, head, order, position, out),
            Update::Delete { path, version } => {
                let above = parent_of(path).ok_or(Code::BadArguments)?;
                if path.contains('\0') || ESSENTIAL.contains(path) {
                    return Err(Code::BadArguments);
                }
                self.permit(above, Permission::DELETE, caller)?;
                let node = self.nodes.get(*path).ok_or(Code::NoNode)?;
                expects(*version, node.version)?;
                if self.children(path).next().is_some() {
                    return Err(Code::NotEmpty);
                }
                self.remove(path, position, order, out);
                Ok((op::DELETE, Vec::new()))
            }
            Update::SetData { path, data, version } => {
                validate(path)?;
                self.permit(path, Permission::WRITE, caller)?;
                let node = self.nodes.get_mut(*path).ok_or(Code::NoNode)?;
                expects(*version, node.version)?;
                node.data = data.map(Rc::from);
                node.version = after(node.version);
                (node.mzxid, node.mtime) = (order.gsn.0, order.time);
                let acl = Rc::clone(&node.acl);
                out.happens(EventKind::DataChanged, path, acl, position * 2);
                Ok((op::SET_DATA, self.written_stat(path)))
            }
            Update::SetAcl { path, acl, version } => {
                validate(path)?;
                let acl = fixed(acl, caller)?;
                self.permit(path, Permission::ADMIN, caller)?;
                let node = self.nodes.get_mut(*path).ok_or(Code::NoNode)?;
                expects(*version, node.aversion)?;
                (node.acl, node.aversion) = (acl.into(), after(node.aversion));
                out.touched.insert((*path).to_owned());
                Ok((op::SET_DATA, self.written_stat(path)))
            }
            Update::Check { path, version } => {
                validate(path)?;
                self.permit(path, Permission::READ, caller)?;
                expects(*version, self.nodes[*path].version)?;
                Ok((op::CHECK, Vec::new()))
            }
            Update::CheckSame { path, czxid, mzxid, aversion } => {
                validate(path)?;
                self.permit(path, Permission::READ, caller)?;
                let found = &self.nodes[*path];
                let same = found.czxid as i64 == *czxid && found.mzxid as i64 == *mzxid;
                if same && found.aversion == *aversion {
                    Ok((op::CHECK, Vec::new()))
                } else {
                    Err(Code::BadVersion)
                }
            }
            Update::Restore(restore) => {
                invariant!(LIN, false, "nobody restores here, and {} is", restore.path);
                Err(Code::Unimplemented)
            }
        }
    }

    fn create(
        &mut self,
        create: &Create<'_>,
        head: &WriteHead<'_>,
        order: &Order,
        position: u32,
        out: &mut Executed,
    ) -> Result<(i32, Vec<u8>), Code> {
        let (mode, sequential) = Mode::of_flags(create.flags).ok_or(Code::BadArguments)?;
        let kind = match mode {
            Mode::Ttl if !head.ttl_allowed => return Err(Code::Unimplemented),
            Mode::Ttl if create.ttl < 1 || create.ttl > TTL_MAX => return Err(Code::BadArguments),
            Mode::Ttl => Kind::Ttl(create.ttl as u64),
            _ if create.ttl >= 0 => return Err(Code::BadArguments),
            Mode::Persistent => Kind::Persistent,
            Mode::Ephemeral => Kind::Ephemeral(head.session.0),
            Mode::Container => Kind::Container,
        };
        let above = parent_of(create.path).ok_or(Code::BadArguments)?;
        if create.path.contains('\0') {
            return Err(Code::BadArguments);
        }
        let acl: Rc<[Acl]> = fixed(&create.acl, &head.caller)?.into();
        self.permit(above, Permission::CREATE, &head.caller)?;
        let counter = self.nodes[above].creates;
        let path = if sequential { sequential_name(create.path, counter) } else { create.path.to_owned() };
        validate(&path)?;
        if name_of(&path).len() > NAME_BYTES_MAX {
            return Err(Code::BadArguments);
        }
        if self.nodes.contains_key(&path) {
            return Err(Code::NodeExists);
        }
        if let Kind::Ephemeral(_) = self.nodes[above].kind {
            return Err(Code::NoChildrenForEphemerals);
        }
        let (gsn, time) = (order.gsn.0, order.time);
        let data = create.data.map(Rc::from);
        let node = Znode { data, acl: Rc::clone(&acl), ..Znode::at(gsn, time, kind) };
        self.nodes.insert(path.clone(), node);
        out.happens(EventKind::Created, &path, acl, position * 2);
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.pzxid = gsn;
            parent.creates = parent.creates.wrapping_add(1);
            out.happens(EventKind::ChildrenChanged, above, Rc::clone(&parent.acl), position * 2 + 1);
        }
        let mut shown = Vec::new();
        shown.put_text(&path);
        if create.with_stat {
            shown.extend(self.written_stat(&path));
        }
        Ok((if create.with_stat { op::CREATE2 } else { op::CREATE }, shown))
    }

    fn remove(&mut self, path: &str, position: u32, order: &Order, out: &mut Executed) {
        let Some(node) = self.nodes.remove(path) else { return };
        out.happens(EventKind::Deleted, path, node.acl, position * 2);
        let Some(above) = parent_of(path) else { return };
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.pzxid = order.gsn.0;
            out.happens(EventKind::ChildrenChanged, above, Rc::clone(&parent.acl), position * 2 + 1);
        }
    }

    /// Puts a host's line where all lines are, and takes out those of hosts that are no members.
    fn advertise(&mut self, (host, line): (u32, &str), members: &[u32], order: &Order, out: &mut Executed) {
        let Some(node) = self.nodes.get_mut(CONFIG) else { return };
        let text = String::from_utf8_lossy(node.data.as_deref().unwrap_or_default()).into_owned();
        let number_of = |line: &str| line.strip_prefix("server.")?.split_once('=')?.0.parse::<u32>().ok();
        let known: BTreeMap<u32, String> =
            text.lines().filter_map(|line| Some((number_of(line)?, line.to_owned()))).collect();
        let mut lines = known.clone();
        lines.retain(|number, _| members.contains(number));
        lines.insert(host, format!("server.{host}={line}"));
        if lines == known {
            return;
        }
        let lines: String = lines.into_values().map(|line| line + "\n").collect();
        let text = format!("{lines}version={:x}", order.gsn.0);
        node.data = Some(text.into_bytes().into());
        node.version = after(node.version);
        (node.mzxid, node.mtime) = (order.gsn.0, order.time);
        out.happens(EventKind::DataChanged, CONFIG, Rc::clone(&node.acl), 0);
    }

    fn permit(&self, path: &str, permission: Permission, caller: &Caller<'_>) -> Result<(), Code> {
        allowed(&self.nodes.get(path).ok_or(Code::NoNode)?.acl, permission, caller)
    }

    /// The names of a node's children.
    fn children<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a str> {
        let above = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let from = self.nodes.range(above.clone()..);
        let below = from.map_while(move |(at, _)| at.strip_prefix(above.as_str()));
        below.filter(|name| !name.is_empty() && !name.contains('/'))
    }

    fn stat(&self, path: &str) -> Option<Stat> {
        let node = self.nodes.get(path)?;
        let num_children = self.children(path).count() as i32;
        Some(Stat {
            czxid: node.czxid as i64,
            mzxid: node.mzxid as i64,
            ctime: node.ctime as i64,
            mtime: node.mtime as i64,
            version: node.version,
            // How many have come and how many of them have gone.
            cversion: node.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: node.aversion,
            ephemeral_owner: if let Kind::Ephemeral(session) = node.kind { session as i64 } else { 0 },
            data_length: node.data.as_ref().map_or(0, |data| data.len()) as i32,
            num_children,
            pzxid: node.pzxid as i64,
        })
    }

    fn written_stat(&self, path: &str) -> Vec<u8> {
        let mut written = Vec::new();
        if let Some(stat) = self.stat(path) {
            stat.write(&mut written);
        }
        written
    }

    /// All nodes.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// The session with which a node goes.
    pub(super) fn owner(&self, path: &str) -> Option<u64> {
        match self.nodes.get(path)?.kind {
            Kind::Ephemeral(session) => Some(session),
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
        }
    }

    /// Bytes of a node's data.
    pub(super) fn bytes(&self, path: &str) -> u64 {
        let data = self.nodes.get(path).and_then(|node| node.data.as_ref());
        data.map_or(0, |data| data.len() as u64)
    }

    /// Nodes without children that have served their time.
    pub(super) fn served(&self, now: u64) -> impl Iterator<Item = &str> {
        let over = self.nodes.iter().filter(move |(_, node)| node.has_served(now));
        over.map(|(path, _)| path.as_str()).filter(|path| self.children(path).next().is_none())
    }

    /// What a read of a node shows, or why it is refused.
    pub(super) fn shown(&self, caller: &Caller<'_>, opcode: i32, path: &str) -> Result<Shown, Code> {
        if opcode == op::EXISTS && path.contains('\0') {
            return Err(Code::BadArguments);
        }
        let permission = if opcode == op::GET_ACL { Permission::READ_OR_ADMIN } else { Permission::READ };
        self.permit(path, permission, caller)?;
        let (node, stat) = (&self.nodes[path], self.stat(path).ok_or(Code::NoNode)?);
        let lists = matches!(opcode, op::GET_CHILDREN | op::GET_CHILDREN2);
        Ok(Shown {
            changed: if opcode == op::GET_ACL { 0 } else { node.mzxid.max(node.pzxid) },
            stat: if opcode == op::GET_CHILDREN { Stat::default() } else { stat },
            data: node.data.clone().filter(|_| opcode == op::GET_DATA),
            names: if lists { self.children(path).map(str::to_owned).collect() } else { Vec::new() },
        })
    }

    /// The list of a node.
    pub(super) fn acl(&self, path: &str) -> Option<&[Acl]> {
        self.nodes.get(path).map(|node| &*node.acl)
    }

    /// What a client has missed that has seen everything up to `since`, and watches this.
    pub(super) fn missed(&self, path: &str, watched: EventKind, since: i64) -> Option<EventKind> {
        let node = self.nodes.get(path);
        let is_later = |zxid: u64| zxid as i64 > since.max(0);
        match (watched, node) {
            (EventKind::Created, None) => None,
            (EventKind::Created, Some(_)) => Some(EventKind::Created),
            (_, None) => Some(EventKind::Deleted),
            (EventKind::ChildrenChanged, Some(node)) => is_later(node.pzxid).then_some(watched),
            (_, Some(node)) => is_later(node.mzxid).then_some(EventKind::DataChanged),
        }
    }
}

impl Znode {
    fn has_served(&self, now: u64) -> bool {
        match self.kind {
            Kind::Container => self.creates != 0,
            Kind::Ttl(ttl) => now.saturating_sub(self.mtime) > ttl,
            Kind::Persistent | Kind::Ephemeral(_) => false,
        }
    }

    /// As it is made.
    fn at(gsn: u64, time: u64, kind: Kind) -> Self {
        Self {
            data: None,
            acl: Rc::from([]),
            kind,
            czxid: gsn,
            mzxid: gsn,
            pzxid: gsn,
            ctime: time,
            mtime: time,
            version: 0,
            creates: 0,
            aversion: 0,
        }
    }
}

impl Executed {
    fn happens(&mut self, kind: EventKind, path: &str, acl: Rc<[Acl]>, position: u32) {
        self.touched.insert(path.to_owned());
        self.events.push(Happened { position, kind, path: path.to_owned(), acl });
    }
}

/// -1 is any version.
fn expects(expected: i32, found: i32) -> Result<(), Code> {
    if expected == -1 || expected == found { Ok(()) } else { Err(Code::BadVersion) }
}

/// The version after this one, which is never -1.
fn after(version: i32) -> i32 {
    let next = version.wrapping_add(1);
    if next == -1 { 0 } else { next }
}

fn put_step(opcode: i32, code: Code, out: &mut Vec<u8>) {
    out.put_i32(opcode);
    out.push(0);
    out.put_i32(code.number());
}
