//! One codec for every message and record: little-endian, length-prefixed, no allocation beyond the input's size.
//!
//! **Evolving.** Tags are never reused. A message grows at its end, by a field of type `Option`: an older reader
//! ignores what follows the fields it knows, a newer reader takes an absent last field as `None`.

use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;

/// Can be written to a wire or a journal.
pub trait Encode {
    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The encoding on its own.
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Appends the encoding with its length before it, as [`Encode::encoded`] and encoded again as bytes would.
    fn encode_sized(&self, out: &mut Vec<u8>) {
        let at = out.len();
        length(0).encode(out);
        let from = out.len();
        self.encode(out);
        let bytes = length(out.len() - from).to_le_bytes();
        out[at..from].copy_from_slice(&bytes);
    }
}

/// Can be read back. Never panics, whatever the input; allocates at most a constant factor of the input.
pub trait Decode: Sized {
    /// Reads one value and leaves the reader behind it.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError>;

    /// The value of a field that the input ends before: `None` unless the type has a natural "absent".
    fn absent() -> Option<Self> {
        None
    }

    /// Reads a value that must fill `bytes`, apart from fields newer than this reader.
    fn decoded(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(bytes.clone()))
    }
}

/// Why bytes are not the value they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The input ended inside a value.
    Truncated,
    /// A tag that this version does not know, of the named type.
    UnknownTag(&'static str, u8),
    /// A value that its type forbids.
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "input ends inside a value"),
            Self::UnknownTag(of, tag) => write!(f, "unknown tag {tag} of {of}"),
            Self::Invalid(what) => write!(f, "invalid {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A cursor over bytes; slices it hands out share the input's memory.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    at: usize,
}

impl Reader {
    /// Starts at the first byte.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// How many bytes have been read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next `len` bytes, sharing memory with the input.
    pub fn take(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.remaining() {
            return Err(DecodeError::Truncated);
        }
        let slice = self.bytes.slice(self.at..self.at + len);
        self.at += len;
        Ok(slice)
    }

    /// The next `len` bytes, borrowed.
    pub fn peek(&mut self, len: usize) -> Result<&[u8], DecodeError> {
        if len > self.remaining() {
            return Err(DecodeError::Truncated);
        }
        let start = self.at;
        self.at += len;
        Ok(&self.bytes[start..self.at])
    }

    /// The next byte, which stays unread: the tag that says what follows.
    pub fn next_tag(&self) -> Result<u8, DecodeError> {
        self.bytes.get(self.at).copied().ok_or(DecodeError::Truncated)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let end = self.at.checked_add(N).ok_or(DecodeError::Truncated)?;
        let slice = self.bytes.get(self.at..end).ok_or(DecodeError::Truncated)?;
        self.at = end;
        slice.try_into().map_err(|_| DecodeError::Truncated)
    }

    /// Reads a field of a message: at the input's end, its absent value if it has one.
    pub fn field<T: Decode>(&mut self) -> Result<T, DecodeError> {
        if self.remaining() == 0 {
            return T::absent().map_or_else(|| T::decode(self), Ok);
        }
        T::decode(self)
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Encode for $int {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl Decode for $int {
            #[inline]
            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                input.array().map(<$int>::from_le_bytes)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i32, i64, u128);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Decode for bool {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("bool")),
        }
    }
}

impl Encode for () {
    fn encode(&self, _out: &mut Vec<u8>) {}
}

impl Decode for () {
    fn decode(_input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Nothing of this type exists, so nothing is ever written.
impl Encode for std::convert::Infallible {
    fn encode(&self, _out: &mut Vec<u8>) {
        match *self {}
    }
}

impl Decode for std::convert::Infallible {
    fn decode(_input: &mut Reader) -> Result<Self, DecodeError> {
        Err(DecodeError::Invalid("value of an empty type"))
    }
}

impl Encode for [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        length(self.len()).encode(out);
        out.extend_from_slice(self);
    }
}

impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }
}

impl Decode for Bytes {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let len = u32::decode(input)? as usize;
        input.take(len)
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}

impl Decode for String {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let len = u32::decode(input)? as usize;
        let bytes = input.peek(len)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Invalid("utf-8 text"))
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(None),
            1 => T::decode(input).map(Some),
            _ => Err(DecodeError::Invalid("option")),
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        length(self.len()).encode(out);
        for item in self {
            item.encode(out);
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = u32::decode(input)? as usize;
        // A hostile count must not reserve memory that the input cannot fill.
        let mut items = Vec::with_capacity(count.min(input.remaining() / size_of::<T>().max(1)));
        for _ in 0..count {
            if input.remaining() == 0 {
                return Err(DecodeError::Truncated);
            }
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<T: Encode, const N: usize> Encode for SmallVec<[T; N]> {
    fn encode(&self, out: &mut Vec<u8>) {
        length(self.len()).encode(out);
        for item in self {
            item.encode(out);
        }
    }
}

/// As a [`Vec`] on the wire; the first `N` items need no memory of their own.
impl<T: Decode, const N: usize> Decode for SmallVec<[T; N]> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = u32::decode(input)? as usize;
        let mut items = Self::with_capacity(count.min(input.remaining() / size_of::<T>().max(1)));
        for _ in 0..count {
            if input.remaining() == 0 {
                return Err(DecodeError::Truncated);
            }
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        T::decode(input).map(Box::new)
    }
}

impl<T: Encode + ?Sized> Encode for std::sync::Arc<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

impl<T: Decode> Decode for std::sync::Arc<T> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        T::decode(input).map(std::sync::Arc::new)
    }
}

fn length(len: usize) -> u32 {
    u32::try_from(len).expect("every queue and payload is bounded far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Encode + Decode + PartialEq + fmt::Debug>(value: T) {
        let bytes = Bytes::from(value.encoded());
        let mut reader = Reader::new(bytes.clone());
        assert_eq!(T::decode(&mut reader), Ok(value));
        assert_eq!(reader.remaining(), 0);
        for length in 0..bytes.len() {
            assert!(
                T::decode(&mut Reader::new(bytes.slice(..length))).is_err(),
                "accepted a prefix of {length} bytes"
            );
        }
    }

    // A value that reads back otherwise, or a prefix taken for the whole, corrupts every protocol above.
    #[test]
    fn values_round_trip_and_prefixes_are_refused() {
        round_trip(0x0102_0304_0506_0708_u64);
        round_trip(String::from("größe"));
        round_trip(vec![Some(3u32), None]);
        round_trip(SmallVec::<[u16; 2]>::from_slice(&[1, 2, 3]));
        round_trip((Bytes::from_static(b"ab"), true));
    }

    // A count of four billion in eight bytes of input must not allocate gigabytes.
    #[test]
    fn a_hostile_count_allocates_nothing() {
        let bytes = Bytes::from(vec![0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(Vec::<u64>::decoded(&bytes), Err(DecodeError::Truncated));
        assert_eq!(SmallVec::<[u64; 1]>::decoded(&bytes), Err(DecodeError::Truncated));
        assert_eq!(Bytes::decode(&mut Reader::new(bytes)), Err(DecodeError::Truncated));
    }
}
