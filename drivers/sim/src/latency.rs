//! How long packets take.

use crate::draw::{exponential, power, unit};
use serde::Serialize;

/// How long packets take. Durations are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum Latency {
    /// Always the same.
    Constant(u64),
    /// Anything between.
    Uniform(u64, u64),
    /// At least the first, and on average the second more, exponentially.
    Exponential(u64, u64),
    /// At least this, and with a heavy tail (Pareto, exponent 1.5), up to a hundred times as long.
    HeavyTail(u64),
}

impl Latency {
    pub(crate) fn of(self, bits: u64) -> u64 {
        match self {
            Self::Constant(always) => always,
            Self::Uniform(low, high) => low + (unit(bits) * (high - low) as f64) as u64,
            Self::Exponential(least, mean) => least + (exponential(bits) * mean as f64) as u64,
            Self::HeavyTail(least) => {
                let stretch = power(1.0 - unit(bits), -1.0 / 1.5).min(100.0);
                (least as f64 * stretch) as u64
            }
        }
    }
}
