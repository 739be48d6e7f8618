//! A witness as a graph for Graphviz.

use crate::explain::operation_line;
use crate::history::History;
use crate::json::quoted;
use crate::witness::Witness;
use std::io::{self, Write};

/// Writes the witness: its operations, and one edge per reason.
pub fn write_dot<W: Write>(history: &History, witness: &Witness, out: &mut W) -> io::Result<()> {
    writeln!(out, "digraph witness {{\n  label={};\n  node [shape=box];", quoted(&witness.summary))?;
    let mut operations = witness.operations.clone();
    operations.sort_unstable();
    operations.dedup();
    for op in operations {
        writeln!(out, "  T{} [label={}];", op.0, quoted(&operation_line(history, op)))?;
    }
    for reason in &witness.cycle {
        let label = reason.sentence.split_once(": ").map_or(&*reason.sentence, |(_, why)| why);
        writeln!(out, "  T{} -> T{} [label={}];", reason.before.0, reason.after.0, quoted(label))?;
    }
    writeln!(out, "}}")
}
