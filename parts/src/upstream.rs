//! What every gateway over an engine that orders by groups does alike: its incarnations, operations that are sent again until they are
//! answered, barriers, and which groups are in use. A service adds what it is asked, and what it answers.

use crate::barriers::Asked;
use crate::{Barriers, Incarnation, Outbox, Passed, Tagged};
use kernel::{Bytes, Cx, Family, Instant, NodeId, Role};
use std::time::Duration;

/// An engine whose groups take the operations of gateways, as its gateways speak to it.
///
/// **Contract.** A group admits the operations of an incarnation in the order of their tags, each once; it takes nothing of an incarnation
/// once it has taken something of a later one. It answers a barrier when a read of now, by this gateway, sees all that the group had
/// ordered when the barrier was sent.
pub trait Ordering: Family {
    /// An operation on its way.
    type Operation;
    /// Which groups are in use.
    type Layout: InUse;

    /// An operation of the origin.
    fn operation(origin: NodeId, of: Tagged, body: Bytes) -> Self::Operation;
    /// Has operations ordered; their tags follow one another.
    fn submit(operations: Vec<Self::Operation>) -> Self::Message;
    /// A barrier.
    fn barrier(id: u64) -> Self::Message;
}

/// Which groups are in use.
pub trait InUse: Clone {
    /// Larger for each change.
    fn version(&self) -> u64;
    /// Operations are taken by the groups below this one.
    fn serving(&self) -> usize;
    /// The groups below this one may have taken operations: barriers ask them all.
    fn spanning(&self) -> usize;
}

/// When a gateway sends again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Operations, of which a group has answered none for so long.
    pub resend_after: Duration,
    /// Barriers.
    pub ask_again_after: Duration,
}

/// The group whose answers to barriers say which groups are in use.
const FIRST: usize = 0;
/// A barrier that nobody waits for: its answer says which groups are in use.
const LOOK: u64 = 0;

/// A gateway's view of the engine behind it. `A` says who waits for an operation's answer, `W` who waits for a barrier.
#[derive(Debug)]
pub struct Upstream<F: Ordering, A, W> {
    /// Where a group's operations go, on the gateway's own host; by group, in use or not.
    groups: Vec<NodeId>,
    layout: F::Layout,
    incarnation: Incarnation,
    outbox: Outbox<A>,
    barriers: Barriers<W>,
}

impl<F: Ordering, A: Clone, W: Clone> Clone for Upstream<F, A, W> {
    fn clone(&self) -> Self {
        Self {
            groups: self.groups.clone(),
            layout: self.layout.clone(),
            incarnation: self.incarnation,
            outbox: self.outbox.clone(),
            barriers: self.barriers.clone(),
        }
    }
}

impl<F: Ordering, A, W: PartialEq> Upstream<F, A, W> {
    /// Nothing is in flight. `layout`: as far as is known.
    pub fn new(groups: Vec<NodeId>, layout: F::Layout, patience: Patience) -> Self {
        Self {
            incarnation: Incarnation::default(),
            outbox: Outbox::new(Incarnation::default(), &groups, patience.resend_after),
            barriers: Barriers::new(patience.ask_again_after),
            groups,
            layout,
        }
    }

    /// The same, with other groups in use.
    #[must_use]
    pub fn with_layout(self, layout: F::Layout) -> Self {
        Self { layout, ..self }
    }

    /// How many groups there are, in use or not.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Which groups are in use, as far as is known.
    pub fn layout(&self) -> &F::Layout {
        &self.layout
    }

    /// Somebody has said which groups are in use.
    pub fn learn(&mut self, layout: &F::Layout) {
        if layout.version() > self.layout.version() {
            self.layout = layout.clone();
        }
    }

    /// A record of the journal.
    pub fn restore(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
    }

    /// The incarnation after the last one, not journaled.
    pub fn next_incarnation<R: Role<Family = F>>(&self, cx: &Cx<'_, R>) -> Incarnation {
        self.incarnation.next(cx.wall())
    }

    /// Begins the next incarnation. Returns who waits for answers that the one before leaves open.
    pub fn begin_incarnation<R>(&mut self, cx: &mut Cx<'_, R>) -> Vec<A>
    where
        R: Role<Family = F, Record = Incarnation>,
    {
        self.incarnation.begin(cx);
        self.outbox.restart(self.incarnation)
    }

    /// Begins this incarnation, which the journal has or need not have.
    pub fn take_up(&mut self, incarnation: Incarnation) -> Vec<A> {
        self.incarnation = incarnation;
        self.outbox.restart(incarnation)
    }

    /// Has an operation ordered by a group; it leaves with the next `flush`.
    pub fn push(&mut self, group: usize, body: Bytes, asker: A, now: Instant) {
        self.outbox.push(group, body, asker, now);
    }

    /// An answer has come: who waits for it.
    pub fn answered(&mut self, of: Tagged, now: Instant) -> Option<A> {
        self.outbox.answered(of, now)
    }

    /// The group does not take the operation, and never will: who waits, and its body.
    pub fn turned_away(&mut self, of: Tagged, layout: &F::Layout, now: Instant) -> Option<(A, Bytes)> {
        self.learn(layout);
        self.outbox.turned_away(of, now)
    }

    /// Operations without an answer, in the group where there are most.
    pub fn outstanding(&self) -> usize {
        self.outbox.longest()
    }

    /// Who waits for an answer to an operation.
    pub fn askers(&self) -> impl Iterator<Item = &A> {
        self.outbox.askers()
    }

    /// Who waits for barriers.
    pub fn barriers(&mut self) -> &mut Barriers<W> {
        &mut self.barriers
    }

    /// True if the barrier has passed.
    pub fn has_passed(&self, barrier: u64) -> bool {
        self.barriers.has_passed(barrier)
    }

    /// A group has answered a barrier. Returns it if it has passed.
    pub fn on_barrier_passed<R: Role<Family = F>>(
        &mut self,
        (group, id): (usize, u64),
        layout: Option<&F::Layout>,
        cx: &mut Cx<'_, R>,
    ) -> Option<Passed<W>> {
        // The first group decides which are in use.
        let layout = layout.filter(|_| group == FIRST);
        layout.into_iter().for_each(|layout| self.learn(layout));
        let answered = self.barriers.on_answer(id, group, layout.map(InUse::spanning));
        self.ask(Asked { id, groups: answered.ask }, cx);
        answered.passed
    }

    /// Sends the barrier that is wanted; false if none is, or too many are in flight.
    pub fn send_barrier<R: Role<Family = F>>(&mut self, cx: &mut Cx<'_, R>) -> bool {
        let asked = self.barriers.send(self.layout.spanning(), cx.now());
        let sent = asked.is_some();
        asked.into_iter().for_each(|asked| self.ask(asked, cx));
        sent
    }

    /// Asks for barriers again that have waited for long.
    pub fn ask_again<R: Role<Family = F>>(&mut self, cx: &mut Cx<'_, R>) {
        for asked in self.barriers.ask_again(cx.now()) {
            self.ask(asked, cx);
        }
    }

    /// Asks which groups are in use.
    pub fn look<R: Role<Family = F>>(&self, cx: &mut Cx<'_, R>) {
        self.ask(Asked { id: LOOK, groups: vec![FIRST] }, cx);
    }

    fn ask<R: Role<Family = F>>(&self, Asked { id, groups }: Asked, cx: &mut Cx<'_, R>) {
        let nodes = groups.iter().filter_map(|&group| self.groups.get(group).copied());
        cx.multicast(nodes, F::barrier(id));
    }

    /// Sends operations: those that are new, and those that have waited for long. They name the incarnation, so they leave when that is
    /// durable.
    pub fn flush<R: Role<Family = F>>(&mut self, cx: &mut Cx<'_, R>) {
        let (origin, now) = (cx.node(), cx.now());
        self.outbox.flush(
            now,
            |of, body| F::operation(origin, of, body),
            |to, operations| cx.send_durable(to, F::submit(operations)),
        );
    }
}
