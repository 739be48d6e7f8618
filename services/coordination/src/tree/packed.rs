//! A node in a snapshot: what most nodes do not have is left out, and numbers take as many bytes as they need.

use crate::tree::meta::{Kind, Meta};
use crate::wire::{Acl, JuteInput, Malformed, is_open, read_acls, write_acls};
use std::sync::Arc;

// Which parts follow.
const HAS_DATA: u8 = 1;
const IS_CHANGED: u8 = 2;
const IS_PARENT: u8 = 4;
const HAS_KIND: u8 = 8;
const HAS_ACL: u8 = 16;
const HAS_AVERSION: u8 = 32;

pub(crate) fn write(path: &str, data: Option<&[u8]>, meta: &Meta, out: &mut Vec<u8>) {
    let is_changed = (meta.mzxid, meta.mtime, meta.version) != (meta.czxid, meta.ctime, 0);
    let is_parent = (meta.pzxid, meta.creates, meta.children) != (meta.czxid, 0, 0);
    let has_acl = !is_open(&meta.acl);
    let part = |there: bool, bit: u8| if there { bit } else { 0 };
    out.push(
        part(data.is_some(), HAS_DATA)
            | part(is_changed, IS_CHANGED)
            | part(is_parent, IS_PARENT)
            | part(meta.kind != Kind::Persistent, HAS_KIND)
            | part(has_acl, HAS_ACL)
            | part(meta.aversion != 0, HAS_AVERSION),
    );
    write_bytes(path.as_bytes(), out);
    if let Some(data) = data {
        write_bytes(data, out);
    }
    write_number(meta.czxid, out);
    write_number(meta.ctime, out);
    if is_changed {
        write_number(meta.mzxid.wrapping_sub(meta.czxid), out);
        write_number(meta.mtime.wrapping_sub(meta.ctime), out);
        write_signed(meta.version, out);
    }
    if is_parent {
        write_number(meta.pzxid.wrapping_sub(meta.czxid), out);
        write_signed(meta.creates, out);
        write_number(u64::from(meta.children), out);
    }
    if meta.kind != Kind::Persistent {
        let (tag, number) = meta.kind.parts();
        out.push(tag);
        write_number(number, out);
    }
    if has_acl {
        write_acls(&meta.acl, out);
    }
    if meta.aversion != 0 {
        write_signed(meta.aversion, out);
    }
}

/// The path, the data, and everything else.
pub(crate) type Packed<'a> = (&'a str, Option<&'a [u8]>, Meta);

pub(crate) fn read<'a>(input: &mut JuteInput<'a>, open: &Arc<[Acl]>) -> Result<Packed<'a>, Malformed> {
    let parts = input.u8()?;
    let has = |bit: u8| parts & bit != 0;
    let path = std::str::from_utf8(read_bytes(input)?).map_err(|_| Malformed)?;
    let data = if has(HAS_DATA) { Some(read_bytes(input)?) } else { None };
    let (czxid, ctime) = (read_number(input)?, read_number(input)?);
    let (mut mzxid, mut mtime, mut version) = (czxid, ctime, 0);
    if has(IS_CHANGED) {
        mzxid = czxid.wrapping_add(read_number(input)?);
        mtime = ctime.wrapping_add(read_number(input)?);
        version = read_signed(input)?;
    }
    let (mut pzxid, mut creates, mut children) = (czxid, 0, 0);
    if has(IS_PARENT) {
        pzxid = czxid.wrapping_add(read_number(input)?);
        creates = read_signed(input)?;
        children = u32::try_from(read_number(input)?).map_err(|_| Malformed)?;
    }
    let kind = if has(HAS_KIND) {
        Kind::of_parts(input.u8()?, read_number(input)?).ok_or(Malformed)?
    } else {
        Kind::Persistent
    };
    let acl = if has(HAS_ACL) { read_acls(input)?.into() } else { open.clone() };
    let aversion = if has(HAS_AVERSION) { read_signed(input)? } else { 0 };
    let data_len = data.map_or(0, <[u8]>::len) as u32;
    let meta =
        Meta { czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, kind, children, data_len, acl };
    Ok((path, data, meta))
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn read_bytes<'a>(input: &mut JuteInput<'a>) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(read_number(input)?).map_err(|_| Malformed)?;
    input.take(len)
}

/// Seven bits a byte, the low ones first; the high bit says that more follow.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(input: &mut JuteInput<'_>) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = input.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return Err(Malformed);
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

fn write_signed(number: i32, out: &mut Vec<u8>) {
    write_number(u64::from(number as u32), out);
}

fn read_signed(input: &mut JuteInput<'_>) -> Result<i32, Malformed> {
    u32::try_from(read_number(input)?).map(|number| number as i32).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Identity, OPEN, Permission, ZkSessionId};
    use kernel::Rng;

    // A number that reads back otherwise shows in every Stat after a restart.
    #[test]
    fn nodes_read_back_as_they_were() {
        let open: Arc<[Acl]> = Arc::new([Acl { permissions: OPEN, who: Identity::new("world", "anyone") }]);
        let other: Arc<[Acl]> =
            Arc::new([Acl { permissions: Permission::READ.0, who: Identity::new("world", "anyone") }]);
        let mut rng = Rng::seeded(7);
        for _ in 0..10_000 {
            let mut wild = |rare: u64| {
                let wide = rng.bits() >> rng.below(64);
                if rng.chance(0.5) { wide } else { rare }
            };
            let (czxid, ctime) = (wild(0), wild(0));
            let data = vec![7; (wild(0) % 300) as usize];
            let mut meta = Meta {
                czxid,
                mzxid: wild(czxid),
                pzxid: wild(czxid),
                ctime,
                mtime: wild(ctime),
                version: wild(0) as i32,
                creates: wild(0) as i32,
                aversion: wild(0) as i32,
                kind: Kind::of_parts((wild(0) % 4) as u8, wild(0)).unwrap_or(Kind::Persistent),
                children: wild(0) as u32,
                data_len: data.len() as u32,
                acl: if wild(0) % 2 == 0 { open.clone() } else { other.clone() },
            };
            let data = (wild(0) % 3 > 0).then_some(&data[..]);
            meta.data_len = data.map_or(0, <[u8]>::len) as u32;
            // Kinds that have no number lose what the draw gave them.
            let (tag, number) = meta.kind.parts();
            meta.kind = Kind::of_parts(tag, number).unwrap_or(Kind::Ephemeral(ZkSessionId(1)));
            let mut out = Vec::new();
            write("/a", data, &meta, &mut out);
            let mut input = JuteInput(&out);
            assert_eq!(read(&mut input, &open), Ok(("/a", data, meta)));
            assert!(input.0.is_empty());
            let length = rng.index(out.len());
            assert!(
                read(&mut JuteInput(&out[..length]), &open).is_err(),
                "{length} bytes of {} were enough",
                out.len()
            );
        }
    }

    // A number of more than 64 bits must not wrap around into another one.
    #[test]
    fn numbers_that_are_none_are_refused() {
        assert_eq!(read_number(&mut JuteInput(&[0x80; 11])), Err(Malformed));
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(read_number(&mut JuteInput(&beyond)), Err(Malformed));
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read_number(&mut JuteInput(&largest)), Ok(u64::MAX));
    }
}
