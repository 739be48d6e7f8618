//! A disk in memory that forgets what was not synced, tears what it was writing, and fails on demand.

use super::{Disk, DiskFile};
use kernel::Rng;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// The unit that a power failure leaves whole.
pub(crate) const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Written since the last sync, in order.
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// Operations that change something until the power fails; then all do.
    power_left: Option<usize>,
    operations: usize,
    fail_writes: Option<i32>,
    fail_syncs: Option<i32>,
    fail_opens: Option<i32>,
    /// Bytes of all files together.
    space: Option<usize>,
}

#[derive(Clone, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<State>>);

struct FaultyFile {
    disk: FaultyDisk,
    index: usize,
}

impl FaultyDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// The power fails after so many more operations.
    pub(crate) fn power_off_after(&self, operations: usize) {
        self.state().power_left = Some(operations);
    }

    pub(crate) fn operations(&self) -> usize {
        self.state().operations
    }

    pub(crate) fn fail_writes(&self, errno: Option<i32>) {
        self.state().fail_writes = errno;
    }

    /// No file can be opened or made.
    pub(crate) fn fail_opens(&self, errno: Option<i32>) {
        self.state().fail_opens = errno;
    }

    pub(crate) fn fail_syncs(&self, errno: Option<i32>) {
        self.state().fail_syncs = errno;
    }

    pub(crate) fn limit_space(&self, bytes: Option<usize>) {
        self.state().space = bytes;
    }

    pub(crate) fn file_names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// The bytes of the file, to damage.
    pub(crate) fn edit<T>(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut state = self.state();
        let index = state.names[name];
        edit(&mut state.files[index].now)
    }

    /// A copy, as another process would read it.
    pub(crate) fn copy(&self) -> Self {
        let mut state = self.state().clone();
        (state.power_left, state.fail_writes, state.fail_syncs, state.space) = (None, None, None, None);
        Self(Arc::new(Mutex::new(state)))
    }

    /// What the disk holds after a power failure. Of what was not synced, `survives` says how much of each write.
    pub(crate) fn after_crash(&self, mut survives: impl FnMut(&mut [u8], usize, &[u8])) -> Self {
        let mut state = self.state().clone();
        state.names = state.synced_names.clone();
        for file in &mut state.files {
            file.now = file.synced.clone();
            for (offset, bytes) in std::mem::take(&mut file.unsynced) {
                survives(&mut file.now, offset, &bytes);
            }
            file.synced = file.now.clone();
        }
        (state.power_left, state.fail_writes, state.fail_syncs) = (None, None, None);
        Self(Arc::new(Mutex::new(state)))
    }

    /// A crash in which each sector of each unsynced write survives or not, by chance.
    pub(crate) fn after_random_crash(&self, rng: &mut Rng) -> Self {
        let p = rng.unit();
        self.after_crash(|file, offset, bytes| {
            for start in (0..bytes.len()).step_by(SECTOR_BYTES) {
                let end = (start + SECTOR_BYTES).min(bytes.len());
                if rng.chance(p) {
                    file[offset + start..offset + end].copy_from_slice(&bytes[start..end]);
                }
            }
        })
    }

    /// The length of the last write that was not synced.
    pub(crate) fn last_unsynced(&self) -> usize {
        let state = self.state();
        let last = |file: &Content| file.unsynced.last().map(|(_, bytes)| bytes.len());
        state.files.iter().filter_map(last).next_back().unwrap_or(0)
    }

    fn step(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.operations += 1;
        match &mut state.power_left {
            Some(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }
}

impl Disk for FaultyDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.file_names())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.step()?;
        if let Some(errno) = state.fail_opens {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let used: usize = state.names.values().map(|index| state.files[*index].now.len()).sum();
        if state.space.is_some_and(|space| used + bytes as usize > space) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let zeros = vec![0; bytes as usize];
        state.files.push(Content { now: zeros.clone(), synced: zeros, unsynced: Vec::new() });
        let index = state.files.len() - 1;
        state.names.insert(name.to_owned(), index);
        Ok(Arc::new(FaultyFile { disk: self.clone(), index }))
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.create(name, bytes.len() as u64)?;
        let file = self.open(name)?;
        file.write(0, bytes)?;
        file.sync()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state();
        if let Some(errno) = state.fail_opens {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let index = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(FaultyFile { disk: self.clone(), index }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.step()?;
        let index = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), index);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.step()?;
        state.names.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.step()?;
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from("memory").join(name)
    }
}

impl DiskFile for FaultyFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.index].now.len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        let from = state.files[self.index].now.get(offset as usize..).unwrap_or(&[]);
        let bytes = from.len().min(into.len());
        into[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }

    fn write(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        let mut state = self.disk.step()?;
        if let Some(errno) = state.fail_writes {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let file = &mut state.files[self.index];
        let at = offset as usize;
        file.now[at..at + blocks.len()].copy_from_slice(blocks);
        file.unsynced.push((at, blocks.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.step()?;
        if let Some(errno) = state.fail_syncs {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let file = &mut state.files[self.index];
        for (at, bytes) in std::mem::take(&mut file.unsynced) {
            file.synced[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}
