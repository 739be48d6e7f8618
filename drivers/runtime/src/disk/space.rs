//! How much room the file system of a directory has.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    /// All that it has.
    pub total: u64,
    /// What this process may still use.
    pub free: u64,
}

impl DiskSpace {
    /// Of the file system that `path` is in, or would be in if it were there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut there = path;
        while !there.exists()
            && let Some(parent) = there.parent()
        {
            there = parent;
        }
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let name = CString::new(there.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `name` ends with a zero byte, and `found` is as large as what is written into it.
        let outcome = unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a call that succeeds has written all of it.
        let found = unsafe { found.assume_init() };
        let bytes = |blocks: libc::fsblkcnt_t| blocks.saturating_mul(found.f_frsize);
        Ok(Self { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A folder that is made at the first start has no file system of its own yet.
    #[test]
    fn a_folder_that_is_not_there_yet_has_the_room_of_its_parent() {
        let parent = std::env::temp_dir();
        let (here, below) = (DiskSpace::of(&parent), DiskSpace::of(&parent.join("not-there/nor-this")));
        let (here, below) = (here.expect("it is there"), below.expect("its parent is"));
        assert_eq!(here.total, below.total);
        assert!(0 < here.total && here.free <= here.total);
    }
}
