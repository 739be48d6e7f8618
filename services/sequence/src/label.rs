//! What callers ask for.

use kernel::Bytes;
use mason::Space;

kernel::record! {
    /// One position in each of these spaces, for this label.
    pub struct Ask {
        /// The spaces; those that do not exist are left out.
        spaces: Vec<Space>,
        /// What the caller wants the position for; at most 256 bytes are remembered.
        label: Bytes,
    }
}

/// The longest label that is remembered whole.
pub const LABEL_BYTES_MAX: usize = 256;
