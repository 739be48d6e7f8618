//! What no honest recorder can produce: refused before any model is asked.

use super::{History, OpIndex};
use crate::hash::FixedState;
use crate::terms::{Fate, Time};
use std::collections::HashMap;
use thiserror::Error;

/// Why a history cannot be checked. Line 0 means that it came from no file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HistoryError {
    /// An answer before its invocation.
    #[error("line {line}: the answer at {complete} comes before the invocation at {invoke}")]
    BackwardInterval {
        /// Where.
        line: u32,
        /// The invocation.
        invoke: Time,
        /// The answer.
        complete: Time,
    },
    /// Two operations of one process overlap, and the history is not pipelined.
    #[error(
        "line {line}: {process} invokes at {invoke} while its operation of line {other} is open until {until}"
    )]
    Overlap {
        /// Where.
        line: u32,
        /// The other operation's line.
        other: u32,
        /// Whose.
        process: crate::Process,
        /// The second invocation.
        invoke: Time,
        /// When the first answered.
        until: Time,
    },
    /// A message was received that nobody sent, or before it was sent, or was sent twice.
    #[error("line {line}: message {message} {trouble}")]
    Message {
        /// Where.
        line: u32,
        /// Which.
        message: String,
        /// What is wrong.
        trouble: &'static str,
    },
    /// Two operations wrote the same value to the same key, and somebody read it without reporting a version.
    #[error(
        "line {line}: value {value} of key {key} was written on lines {first} and {second}; without versions \
             a read of it cannot be placed, so values must be unique per key"
    )]
    DuplicateValue {
        /// The read.
        line: u32,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// One write.
        first: u32,
        /// The other.
        second: u32,
    },
    /// A write that says it read the state at a timestamp.
    #[error("line {line}: an operation that writes is at its own place, and not as of {at}")]
    WriteAsOf {
        /// Where.
        line: u32,
        /// As of when.
        at: crate::Version,
    },
    /// A key is used both as a list and as a register.
    #[error("line {line}: key {key} is used as a list and as a register")]
    MixedKey {
        /// Where.
        line: u32,
        /// The key.
        key: String,
    },
}

impl History {
    /// Refuses impossible intervals, overlapping operations of one process, and messages without a sender.
    /// Call it once before checking.
    pub fn validate(&self) -> Result<(), HistoryError> {
        for operation in &self.operations {
            if operation.complete < operation.invoke {
                let (invoke, complete) = (operation.invoke, operation.complete);
                return Err(HistoryError::BackwardInterval { line: operation.line, invoke, complete });
            }
            if let (Some(at), true) = (operation.as_of, self.writes(operation, true)) {
                return Err(HistoryError::WriteAsOf { line: operation.line, at });
            }
        }
        if !self.pipelined {
            self.validate_processes()?;
        }
        self.validate_messages()
    }

    fn validate_processes(&self) -> Result<(), HistoryError> {
        for pair in self.by_process().windows(2) {
            let (first, second) = (&self.operations[pair[0].at()], &self.operations[pair[1].at()]);
            let overlap = first.process == second.process
                && first.fate != Fate::Unknown
                && second.invoke < first.complete;
            if overlap {
                return Err(HistoryError::Overlap {
                    line: second.line,
                    other: first.line,
                    process: second.process,
                    invoke: second.invoke,
                    until: first.complete,
                });
            }
        }
        Ok(())
    }

    fn validate_messages(&self) -> Result<(), HistoryError> {
        let mut sent: HashMap<_, Time, FixedState> = HashMap::with_hasher(FixedState);
        let trouble = |event: &super::MessageEvent, trouble| {
            let message = self.message_names.value(event.message).to_string();
            Err(HistoryError::Message { line: event.line, message, trouble })
        };
        for event in self.messages.iter().filter(|event| event.sent) {
            if sent.insert(event.message, event.at).is_some() {
                return trouble(event, "was sent twice");
            }
        }
        for event in self.messages.iter().filter(|event| !event.sent) {
            match sent.get(&event.message) {
                None => return trouble(event, "was received but never sent"),
                Some(at) if *at > event.at => return trouble(event, "was received before it was sent"),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// All operations, by process and then by invocation.
    pub(crate) fn by_process(&self) -> Vec<OpIndex> {
        let mut order: Vec<OpIndex> = (0..self.operations.len() as u32).map(OpIndex).collect();
        order.sort_by_key(|index| {
            let operation = &self.operations[index.at()];
            (operation.process, operation.invoke, operation.complete, *index)
        });
        order
    }
}
