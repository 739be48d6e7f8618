//! Slots of a replicated log, and a ring of them with a moving start.

use std::collections::VecDeque;

kernel::number! {
    /// A log entry's number, from 0.
    pub struct Slot(u64);
}

/// Something per slot from `start` on, with holes; the start only moves forward, and the span is bounded.
///
/// Invariant: the last item is not a hole.
#[derive(Clone, Debug)]
pub struct SlotRing<T> {
    start: Slot,
    items: VecDeque<Option<T>>,
    span_max: usize,
}

impl<T> SlotRing<T> {
    /// An empty ring that holds slots from `start` on, at most `span_max` from its first to its last.
    pub fn new(start: Slot, span_max: usize) -> Self {
        Self { start, items: VecDeque::new(), span_max }
    }

    /// The first slot that can be held.
    pub fn start(&self) -> Slot {
        self.start
    }

    /// The slot after the last one held; `start` if none is.
    pub fn end(&self) -> Slot {
        self.start.plus(self.items.len() as u64)
    }

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True if `slot` may be inserted: not before the start, and within the span.
    pub fn admits(&self, slot: Slot) -> bool {
        slot >= self.start && slot.0 - self.start.0 < self.span_max as u64
    }

    fn index(&self, slot: Slot) -> Option<usize> {
        slot.0.checked_sub(self.start.0).map(|index| index as usize)
    }

    /// What is held for `slot`.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.items.get(self.index(slot)?)?.as_ref()
    }

    /// What is held for `slot`, to change it.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let index = self.index(slot)?;
        self.items.get_mut(index)?.as_mut()
    }

    /// Holds `item` for `slot` and returns what it replaces; gives `item` back if the slot is not admitted.
    pub fn insert(&mut self, slot: Slot, item: T) -> Result<Option<T>, T> {
        if !self.admits(slot) {
            return Err(item);
        }
        let index = (slot.0 - self.start.0) as usize;
        if index >= self.items.len() {
            self.items.resize_with(index + 1, || None);
        }
        Ok(self.items[index].replace(item))
    }

    /// Takes the item of `slot` out and leaves a hole.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let index = self.index(slot)?;
        let item = self.items.get_mut(index)?.take();
        while self.items.back().is_some_and(Option::is_none) {
            self.items.pop_back();
        }
        item
    }

    /// Moves the start forward to `start` and drops what lies before it; a start behind is ignored.
    pub fn advance(&mut self, start: Slot) {
        if start <= self.start {
            return;
        }
        let drop = ((start.0 - self.start.0) as usize).min(self.items.len());
        self.items.drain(..drop);
        self.start = start;
    }

    /// The held items in order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let start = self.start;
        self.items
            .iter()
            .enumerate()
            .filter_map(move |(index, item)| item.as_ref().map(|item| (start.plus(index as u64), item)))
    }

    /// The held items from `from` on, in order of their slots.
    pub fn iter_from(&self, from: Slot) -> impl Iterator<Item = (Slot, &T)> {
        let skip = from.0.saturating_sub(self.start.0) as usize;
        let first = self.start.plus(skip.min(self.items.len()) as u64);
        self.items
            .iter()
            .skip(skip)
            .enumerate()
            .filter_map(move |(index, item)| item.as_ref().map(|item| (first.plus(index as u64), item)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Remove(u64),
        Advance(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..40u64, any::<u32>()).prop_map(|(slot, item)| Step::Insert(slot, item)),
            (0..40u64).prop_map(Step::Remove),
            (0..40u64).prop_map(Step::Advance),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        // A ring that loses or shifts an item would execute the wrong command; the twin is an ordered map.
        #[test]
        fn the_ring_agrees_with_a_map(steps in steps()) {
            let (mut ring, mut twin, mut start) = (SlotRing::new(Slot(3), 16), BTreeMap::new(), 3);
            for step in steps {
                match step {
                    Step::Insert(slot, item) => {
                        let admitted = slot >= start && slot < start + 16;
                        let expected = if admitted { Ok(twin.insert(slot, item)) } else { Err(item) };
                        prop_assert_eq!(ring.insert(Slot(slot), item), expected);
                    }
                    Step::Remove(slot) => prop_assert_eq!(ring.remove(Slot(slot)), twin.remove(&slot)),
                    Step::Advance(slot) => {
                        start = start.max(slot);
                        ring.advance(Slot(slot));
                        twin = twin.split_off(&start);
                    }
                }
                let held: Vec<_> = ring.iter().map(|(slot, &item)| (slot.0, item)).collect();
                let expected: Vec<_> = twin.iter().map(|(&slot, &item)| (slot, item)).collect();
                prop_assert_eq!(held, expected);
                let end = twin.last_key_value().map_or(start, |(&slot, _)| slot + 1);
                prop_assert_eq!(ring.end().0.max(start), end.max(start));
                let middle = start + 5;
                let tail: Vec<_> = ring.iter_from(Slot(middle)).map(|(slot, _)| slot.0).collect();
                prop_assert_eq!(tail, twin.range(middle..).map(|(&slot, _)| slot).collect::<Vec<_>>());
            }
        }
    }
}
