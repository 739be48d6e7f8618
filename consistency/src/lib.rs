//! Histories, consistency models, and checkers that decide one against the other and show why.
//!
//! For a simulator or a test the quickest way in is [`kv::KvHistory`]: record, then check.
//!
//! ```
//! use consistency::kv::{KvCall, KvHistory, KvReply};
//! use consistency::{Process, Time, Version};
//!
//! let mut history = KvHistory::new();
//! let add = history.invoke(Process(1), "n", KvCall::Increment(2), Time(1));
//! history.complete(add, KvReply::incremented(2, Version(1)), Time(3));
//! let lost = history.invoke(Process(2), "n", KvCall::Delete, Time(2));
//! history.unknown(lost);
//! assert!(history.check_linearizable().holds());
//! ```
#![forbid(unsafe_code)]

mod anomaly;
mod causal;
mod check;
pub mod cli;
mod convergence;
#[cfg(test)]
mod dice;
pub mod draw;
mod explain;
pub mod format;
mod graph;
mod hash;
pub mod history;
mod json;
pub mod kv;
mod level;
pub mod litmus;
mod model;
mod order;
mod rules;
pub mod search;
mod session;
mod solve;
mod terms;
#[cfg(test)]
mod twin;
mod verdict;
mod witness;
mod zones;

pub use anomaly::{Anomaly, AnomalyKind};
pub use check::{Counts, Options, Report, Unwatched, Watch, check, check_all};
pub use explain::{Reason, operation_line};
pub use level::Level;
pub use model::{EdgeKind, EdgeSet, Model};
pub use terms::{Fate, Process, Time, Value, Version};
pub use verdict::Verdict;
pub use witness::Witness;
