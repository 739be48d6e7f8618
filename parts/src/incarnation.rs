//! Incarnations: which run of a node something was said in.

use kernel::{Cx, Role, Wall};

kernel::record! {
    /// One run of a node, which it journals when it begins. A later one has a larger number, so that what an earlier one has sent, and
    /// the network delivers late, is not taken for new.
    #[derive(Copy, Eq, Default)]
    pub struct Incarnation {
        /// 0: none has begun.
        number: u64,
    }
}

impl Incarnation {
    /// The incarnation after this one. The clock only matters where journals do not survive restarts; it is the middle of its interval
    /// that counts, because the width is another one from run to run.
    #[must_use]
    pub fn next(self, wall: Wall) -> Self {
        Self { number: (self.number + 1).max(wall.midpoint()) }
    }

    /// Begins the next one. The journal needs none before it.
    pub fn begin<R: Role<Record = Self>>(&mut self, cx: &mut Cx<'_, R>) {
        *self = self.next(cx.wall());
        let position = cx.append(self);
        cx.trim(position);
    }
}
