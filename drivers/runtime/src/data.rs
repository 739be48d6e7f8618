//! The data directory: whose it is, and that only one process uses it.

use crate::disk::ReadOnlyDisk;
use crate::journal::Survey;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A number drawn when a data directory is made. A host that comes back with another one has lost its disk, and with
/// it every promise it made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u128);

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The disk refused.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no data directory of a host.
    #[error("{} is no data directory of a host: it has no file {META}", path.display())]
    NotOne {
        /// What was named.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It belongs to another host or cluster.
    #[error("{} belongs to host {found}, not to {wanted}", path.display())]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// As `cluster/host`.
        found: String,
        /// As `cluster/host`.
        wanted: String,
    },
    /// Written by a later version.
    #[error("{} has format {found}; this version reads up to {FORMAT}", path.display())]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file that says whose it is makes no sense.
    #[error("{} is damaged: {cause}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
}

const FORMAT: u32 = 1;
const LOCK: &str = "ordinate.lock";
const META: &str = "ordinate.meta";
/// The line that says that a host joined a living cluster.
const JOINED: &str = "began by-joining";
const META_UNFINISHED: &str = "ordinate.meta.unfinished";

/// The directory below it that holds the journal.
pub(crate) const JOURNAL: &str = "journal";
/// The directory below it that holds the blobs of all roles: the segments of the logs.
pub(crate) const SEGMENTS: &str = "segments";

/// Whose a data directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The cluster's name.
    pub cluster: String,
    /// The host's name.
    pub host: String,
    /// Drawn when the directory was made.
    pub incarnation: Incarnation,
    /// The host came to a living cluster.
    pub joined: bool,
}

/// A data directory that is only read. No host can open it until this is dropped.
#[derive(Debug)]
pub struct IdleDirectory {
    /// Whose it is.
    pub owner: Owner,
    /// Its journal, read-only.
    pub journal: ReadOnlyDisk,
    /// Its blobs, read-only.
    pub segments: ReadOnlyDisk,
    _lock: Option<File>,
}

impl IdleDirectory {
    /// Opens the data directory at `path`, of any host. [`DataError::InUse`] while a host has it open. Writes nothing.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let io = |source| DataError::Io { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(io)?.is_dir() {
            return Err(DataError::NotOne { path: path.to_owned() });
        }
        // A copy may lack the file, and nobody serves a copy under our eyes.
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io(error)),
        };
        match lock.as_ref().map(File::try_lock_shared) {
            None | Some(Ok(())) => {}
            Some(Err(TryLockError::WouldBlock)) => return Err(DataError::InUse { path: path.to_owned() }),
            Some(Err(TryLockError::Error(source))) => return Err(io(source)),
        }
        let text = read_meta(path).map_err(io)?.ok_or_else(|| DataError::NotOne { path: path.to_owned() })?;
        let owner = Owner::parse(path, &text)?;
        let part = |name| ReadOnlyDisk::new(path.join(name));
        Ok(Self { owner, journal: part(JOURNAL), segments: part(SEGMENTS), _lock: lock })
    }

    /// What is in the journal.
    pub fn survey(&self) -> Survey<'_> {
        Survey::of(&self.journal, self.owner.incarnation.0)
    }
}

/// An open data directory; the lock is held until it is dropped, or the process dies.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(crate) incarnation: Incarnation,
    _lock: File,
}

impl DataDirectory {
    /// Opens `path` for a host, or makes it with `fresh` as its incarnation, and as that of a host that joins or does not.
    pub(crate) fn open(
        path: &Path,
        cluster: &str,
        host: &str,
        fresh: Incarnation,
        joins: bool,
    ) -> Result<Self, DataError> {
        let io = |source| DataError::Io { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(io)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let incarnation = match read_meta(path).map_err(io)? {
            Some(text) => {
                let owner = Owner::parse(path, &text)?;
                if (owner.cluster.as_str(), owner.host.as_str()) != (cluster, host) {
                    return Err(DataError::OtherOwner {
                        path: path.to_owned(),
                        found: format!("{}/{}", owner.cluster, owner.host),
                        wanted: format!("{cluster}/{host}"),
                    });
                }
                owner.incarnation
            }
            None => {
                write_meta(path, cluster, host, fresh, joins).map_err(io)?;
                fresh
            }
        };
        Ok(Self { incarnation, _lock: lock })
    }
}

fn read_meta(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(path.join(META)) {
        Ok(mut file) => file.read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the data directory at `path` was made by a host that joined a living cluster ([`HostConfig::joins`]); false if
/// there is none.
///
/// [`HostConfig::joins`]: crate::HostConfig::joins
pub fn has_joined(path: &Path) -> Result<bool, DataError> {
    let text = read_meta(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    // A damaged file is an error of the start that follows.
    Ok(text.is_some_and(|text| text.lines().any(|line| line == JOINED)))
}

fn write_meta(
    path: &Path,
    cluster: &str,
    host: &str,
    incarnation: Incarnation,
    joins: bool,
) -> io::Result<()> {
    let joined = if joins { format!("{JOINED}\n") } else { String::new() };
    let body = format!(
        "format {FORMAT}\ncluster {cluster}\nhost {host}\nincarnation {:032x}\n{joined}",
        incarnation.0
    );
    let text = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
    let mut file = File::create(path.join(META_UNFINISHED))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(path.join(META_UNFINISHED), path.join(META))?;
    File::open(path)?.sync_all()
}

impl Owner {
    fn parse(path: &Path, text: &str) -> Result<Self, DataError> {
        let damaged = |cause: &str| DataError::Damaged { path: path.join(META), cause: cause.to_owned() };
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .ok_or_else(|| damaged(name))
        };
        let format: u32 = line("format")?.parse().map_err(|_| damaged("the format is no number"))?;
        if format > FORMAT {
            return Err(DataError::NewerFormat { path: path.to_owned(), found: format });
        }
        let body = text.find("checksum ").map_or("", |at| &text[..at]);
        if line("checksum")? != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("the checksum does not match"));
        }
        let incarnation = u128::from_str_radix(line("incarnation")?, 16);
        Ok(Self {
            cluster: line("cluster")?.to_owned(),
            host: line("host")?.to_owned(),
            incarnation: Incarnation(incarnation.map_err(|_| damaged("the incarnation is no number"))?),
            joined: text.lines().any(|line| line == JOINED),
        })
    }
}

/// Numbers that no other start of any host draws.
pub(crate) fn random_u128() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
