//! Colours that move from one partition to another.

use crate::server::{client_role, node, serving_as};
use fuzzylog::chain_server::{ChainServerIn, ColoursPulled, FromServer, Ping, PlaceColours, PullColours};
use fuzzylog::partition::command::{
    Answered, Append, CleanUp, Command, Delivered, Elsewhere, Fix, ForgetColours, KeepColours, MovePage,
    MovePoint, Outcome, OwnColours, ProposeTime, RowEntry, SealColours, TakeColours, TakeOver, Trim,
};
use fuzzylog::{
    AppendId, AppendTime, ChainEpoch, ChainMember, ChainProjection, ChainServer, Colour, ColourMove,
    ColourMoves, ColourPlacement, ColourPlan, Content, FuzzyMessage, FuzzyOrder, FuzzyParameters, MapVersion,
    MovedColour, NodePosition, Owner, PartitionId, PartitionState,
};
use kernel::{Bytes, Effect, HostId, HostSlot, NodeId, SnapshotStep};
use table::{Table, sent};

pub(crate) const SOURCE: PartitionId = PartitionId(0);
pub(crate) const TARGET: PartitionId = PartitionId(1);
const ORIGIN: Owner = Owner { generation: 0, identity: 5 };
pub(crate) const BEGUN: MapVersion = MapVersion(1);
pub(crate) const ENDED: MapVersion = MapVersion(2);

pub(crate) fn placement() -> ColourPlacement {
    ColourPlacement::over(2)
}

/// The nth colour that the fixed spread has in a partition.
pub(crate) fn colour_in(partition: PartitionId, nth: usize) -> Colour {
    let is_there = |colour: &Colour| placement().partition_of(*colour) == partition;
    (0..).map(Colour).filter(is_there).nth(nth).expect("there are more")
}

pub(crate) fn content(colours: &[Colour]) -> Content {
    let mut colours = colours.to_vec();
    colours.sort_unstable();
    Content::new(colours, vec![Bytes::from_static(b"body")])
}

fn append(client: u64, number: u64, colour: Colour) -> Append {
    let content = content(&[colour]);
    let id = AppendId { client, number, content: content.digest() };
    Append { id, below: 0, seen: AppendTime::ZERO, content }
}

/// A phase 1, by one who has these colours in partitions by a version of the map.
fn propose(client: u64, placed: &[(Colour, PartitionId)], version: MapVersion) -> ProposeTime {
    let mut placed = placed.to_vec();
    placed.sort_unstable();
    let colours: Vec<Colour> = placed.iter().map(|(colour, _)| *colour).collect();
    let mut content = content(&colours);
    let id = AppendId { client, number: 0, content: content.digest() };
    let partitions = placed.iter().map(|(_, partition)| *partition).collect();
    content.plan = (version > MapVersion(0)).then(|| Box::new(ColourPlan { version, partitions }));
    ProposeTime { id, below: 0, seen: AppendTime::ZERO, owner: ORIGIN, content }
}

fn outcomes(state: &mut PartitionState, command: impl Into<Command>) -> Vec<Outcome> {
    state.apply(&RowEntry { origin: NodeId::ZERO, call: 1, command: command.into() });
    state.take_answers().into_iter().map(|Answered { outcome, .. }| outcome).collect()
}

fn outcome(state: &mut PartitionState, command: impl Into<Command>) -> Outcome {
    let mut outcomes = outcomes(state, command);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

fn time_of(outcome: &Outcome) -> AppendTime {
    match outcome {
        Outcome::Delivered(it) => it.at,
        Outcome::Proposed(it) => it.at,
        other => panic!("{other:?} has no time"),
    }
}

fn position_of(outcome: &Outcome) -> NodePosition {
    match outcome {
        Outcome::Delivered(Delivered { placed, .. }) => placed[0].position,
        other => panic!("{other:?} is nowhere"),
    }
}

/// Two partitions, and a colour of the first one that goes to the second one.
struct Two {
    source: PartitionState,
    target: PartitionState,
    colour: Colour,
    begun: ColourMove,
}

impl Two {
    fn new() -> Self {
        let state = |partition| PartitionState::new(partition, placement(), FuzzyOrder::Serializable);
        let colour = colour_in(SOURCE, 0);
        let begun = ColourMove { id: BEGUN, colours: vec![colour], from: SOURCE, to: TARGET };
        Self { source: state(SOURCE), target: state(TARGET), colour, begun }
    }

    fn seal(&mut self) {
        let begun = self.begun.clone();
        assert_eq!(outcomes(&mut self.source, SealColours { begun }), []);
    }

    /// Everything that moves, in pages of so many bytes; how many there were.
    fn take(&mut self, page_bytes: usize) -> usize {
        let mut pages = 0;
        let mut at = Some(MovePoint::default());
        while let Some(from) = at {
            let page = self.source.move_page(BEGUN, from, page_bytes).expect("it is sealed");
            at = page.next;
            let begun = self.begun.clone();
            assert_eq!(outcomes(&mut self.target, TakeColours { begun, page }), []);
            pages += 1;
        }
        pages
    }

    fn end(&mut self) {
        assert_eq!(outcomes(&mut self.target, OwnColours { id: BEGUN, version: ENDED }), []);
        assert_eq!(outcomes(&mut self.source, ForgetColours { id: BEGUN, version: ENDED }), []);
    }

    fn move_all(&mut self) {
        self.seal();
        self.take(1 << 20);
        self.end();
    }
}

fn is_elsewhere(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Elsewhere(_))
}

// A colour that begins anew where it comes to, or whose nodes are lost, is another log than its users have seen.
#[test]
fn a_colour_goes_on_where_it_was() {
    let mut two = Two::new();
    let colour = two.colour;
    let firsts: Vec<Outcome> =
        (0..5).map(|number| outcome(&mut two.source, append(1, number, colour))).collect();
    outcome(&mut two.source, Trim { colour, before: NodePosition(1) });
    two.seal();
    assert!(two.take(200) > 3, "it takes several pages");
    assert_eq!((two.target.tail(colour), two.target.may_sync(colour)), (NodePosition(0), false));
    two.end();
    assert_eq!((two.target.first(colour), two.target.tail(colour)), (NodePosition(1), NodePosition(5)));
    assert!(two.target.may_sync(colour) && !two.source.is_here(colour));
    assert_eq!((two.source.tail(colour), two.source.bytes()), (NodePosition(0), 0));
    let next = outcome(&mut two.target, append(1, 5, colour));
    assert_eq!(position_of(&next), NodePosition(5));
    assert!(time_of(&next) > time_of(&firsts[4]));
    for command in [Command::from(append(1, 6, colour)), Trim { colour, before: NodePosition(2) }.into()] {
        assert!(is_elsewhere(&outcome(&mut two.source, command)));
    }
}

// What is sent again after the colour has moved would be in it twice.
#[test]
fn what_is_sent_again_is_answered_as_before() {
    let mut two = Two::new();
    let colour = two.colour;
    let first = outcome(&mut two.source, append(1, 0, colour));
    let mut second = append(2, 3, colour);
    outcome(&mut two.source, append(2, 1, colour));
    second.below = 2;
    outcome(&mut two.source, second);
    two.seal();
    two.take(150);
    two.end();
    assert_eq!(outcome(&mut two.target, append(1, 0, colour)), first);
    // Its client has said that it has the answer, whether or not that is still there.
    assert!(matches!(outcome(&mut two.target, append(2, 1, colour)), Outcome::Forgotten(_)));
    assert_eq!(two.target.tail(colour), NodePosition(3));
}

// A colour that is copied while an append to several partitions is on its way to it lacks that one's node for good.
#[test]
fn nothing_is_handed_out_before_what_is_on_its_way_has_ended() {
    let mut two = Two::new();
    let colour = two.colour;
    let other = colour_in(TARGET, 0);
    let several = propose(1, &[(colour, SOURCE), (other, TARGET)], MapVersion(0));
    let at = time_of(&outcome(&mut two.source, several.clone()));
    two.seal();
    let page = |state: &PartitionState| state.move_page(BEGUN, MovePoint::default(), 1 << 20);
    assert_eq!(page(&two.source), None);
    // Nothing new begins; the other colours of the partition are as they were.
    assert!(matches!(outcome(&mut two.source, append(2, 0, colour)), Outcome::Moving(_)));
    let late = propose(3, &[(colour, SOURCE), (other, TARGET)], MapVersion(0));
    assert!(matches!(outcome(&mut two.source, late), Outcome::Moving(_)));
    let beside = append(2, 1, colour_in(SOURCE, 1));
    assert!(matches!(outcome(&mut two.source, beside), Outcome::Delivered(_)));
    // What has begun goes on: asked again, taken over, fixed.
    assert!(matches!(outcome(&mut two.source, several.clone()), Outcome::Proposed(_)));
    let owner = Owner { generation: 1, identity: 6 };
    let content = several.content.clone();
    let take_over = TakeOver { id: several.id, expected: Some(ORIGIN), owner, content };
    assert!(matches!(outcome(&mut two.source, take_over), Outcome::Proposed(_)));
    let later = AppendTime { clock: at.clock + 4, partition: TARGET, ahead: 0 };
    assert!(matches!(
        outcome(&mut two.source, Fix { id: several.id, owner, at: later }),
        Outcome::Delivered(_)
    ));
    assert_eq!(page(&two.source), None, "who ends it may still ask here");
    outcomes(&mut two.source, CleanUp { id: several.id, owner });
    let page = page(&two.source).expect("nothing is on its way any more");
    assert_eq!(page.chains[0].nodes.len(), 1);
}

// Who takes a colour to be where it is not would have an append in all colours but that one, or in that one twice.
#[test]
fn a_plan_that_is_not_that_of_a_partition_is_refused() {
    let mut two = Two::new();
    let (colour, other) = (two.colour, colour_in(TARGET, 0));
    two.move_all();
    let third = colour_in(SOURCE, 1);
    let old = propose(1, &[(colour, SOURCE), (other, TARGET), (third, SOURCE)], MapVersion(0));
    assert!(is_elsewhere(&outcome(&mut two.source, old.clone())));
    assert!(is_elsewhere(&outcome(&mut two.target, old)));
    // By a version before it came it is refused, too: what was proposed then is nothing now.
    let early = propose(1, &[(colour, TARGET), (third, SOURCE)], BEGUN);
    let refused = outcome(&mut two.target, early);
    assert_eq!(refused, Elsewhere { version: ENDED }.into());
    let new = propose(1, &[(colour, TARGET), (other, TARGET), (third, SOURCE)], ENDED);
    assert!(matches!(outcome(&mut two.source, new.clone()), Outcome::Proposed(_)));
    assert!(matches!(outcome(&mut two.target, new), Outcome::Proposed(_)));
}

// A proposal from before a colour came may be earlier than the colour's nodes: the append would stand before them.
#[test]
fn what_was_proposed_before_a_colour_came_is_proposed_again() {
    let mut two = Two::new();
    let (colour, other) = (two.colour, colour_in(TARGET, 0));
    (0..9).for_each(|number| drop(outcome(&mut two.source, append(9, number, colour))));
    two.seal();
    let several = propose(1, &[(colour, SOURCE), (other, TARGET)], MapVersion(0));
    let early = time_of(&outcome(&mut two.target, several.clone()));
    assert!(matches!(outcome(&mut two.source, several.clone()), Outcome::Moving(_)));
    two.take(1 << 20);
    two.end();
    let last = two.target.last_time(colour);
    assert!(early < last);
    let again = propose(1, &[(colour, TARGET), (other, TARGET)], ENDED);
    let proposed = time_of(&outcome(&mut two.target, again.clone()));
    assert!(proposed > last, "{proposed:?} is not after {last:?}");
    // Sent again as an append of one partition, it is still the same one.
    let Append { below, seen, .. } = append(1, 0, colour);
    let content = Content { plan: None, ..again.content.clone() };
    let single = Append { id: again.id, below, seen, content };
    assert!(matches!(outcome(&mut two.target, single), Outcome::Held(_)));
    let done = outcome(&mut two.target, Fix { id: again.id, owner: ORIGIN, at: proposed });
    let Outcome::Delivered(Delivered { placed, .. }) = done else { panic!("{done:?}") };
    assert_eq!(placed.len(), 2);
}

// One who has seen that a colour has no node as of a time would see an earlier one later.
#[test]
fn nothing_goes_ahead_of_the_clock_that_a_colour_comes_from() {
    let mut two = Two::new();
    let (colour, other, third) = (two.colour, colour_in(TARGET, 0), colour_in(SOURCE, 1));
    (0..9).for_each(|number| drop(outcome(&mut two.source, append(9, number, third))));
    let pending = propose(1, &[(other, TARGET), (third, SOURCE)], MapVersion(0));
    outcome(&mut two.target, pending.clone());
    two.move_all();
    assert_eq!(outcomes(&mut two.target, append(2, 0, colour)), [], "it waits");
    let beside = outcome(&mut two.target, append(2, 1, colour_in(TARGET, 1)));
    assert!(matches!(beside, Outcome::Delivered(_)), "others go ahead as ever");
    let at = AppendTime { clock: 30, partition: SOURCE, ahead: 0 };
    let ended = outcomes(&mut two.target, Fix { id: pending.id, owner: ORIGIN, at });
    let single =
        ended.iter().find(|it| matches!(it, Outcome::Delivered(it) if it.placed[0].colour == colour));
    assert!(time_of(single.expect("it was delivered")).clock > 9);
}

// A move that is taken back must leave no trace: a colour of two partitions, or of none, is lost.
#[test]
fn a_move_that_is_taken_back_changes_nothing() {
    let mut two = Two::new();
    let colour = two.colour;
    let first = outcome(&mut two.source, append(1, 0, colour));
    two.seal();
    two.take(1 << 20);
    let keep = KeepColours { id: BEGUN, version: ENDED };
    outcomes(&mut two.source, keep.clone());
    outcomes(&mut two.target, keep);
    assert!(two.source.may_sync(colour) && !two.target.is_here(colour) && two.target.bytes() == 0);
    assert_eq!(outcome(&mut two.source, append(1, 0, colour)), first);
    assert!(is_elsewhere(&outcome(&mut two.target, append(1, 1, colour))));
    // A head that knows less than the row orders what is over.
    two.seal();
    assert!(two.source.may_sync(colour));
    let page =
        MovePage { at: MovePoint::default(), next: None, clock: 0, clients: Vec::new(), chains: Vec::new() };
    let begun = two.begun.clone();
    outcomes(&mut two.target, TakeColours { begun, page });
    assert_eq!(two.target.taking(), None);
}

/// An append to the colour that is to leave and to one of the target, delivered in both; the source alone is asked to forget how.
fn deliver_in_both(two: &mut Two) -> ProposeTime {
    let several = propose(1, &[(two.colour, SOURCE), (colour_in(TARGET, 0), TARGET)], MapVersion(0));
    let times = [&mut two.source, &mut two.target].map(|it| time_of(&outcome(it, several.clone())));
    let fix = Fix { id: several.id, owner: ORIGIN, at: times[0].max(times[1]) };
    for state in [&mut two.source, &mut two.target] {
        assert!(matches!(outcome(state, fix.clone()), Outcome::Delivered(_)));
    }
    outcomes(&mut two.source, CleanUp { id: several.id, owner: ORIGIN });
    several
}

fn places(outcome: Outcome) -> Vec<Colour> {
    match outcome {
        Outcome::Delivered(it) => it.placed.into_iter().map(|it| it.colour).collect(),
        other => panic!("{other:?} is nowhere"),
    }
}

// A target that answers for a colour before it is there answers for one that may stay where it is.
#[test]
fn what_comes_with_a_colour_is_answered_when_the_colour_is_in_view() {
    for is_taken_back in [false, true] {
        let mut two = Two::new();
        let several = deliver_in_both(&mut two);
        let (colour, other) = (two.colour, colour_in(TARGET, 0));
        outcomes(&mut two.target, CleanUp { id: several.id, owner: ORIGIN });
        two.seal();
        two.take(1 << 20);
        let before = outcome(&mut two.target, several.clone());
        assert_eq!(places(before), [other]);
        let fix = Fix { id: several.id, owner: ORIGIN, at: AppendTime::ZERO };
        assert_eq!(places(outcome(&mut two.target, fix.clone())), [other]);
        if is_taken_back {
            outcomes(&mut two.target, KeepColours { id: BEGUN, version: ENDED });
            outcomes(&mut two.source, KeepColours { id: BEGUN, version: ENDED });
            assert_eq!(places(outcome(&mut two.source, several.clone())), [colour]);
            // It may come again later, with what was appended since.
            assert_eq!(places(outcome(&mut two.target, fix)), [other]);
        } else {
            two.end();
            let mut both = [colour, other];
            both.sort_unstable();
            assert_eq!(places(outcome(&mut two.target, fix)), both);
        }
    }
}

// An append whose clean-up was lost, and of which the source has forgotten its part, would be taken over for good: no partition has the
// rest of the answer.
#[test]
fn what_is_delivered_when_a_colour_comes_is_over() {
    for is_acknowledged in [false, true] {
        let mut two = Two::new();
        let several = deliver_in_both(&mut two);
        let colour = two.colour;
        if is_acknowledged {
            let next = Append { below: 1, ..append(1, 1, colour) };
            outcome(&mut two.source, next);
        }
        assert_eq!(two.target.unfinished_count(), 1);
        two.move_all();
        assert_eq!(two.target.unfinished_count(), 0);
        let again = propose(1, &[(colour, TARGET), (colour_in(TARGET, 0), TARGET)], ENDED);
        assert_eq!(again.id, several.id);
        match outcome(&mut two.target, again) {
            Outcome::Delivered(it) => assert!(!is_acknowledged && it.placed.len() == 2, "{it:?}"),
            Outcome::Forgotten(_) => assert!(is_acknowledged),
            other => panic!("{other:?}"),
        }
    }
}

// What a client has the answer to may be remembered by one of two partitions alone: half an answer is none.
#[test]
fn what_one_partition_has_forgotten_is_forgotten_where_a_colour_comes() {
    let mut two = Two::new();
    let several = deliver_in_both(&mut two);
    outcomes(&mut two.target, CleanUp { id: several.id, owner: ORIGIN });
    let next = Append { below: 1, ..append(1, 1, colour_in(TARGET, 1)) };
    outcome(&mut two.target, next);
    two.move_all();
    let again = propose(1, &[(two.colour, TARGET), (colour_in(TARGET, 0), TARGET)], ENDED);
    assert!(matches!(outcome(&mut two.target, again), Outcome::Forgotten(_)));
}

fn restored(state: &mut PartitionState, partition: PartitionId) -> PartitionState {
    let mut chunks = Vec::new();
    state.begin_snapshot();
    loop {
        let mut chunk = Vec::new();
        let step = state.snapshot_step(100, &mut chunk);
        chunks.push(Bytes::from(chunk));
        if step == SnapshotStep::Done {
            break;
        }
    }
    PartitionState::of_chunks(partition, placement(), FuzzyOrder::Serializable, chunks)
        .expect("it reads back")
}

// A server that starts from a snapshot in the middle of a move would take the colour for nobody's, or for its own.
#[test]
fn moves_are_in_snapshots() {
    let mut two = Two::new();
    let colour = two.colour;
    (0..5).for_each(|number| drop(outcome(&mut two.source, append(1, number, colour))));
    two.seal();
    two.source = restored(&mut two.source, SOURCE);
    assert!(!two.source.may_sync(colour) && two.source.leaving() == Some(&two.begun));
    let page = two.source.move_page(BEGUN, MovePoint::default(), 200).expect("it is sealed");
    let (begun, next) = (two.begun.clone(), page.next);
    assert!(next.is_some());
    outcomes(&mut two.target, TakeColours { begun, page });
    two.target = restored(&mut two.target, TARGET);
    assert_eq!(two.target.taking(), Some((&two.begun, next)));
    let page = two.source.move_page(BEGUN, next.expect("there is more"), 1 << 20).expect("it is sealed");
    let begun = two.begun.clone();
    outcomes(&mut two.target, TakeColours { begun, page });
    two.target = restored(&mut two.target, TARGET);
    two.end();
    two.source = restored(&mut two.source, SOURCE);
    two.target = restored(&mut two.target, TARGET);
    assert!(!two.source.is_here(colour) && two.target.may_sync(colour));
    assert_eq!(two.target.tail(colour), NodePosition(5));
    assert_eq!(position_of(&outcome(&mut two.target, append(1, 5, colour))), NodePosition(5));
}

// A snapshot that is written while a colour leaves is of before: without its nodes it would be of a state that never was.
#[test]
fn a_snapshot_that_has_begun_has_a_colour_that_leaves_meanwhile() {
    let mut two = Two::new();
    let colour = two.colour;
    (0..5).for_each(|number| drop(outcome(&mut two.source, append(1, number, colour))));
    two.seal();
    two.take(1 << 20);
    two.source.begin_snapshot();
    two.end();
    let mut chunk = Vec::new();
    while two.source.snapshot_step(100, &mut chunk) == SnapshotStep::More {}
    let chunks = vec![Bytes::from(chunk)];
    let before = PartitionState::of_chunks(SOURCE, placement(), FuzzyOrder::Serializable, chunks);
    let before = before.expect("it reads back");
    assert_eq!((before.tail(colour), before.leaving()), (NodePosition(5), Some(&two.begun)));
}

// A backup that reads one partition before a colour comes and another one after it has left lacks the colour.
#[test]
fn scans_wait_for_moves_and_are_refused_behind_them() {
    let mut two = Two::new();
    let cut = time_of(&outcome(&mut two.source, append(1, 0, two.colour)));
    assert!(!two.source.is_moving() && !two.source.has_moved_since(cut));
    two.seal();
    assert!(two.source.is_moving());
    two.take(1 << 20);
    assert!(two.target.is_moving());
    two.end();
    assert!(!two.source.is_moving() && two.source.has_moved_since(cut) && two.target.has_moved_since(cut));
    let later = time_of(&outcome(&mut two.target, append(1, 1, two.colour)));
    assert!(!two.target.has_moved_since(later));
}

pub(crate) fn moves(version: MapVersion, moved: Vec<MovedColour>, moving: Option<ColourMove>) -> ColourMoves {
    ColourMoves { version, moved, moving, ..ColourMoves::default() }
}

fn placed(moves: ColourMoves) -> PlaceColours {
    PlaceColours { moves, sources: vec![node(5)] }
}

/// The commands that a head forwards.
fn ordered(table: &Table<ChainServer>) -> Vec<Command> {
    let (from, to) = (table.role.begins_at(), table.role.length());
    let entries = (from.0..to.0).map(fuzzylog::RowIndex);
    entries.filter_map(|index| table.role.entry(index)).map(|entry| entry.command.clone()).collect()
}

/// The head of a chain of one: what it orders is applied when its disk has it.
fn head() -> Table<ChainServer> {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    serving_as(ChainServer::new(SOURCE, placement(), FuzzyParameters::default(), beside), true)
}

// A head that ends a move before directors have, by what is said late, has a colour that another partition has, too.
#[test]
fn a_head_seals_what_leaves_and_forgets_it_when_that_is_decided() {
    let mut table = head();
    let two = Two::new();
    let moving = moves(BEGUN, Vec::new(), Some(two.begun.clone()));
    table.burst(node(3), placed(moving));
    assert!(matches!(ordered(&table)[..], [Command::SealColours(_)]));
    stable(&mut table);
    assert!(table.role.state().leaving().is_some());
    // One who says less than is known changes nothing.
    table.burst(node(3), placed(ColourMoves::default()));
    assert_eq!(ordered(&table).len(), 1);
    let moved = vec![MovedColour { colour: two.colour, partition: TARGET }];
    table.burst(node(3), placed(moves(ENDED, moved, None)));
    assert!(matches!(ordered(&table)[..], [Command::SealColours(_), Command::ForgetColours(_)]));
}

/// All servers of the chain have the row.
fn stable(table: &mut Table<ChainServer>) {
    use fuzzylog::chain_server::StableThrough;
    let (epoch, through) = (ChainEpoch(2), table.role.length());
    table.burst(node(2), StableThrough { epoch, through });
}

// A target that asks nobody waits for good; one that takes a page twice has nodes twice.
#[test]
fn a_head_pulls_what_comes_page_by_page_and_orders_each_once() {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let server = ChainServer::new(TARGET, placement(), FuzzyParameters::default(), beside);
    // It serves partition 0 for the directors of the test; what it is asked for is of partition 1.
    let mut two = Two::new();
    (0..3).for_each(|number| drop(outcome(&mut two.source, append(1, number, two.colour))));
    two.seal();
    let mut table = Table::new(server, node(1));
    let projection = |table: &Table<ChainServer>| {
        let members = vec![ChainMember { node: node(1), journal: table.role.journal() }];
        let (epoch, whole_from) = (ChainEpoch(2), fuzzylog::RowIndex(0));
        ChainProjection { partition: TARGET, epoch, members, whole_from }
    };
    table.burst(node(3), fuzzylog::chain_server::SealChain { epoch: ChainEpoch(2), journal: None });
    let projection = projection(&table);
    table.burst(node(3), fuzzylog::chain_server::Project { projection, copies: false });
    let did = table.burst(node(3), placed(moves(BEGUN, Vec::new(), Some(two.begun.clone()))));
    let pulls = sent(&did).into_iter().filter_map(|(to, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::PullColours(pull))) => Some((to, pull)),
        _ => None,
    });
    let expected = PullColours { id: BEGUN, at: MovePoint::default() };
    assert_eq!(pulls.collect::<Vec<_>>(), [(node(5), expected)]);
    let page = two.source.move_page(BEGUN, MovePoint::default(), 1 << 20).expect("it is sealed");
    let pulled = ColoursPulled { id: BEGUN, page };
    table.burst(node(5), pulled.clone());
    table.burst(node(5), pulled);
    assert!(matches!(ordered(&table)[..], [Command::TakeColours(_)]));
}

// Partitions that nobody has added would cost every host messages, timers and fsyncs.
#[test]
fn a_server_of_a_partition_that_may_be_added_begins_when_it_is_asked_something() {
    let server = ChainServer::new(TARGET, placement(), FuzzyParameters::default(), client_role());
    let mut table = Table::unstarted(server.resting(), node(1));
    assert_eq!((table.start().len(), table.role.journal()), (0, None));
    let did = table.burst(node(3), Ping {});
    assert!(did.iter().any(|effect| matches!(effect, Effect::SetTimer { .. })));
    assert!(table.role.journal().is_some());
}
