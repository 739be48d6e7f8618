//! What the journal asks of a file system, small enough to be replaced by one that injects faults.

pub use space::DiskSpace;

use crate::direct::{BLOCK_BYTES, Blocks};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory.
///
/// **Contract.** Names survive a power loss after `sync_directory`; a file's bytes after its `sync`. After a failed `sync`
/// nobody knows what is on the disk, and calling it again proves nothing.
pub trait Disk: Send + Sync {
    /// The files of the directory, in any order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A new file of `bytes` written and synced zeros, so that later writes within it need no allocation. Replaces a
    /// file of that name. Leaves none behind if it fails.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// A new file of these bytes, synced. Replaces a file of that name. Leaves none behind if it fails.
    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// An existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, replacing a file of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and deletions durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// The file's path, for error messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// Its length.
    fn bytes(&self) -> io::Result<u64>;
    /// Reads up to `into.len()` bytes; fewer only at the end of the file.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `blocks`: block-aligned in memory and in the file.
    fn write(&self, offset: u64, blocks: &[u8]) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// All of it is going to be read: a hint.
    fn read_soon(&self) {}
}

/// Zeros are written in pieces of this size, so that a sync of the journal never waits behind a long one.
const ZERO_PIECE_BYTES: usize = 256 << 10;

/// A directory of the machine; O_DIRECT where its file system has it.
#[derive(Debug)]
pub struct RealDisk {
    directory: PathBuf,
}

impl RealDisk {
    /// The directory, made if it is not there.
    pub fn new(directory: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    fn file(&self, name: &str, options: &mut OpenOptions) -> io::Result<RealFile> {
        let path = self.directory.join(name);
        let plain = options.read(true).write(true).open(&path)?;
        // A file system without O_DIRECT says so when a file is opened (tmpfs) or when it is written (some FUSE).
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).ok();
        Ok(RealFile { plain, direct })
    }
}

impl Disk for RealDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.directory)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.file(name, OpenOptions::new().create(true).truncate(true))?;
        let filled = (|| {
            let mut zeros = Blocks::default();
            zeros.extend_from_slice(&vec![0; ZERO_PIECE_BYTES.min(bytes as usize)]);
            let mut offset = 0;
            while offset < bytes {
                let piece = (bytes - offset).min(zeros.len() as u64) as usize;
                file.write(offset, &zeros.bytes()[..piece])?;
                offset += piece as u64;
            }
            file.plain.sync_all()
        })();
        match filled {
            Ok(()) => Ok(Arc::new(file)),
            Err(error) => {
                // Space must not stay taken by a file that cannot be used; the first error is the one to report.
                let _ = std::fs::remove_file(self.directory.join(name));
                Err(error)
            }
        }
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.directory.join(name);
        let mut file = File::create(&path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            // As in `create`.
            let _ = std::fs::remove_file(&path);
        }
        written
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.file(name, &mut OpenOptions::new())?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

/// A directory of the machine that is only looked at: whatever would change it is refused.
#[derive(Debug)]
pub struct ReadOnlyDisk {
    directory: PathBuf,
}

impl ReadOnlyDisk {
    /// The directory.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.directory)
    }

    fn create(&self, _name: &str, _bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        read_only()
    }

    fn write_new(&self, _name: &str, _bytes: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        // The system refuses writes to a file that is open for reading.
        Ok(Arc::new(RealFile { plain: File::open(self.directory.join(name))?, direct: None }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        read_only()
    }

    fn sync_directory(&self) -> io::Result<()> {
        read_only()
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

struct RealFile {
    plain: File,
    direct: Option<File>,
}

impl DiskFile for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.plain.read_at(&mut into[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(BLOCK_BYTES as u64) && blocks.len().is_multiple_of(BLOCK_BYTES));
        if let Some(direct) = &self.direct {
            match direct.write_all_at(blocks, offset) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                outcome => return outcome,
            }
        }
        self.plain.write_all_at(blocks, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }

    fn read_soon(&self) {
        // SAFETY: the descriptor is open, and the call touches no memory of ours. Whether it is heeded changes nothing.
        unsafe { libc::posix_fadvise(self.plain.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) };
    }
}

#[cfg(test)]
pub(crate) mod faulty;
mod space;
