//! Draws that depend on what they are for, not on what was drawn before: leaving one fault out of a plan must not
//! change the delay of a message elsewhere.

use kernel::Rng;

/// Mixes one number into a hash (the finaliser of SplitMix64 over a multiplied sum).
#[inline]
pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    let mut z = hash.rotate_left(23).wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes bytes into a hash, eight at a time.
#[inline]
pub(crate) fn mix_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut hash = (hash ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    for &byte in rest {
        hash = (hash.rotate_left(29) ^ u64::from(byte)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    hash ^ (hash >> 32)
}

/// A number in `[0, 1)` from 64 random bits.
#[inline]
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A number in `low..=high`, its logarithm uniform; `low` must be positive.
pub(crate) fn log_uniform(bits: u64, low: f64, high: f64) -> f64 {
    low * (high / low).powf(unit(bits))
}

/// The same from a stream.
pub(crate) fn log_uniform_of(rng: &mut Rng, low: f64, high: f64) -> f64 {
    log_uniform(rng.bits(), low, high)
}

/// The purposes of draws, so that no two share a stream.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Purpose {
    Scenario = 1,
    Swarm,
    Plan,
    Link,
    Boot,
    Think,
    Operation,
    Core,
}

/// The root of one purpose's draws in one seed.
pub(crate) fn root(seed: u64, purpose: Purpose) -> u64 {
    mix(mix(0x6f72_6469_6e61_7465, seed), purpose as u64)
}
