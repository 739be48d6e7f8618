//! The answer in words, or as JSON.

use super::decide::Answer;
use super::{Outcome, Output};
use crate::check::Report;
use crate::history::OpIndex;
use crate::json::quoted;
use crate::verdict::Verdict;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Sentences and operations shown at most.
const SHOWN_MAX: usize = 20;

pub(crate) fn print(output: Output, path: &Path, answer: &Answer, seconds: f64) -> Outcome {
    let (outcome, error) = match answer {
        Answer::Report(report, _) => (outcome(report), None),
        Answer::BadInput(reason) => (Outcome::BadInput, Some(("bad input", reason))),
        Answer::Failure(reason) => (Outcome::Failure, Some(("failure", reason))),
        Answer::Undecided(reason) => (Outcome::Undecided, Some(("undecided", reason))),
    };
    let path = path.display().to_string();
    match (output, answer, error) {
        (Output::Text, Answer::Report(report, lines), _) => print!("{}", text(&path, report, lines, seconds)),
        (Output::Json, Answer::Report(report, lines), _) => {
            println!("{}", json(&path, report, lines, seconds))
        }
        (Output::Text, _, Some((kind, reason))) => {
            let (code, what, remedy) = match kind {
                "bad input" => ("O9001", "is no history", "docs/checking.md has the formats"),
                "undecided" => {
                    ("O9002", "is undecided", "raise --time-limit, --memory-limit or --search-steps")
                }
                _ => ("O9003", "was not checked", "the same again"),
            };
            eprintln!("error[{code}]: {path} {what}\n  {reason}\n  -> {remedy}");
        }
        (Output::Json, _, Some((kind, reason))) => {
            println!(
                "{{\"file\":{},\"error\":{},\"reason\":{}}}",
                quoted(&path),
                quoted(kind),
                quoted(reason)
            );
        }
        (_, _, None) => {}
    }
    outcome
}

fn outcome(report: &Report) -> Outcome {
    let each = report.verdicts.iter().map(|(_, verdict)| match verdict {
        Verdict::Holds => Outcome::Holds,
        Verdict::Violated(_) => Outcome::Violated,
        Verdict::Undecided(_) => Outcome::Undecided,
    });
    each.max().unwrap_or(Outcome::Undecided)
}

fn text(path: &str, report: &Report, lines: &BTreeMap<OpIndex, String>, seconds: f64) -> String {
    let counts = &report.counts;
    let mut text = format!(
        "{path}: {} ok, {} failed, {} unknown ({} of them seen), {} message ends, {} fences; checked in {seconds:.2} s\n",
        counts.ok, counts.failed, counts.unknown, counts.unknown_observed, counts.messages, counts.fences,
    );
    // Writing to a string cannot fail.
    for warning in &report.warnings {
        let _ = writeln!(text, "  note: {warning}");
    }
    for (model, verdict) in &report.verdicts {
        match verdict {
            Verdict::Holds => {
                let _ = writeln!(text, "  {model}: holds");
            }
            Verdict::Undecided(reason) => {
                let _ = writeln!(text, "  {model}: undecided: {reason}");
            }
            Verdict::Violated(witness) => {
                let _ = writeln!(text, "  {model}: VIOLATED: {}", witness.summary);
                for sentence in witness.sentences.iter().take(SHOWN_MAX) {
                    let _ = writeln!(text, "    {sentence}");
                }
                let mut shown = witness.operations.clone();
                shown.sort_unstable();
                shown.dedup();
                for line in shown.iter().take(SHOWN_MAX).filter_map(|op| lines.get(op)) {
                    let _ = writeln!(text, "      {line}");
                }
            }
        }
    }
    if !report.strongest.is_empty() {
        let names: Vec<&str> = report.strongest.iter().map(|model| model.name()).collect();
        let _ = writeln!(text, "  strongest that holds: {}", names.join(", "));
    }
    text
}

fn json(path: &str, report: &Report, lines: &BTreeMap<OpIndex, String>, seconds: f64) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let verdict = |(model, verdict): &(crate::Model, Verdict)| {
        let model = quoted(model.name());
        match verdict {
            Verdict::Holds => format!("{{\"model\":{model},\"verdict\":\"holds\"}}"),
            Verdict::Undecided(reason) => {
                format!("{{\"model\":{model},\"verdict\":\"undecided\",\"reason\":{}}}", quoted(reason))
            }
            Verdict::Violated(witness) => {
                let sentences = witness.sentences.iter().map(|sentence| quoted(sentence)).collect();
                let operation = |op: &OpIndex| {
                    let line =
                        lines.get(op).map_or(String::new(), |line| format!(",\"text\":{}", quoted(line)));
                    format!("{{\"operation\":{}{line}}}", op.0)
                };
                format!(
                    "{{\"model\":{model},\"verdict\":\"violated\",\"summary\":{},\"sentences\":{},\"operations\":{}}}",
                    quoted(&witness.summary),
                    list(sentences),
                    list(witness.operations.iter().map(operation).collect()),
                )
            }
        }
    };
    let counts = &report.counts;
    format!(
        "{{\"file\":{},\"verdicts\":{},\"strongest\":{},\"warnings\":{},\"ok\":{},\"failed\":{},\"unknown\":{},\
         \"unknown_seen\":{},\"messages\":{},\"fences\":{},\"vertices\":{},\"edges\":{},\"seconds\":{seconds:.3}}}",
        quoted(path),
        list(report.verdicts.iter().map(verdict).collect()),
        list(report.strongest.iter().map(|model| quoted(model.name())).collect()),
        list(report.warnings.iter().map(|warning| quoted(warning)).collect()),
        counts.ok,
        counts.failed,
        counts.unknown,
        counts.unknown_observed,
        counts.messages,
        counts.fences,
        counts.vertices,
        counts.edges,
    )
}
