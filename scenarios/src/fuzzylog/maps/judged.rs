//! What users of maps saw, as each kind says; and views as they are stored.

use super::super::truth::Truth;
use super::port::ColourNames;
use super::process::{Call, Kind};
use ::fuzzylog::Colour;
use consistency::history::{Draft, History};
use consistency::{Model, Process, Time, Verdict, check, operation_line};
use kernel::{Bytes, Decode as _, invariant};
use ordinate_client::maps::{LatestValues, MapView, ObservedChanges, ObservedKeys, TxView, ViewNode};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// All of a run.
#[derive(Default)]
pub(super) struct Judged {
    drafts: BTreeMap<Kind, Vec<Draft>>,
    text: String,
    values: u64,
    lost: bool,
    /// How far colours of views were read.
    checked: BTreeMap<Colour, usize>,
}

/// Keys that are removed now and then are no part of histories: nothing says which removal a read has seen.
fn is_judged(key: &str) -> bool {
    key.starts_with('k')
}

impl Judged {
    /// A value that nobody else writes.
    pub(super) fn value(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    pub(super) fn lost_a_process(&mut self) {
        self.lost = true;
    }

    /// True if a process was lost since this was asked last.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// A call that was executed, or may have been.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        call: &Call,
        found: Option<&[Option<Bytes>]>,
        who: u64,
        (begun, ended): (u64, u64),
        is_known: bool,
    ) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{kind:?} {who:x} {begun} {ended} {call:?} -> {found:?} {is_known}");
        let (reads, writes): (&[String], &[(String, String)]) = match call {
            Call::Put(writes) => (&[], writes),
            Call::Get(reads) => (reads, &[]),
            Call::Transact(reads, writes) => (reads, writes),
            Call::Delete(_) | Call::Sync | Call::StoreViews => return,
        };
        // A read that nobody has answered says nothing, and a transaction that has not read was not appended.
        if (writes.is_empty() && !is_known) || (!reads.is_empty() && found.is_none()) {
            return;
        }
        if writes.iter().any(|(key, _)| !is_judged(key)) {
            return;
        }
        let mut draft = Draft::new(Process(who), Time(begun), Time(ended));
        for (key, value) in reads.iter().zip(found.unwrap_or_default()) {
            draft = match value {
                Some(value) => draft.read(key.clone(), String::from_utf8_lossy(value).into_owned()),
                None => draft.read_nothing(key.clone()),
            };
        }
        for (key, value) in writes {
            draft = draft.write(key.clone(), value.clone());
        }
        let draft = if is_known { draft } else { draft.unknown() };
        self.drafts.entry(kind).or_default().push(draft);
    }

    /// Each kind is what it says.
    pub(super) fn check(&mut self, is_strict: bool) {
        for (kind, drafts) in std::mem::take(&mut self.drafts) {
            match kind {
                Kind::Log | Kind::Sharded => decide(drafts, Model::Linearizable, "LIN"),
                Kind::Atomic if is_strict => decide(drafts, Model::StrictSerializable, "SSER"),
                Kind::Atomic => decide(drafts, Model::ProcessOrderedSerializable, "SER"),
                Kind::Tx => decide(drafts, Model::StrictSerializable, "SSER"),
                Kind::Crdt | Kind::TxCrdt => decide(drafts, Model::CausalPlus, "CAUSAL"),
            }
        }
    }

    /// Each view that was stored since is what the nodes that it covers make.
    pub(super) fn check_views(&mut self, names: &ColourNames, truth: &Truth) {
        for (name, views) in names.all().filter(|(name, _)| name.ends_with(".view")) {
            let stored = truth.nodes(views);
            let checked = self.checked.entry(views).or_default();
            while let Some(node) = stored.get(*checked) {
                if let Ok(ViewNode::ViewStored(end)) = ViewNode::decoded(&node.body) {
                    let of = name.trim_end_matches(".view");
                    let colour = names.all().find(|(it, _)| *it == of).map(|(_, colour)| colour);
                    let nodes = colour.map(|colour| truth.nodes(colour)).unwrap_or_default();
                    let Some(covered) = nodes.get(..end.covers as usize) else {
                        // They are not known to be on a disk yet.
                        break;
                    };
                    let chunks = stored[end.view as usize..*checked].iter();
                    let bytes = |body: &Bytes| match ViewNode::decoded(body) {
                        Ok(ViewNode::ViewChunk(chunk)) if chunk.view == end.view => chunk.bytes.to_vec(),
                        Ok(_) | Err(_) => Vec::new(),
                    };
                    let held: Vec<u8> = chunks.flat_map(|node| bytes(&node.body)).collect();
                    let mut view = empty_view(of);
                    for (position, node) in (0..).zip(covered) {
                        view.play(&names.node(position, node));
                    }
                    invariant!(
                        VIEW,
                        held == view.stored(),
                        "the view of {of} that is stored at {} is not what the {} nodes below make",
                        *checked,
                        end.covers
                    );
                }
                *checked += 1;
            }
        }
    }

    pub(super) fn to_text(&self) -> String {
        self.text.clone()
    }
}

/// A view of a colour without a node.
fn empty_view(colour: &str) -> Box<dyn MapView> {
    let kind = colour.split('.').next().unwrap_or_default();
    match kind {
        "tx" => Box::new(TxView::of(colour)),
        "crdt" => Box::new(ObservedKeys::default()),
        "tx-crdt" => Box::new(ObservedChanges::default()),
        _ => Box::new(LatestValues::default()),
    }
}

fn decide(drafts: Vec<Draft>, model: Model, invariant: &str) {
    let mut recorded = History::new();
    drafts.into_iter().for_each(|draft| {
        recorded.add(draft);
    });
    match check(&recorded, model) {
        Ok(Verdict::Holds) => {}
        Ok(Verdict::Violated(witness)) => {
            let lines: Vec<String> =
                witness.operations.iter().map(|it| operation_line(&recorded, *it)).collect();
            panic!("{invariant}: {}\n{}", witness.summary, lines.join("\n"));
        }
        Ok(Verdict::Undecided(why)) => panic!("{invariant}: undecided, {why}"),
        Err(error) => panic!("{invariant}: {error}"),
    }
}
