//! How many files and sockets this process may have open.

use std::io;

/// Raises the soft limit of open files to the hard one, which needs no right, and returns what holds from now on. A
/// server has a socket for each client; the soft limit of 1,024 is for programs that use `select`.
pub fn raise_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` into memory that is borrowed exclusively.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the call reads one initialised `rlimit`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    // A server that stays at its shell's 1,024 refuses the thousandth client.
    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limits = || std::fs::read_to_string("/proc/self/limits").expect("Linux says so");
        let raised = super::raise_limit().expect("no right is needed");
        let line =
            limits().lines().find(|line| line.starts_with("Max open files")).expect("a limit").to_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            (words[3], words[4]),
            (raised.to_string().as_str(), raised.to_string().as_str()),
            "{line}"
        );
    }
}
