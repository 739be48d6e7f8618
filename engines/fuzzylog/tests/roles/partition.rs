//! The state of a partition, command by command.

use fuzzylog::partition::command::{
    Answered, Append, CleanUp, Command, Delivered, Fix, Outcome, Placed, ProposeTime, RowEntry, TakeOver,
    Trim,
};
use fuzzylog::{
    AppendId, AppendTime, Colour, ColourPlacement, Content, FuzzyOrder, NodePosition, Owner, PartitionId,
    PartitionState,
};
use kernel::{Bytes, NodeId, SnapshotStep};

/// Two partitions, and colours that are in the first and in the second one.
struct Cast {
    state: PartitionState,
    here: Vec<Colour>,
    elsewhere: Colour,
    calls: u64,
}

const HERE: PartitionId = PartitionId(0);
const ORIGIN: Owner = Owner { generation: 0, identity: 5 };

fn at(clock: u64, partition: u16, ahead: u64) -> AppendTime {
    AppendTime { clock, partition: PartitionId(partition), ahead }
}

fn content(colours: &[Colour]) -> Content {
    Content::new(colours.to_vec(), vec![Bytes::from_static(b"body")])
}

fn id(client: u64, number: u64, content: &Content) -> AppendId {
    AppendId { client, number, content: content.digest() }
}

impl Cast {
    fn new() -> Self {
        let placement = ColourPlacement::over(2);
        let is_here = |colour: &Colour| placement.partition_of(*colour) == HERE;
        let (here, elsewhere): (Vec<Colour>, Vec<Colour>) = (0..64).map(Colour).partition(is_here);
        Self {
            state: PartitionState::new(HERE, placement, FuzzyOrder::Serializable),
            here,
            elsewhere: elsewhere[0],
            calls: 0,
        }
    }

    /// The outcomes of one command, with the calls that they answer.
    fn outcomes(&mut self, command: impl Into<Command>) -> Vec<(u64, Outcome)> {
        self.calls += 1;
        let entry = RowEntry { origin: NodeId::ZERO, call: self.calls, command: command.into() };
        self.state.apply(&entry);
        let answers = self.state.take_answers();
        answers.into_iter().map(|Answered { asker, outcome, .. }| (asker.call, outcome)).collect()
    }

    /// The only outcome of one command.
    fn outcome(&mut self, command: impl Into<Command>) -> Outcome {
        let mut outcomes = self.outcomes(command);
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0).1
    }

    fn single(&self, client: u64, number: u64, seen: AppendTime) -> Append {
        let content = content(&self.here[..1]);
        Append { id: id(client, number, &content), below: 0, seen, content }
    }

    fn both(&self, client: u64, number: u64) -> ProposeTime {
        let mut colours = vec![self.here[0], self.elsewhere];
        colours.sort_unstable();
        let content = content(&colours);
        let id = id(client, number, &content);
        ProposeTime { id, below: 0, seen: AppendTime::ZERO, owner: ORIGIN, content }
    }
}

fn time_of(outcome: &Outcome) -> AppendTime {
    match outcome {
        Outcome::Delivered(it) => it.at,
        Outcome::Proposed(it) => it.at,
        Outcome::Fixed(it) => it.at,
        other => panic!("{other:?} has no time"),
    }
}

fn position_of(outcome: &Outcome) -> NodePosition {
    match outcome {
        Outcome::Delivered(Delivered { placed, .. }) => placed[0].position,
        other => panic!("{other:?} is nowhere"),
    }
}

// An append that is sent again would be in its colour twice.
#[test]
fn a_repeated_append_is_answered_as_before() {
    let mut cast = Cast::new();
    let append = cast.single(1, 0, AppendTime::ZERO);
    let first = cast.outcome(append.clone());
    let between = cast.single(2, 0, AppendTime::ZERO);
    cast.outcome(between);
    assert_eq!(cast.outcome(append.clone()), first);
    assert_eq!(cast.state.tail(cast.here[0]), NodePosition(2));
    // With something else under the number it is refused, and below what the client has acknowledged it is not executed again.
    let mut other = append.clone();
    other.content.bodies = vec![Bytes::from_static(b"other")];
    other.id = id(1, 0, &other.content);
    assert!(matches!(cast.outcome(other), Outcome::Conflict(_)));
    let mut later = cast.single(1, 1, AppendTime::ZERO);
    later.below = 1;
    cast.outcome(later);
    assert!(matches!(cast.outcome(append), Outcome::Forgotten(_)));
}

// A pending append must be in the way of those alone whose clients have seen later times.
#[test]
fn an_append_goes_ahead_of_a_pending_one_if_its_client_has_seen_nothing_later() {
    let mut cast = Cast::new();
    let (pending, ahead) = (cast.both(1, 0), cast.single(2, 0, AppendTime::ZERO));
    let proposed = time_of(&cast.outcome(pending.clone()));
    let first = cast.outcome(ahead);
    assert!(time_of(&first) < proposed && position_of(&first) == NodePosition(0));
    let waits = cast.single(3, 0, proposed);
    assert_eq!(cast.outcomes(waits), []);
    let outcomes = cast.outcomes(Fix { id: pending.id, owner: ORIGIN, at: at(9, 1, 0) });
    let times: Vec<AppendTime> = outcomes.iter().map(|(_, outcome)| time_of(outcome)).collect();
    // What waited had a time before the final one.
    assert!(times.len() == 2 && times[0] < times[1] && times[1] == at(9, 1, 0), "{times:?}");
    let next = cast.single(4, 0, AppendTime::ZERO);
    assert!(time_of(&cast.outcome(next)) > at(9, 1, 0), "the clock has risen to the final time");
}

// Two appends to several partitions that cross must be delivered in the order of their final times.
#[test]
fn appends_to_several_partitions_are_delivered_by_their_final_times() {
    let mut cast = Cast::new();
    let (one, two) = (cast.both(1, 0), cast.both(2, 0));
    let times = [time_of(&cast.outcome(one.clone())), time_of(&cast.outcome(two.clone()))];
    assert!(times[0] < times[1]);
    assert_eq!(
        cast.outcomes(Fix { id: two.id, owner: ORIGIN, at: times[1] }),
        [],
        "the first may be earlier"
    );
    let outcomes = cast.outcomes(Fix { id: one.id, owner: ORIGIN, at: at(7, 1, 0) });
    let delivered: Vec<AppendTime> = outcomes.iter().map(|(_, it)| time_of(it)).collect();
    assert_eq!(delivered, [times[1], at(7, 1, 0)]);
    // A time that nobody has proposed, or before this partition's, is a stranger's.
    let three = cast.both(3, 0);
    let proposed = time_of(&cast.outcome(three.clone()));
    for wrong in [at(proposed.clock - 1, 0, 0), at(99, 0, 0), at(99, 1, 3)] {
        assert!(matches!(cast.outcome(Fix { id: three.id, owner: ORIGIN, at: wrong }), Outcome::Conflict(_)));
    }
}

// Phases that are sent again, or come late, must be answered as before.
#[test]
fn phases_are_repeated_safely() {
    let mut cast = Cast::new();
    let both = cast.both(1, 0);
    let proposed = cast.outcome(both.clone());
    assert_eq!(cast.outcome(both.clone()), proposed);
    let fix = Fix { id: both.id, owner: ORIGIN, at: time_of(&proposed) };
    let delivered = cast.outcome(fix.clone());
    assert_eq!(cast.outcome(fix.clone()), delivered);
    assert_eq!(cast.outcome(both.clone()), delivered);
    assert_eq!(cast.outcomes(CleanUp { id: both.id, owner: ORIGIN }), []);
    assert_eq!(cast.state.unfinished_count(), 0);
    // Cleaned up, it is still known to be done.
    assert_eq!(cast.outcome(both), delivered);
    assert_eq!(cast.outcome(fix), delivered);
}

// An owner that was replaced must get nothing done, and of two who try one wins.
#[test]
fn who_was_replaced_is_refused() {
    let mut cast = Cast::new();
    let both = cast.both(1, 0);
    let proposed = cast.outcome(both.clone());
    let (id, content) = (both.id, both.content.clone());
    let owner = |identity| Owner { generation: 1, identity };
    let take =
        |identity| TakeOver { id, expected: Some(ORIGIN), owner: owner(identity), content: content.clone() };
    assert_eq!(cast.outcome(take(8)), proposed);
    assert!(matches!(cast.outcome(take(9)), Outcome::Held(held) if held.owner == owner(8)));
    let fix = |owner| Fix { id, owner, at: time_of(&proposed) };
    assert!(matches!(cast.outcome(fix(ORIGIN)), Outcome::Held(_)));
    assert!(matches!(cast.outcome(both), Outcome::Held(_)));
    assert!(matches!(cast.outcome(fix(owner(8))), Outcome::Delivered(_)));
    cast.outcomes(CleanUp { id, owner: ORIGIN });
    assert_eq!(cast.state.unfinished_count(), 1, "a late clean-up of the replaced origin");
}

// A take-over that finds nothing shuts the door to the late phase 1; one that comes after the user has the answer does not begin anew.
#[test]
fn take_overs_come_before_phase_1_and_after_the_end() {
    let mut cast = Cast::new();
    let both = cast.both(1, 0);
    let owner = Owner { generation: 1, identity: 8 };
    let take = TakeOver { id: both.id, expected: None, owner, content: both.content.clone() };
    let proposed = cast.outcome(take.clone());
    assert!(matches!(cast.outcome(both.clone()), Outcome::Held(_)));
    cast.outcome(Fix { id: both.id, owner, at: time_of(&proposed) });
    cast.outcomes(CleanUp { id: both.id, owner });
    let mut later = cast.single(1, 1, AppendTime::ZERO);
    later.below = 1;
    cast.outcome(later);
    assert!(matches!(cast.outcome(take), Outcome::Forgotten(_)));
    assert!(matches!(cast.outcome(both), Outcome::Forgotten(_)));
    assert_eq!(cast.state.unfinished_count(), 0);
}

// A snapshot must not go into the colours that it looks at.
#[test]
fn a_snapshot_stores_nothing() {
    let mut cast = Cast::new();
    let append = cast.single(1, 0, AppendTime::ZERO);
    cast.outcome(append);
    let content = Content::new(cast.here[..2].to_vec(), Vec::new());
    let snapshot = Append { id: id(1, 1, &content), below: 0, seen: AppendTime::ZERO, content };
    let Outcome::Delivered(delivered) = cast.outcome(snapshot) else { panic!("no snapshot") };
    let tails = [NodePosition(1), NodePosition(0)];
    let expected: Vec<Placed> =
        cast.here.iter().zip(tails).map(|(&colour, position)| Placed { colour, position }).collect();
    assert_eq!(delivered.placed, expected);
    assert_eq!(cast.state.tail(cast.here[0]), NodePosition(1));
}

// A trim of one colour must leave a node in its others, and not go beyond the end.
#[test]
fn a_trim_concerns_one_colour() {
    let mut cast = Cast::new();
    let content = content(&cast.here[..2]);
    let append = Append { id: id(1, 0, &content), below: 0, seen: AppendTime::ZERO, content };
    cast.outcome(append);
    let bytes = cast.state.bytes();
    let (colour, other) = (cast.here[0], cast.here[1]);
    let beyond = cast.outcome(Trim { colour, before: NodePosition(2) });
    assert!(matches!(beyond, Outcome::BeyondTail(it) if it.tail == NodePosition(1)));
    let trimmed = cast.outcome(Trim { colour, before: NodePosition(1) });
    assert!(matches!(trimmed, Outcome::TrimmedTo(it) if it.first == NodePosition(1)));
    assert_eq!((cast.state.first(colour), cast.state.tail(colour)), (NodePosition(1), NodePosition(1)));
    assert_eq!(cast.state.nodes(other, NodePosition(0)).count(), 1);
    assert_eq!(2 * cast.state.bytes(), bytes);
    let listed = |from| cast.state.colours_from(from).map(|(colour, ..)| colour).collect::<Vec<_>>();
    assert_eq!(listed(Colour(0)), [colour, other], "a colour stays when its nodes are gone");
    assert_eq!(listed(other), [other]);
}

/// Chunks of the snapshot that a state has begun; `meanwhile` is called between two of them.
fn chunks_of(
    state: &mut PartitionState,
    budget: usize,
    mut meanwhile: impl FnMut(&mut PartitionState),
) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    loop {
        let mut chunk = Vec::new();
        let step = state.snapshot_step(budget, &mut chunk);
        chunks.push(chunk.into());
        if step == SnapshotStep::Done {
            return chunks;
        }
        meanwhile(state);
    }
}

/// Everything that a state is.
fn image(state: &PartitionState) -> Vec<Bytes> {
    let mut copy = state.clone();
    copy.begin_snapshot();
    chunks_of(&mut copy, 1 << 20, |_| {})
}

// What a snapshot leaves out is another state from there on: tables, queue, owners, trims, and the clock above all.
#[test]
fn a_snapshot_has_all_of_the_state() {
    let mut cast = Cast::new();
    let (one, two, three) = (cast.both(1, 0), cast.both(2, 0), cast.both(3, 0));
    let first = cast.single(4, 0, AppendTime::ZERO);
    cast.outcome(first);
    let times: Vec<AppendTime> = [&one, &two, &three].map(|it| time_of(&cast.outcome(it.clone()))).to_vec();
    cast.outcome(Fix { id: one.id, owner: ORIGIN, at: times[0] });
    cast.outcomes(Fix { id: three.id, owner: ORIGIN, at: at(9, 1, 0) });
    let waits = cast.single(5, 0, times[2]);
    cast.outcomes(waits);
    cast.outcome(Trim { colour: cast.here[0], before: NodePosition(1) });
    let expected = image(&cast.state);
    for budget in [1, 100, 1 << 20] {
        let placement = ColourPlacement::over(2);
        cast.state.begin_snapshot();
        let chunks = chunks_of(&mut cast.state, budget, |_| {});
        let state = PartitionState::of_chunks(HERE, placement, FuzzyOrder::Serializable, chunks)
            .expect("just written");
        assert_eq!(image(&state), expected);
        assert_eq!(state.live_bytes(), cast.state.live_bytes());
        let mut other = Cast { state, here: cast.here.clone(), ..Cast::new() };
        let mut again = Cast { state: cast.state.clone(), here: cast.here.clone(), ..Cast::new() };
        let fix = Fix { id: two.id, owner: ORIGIN, at: times[1] };
        assert_eq!(other.outcomes(fix.clone()), again.outcomes(fix));
        assert_eq!(other.outcomes(three.clone()), again.outcomes(three.clone()));
        assert_eq!(other.state.digest(), again.state.digest());
        assert_eq!((other.state.queued(), other.state.bytes()), (0, again.state.bytes()));
    }
}

// A snapshot that is written while commands go on is of one moment, or of none that ever was.
#[test]
fn a_snapshot_is_of_the_moment_at_which_it_began() {
    for budget in [1, 150, 400] {
        let mut cast = Cast::new();
        for number in 0..12 {
            // Later there are new colours before, between and behind these.
            let colour = cast.here[[2, 3, 6][(number % 3) as usize]];
            let content = content(&[colour]);
            let id = id(number % 4, number, &content);
            cast.outcome(Append { id, below: 0, seen: AppendTime::ZERO, content });
        }
        let expected = image(&cast.state);
        cast.state.begin_snapshot();
        let here = cast.here.clone();
        let mut number = 100;
        let chunks = chunks_of(&mut cast.state, budget, |state| {
            // Both what is written by now and what is not: new nodes, new colours, new and old clients, trims up to the end.
            number += 1;
            let content = content(&here[(number % 8) as usize..][..1]);
            let id = id(number % 6, number, &content);
            let colour = content.colours[0];
            let append = Append { id, below: number - 2, seen: AppendTime::ZERO, content };
            let trim = Trim { colour, before: state.tail(colour) };
            for command in [append.into(), trim.into()] {
                state.apply(&RowEntry { origin: NodeId::ZERO, call: number, command });
            }
        });
        assert!(number > 102, "{number}: it was written at once");
        let state =
            PartitionState::of_chunks(HERE, ColourPlacement::over(2), FuzzyOrder::Serializable, chunks)
                .expect("just written");
        assert_eq!(image(&state), expected, "in chunks of {budget}");
    }
}

// What is counted once too often is never free again; once too seldom, it is memory without a bound.
#[test]
fn what_is_retained_is_counted_as_it_comes_and_goes() {
    let mut cast = Cast::new();
    assert_eq!(cast.state.live_bytes(), 0);
    let single = cast.single(1, 0, AppendTime::ZERO);
    cast.outcome(single.clone());
    let with_one = cast.state.live_bytes();
    let both = cast.both(2, 0);
    let time = time_of(&cast.outcome(both.clone()));
    let waits = cast.single(1, 1, time);
    cast.outcomes(waits);
    assert!(cast.state.live_bytes() > with_one);
    cast.outcomes(Fix { id: both.id, owner: ORIGIN, at: time });
    cast.outcomes(CleanUp { id: both.id, owner: ORIGIN });
    let colour = cast.here[0];
    cast.outcome(Trim { colour, before: cast.state.tail(colour) });
    for client in [1, 2] {
        let append = cast.single(client, 9, AppendTime::ZERO);
        cast.outcome(Append { below: 9, ..append });
    }
    cast.outcome(Trim { colour, before: cast.state.tail(colour) });
    let again = PartitionState::of_chunks(
        HERE,
        ColourPlacement::over(2),
        FuzzyOrder::Serializable,
        image(&cast.state),
    )
    .expect("its own");
    assert_eq!(cast.state.live_bytes(), again.live_bytes());
    assert_eq!((cast.state.bytes(), cast.state.clients()), (0, 2));
}
