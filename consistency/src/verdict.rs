//! The answer for one model.

use crate::witness::Witness;

/// The answer for one model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Certain yes.
    Holds,
    /// Certain no.
    Violated(Witness),
    /// No answer within the budget; the reason.
    Undecided(String),
}

impl Verdict {
    /// True only for a certain yes.
    pub fn holds(&self) -> bool {
        matches!(self, Verdict::Holds)
    }

    /// True only for a certain no.
    pub fn is_violated(&self) -> bool {
        matches!(self, Verdict::Violated(_))
    }
}
