//! From bytes to requests, and from requests to work.

use crate::gateway::Gateway;
use crate::gateway::choice;
use crate::gateway::connection::{Part, Purpose, Read, Reply, Stage, Work};
use crate::gateway::kinds::Kinds;
use crate::gateway::quotas::refused_multi;
use crate::gateway::survey::Survey;
use crate::gateway::words;
use crate::wire::{
    Body, Code, JuteInput, JuteOutput, PING_XID, Query, Request, SetWatches, WriteHead, WriteOperation, op,
};
use kernel::{Bytes, Cx, NodeId};
use std::sync::Arc;

/// How much of the input is one frame.
enum Frame {
    /// Not all has arrived.
    Part,
    /// So many bytes behind the length.
    Whole(usize),
    /// Longer than allowed, or no length at all.
    Refused,
}

impl Gateway {
    /// Takes whole frames off the input until there is too much to do.
    pub(crate) fn parse(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let input = std::mem::take(&mut connection.input);
        let (mut at, mut had, mut parsable) = (0, 0, 0);
        while let Some(connection) = self.connections.get(&node) {
            let rest = &input[at..];
            let full = self.is_full(connection);
            let takes = match connection.stage {
                Stage::New => true,
                Stage::Connecting | Stage::Closed => false,
                Stage::Open => !full,
            };
            let is_new = connection.stage == Stage::New;
            if !takes || rest.is_empty() || (!is_new && !self.takes_turn(node, had)) {
                parsable = rest.len();
                break;
            }
            had += 1;
            if is_new && let Some(word) = words::word(rest) {
                if let Some(word) = word.whole(rest) {
                    return self.on_word(node, word, cx);
                }
                break;
            }
            match self.frame(rest) {
                Frame::Part => break,
                Frame::Refused => {
                    self.metrics.frames_refused += 1;
                    return self.close(node, "a frame of an impossible length", cx);
                }
                Frame::Whole(len) => {
                    if let Err(reason) = self.on_frame(node, &rest[4..4 + len]) {
                        return self.close(node, reason, cx);
                    }
                    at += 4 + len;
                }
            }
        }
        if let Some(connection) = self.connections.get_mut(&node) {
            connection.input = if at == 0 { input } else { input[at..].to_vec() };
            connection.parsable = parsable;
        }
        self.press_back(node, cx);
    }

    fn frame(&self, rest: &[u8]) -> Frame {
        let Some(len) = rest.first_chunk::<4>() else { return Frame::Part };
        match usize::try_from(i32::from_be_bytes(*len)) {
            Ok(len) if len > 0 && len <= self.settings.frame_bytes_max => {
                if rest.len() >= 4 + len {
                    Frame::Whole(len)
                } else {
                    Frame::Part
                }
            }
            _ => Frame::Refused,
        }
    }

    /// One frame; `Err` with the reason to close.
    fn on_frame(&mut self, node: NodeId, body: &[u8]) -> Result<(), &'static str> {
        let Some(connection) = self.connections.get_mut(&node) else { return Ok(()) };
        connection.received += 1;
        self.metrics.packets_received += 1;
        if connection.stage == Stage::New {
            return if self.greet(node, body) { Ok(()) } else { Err("a malformed handshake") };
        }
        let mut input = JuteInput(body);
        let (Ok(xid), Ok(opcode)) = (input.i32(), input.i32()) else {
            return Err("a request without header");
        };
        match Request::read(opcode, input.0) {
            Ok(request) => self.on_request_read(node, xid, opcode, request, input.0),
            Err(_) => self.push_error(node, xid, opcode, Code::MarshallingError, false),
        }
        Ok(())
    }

    fn push_error(&mut self, node: NodeId, xid: i32, opcode: i32, code: Code, last: bool) {
        let reply = Reply { last, ..Reply::new(0, code.number(), Bytes::new()) };
        self.push(node, xid, opcode, Work::Done(reply));
    }

    fn push(&mut self, node: NodeId, xid: i32, opcode: i32, work: Work) {
        let now = self.now;
        if let Some(connection) = self.connections.get_mut(&node) {
            let before = connection.write_bytes;
            connection.push(xid, opcode, now, work);
            self.write_bytes += connection.write_bytes - before;
        }
    }

    fn on_request_read(&mut self, node: NodeId, xid: i32, opcode: i32, request: Request<'_>, bytes: &[u8]) {
        let work = match request {
            Request::Ping => return self.on_ping(node, if xid == 0 { PING_XID } else { xid }),
            Request::Auth { scheme, token } => return self.on_auth(node, xid, scheme, token),
            Request::Sasl => return self.on_auth(node, xid, "sasl", &[]),
            Request::Refused => return self.push_error(node, xid, opcode, Code::NoAuth, false),
            Request::Unknown => {
                self.metrics.unimplemented += 1;
                return self.push_error(node, xid, opcode, Code::Unimplemented, true);
            }
            Request::Reconfig => return self.push_error(node, xid, opcode, Code::ReconfigDisabled, false),
            Request::Close => Work::Close,
            Request::Write(operation) => self.work_of_write(node, opcode, &operation, bytes),
            Request::Read { opcode, path, watch } => self.work_of_read(node, opcode, path, watch),
            Request::MultiRead(reads) => self.work_of_multi_read(node, &reads),
            Request::Sync { path } => {
                let barrier = self.upstream.barriers().want(node);
                Work::Sync { barrier, path: path.into() }
            }
            Request::SetWatches(watches) => self.work_of_set_watches(node, &watches),
            Request::AddWatch { path, mode } => self.work_of_add_watch(node, path, mode),
            Request::CheckWatches { path, kind } => {
                Work::CheckWatches { path: path.into(), kinds: Kinds::of_request(kind), remove: false }
            }
            Request::RemoveWatches { path, kind } => {
                Work::CheckWatches { path: path.into(), kinds: Kinds::of_request(kind), remove: true }
            }
            Request::WhoAmI => Work::Done(self.who_am_i(node)),
            Request::GetEphemerals { prefix } => {
                let session = self.connections.get(&node).map(|connection| connection.session);
                let query = Query::Ephemerals { session: session.unwrap_or_default(), prefix };
                let parts = self.everywhere(&query);
                self.read(node, Purpose::Ephemerals, parts)
            }
            Request::GetAllChildrenNumber { path } => {
                let first = self.node_query(node, op::GET_DATA, path, false);
                let parts = std::iter::once(first).chain(self.everywhere(&Query::Descendants { path }));
                self.read(node, Purpose::Descendants, parts.collect())
            }
            Request::RemoveRecursive { path, limit } => {
                let limit = self.subtree_limit(limit);
                self.work_of_survey(node, Survey::removal(path, limit))
            }
            Request::Rename { from, to, limit } => {
                let limit = self.subtree_limit(limit);
                self.work_of_survey(node, Survey::rename(from, to, limit))
            }
        };
        self.push(node, xid, opcode, work);
    }

    fn subtree_limit(&self, asked: i32) -> usize {
        let max = self.settings.subtree_max;
        usize::try_from(asked).ok().filter(|&limit| limit > 0).map_or(max, |limit| limit.min(max))
    }

    fn work_of_survey(&mut self, node: NodeId, survey: Result<Survey, Code>) -> Work {
        match survey {
            Err(code) => Work::Done(Reply::new(0, code.number(), Bytes::new())),
            Ok(survey) => {
                let parts = self.survey_parts(node, &survey.ahead);
                self.read(node, Purpose::Survey(Box::new(survey)), parts)
            }
        }
    }

    fn work_of_write(
        &mut self,
        node: NodeId,
        opcode: i32,
        operation: &WriteOperation<'_>,
        request: &[u8],
    ) -> Work {
        if self.disk_full {
            // "Not executed at all, retry with back off": what ZooKeeper says of a server that cannot take more.
            return Work::Done(Reply::new(0, Code::Throttled.number(), Bytes::new()));
        }
        if operation.updates().iter().any(|update| update.data_len() > self.settings.node_bytes_max) {
            self.metrics.nodes_refused += 1;
            return Work::Done(Reply::new(0, Code::BadArguments.number(), Bytes::new()));
        }
        if let Some(at) = self.refused_by_quota(operation) {
            let code = Code::QuotaExceeded;
            return Work::Done(match operation {
                WriteOperation::Single(_) => Reply::new(0, code.number(), Bytes::new()),
                WriteOperation::Multi(updates) => Reply::new(0, 0, refused_multi(updates.len(), at, code)),
            });
        }
        let Some(connection) = self.connections.get(&node) else { return Work::Close };
        let head = WriteHead {
            session: connection.session,
            epoch: connection.epoch,
            ephemeral: operation.updates().iter().any(|update| update.is_ephemeral()),
            ttl_allowed: self.settings.ttl_allowed,
            caller: connection.caller.borrowed(),
            opcode,
        };
        Work::Write { body: Body::Write { head, request }.written().into(), survey: None, sent: false }
    }

    /// A read over `parts`, which waits for a barrier if reads are to be linearizable.
    pub(crate) fn read(&mut self, node: NodeId, purpose: Purpose, parts: Vec<Part>) -> Work {
        let barrier = match self.settings.consistency {
            crate::gateway::Consistency::Linearizable => self.upstream.barriers().want(node),
            crate::gateway::Consistency::Sequential => 0,
        };
        let shard_map = self.marks.shard_map().version;
        Work::Read(Box::new(Read::new(purpose, parts, barrier, self.reads.last_watch(), shard_map)))
    }

    fn part(&self, path: &str, query: &Query<'_>) -> Part {
        choice::at(&self.settings.placement, path, query.written())
    }

    fn everywhere(&self, query: &Query<'_>) -> Vec<Part> {
        choice::everywhere(&self.settings.placement, &query.written().into())
    }

    pub(crate) fn node_query(&mut self, node: NodeId, opcode: i32, path: &str, watch: bool) -> Part {
        let caller =
            self.connections.get(&node).map(|connection| connection.caller.clone()).unwrap_or_default();
        let watch = watch.then(|| self.reads.next_watch());
        self.part(path, &Query::Node { caller, opcode, path, watch })
    }

    fn work_of_read(&mut self, node: NodeId, opcode: i32, path: &str, watch: bool) -> Work {
        if watch && let Some(refused) = self.refuse_watches(node, 1) {
            return refused;
        }
        let part = self.node_query(node, opcode, path, watch);
        self.read(node, Purpose::Node { opcode, path: path.into(), watch }, vec![part])
    }

    /// The answer to one who would watch more paths than it may.
    fn refuse_watches(&mut self, node: NodeId, more: usize) -> Option<Work> {
        let watches = self.connections.get(&node).map_or(0, |connection| connection.watched.len());
        if watches + more <= self.settings.watches_max {
            return None;
        }
        self.metrics.watches_refused += 1;
        Some(Work::Done(Reply::new(0, Code::Throttled.number(), Bytes::new())))
    }

    fn work_of_multi_read(&mut self, node: NodeId, reads: &[(i32, &str)]) -> Work {
        let caller =
            self.connections.get(&node).map(|connection| connection.caller.clone()).unwrap_or_default();
        let (parts, order) = choice::of_nodes(&self.settings.placement, &caller, reads);
        self.read(node, Purpose::Nodes { parts: order }, parts)
    }

    fn work_of_set_watches(&mut self, node: NodeId, watches: &SetWatches<'_>) -> Work {
        let lists = [&watches.data, &watches.exist, &watches.child, &watches.persistent, &watches.recursive];
        if let Some(refused) = self.refuse_watches(node, lists.map(Vec::len).iter().sum()) {
            return refused;
        }
        let watched = (
            [watches.data.clone(), watches.exist.clone(), watches.child.clone()],
            [watches.persistent.clone(), watches.recursive.clone()],
        );
        let head = (self.reads.next_watch(), watches.relative_zxid);
        let (parts, retained) = choice::of_watches(&self.settings.placement, head, &watched);
        let persistent = watches.persistent.iter().map(|path| (Arc::from(*path), Kinds::PERSISTENT));
        let recursive = watches.recursive.iter().map(|path| (Arc::from(*path), Kinds::RECURSIVE));
        let lasting = persistent.chain(recursive).collect();
        self.read(node, Purpose::SetWatches { paths: retained, lasting }, parts)
    }

    fn work_of_add_watch(&mut self, node: NodeId, path: &str, mode: i32) -> Work {
        // Nobody looks at the path here: where there can be no node, nothing ever happens.
        let kinds = match mode {
            0 => Kinds::PERSISTENT,
            1 => Kinds::RECURSIVE,
            _ => return Work::Done(Reply::new(0, Code::MarshallingError.number(), Bytes::new())),
        };
        if let Some(refused) = self.refuse_watches(node, 1) {
            return refused;
        }
        let seq = self.reads.next_watch();
        let lasting = if mode == 0 { [vec![path], vec![]] } else { [vec![], vec![path]] };
        let query = Query::SetWatches { seq, relative_zxid: 0, paths: Default::default(), lasting };
        let parts = if mode == 0 { vec![self.part(path, &query)] } else { self.everywhere(&query) };
        self.read(node, Purpose::AddWatch { path: path.into(), kinds }, parts)
    }

    fn who_am_i(&self, node: NodeId) -> Reply {
        let mut body = Vec::new();
        let caller = self.connections.get(&node).map(|connection| connection.caller.borrowed());
        let caller = caller.unwrap_or_default();
        body.put_count(caller.identities().count());
        for (scheme, id) in caller.identities() {
            body.put_text(scheme);
            let user = if scheme == "digest" { id.split(':').next().unwrap_or_default() } else { id };
            body.put_text(user);
        }
        Reply::new(0, 0, body)
    }
}
