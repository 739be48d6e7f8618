//! What a node holds: operations of one host's users, in their order, with who appended them.

use kernel::{Bytes, Decode as _, DecodeError, Encode as _, NodeId};

kernel::record! {
    /// A node's body.
    pub struct Pack {
        /// The feeder that has appended it.
        origin: NodeId,
        /// Which run of that feeder.
        run: u64,
        /// Which node of the run.
        number: u64,
        /// The wall clock of its host, in milliseconds since 1970.
        time: u64,
        /// The operations: [`packed`].
        operations: Bytes,
    }
}

/// Several operations, or their answers, as one.
pub(crate) fn packed(items: &[Bytes]) -> Bytes {
    let mut packed = Vec::with_capacity(4 + items.iter().map(|item| 4 + item.len()).sum::<usize>());
    (items.len() as u32).encode(&mut packed);
    items.iter().for_each(|item| item.encode(&mut packed));
    packed.into()
}

/// What [`packed`] was given.
pub(crate) fn unpacked(packed: &Bytes) -> Result<Vec<Bytes>, DecodeError> {
    Vec::<Bytes>::decoded(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Operations that come out of a node in another order, or cut otherwise, are executed otherwise.
    #[test]
    fn what_was_packed_comes_out() {
        let items = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
        assert_eq!(unpacked(&packed(&items)), Ok(items.to_vec()));
        assert_eq!(unpacked(&packed(&[])), Ok(Vec::new()));
        let cut = packed(&items).slice(..packed(&items).len() - 1);
        assert!(unpacked(&cut).is_err());
    }
}
