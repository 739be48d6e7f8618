//! Reads of one shard, and the watches they leave.

use crate::tree::Znodes;
use crate::tree::execute::write_multi_header;
use crate::tree::meta::Meta;
use crate::tree::table::Node;
use crate::tree::watches::{CHILD, DATA, PERSISTENT, RECURSIVE};
use crate::wire::{
    Acl, Caller, Code, EventKind, Identity, JuteOutput, Permission, Query, WatchSeq, allowed, op, write_acls,
};
use kernel::NodeId;

/// What an answer begins with: what it shows, and a code.
const HEAD_BYTES: usize = 12;
const STAT_BYTES: usize = 68;

/// The content of an answer: what it shows (0: depends on the whole shard), a code, a body.
fn refuse(code: Code, out: &mut Vec<u8>) {
    out.put_u64(0);
    out.put_i32(code.number());
}

fn begin(changed: u64, out: &mut Vec<u8>) {
    out.put_u64(changed);
    out.put_i32(Code::Ok.number());
}

impl Znodes {
    pub(crate) fn answer_query(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) {
        let Ok(query) = Query::read(query) else { return refuse(Code::MarshallingError, out) };
        match query {
            Query::Node { caller, opcode, path, watch } => {
                let found = self.read_node(&caller, opcode, path, out);
                if let Some(seq) = watch
                    && let Some(kinds) = left_by(opcode, found)
                {
                    self.watches.register(reader, path, kinds, seq);
                }
            }
            Query::Nodes { caller, reads } => self.read_nodes(&caller, &reads, out),
            Query::SetWatches { seq, relative_zxid, paths, lasting } => {
                begin(0, out);
                self.set_watches(reader, (seq, relative_zxid), paths, out);
                for (kinds, paths) in [PERSISTENT, RECURSIVE].into_iter().zip(lasting) {
                    paths.iter().for_each(|path| self.watches.register(reader, path, kinds, seq));
                }
            }
            Query::Forget { through, paths } => {
                begin(1, out);
                paths.iter().for_each(|path| self.watches.forget(reader, path, through));
            }
            Query::Ephemerals { session, prefix } => {
                begin(0, out);
                let owned = self.graves(session).into_iter().filter(|path| path.starts_with(prefix));
                owned.for_each(|path| out.put_text(path));
            }
            Query::Owners { bytes_max } => {
                begin(0, out);
                self.write_owners(out.len() + bytes_max as usize, out);
            }
            Query::Descendants { path } => {
                begin(0, out);
                let below = |found: &&str| {
                    path == "/" && *found != "/"
                        || found.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                };
                out.put_u64(self.table.iter().map(Node::path).filter(below).count() as u64);
            }
            Query::Reapable { now, limit } => {
                begin(0, out);
                let served = self.mortal.iter().filter_map(|&index| self.table.at(index));
                let served = served.filter(|node| node.meta(&self.table.acls).has_served(now));
                served.take(usize::from(limit)).for_each(|node| out.put_text(node.path()));
            }
            Query::Quotas { paths } => {
                begin(1, out);
                self.write_quotas(&paths, out);
            }
            Query::Sizes => {
                begin(1, out);
                out.put_u64(self.table.len() as u64);
                out.put_u64(self.ephemerals.values().map(|owned| owned.len() as u64).sum());
                out.put_u64(self.table.data_bytes());
            }
        }
    }

    /// One of the plain reads; the code it is answered.
    fn read_node(&self, caller: &Caller<'_>, opcode: i32, path: &str, out: &mut Vec<u8>) -> Code {
        let found = match self.readable(caller, opcode, path) {
            Ok(found) => found,
            Err(code) => {
                refuse(code, out);
                return code;
            }
        };
        let (node, meta) = found;
        // Nothing that a watch could announce says when an ACL was changed.
        let shows = self.shows(&meta).filter(|_| opcode != op::GET_ACL);
        begin(shows.unwrap_or(0), out);
        match opcode {
            op::EXISTS => meta.stat().write(out),
            op::GET_DATA => {
                out.put_buffer(node.data());
                meta.stat().write(out);
            }
            op::GET_ACL => {
                let whole = allowed(&meta.acl, Permission::ADMIN, caller).is_ok();
                if whole {
                    write_acls(&meta.acl, out)
                } else {
                    write_acls(&masked(&meta.acl), out)
                }
                meta.stat().write(out);
            }
            _ => {
                write_children(node, out);
                if opcode == op::GET_CHILDREN2 {
                    meta.stat().write(out);
                }
            }
        }
        Code::Ok
    }

    /// The size of the answer to a question for one node, which may be large; none where it is refused, or is another question.
    pub(crate) fn size_of_answer(&self, query: &[u8]) -> Option<usize> {
        let Ok(Query::Node { caller, opcode, path, .. }) = Query::read(query) else { return None };
        let (node, _) = self.readable(&caller, opcode, path).ok()?;
        let body = match opcode {
            op::GET_DATA => 4 + node.data().map_or(0, <[u8]>::len) + STAT_BYTES,
            op::GET_CHILDREN => children_bytes(node),
            op::GET_CHILDREN2 => children_bytes(node) + STAT_BYTES,
            _ => return None,
        };
        Some(HEAD_BYTES + body)
    }

    fn readable(&self, caller: &Caller<'_>, opcode: i32, path: &str) -> Result<(&Node, Meta), Code> {
        // ZooKeeper looks at no other path before it looks for the node.
        if opcode == op::EXISTS && path.contains('\0') {
            return Err(Code::BadArguments);
        }
        let (_, node) = self.table.find(path).ok_or(Code::NoNode)?;
        let meta = node.meta(&self.table.acls);
        let permission = if opcode == op::GET_ACL { Permission::READ_OR_ADMIN } else { Permission::READ };
        allowed(&meta.acl, permission, caller)?;
        Ok((node, meta))
    }

    /// The last change that an answer about a node shows. None if it was skipped here: who watches the node is notified of it by a later
    /// number, so the answer counts as one that depends on the whole shard, which goes out after that.
    fn shows(&self, meta: &Meta) -> Option<u64> {
        let changed = meta.changed();
        (!self.skipped.contains(&changed)).then_some(changed)
    }

    /// Parts of a multiRead: each as in a multi's answer, each on its own merits.
    fn read_nodes(&self, caller: &Caller<'_>, reads: &[(i32, &str)], out: &mut Vec<u8>) {
        let at = out.len();
        begin(0, out);
        let mut shows = Some(1);
        for &(opcode, path) in reads {
            let part = out.len();
            // The frame of a part, so that the gateway can put parts of several shards in order.
            out.put_i32(0);
            match self.readable(caller, opcode, path) {
                Ok((node, meta)) => {
                    shows = shows.zip(self.shows(&meta)).map(|(before, this)| before.max(this));
                    write_multi_header(opcode, false, 0, out);
                    if opcode == op::GET_DATA {
                        out.put_buffer(node.data());
                        meta.stat().write(out);
                    } else {
                        write_children(node, out);
                    }
                }
                Err(code) => {
                    shows = None;
                    write_multi_header(op::ERROR, false, code.number(), out);
                    out.put_i32(code.number());
                }
            }
            let len = (out.len() - part - 4) as i32;
            out[part..part + 4].copy_from_slice(&len.to_be_bytes());
        }
        out[at..at + 8].copy_from_slice(&shows.unwrap_or(0).to_be_bytes());
    }

    /// Reports what was missed, and registers what was not.
    fn set_watches(
        &mut self,
        reader: NodeId,
        (seq, relative_zxid): (WatchSeq, i64),
        paths: [Vec<&str>; 3],
        out: &mut Vec<u8>,
    ) {
        let since = relative_zxid.max(0) as u64;
        let [data, exist, child] = paths;
        let missed = |meta: Option<&Meta>, kind: EventKind| match (kind, meta) {
            (EventKind::Created, None) => None,
            (EventKind::Created, Some(_)) => Some(EventKind::Created),
            (_, None) => Some(EventKind::Deleted),
            (EventKind::ChildrenChanged, Some(meta)) => (meta.pzxid > since).then_some(kind),
            (_, Some(meta)) if kernel::planted!(missed_change_judged_by_creation) => {
                (meta.czxid > since).then_some(kind)
            }
            (_, Some(meta)) => (meta.mzxid > since).then_some(kind),
        };
        let kinds = [EventKind::DataChanged, EventKind::Created, EventKind::ChildrenChanged];
        for (kind, paths) in kinds.into_iter().zip([data, exist, child]) {
            for path in paths {
                match missed(self.table.meta(path).as_ref(), kind) {
                    Some(event) => {
                        out.put_i32(event as i32);
                        out.put_text(path);
                    }
                    None => {
                        let kinds = if kind == EventKind::ChildrenChanged { CHILD } else { DATA };
                        self.watches.register(reader, path, kinds, seq);
                    }
                }
            }
        }
    }
}

/// The watch that a read leaves, by its answer.
pub(crate) fn left_by(opcode: i32, answered: Code) -> Option<u8> {
    match (opcode, answered) {
        (op::EXISTS, Code::Ok | Code::NoNode) | (op::GET_DATA, Code::Ok) => Some(DATA),
        (op::GET_CHILDREN | op::GET_CHILDREN2, Code::Ok) => Some(CHILD),
        _ => None,
    }
}

fn write_children(node: &Node, out: &mut Vec<u8>) {
    let names = node.directory().map(|directory| &directory.names);
    out.put_count(names.map_or(0, |names| names.len() as usize));
    names.into_iter().flat_map(|names| names.iter()).for_each(|name| out.put_text(name));
}

/// What [`write_children`] appends.
fn children_bytes(node: &Node) -> usize {
    let names = node.directory().map(|directory| &directory.names);
    4 + names.into_iter().flat_map(|names| names.iter()).map(|name| 4 + name.len()).sum::<usize>()
}

/// What those see of a list who may not change it.
fn masked(acls: &[Acl]) -> Vec<Acl> {
    let mask = |who: &Identity| match (&*who.scheme, who.id.split_once(':')) {
        ("digest", Some((user, _))) => Identity::new("digest", &format!("{user}:x")),
        _ => who.clone(),
    };
    acls.iter().map(|acl| Acl { permissions: acl.permissions, who: mask(&acl.who) }).collect()
}
