//! The litmus histories of the RSS paper (appendix A, sections 2.2 and 4.1) must get the paper's answers.
//!
//! A figure that changes its answer means that a model was redefined.

use consistency::history::History;
use consistency::litmus::{self, added_and_not_seen, at, history, new_old_inversion, two_services};
use consistency::{Model, check};

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

#[test]
fn the_papers_executions_get_the_papers_answers() {
    let executions = litmus::executions();
    for execution in &executions {
        for &(model, allowed) in execution.verdicts {
            let (allows, forbids) = if allowed { (vec![model], vec![]) } else { (vec![], vec![model]) };
            expect(&execution.history, &allows, &forbids);
        }
    }
    assert!(executions.len() >= 15, "{}", executions.len());
}

#[test]
fn a_call_that_is_not_recorded_convicts_no_causal_store() {
    expect(&added_and_not_seen(false), &[Model::CausalPlus], &[]);
    expect(&added_and_not_seen(true), &[], &[Model::CausalPlus, Model::Causal]);
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
        let mut history = new_old_inversion();
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
    let verdict = check(&added_and_not_seen(false), Model::Rss).expect("well formed");
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
