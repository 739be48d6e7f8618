//! How a connection gets a session: the first frame, the home group's word, who the user is.

use crate::gateway::Gateway;
use crate::gateway::choice;
use crate::gateway::connection::{Connection, EntrySeq, Hello, Purpose, Read, Reply, Stage, Work};
use crate::sessions::home_of;
use crate::wire::{
    Body, Code, ConnectRequest, Identity, JuteOutput as _, Origin, Query, SessionAnswer, ZkSessionId,
    connect_response, frame, op, reply_header,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kernel::client::{Close, Connected, Proven};
use kernel::{Bytes, Cx, NodeId};
use sha1::{Digest, Sha1};

impl Gateway {
    pub(crate) fn on_connected(&mut self, from: NodeId, message: Connected, cx: &mut Cx<'_, Self>) {
        let per_address = self.settings.connections_per_address_max;
        let same = |other: &&Connection| other.address == message.address;
        let crowded = per_address > 0 && self.connections.values().filter(same).count() >= per_address;
        if self.connections.len() >= self.settings.connections_max || crowded {
            self.metrics.connections_refused += 1;
            return cx.send(from, Close { reason: "too many connections".to_owned() });
        }
        self.metrics.connections_opened += 1;
        let connection = Connection::new(from, message, self.now);
        self.connections.insert(from, connection);
    }

    pub(crate) fn on_input(&mut self, from: NodeId, bytes: &[u8], cx: &mut Cx<'_, Self>) {
        match self.connections.get_mut(&from) {
            None => cx.reject("input of an unknown connection"),
            Some(connection) => {
                connection.input.extend_from_slice(bytes);
                connection.heard = true;
                self.runnable.insert(from);
            }
        }
    }

    /// The first frame has arrived; false if it is none.
    pub(crate) fn greet(&mut self, node: NodeId, body: &[u8]) -> bool {
        let Ok(request) = ConnectRequest::read(body) else { return false };
        let (timeout_min, timeout_max) = self.settings.session_timeouts;
        let hello = Hello {
            timeout: request.timeout.clamp(timeout_min, timeout_max.max(timeout_min)),
            session: request.session as u64,
            password: Bytes::copy_from_slice(request.password),
            knows_read_only: request.knows_read_only,
        };
        let last_zxid = request.last_zxid_seen.max(0) as u64;
        let work = if last_zxid > self.highest {
            // Nobody here has heard of it yet: ask everybody before calling the client a liar.
            let parts = choice::everywhere(&self.settings.placement, &Query::Sizes.written().into());
            let barrier = self.upstream.barriers().want(node);
            let purpose = Purpose::Greeting { last_zxid, hello };
            let shard_map = self.marks.shard_map().version;
            Work::Read(Box::new(Read::new(purpose, parts, barrier, self.reads.last_watch(), shard_map)))
        } else {
            Work::Handshake { hello }
        };
        let now = self.now;
        if let Some(connection) = self.connections.get_mut(&node) {
            connection.stage = Stage::Connecting;
            connection.seen = last_zxid;
            connection.push(0, 0, now, work);
        }
        true
    }

    /// Every shard has said how far it is. False if the client comes from a future that this cluster does not have.
    pub(crate) fn greeting_answered(&mut self, node: NodeId, last_zxid: u64, hello: Hello) -> bool {
        // The answers have shown how far the shards are.
        if last_zxid > self.highest {
            return false;
        }
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        if let Some(entry) = connection.queue.front_mut() {
            entry.work = Work::Handshake { hello };
            connection.next = connection.first;
        }
        self.runnable.insert(node);
        true
    }

    /// Asks the home group for the session.
    pub(crate) fn body_of_hello(
        &mut self,
        node: NodeId,
        hello: &Hello,
        nonce: u64,
        gateway: NodeId,
    ) -> Option<(usize, Vec<u8>)> {
        let origin = Origin { gateway, connection: node };
        let address = &*self.connections.get(&node)?.address;
        if hello.session == 0 {
            let home = self.next_home % usize::from(self.upstream.layout().serving.max(1));
            self.next_home = home + 1;
            return Some((home, Body::Open { origin, nonce, timeout: hello.timeout, address }.written()));
        }
        let session = ZkSessionId(hello.session);
        let known = home_of(session).is_some_and(|group| usize::from(group.0) < self.upstream.groups());
        let home = known.then(|| self.home(session))?;
        let body =
            Body::Attach { session, password: &hello.password, origin, timeout: hello.timeout, address };
        Some((home, body.written()))
    }

    /// The home group has spoken.
    pub(crate) fn on_handshake_answered(&mut self, node: NodeId, seq: EntrySeq, answer: &SessionAnswer) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.writes_in_flight = connection.writes_in_flight.saturating_sub(1);
        let Some(entry) = connection.entry(seq) else { return };
        let Work::Handshake { hello } = &entry.work else { return };
        let knows_read_only = hello.knows_read_only;
        connection.queue.pop_front();
        connection.first = connection.first.next();
        connection.next = connection.first;
        connection.sent += 1;
        match answer {
            SessionAnswer::Attached { session, epoch, password, timeout } => {
                (connection.session, connection.epoch) = (*session, *epoch);
                (connection.timeout, connection.stage) = (*timeout, Stage::Open);
                connect_response(*timeout, session.0, password, knows_read_only, &mut connection.output);
            }
            SessionAnswer::Refused
            | SessionAnswer::Done
            | SessionAnswer::Gone { .. }
            | SessionAnswer::Elsewhere { .. } => {
                self.metrics.sessions_refused += 1;
                connection.stage = Stage::Closed;
                connect_response(0, 0, &[0; 16], knows_read_only, &mut connection.output);
            }
        }
        self.runnable.insert(node);
    }

    /// The user says who it is. Answered at once, whatever else is in flight, with zxid 0.
    pub(crate) fn on_auth(&mut self, node: NodeId, xid: i32, scheme: &str, token: &[u8]) {
        let super_digest = self.settings.super_digest.clone();
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let proven = match scheme {
            "digest" => digest_of(token).map(|id| {
                let all = super_digest.is_some_and(|digest| digest == id).then(|| Identity::new("super", ""));
                all.into_iter().chain([Identity::new("digest", &id)]).collect()
            }),
            "ip" => Some(vec![Identity::new("ip", &connection.address)]),
            "x509" => connection.certificate.as_ref().map(|subject| vec![Identity::new("x509", subject)]),
            _ => None,
        };
        let code = if proven.is_some() { Code::Ok } else { Code::AuthFailed };
        for identity in proven.into_iter().flatten() {
            let known = |(scheme, id)| (scheme, id) == (&*identity.scheme, &*identity.id);
            if !connection.caller.identities().any(known) && connection.caller.identities().count() < 1000 {
                connection.caller.add(&identity);
            }
        }
        frame(&mut connection.output, |out| reply_header(xid, 0, code.number(), out));
        connection.sent += 1;
        if code != Code::Ok {
            self.metrics.auth_failed += 1;
            connection.stage = Stage::Closed;
        }
    }

    /// The port has found who the user is, by a login of SASL. Answered at once, as [`Self::on_auth`] is.
    pub(crate) fn on_proven(&mut self, node: NodeId, message: &Proven) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        if let Some(who) = &message.who {
            let identity = Identity::new("sasl", who);
            let known = |(scheme, id)| (scheme, id) == (&*identity.scheme, &*identity.id);
            if !connection.caller.identities().any(known) {
                connection.caller.add(&identity);
            }
        }
        let code = if message.is_refused { Code::AuthFailed } else { Code::Ok };
        frame(&mut connection.output, |out| {
            reply_header(message.number as i32, 0, code.number(), out);
            if !message.is_refused {
                out.put_buffer(Some(&message.answer));
            }
        });
        connection.received += 1;
        connection.sent += 1;
        if message.is_refused {
            self.metrics.auth_failed += 1;
            connection.stage = Stage::Closed;
        }
        self.runnable.insert(node);
    }

    /// Answers a ping at once.
    pub(crate) fn on_ping(&mut self, node: NodeId, xid: i32) {
        if let Some(connection) = self.connections.get_mut(&node) {
            let seen = connection.seen;
            frame(&mut connection.output, |out| reply_header(xid, seen, 0, out));
            connection.sent += 1;
        }
    }

    /// The session has ended; true if its user had asked for that.
    pub(crate) fn on_session_ended(&mut self, node: NodeId) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        // Announced twice, it must not be taken for an expiry while the answer waits for its turn.
        let Some(entry) = connection.queue.iter_mut().find(|entry| entry.opcode == op::CLOSE) else {
            return false;
        };
        if matches!(entry.work, Work::Close) {
            entry.work = Work::Done(Reply { last: true, ..Reply::new(0, 0, Bytes::new()) });
        }
        self.runnable.insert(node);
        true
    }
}

/// `user:base64(sha1(user:password))` of `user:password`.
fn digest_of(token: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(token).ok()?;
    let user = text.split(':').next().unwrap_or_default();
    Some(format!("{user}:{}", STANDARD.encode(Sha1::digest(token))))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A digest that differs from ZooKeeper's locks everybody out of data that were brought along.
    #[test]
    fn digests_are_zookeepers() {
        assert_eq!(digest_of(b"super:test").as_deref(), Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU="));
        assert_eq!(digest_of(&[0xff]), None);
    }
}
