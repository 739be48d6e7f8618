//! The worked examples of `docs/extending.md`: a toy engine, and a toy service that runs over it and over MultiPaxos alike.
//!
//! Both are small and complete: messages with golden bytes, a ladder, roles that remember, bounds, a planted bug, and a simulated cluster
//! that finds it. Neither is part of any program.
#![forbid(unsafe_code)]

pub mod planted;
pub mod primary_backup;
pub mod tally;
