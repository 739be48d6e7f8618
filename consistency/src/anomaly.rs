//! What is wrong before any order is asked for: reads that no total order can explain.

use crate::history::{History, OpIndex, Symbol};
use std::fmt;

/// The kind of a non-cycle anomaly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnomalyKind {
    /// G1a: a read of a write that certainly failed.
    AbortedRead,
    /// G1b: a read of a version its writer replaced, or half of a multi-append.
    IntermediateRead,
    /// A read of a value that nobody wrote.
    GarbageRead,
    /// Two writes claim one version of a key.
    DuplicateVersion,
    /// A read whose value and version belong to different writes.
    VersionMismatch,
    /// A transaction contradicts its own earlier reads or writes.
    Internal,
    /// A transaction reads what it writes only later.
    FutureRead,
    /// Two reads of one list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// A list shows one element twice, or one transaction's elements apart.
    TornAppend,
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AnomalyKind::AbortedRead => "aborted read (G1a)",
            AnomalyKind::IntermediateRead => "intermediate read (G1b)",
            AnomalyKind::GarbageRead => "garbage read",
            AnomalyKind::DuplicateVersion => "duplicate version",
            AnomalyKind::VersionMismatch => "version mismatch",
            AnomalyKind::Internal => "internal inconsistency",
            AnomalyKind::FutureRead => "future read",
            AnomalyKind::IncompatibleOrder => "incompatible list orders",
            AnomalyKind::TornAppend => "torn or repeated append",
        })
    }
}

/// One anomaly, with the operations it takes to see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    /// Its kind.
    pub kind: AnomalyKind,
    /// The operations, the reader first.
    pub operations: Vec<OpIndex>,
    /// What was seen, in words.
    pub sentence: String,
}

/// Collects anomalies up to a bound; the first ones are the ones people read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Anomalies {
    found: Vec<Anomaly>,
}

const RECORDED_MAX: usize = 64;

impl Anomalies {
    pub(crate) fn add(
        &mut self,
        kind: AnomalyKind,
        operations: Vec<OpIndex>,
        sentence: impl FnOnce() -> String,
    ) {
        if self.found.len() < RECORDED_MAX {
            self.found.push(Anomaly { kind, operations, sentence: sentence() });
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Anomaly> {
        self.found
    }
}

/// `T17 (process 3, line 40, 120..150)`.
pub(crate) fn name(history: &History, op: OpIndex) -> String {
    let operation = &history.operations()[op.at()];
    let line = if operation.line == 0 { String::new() } else { format!(", line {}", operation.line) };
    format!("T{} ({}{line}, {}..{})", op.0, operation.process, operation.invoke, operation.complete)
}

/// `x = 5`.
pub(crate) fn binding(history: &History, key: Symbol, value: Symbol) -> String {
    format!("{} = {}", history.keys().value(key), history.values().value(value))
}
