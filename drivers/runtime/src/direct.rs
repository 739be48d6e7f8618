//! A growable buffer of whole disk blocks, aligned as O_DIRECT wants them.

/// The unit of every journal write, in bytes.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Bytes that start at a block boundary in memory; the memory is retained when the buffer is cleared.
#[derive(Default)]
pub struct Blocks {
    blocks: Vec<Block>,
    len: usize,
}

impl Blocks {
    /// How many bytes were added.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the bytes; gives memory beyond `keep_bytes` back.
    pub fn clear(&mut self, keep_bytes: usize) {
        self.len = 0;
        if self.blocks.len() * BLOCK_BYTES > keep_bytes {
            self.blocks.truncate(keep_bytes.div_ceil(BLOCK_BYTES));
            self.blocks.shrink_to_fit();
        }
    }

    /// Adds bytes at the end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.grow(bytes.len());
        self.bytes_mut()[start..].copy_from_slice(bytes);
    }

    /// Fills the last block up with zeros.
    pub fn pad(&mut self) {
        let start = self.len;
        self.grow(start.next_multiple_of(BLOCK_BYTES) - start);
        self.bytes_mut()[start..].fill(0);
    }

    /// The bytes; their address is a multiple of the block size.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `blocks` holds at least `len` initialised bytes without gaps (`repr(C)`, size equal to alignment).
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast::<u8>(), self.len) }
    }

    /// The bytes, to fill in.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast::<u8>(), self.len) }
    }

    fn grow(&mut self, bytes: usize) {
        self.len += bytes;
        let blocks = self.len.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks, Block([0; BLOCK_BYTES]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An unaligned buffer makes every O_DIRECT write fail; stale bytes in the padding would leak earlier batches.
    #[test]
    fn blocks_are_aligned_and_padded_with_zeros() {
        let mut blocks = Blocks::default();
        blocks.extend_from_slice(&[7; 5000]);
        blocks.clear(1 << 20);
        blocks.extend_from_slice(&[1; 4000]);
        blocks.extend_from_slice(&[2; 200]);
        blocks.pad();
        assert_eq!(blocks.len(), 2 * BLOCK_BYTES);
        assert_eq!(blocks.bytes().as_ptr().align_offset(BLOCK_BYTES), 0);
        assert_eq!(&blocks.bytes()[3999..4001], &[1, 2]);
        assert!(blocks.bytes()[4200..].iter().all(|byte| *byte == 0));
        blocks.clear(BLOCK_BYTES);
        assert_eq!(blocks.blocks.len(), 1);
    }
}
