//! The processor time of threads, as Linux counts it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// What every thread of this process has used, by its number.
pub(super) fn by_thread() -> io::Result<BTreeMap<u64, Duration>> {
    let mut used = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread may end while it is looked at.
        let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
        used.insert(thread, Duration::from_nanos(nanos.unwrap_or(0)));
    }
    if used.is_empty() {
        return Err(io::Error::other("no thread of this process is to be seen"));
    }
    Ok(used)
}

/// The threads that a call starts and leaves running.
pub(super) fn started_by<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Vec<u64>)> {
    let before = by_thread()?;
    let made = call()?;
    let threads = by_thread()?.into_keys().filter(|thread| !before.contains_key(thread)).collect();
    Ok((made, threads))
}

/// What these threads have used together.
pub(super) fn used_by(threads: &[u64]) -> io::Result<Duration> {
    let used = by_thread()?;
    Ok(threads.iter().filter_map(|thread| used.get(thread)).sum())
}
