//! Consistency.
