//! Groups of readers: which generation each is in, and how far it has come in each log (Kafka's consumer groups).
//!
//! Who is in a group is for those who serve it; here is what must outlive them. A generation is begun by counting up, so that no two
//! hosts begin the same, and only the latest may commit: readers of an earlier one are fenced off.

use crate::wire::{Answer, Commit, GroupState, Rejected};
use kernel::Recount;
use std::collections::BTreeMap;

/// Groups that a space remembers; the least recently heard of is forgotten.
pub(crate) const GROUPS_MAX: usize = 10_000;
/// Logs that one group reads.
const LOGS_MAX: usize = 1_000;

#[derive(Clone, Debug)]
struct Group {
    heard: u64,
    state: GroupState,
}

/// The groups of a space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    known: BTreeMap<String, Group>,
    /// The same by when they were last heard of.
    recent: BTreeMap<u64, String>,
    heard: u64,
}

impl Groups {
    /// What is known of a group; nothing of one that never was.
    pub(crate) fn state(&self, name: &str) -> GroupState {
        self.known.get(name).map_or_else(|| GroupState::of(name), |group| group.state.clone())
    }

    fn hear(&mut self, name: &str) -> &mut GroupState {
        self.heard += 1;
        let fresh = || Group { heard: 0, state: GroupState::of(name) };
        if !self.known.contains_key(name)
            && self.known.len() >= GROUPS_MAX
            && let Some((_, oldest)) = self.recent.pop_first()
        {
            self.known.remove(&oldest);
        }
        let group = self.known.entry(name.to_owned()).or_insert_with(fresh);
        self.recent.remove(&group.heard);
        group.heard = self.heard;
        self.recent.insert(self.heard, name.to_owned());
        &mut group.state
    }

    /// Begins the next generation.
    pub(crate) fn begin(&mut self, name: &str) -> Answer {
        let state = self.hear(name);
        state.generation = (state.generation + 1) & i32::MAX as u32;
        Answer::Group(state.clone())
    }

    /// Takes over how far the group has come, unless a later generation has begun.
    pub(crate) fn commit(&mut self, commit: Commit) -> Answer {
        let current = self.state(&commit.group).generation;
        // Readers that are in no generation assign logs by themselves; they may commit while nobody is in one.
        if commit.generation.is_some_and(|generation| generation != current) {
            return Answer::Rejected(Rejected::Fenced(current.into()));
        }
        let state = self.hear(&commit.group);
        for progress in commit.progress {
            match state.progress.binary_search_by(|known| known.log.cmp(&progress.log)) {
                Ok(at)
                    if kernel::planted!(earlier_commit_ignored)
                        && progress.position < state.progress[at].position => {}
                Ok(at) => state.progress[at] = progress,
                Err(at) if state.progress.len() < LOGS_MAX => state.progress.insert(at, progress),
                Err(_) => return Answer::about(crate::Why::Full, &progress.log, 0),
            }
        }
        Answer::Done
    }

    pub(crate) fn recount(&self) -> Recount {
        let is_known = |(heard, name): &(&u64, &String)| {
            self.known.get(*name).is_some_and(|group| group.heard == **heard)
        };
        let counted = self.recent.iter().filter(is_known).count();
        Recount::of("groups by when they were heard", self.recent.len().max(self.known.len()), counted)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All of them in the order they were last heard of, for a snapshot.
    pub(crate) fn all(&self) -> impl Iterator<Item = GroupState> {
        self.recent.values().filter_map(|name| self.known.get(name)).map(|group| group.state.clone())
    }

    /// Takes one over from a snapshot: they come in the order they were last heard of.
    pub(crate) fn install(&mut self, state: GroupState) {
        let known = self.hear(&state.group);
        *known = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Progress;

    fn commit(group: &str, generation: Option<u32>, log: &str, position: u64) -> Commit {
        let progress = Progress { log: log.to_owned(), position, note: "n".to_owned() };
        Commit { group: group.to_owned(), generation, progress: vec![progress] }
    }

    // A reader that lost its turn to another and still moves the group's position makes that one read again, or never.
    #[test]
    fn only_the_latest_generation_commits() {
        let mut groups = Groups::default();
        assert_eq!(groups.commit(commit("g", None, "a", 3)), Answer::Done, "a group without generations");
        for generation in 1..4 {
            assert!(matches!(groups.begin("g"), Answer::Group(state) if state.generation == generation));
        }
        let fenced = Answer::Rejected(Rejected::Fenced(3));
        assert_eq!(groups.commit(commit("g", Some(2), "a", 9)), fenced);
        assert_eq!(groups.commit(commit("g", Some(3), "b", 5)), Answer::Done);
        assert_eq!(groups.commit(commit("g", Some(3), "a", 7)), Answer::Done);
        let state = groups.state("g");
        let progress: Vec<_> = state.progress.iter().map(|it| (it.log.as_str(), it.position)).collect();
        assert_eq!(progress, [("a", 7), ("b", 5)]);
        let mut copy = Groups::default();
        groups.all().for_each(|state| copy.install(state));
        assert_eq!(copy.state("g"), state);
        assert_eq!(copy.state("other"), GroupState::of("other"));
    }

    // Groups with random names, as tools make them, fill the memory of every host.
    #[test]
    fn groups_are_bounded() {
        let mut groups = Groups::default();
        for number in 0..GROUPS_MAX + 5 {
            groups.begin(&number.to_string());
            groups.begin("group");
        }
        assert_eq!((groups.known.len(), groups.recent.len()), (GROUPS_MAX, GROUPS_MAX));
        assert_eq!(groups.state("0").generation, 0);
        assert!(groups.state("group").generation > 1);
        for number in 0..LOGS_MAX {
            assert_eq!(groups.commit(commit("group", None, &number.to_string(), 1)), Answer::Done);
        }
        assert!(matches!(groups.commit(commit("group", None, "more", 1)), Answer::Refused(_)));
    }
}
