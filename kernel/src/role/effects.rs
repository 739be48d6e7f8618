//! What a role may ask of its driver, pushed into a buffer that is reused from burst to burst.

use crate::beacon::{Beacons, Silence};
use crate::blob::{ArchiveObject, BlobEffect, BlobId, BlobRange};
use crate::codec::Encode;
use crate::id::{NodeId, RequestId};
use crate::rng::Rng;
use crate::role::{Embeds, Family, Position, Role, TimerIndex, TimerKey};
use crate::time::{Instant, Wall};
use bytes::Bytes;
use std::marker::PhantomData;
use std::time::Duration;

/// How long a message that repeats what was sent before may wait, so that many leave as one.
pub const REPEAT_WITHIN: Duration = Duration::from_millis(50);

/// How far apart moments are at which roles look that have nothing to do.
const RARE_MOMENTS: Duration = REPEAT_WITHIN.saturating_mul(8);

/// How long it is until the next of the moments at which a host wakes anyhow. What is only looked at now and then is looked at then: the
/// moments are the same for all roles of a host, [`REPEAT_WITHIN`] apart.
pub fn until_moment(now: Instant) -> Duration {
    now.next_turn(REPEAT_WITHIN) - now
}

/// The same of the moments that roles with nothing to do wait for, eight times as far apart: what they look for then, a message brings sooner.
pub fn until_rare_moment(now: Instant) -> Duration {
    RARE_MOMENTS - since_rare_moment(now)
}

/// How long ago the last of those was.
pub fn since_rare_moment(now: Instant) -> Duration {
    now - now.last_turn(RARE_MOMENTS)
}

/// One thing a driver is to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<M, R> {
    /// Send at once.
    Send {
        /// The receiver.
        to: NodeId,
        /// What it receives.
        message: M,
    },
    /// Send when every record before `after` is durable.
    SendDurable {
        /// The receiver.
        to: NodeId,
        /// What it receives.
        message: M,
        /// The journal's cursor when it was pushed.
        after: Position,
    },
    /// Send what is said again and again, mostly unchanged: a heartbeat. It may wait for others for [`REPEAT_WITHIN`], and is sent once
    /// if it is said twice meanwhile.
    Repeat {
        /// The receiver.
        to: NodeId,
        /// What it receives.
        message: M,
        /// Every record before is durable first; none: at once.
        after: Option<Position>,
    },
    /// Say this again and again, until another one is set or it is stopped.
    SetBeacon {
        /// The receiver.
        to: NodeId,
        /// What it receives.
        message: M,
    },
    /// Say no more what was set; nothing if nothing was.
    StopBeacon {
        /// The receiver.
        to: NodeId,
    },
    /// (Re)start a timer.
    SetTimer {
        /// Which.
        timer: TimerIndex,
        /// How long from now.
        after: Duration,
        /// What ends the wait early, if anything does.
        silence: Option<Silence>,
    },
    /// Stop a timer; nothing if it is not pending.
    StopTimer {
        /// Which.
        timer: TimerIndex,
    },
    /// Answer a call of the local application.
    Respond {
        /// The call.
        id: RequestId,
        /// The answer.
        response: R,
    },
    /// Records before `before` will not be needed again. Takes effect only when everything appended before this
    /// effect is durable: what replaces the old records must be safe first.
    Trim {
        /// The first record still needed.
        before: Position,
    },
    /// Something about the node's blobs.
    Blob(BlobEffect),
    /// A peer or client broke the protocol; counted under the reason.
    Reject {
        /// What was wrong, as a stable phrase.
        reason: &'static str,
    },
    /// A rare situation was reached; the simulator demands that each mark is hit.
    Mark {
        /// The situation's name, `role.what_happened`.
        name: &'static str,
    },
    /// A remark for the trace.
    Note {
        /// Plain text.
        text: String,
    },
}

/// The buffer of one node.
#[derive(Debug)]
pub struct Effects<F: Family> {
    effects: Vec<Effect<F::Message, F::Response>>,
    journal: Vec<u8>,
    record_ends: Vec<usize>,
    next: Position,
    tracing: bool,
}

/// A record appended in this burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journaled<'a> {
    /// Its position in the node's journal.
    pub position: Position,
    /// Its encoding.
    pub bytes: &'a [u8],
}

impl<F: Family> Effects<F> {
    /// An empty buffer of a node whose next record will stand at `next`. With `tracing`, notes are recorded.
    pub fn new(next: Position, tracing: bool) -> Self {
        Self { effects: Vec::new(), journal: Vec::new(), record_ends: Vec::new(), next, tracing }
    }

    /// Where the next record will stand.
    pub fn cursor(&self) -> Position {
        self.next
    }

    /// Counts what a node was sent and has no role for; see [`Cx::reject`].
    pub fn reject(&mut self, reason: &'static str) {
        self.effects.push(Effect::Reject { reason });
    }

    /// True if nothing was pushed since the last drain.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.record_ends.is_empty()
    }

    /// True if the timer was set or stopped since the last drain.
    pub fn has_changed_timer(&self, timer: TimerIndex) -> bool {
        self.effects.iter().any(|effect| {
            matches!(effect, Effect::SetTimer { timer: changed, .. } | Effect::StopTimer { timer: changed } if *changed == timer)
        })
    }

    /// The records appended since the last drain, in order.
    pub fn records(&self) -> impl Iterator<Item = Journaled<'_>> {
        let first = self.next.0 - self.record_ends.len() as u64;
        self.record_ends.iter().enumerate().map(move |(index, &end)| {
            let start = if index == 0 { 0 } else { self.record_ends[index - 1] };
            Journaled { position: Position(first + index as u64), bytes: &self.journal[start..end] }
        })
    }

    /// Forgets the records; the driver has written them.
    pub fn clear_records(&mut self) {
        self.journal.clear();
        self.record_ends.clear();
    }

    /// Takes the effects out in order, and keeps the buffer's memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect<F::Message, F::Response>> {
        self.effects.drain(..)
    }

    /// Takes over what a role of another family, hosted inside a node of this one, has pushed since it was given this buffer's
    /// cursor.
    pub(crate) fn absorb<G: Family>(&mut self, inner: &mut Effects<G>)
    where
        F: Embeds<G>,
    {
        let journaled = self.journal.len();
        self.journal.append(&mut inner.journal);
        self.record_ends.extend(inner.record_ends.drain(..).map(|end| journaled + end));
        self.next = inner.next;
        self.effects.extend(inner.effects.drain(..).map(|effect| match effect {
            Effect::Send { to, message } => Effect::Send { to, message: F::outer_message(message) },
            Effect::SendDurable { to, message, after } => {
                Effect::SendDurable { to, message: F::outer_message(message), after }
            }
            Effect::Repeat { to, message, after } => {
                Effect::Repeat { to, message: F::outer_message(message), after }
            }
            Effect::SetBeacon { to, message } => Effect::SetBeacon { to, message: F::outer_message(message) },
            Effect::StopBeacon { to } => Effect::StopBeacon { to },
            Effect::SetTimer { timer, after, silence } => Effect::SetTimer { timer, after, silence },
            Effect::StopTimer { timer } => Effect::StopTimer { timer },
            Effect::Trim { before } => Effect::Trim { before },
            Effect::Blob(blob) => Effect::Blob(blob),
            Effect::Reject { reason } => Effect::Reject { reason },
            Effect::Mark { name } => Effect::Mark { name },
            Effect::Note { text } => Effect::Note { text },
            Effect::Respond { id, response } => Effect::Respond { id, response: F::outer_response(response) },
        }));
    }

    /// Starts at the cursor of the buffer that will absorb this one.
    pub(crate) fn follow<G: Family>(&mut self, outer: &Effects<G>) {
        debug_assert!(self.is_empty(), "absorbed after every call");
        self.next = outer.next;
        self.tracing = outer.tracing;
    }

    /// The effects pushed since the last drain.
    pub fn as_slice(&self) -> &[Effect<F::Message, F::Response>] {
        &self.effects
    }
}

/// What a driver gives a node with each call.
#[derive(Debug)]
pub struct Situation<'a> {
    /// The node itself.
    pub node: NodeId,
    /// The monotonic clock.
    pub now: Instant,
    /// The wall clock.
    pub wall: Wall,
    /// The node's randomness.
    pub rng: &'a mut Rng,
    /// Nothing can be made durable now: this host's disk is full, or those of half of the hosts.
    pub disk_full: bool,
    /// Which beacons this host's nodes hear.
    pub beacons: &'a Beacons,
}

/// A role's window on the world during one call.
#[derive(Debug)]
pub struct Cx<'a, R: Role> {
    situation: Situation<'a>,
    effects: &'a mut Effects<R::Family>,
    role: PhantomData<fn(R)>,
}

impl<'a, R: Role> Cx<'a, R> {
    /// The window of one call.
    pub fn new(situation: Situation<'a>, effects: &'a mut Effects<R::Family>) -> Self {
        Self { situation, effects, role: PhantomData }
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.situation.node
    }

    /// The monotonic clock at the start of the call.
    pub fn now(&self) -> Instant {
        self.situation.now
    }

    /// The wall clock at the start of the call.
    pub fn wall(&self) -> Wall {
        self.situation.wall
    }

    /// True while nothing can be made durable: a role that takes in work that must be refuses it, and says why.
    pub fn is_disk_full(&self) -> bool {
        self.situation.disk_full
    }

    /// Which beacons this host's nodes hear.
    pub(crate) fn beacons(&self) -> &'a Beacons {
        self.situation.beacons
    }

    /// When the beacon of `from` to this node was heard last; none if it has set none, or has stopped it. It is not heard before the
    /// message was handed over.
    pub fn beacon_heard_at(&self, from: NodeId) -> Option<Instant> {
        self.situation.beacons.heard_at(from, self.situation.node, self.situation.now)
    }

    /// The node's randomness.
    pub fn rng(&mut self) -> &mut Rng {
        self.situation.rng
    }

    /// Sends at once. Nothing in the message may promise or reveal what is journaled but not durable.
    pub fn send(&mut self, to: NodeId, message: impl Into<<R::Family as Family>::Message>) {
        self.effects.effects.push(Effect::Send { to, message: message.into() });
    }

    /// Sends the same to several.
    pub fn multicast(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        message: impl Into<<R::Family as Family>::Message>,
    ) {
        let message = message.into();
        for to in to {
            self.effects.effects.push(Effect::Send { to, message: message.clone() });
        }
    }

    /// Sends when everything this node has appended so far is durable.
    pub fn send_durable(&mut self, to: NodeId, message: impl Into<<R::Family as Family>::Message>) {
        let after = self.effects.next;
        self.effects.effects.push(Effect::SendDurable { to, message: message.into(), after });
    }

    /// Sends to several what is said again and again, mostly unchanged, as a heartbeat is. If it has not changed it may wait for
    /// [`REPEAT_WITHIN`], and is sent once if it is said twice meanwhile. Nothing in it may promise or reveal what is journaled but not durable.
    pub fn repeat(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        message: impl Into<<R::Family as Family>::Message>,
    ) {
        let message = message.into();
        for to in to {
            self.effects.effects.push(Effect::Repeat { to, message: message.clone(), after: None });
        }
    }

    /// The same, when everything that this node has appended so far is durable.
    pub fn repeat_durable(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        message: impl Into<<R::Family as Family>::Message>,
    ) {
        let (message, after) = (message.into(), Some(self.effects.next));
        for to in to {
            self.effects.effects.push(Effect::Repeat { to, message: message.clone(), after });
        }
    }

    /// Has this said to each of `to` again and again, until it is stopped or another message is set; setting the same again does nothing.
    /// A receiver is called once for each that is set, and after a break of the link; else it asks [`Cx::beacon_heard_at`]. It is heard
    /// once in [`REPEAT_WITHIN`] while both hosts run and the link is up, whatever this role does: what it says must hold until it is
    /// stopped. Nothing in it may promise or reveal what is journaled but not durable.
    pub fn set_beacon(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        message: impl Into<<R::Family as Family>::Message>,
    ) {
        let message = message.into();
        for to in to {
            self.effects.effects.push(Effect::SetBeacon { to, message: message.clone() });
        }
    }

    /// Stops what was set. Who receives it no more may learn late.
    pub fn stop_beacon(&mut self, to: impl IntoIterator<Item = NodeId>) {
        for to in to {
            self.effects.effects.push(Effect::StopBeacon { to });
        }
    }

    /// Adds to the journal and returns the record's position.
    pub fn append(&mut self, record: &R::Record) -> Position {
        record.encode(&mut self.effects.journal);
        self.effects.record_ends.push(self.effects.journal.len());
        let position = self.effects.next;
        self.effects.next.0 += 1;
        position
    }

    /// Where the next record will stand.
    pub fn cursor(&self) -> Position {
        self.effects.next
    }

    /// Gives up the records before `before`, once all that was appended until now is durable.
    pub fn trim(&mut self, before: Position) {
        self.effects.effects.push(Effect::Trim { before });
    }

    /// Writes a blob; see [`crate::BlobEffect`].
    pub fn store_blob(&mut self, id: BlobId, bytes: Bytes) {
        self.effects.effects.push(Effect::Blob(BlobEffect::Store { id, bytes }));
    }

    /// Reads a part of a blob.
    pub fn load_blob(&mut self, range: BlobRange) {
        self.effects.effects.push(Effect::Blob(BlobEffect::Load { range }));
    }

    /// Removes a blob, once all that was appended until now is durable.
    pub fn drop_blob(&mut self, id: BlobId) {
        self.effects.effects.push(Effect::Blob(BlobEffect::Drop { id }));
    }

    /// Copies a blob into the archive.
    pub fn archive_blob(&mut self, id: BlobId, object: ArchiveObject) {
        self.effects.effects.push(Effect::Blob(BlobEffect::Archive { id, object }));
    }

    /// Says which blobs this node knows, when it starts.
    pub fn keep_blobs(&mut self, ids: Vec<BlobId>) {
        self.effects.effects.push(Effect::Blob(BlobEffect::Keep { ids }));
    }

    /// (Re)starts a timer.
    pub fn set_timer(&mut self, timer: R::Timer, after: Duration) {
        self.effects.effects.push(Effect::SetTimer { timer: timer.index(), after, silence: None });
    }

    /// (Re)starts a timer that runs out sooner if the beacon of one of `of` to this node was not heard for `lasts`, or is stopped: as long
    /// as all are heard, nobody is called. One that is not lit counts as heard now. It may run out early, as if one had been silent.
    pub fn await_silence(
        &mut self,
        timer: R::Timer,
        of: impl IntoIterator<Item = NodeId>,
        lasts: Duration,
        after: Duration,
    ) {
        let silence = Some(Silence { of: of.into_iter().collect(), lasts });
        self.effects.effects.push(Effect::SetTimer { timer: timer.index(), after, silence });
    }

    /// Stops a timer.
    pub fn stop_timer(&mut self, timer: R::Timer) {
        self.effects.effects.push(Effect::StopTimer { timer: timer.index() });
    }

    /// Answers a call of the local application.
    pub fn respond(&mut self, id: RequestId, response: <R::Family as Family>::Response) {
        self.effects.effects.push(Effect::Respond { id, response });
    }

    /// Turns away what a peer or client must not send.
    pub fn reject(&mut self, reason: &'static str) {
        self.effects.effects.push(Effect::Reject { reason });
    }

    /// Marks a rare situation as reached.
    pub fn mark(&mut self, name: &'static str) {
        self.effects.effects.push(Effect::Mark { name });
    }

    /// A remark for the trace; `text` is built only if somebody traces.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.effects.tracing {
            self.effects.effects.push(Effect::Note { text: text() });
        }
    }
}
