//! The segments beside the journal, of logs and of partitions: whose each is, what it holds, and whether it is what was written.

use kernel::{BlobId, HostSlot};
use runtime::IdleDirectory;
use runtime::blobs::{BlobError, BlobFile, parse_file_name};
use runtime::disk::Disk as _;
use serde_json::{Value, json};
use server::services::owner_of;
use shared_log::Rows;
use std::io;

/// A segment of a log or of a partition.
pub struct StoredSegment {
    /// The name of its file.
    pub file: String,
    slot: HostSlot,
    id: BlobId,
    /// Its entries or nodes, and its bytes, or what is wrong with it.
    pub contents: Result<(u64, u64), String>,
}

/// Reads every segment of the directory, or of one slot, in the order of their names.
pub fn survey(directory: &IdleDirectory, wanted: Option<HostSlot>) -> io::Result<Vec<StoredSegment>> {
    let mut names = match directory.segments.names() {
        // Directories of earlier versions, and of hosts that keep everything in memory, have none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    names.sort_unstable();
    let segments = names.into_iter().filter_map(|file| {
        let (slot, id) = parse_file_name(&file)?;
        let contents = || contents_of(directory, slot, id).map_err(|error| error.to_string());
        wanted.is_none_or(|wanted| wanted == slot).then(|| StoredSegment {
            contents: contents(),
            file,
            slot,
            id,
        })
    });
    Ok(segments.collect())
}

fn contents_of(directory: &IdleDirectory, slot: HostSlot, id: BlobId) -> Result<(u64, u64), BlobError> {
    let file = BlobFile::open(&directory.segments, slot, id)?;
    let rows = file.read(0, file.bytes())?;
    let entries = match owner_of(slot).nodes_in() {
        Some(nodes_in) => nodes_in(&rows).ok(),
        None => Rows::count(&rows).map(|entries| entries as u64),
    };
    let entries = entries.ok_or_else(|| BlobError::Damaged("it holds no entries".to_owned()))?;
    Ok((entries, file.bytes()))
}

impl StoredSegment {
    /// Prints a line.
    pub fn print(&self) {
        let Self { file, slot, id, contents } = self;
        let owner = owner_of(*slot);
        let (is_of_partition, owner) = (owner.nodes_in().is_some(), owner.name);
        match contents {
            Ok((nodes, bytes)) if is_of_partition => {
                println!("  {file}   {owner}   {nodes} nodes   {bytes} bytes");
            }
            Err(why) if is_of_partition => println!("  {file}   {owner}   DAMAGED: it {why}"),
            Ok((entries, bytes)) => println!(
                "  {file}   {owner}   log number {}   positions {} to {}   {bytes} bytes",
                id.series,
                id.first,
                id.first + entries
            ),
            Err(why) => println!("  {file}   {owner}   log number {}   DAMAGED: it {why}", id.series),
        }
    }

    /// For scripts.
    pub fn to_json(&self) -> Value {
        let Self { file, slot, id, contents } = self;
        if owner_of(*slot).nodes_in().is_some() {
            let (nodes, bytes) = contents.as_ref().map_or((None, None), |(n, bytes)| (Some(n), Some(bytes)));
            return json!({ "file": file, "slot": slot.0, "role": owner_of(*slot).name, "nodes": nodes,
                "bytes": bytes, "damage": contents.as_ref().err() });
        }
        let (next, bytes) =
            contents.as_ref().map_or((None, None), |(n, bytes)| (Some(id.first + n), Some(bytes)));
        json!({ "file": file, "slot": slot.0, "role": owner_of(*slot).name, "log": id.series, "first": id.first,
            "next": next, "bytes": bytes, "damage": contents.as_ref().err() })
    }
}
