//! Adler-32 (RFC 1950, section 8.2), the checksum of ZooKeeper's files.

/// A running checksum.
#[derive(Clone, Copy, Debug)]
pub struct Adler {
    low: u32,
    high: u32,
}

const MODULUS: u32 = 65_521;
/// So many bytes can be added before the sums must be reduced.
const RUN: usize = 5_552;

impl Default for Adler {
    fn default() -> Self {
        Self { low: 1, high: 0 }
    }
}

impl Adler {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for run in bytes.chunks(RUN) {
            for &byte in run {
                self.low += u32::from(byte);
                self.high += self.low;
            }
            self.low %= MODULUS;
            self.high %= MODULUS;
        }
    }

    /// As the files write it: in 64 bits.
    pub fn value(self) -> u64 {
        u64::from(self.high << 16 | self.low)
    }

    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut adler = Self::default();
        adler.add(bytes);
        adler.value()
    }
}

#[cfg(test)]
mod tests {
    use super::Adler;

    // A checksum that is not the standard's refuses every file there is.
    #[test]
    fn the_checksum_is_the_standards() {
        assert_eq!(Adler::of(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(Adler::of(b""), 1);
        let long = vec![0xff; 100_000];
        let slow = long.iter().fold((1u64, 0u64), |(low, high), byte| {
            let low = (low + u64::from(*byte)) % 65_521;
            (low, (high + low) % 65_521)
        });
        assert_eq!(Adler::of(&long), slow.1 << 16 | slow.0);
    }
}
