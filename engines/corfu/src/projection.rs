//! Positions, entries, and who keeps them in an epoch.

use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, planted};
use std::time::Duration;

kernel::number! {
    /// Which projection: grows by one with every change.
    pub struct Epoch(u64);
}

kernel::number! {
    /// A position in the log; the first is 0.
    pub struct LogPosition(u64);
}

kernel::number! {
    /// Names a journal: drawn at random by a node that starts with an empty one, so that nobody takes a node that lost its disk for what
    /// it was.
    pub struct JournalId(u64);
}

kernel::record! {
    /// A node, and the journal by which it is what it is.
    pub struct NodeJournal {
        /// The node.
        node: NodeId,
        /// Its journal.
        journal: JournalId,
    }
}

kernel::record! {
    /// What was appended, and by whom: an entry is recognised by its writer's name for it.
    pub struct Data {
        /// The client.
        writer: NodeId,
        /// The client's name for it, of which no incarnation of the client has two.
        tag: u64,
        /// The bytes.
        body: Bytes,
    }
}

/// What a position holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    /// Nothing, for good: a hole was filled.
    Junk,
    /// An append.
    Data(Data),
}

impl Encode for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Junk => out.push(0),
            Self::Data(data) => {
                out.push(1);
                data.encode(out);
            }
        }
    }
}

impl Decode for Entry {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::Junk),
            1 => Data::decode(input).map(Self::Data),
            tag => Err(DecodeError::UnknownTag("entry", tag)),
        }
    }
}

/// Who serves in an epoch (the paper's projection).
#[derive(Clone, PartialEq, Debug)]
pub struct Projection {
    /// The epoch.
    pub epoch: Epoch,
    /// Who gives positions away.
    pub sequencer: NodeId,
    /// The first position that it gives away: above every entry of the epochs before.
    pub first: LogPosition,
    /// Who keeps entries: positions go round over the chains, whose heads come first.
    pub chains: Vec<Vec<NodeId>>,
    /// By which journals the sequencer, the servers and the auxiliaries are meant. Empty in a log that has not bootstrapped: nobody serves
    /// in that epoch.
    pub journals: Vec<NodeJournal>,
}

/// Stands where projections without incarnations have their epoch.
const WITH_JOURNALS: Epoch = Epoch(0);

impl Encode for Projection {
    fn encode(&self, out: &mut Vec<u8>) {
        WITH_JOURNALS.encode(out);
        self.epoch.encode(out);
        self.sequencer.encode(out);
        self.first.encode(out);
        self.chains.encode(out);
        self.journals.encode(out);
    }
}

impl Decode for Projection {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let epoch = Epoch::decode(input)?;
        let has_journals = epoch == WITH_JOURNALS;
        Ok(Self {
            epoch: if has_journals { Epoch::decode(input)? } else { epoch },
            sequencer: NodeId::decode(input)?,
            first: LogPosition::decode(input)?,
            chains: Vec::decode(input)?,
            journals: if has_journals { Vec::decode(input)? } else { Vec::new() },
        })
    }
}

impl Projection {
    /// The first one of a log, which everybody knows, and in which nobody serves yet.
    ///
    /// # Panics
    /// If a chain is empty, or there is none.
    pub fn initial(sequencer: NodeId, chains: Vec<Vec<NodeId>>) -> Self {
        assert!(!chains.is_empty() && chains.iter().all(|chain| !chain.is_empty()), "{chains:?}");
        Self { epoch: Epoch(1), sequencer, first: LogPosition(0), chains, journals: Vec::new() }
    }

    /// True if it says by which journals everybody is meant.
    pub fn is_bootstrapped(&self) -> bool {
        !self.journals.is_empty()
    }

    /// By which journal `node` is meant.
    pub fn journal(&self, node: NodeId) -> Option<JournalId> {
        self.journals.iter().find(|lived| lived.node == node).map(|lived| lived.journal)
    }

    /// True if `node` is meant, and by this journal.
    pub fn means(&self, node: NodeId, journal: JournalId) -> bool {
        self.journal(node).is_some_and(|meant| meant == journal || planted!(lost_disk_not_fenced))
    }

    /// The chain that keeps `position`.
    pub fn chain(&self, position: LogPosition) -> &[NodeId] {
        let count = self.chains.len().max(1) as u64;
        self.chains.get((position.0 % count) as usize).map_or(&[], |chain| chain)
    }

    /// All storage servers.
    pub fn servers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.chains.iter().flatten().copied()
    }

    /// The last server of each chain.
    pub fn tails(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.chains.iter().filter_map(|chain| chain.last().copied())
    }

    /// True if every chain has a server: what a peer sends may be anything.
    pub fn is_sound(&self) -> bool {
        !self.chains.is_empty() && self.chains.iter().all(|chain| !chain.is_empty())
    }
}

/// Timeouts and bounds.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// How often auxiliaries ask who is there, and everybody looks for what has no answer.
    pub tick: Duration,
    /// How long an unanswered message waits before it is sent again.
    pub resend_after: Duration,
    /// How long a reader waits for a position that was given away before it fills it.
    pub hole_after: Duration,
    /// A server that was not heard for so long is taken for failed; doubled each time that this was wrong, until there is peace.
    pub suspect_after: Duration,
    /// The most that becomes of it.
    pub suspect_max: Duration,
    /// How long an auxiliary that has just started takes nobody for failed.
    pub start_for: Duration,
    /// How long an auxiliary waits for servers to be sealed before it goes on without those that are silent.
    pub seal_for: Duration,
    /// How long an auxiliary waits for a learner to copy the rest while nothing can be written.
    pub finish_for: Duration,
    /// A server that was left out, or did not get ready in time, is not let in before; doubled each time that it happens again soon.
    pub back_off: Duration,
    /// The most that becomes of it.
    pub back_off_max: Duration,
    /// Calls that a client has in flight; beyond it they are refused.
    pub calls_max: usize,
    /// Bytes of one entry.
    pub entry_bytes_max: usize,
}

impl Default for Parameters {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            tick: ms(20),
            resend_after: ms(60),
            hole_after: ms(100),
            suspect_after: ms(200),
            suspect_max: ms(3_200),
            start_for: ms(0),
            seal_for: ms(60),
            finish_for: ms(250),
            back_off: ms(500),
            back_off_max: Duration::from_secs(60),
            calls_max: 65_536,
            entry_bytes_max: 1 << 20,
        }
    }
}
