//! How a blob looks on disk: a file of its own, `<slot>-<series>-<first>.segment` in hexadecimal digits.
//!
//! ```text
//! header    magic "ORDBLOB\0" | format: u32 | crc: u32 | slot: u32 | page bytes: u32 | series: u64 | first: u64 | bytes: u64
//! pages     one crc: u32 for each page of the contents
//! contents
//! ```
//!
//! Numbers are little-endian. The header's checksum (CRC32C) covers the format, what is behind it, and the pages' checksums, so that a part is
//! verified by reading no more than the pages that it touches.

use crate::disk::{Disk, DiskFile};
use kernel::{BlobId, Bytes, HostSlot};
use std::io;

const MAGIC: &[u8; 8] = b"ORDBLOB\0";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 48;
/// What one checksum covers.
const PAGE_BYTES: usize = 64 << 10;
/// A header that says more is damaged: nothing of that size is ever written.
const BLOB_BYTES_MAX: u64 = 1 << 32;
const SUFFIX: &str = ".segment";
/// A file that is not yet a blob.
pub(super) const UNFINISHED: &str = "blob.unfinished";

/// Why a blob cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The disk refused, or there is no such file.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is not what was written.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// Written by a later version.
    #[error("has format {0}; this version reads up to {FORMAT}")]
    NewerFormat(u32),
}

pub(super) fn file_name(host_slot: HostSlot, id: BlobId) -> String {
    format!("{:08x}-{id}{SUFFIX}", host_slot.0)
}

/// Whose blob a file is, by its name; `None` for files that are no blobs.
pub fn parse_file_name(name: &str) -> Option<(HostSlot, BlobId)> {
    let (host_slot, id) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let (host_slot, id) = (HostSlot(u32::from_str_radix(host_slot, 16).ok()?), BlobId::parse(id)?);
    (file_name(host_slot, id) == name).then_some((host_slot, id))
}

/// A blob's file.
pub(super) fn encode(host_slot: HostSlot, id: BlobId, contents: &[u8]) -> Vec<u8> {
    let pages = contents.chunks(PAGE_BYTES);
    let mut out = Vec::with_capacity(HEADER_BYTES + 4 * pages.len() + contents.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&host_slot.0.to_le_bytes());
    out.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
    out.extend_from_slice(&id.series.to_le_bytes());
    out.extend_from_slice(&id.first.to_le_bytes());
    out.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    for page in pages {
        out.extend_from_slice(&crc32c::crc32c(page).to_le_bytes());
    }
    let crc = checksum(&out[..HEADER_BYTES], &out[HEADER_BYTES..]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(contents);
    out
}

fn checksum(header: &[u8], pages: &[u8]) -> u32 {
    let format = crc32c::crc32c(&header[8..12]);
    crc32c::crc32c_append(crc32c::crc32c_append(format, &header[16..]), pages)
}

/// An open blob whose header is sound.
pub struct BlobFile {
    file: std::sync::Arc<dyn DiskFile>,
    bytes: u64,
    page_bytes: u64,
    checksums: Vec<u32>,
}

impl BlobFile {
    /// Opens the blob of a node.
    pub fn open(disk: &dyn Disk, host_slot: HostSlot, id: BlobId) -> Result<Self, BlobError> {
        let damaged = |what: &str| BlobError::Damaged(what.to_owned());
        let file = disk.open(&file_name(host_slot, id))?;
        let mut header = [0; HEADER_BYTES];
        read_exact(&*file, 0, &mut header)?;
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if &header[..8] != MAGIC {
            return Err(damaged("its header is none"));
        }
        if u32_at(8) > FORMAT {
            return Err(BlobError::NewerFormat(u32_at(8)));
        }
        let (page_bytes, bytes) = (u64::from(u32_at(20)), u64_at(40));
        if page_bytes == 0 || bytes > BLOB_BYTES_MAX {
            return Err(damaged("its header makes no sense"));
        }
        let mut pages = vec![0; 4 * bytes.div_ceil(page_bytes) as usize];
        if file.bytes()? != HEADER_BYTES as u64 + pages.len() as u64 + bytes {
            return Err(damaged("its length is not what its header says"));
        }
        read_exact(&*file, HEADER_BYTES as u64, &mut pages)?;
        if checksum(&header, &pages) != u32_at(12) {
            return Err(damaged("its header's checksum does not match"));
        }
        if (HostSlot(u32_at(16)), BlobId { series: u64_at(24), first: u64_at(32) }) != (host_slot, id) {
            return Err(damaged("it is another blob than its name says"));
        }
        let checksums =
            pages.chunks_exact(4).map(|crc| u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]])).collect();
        Ok(Self { file, bytes, page_bytes, checksums })
    }

    /// The length of its contents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of its contents; what is beyond its end is left out.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Bytes, BlobError> {
        let end = offset.saturating_add(bytes).min(self.bytes);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (first, last) = (offset / self.page_bytes, (end - 1) / self.page_bytes);
        let start = first * self.page_bytes;
        let mut pages = vec![0; (((last + 1) * self.page_bytes).min(self.bytes) - start) as usize];
        let contents = HEADER_BYTES + 4 * self.checksums.len();
        read_exact(&*self.file, contents as u64 + start, &mut pages)?;
        for (page, number) in pages.chunks(self.page_bytes as usize).zip(first..) {
            if self.checksums.get(number as usize) != Some(&crc32c::crc32c(page)) {
                let at = number * self.page_bytes;
                return Err(BlobError::Damaged(format!(
                    "the checksum of the page at byte {at} does not match"
                )));
            }
        }
        Ok(Bytes::from(pages).slice((offset - start) as usize..(end - start) as usize))
    }
}

fn read_exact(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> Result<(), BlobError> {
    let read = file.read(offset, into)?;
    if read < into.len() {
        return Err(BlobError::Damaged("it is truncated".to_owned()));
    }
    Ok(())
}
