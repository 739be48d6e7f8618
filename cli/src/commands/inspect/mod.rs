//! `ordinate inspect`: what is in a host's data directory, or in a file of the archive, and what is damaged. Nothing is changed.

mod archived;
mod stored;

use super::kv::Output;
use crate::failure::Failure;
use kernel::{HostSlot, Position};
use runtime::journal::{SegmentState, SegmentSurvey, SlotSurvey, Survey};
use runtime::{DataError, IdleDirectory, JournalError};
use serde_json::{Value, json};
use server::services::owner_of;
use server::services::records::{DescribedRecord, RecordOwner, SnapshotEffect};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stored::StoredSegment;

/// Read a host's data directory while nobody serves it, and report what is damaged
#[derive(clap::Args)]
pub struct Inspect {
    /// The host's data directory: the one with ordinate.meta in it. Or a file of the archive of trimmed segments
    path: PathBuf,
    /// Print the records that are still needed, one a line, instead of the summary
    #[arg(long)]
    records: bool,
    /// Only the records of this slot, as in 4 or 0x201000
    #[arg(long, value_parser = slot)]
    slot: Option<HostSlot>,
    /// Output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

fn slot(text: &str) -> Result<HostSlot, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(HostSlot).map_err(|_| "wanted: a number like 4 or 0x201000".to_owned())
}

/// Why the records cannot be shown further.
struct Undecoded {
    slot: HostSlot,
    position: Position,
    why: String,
}

/// A snapshot in the journal.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    below: u64,
    chunks: u64,
    bytes: u64,
}

/// What the records of one slot come to.
#[derive(Default)]
struct Tally {
    records: u64,
    bytes: u64,
    /// The last one that is complete.
    snapshot: Option<Snapshot>,
    /// One that was begun later, if any.
    unfinished: Option<Snapshot>,
}

impl Tally {
    fn add(&mut self, record: &[u8], step: SnapshotEffect) {
        self.records += 1;
        self.bytes += record.len() as u64;
        match step {
            SnapshotEffect::Apart => {}
            SnapshotEffect::Begin(below) => self.unfinished = Some(Snapshot { below, ..Snapshot::default() }),
            SnapshotEffect::Chunk(bytes) => {
                if let Some(snapshot) = &mut self.unfinished {
                    snapshot.chunks += 1;
                    snapshot.bytes += bytes;
                }
            }
            SnapshotEffect::End => self.snapshot = self.unfinished.take().or(self.snapshot),
        }
    }
}

impl Inspect {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        if self.path.is_file() {
            return archived::inspect(&self.path, self.output);
        }
        let directory = IdleDirectory::open(&self.path).map_err(|error| self.unusable(&error))?;
        let survey = directory.survey();
        let mut tallies: BTreeMap<HostSlot, Tally> = BTreeMap::new();
        let reported = survey.replay(|slot, position, record| {
            let owner = owner_of(slot);
            let reported = owner.notify(record);
            if self.records && self.slot.is_none_or(|wanted| wanted == slot) {
                let line =
                    reported.as_ref().map_or_else(|why| format!("UNREADABLE: {why}"), |it| it.line.clone());
                self.print_record(slot, &owner, position, record, &line);
            }
            let DescribedRecord { step, .. } =
                reported.map_err(|why| Undecoded { slot, position, why: why.to_string() })?;
            tallies.entry(slot).or_default().add(record, step);
            Ok(())
        });
        let stored = stored::survey(&directory, self.slot).map_err(|error| {
            let what = format!("the segments in {} cannot be read", self.path.display());
            Failure::failed("O2107", what, error.to_string(), "ordinate inspect DATA/HOST")
        })?;
        if !self.records {
            self.print(&directory, &survey, &tallies, &stored);
        }
        let damaged = |error: &JournalError| self.damaged(error);
        survey.outcome.as_ref().map_err(damaged)?;
        reported.map_err(|error| damaged(&error))?.map_err(|Undecoded { slot, position, why }| {
            let what = format!("record {} of slot {:#x} cannot be read", position.0, slot.0);
            Failure::failed("O2109", what, format!("{}: {why}", owner_of(slot).name), "ordinate --version")
        })?;
        match stored.iter().find_map(|segment| Some((&segment.file, segment.contents.as_ref().err()?))) {
            None => Ok(()),
            Some((file, why)) => {
                let what = format!("a segment in {} is damaged", self.path.display());
                let remedy = "start the host: it takes what is damaged from others";
                Err(Failure::failed("O2110", what, format!("{file} {why}"), remedy))
            }
        }
    }

    fn unusable(&self, error: &DataError) -> Failure {
        unusable(&self.path, error)
    }

    fn damaged(&self, error: &JournalError) -> Failure {
        damaged(&self.path, error)
    }

    fn print_record(
        &self,
        slot: HostSlot,
        owner: &RecordOwner,
        position: Position,
        record: &[u8],
        line: &str,
    ) {
        let (slot, position, bytes, role) = (slot.0, position.0, record.len(), &owner.name);
        match self.output {
            Output::Table => println!("{slot:#x} {role}   {position}   {bytes} bytes   {line}"),
            Output::Json => println!(
                "{}",
                json!({ "slot": slot, "role": role, "position": position, "bytes": bytes, "record": line })
            ),
        }
    }

    fn print(
        &self,
        directory: &IdleDirectory,
        survey: &Survey<'_>,
        tallies: &BTreeMap<HostSlot, Tally>,
        stored: &[StoredSegment],
    ) {
        let none = Tally::default();
        let slots: Vec<(SlotSurvey, &Tally)> = survey
            .host_slots()
            .filter(|it| self.slot.is_none_or(|wanted| wanted == it.host_slot))
            .map(|it| (it, tallies.get(&it.host_slot).unwrap_or(&none)))
            .collect();
        let (owner, segments) = (&directory.owner, survey.segments());
        let incarnation = format!("{:032x}", owner.incarnation.0);
        match self.output {
            Output::Table => {
                println!("host      {} of cluster {}   incarnation {incarnation}", owner.host, owner.cluster);
                segments.iter().for_each(print_segment);
                slots.iter().for_each(|(at, tally)| print_slot(at, tally));
                stored.iter().for_each(StoredSegment::print);
            }
            Output::Json => {
                let damage = survey.outcome.as_ref().err().map(ToString::to_string);
                let segments: Vec<Value> = segments.iter().map(segment_json).collect();
                let slots: Vec<Value> = slots.iter().map(|(at, tally)| slot_json(at, tally)).collect();
                let stored: Vec<Value> = stored.iter().map(StoredSegment::to_json).collect();
                let page = json!({ "host": owner.host, "cluster": owner.cluster, "incarnation": incarnation,
                    "joined": owner.joined, "segments": segments, "slots": slots, "stored": stored,
                    "damage": damage });
                println!("{page}");
            }
        }
    }
}

/// Why a data directory cannot be read.
pub(super) fn unusable(path: &Path, error: &DataError) -> Failure {
    let what = format!("{} cannot be inspected", path.display());
    let (code, remedy) = match error {
        DataError::InUse { .. } => ("O2106", "stop the host first, or inspect a copy of the folder"),
        DataError::NotOne { .. }
        | DataError::Io { .. }
        | DataError::OtherOwner { .. }
        | DataError::OtherSettings { .. }
        | DataError::NewerFormat { .. }
        | DataError::Damaged { .. } => ("O2107", "ordinate inspect DATA/HOST"),
    };
    Failure::failed(code, what, error.to_string(), remedy)
}

/// Why its journal cannot.
pub(super) fn damaged(path: &Path, error: &JournalError) -> Failure {
    let path = path.display();
    match error {
        JournalError::Damaged { .. } => {
            let remedy =
                "keep the folder, and replace the host: ordinate cluster members replace OLD NEW=ADDRESS";
            Failure::failed("O2108", format!("the journal in {path} is damaged"), error.to_string(), remedy)
        }
        JournalError::Io { .. } | JournalError::NewerFormat { .. } => {
            let what = format!("the journal in {path} cannot be read");
            Failure::failed("O2107", what, error.to_string(), "ordinate inspect DATA/HOST")
        }
    }
}

fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Full => "full",
        SegmentState::Tail => "tail",
        SegmentState::Prepared => "prepared",
    }
}

fn print_segment(segment: &SegmentSurvey) {
    let SegmentSurvey { file, bytes, end, batches, records, torn, state, .. } = segment;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let torn = if *torn { format!("   torn at {end}: was never acknowledged") } else { String::new() };
    let state = state_name(*state);
    println!("  {name}   {state}   {end} of {bytes} bytes   {batches} batches   {records} records{torn}");
}

fn segment_json(segment: &SegmentSurvey) -> Value {
    let SegmentSurvey { file, generation, bytes, end, batches, records, torn, state } = segment;
    json!({ "file": file.display().to_string(), "generation": generation.0, "bytes": bytes, "end": end,
        "batches": batches, "records": records, "torn": torn, "state": state_name(*state) })
}

fn print_slot(at: &SlotSurvey, tally: &Tally) {
    let SlotSurvey { host_slot: slot, trimmed, next } = at;
    let name = format!("{:#x} {}", slot.0, owner_of(*slot).name);
    let (records, bytes) = (tally.records, tally.bytes);
    let words = |what: &str, snapshot: Option<Snapshot>| {
        snapshot.map_or_else(String::new, |Snapshot { below, chunks, bytes }| {
            format!("   {what} below {below}: {chunks} chunks, {bytes} bytes")
        })
    };
    let snapshot = words("snapshot", tally.snapshot);
    let unfinished = words("unfinished snapshot", tally.unfinished);
    println!(
        "  {name:<36} {records} records, {bytes} bytes, positions {} to {}{snapshot}{unfinished}",
        trimmed.0, next.0
    );
}

fn slot_json(at: &SlotSurvey, tally: &Tally) -> Value {
    let snapshot = |it: Option<Snapshot>| {
        it.map(|it| json!({ "below": it.below, "chunks": it.chunks, "bytes": it.bytes }))
    };
    json!({ "slot": at.host_slot.0, "role": owner_of(at.host_slot).name, "trimmed": at.trimmed.0, "next": at.next.0,
        "records": tally.records, "bytes": tally.bytes, "snapshot": snapshot(tally.snapshot),
        "unfinished_snapshot": snapshot(tally.unfinished) })
}
