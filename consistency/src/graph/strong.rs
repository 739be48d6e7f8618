//! Cycles: a quick test for their absence, and Tarjan's strong components where there are some.

use super::{Edges, Graph};
use crate::model::EdgeSet;

/// All vertices in an order that every edge of `set` respects, or nothing if there is a cycle.
pub(crate) fn topological_order(graph: &Graph, set: EdgeSet) -> Option<Vec<u32>> {
    let mut waiting = vec![0u32; graph.len()];
    for vertex in 0..graph.len() as u32 {
        for (to, _) in graph.out(vertex, set) {
            waiting[to as usize] += 1;
        }
    }
    let mut order: Vec<u32> = Vec::with_capacity(graph.len());
    order.extend((0..graph.len() as u32).filter(|vertex| waiting[*vertex as usize] == 0));
    let mut at = 0;
    while at < order.len() {
        for (to, _) in graph.out(order[at], set) {
            waiting[to as usize] -= 1;
            if waiting[to as usize] == 0 {
                order.push(to);
            }
        }
        at += 1;
    }
    (order.len() == graph.len()).then_some(order)
}

/// True when the edges of `set` make no cycle.
pub(crate) fn is_acyclic(graph: &Graph, set: EdgeSet) -> bool {
    topological_order(graph, set).is_some()
}

/// The part of a graph where all its cycles lie: usually a tiny one.
#[derive(Debug)]
pub(crate) struct Residue {
    pub(crate) graph: Graph,
    /// The vertex of the whole graph behind each of this one.
    pub(crate) whole: Vec<u32>,
}

/// What is left when vertices that no edge enters, and vertices that no edge leaves, are peeled off again and
/// again. Nothing is left of a graph without a cycle.
pub(crate) fn residue(graph: &Graph, set: EdgeSet) -> Residue {
    let mut entering = vec![0u32; graph.len()];
    for vertex in 0..graph.len() as u32 {
        graph.out(vertex, set).for_each(|(to, _)| entering[to as usize] += 1);
    }
    let mut peeled: Vec<u32> =
        (0..graph.len() as u32).filter(|vertex| entering[*vertex as usize] == 0).collect();
    let mut left = vec![true; graph.len()];
    while let Some(vertex) = peeled.pop() {
        left[vertex as usize] = false;
        for (to, _) in graph.out(vertex, set) {
            entering[to as usize] -= 1;
            if entering[to as usize] == 0 {
                peeled.push(to);
            }
        }
    }
    let retained: Vec<u32> = (0..graph.len() as u32).filter(|vertex| left[*vertex as usize]).collect();
    // Backwards through what is left; its own reverse edges, for the whole graph keeps none.
    let mut leaving = vec![0u32; graph.len()];
    let mut into: Vec<(u32, u32)> = Vec::new();
    for vertex in &retained {
        for (to, _) in graph.out(*vertex, set).filter(|(to, _)| left[*to as usize]) {
            leaving[*vertex as usize] += 1;
            into.push((to, *vertex));
        }
    }
    into.sort_unstable();
    let mut peeled: Vec<u32> =
        retained.iter().copied().filter(|vertex| leaving[*vertex as usize] == 0).collect();
    while let Some(vertex) = peeled.pop() {
        left[vertex as usize] = false;
        let first = into.partition_point(|(to, _)| *to < vertex);
        for (_, from) in into[first..].iter().take_while(|(to, _)| *to == vertex) {
            leaving[*from as usize] -= 1;
            if leaving[*from as usize] == 0 {
                peeled.push(*from);
            }
        }
    }
    let whole: Vec<u32> = retained.into_iter().filter(|vertex| left[*vertex as usize]).collect();
    let operations = whole.iter().filter(|vertex| graph.is_operation(**vertex)).count();
    let mut edges = Edges { vertices: whole.len(), ..Edges::default() };
    for (from, vertex) in whole.iter().enumerate() {
        for (to, kind) in graph.out(*vertex, set) {
            if let Ok(to) = whole.binary_search(&to) {
                edges.add(from as u32, to as u32, kind);
            }
        }
    }
    Residue { graph: edges.into_graph(operations), whole }
}

/// The strong component with the fewest operations among those with a cycle.
pub(crate) fn smallest_component(graph: &Graph, set: EdgeSet) -> Option<Vec<u32>> {
    let components = Tarjan::run(graph, set);
    components.into_iter().min_by_key(|component| {
        (component.iter().filter(|vertex| graph.is_operation(**vertex)).count(), component.len())
    })
}

struct Tarjan {
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
    next: u32,
    components: Vec<Vec<u32>>,
}

const UNSEEN: u32 = u32::MAX;

impl Tarjan {
    fn run(graph: &Graph, set: EdgeSet) -> Vec<Vec<u32>> {
        let mut tarjan = Tarjan {
            index: vec![UNSEEN; graph.len()],
            low: vec![0; graph.len()],
            on_stack: vec![false; graph.len()],
            stack: Vec::new(),
            next: 0,
            components: Vec::new(),
        };
        for vertex in 0..graph.len() as u32 {
            if tarjan.index[vertex as usize] == UNSEEN {
                tarjan.visit(graph, set, vertex);
            }
        }
        tarjan.components
    }

    fn enter(&mut self, vertex: u32) {
        self.index[vertex as usize] = self.next;
        self.low[vertex as usize] = self.next;
        self.next += 1;
        self.on_stack[vertex as usize] = true;
        self.stack.push(vertex);
    }

    fn visit(&mut self, graph: &Graph, set: EdgeSet, root: u32) {
        // The call stack is a vector: chains of barriers are as long as the history.
        self.enter(root);
        let mut calls: Vec<(u32, usize)> = vec![(root, graph.start[root as usize] as usize)];
        while let Some((vertex, edge)) = calls.last_mut() {
            let (from, end) = (*vertex, graph.start[*vertex as usize + 1] as usize);
            if *edge < end {
                let (to, kind) = (graph.to[*edge], graph.kind[*edge]);
                *edge += 1;
                if !set.has(kind) {
                    continue;
                }
                if self.index[to as usize] == UNSEEN {
                    self.enter(to);
                    calls.push((to, graph.start[to as usize] as usize));
                } else if self.on_stack[to as usize] {
                    self.low[from as usize] = self.low[from as usize].min(self.index[to as usize]);
                }
                continue;
            }
            calls.pop();
            if let Some((parent, _)) = calls.last() {
                self.low[*parent as usize] = self.low[*parent as usize].min(self.low[from as usize]);
            }
            if self.low[from as usize] == self.index[from as usize] {
                self.leave(graph, set, from);
            }
        }
    }

    fn leave(&mut self, graph: &Graph, set: EdgeSet, root: u32) {
        let at = self.stack.iter().rposition(|vertex| *vertex == root).unwrap_or(0);
        let component = self.stack.split_off(at);
        for vertex in &component {
            self.on_stack[*vertex as usize] = false;
        }
        let cyclic = component.len() > 1 || graph.out(root, set).any(|(to, _)| to == root);
        if cyclic {
            self.components.push(component);
        }
    }
}
