//! What is known of a znode besides its data.

use crate::wire::{JuteInput, JuteOutput, Malformed};

/// ZooKeeper's `Stat`; 68 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The global sequence number of its creation.
    pub czxid: i64,
    /// The global sequence number of the last change of its data.
    pub mzxid: i64,
    /// When it was created, in milliseconds since 1970.
    pub ctime: i64,
    /// When its data were changed, in milliseconds since 1970.
    pub mtime: i64,
    /// How often its data were changed.
    pub version: i32,
    /// How often children came or went.
    pub cversion: i32,
    /// How often its ACL was changed.
    pub aversion: i32,
    /// The session that owns it; 0 for all that are not ephemeral.
    pub ephemeral_owner: i64,
    /// The length of its data, in bytes.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The global sequence number of the last coming or going of a child.
    pub pzxid: i64,
}

/// How many bytes a `Stat` takes.
#[cfg(test)]
const STAT_BYTES: usize = 68;

impl Stat {
    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        for long in [self.czxid, self.mzxid, self.ctime, self.mtime] {
            out.put_i64(long);
        }
        for int in [self.version, self.cversion, self.aversion] {
            out.put_i32(int);
        }
        out.put_i64(self.ephemeral_owner);
        out.put_i32(self.data_length);
        out.put_i32(self.num_children);
        out.put_i64(self.pzxid);
    }

    /// Reads it.
    pub fn read(input: &mut JuteInput<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            czxid: input.i64()?,
            mzxid: input.i64()?,
            ctime: input.i64()?,
            mtime: input.i64()?,
            version: input.i32()?,
            cversion: input.i32()?,
            aversion: input.i32()?,
            ephemeral_owner: input.i64()?,
            data_length: input.i32()?,
            num_children: input.i32()?,
            pzxid: input.i64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A field at another offset is read by every client as another one.
    #[test]
    fn a_stat_takes_68_bytes_and_reads_back() {
        let stat = Stat {
            czxid: 1,
            mzxid: 2,
            ctime: 3,
            mtime: 4,
            version: 5,
            cversion: 6,
            aversion: 7,
            ..Stat::default()
        };
        let stat = Stat { ephemeral_owner: 8, data_length: 9, num_children: 10, pzxid: 11, ..stat };
        let mut bytes = Vec::new();
        stat.write(&mut bytes);
        assert_eq!(bytes.len(), STAT_BYTES);
        assert_eq!(bytes[60..], 11i64.to_be_bytes());
        assert_eq!(Stat::read(&mut JuteInput(&bytes)), Ok(stat));
    }
}
