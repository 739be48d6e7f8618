//! What a protocol role is, and what a driver hosts.

mod awaited;
mod effects;
mod inner;

pub use awaited::AwaitedTimers;
pub use effects::{
    Cx, Effect, Effects, Journaled, REPEAT_WITHIN, Situation, since_rare_moment, until_moment,
    until_rare_moment,
};
pub use inner::{InnerAnswers, InnerRole};

use crate::blob::BlobNotice;
use crate::codec::{Decode, DecodeError, Encode};
use crate::id::{NodeId, RequestId};
use crate::statement::Statement;
use bytes::Bytes;
use std::fmt::Debug;

/// A protocol and all its roles: what travels between them, and what local applications ask of them.
pub trait Family: Sized + 'static {
    /// Everything that travels between the family's nodes.
    type Message: Encode + Decode + Clone + Debug + Send;
    /// What a local application asks (of a client library, usually).
    type Request: Clone + Debug + Send;
    /// What it is answered.
    type Response: Clone + Debug + Send;
}

/// A family that hosts nodes of the family `Inner`: how what they are sent and asked gets in, and what they say gets out.
pub trait Embeds<Inner: Family>: Family {
    /// What an inner node is sent; none if the message is for others.
    fn inner_message(message: Self::Message) -> Option<Inner::Message>;
    /// What an inner node is asked; none if the request is for others.
    fn inner_request(request: Self::Request) -> Option<Inner::Request>;
    /// What an inner node sends.
    fn outer_message(message: Inner::Message) -> Self::Message;
    /// What an inner node answers.
    fn outer_response(response: Inner::Response) -> Self::Response;
}

/// A deterministic state machine that performs no I/O.
///
/// **Contract with the driver.**
/// - Calls are made one at a time. Effects are carried out after the call returns, in the order they were pushed.
/// - After a crash the role is built anew, `restore` is called for every record that is still needed, in order, then
///   `on_start`. What was not appended is forgotten; what was appended but not yet durable may be.
/// - Links lose, duplicate, delay and reorder messages, except between nodes of one host, where they arrive once and
///   in order as long as the host runs.
/// - Time and randomness come through [`Cx`] alone.
///
/// **Contract with the peer.** Whatever a peer or a client sends is the peer's fault: [`Cx::reject`], never a panic.
/// Panics are for what only our own bugs can break.
pub trait Role: Sized {
    /// The protocol it belongs to.
    type Family: Family;
    /// Everything this role can be sent.
    type In;
    /// Its timers.
    type Timer: TimerKey;
    /// What it must not forget.
    type Record: Encode + Decode;

    /// Takes back a record appended in an earlier incarnation.
    fn restore(&mut self, position: Position, record: Self::Record);

    /// Called once, after the last `restore`.
    fn on_start(&mut self, _cx: &mut Cx<'_, Self>) {}

    /// A message arrived.
    fn on_message(&mut self, from: NodeId, message: Self::In, cx: &mut Cx<'_, Self>);

    /// A timer that was set and not stopped has run out.
    fn on_timer(&mut self, _timer: Self::Timer, _cx: &mut Cx<'_, Self>) {}

    /// A local application asks; answer once by [`Cx::respond`].
    fn on_request(
        &mut self,
        _id: RequestId,
        _request: <Self::Family as Family>::Request,
        cx: &mut Cx<'_, Self>,
    ) {
        cx.reject("request to a role that serves none");
    }

    /// What became of something that was asked of a blob. Only for roles that have blobs.
    fn on_blob(&mut self, _notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        cx.reject("word of a blob to a role that has none");
    }

    /// All that had arrived has been handed over: emit what was coalesced.
    fn on_burst_end(&mut self, _cx: &mut Cx<'_, Self>) {}

    /// The timers that are to be pending between two bursts of this node, by what it has to do. For the simulator.
    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE
    }

    /// What it says of its state. For the simulator.
    fn statement(&self) -> Statement {
        Statement::default()
    }
}

/// What a driver hosts: any role of a family, with types erased to the family's (see [`crate::family!`]).
pub trait Node: Sized {
    /// The protocol family of everything hosted together.
    type Family: Family;

    /// See [`Role::restore`]; `Err` for a record that this version cannot read.
    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError>;
    /// See [`Role::on_start`].
    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<Self::Family>);
    /// See [`Role::on_message`]; a message for another role is rejected.
    fn on_message(
        &mut self,
        from: NodeId,
        message: <Self::Family as Family>::Message,
        situation: Situation<'_>,
        effects: &mut Effects<Self::Family>,
    );
    /// See [`Role::on_timer`].
    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<Self::Family>);
    /// See [`Role::on_request`].
    fn on_request(
        &mut self,
        id: RequestId,
        request: <Self::Family as Family>::Request,
        situation: Situation<'_>,
        effects: &mut Effects<Self::Family>,
    );
    /// See [`Role::on_blob`]. A wrapper of nodes that have blobs passes it on.
    fn on_blob(
        &mut self,
        _notice: BlobNotice,
        _situation: Situation<'_>,
        effects: &mut Effects<Self::Family>,
    ) {
        effects.reject("word of a blob to a node that has none");
    }
    /// See [`Role::on_burst_end`].
    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<Self::Family>);
    /// The role's name, for traces: the word of the paper.
    fn role_name(&self) -> &'static str;
    /// See [`Role::awaited_timers`]. A wrapper passes it on.
    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE
    }
    /// See [`Role::statement`]. A wrapper passes it on.
    fn statement(&self) -> Statement {
        Statement::default()
    }
}

/// A position in a node's journal: how many records the node had appended before, over all its incarnations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

/// A timer's number within its role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerIndex(pub u8);

/// A fieldless enum of timers (see [`crate::timers!`]): at most one of each is pending, and setting it again replaces it.
pub trait TimerKey: Copy + Debug {
    /// Its number.
    fn index(self) -> TimerIndex;
    /// The timer of a number.
    fn from_index(index: TimerIndex) -> Option<Self>;
}

/// For roles without timers.
impl TimerKey for std::convert::Infallible {
    fn index(self) -> TimerIndex {
        match self {}
    }

    fn from_index(_index: TimerIndex) -> Option<Self> {
        None
    }
}
