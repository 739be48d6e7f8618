//! The shortest cycle inside one strong component, in operations; barriers and messages cost nothing.

use super::Graph;
use crate::hash::FixedState;
use crate::model::{EdgeKind, EdgeSet};
use std::collections::{HashMap, VecDeque};

/// One step of a cycle between two operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The edge that leaves `from`.
    pub(crate) first: EdgeKind,
    /// The edge that enters `to`; differs from `first` where barriers lie between.
    pub(crate) last: EdgeKind,
}

/// Vertices a search may start from; a shortest cycle in a huge component is not worth minutes.
const STARTS_MAX: usize = 128;
/// Vertices all searches together may visit.
const VISITS_MAX: usize = 4_000_000;

/// A shortest cycle through the component, among those through its most suspicious operations: every cycle has an
/// edge that goes back in time, and the one that goes back furthest is where the trouble is.
pub(crate) fn shortest_cycle(
    graph: &Graph,
    set: EdgeSet,
    component: &[u32],
    interval: impl Fn(u32) -> (u64, u64),
) -> Vec<Step> {
    let mut inside = vec![false; graph.len()];
    for vertex in component {
        inside[*vertex as usize] = true;
    }
    let mut starts: Vec<(i128, u32)> = Vec::new();
    for vertex in component.iter().copied().filter(|vertex| graph.is_operation(*vertex)) {
        let (invoked, _) = interval(vertex);
        let back = graph
            .out(vertex, set)
            .filter(|(to, _)| graph.is_operation(*to) && inside[*to as usize])
            .map(|(to, _)| i128::from(interval(to).1) - i128::from(invoked))
            .min();
        starts.push((back.unwrap_or(i128::MAX), vertex));
    }
    starts.sort_unstable();
    let mut best: Vec<(u32, EdgeKind)> = Vec::new();
    let mut best_length = usize::MAX;
    let mut visits = 0;
    for (_, root) in starts.into_iter().take(STARTS_MAX) {
        // The first search must end, whatever it costs; the others only improve on it.
        if best_length <= 2 || best_length < usize::MAX && visits > VISITS_MAX {
            break;
        }
        if let Some((length, path)) = around(graph, set, &inside, root, best_length, &mut visits) {
            (best_length, best) = (length, path);
        }
    }
    steps(graph, &best)
}

/// The shortest way from `root` back to itself: the vertices after `root`, each with the edge that enters it.
fn around(
    graph: &Graph,
    set: EdgeSet,
    inside: &[bool],
    root: u32,
    shorter_than: usize,
    visits: &mut usize,
) -> Option<(usize, Vec<(u32, EdgeKind)>)> {
    // 0-1 breadth first: entering an operation costs one, entering anything else nothing.
    let mut came: HashMap<u32, (u32, EdgeKind, usize), FixedState> = HashMap::with_hasher(FixedState);
    let mut queue = VecDeque::from([(root, 0usize)]);
    while let Some((vertex, length)) = queue.pop_front() {
        *visits += 1;
        if length + 1 >= shorter_than {
            return None;
        }
        if came.get(&vertex).is_some_and(|(_, _, known)| *known < length) {
            continue;
        }
        for (to, kind) in graph.out(vertex, set) {
            if !inside[to as usize] {
                continue;
            }
            let real = graph.is_operation(to);
            let reached = length + usize::from(real);
            if came.get(&to).is_some_and(|(_, _, known)| *known <= reached) {
                continue;
            }
            came.insert(to, (vertex, kind, reached));
            if to == root {
                let mut path = vec![(root, kind)];
                let mut at = vertex;
                while at != root {
                    let (before, kind, _) = came[&at];
                    path.push((at, kind));
                    at = before;
                }
                path.reverse();
                return Some((reached, path));
            }
            if real { queue.push_back((to, reached)) } else { queue.push_front((to, reached)) }
        }
    }
    None
}

fn steps(graph: &Graph, path: &[(u32, EdgeKind)]) -> Vec<Step> {
    let Some((root, _)) = path.last() else { return Vec::new() };
    let mut steps = Vec::new();
    let (mut from, mut first) = (*root, None);
    for (vertex, kind) in path {
        let leaving = *first.get_or_insert(*kind);
        if graph.is_operation(*vertex) {
            steps.push(Step { from, to: *vertex, first: leaving, last: *kind });
            (from, first) = (*vertex, None);
        }
    }
    steps
}
