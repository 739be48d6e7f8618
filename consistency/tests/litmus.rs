//! The litmus histories of the RSS paper (appendix A, sections 2.2 and 4.1) must get the paper's answers.
//!
//! A figure that changes its answer means that a model was redefined.

use consistency::history::{Draft, History};
use consistency::{Model, Process, Time, check};

fn at(process: u64, invoke: u64, complete: u64) -> Draft {
    Draft::new(Process(process), Time(invoke), Time(complete))
}

fn history(operations: impl IntoIterator<Item = Draft>) -> History {
    let mut history = History::new().with_initial(0);
    operations.into_iter().for_each(|operation| {
        history.add(operation);
    });
    history
}

#[track_caller]
fn expect(history: &History, allowed: &[Model], forbidden: &[Model]) {
    for (models, holds) in [(allowed, true), (forbidden, false)] {
        for model in models {
            let verdict = check(history, *model).expect("litmus histories are well formed");
            assert_eq!(verdict.holds(), holds, "{model}: {verdict:?}");
            assert_eq!(verdict.is_violated(), !holds, "{model} must not be undecided");
        }
    }
}

/// Alice adds two photos in turn at two web servers; a reader sees only the second.
#[test]
fn figure_9_causal_reverse() {
    // CockroachDB allows it (the writes do not conflict); RSS orders all writes by real time.
    let history = history([
        at(1, 10, 20).write("x", 1),
        at(2, 30, 40).write("y", 1),
        at(3, 5, 50).read("x", 0).read("y", 1),
    ]);
    expect(
        &history,
        &[Model::ProcessOrderedSerializable, Model::Serializable],
        &[Model::Rss, Model::StrictSerializable, Model::Regular, Model::OscU],
    );
}

/// One write in flight, seen by one reader and missed by a later one.
fn figure_10() -> History {
    history([at(1, 0, 100).write("x", 1), at(2, 10, 20).read("x", 1), at(3, 30, 40).read("x", 0)])
}

#[test]
fn figure_10_new_old_inversion() {
    expect(
        &figure_10(),
        &[Model::Rss, Model::Rsc, Model::Regular, Model::OscU],
        &[Model::StrictSerializable, Model::Linearizable],
    );
}

#[test]
fn figure_10_with_a_message_between_the_readers() {
    // VV regularity still allows it: it knows no causality. RSS does not.
    let mut history = figure_10();
    history.send(Process(2), Time(22), "look");
    history.receive(Process(3), Time(28), "look");
    expect(
        &history,
        &[Model::Regular, Model::OscU],
        &[Model::Rss, Model::Rsc, Model::CausalPlus, Model::Causal],
    );
}

#[test]
fn figure_11_write_skew() {
    // Strong snapshot isolation allows it; nothing serializable does.
    let history = history([
        at(1, 0, 10).read("x", 0).read("y", 0).write("x", 1),
        at(2, 0, 10).read("x", 0).read("y", 0).write("y", 1),
    ]);
    expect(&history, &[Model::CausalPlus], &[Model::Serializable, Model::Rss]);
}

#[test]
fn figure_13_stale_read() {
    let history = history([at(1, 0, 10).write("x", 1), at(2, 20, 30).read("x", 0)]);
    expect(&history, &[Model::OscU, Model::Sequential], &[Model::Rsc, Model::Regular, Model::Linearizable]);
}

#[test]
fn figure_14_read_before_an_earlier_write() {
    // r1 sees w2, then w1 begins; P4 sees w1 and then w2.
    let history = history([
        at(1, 30, 40).write("x", 1),
        at(2, 0, 100).write("x", 2),
        at(3, 10, 20).read("x", 2),
        at(4, 50, 60).read("x", 1),
        at(4, 70, 80).read("x", 2),
    ]);
    expect(&history, &[Model::Rsc, Model::Regular, Model::Sequential], &[Model::OscU, Model::Linearizable]);
}

#[test]
fn figure_15_independent_readers_disagree() {
    // Allowed by MWR-WO and MWR-NI; no total order has it.
    let history = history([
        at(1, 0, 100).write("x", 1),
        at(2, 0, 100).write("y", 1),
        at(3, 10, 20).read("x", 1),
        at(3, 30, 40).read("y", 0),
        at(4, 10, 20).read("y", 1),
        at(4, 30, 40).read("x", 0),
    ]);
    expect(
        &history,
        &[Model::Regular, Model::Causal, Model::CausalPlus],
        &[Model::Rsc, Model::Sequential, Model::OscU],
    );
}

#[test]
fn figure_16_two_winners() {
    // Allowed by MWR-RF and MWR-NI: each reader has a serialization of its own.
    let history = history([
        at(1, 0, 10).write("x", 1),
        at(2, 0, 10).write("x", 2),
        at(3, 20, 30).read("x", 1),
        at(4, 20, 30).read("x", 2),
    ]);
    expect(&history, &[Model::Sequential, Model::Causal], &[Model::Rsc, Model::Regular, Model::Linearizable]);
}

#[test]
fn anomaly_1_a_photo_is_lost() {
    // Both transactions read the empty album; the second overwrites the first. Never under a serializable store.
    let history = history([
        at(1, 0, 10).read("album", 0).write("album", 1),
        at(1, 20, 30).read("album", 0).write("album", 2),
        at(1, 40, 50).read("album", 2),
    ]);
    expect(&history, &[], &[Model::Rss, Model::StrictSerializable, Model::Serializable]);
}

/// Alice adds a photo and calls Bob, who does not see it.
fn anomaly_2(call: bool) -> History {
    let mut history = history([at(1, 0, 10).write("photo", 1), at(2, 30, 40).read("photo", 0)]);
    if call {
        history.send(Process(1), Time(15), "call");
        history.receive(Process(2), Time(20), "call");
    }
    history
}

#[test]
fn anomaly_2_never_under_rss_even_unrecorded() {
    for call in [false, true] {
        expect(
            &anomaly_2(call),
            &[Model::ProcessOrderedSerializable],
            &[Model::Rss, Model::StrictSerializable, Model::Regular],
        );
    }
    expect(&anomaly_2(false), &[Model::CausalPlus], &[]);
    expect(&anomaly_2(true), &[], &[Model::CausalPlus, Model::Causal]);
}

/// Alice sees Charlie's photo, still being added, and calls Bob, who does not see it.
fn anomaly_3(call: bool) -> History {
    let mut history = history([
        at(3, 0, 100).write("photo", 1),
        at(1, 10, 20).read("photo", 1),
        at(2, 40, 50).read("photo", 0),
    ]);
    if call {
        history.send(Process(1), Time(25), "call");
        history.receive(Process(2), Time(30), "call");
    }
    history
}

#[test]
fn anomaly_3_only_while_the_call_is_not_recorded() {
    expect(&anomaly_3(false), &[Model::Rss, Model::ProcessOrderedSerializable], &[Model::StrictSerializable]);
    expect(&anomaly_3(true), &[Model::ProcessOrderedSerializable], &[Model::Rss, Model::StrictSerializable]);
}

/// Section 4.1: two readers cross two services in opposite directions.
fn two_services(fences: bool, y_seen: i64, x_seen: i64) -> History {
    let mut operations = vec![
        at(1, 0, 200).write("x", 1).at_service("a"),
        at(2, 0, 200).write("y", 1).at_service("b"),
        at(3, 10, 20).read("x", 1).at_service("a"),
        at(3, 50, 60).read("y", y_seen).at_service("b"),
        at(4, 30, 40).read("y", 1).at_service("b"),
        at(4, 70, 80).read("x", x_seen).at_service("a"),
    ];
    if fences {
        operations.push(at(3, 22, 28).at_service("a").fence());
        operations.push(at(4, 42, 48).at_service("b").fence());
    }
    history(operations)
}

#[test]
fn two_services_without_fences() {
    // Each service keeps RSS; together they do not.
    let whole = two_services(false, 0, 0);
    expect(&whole.at_service("a"), &[Model::Rss], &[]);
    expect(&whole.at_service("b"), &[Model::Rss], &[]);
    expect(&whole, &[], &[Model::Rss, Model::ProcessOrderedSerializable]);
}

#[test]
fn two_services_with_fences() {
    // The same answers now convict each service by itself: P3's fence at a answered before P4 read x there, and
    // P4's fence at b before P3 read y there.
    let broken = two_services(true, 0, 0);
    expect(&broken.at_service("a"), &[], &[Model::Rss]);
    expect(&broken.at_service("b"), &[], &[Model::Rss]);
    expect(&broken, &[], &[Model::Rss]);
    // Services that keep their fences answer otherwise, and the composition is RSS.
    expect(&two_services(true, 1, 1), &[Model::Rss], &[]);
}

#[test]
fn a_broken_fence() {
    // New-old inversion is allowed without the fence, forbidden after it, and allowed again if it overlaps.
    for (complete, holds) in [(25, false), (35, true)] {
        let mut history = figure_10();
        history.add(at(2, 21, complete).fence());
        let verdict = check(&history, Model::Rss).expect("well formed");
        assert_eq!(verdict.holds(), holds, "{verdict:?}");
    }
}

#[test]
fn pending_operations() {
    // A lost write may be seen, once and for all; a failed one may not; an unseen one says nothing.
    let lost = || at(1, 0, 0).write("x", 1).unknown();
    let seen = history([lost(), at(2, 10, 20).read("x", 0), at(2, 30, 40).read("x", 1)]);
    expect(&seen, &[Model::Linearizable, Model::Rsc], &[]);
    let gone = history([lost(), at(2, 10, 20).read("x", 1), at(2, 30, 40).read("x", 0)]);
    expect(&gone, &[], &[Model::Linearizable, Model::Rsc, Model::Sequential]);
    let failed = history([at(1, 0, 5).write("x", 1).failed(), at(2, 10, 20).read("x", 1)]);
    expect(&failed, &[], &[Model::Serializable, Model::Causal]);
    let unseen = history([lost(), at(2, 10, 20).read("x", 0)]);
    expect(&unseen, &[Model::Linearizable], &[]);
}

#[test]
fn explanations_name_times_and_data() {
    // A verdict that nobody can follow is not believed.
    let verdict = check(&anomaly_2(false), Model::Rss).expect("well formed");
    let consistency::Verdict::Violated(witness) = verdict else { panic!("must be violated") };
    assert_eq!(witness.cycle.len(), 2, "{witness:?}");
    let text = witness.sentences.join("\n");
    assert!(text.contains("answered at 10, 20 before T1 was invoked at 30"), "{text}");
    assert!(text.contains("T1 read photo in its initial state, and T0 wrote photo = 1 over it"), "{text}");
}

#[test]
fn forced_orders_are_explained_by_their_readers() {
    // Nobody reported the order of the writes: the sentences must name the reads that fix it both ways.
    let history = history([
        at(1, 0, 100).write("x", 1),
        at(2, 0, 100).write("x", 2),
        at(3, 0, 10).read("x", 1),
        at(3, 20, 30).read("x", 2),
        at(4, 0, 10).read("x", 2),
        at(4, 20, 30).read("x", 1),
    ]);
    expect(&history, &[Model::Serializable, Model::Causal], &[Model::Sequential, Model::Rsc]);
    let verdict = check(&history, Model::Sequential).expect("well formed");
    let consistency::Verdict::Violated(witness) = verdict else { panic!("must be violated") };
    let text = witness.sentences.join("\n");
    assert!(text.contains("both wrote what T"), "{text}");
}
