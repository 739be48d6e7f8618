//! Undoes what clients compress records with. What comes out is bounded, whatever went in.

use crate::code::Code;
use bytes::Buf as _;
use kernel::Bytes;
use std::io::Read;

/// What all records of one request may be, decompressed, in bytes.
pub const PLAIN_BYTES_MAX: usize = 8 << 20;

/// The records of a batch whose attributes name this codec; their bytes are taken from the `budget`.
pub(crate) fn plain(codec: i16, bytes: Bytes, budget: &mut usize) -> Result<Bytes, Code> {
    let plain = match codec {
        0 => return Ok(bytes),
        1 => read(flate2::read::MultiGzDecoder::new(bytes.reader()), *budget)?,
        2 => snappy(&bytes, *budget)?,
        3 => read(lz4_flex::frame::FrameDecoder::new(bytes.reader()), *budget)?,
        4 => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes.reader());
            read(decoder.map_err(|_| Code::CORRUPT_MESSAGE)?, *budget)?
        }
        _ => return Err(Code::UNSUPPORTED_COMPRESSION_TYPE),
    };
    *budget -= plain.len();
    Ok(plain)
}

fn read(reader: impl Read, budget: usize) -> Result<Bytes, Code> {
    let mut plain = Vec::new();
    reader.take(budget as u64 + 1).read_to_end(&mut plain).map_err(|_| Code::CORRUPT_MESSAGE)?;
    if plain.len() > budget { Err(Code::MESSAGE_TOO_LARGE) } else { Ok(plain.into()) }
}

/// What the Java library puts before its blocks: a mark and two versions.
const XERIAL_MARK: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEAD_BYTES: usize = 16;

/// One raw block, or the Java library's framing: blocks behind their lengths.
fn snappy(bytes: &[u8], budget: usize) -> Result<Bytes, Code> {
    let mut plain = Vec::new();
    let Some(mut rest) = bytes.starts_with(XERIAL_MARK).then(|| bytes.get(XERIAL_HEAD_BYTES..)).flatten()
    else {
        snappy_block(bytes, budget, &mut plain)?;
        return Ok(plain.into());
    };
    while !rest.is_empty() {
        let length = rest.try_get_u32().map_err(|_| Code::CORRUPT_MESSAGE)? as usize;
        let (block, after) = rest.split_at_checked(length).ok_or(Code::CORRUPT_MESSAGE)?;
        snappy_block(block, budget, &mut plain)?;
        rest = after;
    }
    Ok(plain.into())
}

fn snappy_block(block: &[u8], budget: usize, plain: &mut Vec<u8>) -> Result<(), Code> {
    let length = snap::raw::decompress_len(block).map_err(|_| Code::CORRUPT_MESSAGE)?;
    let begin = plain.len();
    if begin + length > budget {
        return Err(Code::MESSAGE_TOO_LARGE);
    }
    plain.resize(begin + length, 0);
    snap::raw::Decoder::new().decompress(block, &mut plain[begin..]).map_err(|_| Code::CORRUPT_MESSAGE)?;
    Ok(())
}
