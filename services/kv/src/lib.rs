//! The key-value service over any engine that orders commands: get, put, delete, compare-and-set, increment, ordered
//! scans and atomic batches.
//!
//! Every successful write gets the next *revision*, a number that counts the store's writes; a key's *version* is the
//! revision of its last write. Versions of one key grow even when it is deleted and created again, which is what makes
//! a recorded history checkable.
#![forbid(unsafe_code)]

mod machine;
pub mod planted;
mod table;

pub use machine::Store;
pub use wire::kv::{
    Answer, Command, Expect, Item, KEY_BYTES_MAX, Query, Reply, SCAN_BYTES_MAX, VALUE_BYTES_MAX, Versioned,
    WireError,
};
