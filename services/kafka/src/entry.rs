//! How a record is an entry of a log, and an entry a record.
//!
//! A record that a Kafka client produced is stored as `FF 4B`, flags (`u8`; bit 0: the value is null), timestamp (varlong), key (length as
//! a varint, -1 for null, and bytes), how many headers (varint), each of them (key and value as the key above), and then the value
//! up to the entry's end. Any other entry, as `ordinate log append` makes them, is a record without key, headers and timestamp whose
//! value is the whole entry. So a client that appends to a log natively may write keyed records, too; no text in UTF-8 begins with FF.

use crate::wire::{Malformed, PutKafka as _, RequestBytes};
use kernel::Bytes;

const MARK: [u8; 2] = [0xff, b'K'];
const VALUE_IS_NULL: u8 = 1;

/// The timestamp of what has none.
pub const NO_TIMESTAMP: i64 = -1;

/// A record, apart from its position in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Milliseconds since 1970, as its producer says; [`NO_TIMESTAMP`] if nobody said.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl Record {
    /// Writes the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MARK);
        out.push(if self.value.is_none() { VALUE_IS_NULL } else { 0 });
        out.put_varlong(self.timestamp);
        out.put_varbytes(self.key.as_deref());
        self.write_headers(out);
        out.extend_from_slice(self.value.as_deref().unwrap_or_default());
    }

    /// Their count and they, as in a batch.
    pub(crate) fn write_headers(&self, out: &mut Vec<u8>) {
        out.put_varlong(self.headers.len() as i64);
        for (key, value) in &self.headers {
            out.put_varbytes(Some(key));
            out.put_varbytes(value.as_deref());
        }
    }

    /// The reverse of [`Self::write_headers`].
    pub(crate) fn read_headers(input: &mut RequestBytes) -> Result<Vec<(Bytes, Option<Bytes>)>, Malformed> {
        let count = usize::try_from(input.varint()?).map_err(|_| Malformed)?;
        if count > input.remaining() / 2 {
            return Err(Malformed);
        }
        (0..count).map(|_| Ok((input.varbytes()?.ok_or(Malformed)?, input.varbytes()?))).collect()
    }

    /// What an entry is to a Kafka client.
    pub fn of(entry: &Bytes) -> Self {
        let plain =
            || Self { timestamp: NO_TIMESTAMP, key: None, value: Some(entry.clone()), headers: Vec::new() };
        if !entry.starts_with(&MARK) {
            return plain();
        }
        Self::read(RequestBytes(entry.slice(MARK.len()..))).unwrap_or_else(|_| plain())
    }

    fn read(mut input: RequestBytes) -> Result<Self, Malformed> {
        let flags = input.i8()?;
        let timestamp = input.varlong()?;
        let key = input.varbytes()?;
        let headers = Self::read_headers(&mut input)?;
        let value = match (flags as u8, input.remaining()) {
            (0, left) => Some(input.take(left)?),
            (VALUE_IS_NULL, 0) => None,
            _ => return Err(Malformed),
        };
        Ok(Self { timestamp, key, value, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An entry that two programs read differently is two records.
    #[test]
    fn entries_and_records_are_each_other() {
        let record = Record {
            timestamp: 1_700_000_000_123,
            key: Some("k".into()),
            value: Some("v".into()),
            headers: vec![("h".into(), None)],
        };
        let mut entry = Vec::new();
        record.write(&mut entry);
        assert_eq!(entry, b"\xffK\0\xf6\xa1\xab\xfe\xf9\x62\x02k\x02\x02h\x01v");
        assert_eq!(Record::of(&entry.into()), record);
        let deletion = Record { value: None, ..record };
        let mut entry = Vec::new();
        deletion.write(&mut entry);
        assert_eq!(Record::of(&entry.clone().into()), deletion);
        entry.push(b'x');
        let strange = Record::of(&entry.clone().into());
        assert_eq!(
            (strange.value, strange.timestamp),
            (Some(entry.into()), NO_TIMESTAMP),
            "what is no record is a value"
        );
        assert_eq!(Record::of(&"plain".into()).value, Some("plain".into()));
    }
}
