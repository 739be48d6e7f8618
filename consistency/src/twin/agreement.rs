//! The checker and its twin must agree; every mutant of the checker must not.

use super::{Kind, Shape, brute, random_history, weak};
use crate::check::{Options, Unwatched, check_under};
use crate::dice::Dice;
use crate::history::History;
use crate::model::{EdgeKind, EdgeSet, Model};
use crate::order::resolve;
use crate::rules::Rules;
use crate::verdict::Verdict;

/// The models of one total order.
const ORDERED: [Model; 10] = [
    Model::StrictSerializable,
    Model::Linearizable,
    Model::ByLevel,
    Model::Rss,
    Model::Rsc,
    Model::OscU,
    Model::ProcessOrderedSerializable,
    Model::Sequential,
    Model::Regular,
    Model::Serializable,
];

/// Random histories per model: at least 100,000, more if `ORDINATE_TWIN_HISTORIES` says so.
fn histories() -> usize {
    std::env::var("ORDINATE_TWIN_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(0).max(100_000)
}

fn verdicts(history: &History, models: &[Model], rules: &Rules) -> Vec<(Model, Verdict)> {
    // Each model alone, so that none leans on another's answer.
    let verdict = |model: &Model| {
        let options = Options::of(*model);
        let report =
            check_under(history, &options, rules, &mut Unwatched).expect("generated histories are valid");
        (*model, report.verdicts[0].1.clone())
    };
    models.iter().map(verdict).collect()
}

fn shape(round: usize) -> Shape {
    let kind = [Kind::Blind, Kind::Timestamped, Kind::Lists][round % 3];
    let single = (round / 3).is_multiple_of(2);
    Shape { kind, single, operations_max: if single { 6 } else { 5 } }
}

fn agree_on(model: Model, seed: u64) {
    let mut dice = Dice(seed);
    let (mut held, mut broken) = (0, 0);
    for round in 0..histories() {
        let history = random_history(&mut dice, shape(round));
        let truth = brute::holds(&history, model);
        let (_, verdict) = verdicts(&history, &[model], &Rules::default()).remove(0);
        let agreed = match &verdict {
            Verdict::Holds => truth,
            Verdict::Violated(_) => !truth,
            Verdict::Undecided(_) => false,
        };
        assert!(agreed, "{model}, round {round}: {verdict:#?}, but truth is {truth}\n{}", show(&history));
        if truth { held += 1 } else { broken += 1 }
    }
    assert!(held * 10 > broken && broken * 20 > held, "{model}: {held} held, {broken} did not");
}

fn show(history: &History) -> String {
    let mut text: Vec<String> = (0..history.operations().len() as u32)
        .map(|op| {
            let operation = &history.operations()[op as usize];
            let line = crate::explain::operation_line(history, crate::history::OpIndex(op));
            format!(
                "{line} {:?} {:?}",
                operation.fate,
                history.accesses(operation).iter().map(|a| a.timestamp).collect::<Vec<_>>()
            )
        })
        .collect();
    text.extend(history.messages().iter().map(|event| format!("{event:?}")));
    text.join("\n")
}

macro_rules! agreement {
    ($($name:ident: $model:ident, $seed:literal;)*) => {$(
        #[test]
        fn $name() {
            // A constraint too few passes a broken service; one too many convicts a sound one.
            agree_on(Model::$model, $seed);
        }
    )*};
}

agreement! {
    serializable: Serializable, 1;
    process_ordered_serializable: ProcessOrderedSerializable, 2;
    sequential: Sequential, 3;
    rss: Rss, 4;
    rsc: Rsc, 5;
    strict_serializable: StrictSerializable, 6;
    linearizable: Linearizable, 7;
    osc_u: OscU, 8;
    regular: Regular, 9;
    by_level: ByLevel, 10;
}

#[test]
fn causal_models() {
    // A clock that forgets a message, or a conflict edge too many, changes these.
    for (model, convergent) in [(Model::Causal, false), (Model::CausalPlus, true)] {
        let mut dice = Dice(11);
        let (mut held, mut broken) = (0, 0);
        for round in 0..histories() {
            let kind = if round % 2 == 0 { Kind::Blind } else { Kind::Timestamped };
            let single = !convergent || round / 2 % 2 == 0;
            let history = random_history(&mut dice, Shape { kind, single, operations_max: 6 });
            let truth = weak::causal(&history, convergent);
            let (_, verdict) = verdicts(&history, &[model], &Rules::default()).remove(0);
            assert_eq!(verdict.holds(), truth, "{model}, round {round}: {verdict:#?}\n{}", show(&history));
            if truth { held += 1 } else { broken += 1 }
        }
        assert!(held > 20_000 && broken > 5_000, "{model}: {held} held, {broken} did not");
    }
}

#[test]
fn session_guarantees() {
    // A session that carries over a restart, or a bound from the wrong side, changes these.
    let models =
        [Model::ReadYourWrites, Model::MonotonicReads, Model::MonotonicWrites, Model::WritesFollowReads];
    for model in models {
        let mut dice = Dice(12);
        let (mut held, mut broken, mut rounds) = (0, 0, 0);
        while held + broken < histories() {
            rounds += 1;
            let single = rounds % 2 == 0;
            let history =
                random_history(&mut dice, Shape { kind: Kind::Timestamped, single, operations_max: 7 });
            let resolved = resolve(&history, &Rules::default()).expect("generated histories are valid");
            if !resolved.anomalies.is_empty() || !resolved.free.is_empty() {
                continue;
            }
            let truth = weak::session(&history, model);
            let (_, verdict) = verdicts(&history, &[model], &Rules::default()).remove(0);
            assert_eq!(verdict.holds(), truth, "{model}, round {rounds}: {verdict:#?}\n{}", show(&history));
            if truth { held += 1 } else { broken += 1 }
        }
        assert!(broken > 500, "{model}: {held} held, {broken} did not");
    }
}

#[test]
fn eventual_convergence() {
    // A read before the writes settled is no evidence; a lost write afterwards is.
    let mut dice = Dice(13);
    let (mut held, mut broken) = (0, 0);
    while held + broken < histories() {
        let history =
            random_history(&mut dice, Shape { kind: Kind::Timestamped, single: true, operations_max: 6 });
        let resolved = resolve(&history, &Rules::default()).expect("generated histories are valid");
        let (_, verdict) = verdicts(&history, &[Model::Eventual], &Rules::default()).remove(0);
        match weak::eventual(&history).filter(|_| resolved.anomalies.is_empty()) {
            None => continue,
            Some(truth) => {
                assert_eq!(verdict.holds(), truth, "{verdict:#?}\n{}", show(&history));
                if truth { held += 1 } else { broken += 1 }
            }
        }
    }
    assert!(held > 5_000 && broken > 5_000, "{held} held, {broken} did not");
}

/// How many of some random histories the mutant answers wrongly under some model.
fn caught(rules: &Rules) -> usize {
    let mut dice = Dice(99);
    let mut wrong = 0;
    for round in 0..30_000 {
        let history = random_history(&mut dice, shape(round));
        for model in ORDERED {
            // A mutant may also run into its own nonsense, which counts as caught.
            let options = Options::of(model);
            let verdict = check_under(&history, &options, rules, &mut Unwatched)
                .map(|report| report.verdicts[0].1.holds());
            wrong += usize::from(verdict != Ok(brute::holds(&history, model)));
        }
        if wrong > 0 {
            break;
        }
    }
    wrong
}

#[test]
fn every_edge_kind_matters() {
    // An edge kind that nothing here misses would be an edge kind without a test.
    for kind in EdgeKind::ALL {
        let rules = Rules { dropped: EdgeSet::NONE.with(kind), ..Rules::default() };
        assert!(caught(&rules) > 0, "{kind:?} can be dropped without anyone noticing");
    }
}

#[test]
fn every_mutant_is_caught() {
    // These are the mistakes that checkers make (docs/checking.md, "Pitfalls").
    let mutants = [
        Rules { unknown_as_failed: true, ..Rules::default() },
        Rules { real_time_from_reads: true, ..Rules::default() },
        Rules { messages_ignored: true, ..Rules::default() },
        Rules { half_open: true, ..Rules::default() },
        Rules { levels_ignored: true, ..Rules::default() },
    ];
    for mutant in mutants {
        assert!(caught(&mutant) > 0, "{mutant:?} is not caught");
    }
    assert_eq!(caught(&Rules::default()), 0, "the checker itself is wrong");
}
