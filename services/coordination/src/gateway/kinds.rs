//! What a watch waits for.

/// Kinds of watches, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kinds(pub(crate) u8);

impl Kinds {
    /// Once, on data and existence.
    pub(crate) const DATA: Self = Self(1);
    /// Once, on children and deletion.
    pub(crate) const CHILD: Self = Self(2);
    /// Always, on both.
    pub(crate) const PERSISTENT: Self = Self(4);
    /// Always, on data and existence of all below.
    pub(crate) const RECURSIVE: Self = Self(8);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits of a removeWatches or checkWatches request.
    pub(crate) fn of_request(kind: i32) -> Option<Self> {
        Some(match kind {
            1 => Self::CHILD,
            2 => Self::DATA,
            3 => Self(15),
            4 => Self::PERSISTENT,
            5 => Self::RECURSIVE,
            _ => return None,
        })
    }
}
