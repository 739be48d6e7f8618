//! A file of the archive: which entries of which log it holds, and whether it is what was written.

use crate::commands::kv::Output;
use crate::failure::Failure;
use kernel::Bytes;
use serde_json::json;
use shared_log::archive::ArchivedSegment;
use std::path::Path;

/// Reads it whole, and prints a line.
pub fn inspect(path: &Path, output: Output) -> Result<(), Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        let what = format!("{} cannot be inspected", path.display());
        Failure::failed(
            "O2107",
            what,
            error.to_string(),
            "ordinate inspect DATA/HOST, or a file of the archive",
        )
    })?;
    let (segment, _) = ArchivedSegment::read(&Bytes::from(bytes)).map_err(|error| {
        let what = format!("{} is no sound segment of the archive", path.display());
        let remedy = "restore the object from the archive's own copies";
        Failure::failed("O2110", what, format!("it {error}"), remedy)
    })?;
    let incarnation = segment.incarnation();
    let ArchivedSegment { cluster, log, first, next, last_ms, bytes, digest, .. } = &segment;
    match output {
        Output::Table => println!(
            "segment   log {log} of cluster {cluster}   incarnation {incarnation}   positions {first} to {next}   {bytes} bytes   \
             last appended {last_ms} ms after 1970"
        ),
        Output::Json => println!(
            "{}",
            json!({ "cluster": cluster, "log": log, "incarnation": incarnation.to_string(), "first": first, "next": next,
                "last_ms": last_ms, "bytes": bytes, "digest": format!("{digest:016x}") })
        ),
    }
    Ok(())
}
