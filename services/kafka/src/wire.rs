//! Kafka's primitive types: big-endian integers, lengths before texts and arrays, zigzag varints.

use bytes::Buf as _;
use kernel::Bytes;

/// The input is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self
    }
}

/// What is left of a request. Every length is checked against it before anything is made of that length.
#[derive(Clone, Debug)]
pub struct RequestBytes(pub Bytes);

impl RequestBytes {
    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// The next `length` bytes; they share the request's memory.
    pub fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        if length > self.0.len() {
            return Err(Malformed);
        }
        Ok(self.0.split_to(length))
    }

    /// `INT8`.
    pub fn i8(&mut self) -> Result<i8, Malformed> {
        Ok(self.0.try_get_i8()?)
    }

    /// `BOOLEAN`.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        self.i8().map(|byte| byte != 0)
    }

    /// `INT16`.
    pub fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(self.0.try_get_i16()?)
    }

    /// `INT32`.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(self.0.try_get_i32()?)
    }

    /// `UINT32`.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.0.try_get_u32()?)
    }

    /// `INT64`.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.0.try_get_i64()?)
    }

    /// `UNSIGNED_VARINT`, of up to 64 bits.
    fn unsigned(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.0.try_get_u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// `VARLONG`.
    pub fn varlong(&mut self) -> Result<i64, Malformed> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// `VARINT`.
    pub fn varint(&mut self) -> Result<i32, Malformed> {
        i32::try_from(self.varlong()?).map_err(|_| Malformed)
    }

    /// A length before bytes, -1 for null, and the bytes.
    fn nullable(&mut self, length: i32) -> Result<Option<Bytes>, Malformed> {
        match length {
            -1 => Ok(None),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?).map(Some),
        }
    }

    /// Bytes behind a varint, as records have them.
    pub fn varbytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.varint()?;
        self.nullable(length)
    }

    /// `NULLABLE_BYTES`, and `RECORDS`.
    pub fn bytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.i32()?;
        self.nullable(length)
    }

    /// `NULLABLE_STRING`.
    pub fn text_or_null(&mut self) -> Result<Option<String>, Malformed> {
        let length = self.i16()?;
        let Some(bytes) = self.nullable(length.into())? else { return Ok(None) };
        String::from_utf8(bytes.into()).map(Some).map_err(|_| Malformed)
    }

    /// `STRING`.
    pub fn text(&mut self) -> Result<String, Malformed> {
        self.text_or_null()?.ok_or(Malformed)
    }

    /// `ARRAY` of items that take at least `item_bytes_min` each; none for null.
    pub fn array<T>(
        &mut self,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = match self.i32()? {
            -1 => return Ok(None),
            count => usize::try_from(count).map_err(|_| Malformed)?,
        };
        if count > self.remaining() / item_bytes_min.max(1) {
            return Err(Malformed);
        }
        (0..count).map(|_| item(self)).collect::<Result<_, _>>().map(Some)
    }

    /// The same where null is as good as empty.
    pub fn items<T>(
        &mut self,
        item_bytes_min: usize,
        item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        self.array(item_bytes_min, item).map(Option::unwrap_or_default)
    }

    /// An error unless everything was read.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Writes the same.
pub trait PutKafka {
    /// These bytes.
    fn put(&mut self, bytes: &[u8]);

    /// `INT16`.
    fn put_i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    /// `INT32`.
    fn put_i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    /// `INT64`.
    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// `VARLONG`, and `VARINT`.
    fn put_varlong(&mut self, value: i64) {
        let mut rest = (value << 1 ^ value >> 63) as u64;
        while rest >= 0x80 {
            self.put(&[rest as u8 | 0x80]);
            rest >>= 7;
        }
        self.put(&[rest as u8]);
    }

    /// Bytes behind a varint, as records have them.
    fn put_varbytes(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.put_varlong(-1),
            Some(bytes) => {
                self.put_varlong(bytes.len() as i64);
                self.put(bytes);
            }
        }
    }

    /// `NULLABLE_STRING`, and `STRING`.
    fn put_text(&mut self, value: Option<&str>) {
        match value {
            None => self.put_i16(-1),
            Some(text) => {
                // Names and host names are far shorter; what is not is truncated.
                let length = text.len().min(i16::MAX as usize);
                self.put_i16(length as i16);
                self.put(&text.as_bytes()[..length]);
            }
        }
    }

    /// `BYTES`.
    fn put_bytes(&mut self, value: &[u8]) {
        self.put_count(value.len());
        self.put(value);
    }

    /// An array's length.
    fn put_count(&mut self, count: usize) {
        self.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// `ARRAY`.
    fn put_array<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut put: impl FnMut(&mut Self, T)) {
        self.put_count(items.len());
        items.for_each(|item| put(self, item));
    }
}

impl PutKafka for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A length that is trusted makes the host reserve two gigabytes for twelve bytes.
    #[test]
    fn hostile_lengths_are_refused() {
        let input = |bytes: &[u8]| RequestBytes(Bytes::copy_from_slice(bytes));
        assert_eq!(input(&[0x7f, 255, 255, 255, 1, 2]).array(1, RequestBytes::i8), Err(Malformed));
        assert_eq!(input(&[0x80, 0, 0, 0]).bytes(), Err(Malformed));
        assert_eq!(input(&[0x7f, 255, 255, 255, 1]).bytes(), Err(Malformed));
        assert_eq!(input(&[0x7f, 255, 1]).text(), Err(Malformed));
        assert_eq!(input(&[255; 11]).varlong(), Err(Malformed));
        assert_eq!(input(&[255; 2]).text_or_null(), Ok(None));
    }

    // A varint off by one bit shifts everything behind it. The vectors are Kafka's own (`ByteUtilsTest`).
    #[test]
    fn varints_are_kafkas() {
        let vectors: [(i64, &[u8]); 8] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (8191, &[0xfe, 0x7f]),
            (i32::MAX.into(), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::MIN, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ];
        for (value, bytes) in vectors {
            let mut out = Vec::new();
            out.put_varlong(value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(RequestBytes(out.into()).varlong(), Ok(value));
        }
    }
}
