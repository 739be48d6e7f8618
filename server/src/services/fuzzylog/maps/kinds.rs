//! The kinds of maps, and what each promises.

use fuzzylog::FuzzyOrder;
use std::fmt;
use std::str::FromStr;

/// A kind of map (the paper's section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// LogMap.
    Log,
    /// ShardedMap.
    Sharded,
    /// AtomicMap.
    Atomic,
    /// TXMap.
    Tx,
    /// CRDTMap.
    Crdt,
    /// TXCRDTMap.
    TxCrdt,
}

impl MapKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Log, Self::Sharded, Self::Atomic, Self::Tx, Self::Crdt, Self::TxCrdt];

    /// As calls and the log have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Sharded => "sharded",
            Self::Atomic => "atomic",
            Self::Tx => "tx",
            Self::Crdt => "crdt",
            Self::TxCrdt => "tx-crdt",
        }
    }

    /// What it promises over a log of this order, in words.
    pub const fn consistency(self, order: FuzzyOrder) -> &'static str {
        match self {
            Self::Log | Self::Sharded => "linearizable",
            Self::Atomic if matches!(order, FuzzyOrder::Strict) => "strictly serializable",
            Self::Atomic => "serializable, in an order that each host's own agrees with; not linearizable",
            Self::Tx => "strictly serializable",
            Self::Crdt => "causal and convergent: a host answers with what it has played",
            Self::TxCrdt => {
                "causal and convergent, changes seen as a whole: a host answers with what it has played"
            }
        }
    }

    /// It has one shard.
    pub(super) const fn is_of_one_colour(self) -> bool {
        matches!(self, Self::Log | Self::Crdt)
    }

    /// It changes and reads several keys at once.
    pub(super) const fn has_several_keys(self) -> bool {
        matches!(self, Self::Atomic | Self::Tx | Self::TxCrdt)
    }
}

impl fmt::Display for MapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No kind is called like this.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no kind of map: wanted is log, sharded, atomic, tx, crdt or tx-crdt")]
pub struct NoMapKind(pub String);

impl FromStr for MapKind {
    type Err = NoMapKind;

    fn from_str(text: &str) -> Result<Self, NoMapKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| NoMapKind(text.chars().take(SHOWN_CHARS_MAX).collect()))
    }
}

/// What is shown of a wrong name.
const SHOWN_CHARS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    // A kind that is written in the log under a name that is not read again makes its maps unusable.
    #[test]
    fn kinds_are_read_as_they_are_written() {
        for kind in MapKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("Log".parse::<MapKind>().is_err_and(|why| why.to_string().contains("\"Log\"")));
    }
}
