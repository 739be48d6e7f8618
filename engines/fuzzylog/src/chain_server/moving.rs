//! How a head has colours leave its partition, or come to it.
//!
//! ```text
//! director           head of the source     head of the target
//!   | PlaceColours        |                       |
//!   |-------------------->| SealColours, of its row
//!   |-------------------------------------------->|
//!   |                     |           PullColours |
//!   |                     |<----------------------|   until nothing is on its way to them, any server may be asked
//!   |                     | ColoursPulled         |
//!   |                     |---------------------->|   TakeColours, of its row; page by page
//!   |<---------------------------------------Pong |   all of it is here
//!   | PlaceColours: the move has ended            |
//!   |-------------------->| ForgetColours         |
//!   |-------------------------------------------->| OwnColours
//! ```
//! What was done is in the rows. The next head goes on from there as soon as directors have notified it of what is decided. A map that
//! is older than what stands in the row decides nothing: the move of the row is later than all that this head knows.

use super::{ChainServer, ColoursPulled, PlaceColours, PullColours, latest};
use crate::map::{ColourMap, ColourMove};
use crate::messages::client::ColoursPlaced;
use crate::messages::director::{ComingColours, MovesSeen};
use crate::partition::command::{
    Command, ForgetColours, KeepColours, MovePage, MovePoint, OwnColours, RowEntry, SealColours, TakeColours,
};
use crate::terms::{MapVersion, RowIndex};
use kernel::{Cx, Instant, NodeId};

/// Users' clients that a partition may have by those that come with colours, as many times those that it takes itself.
const CLIENTS_BEYOND: usize = 2;

/// What a server knows about where colours are, beside what is in the row.
#[derive(Clone, Debug)]
pub(super) struct Mover {
    map: ColourMap,
    /// The servers of the partition that the colours of the move in flight leave, and which one is asked next.
    sources: Vec<NodeId>,
    next: usize,
    /// When one was asked for what has not come.
    asked_at: Option<Instant>,
    /// The last command of a move that this head has ordered, which may not be applied.
    ordered: Option<RowIndex>,
    has_no_room: Option<MapVersion>,
}

impl Mover {
    pub(super) fn new(map: ColourMap) -> Self {
        Self { map, sources: Vec::new(), next: 0, asked_at: None, ordered: None, has_no_room: None }
    }

    /// What an earlier epoch has ordered means nothing to this one.
    pub(super) fn forget_orders(&mut self) {
        (self.asked_at, self.ordered, self.has_no_room) = (None, None, None);
    }
}

impl ChainServer {
    /// Where colours are, as far as it knows.
    pub fn map(&self) -> &ColourMap {
        &self.mover.map
    }

    pub(super) fn moves_seen(&self) -> MovesSeen {
        let (mut taken, mut coming) = (None, None);
        match self.state.taking() {
            Some((begun, None)) => taken = Some(begun.id),
            Some((begun, Some(next))) => coming = Some(ComingColours { id: begun.id, next }),
            None => {}
        }
        let (version, has_no_room) = (self.mover.map.version(), self.mover.has_no_room);
        MovesSeen { version, taken, has_no_room, coming }
    }

    pub(super) fn on_place(&mut self, message: PlaceColours, cx: &mut Cx<'_, Self>) {
        let PlaceColours { moves, sources } = message;
        if moves.version < self.mover.map.version() {
            return;
        }
        self.mover.sources = sources;
        if self.mover.map.take(moves.clone()) {
            self.mover.asked_at = None;
            cx.send(self.client, ColoursPlaced { moves });
        }
        self.go_on_moving(cx);
    }

    /// Orders what comes next of a move, or asks for it.
    pub(super) fn go_on_moving(&mut self, cx: &mut Cx<'_, Self>) {
        let is_idle = self.mover.map.moving().is_none() && !self.state.is_moving();
        if is_idle || !self.is_head(cx.node()) {
            return;
        }
        if self.mover.ordered.is_some_and(|index| index >= self.state.applied()) || cx.is_disk_full() {
            return;
        }
        self.mover.ordered = None;
        if let Some(begun) = self.ended(self.state.leaving()) {
            return self.end_move(&begun, false, cx);
        }
        if let Some(begun) = self.ended(self.state.taking().map(|(begun, _)| begun)) {
            return self.end_move(&begun, true, cx);
        }
        let Some(begun) = self.mover.map.moving().cloned() else { return };
        if begun.id <= self.state.moves_over() || self.state.region().is_some() {
            return;
        }
        if begun.from == self.partition && self.state.leaving().is_none() {
            cx.mark("chain.seals_colours");
            self.order_move(SealColours { begun }, cx);
        } else if begun.to == self.partition {
            self.pull_colours(&begun, cx);
        }
    }

    /// The move of the row, if it is over by a map that knows of it.
    fn ended(&self, begun: Option<&ColourMove>) -> Option<ColourMove> {
        let map = &self.mover.map;
        let is_over =
            |begun: &&ColourMove| map.version() > begun.id && map.moving().is_none_or(|it| it.id != begun.id);
        begun.filter(is_over).cloned()
    }

    fn end_move(&mut self, begun: &ColourMove, comes: bool, cx: &mut Cx<'_, Self>) {
        let (id, version) = (begun.id, self.mover.map.version());
        let is_here = begun.colours.iter().all(|&it| self.mover.map.partition_of(it) == self.partition);
        match (comes, is_here) {
            (true, true) => {
                if self.parameters.order.is_strict() {
                    if !cx.wall().usable {
                        return;
                    }
                    // What is proposed anew gets a time after all that was read without it.
                    self.raise(latest(cx.wall()), cx);
                }
                cx.mark("chain.owns_colours_that_came");
                self.order_move(OwnColours { id, version }, cx);
            }
            (false, false) => self.order_move(ForgetColours { id, version }, cx),
            (true, false) | (false, true) => {
                cx.mark("chain.ends_a_move_that_was_taken_back");
                self.order_move(KeepColours { id, version }, cx);
            }
        }
    }

    fn order_move(&mut self, command: impl Into<Command>, cx: &mut Cx<'_, Self>) {
        self.mover.ordered = Some(self.length());
        self.mover.asked_at = None;
        self.order(RowEntry { origin: cx.node(), call: 0, command: command.into() }, cx);
    }

    /// Where the next page of a move begins; none if all of it is here.
    fn next_of(&self, id: MapVersion) -> Option<MovePoint> {
        match self.state.taking() {
            Some((begun, next)) => next.filter(|_| begun.id == id),
            None => Some(MovePoint::default()),
        }
    }

    fn pull_colours(&mut self, begun: &ColourMove, cx: &mut Cx<'_, Self>) {
        let (id, now) = (begun.id, cx.now());
        let Some(at) = self.next_of(id) else { return };
        if self.mover.asked_at.is_some_and(|asked| now.since(asked) < self.parameters.resend_after) {
            return;
        }
        let mover = &mut self.mover;
        if mover.asked_at.replace(now).is_some() {
            mover.next += 1;
        }
        if let Some(&source) = mover.sources.get(mover.next % mover.sources.len().max(1)) {
            cx.send(source, PullColours { id, at });
        }
    }

    pub(super) fn on_pull_colours(&mut self, from: NodeId, message: &PullColours, cx: &mut Cx<'_, Self>) {
        let PullColours { id, at } = *message;
        if let Some(page) = self.state.move_page(id, at, self.parameters.page_bytes) {
            // What a tail has applied may not be on its own disk.
            cx.send_durable(from, ColoursPulled { id, page });
        }
    }

    pub(super) fn on_colours_pulled(&mut self, message: ColoursPulled, cx: &mut Cx<'_, Self>) {
        let ColoursPulled { id, page } = message;
        let begun = self.mover.map.moving().filter(|it| it.id == id && it.to == self.partition).cloned();
        let Some(begun) = begun.filter(|_| self.is_head(cx.node())) else { return };
        let is_next = self.next_of(id) == Some(page.at) && id > self.state.moves_over();
        let is_ordered = self.mover.ordered.is_some_and(|index| index >= self.state.applied());
        if !is_next || is_ordered || self.is_busy(usize::MAX, cx) {
            return;
        }
        if !page.is_of(&begun) {
            return cx.reject("page of colours that do not move, or out of order");
        }
        let clients = self.state.clients() + page.clients.len();
        let has_room = self.state.live_bytes() + self.window + page.bytes() < self.parameters.live_bytes_max
            && clients <= CLIENTS_BEYOND * self.parameters.clients_max;
        if !has_room {
            cx.mark("chain.has_no_room_for_colours");
            self.mover.has_no_room = Some(id);
            return;
        }
        self.order_move(TakeColours { begun, page }, cx);
    }
}

impl MovePage {
    /// What it costs in a row, about.
    pub(super) fn bytes(&self) -> usize {
        let places = self.clients.iter().flat_map(|it| &it.done).map(|it| 96 + 16 * it.placed.len());
        let nodes = self.chains.iter().flat_map(|it| &it.nodes).map(crate::ColourNode::bytes);
        48 * self.chains.len() + 32 * self.clients.len() + places.sum::<usize>() + nodes.sum::<usize>()
    }

    /// True of a page of these colours, whose nodes follow each other.
    fn is_of(&self, begun: &ColourMove) -> bool {
        let comes_later = |next: MovePoint| next > self.at;
        self.next.is_none_or(comes_later)
            && self.chains.iter().all(|chain| {
                let times = chain.nodes.windows(2).all(|pair| pair[0].at < pair[1].at);
                let ends = chain.nodes.last().is_none_or(|node| node.at <= chain.last);
                begun.colours.contains(&chain.colour) && chain.at >= chain.first && times && ends
            })
    }
}
