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
    (low * power(high / low, unit(bits))).clamp(low, high)
}

/// An exponentially distributed number of mean 1.
pub(crate) fn exponential(bits: u64) -> f64 {
    -ln(1.0 - unit(bits))
}

/// `base` to the power of `exponent`; `base` must be positive.
///
/// Like [`ln`] it uses nothing but exact IEEE operations: the functions of the system's library differ between machines
/// in the last bit, and a seed must be the same run everywhere.
pub(crate) fn power(base: f64, exponent: f64) -> f64 {
    let log = ln(base) * exponent;
    let halvings = (log / std::f64::consts::LN_2).floor();
    let rest = log - halvings * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((1023.0 + halvings.clamp(-1022.0, 1023.0)) as u64) << 52)
}

/// The natural logarithm of a positive, normal number.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let y = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut power, mut sum) = (y * y, y, 0.0);
    for n in 0..18 {
        sum += power / f64::from(2 * n + 1);
        power *= square;
    }
    2.0 * sum + f64::from(exponent) * std::f64::consts::LN_2
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
    Archive,
    Clocks,
    Turns,
    DryRestart,
    Echoes,
    Elders,
}

/// The root of one purpose's draws in one seed.
pub(crate) fn root(seed: u64, purpose: Purpose) -> u64 {
    mix(mix(0x6f72_6469_6e61_7465, seed), purpose as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A logarithm that is off would shift every rate that seeds draw.
    #[test]
    fn logarithms_and_powers_are_right() {
        for number in 0..2_000u64 {
            let x = unit(mix(1, number)) * 1e6 + 1e-9;
            assert!((ln(x) - x.ln()).abs() < 1e-12, "ln {x}");
            let exponent = unit(mix(2, number)) * 4.0 - 2.0;
            let expected = x.powf(exponent);
            assert!((power(x, exponent) / expected - 1.0).abs() < 1e-12, "{x} ^ {exponent}");
        }
        assert_eq!((ln(1.0), power(7.0, 0.0)), (0.0, 1.0));
    }
}
