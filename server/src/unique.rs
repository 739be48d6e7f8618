//! Numbers that nobody else draws.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// 64 bits that nobody else draws; the standard library's hasher is seeded by the system. Not a secret.
pub fn unique_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
