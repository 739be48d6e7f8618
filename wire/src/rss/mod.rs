//! libRSS (the RSS paper, section 4): services that are RSS each stay RSS together.
//!
//! Each process keeps one [`Composition`]. Before a transaction it names the service; whenever that differs from
//! the one it used last, the real-time fence of the last one runs first (Figure 3). What a process knows travels
//! to others as a [`CausalContext`] in W3C baggage (section 4.2): the services it used last and one token each.
//!
//! ```text
//! process 1                         process 2
//!   start(kv)    -> go
//!   start(queue) -> fence kv, go
//!   inject ------- ordinate=v1.… -----> extract, absorb {last: queue, tokens}
//!                                       start(kv) -> fence queue, go
//! ```
//!
//! Differences from the paper: fences are returned to the caller as well as called back, so that clients without
//! I/O of their own can use them; after a message several services may have to be fenced; a service that is
//! unregistered while it was used last is fenced first; tokens too large for a header become a fence.

mod baggage;
mod composition;
mod context;

pub use baggage::{BaggageError, ENTRIES_MAX, HEADER_BYTES_MAX, Injected, TOKEN_INLINE_MAX, extract, inject};
pub use composition::{Composition, CompositionError, LibRss};
pub use context::{CausalContext, ServiceName, Token};
