//! MultiPaxos: one replicated log, and the state machine that executes it.
//!
//! The same roles make classic MultiPaxos (every host plays every role) and Compartmentalized MultiPaxos (roles spread
//! over machines and scaled one by one); placement alone differs. Start at [`multipaxos`].
#![forbid(unsafe_code)]

pub mod configuration;
mod embedded;
pub mod multipaxos;
pub mod parameters;
pub mod planted;
pub mod value;

pub use configuration::{Configuration, Configurations, HostEntry};
pub use embedded::{Beginning, EmbeddedLog, LogPlacement, LogRole, Members, RoleSlots, next_step};
pub use multipaxos::{Call, Member, Message, Outcome, Paxos, Refusal};
pub use parameters::Parameters;
pub use value::{
    Batch, BatchId, Command, CommandGroup, Commands, GroupKind, Level, Payload, REPEATED_BYTES_MAX,
    RETAINED_ANSWERS_BYTES_MAX, Rules, Value,
};
