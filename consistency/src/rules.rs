//! The rules of checking that tests break on purpose, one at a time, to see that they matter.

use crate::model::EdgeSet;

/// `Rules::default()` is what the papers say. Anything else is a mutant for tests, except `writes_by_type`.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Refused conditional writes count as writes for real time.
    pub(crate) writes_by_type: bool,
    /// Mutant: these edges are forgotten.
    pub(crate) dropped: EdgeSet,
    /// Mutant: an unknown operation is taken for a failed one.
    pub(crate) unknown_as_failed: bool,
    /// Mutant: reads, too, push later operations behind them in the regular models.
    pub(crate) real_time_from_reads: bool,
    /// Mutant: messages between processes are not looked at.
    pub(crate) messages_ignored: bool,
    /// Mutant: an answer at the time of an invocation counts as before it.
    pub(crate) half_open: bool,
    /// Mutant: every operation counts as strict, whatever its level.
    pub(crate) levels_ignored: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            writes_by_type: false,
            dropped: EdgeSet::NONE,
            unknown_as_failed: false,
            real_time_from_reads: false,
            messages_ignored: false,
            half_open: false,
            levels_ignored: false,
        }
    }
}
