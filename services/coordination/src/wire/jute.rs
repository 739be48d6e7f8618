//! Jute: big-endian integers, length-prefixed buffers and texts (-1 is null), counted vectors.

/// The input is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// A cursor over borrowed bytes. Allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct JuteInput<'a>(pub &'a [u8]);

impl<'a> JuteInput<'a> {
    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// A jute `int`.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// A jute `long`.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A jute `long` that counts.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A jute `boolean`: any byte but 0 is true.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        self.u8().map(|byte| byte != 0)
    }

    /// A jute `buffer`; `None` is null.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            len => self.take(usize::try_from(len).map_err(|_| Malformed)?).map(Some),
        }
    }

    /// A jute `ustring`; null is read as the empty text, which no path and no scheme is.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?.unwrap_or_default()).map_err(|_| Malformed)
    }

    /// The length of a vector whose items take at least `item_bytes_min` each: never more than the input can hold. Null is
    /// `None`.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<Option<usize>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            count => {
                let count = usize::try_from(count).map_err(|_| Malformed)?;
                let fits = count <= self.0.len() / item_bytes_min.max(1);
                fits.then_some(Some(count)).ok_or(Malformed)
            }
        }
    }

    /// A vector of texts.
    pub fn texts(&mut self) -> Result<Vec<&'a str>, Malformed> {
        let count = self.count(4)?.unwrap_or(0);
        (0..count).map(|_| self.text()).collect()
    }
}

/// Writes jute.
pub trait JuteOutput {
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// A jute `int`.
    fn put_i32(&mut self, value: i32);
    /// A jute `long`.
    fn put_i64(&mut self, value: i64);
    /// A jute `long` that counts.
    fn put_u64(&mut self, value: u64);
    /// A jute `buffer`.
    fn put_buffer(&mut self, value: Option<&[u8]>);
    /// A jute `ustring`.
    fn put_text(&mut self, value: &str);
    /// A vector's length; bounded by what memory holds, far below 2^31.
    fn put_count(&mut self, count: usize);
}

impl JuteOutput for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i32(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.put_i32(-1),
            Some(bytes) => {
                self.put_count(bytes.len());
                self.extend_from_slice(bytes);
            }
        }
    }

    fn put_text(&mut self, value: &str) {
        self.put_buffer(Some(value.as_bytes()));
    }

    fn put_count(&mut self, count: usize) {
        self.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A vector that claims two billion items in eight bytes must not make anybody reserve memory for them.
    #[test]
    fn a_hostile_count_is_refused() {
        let mut input = JuteInput(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(input.count(4), Err(Malformed));
        assert_eq!(JuteInput(&[0x80, 0, 0, 0]).buffer(), Err(Malformed));
        assert_eq!(JuteInput(&[0xff; 4]).buffer(), Ok(None));
    }
}
