//! The data directory: whose it is, and that only one process uses it.

use crate::agreement::difference;
use crate::disk::{Disk, ReadOnlyDisk};
use crate::journal::{Journal, JournalError, Survey};
use crate::shortage::Shortage;
use std::collections::BTreeMap;
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
    /// It was made with other settings than the host is started with.
    #[error("{} cannot be used with other settings: {difference}", path.display())]
    OtherSettings {
        /// The directory.
        path: PathBuf,
        /// Each with its two values.
        difference: String,
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

impl DataError {
    /// True if it goes away when somebody makes room.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if Shortage::of(source).is_some())
    }
}

const FORMAT: u32 = 1;
const LOCK: &str = "ordinate.lock";
const META: &str = "ordinate.meta";
/// The line that says that a host joined a living cluster.
const JOINED: &str = "began by-joining";
/// The line that says that the journal says how far it reaches: one that does not has lost that, or all.
const EXTENT_RETAINED: &str = "journal extent-kept";
/// How a line begins that has a setting.
const MADE_WITH: &str = "made-with ";
const META_UNFINISHED: &str = "ordinate.meta.unfinished";

/// The directory below it that holds the journal.
pub(crate) const JOURNAL: &str = "journal";
/// The directory below it that holds the blobs of all roles: the segments of the logs.
pub const SEGMENTS: &str = "segments";

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
    /// The settings that its data cannot be used without, by name.
    pub made_with: BTreeMap<String, String>,
    /// Its journal says how far it reaches.
    pub extent_retained: bool,
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
        let incarnation = self.owner.incarnation.0;
        let mut survey = Survey::of(&self.journal, incarnation);
        if self.owner.extent_retained && survey.outcome.is_ok() {
            survey.outcome = Journal::check_extent_is_there(&self.journal, incarnation);
        }
        survey
    }
}

impl IdleDirectory {
    /// Writes a copy of it into `into`, which must not be there yet, for the host `host` of the cluster `cluster`: of another identity, with
    /// the same records. Whose it is is written last: a copy that was not finished is no data directory. What this host knew of other
    /// hosts' journals is left out, for those are others now.
    pub fn copy_for(&self, from: &Path, into: &Path, cluster: &str, host: &str) -> Result<(), DataError> {
        let io = |source| DataError::Io { path: into.to_owned(), source };
        std::fs::create_dir_all(into.parent().unwrap_or(Path::new("."))).map_err(io)?;
        std::fs::create_dir(into).map_err(io)?;
        for part in [JOURNAL, SEGMENTS] {
            copy_files(&from.join(part), &into.join(part)).map_err(io)?;
        }
        let (cluster, host) = (cluster.to_owned(), host.to_owned());
        Owner { cluster, host, joined: false, ..self.owner.clone() }.write(into).map_err(io)
    }
}

/// Copies the files of a folder, if it is there, durably.
fn copy_files(from: &Path, into: &Path) -> io::Result<()> {
    std::fs::create_dir(into)?;
    let entries = match std::fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let copy = into.join(entry.file_name());
            std::fs::copy(entry.path(), &copy)?;
            File::open(&copy)?.sync_all()?;
        }
    }
    File::open(into)?.sync_all()
}

/// An open data directory; the lock is held until it is dropped, or the process dies.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(crate) incarnation: Incarnation,
    path: PathBuf,
    owner: Owner,
    _lock: File,
}

impl DataDirectory {
    /// Opens `path` for a host, or makes it as `wanted` says. Of one that is there, incarnation and beginning count, and
    /// settings that it was not made with yet are added.
    pub(crate) fn open(path: &Path, wanted: Owner) -> Result<Self, DataError> {
        let io = |source| DataError::Io { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(io)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let owner = match read_meta(path).map_err(io)? {
            Some(text) => {
                let found = Owner::parse(path, &text)?;
                let owner = found.clone().started_as(path, wanted)?;
                if owner != found {
                    owner.write(path).map_err(io)?;
                }
                owner
            }
            None => {
                wanted.write(path).map_err(io)?;
                wanted
            }
        };
        Ok(Self { incarnation: owner.incarnation, path: path.to_owned(), owner, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Before its journal is opened: one that has lost the file that says how far it reaches has perhaps lost all.
    pub(crate) fn check_journal(&self, journal: &dyn Disk) -> Result<(), JournalError> {
        if !self.owner.extent_retained {
            return Ok(());
        }
        Journal::check_extent_is_there(journal, self.incarnation.0)
    }

    /// When it is open: from now on it says how far it reaches.
    pub(crate) fn note_journal(&mut self) -> Result<(), DataError> {
        if self.owner.extent_retained {
            return Ok(());
        }
        self.owner.extent_retained = true;
        self.owner.write(&self.path).map_err(|source| DataError::Io { path: self.path.clone(), source })
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

/// Whose the data directory at `path` is; none if there is none.
pub fn owner_of(path: &Path) -> Result<Option<Owner>, DataError> {
    let text = read_meta(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    text.map(|text| Owner::parse(path, &text)).transpose()
}

impl Owner {
    /// This directory's, when a host is started on it that takes itself for `wanted`.
    fn started_as(mut self, path: &Path, wanted: Self) -> Result<Self, DataError> {
        if (&self.cluster, &self.host) != (&wanted.cluster, &wanted.host) {
            return Err(DataError::OtherOwner {
                path: path.to_owned(),
                found: format!("{}/{}", self.cluster, self.host),
                wanted: format!("{}/{}", wanted.cluster, wanted.host),
            });
        }
        if let Some(difference) = difference(("now", &wanted.made_with), ("in the data", &self.made_with)) {
            return Err(DataError::OtherSettings { path: path.to_owned(), difference });
        }
        self.made_with.extend(wanted.made_with);
        Ok(self)
    }

    /// Puts it instead of what was there, whole or not at all.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut body = format!(
            "format {FORMAT}\ncluster {}\nhost {}\nincarnation {:032x}\n",
            self.cluster, self.host, self.incarnation.0
        );
        if self.joined {
            body += &format!("{JOINED}\n");
        }
        if self.extent_retained {
            body += &format!("{EXTENT_RETAINED}\n");
        }
        for (name, value) in &self.made_with {
            body += &format!("{MADE_WITH}{name} {value}\n");
        }
        let text = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
        let mut file = File::create(path.join(META_UNFINISHED))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(path.join(META_UNFINISHED), path.join(META))?;
        File::open(path)?.sync_all()
    }

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
        let body = text.rfind("checksum ").map_or("", |at| &text[..at]);
        if line("checksum")? != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("the checksum does not match"));
        }
        let incarnation = u128::from_str_radix(line("incarnation")?, 16);
        let made_with = body.lines().filter_map(|line| line.strip_prefix(MADE_WITH)?.split_once(' '));
        Ok(Self {
            cluster: line("cluster")?.to_owned(),
            host: line("host")?.to_owned(),
            incarnation: Incarnation(incarnation.map_err(|_| damaged("the incarnation is no number"))?),
            joined: text.lines().any(|line| line == JOINED),
            extent_retained: text.lines().any(|line| line == EXTENT_RETAINED),
            made_with: made_with.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }
}

/// Numbers that no other start of any host draws.
pub(crate) fn random_u128() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
