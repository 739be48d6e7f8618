//! How fields are read and written.

use super::{KEY_BYTES_MAX, VALUE_BYTES_MAX, WireError};

/// The fields of an operation or of a snapshot, over borrowed bytes. Whatever ends too early is an error.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields in `bytes`.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes that are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(WireError("length"))?;
        self.0 = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(WireError("number"))?;
        self.0 = rest;
        Ok(*head)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number of four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes that follow their length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// A key, within its bound.
    #[inline]
    pub(super) fn key(&mut self) -> Result<&'a [u8], WireError> {
        let key = self.bytes()?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            Err(WireError("key: 1 to 4096 bytes"))
        } else {
            Ok(key)
        }
    }

    /// A value, within its bound.
    #[inline]
    pub(super) fn value(&mut self) -> Result<&'a [u8], WireError> {
        let value = self.bytes()?;
        if value.len() > VALUE_BYTES_MAX { Err(WireError("value: at most 1048576 bytes")) } else { Ok(value) }
    }

    /// A field that may be absent.
    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(WireError("option")),
        }
    }

    /// Nothing may be left over.
    #[inline]
    pub(super) fn finish<T>(self, value: T) -> Result<T, WireError> {
        if self.0.is_empty() { Ok(value) } else { Err(WireError("operation: bytes left over")) }
    }
}

/// Appends bytes behind their length.
#[inline]
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
