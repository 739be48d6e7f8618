//! The executions of Helt et al., *Regular Sequential Serializability and Regular Sequential Consistency* (appendix A, sections 2.2
//! and 4.1), with what the paper says of them.

use crate::history::{Draft, History};
use crate::{Model, Process, Time};
use Model::{
    Causal, CausalPlus, Linearizable, OscU, ProcessOrderedSerializable, Regular, Rsc, Rss, Sequential,
    Serializable, StrictSerializable,
};

/// An execution.
#[derive(Debug)]
pub struct Execution {
    /// What the paper calls it.
    pub name: &'static str,
    /// What happened.
    pub history: History,
    /// Models, each with whether it allows that.
    pub verdicts: &'static [(Model, bool)],
}

/// An operation of a process, between two moments.
pub fn at(process: u64, invoke: u64, complete: u64) -> Draft {
    Draft::new(Process(process), Time(invoke), Time(complete))
}

/// A history of these operations, in which what nobody wrote is 0.
pub fn history(operations: impl IntoIterator<Item = Draft>) -> History {
    let mut history = History::new().with_initial(0);
    operations.into_iter().for_each(|operation| {
        history.add(operation);
    });
    history
}

fn informed(mut history: History, from: (u64, u64), to: (u64, u64)) -> History {
    history.send(Process(from.0), Time(from.1), "call");
    history.receive(Process(to.0), Time(to.1), "call");
    history
}

/// One write in flight, seen by one reader and missed by a later one.
pub fn new_old_inversion() -> History {
    history([at(1, 0, 100).write("x", 1), at(2, 10, 20).read("x", 1), at(3, 30, 40).read("x", 0)])
}

/// Alice adds a photo and, if she calls Bob, he does not see it (anomaly 2).
pub fn added_and_not_seen(call: bool) -> History {
    let history = history([at(1, 0, 10).write("photo", 1), at(2, 30, 40).read("photo", 0)]);
    if call { informed(history, (1, 15), (2, 20)) } else { history }
}

/// Alice sees Charlie's photo, still being added, and calls Bob, who does not see it (anomaly 3).
fn seen_in_flight_and_not_seen(call: bool) -> History {
    let history = history([
        at(3, 0, 100).write("photo", 1),
        at(1, 10, 20).read("photo", 1),
        at(2, 40, 50).read("photo", 0),
    ]);
    if call { informed(history, (1, 25), (2, 30)) } else { history }
}

/// Two readers cross two services in opposite directions (section 4.1), and what they see of the second one each.
pub fn two_services(fences: bool, y_seen: i64, x_seen: i64) -> History {
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

/// All of them.
pub fn executions() -> Vec<Execution> {
    let mut all = transactions();
    all.extend(single_reads_and_writes());
    all.extend(anomalies());
    all
}

/// Appendix A, the figures about transactions.
fn transactions() -> Vec<Execution> {
    vec![
        Execution {
            name: "Figure 9",
            // CockroachDB allows it, since the writes do not conflict; RSS orders all writes by real time.
            history: history([
                at(1, 10, 20).write("x", 1),
                at(2, 30, 40).write("y", 1),
                at(3, 5, 50).read("x", 0).read("y", 1),
            ]),
            verdicts: &[
                (ProcessOrderedSerializable, true),
                (Serializable, true),
                (Rss, false),
                (StrictSerializable, false),
                (Regular, false),
                (OscU, false),
            ],
        },
        Execution {
            name: "Figure 10",
            history: new_old_inversion(),
            verdicts: &[
                (Rss, true),
                (Rsc, true),
                (Regular, true),
                (OscU, true),
                (StrictSerializable, false),
                (Linearizable, false),
            ],
        },
        Execution {
            name: "Figure 10, the readers inform each other",
            // VV regularity allows it still: it knows no causality.
            history: informed(new_old_inversion(), (2, 22), (3, 28)),
            verdicts: &[
                (Regular, true),
                (OscU, true),
                (Rss, false),
                (Rsc, false),
                (CausalPlus, false),
                (Causal, false),
            ],
        },
        Execution {
            name: "Figure 11",
            // Write skew: strong snapshot isolation allows it, nothing serializable does.
            history: history([
                at(1, 0, 10).read("x", 0).read("y", 0).write("x", 1),
                at(2, 0, 10).read("x", 0).read("y", 0).write("y", 1),
            ]),
            verdicts: &[(CausalPlus, true), (Serializable, false), (Rss, false)],
        },
    ]
}

/// Appendix A, the figures about single reads and writes.
fn single_reads_and_writes() -> Vec<Execution> {
    vec![
        Execution {
            name: "Figure 13",
            history: history([at(1, 0, 10).write("x", 1), at(2, 20, 30).read("x", 0)]),
            verdicts: &[
                (OscU, true),
                (Sequential, true),
                (Rsc, false),
                (Regular, false),
                (Linearizable, false),
            ],
        },
        Execution {
            name: "Figure 14",
            history: history([
                at(1, 30, 40).write("x", 1),
                at(2, 0, 100).write("x", 2),
                at(3, 10, 20).read("x", 2),
                at(4, 50, 60).read("x", 1),
                at(4, 70, 80).read("x", 2),
            ]),
            verdicts: &[
                (Rsc, true),
                (Regular, true),
                (Sequential, true),
                (OscU, false),
                (Linearizable, false),
            ],
        },
        Execution {
            name: "Figure 15",
            // MWR-WO and MWR-NI allow it; no total order has it.
            history: history([
                at(1, 0, 100).write("x", 1),
                at(2, 0, 100).write("y", 1),
                at(3, 10, 20).read("x", 1),
                at(3, 30, 40).read("y", 0),
                at(4, 10, 20).read("y", 1),
                at(4, 30, 40).read("x", 0),
            ]),
            verdicts: &[
                (Regular, true),
                (Causal, true),
                (CausalPlus, true),
                (Rsc, false),
                (Sequential, false),
                (OscU, false),
            ],
        },
        Execution {
            name: "Figure 16",
            // MWR-RF and MWR-NI allow it: each reader has a serialization of its own.
            history: history([
                at(1, 0, 10).write("x", 1),
                at(2, 0, 10).write("x", 2),
                at(3, 20, 30).read("x", 1),
                at(4, 20, 30).read("x", 2),
            ]),
            verdicts: &[
                (Sequential, true),
                (Causal, true),
                (Rsc, false),
                (Regular, false),
                (Linearizable, false),
            ],
        },
    ]
}

/// Table 1, and section 4.1.
fn anomalies() -> Vec<Execution> {
    let of_two: &[(Model, bool)] =
        &[(ProcessOrderedSerializable, true), (Rss, false), (StrictSerializable, false), (Regular, false)];
    vec![
        Execution {
            name: "Anomaly 1",
            // Both of her transactions read the empty album; the second overwrites the first.
            history: history([
                at(1, 0, 10).read("album", 0).write("album", 1),
                at(1, 20, 30).read("album", 0).write("album", 2),
                at(1, 40, 50).read("album", 2),
            ]),
            verdicts: &[(Rss, false), (StrictSerializable, false), (Serializable, false)],
        },
        Execution { name: "Anomaly 2", history: added_and_not_seen(false), verdicts: of_two },
        Execution {
            name: "Anomaly 2, the call recorded",
            history: added_and_not_seen(true),
            verdicts: of_two,
        },
        Execution {
            name: "Anomaly 3",
            history: seen_in_flight_and_not_seen(false),
            verdicts: &[(Rss, true), (ProcessOrderedSerializable, true), (StrictSerializable, false)],
        },
        Execution {
            name: "Anomaly 3, the call recorded",
            history: seen_in_flight_and_not_seen(true),
            verdicts: &[(ProcessOrderedSerializable, true), (Rss, false), (StrictSerializable, false)],
        },
        Execution {
            name: "Section 4.1, two services without fences",
            history: two_services(false, 0, 0),
            verdicts: &[(Rss, false), (ProcessOrderedSerializable, false)],
        },
        Execution {
            name: "Section 4.1, two services with fences",
            history: two_services(true, 1, 1),
            verdicts: &[(Rss, true)],
        },
    ]
}
