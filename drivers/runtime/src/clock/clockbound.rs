//! The shared memory of a ClockBound daemon, protocol version 2: a file of 80 bytes that the daemon overwrites in place.
//!
//! Read as a file, not mapped: what a read returns is the page that the daemon's mapping writes, and a read that was overtaken by a
//! write is noticed by the generation.

use super::error::ClockError;
use kernel::{ClockBound, Instant};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "clockbound";
/// Where the daemon has it.
pub(super) const SEGMENT: &str = "/var/run/clockbound/shm0";
/// Where a virtual machine learns that it was moved or restored.
pub(super) const VM_CLOCK: &str = "/dev/vmclock0";

const MAGIC: [u32; 2] = [0x414d_5a4e, 0x4342_0200];
const VERSION: u16 = 2;
const BYTES: usize = 80;
const SYNCHRONISED: i32 = 1;
/// The daemon writes once a second, and takes less than a microsecond.
const TRIES: usize = 100;
const VM_CLOCK_MAGIC: u32 = 0x4b4c_4356;
const VM_CLOCK_BYTES: usize = 24;
/// A bound that the daemon has not renewed for so long is not used, even if the daemon would have it last longer.
const LASTS_MAX: Duration = Duration::from_secs(5);

fn unreadable(fact: impl Into<String>) -> ClockError {
    ClockError::Unreadable { of: NAME, fact: fact.into() }
}

fn unsynchronised(fact: impl Into<String>) -> ClockError {
    ClockError::Unsynchronised { of: NAME, fact: fact.into() }
}

/// What a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    /// When the bound held, by the coarse monotonic clock.
    as_of: Duration,
    /// When it ends.
    void_after: Duration,
    bound: Duration,
    disruption_marker: u64,
    drift_ppb: u32,
    status: i32,
    disruption_supported: bool,
}

/// Reads the segment at `path`.
pub(super) fn read(path: impl AsRef<Path>, vm_clock: &str, now: Instant) -> Result<ClockBound, ClockError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
    let segment = segment_of(&file)?;
    if segment.disruption_supported {
        check_disruption(vm_clock, segment.disruption_marker)?;
    }
    judge(&segment, coarse_monotonic(), now)
}

fn segment_of(file: &File) -> Result<Segment, ClockError> {
    for _ in 0..TRIES {
        let (mut first, mut second) = ([0; BYTES], [0; BYTES]);
        let read = file.read_exact_at(&mut first, 0).and_then(|()| file.read_exact_at(&mut second, 0));
        read.map_err(|error| unreadable(format!("the segment cannot be read: {error}")))?;
        // Even and the same afterwards: no write began before the first read had ended.
        if first == second && u16_at(&first, 14).is_multiple_of(2) {
            return parse(&first);
        }
    }
    Err(unreadable("the segment is being written all the time"))
}

fn u16_at(bytes: &[u8; BYTES], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at(bytes: &[u8; BYTES], at: usize) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    i64::from_ne_bytes(word)
}

/// A timespec: seconds and nanoseconds, neither negative.
fn time_at(bytes: &[u8; BYTES], at: usize) -> Result<Duration, ClockError> {
    let (seconds, nanos) = (i64_at(bytes, at), i64_at(bytes, at + 8));
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => Err(unreadable(format!("a time in the segment is {seconds} s and {nanos} ns"))),
    }
}

fn parse(bytes: &[u8; BYTES]) -> Result<Segment, ClockError> {
    if [u32_at(bytes, 0), u32_at(bytes, 4)] != MAGIC {
        return Err(unreadable("the file is no ClockBound segment"));
    }
    let (size, version, generation) = (u32_at(bytes, 8), u16_at(bytes, 12), u16_at(bytes, 14));
    if version != VERSION || (size as usize) < BYTES {
        return Err(unreadable(format!(
            "the segment has version {version} and {size} bytes; version {VERSION} is known, of {BYTES} bytes"
        )));
    }
    if generation == 0 {
        return Err(unsynchronised("the daemon has not written yet"));
    }
    let bound = i64_at(bytes, 48);
    let bound = u64::try_from(bound).map_err(|_| unreadable(format!("the bound is {bound} ns")))?;
    Ok(Segment {
        as_of: time_at(bytes, 16)?,
        void_after: time_at(bytes, 32)?,
        bound: Duration::from_nanos(bound),
        disruption_marker: i64_at(bytes, 56) as u64,
        drift_ppb: u32_at(bytes, 64),
        status: u32_at(bytes, 68) as i32,
        disruption_supported: bytes[72] != 0,
    })
}

/// `coarse` and `now` are the same moment, by the daemon's clock and by the host's.
fn judge(segment: &Segment, coarse: Duration, now: Instant) -> Result<ClockBound, ClockError> {
    let what = match segment.status {
        SYNCHRONISED if coarse <= segment.void_after => None,
        SYNCHRONISED => Some("the daemon has not written for too long"),
        2 => Some("the clock is free running"),
        3 => Some("the clock was disrupted"),
        _ => Some("its state is unknown"),
    };
    if let Some(what) = what {
        return Err(unsynchronised(what));
    }
    let age = coarse.saturating_sub(segment.as_of);
    let grown = age.as_nanos() * u128::from(segment.drift_ppb) / 1_000_000_000;
    Ok(ClockBound {
        error: segment.bound.saturating_add(Duration::from_nanos(grown.min(u128::from(u64::MAX)) as u64)),
        at: now,
        growth_ppb: segment.drift_ppb,
        lasts: (segment.void_after - coarse).min(LASTS_MAX),
        measurement: segment.as_of.as_nanos() as u64,
        vouched: false,
    })
}

/// The machine was moved or restored since the daemon looked: nobody knows for how long it stood still.
fn check_disruption(vm_clock: &str, marker: u64) -> Result<(), ClockError> {
    let mut head = [0; VM_CLOCK_BYTES];
    let read = File::open(vm_clock).and_then(|file| file.read_exact_at(&mut head, 0));
    read.map_err(|error| unreadable(format!("{vm_clock}: {error}")))?;
    let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let mut word = [0; 8];
    word.copy_from_slice(&head[16..]);
    if magic != VM_CLOCK_MAGIC {
        return Err(unreadable(format!("{vm_clock} is no clock of a virtual machine")));
    }
    if u64::from_le_bytes(word) != marker {
        return Err(unsynchronised("the machine was moved or restored since the daemon wrote"));
    }
    Ok(())
}

fn coarse_monotonic() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame, which the call fills in.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    assert_eq!(outcome, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn bytes_of(segment: &Segment, version: u16, generation: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend((BYTES as u32).to_ne_bytes());
        bytes.extend(version.to_ne_bytes());
        bytes.extend(generation.to_ne_bytes());
        for time in [segment.as_of, segment.void_after] {
            bytes.extend((time.as_secs() as i64).to_ne_bytes());
            bytes.extend(i64::from(time.subsec_nanos()).to_ne_bytes());
        }
        bytes.extend((segment.bound.as_nanos() as i64).to_ne_bytes());
        bytes.extend(segment.disruption_marker.to_ne_bytes());
        bytes.extend(segment.drift_ppb.to_ne_bytes());
        bytes.extend(segment.status.to_ne_bytes());
        bytes.extend([u8::from(segment.disruption_supported), 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn sound() -> Segment {
        let now = coarse_monotonic();
        Segment {
            as_of: now.saturating_sub(Duration::from_secs(1)),
            void_after: now + Duration::from_secs(1_000),
            bound: 3 * MS,
            disruption_marker: 77,
            drift_ppb: 1_000_000,
            status: SYNCHRONISED,
            disruption_supported: false,
        }
    }

    struct Files(std::path::PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("ordinate-clockbound-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("the folder is writable");
            Self(folder)
        }

        fn read(&self, segment: &[u8]) -> Result<ClockBound, ClockError> {
            std::fs::write(self.0.join("shm0"), segment).expect("the folder is writable");
            read(self.0.join("shm0"), &self.0.join("vmclock0").to_string_lossy(), Instant(9))
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    // A field read from its neighbour's position is a bound that nobody gave.
    #[test]
    fn a_segment_is_read_as_the_daemon_writes_it() {
        let files = Files::new("sound");
        let bound = files.read(&bytes_of(&sound(), 2, 4)).expect("it is sound");
        assert!(
            bound.error >= 4 * MS && bound.error < 5 * MS,
            "3 ms, and 1 ms in a second: {:?}",
            bound.error
        );
        assert_eq!((bound.at, bound.growth_ppb, bound.vouched), (Instant(9), 1_000_000, false));
        assert_eq!(bound.lasts, LASTS_MAX);
    }

    // A daemon that has stopped, or a file that is another, must never be a bound.
    #[test]
    fn what_does_not_bound_the_clock_is_refused() {
        let files = Files::new("refused");
        let now = coarse_monotonic();
        let mut other_magic = bytes_of(&sound(), 2, 4);
        other_magic[3] ^= 1;
        for (bytes, what) in [
            (bytes_of(&Segment { status: 2, ..sound() }, 2, 4), "free running"),
            (bytes_of(&Segment { status: 0, ..sound() }, 2, 4), "unknown"),
            (bytes_of(&Segment { status: 3, ..sound() }, 2, 4), "disrupted"),
            (bytes_of(&Segment { void_after: now - 2 * MS, ..sound() }, 2, 4), "for too long"),
            (bytes_of(&sound(), 2, 0), "not written yet"),
            (bytes_of(&sound(), 2, 5), "all the time"),
            (bytes_of(&sound(), 3, 4), "version 3"),
            (other_magic, "no ClockBound segment"),
            (bytes_of(&sound(), 2, 4)[..70].to_vec(), "cannot be read"),
            (bytes_of(&Segment { disruption_supported: true, ..sound() }, 2, 4), "vmclock0"),
        ] {
            let refused = files.read(&bytes).expect_err(what).to_string();
            assert!(refused.contains(what), "{refused}");
        }
        let gone = read("/nowhere/shm0", VM_CLOCK, Instant(0)).expect_err("there is none").to_string();
        assert!(gone.contains("/nowhere/shm0"), "{gone}");
    }

    // A virtual machine that stood still has a clock that is behind and does not know it.
    #[test]
    fn a_moved_machine_is_noticed() {
        let files = Files::new("moved");
        let segment = bytes_of(&Segment { disruption_supported: true, ..sound() }, 2, 4);
        let mut head = [0u8; VM_CLOCK_BYTES];
        head[..4].copy_from_slice(&VM_CLOCK_MAGIC.to_le_bytes());
        head[16..].copy_from_slice(&77u64.to_le_bytes());
        std::fs::write(files.0.join("vmclock0"), head).expect("the folder is writable");
        assert!(files.read(&segment).is_ok());
        head[16] = 78;
        std::fs::write(files.0.join("vmclock0"), head).expect("the folder is writable");
        let refused = files.read(&segment).expect_err("the marker is another").to_string();
        assert!(refused.contains("moved or restored"), "{refused}");
    }
}
