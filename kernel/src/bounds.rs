//! How large things may be: one table for what batchers, leaders, acceptors, journals, snapshots, links and clients hold of each
//! other, so that whatever is built in one part fits in the next.
//!
//! ```text
//! command of a client    <= batch              paxos.batch_bytes_max, in the cluster file
//! operation of a gateway <= OPERATION          checked where a gateway takes it, and by the proxy
//! batch, entry           <= VALUE              a type: nothing else can stand in a slot (paxos::Payload)
//! vote (value + head)    <= RECORD             compile time
//! chunk of a snapshot    <= RECORD             chunk and one item, checked with the parameters
//! configuration          <= CONFIGURATION      its decoder; the cluster file's when a host starts
//! record                 <= SEGMENT / 4        compile time
//! page of votes, entries <= FRAME              page and one value, checked with the parameters
//! frame between hosts    <= FRAME              a message that is larger is never sent
//! answer of a service    <= ANSWER             compile time, next to what the services may answer
//! frame to a client      <= CLIENT_FRAME       compile time; the clients take these constants, or are compared with them
//! ```
//!
//! What is constant is checked at compile time, below and next to the default parameters of each engine. What the cluster file sets
//! is checked when a host starts: a file by which a record could outgrow the journal is refused. The simulator has a table of its
//! own, [`Bounds`], so that its small clusters reach their limits.

use std::fmt;

/// Bytes of a segment of the journal.
pub const SEGMENT_BYTES: usize = 16 << 20;
/// The largest record that the journal takes. Four fit into a segment, so that a segment is never mostly empty.
pub const RECORD_BYTES_MAX: usize = SEGMENT_BYTES / 4;
/// The largest body of a frame between hosts; so, less its envelope, the largest message.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Sender, receiver and length of a message in a frame.
pub const ENVELOPE_BYTES: usize = 20;
/// What a vote's record adds to the bytes of its value: tags, ballot, slot, length.
pub const VOTE_BYTES: usize = 30;
/// The largest value of a slot. An acceptor's record holds one, whichever version wrote it.
pub const VALUE_BYTES_MAX: usize = RECORD_BYTES_MAX - VOTE_BYTES;
/// What a batch adds to the commands of its only group: names, a session, counts.
pub const BATCH_HEAD_BYTES: usize = 128;
/// The largest operation of an engine's gateways: one fits into an entry of a log, a chunk of a snapshot and a message between shards
/// with all that those add to it.
pub const OPERATION_BYTES_MAX: usize = 3 << 20;
/// What an entry, a chunk or a message adds to one operation at most: its numbers in all spaces, what the sequencer knew, names.
pub const OPERATION_HEAD_BYTES: usize = 64 << 10;
/// What a gateway adds to the request of a client that it makes an operation of.
pub const REQUEST_HEAD_BYTES: usize = 16 << 10;
/// The largest page or chunk, before the item that may stand on it alone: snapshots, votes, entries, copies.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// The largest configuration of a replicated log: its nodes, and the machines' names and addresses. A heartbeat has several.
pub const CONFIGURATION_BYTES_MAX: usize = 256 << 10;
/// The largest answer of a service to one call of its clients.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The largest body of a frame to a client; a client closes the connection on a larger one.
pub const CLIENT_FRAME_BYTES_MAX: usize = 64 << 20;
/// What a message or a record adds to a page or a chunk.
pub const PAGE_HEAD_BYTES: usize = 4 << 10;

const _: () = {
    assert!(VALUE_BYTES_MAX + VOTE_BYTES <= RECORD_BYTES_MAX, "a vote fits in a record");
    assert!(4 * RECORD_BYTES_MAX <= SEGMENT_BYTES, "four records fit in a segment");
    assert!(OPERATION_BYTES_MAX + OPERATION_HEAD_BYTES <= VALUE_BYTES_MAX, "an operation fits in a slot");
    assert!(
        PAGE_BYTES_MAX + PAGE_HEAD_BYTES + VALUE_BYTES_MAX + ENVELOPE_BYTES <= FRAME_BYTES_MAX,
        "a page and one value fit in a frame"
    );
    assert!(4 * CONFIGURATION_BYTES_MAX + PAGE_HEAD_BYTES <= FRAME_BYTES_MAX, "a heartbeat fits in a frame");
    assert!(CONFIGURATION_BYTES_MAX + PAGE_HEAD_BYTES <= VALUE_BYTES_MAX, "a configuration fits in a slot");
    assert!(
        PAGE_BYTES_MAX + ANSWER_BYTES_MAX + PAGE_HEAD_BYTES <= FRAME_BYTES_MAX,
        "a page of answers and one more fit in a frame"
    );
    assert!(
        FRAME_BYTES_MAX + ENVELOPE_BYTES <= CLIENT_FRAME_BYTES_MAX,
        "clients take what hosts send each other"
    );
};

/// What a journal and a link take: the real ones, or those of a simulated cluster that is smaller in proportion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The largest record.
    pub record_bytes_max: usize,
    /// The largest body of a frame.
    pub frame_bytes_max: usize,
}

impl Bounds {
    /// Those of every real host.
    pub const REAL: Self = Self { record_bytes_max: RECORD_BYTES_MAX, frame_bytes_max: FRAME_BYTES_MAX };

    /// Those of a simulated cluster whose records have this bound; frames in the real proportion.
    pub const fn small(record_bytes_max: usize) -> Self {
        Self { record_bytes_max, frame_bytes_max: record_bytes_max * (FRAME_BYTES_MAX / RECORD_BYTES_MAX) }
    }
}

/// Two bounds that contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// What could grow too large.
    pub what: &'static str,
    /// How large.
    pub bytes: usize,
    /// What holds it.
    pub max: usize,
}

impl Misfit {
    /// None if it fits.
    pub const fn of(what: &'static str, bytes: usize, max: usize) -> Option<Self> {
        if bytes <= max { None } else { Some(Self { what, bytes, max }) }
    }

    /// The first of these.
    pub const fn first<const N: usize>(all: [Option<Self>; N]) -> Option<Self> {
        let mut at = 0;
        while at < N {
            if all[at].is_some() {
                return all[at];
            }
            at += 1;
        }
        None
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bytes, max } = self;
        write!(f, "{what} may come to {bytes} bytes, and {max} is the most there is room for")
    }
}

impl std::error::Error for Misfit {}

/// More bytes than fit where they should go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// How many there are.
    pub bytes: usize,
    /// How many fit.
    pub max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes where {} fit", self.bytes, self.max)
    }
}

impl std::error::Error for TooLarge {}

/// What may still go on a page: items as long as they fit, or one that is larger than a page, alone.
#[derive(Clone, Copy, Debug)]
pub struct PageBudget {
    left: usize,
    begun: bool,
}

impl PageBudget {
    /// An empty page of `bytes`.
    pub const fn new(bytes: usize) -> Self {
        Self { left: bytes, begun: false }
    }

    /// True if an item of `bytes` goes on this page; it is counted then. The first one always does.
    pub fn admits(&mut self, bytes: usize) -> bool {
        if self.begun && bytes > self.left {
            self.left = 0;
            return false;
        }
        (self.left, self.begun) = (self.left.saturating_sub(bytes), true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A page that takes one more than fits is as large as its last item likes.
    #[test]
    fn a_page_holds_what_fits_or_one() {
        let of = |sizes: &[usize]| {
            let mut page = PageBudget::new(10);
            sizes.iter().take_while(|&&size| page.admits(size)).count()
        };
        assert_eq!(of(&[4, 6, 1]), 2);
        assert_eq!(of(&[4, 7, 1]), 1, "nothing overtakes what did not fit");
        assert_eq!(of(&[40, 0]), 2);
        assert_eq!(of(&[40, 1]), 1);
    }

    // A table whose check passes whatever stands in it checks nothing.
    #[test]
    fn misfits_are_reported() {
        let misfit = Misfit::first([Misfit::of("a", 1, 1), Misfit::of("b", 2, 1), Misfit::of("c", 3, 1)]);
        assert_eq!(misfit, Some(Misfit { what: "b", bytes: 2, max: 1 }));
        assert_eq!(Bounds::small(RECORD_BYTES_MAX), Bounds::REAL);
    }
}
