//! What a ZooKeeper server of 3.5 to 3.9 leaves on its disk: snapshots, and logs of transactions.

mod log;
mod snapshot;
mod tree;

pub use tree::Tree;

use std::io;
use std::path::{Path, PathBuf};

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system refused.
    #[error("{path}: {error}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}, at byte {offset}: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// In words.
        what: String,
    },
    /// There is nothing to begin with.
    #[error("{0}")]
    Missing(String),
}

/// A snapshot or a log, by the name that ZooKeeper gives it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Named {
    zxid: u64,
    path: PathBuf,
}

fn list(folder: &Path, prefix: &str) -> Result<Vec<Named>, FilesError> {
    let failed = |error| FilesError::Io { path: folder.to_owned(), error };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let digits = rest.split('.').next().unwrap_or_default();
        if let Ok(zxid) = u64::from_str_radix(digits, 16) {
            found.push(Named { zxid, path });
        }
    }
    found.sort();
    Ok(found)
}

/// The folder with the files: ZooKeeper keeps them in `version-2` of what is configured.
fn inner(folder: &Path) -> PathBuf {
    let inner = folder.join("version-2");
    if inner.is_dir() { inner } else { folder.to_owned() }
}

/// What was read.
pub struct Loaded {
    /// The nodes.
    pub tree: Tree,
    /// The snapshot that it began with.
    pub snapshot: Option<PathBuf>,
    /// Snapshots that are newer and damaged, with why.
    pub skipped: Vec<String>,
    /// Transactions that were applied.
    pub transactions: u64,
    /// Logs that end in the middle of a transaction, as a crash leaves them.
    pub torn: Vec<PathBuf>,
}

/// Reads the newest sound snapshot of `data`, and the logs of `logs` behind it. `progress` receives bytes read and all bytes.
pub fn load(data: &Path, logs: &Path, mut progress: impl FnMut(u64, u64)) -> Result<Loaded, FilesError> {
    let (data, logs) = (inner(data), inner(logs));
    let snapshots = list(&data, "snapshot.")?;
    let all_logs = list(&logs, "log.")?;
    let mut loaded = Loaded {
        tree: Tree::default(),
        snapshot: None,
        skipped: Vec::new(),
        transactions: 0,
        torn: Vec::new(),
    };
    let mut from = 0;
    for snapshot in snapshots.iter().rev() {
        match snapshot::read(&snapshot.path) {
            Ok(tree) => {
                (loaded.tree, loaded.snapshot, from) = (tree, Some(snapshot.path.clone()), snapshot.zxid);
                break;
            }
            Err(error) => loaded.skipped.push(error.to_string()),
        }
    }
    // Logs are named by their first transaction: the last one that begins at or before the snapshot may hold later ones.
    let first = all_logs.iter().rposition(|log| log.zxid <= from + 1).unwrap_or(0);
    let needed = &all_logs[first.min(all_logs.len())..];
    match (&loaded.snapshot, needed.first()) {
        (None, None) => {
            let skipped = loaded.skipped.join("; ");
            let what = match skipped.is_empty() {
                true => format!(
                    "there is neither a snapshot in {} nor a log in {}",
                    data.display(),
                    logs.display()
                ),
                false => format!("no snapshot in {} is sound: {skipped}", data.display()),
            };
            return Err(FilesError::Missing(what));
        }
        // A log alone is a valid state if it is the whole history: its first transaction is the first of an epoch's.
        (None, Some(log)) if log.zxid & 0xffff_ffff != 1 => {
            return Err(FilesError::Missing(format!(
                "the logs begin at zxid {:#x} ({}), and no sound snapshot holds what was before",
                log.zxid,
                log.path.display()
            )));
        }
        _ => {}
    }
    let length = |log: &Named| std::fs::metadata(&log.path).map_or(0, |found| found.len());
    let total: u64 = needed.iter().map(length).sum();
    let mut done = 0;
    for log in needed {
        let read = log::replay(&log.path, from, &mut loaded.tree, |within| progress(done + within, total))?;
        loaded.transactions += read.applied;
        if read.torn {
            loaded.torn.push(log.path.clone());
        }
        done += length(log);
    }
    Ok(loaded)
}

/// The checksum of ZooKeeper's files, which have it in 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    u64::from(adler2::adler32_slice(bytes))
}
