//! What a host runs: Mason's roles with the coordination service's parts, and the ends of users' connections.

use super::judged::{JudgedSessions, JudgedTree};
use crate::moments::Seated;
use coordination::Gateway;
use kernel::client::Response;
use kernel::client::{Connected, ConnectionIn, Disconnected, Input, Taken};
use kernel::{Bytes, Cx, NodeId, Position, RequestId, Role};
use mason::{Deployment, Mason, MasonMember};
use std::collections::VecDeque;
use std::convert::Infallible;

kernel::nodes! {
    /// A node of the coordination service, or the end of a user's connection.
    pub enum Seat of Mason {
        /// A role of the cluster.
        node Member(Box<MasonMember<JudgedSessions, JudgedTree, Gateway>>),
        /// A user's connection, or where its operations wait.
        role Socket(Socket) "socket",
    }
}

/// What the scenario asks of a socket, by the first byte; what follows are its arguments.
pub(crate) const CONNECT: u8 = 0;
/// See [`CONNECT`]: bytes for the gateway.
pub(crate) const INPUT: u8 = 1;
/// See [`CONNECT`].
pub(crate) const DISCONNECT: u8 = 2;
/// See [`CONNECT`]: answered when there is output.
pub(crate) const POLL: u8 = 3;
/// See [`CONNECT`]: not answered before it is released.
pub(crate) const HOLD: u8 = 4;
/// See [`CONNECT`]: the number of a request that is held.
pub(crate) const RELEASE: u8 = 5;

/// How an answer begins: it shows nothing.
pub(crate) const NOTHING: u8 = 0;
/// How an answer begins: what follows was written to the user.
pub(crate) const OUTPUT: u8 = 1;
/// How an answer begins: the connection is closed, for the reason that follows.
pub(crate) const CLOSED: u8 = 2;

/// Passes bytes on: the scenario is the user. A stream's bytes arrive whole and in order, or the connection is broken.
#[derive(Default, Debug)]
pub struct Socket {
    answers: VecDeque<Bytes>,
    polled: Option<RequestId>,
    /// Bytes that the user has taken.
    taken: u64,
}

fn answer(kind: u8, bytes: &[u8]) -> Bytes {
    [&[kind], bytes].concat().into()
}

impl Socket {
    fn reshard(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(id) = self.polled
            && let Some(answer) = self.answers.pop_front()
        {
            self.polled = None;
            if answer.first() == Some(&OUTPUT) {
                self.taken += answer.len() as u64 - 1;
                cx.send(Deployment::gateway(cx.node().host()), Taken { bytes: self.taken });
            }
            cx.respond(id, Response(answer));
        }
    }
}

impl Role for Socket {
    type Family = Mason;
    type In = ConnectionIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, _from: NodeId, message: ConnectionIn, cx: &mut Cx<'_, Self>) {
        match message {
            ConnectionIn::Output(output) => self.answers.push_back(answer(OUTPUT, &output.bytes)),
            ConnectionIn::Close(close) => self.answers.push_back(answer(CLOSED, close.reason.as_bytes())),
            // Users ask so little that nobody has to be slowed down.
            ConnectionIn::Pause(_) => {}
        }
        self.reshard(cx);
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        let gateway = Deployment::gateway(cx.node().host());
        let nothing = || Response(answer(NOTHING, &[]));
        match request.first() {
            Some(&CONNECT) => {
                self.answers.clear();
                self.taken = 0;
                cx.send(gateway, Connected { address: "10.0.0.1".to_owned(), certificate: None, port: None });
                cx.respond(id, nothing());
            }
            Some(&INPUT) => {
                cx.send(gateway, Input { bytes: request.slice(1..) });
                cx.respond(id, nothing());
            }
            Some(&DISCONNECT) => {
                cx.send(gateway, Disconnected {});
                cx.respond(id, nothing());
            }
            Some(&POLL) => {
                self.polled = Some(id);
                self.reshard(cx);
            }
            Some(&HOLD) => {}
            Some(&RELEASE) => {
                let held = request.get(1..9).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
                held.into_iter().for_each(|held| cx.respond(RequestId(held), nothing()));
                cx.respond(id, nothing());
            }
            Some(_) | None => cx.respond(id, nothing()),
        }
    }
}

impl Seated for Seat {
    type Stub = JudgedSessions;
    type Shard = JudgedTree;
    type Gateway = Gateway;

    fn member(&self) -> Option<&MasonMember<JudgedSessions, JudgedTree, Gateway>> {
        match self {
            Self::Member(member) => Some(member),
            Self::Socket(_) => None,
        }
    }
}
