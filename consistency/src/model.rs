//! The consistency models and the edges each demands (docs/checking.md, "One graph").

use std::fmt;
use std::str::FromStr;

/// What an edge of the constraint graph means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum EdgeKind {
    /// The target read what the source wrote.
    WriteRead,
    /// The target wrote the next version after the source's.
    WriteWrite,
    /// The target wrote the next version after the one the source read.
    ReadWrite,
    /// The target is the next operation of the source's process.
    SessionOrder,
    /// A message, or its forwarding, carries the source's past to the target.
    Message,
    /// Into and along the chain of all answers.
    AnyAnswered,
    /// From the chain of all answers to a write invoked later.
    AnyBeforeWrite,
    /// From the chain of all answers to a read invoked later.
    AnyBeforeRead,
    /// Into and along the chain of answered writes.
    WriteAnswered,
    /// From the chain of answered writes to a write invoked later.
    WriteBeforeWrite,
    /// From the chain of answered writes to a read invoked later.
    WriteBeforeRead,
    /// Into and along one key's chain of answered writes.
    KeyAnswered,
    /// From one key's chain to a read of that key invoked later.
    KeyBeforeRead,
    /// Into and along one service's chain of answered fences.
    FenceAnswered,
    /// From one service's chain of fences to an operation there invoked later.
    FenceBefore,
    /// Between a write and a read as of a timestamp, by the write's timestamp; and along the chains between them.
    AsOf,
}

impl EdgeKind {
    /// All kinds, by number.
    pub const ALL: [EdgeKind; 16] = [
        EdgeKind::WriteRead,
        EdgeKind::WriteWrite,
        EdgeKind::ReadWrite,
        EdgeKind::SessionOrder,
        EdgeKind::Message,
        EdgeKind::AnyAnswered,
        EdgeKind::AnyBeforeWrite,
        EdgeKind::AnyBeforeRead,
        EdgeKind::WriteAnswered,
        EdgeKind::WriteBeforeWrite,
        EdgeKind::WriteBeforeRead,
        EdgeKind::KeyAnswered,
        EdgeKind::KeyBeforeRead,
        EdgeKind::FenceAnswered,
        EdgeKind::FenceBefore,
        EdgeKind::AsOf,
    ];
}

/// A set of edge kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EdgeSet(u16);

impl EdgeSet {
    /// No edges.
    pub const NONE: EdgeSet = EdgeSet(0);
    /// Every edge there is.
    pub const ALL: EdgeSet = EdgeSet(0xffff);
    /// WR, WW, RW: what the data says.
    pub const DATA: EdgeSet = EdgeSet(0b111);
    const SESSION: EdgeSet = EdgeSet::DATA.with(EdgeKind::SessionOrder);
    const CAUSAL: EdgeSet = EdgeSet::SESSION.with(EdgeKind::Message);
    const REGULAR_SEQUENTIAL: EdgeSet = EdgeSet::CAUSAL
        .with(EdgeKind::WriteAnswered)
        .with(EdgeKind::WriteBeforeWrite)
        .with(EdgeKind::KeyAnswered)
        .with(EdgeKind::KeyBeforeRead)
        .with(EdgeKind::FenceAnswered)
        .with(EdgeKind::FenceBefore);
    const STRICT: EdgeSet = EdgeSet::REGULAR_SEQUENTIAL
        .with(EdgeKind::AnyAnswered)
        .with(EdgeKind::AnyBeforeWrite)
        .with(EdgeKind::AnyBeforeRead);
    const BY_LEVEL: EdgeSet = EdgeSet::STRICT.with(EdgeKind::AsOf);
    const ORDERED_SEQUENTIAL: EdgeSet =
        EdgeSet::SESSION.with(EdgeKind::AnyAnswered).with(EdgeKind::AnyBeforeWrite);
    const REGULAR: EdgeSet = EdgeSet::DATA
        .with(EdgeKind::WriteAnswered)
        .with(EdgeKind::WriteBeforeWrite)
        .with(EdgeKind::WriteBeforeRead);

    /// This set and `kind`.
    pub const fn with(self, kind: EdgeKind) -> EdgeSet {
        EdgeSet(self.0 | 1 << kind as u8)
    }

    /// This set without `kind`.
    pub const fn without(self, kind: EdgeKind) -> EdgeSet {
        EdgeSet(self.0 & !(1 << kind as u8))
    }

    /// Everything in either.
    pub const fn union(self, other: EdgeSet) -> EdgeSet {
        EdgeSet(self.0 | other.0)
    }

    /// Whether `kind` is in it.
    pub const fn has(self, kind: EdgeKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// Whether all of this is in `other`.
    pub const fn within(self, other: EdgeSet) -> bool {
        self.0 & !other.0 == 0
    }
}

/// A consistency model. Names of transactions and of single accesses that demand the same edges are both here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Model {
    /// Some total order explains every read.
    Serializable,
    /// Serializable in an order that keeps each process's own.
    ProcessOrderedSerializable,
    /// The same for single accesses.
    Sequential,
    /// Regular sequential serializability (the RSS paper, section 3.4).
    Rss,
    /// Regular sequential consistency: the same for single accesses.
    Rsc,
    /// Serializable in an order that keeps real time.
    StrictSerializable,
    /// The same for single accesses.
    Linearizable,
    /// Each operation has a level of its own; two keep the order that the weaker of their levels demands.
    ByLevel,
    /// Ordered sequential consistency, ZooKeeper's class: writes are never ordered before what ended earlier.
    OscU,
    /// Viotti and Vukolić's regularity: everything after a write follows it; processes keep no order.
    Regular,
    /// Causal consistency (Bouajjani et al. 2017, CC).
    Causal,
    /// Causal with convergent conflict handling (CCv; COPS's causal+).
    CausalPlus,
    /// A session sees its own writes.
    ReadYourWrites,
    /// A session never sees an older version after a newer one.
    MonotonicReads,
    /// A session's writes are seen in its order.
    MonotonicWrites,
    /// Who sees a write sees what its session had read before it.
    WritesFollowReads,
    /// After everything settled, all reads agree on a write that nothing overwrote.
    Eventual,
}

impl Model {
    /// Every model, strong ones first within each family.
    pub const ALL: [Model; 17] = [
        Model::StrictSerializable,
        Model::Linearizable,
        Model::ByLevel,
        Model::Rss,
        Model::Rsc,
        Model::OscU,
        Model::ProcessOrderedSerializable,
        Model::Sequential,
        Model::Regular,
        Model::Serializable,
        Model::CausalPlus,
        Model::Causal,
        Model::ReadYourWrites,
        Model::MonotonicReads,
        Model::MonotonicWrites,
        Model::WritesFollowReads,
        Model::Eventual,
    ];

    /// The edges whose graph must have no cycle, for the models that ask for one total order.
    pub fn edges(self) -> Option<EdgeSet> {
        match self {
            Model::Serializable => Some(EdgeSet::DATA),
            Model::ProcessOrderedSerializable | Model::Sequential => Some(EdgeSet::SESSION),
            Model::Rss | Model::Rsc => Some(EdgeSet::REGULAR_SEQUENTIAL),
            Model::StrictSerializable | Model::Linearizable => Some(EdgeSet::STRICT),
            Model::ByLevel => Some(EdgeSet::BY_LEVEL),
            Model::OscU => Some(EdgeSet::ORDERED_SEQUENTIAL),
            Model::Regular => Some(EdgeSet::REGULAR),
            Model::Causal | Model::CausalPlus | Model::Eventual => None,
            Model::ReadYourWrites | Model::MonotonicReads => None,
            Model::MonotonicWrites | Model::WritesFollowReads => None,
        }
    }

    /// Whether it asks of each operation what its level says; to all other models every operation is alike.
    pub(crate) fn has_levels(self) -> bool {
        self == Model::ByLevel
    }

    /// The nested sets inside this model's edges, weakest first: the first with a cycle names what is broken.
    pub(crate) fn stages(self) -> impl Iterator<Item = (EdgeSet, &'static str)> {
        let whole = self.edges().unwrap_or(EdgeSet::NONE);
        let stages = [
            (EdgeSet::DATA.without(EdgeKind::ReadWrite), "writes and reads-from alone (G0 or G1c)"),
            (EdgeSet::DATA, "the data alone (G-single or G2): not serializable"),
            (EdgeSet::DATA.with(EdgeKind::AsOf), "data and the timestamps that reads are as of"),
            (EdgeSet::SESSION, "process order and data: not process-ordered serializable"),
            (EdgeSet::CAUSAL, "messages, process order and data"),
            (EdgeSet::REGULAR, "answered writes and data: not regular"),
            (EdgeSet::ORDERED_SEQUENTIAL, "writes after answered operations, process order and data"),
            (EdgeSet::REGULAR_SEQUENTIAL, "real time of writes and fences, causality and data: not RSS"),
            (EdgeSet::BY_LEVEL, "real time of strict operations, and what the other levels demand"),
            (EdgeSet::STRICT, "real time of all operations: not strictly serializable"),
        ];
        stages.into_iter().filter(move |(set, _)| set.within(whole))
    }

    /// What it asks for, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Model::Serializable => "some total order of the transactions explains every read",
            Model::ProcessOrderedSerializable => "serializable, in an order that keeps each process's own",
            Model::Sequential => "the same for single reads and writes",
            Model::ByLevel => {
                "what the level of each operation demands; strict-serializable where all are strict"
            }
            Model::Rss => "regular sequential serializability: serializable, causal, and writes in real time",
            Model::Rsc => "regular sequential consistency: the same for single reads and writes",
            Model::StrictSerializable => "serializable in real time",
            Model::Linearizable => "the same for single reads and writes",
            Model::OscU => "ordered sequential consistency, as ZooKeeper: reads may be old, writes may not",
            Model::Regular => "everything after an answered write follows it; processes keep no order",
            Model::Causal => "every process sees what it may depend on",
            Model::CausalPlus => "causal, and conflicting writes end in one order",
            Model::ReadYourWrites => "a session sees its own writes",
            Model::MonotonicReads => "a session never sees an older version after a newer one",
            Model::MonotonicWrites => "a session's writes are seen in its order",
            Model::WritesFollowReads => "a write is seen only with what its session had read before",
            Model::Eventual => "once writes end, all reads agree on a write that nothing overwrote",
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Serializable => "serializable",
            Model::ProcessOrderedSerializable => "process-ordered-serializable",
            Model::Sequential => "sequential",
            Model::ByLevel => "by-level",
            Model::Rss => "rss",
            Model::Rsc => "rsc",
            Model::StrictSerializable => "strict-serializable",
            Model::Linearizable => "linearizable",
            Model::OscU => "osc-u",
            Model::Regular => "regular",
            Model::Causal => "causal",
            Model::CausalPlus => "causal-plus",
            Model::ReadYourWrites => "read-your-writes",
            Model::MonotonicReads => "monotonic-reads",
            Model::MonotonicWrites => "monotonic-writes",
            Model::WritesFollowReads => "writes-follow-reads",
            Model::Eventual => "eventual",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Model {
    type Err = String;
    fn from_str(text: &str) -> Result<Model, String> {
        let alias = match text {
            "serializability" => "serializable",
            "strict-serializability" | "strict" => "strict-serializable",
            "linearizability" => "linearizable",
            "po-serializable" | "strong-session-serializable" => "process-ordered-serializable",
            "sequential-consistency" => "sequential",
            "oscu" | "osc" => "osc-u",
            "regularity" | "vv-regular" => "regular",
            "causal+" | "ccv" => "causal-plus",
            "cc" => "causal",
            other => other,
        };
        Model::ALL.into_iter().find(|model| model.name() == alias).ok_or_else(|| {
            let names: Vec<&str> = Model::ALL.iter().map(|model| model.name()).collect();
            format!("no model {text}; known are {}", names.join(", "))
        })
    }
}
