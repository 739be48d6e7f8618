//! Nodes of several spaces that were handed over: which number they have in each.
//!
//! A space that is played again finds them here, and no space is trimmed behind one that another space still needs.

use ::fuzzylog::AppendTime;
use mason::order::MultiNumber;
use mason::{Number, Placed, Space};
use std::collections::BTreeMap;

/// They stay until all of their spaces are trimmed behind them.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    nodes: BTreeMap<AppendTime, MultiNumber>,
    /// By space and number.
    times: BTreeMap<(Space, Number), AppendTime>,
}

impl Shared {
    /// The numbers of the node of a time.
    pub(super) fn numbers(&self, at: AppendTime) -> Option<&[Placed]> {
        self.nodes.get(&at).map(|numbers| &numbers[..])
    }

    pub(super) fn insert(&mut self, at: AppendTime, numbers: &[Placed]) {
        for placed in numbers {
            self.times.insert((placed.space, placed.number), at);
        }
        self.nodes.insert(at, numbers.into());
    }

    /// Nodes of a space with numbers from one on and below another, in order.
    pub(super) fn within(
        &self,
        space: Space,
        from: Number,
        below: Number,
    ) -> impl Iterator<Item = (Number, &[Placed])> {
        let times = if from < below { Some(self.times.range((space, from)..(space, below))) } else { None };
        let times = times.into_iter().flatten();
        times.filter_map(|(&(_, number), at)| Some((number, self.numbers(*at)?)))
    }

    /// Forgets the nodes of a space below a number that all of their other spaces are trimmed behind, too.
    pub(super) fn forget(&mut self, space: Space, below: Number, is_trimmed: impl Fn(&Placed) -> bool) {
        let gone: Vec<AppendTime> = self
            .times
            .range((space, Number(0))..(space, below))
            .map(|(_, &at)| at)
            .filter(|at| self.numbers(*at).is_none_or(|numbers| numbers.iter().all(&is_trimmed)))
            .collect();
        for at in gone {
            for placed in self.nodes.remove(&at).unwrap_or_default() {
                self.times.remove(&(placed.space, placed.number));
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(space: u16, number: u64) -> Placed {
        Placed { space: Space(space), number: Number(number) }
    }

    // A node that is forgotten while one of its spaces has it is played there, and nobody knows its numbers.
    #[test]
    fn a_node_stays_until_all_of_its_spaces_are_trimmed() {
        let mut shared = Shared::default();
        let at = AppendTime { clock: 7, ..AppendTime::ZERO };
        shared.insert(at, &[placed(1, 4), placed(2, 9)]);
        shared.forget(Space(1), Number(5), |placed| placed.space == Space(1));
        assert_eq!(shared.numbers(at), Some(&[placed(1, 4), placed(2, 9)][..]));
        assert_eq!(shared.within(Space(2), Number(1), Number(10)).count(), 1);
        assert_eq!(shared.within(Space(2), Number(1), Number(9)).count(), 0);
        shared.forget(Space(2), Number(9), |_| true);
        assert_eq!(shared.len(), 1, "it is not below");
        shared.forget(Space(2), Number(10), |_| true);
        assert_eq!((shared.len(), shared.within(Space(1), Number(0), Number(10)).count()), (0, 0));
    }
}
