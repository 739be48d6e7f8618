//! Formats: golden bytes of everything that travels or is stored, and hostile bytes that nobody would write.

use kernel::{Bytes, Decode, Encode, Reader, Rng};
use std::fmt::{Debug, Write as _};

/// Names and bytes, a line each, as the file of a source tree keeps them.
#[derive(Debug, Default)]
pub struct Golden(String);

impl Golden {
    /// A line for each value: `of`, the value's name without its fields, its bytes. It must read back as it was.
    pub fn values<T: Encode + Decode + Debug + PartialEq>(&mut self, of: &str, values: &[T]) {
        for value in values {
            let bytes = value.encoded();
            assert_eq!(T::decoded(&Bytes::from(bytes.clone())).as_ref(), Ok(value));
            self.line(of, value, &bytes);
        }
    }

    /// A line for what is not read by [`Decode`].
    pub fn line(&mut self, of: &str, value: &impl Debug, bytes: &[u8]) {
        let text = format!("{value:?}");
        let name = text.split([' ', '{']).next().unwrap_or_default();
        let words: Vec<&str> = name.split(['(', ')']).filter(|word| !word.is_empty()).take(2).collect();
        let _ = writeln!(self.0, "{of}{} {}", words.join("."), hex(bytes));
    }

    /// Compares with the file at `path`; writes it anew where `ORDINATE_BLESS` is set, to be read in review.
    pub fn check(&self, path: &str) {
        if std::env::var_os("ORDINATE_BLESS").is_some() {
            std::fs::write(path, &self.0).expect("the source tree is writable where this is asked");
        }
        let golden = std::fs::read_to_string(path).expect("the golden file is part of the source tree");
        for (now, then) in self.0.lines().zip(golden.lines()) {
            assert_eq!(now, then);
        }
        assert_eq!(self.0.lines().count(), golden.lines().count());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Sound bytes, and who reads what becomes of them: true if it is read as something.
pub struct Format<'a> {
    seeds: Vec<Vec<u8>>,
    read: Box<dyn Fn(&Bytes) -> bool + 'a>,
}

impl<'a> Format<'a> {
    /// The format of these values.
    pub fn of<T: Encode + Decode + 'a>(values: &[T]) -> Self {
        Self::read_by(values.iter().map(Encode::encoded).collect(), reads_back::<T>)
    }

    /// A format that is not read by [`Decode`].
    pub fn read_by(seeds: Vec<Vec<u8>>, read: impl Fn(&Bytes) -> bool + 'a) -> Self {
        Self { seeds, read: Box::new(read) }
    }
}

/// Whether bytes are read as something, which must then be written as it was read, and be no larger than what it was read from.
pub fn reads_back<T: Encode + Decode>(bytes: &Bytes) -> bool {
    let Ok(value) = T::decode(&mut Reader::new(bytes.clone())) else { return false };
    let once = value.encoded();
    assert!(once.len() <= 4 * bytes.len() + 64, "{} bytes became {}", bytes.len(), once.len());
    let again = T::decoded(&Bytes::from(once.clone())).map(|value| value.encoded());
    assert_eq!(again, Ok(once), "reads back otherwise: {}", hex(bytes));
    true
}

const INPUTS: u64 = 1_000_000;

/// Feeds a million damaged inputs, as many of the first format as of all others together, or as many as `ORDINATE_FUZZ_INPUTS` says. No
/// reader may panic, hang, or take more memory than the input's size allows.
pub fn withstand(formats: &[Format<'_>]) {
    let inputs = std::env::var("ORDINATE_FUZZ_INPUTS").ok().and_then(|count| count.parse().ok());
    let inputs = inputs.unwrap_or(INPUTS);
    let (first, others) = formats.split_first().expect("a format");
    let mut rng = Rng::seeded(13);
    let (mut sound, mut refused) = (0, 0);
    for _ in 0..inputs {
        let format = if rng.chance(0.5) { first } else { rng.pick(others).unwrap_or(first) };
        let seed = rng.pick(&format.seeds).expect("a format has seeds").clone();
        let bytes = Bytes::from(damaged(seed, &mut rng));
        *if (format.read)(&bytes) { &mut sound } else { &mut refused } += 1;
    }
    let one_sided = sound < inputs / 20 || refused < inputs / 500;
    assert!(!one_sided, "{sound} sound, {refused} refused: the fuzz is one-sided");
}

fn damaged(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    match rng.below(6) {
        0 => bytes.truncate(rng.index(bytes.len() + 1)),
        1 => bytes = (0..rng.below(64)).map(|_| rng.bits() as u8).collect(),
        _ => {
            for _ in 0..rng.between(1, 4) {
                if !bytes.is_empty() {
                    let (at, random) = (rng.index(bytes.len()), rng.bits() as u8);
                    // Counts and tags are where decoders break.
                    bytes[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, random]).unwrap_or(&0);
                }
            }
        }
    }
    bytes
}
