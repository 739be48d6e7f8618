//! Backups: what a partition hands out as of a cut, and what is put into it out of view.

use fuzzylog::partition::command::{
    Answered, Append, CleanUp, Command, Fix, Outcome, ProposeTime, Restore, RowEntry, Trim,
};
use fuzzylog::{
    AppendId, AppendTime, Colour, ColourNode, ColourPlacement, Content, FuzzyOrder, NodePosition, Owner,
    PartitionId, PartitionState, RestoreId, ScanPage, ScanPoint, SpanDigest,
};
use kernel::{Bytes, NodeId, SnapshotStep};

const OWNER: Owner = Owner { generation: 0, identity: 5 };
const MINE: RestoreId = RestoreId(7);
const ANOTHER: RestoreId = RestoreId(8);
const START: ScanPoint = ScanPoint { colour: Colour(0), position: NodePosition(0) };

/// Partitions of one deployment, and how many appends there were.
struct Cast {
    placement: ColourPlacement,
    states: Vec<PartitionState>,
    number: u64,
}

impl Cast {
    fn of(partitions: u16) -> Self {
        let placement = ColourPlacement::over(partitions);
        let states = (0..partitions)
            .map(|it| PartitionState::new(PartitionId(it), placement, FuzzyOrder::Serializable))
            .collect();
        Self { placement, states, number: 0 }
    }

    fn home(&mut self, colour: Colour) -> &mut PartitionState {
        let home = self.placement.partition_of(colour);
        &mut self.states[usize::from(home.0)]
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn append(&mut self, colour: Colour, body: &str) -> Outcome {
        let content = Content::new(vec![colour], vec![Bytes::copy_from_slice(body.as_bytes())]);
        let command = self.named(content);
        one(self.home(colour), command)
    }

    fn named(&mut self, content: Content) -> Append {
        let id = AppendId { client: 1, number: self.next(), content: content.digest() };
        Append { id, below: 0, seen: AppendTime::ZERO, content }
    }

    /// Proposes a content in all of its partitions; the latest time.
    fn propose(&mut self, content: &Content) -> (AppendId, AppendTime) {
        let Append { id, content, .. } = self.named(content.clone());
        let propose = ProposeTime { id, below: 0, seen: AppendTime::ZERO, owner: OWNER, content };
        let of = |outcome| match outcome {
            Outcome::Proposed(it) => it.at,
            other => panic!("{other:?} is no proposal"),
        };
        let partitions = self.placement.partitions_of(&propose.content.colours);
        let states = partitions.iter().map(|it| usize::from(it.0));
        let times: Vec<AppendTime> =
            states.map(|it| of(one(&mut self.states[it], propose.clone()))).collect();
        (id, times.into_iter().max().expect("one"))
    }

    fn fix(&mut self, partition: usize, id: AppendId, at: AppendTime) -> Vec<Outcome> {
        let outcomes = all(&mut self.states[partition], Fix { id, owner: OWNER, at });
        all(&mut self.states[partition], CleanUp { id, owner: OWNER });
        outcomes
    }

    /// What is ordered in all partitions: how far it goes in each.
    fn ordered(&mut self, content: &Content) -> (AppendTime, Vec<NodePosition>) {
        if self.states.len() == 1 {
            let command = self.named(content.clone());
            return match one(&mut self.states[0], command) {
                Outcome::Delivered(it) => (it.at, it.placed.iter().map(|it| it.position).collect()),
                other => panic!("{other:?} is not delivered"),
            };
        }
        let (id, at) = self.propose(content);
        let outcomes = (0..self.states.len()).flat_map(|it| self.fix(it, id, at)).collect::<Vec<_>>();
        let tail = |outcome: &Outcome| match outcome {
            Outcome::Delivered(it) => it.placed[0].position,
            other => panic!("{other:?} is not delivered"),
        };
        (at, outcomes.iter().map(tail).collect())
    }

    fn cut(&mut self) -> AppendTime {
        self.ordered(&Content::new(self.placement.one_of_each(), Vec::new())).0
    }

    fn open(&mut self, restore: RestoreId) -> u64 {
        let content = Content::opening(self.placement.one_of_each(), restore);
        self.ordered(&content).1.iter().map(|it| it.0).sum()
    }

    fn restore(&mut self, colour: Colour, at: u64, begins: bool, nodes: &[ColourNode]) -> Outcome {
        let (restore, nodes) = (MINE, nodes.to_vec());
        let command = Restore { restore, colour, at: NodePosition(at), begins, nodes };
        one(self.home(colour), command)
    }

    /// All nodes that are in view: bodies by colour, and where each colour begins.
    fn seen(&self) -> Vec<(Colour, NodePosition, Vec<Bytes>)> {
        let of = |state: &PartitionState| {
            let of = |colour| {
                let bodies: Vec<Bytes> =
                    state.nodes(colour, NodePosition(0)).map(|it| it.body.clone()).collect();
                (colour, state.first(colour), bodies)
            };
            state.colours().map(of).collect::<Vec<_>>()
        };
        let mut seen: Vec<_> = self.states.iter().flat_map(of).collect();
        seen.retain(|(_, first, bodies)| first.0 > 0 || !bodies.is_empty());
        seen.sort_by_key(|it| it.0);
        seen
    }
}

fn all(state: &mut PartitionState, command: impl Into<Command>) -> Vec<Outcome> {
    state.apply(&RowEntry { origin: NodeId::ZERO, call: 1, command: command.into() });
    state.take_answers().into_iter().map(|Answered { outcome, .. }| outcome).collect()
}

fn one(state: &mut PartitionState, command: impl Into<Command>) -> Outcome {
    let mut outcomes = all(state, command);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

fn restored(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::RestoredTo(it) => it.tail.0,
        other => panic!("{other:?} is not restored"),
    }
}

/// All pages of a partition as of a cut, of so many bytes each.
fn pages(state: &PartitionState, below: AppendTime, bytes: usize) -> Vec<ScanPage> {
    let (mut pages, mut from) = (Vec::new(), Some(START));
    while let Some(at) = from {
        let page = state.scan(at, None, below, Some(bytes)).expect("the cut is here");
        assert!(page.nodes.len() <= 1 || bytes > 1, "a node is larger than a page");
        from = page.next;
        pages.push(page);
    }
    pages
}

/// Colours of two partitions with a history: single nodes, nodes in both, trims.
fn history() -> (Cast, [Colour; 3]) {
    let mut cast = Cast::of(2);
    let [here, there] = cast.placement.one_of_each()[..] else { panic!("two partitions") };
    let emptied = (100..).map(Colour).find(|it| cast.placement.partition_of(*it).0 == 1).expect("one");
    for round in 0..5 {
        cast.append(here, &format!("here {round}"));
        cast.append(there, &format!("there {round}"));
        cast.append(emptied, "goes");
        let both = Content::new(vec![here.min(there), here.max(there)], vec![Bytes::from_static(b"both")]);
        let (id, at) = cast.propose(&both);
        (0..2).for_each(|partition| drop(cast.fix(partition, id, at)));
    }
    let before = NodePosition(3);
    one(cast.home(here), Trim { colour: here, before });
    one(cast.home(emptied), Trim { colour: emptied, before: NodePosition(5) });
    (cast, [here, there, emptied])
}

// A node that comes after the cut, or is missing, makes the backup a state that never was.
#[test]
fn a_scan_has_what_was_there_at_the_cut() {
    let (mut cast, [here, there, emptied]) = history();
    let before = cast.seen();
    let late = cast.states[0].scan(START, None, AppendTime { clock: 999, ..AppendTime::ZERO }, Some(1));
    assert_eq!(late, None, "the cut is not here yet");
    let cut = cast.cut();
    cast.append(here, "later");
    cast.append(Colour(500), "a later colour");
    for bytes in [1, 200, 1 << 20] {
        let mut found: Vec<(Colour, NodePosition, Option<Bytes>)> = Vec::new();
        for state in &cast.states {
            let pages = pages(state, cut, bytes);
            assert_eq!(pages.len() > 1, bytes < 1 << 20);
            found.extend(
                pages
                    .into_iter()
                    .flat_map(|it| it.nodes)
                    .map(|it| (it.colour, it.position, it.node.map(|it| it.body))),
            );
        }
        let of = |(colour, first, bodies): &(Colour, NodePosition, Vec<Bytes>)| {
            let (colour, first) = (*colour, *first);
            match bodies[..] {
                [] => vec![(colour, first, None)],
                _ => (first.0..)
                    .zip(bodies)
                    .map(|(at, body)| (colour, NodePosition(at), Some(body.clone())))
                    .collect(),
            }
        };
        let mut expected: Vec<_> = before.iter().flat_map(of).collect();
        expected.sort_by_key(|it| (it.0, it.1));
        found.sort_by_key(|it| (it.0, it.1));
        assert_eq!(found, expected);
    }
    // What was trimmed after a page was read is said to be gone.
    let tail = cast.home(there).tail(there);
    one(cast.home(there), Trim { colour: there, before: tail });
    let read = ScanPoint { colour: there, position: NodePosition(2) };
    let page = cast.home(there).scan(read, None, cut, Some(1 << 20)).expect("the cut is here");
    let gone = |it: &fuzzylog::ScannedNode| (it.colour, it.position, it.node.is_some());
    let gone: Vec<_> = page.nodes.iter().map(gone).collect();
    assert_eq!(gone, [(there, tail, false), (emptied, NodePosition(5), false)]);
}

// A chunk that is taken for what is there, and is not, is a backup of something else.
#[test]
fn a_digest_is_of_the_nodes_that_are_there() {
    let (mut cast, [here, ..]) = history();
    let cut = cast.cut();
    let state = &cast.states[0];
    let page = state.scan(START, None, cut, Some(1 << 20)).expect("the cut is here");
    let mut digest = SpanDigest::default();
    page.nodes.iter().for_each(|it| digest.add(it.colour, it.position, it.node.as_ref()));
    assert_eq!(digest.finish(), page.digest);
    let of = |state: &PartitionState, to, below| state.scan(START, to, below, None).expect("the cut is here");
    assert!(of(state, None, cut).nodes.is_empty());
    assert_eq!(of(state, None, cut).digest, page.digest);
    let to = Some(ScanPoint { colour: here, position: NodePosition(5) });
    let part = of(state, to, cut).digest;
    assert_ne!(part, page.digest);
    cast.append(here, "later");
    let next = cast.cut();
    assert_eq!(of(&cast.states[0], to, next).digest, part, "what was there is the same");
    assert_ne!(of(&cast.states[0], None, next).digest, page.digest);
    one(cast.home(here), Trim { colour: here, before: NodePosition(4) });
    assert_ne!(of(&cast.states[0], to, next).digest, part, "a node is gone");
}

/// Puts all that a deployment had at a cut into another one.
fn restore_all(from: &Cast, cut: AppendTime, into: &mut Cast) -> usize {
    let mut colours = 0;
    for state in &from.states {
        let mut last = None;
        for found in pages(state, cut, 150).into_iter().flat_map(|it| it.nodes) {
            let begins = last.replace(found.colour) != Some(found.colour);
            colours += usize::from(begins);
            let nodes: Vec<ColourNode> = found.node.into_iter().collect();
            let tail = restored(&into.restore(found.colour, found.position.0, begins, &nodes));
            assert_eq!(tail, found.position.0 + nodes.len() as u64);
        }
    }
    colours
}

// Half of a node, other positions, or times that go back.
#[test]
fn a_restore_comes_into_view_at_once_and_as_it_was() {
    for partitions in [1, 3] {
        let (mut cast, [here, there, emptied]) = history();
        let (expected, cut) = (cast.seen(), cast.cut());
        let mut into = Cast::of(partitions);
        let colours = restore_all(&cast, cut, &mut into);
        assert!(into.seen().is_empty() && into.states.iter().all(|it| it.live_bytes() > 0 || partitions > 1));
        let early = into.cut();
        assert!(into.states.iter().all(|it| pages(it, early, 1 << 20)[0].nodes.is_empty()), "out of view");
        // An append to one of them waits until it is over, also one that others would finish.
        assert_eq!(
            into.append(here, "early"),
            Outcome::Restoring(fuzzylog::partition::command::Restoring {})
        );
        assert!(matches!(into.append(Colour(900), "elsewhere"), Outcome::Delivered(_)));
        assert_eq!(into.open(MINE), colours as u64);
        let mut seen = into.seen();
        seen.retain(|it| it.0 != Colour(900));
        assert_eq!(seen, expected);
        for colour in [here, there, emptied] {
            assert!(into.home(colour).last_time(colour) > cut, "who sees it has seen the opening");
        }
        match into.append(here, "behind") {
            Outcome::Delivered(it) => assert!(it.at > cut && it.placed[0].position == NodePosition(10)),
            other => panic!("{other:?} is not delivered"),
        }
        assert!(
            matches!(into.append(emptied, "first"), Outcome::Delivered(it) if it.placed[0].position.0 == 5)
        );
    }
}

// One partition shows its part, and another one answers as if there were nothing.
#[test]
fn who_has_seen_a_part_waits_for_the_rest() {
    let (mut cast, [here, there, _]) = history();
    let cut = cast.cut();
    let mut into = Cast::of(2);
    restore_all(&cast, cut, &mut into);
    let opening = Content::opening(into.placement.one_of_each(), MINE);
    let (id, at) = into.propose(&opening);
    // Nothing that is appended from now on comes before the restored nodes in their colours.
    let last = |it: &Colour| cast.states.iter().map(|state| state.last_time(*it)).max();
    assert!([here, there].iter().filter_map(last).all(|last| at > last));
    into.fix(0, id, at);
    assert_eq!(into.home(here).last_time(here), at);
    let pending = into.home(there).first_queued().expect("the opening is on its way");
    assert!(pending <= at && into.home(there).tail(there) == NodePosition(0), "a sync behind it waits");
    into.fix(1, id, at);
    assert_eq!(into.seen(), cast.seen());
}

// A page that comes twice is there twice; one that was lost leaves a hole.
#[test]
fn pages_of_a_colour_follow_one_another() {
    let (mut cast, [here, ..]) = history();
    let cut = cast.cut();
    let nodes: Vec<ColourNode> = cast.home(here).nodes(here, NodePosition(0)).cloned().collect();
    let mut into = Cast::of(2);
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::BeyondTail(_) | Outcome::Conflict(_));
    assert!(is_refused(&into.restore(here, 3, false, &nodes[..2])), "it has not begun");
    assert_eq!(restored(&into.restore(here, 3, true, &nodes[..2])), 5);
    assert_eq!(restored(&into.restore(here, 3, true, &nodes[..2])), 5, "the same again");
    assert_eq!(restored(&into.restore(here, 5, false, &nodes[2..4])), 7);
    assert_eq!(restored(&into.restore(here, 3, true, &nodes[..2])), 7, "an old one comes late");
    assert_eq!(restored(&into.restore(here, 5, false, &nodes[2..4])), 7);
    assert!(is_refused(&into.restore(here, 8, false, &nodes[5..6])), "a hole");
    assert!(is_refused(&into.restore(here, 7, false, &nodes[..1])), "times go back");
    let swapped = [nodes[5].clone(), nodes[4].clone()];
    assert!(is_refused(&into.restore(here, 7, false, &swapped)));
    let mut late = nodes[4].clone();
    late.at.clock = u64::MAX;
    assert!(is_refused(&into.restore(here, 7, false, &[late])), "a forged time");
    // What was trimmed while the backup was taken: the colour begins later.
    assert_eq!(restored(&into.restore(here, 9, true, &nodes[6..7])), 10);
    // Another restore's are not opened with it, and go.
    assert_eq!(into.open(ANOTHER), 0);
    assert!(into.seen().is_empty() && into.states.iter().all(|it| it.bytes() == 0));
    assert!(matches!(into.append(here, "mine"), Outcome::Delivered(it) if it.placed[0].position.0 == 0));
    assert!(is_refused(&into.restore(here, 3, true, &nodes[..2])), "the colour has something");
    assert_eq!(cut, cast.cut().min(cut));
}

// An append that is on its way when a colour begins to be restored would end up among its nodes.
#[test]
fn a_colour_that_awaits_something_is_not_restored() {
    let (mut cast, [here, there, _]) = history();
    let nodes: Vec<ColourNode> = cast.home(here).nodes(here, NodePosition(0)).cloned().collect();
    let mut into = Cast::of(2);
    let both = Content::new(vec![here.min(there), here.max(there)], vec![Bytes::from_static(b"both")]);
    let (id, at) = into.propose(&both);
    assert!(matches!(into.restore(here, 3, true, &nodes), Outcome::Restoring(_)));
    (0..2).for_each(|partition| drop(into.fix(partition, id, at)));
    assert!(matches!(into.restore(here, 3, true, &nodes), Outcome::BeyondTail(it) if it.tail.0 == 1));
    assert_eq!(into.open(MINE), 0);
}

// A host that joins, or starts from its snapshot, has other nodes out of view than the others.
#[test]
fn snapshots_have_what_is_out_of_view() {
    let (mut cast, [here, ..]) = history();
    let cut = cast.cut();
    let mut into = Cast::of(1);
    restore_all(&cast, cut, &mut into);
    // A snapshot of this moment is written while the restore goes on, is dropped, and another one is opened.
    let state = &mut into.states[0];
    let was = state.clone();
    state.begin_snapshot();
    let mut chunks = Vec::new();
    let mut write = |state: &mut PartitionState| {
        let mut chunk = Vec::new();
        let step = state.snapshot_step(60, &mut chunk);
        chunks.push(Bytes::from(chunk));
        step == SnapshotStep::Done
    };
    (0..3).for_each(|_| assert!(!write(state)));
    let nodes: Vec<ColourNode> = cast.home(here).nodes(here, NodePosition(0)).cloned().collect();
    into.restore(here, 9, true, &nodes[6..7]);
    into.open(ANOTHER);
    while !write(&mut into.states[0]) {}
    let placement = into.placement;
    let again = PartitionState::of_chunks(PartitionId(0), placement, FuzzyOrder::Serializable, chunks)
        .expect("what was just written");
    let mut both = [was, again].map(|state| Cast { placement, states: vec![state], number: 1_000 });
    assert_eq!(both[0].states[0].bytes(), both[1].states[0].bytes());
    let opened = both.each_mut().map(|it| it.open(MINE));
    assert!(opened[0] > 0 && opened[0] == opened[1]);
    assert_eq!(both[0].seen(), both[1].seen());
    assert_eq!(both[0].seen(), cast.seen());
}
