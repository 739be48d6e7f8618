//! What the engine's client answers, as users are answered.

use crate::names::Times;
use fuzzylog::client::ChangeFlaw;
use fuzzylog::partition::command::Placed;
use fuzzylog::{AppendTime, Colour, FuzzyRefusal, MoveFlaw, PartitionFlaw};
use wire::fuzzylog::{AppendedNode, FuzzyFailure};

/// Why a call failed, and the position that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failing {
    pub(crate) why: FuzzyFailure,
    pub(crate) position: u64,
}

impl From<FuzzyFailure> for Failing {
    fn from(why: FuzzyFailure) -> Self {
        Self { why, position: 0 }
    }
}

impl From<FuzzyRefusal> for Failing {
    fn from(refusal: FuzzyRefusal) -> Self {
        match refusal {
            FuzzyRefusal::Busy => FuzzyFailure::Busy.into(),
            FuzzyRefusal::Full => FuzzyFailure::Full.into(),
            FuzzyRefusal::Content(_) | FuzzyRefusal::NumberOutOfRange => FuzzyFailure::Malformed.into(),
            FuzzyRefusal::Forgotten => FuzzyFailure::Forgotten.into(),
            FuzzyRefusal::NumberUsed => FuzzyFailure::NumberUsed.into(),
            FuzzyRefusal::NoClock => FuzzyFailure::NoClock.into(),
            FuzzyRefusal::FromTheFuture => FuzzyFailure::FromTheFuture.into(),
            FuzzyRefusal::MovedSince => FuzzyFailure::MovedSince.into(),
            FuzzyRefusal::Change(flaw) => refused(flaw).into(),
            FuzzyRefusal::BeyondTail { tail } => Self { why: FuzzyFailure::BeyondTail, position: tail.0 },
        }
    }
}

/// Why where colours are was not changed.
fn refused(flaw: ChangeFlaw) -> FuzzyFailure {
    match flaw {
        ChangeFlaw::AmongRegions => FuzzyFailure::AmongRegions,
        ChangeFlaw::TakenBack => FuzzyFailure::TakenBack,
        ChangeFlaw::Move(MoveFlaw::NoPartition | MoveFlaw::Emptied)
        | ChangeFlaw::Partition(PartitionFlaw::NoPartition) => FuzzyFailure::NoPartition,
        ChangeFlaw::Move(MoveFlaw::Colours | MoveFlaw::Scattered) => FuzzyFailure::Malformed,
        ChangeFlaw::Move(MoveFlaw::TooManyMoved) | ChangeFlaw::Partition(PartitionFlaw::NoRoom) => {
            FuzzyFailure::MapFull
        }
        ChangeFlaw::Move(MoveFlaw::OtherMove) | ChangeFlaw::Partition(PartitionFlaw::OtherOne) => {
            FuzzyFailure::Busy
        }
        ChangeFlaw::Partition(PartitionFlaw::IsOfTheFirst) => FuzzyFailure::FirstPartition,
    }
}

/// Positions in the order of a call's colours; none if one is missing.
pub(crate) fn positions(placed: &[Placed], colours: &[Colour]) -> Option<Vec<u64>> {
    let of = |colour: &Colour| placed.iter().find(|it| it.colour == *colour).map(|it| it.position.0);
    colours.iter().map(of).collect()
}

/// Nodes of one call on their way.
#[derive(Clone, Debug)]
pub(crate) struct Appending {
    /// The nodes' colours, in the order of the call.
    colours: Vec<Vec<Colour>>,
    done: Vec<Option<AppendedNode>>,
    left: usize,
    /// The first that failed.
    failing: Option<Failing>,
    times: Times,
    /// The latest time of a node.
    pub(crate) latest: AppendTime,
}

impl Appending {
    pub(crate) fn of(colours: Vec<Vec<Colour>>, times: Times) -> Self {
        let left = colours.len();
        Self { colours, done: vec![None; left], left, failing: None, times, latest: AppendTime::ZERO }
    }

    pub(crate) fn node_done(&mut self, index: usize, at: AppendTime, placed: &[Placed]) {
        let Some(colours) = self.colours.get(index) else { return };
        let Some(positions) = positions(placed, colours) else {
            return self.node_failed(FuzzyFailure::Unknown.into());
        };
        self.done[index] = Some(AppendedNode { at: self.times.seen_of(at), positions });
        self.latest = self.latest.max(at);
        self.left -= 1;
    }

    pub(crate) fn node_failed(&mut self, failing: Failing) {
        self.failing = self.failing.or(Some(failing));
        self.left -= 1;
    }

    /// What all of it came to, when nothing is on its way any more.
    pub(crate) fn outcome(&mut self) -> Option<Result<Vec<AppendedNode>, Failing>> {
        if self.left > 0 {
            return None;
        }
        let Some(failing) = self.failing else {
            return Some(Ok(self.done.drain(..).flatten().collect()));
        };
        // What can be tried again is tried as a whole, and has been executed in part.
        let is_partial = self.done.iter().any(Option::is_some) && failing.why.may_be_retried();
        Some(Err(if is_partial { FuzzyFailure::Unknown.into() } else { failing }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuzzylog::NodePosition;

    fn placed(colour: u64, position: u64) -> Placed {
        Placed { colour: Colour(colour), position: NodePosition(position) }
    }

    // A user who is answered "nothing was executed" appends the same again, under new numbers.
    #[test]
    fn a_call_that_was_executed_in_part_is_not_void() {
        let mut two = Appending::of(vec![vec![Colour(2), Colour(1)], vec![Colour(1)]], Times::default());
        two.node_done(0, AppendTime::ZERO, &[placed(1, 7), placed(2, 8)]);
        assert_eq!(two.outcome(), None);
        let mut other = two.clone();
        two.node_failed(FuzzyFailure::Busy.into());
        assert_eq!(two.outcome(), Some(Err(FuzzyFailure::Unknown.into())));
        other.node_done(1, AppendTime::ZERO, &[placed(1, 9)]);
        let nodes = other.outcome().expect("all are done").expect("none failed");
        assert_eq!(nodes.into_iter().map(|it| it.positions).collect::<Vec<_>>(), [vec![8, 7], vec![9]]);
    }
}
