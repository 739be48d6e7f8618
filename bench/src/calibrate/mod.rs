//! Measuring this machine: what its real driver and the roles' real handlers cost, as a [`Profile`].
//!
//! `driver` has two hosts of the runtime talk over loopback and counts the processor time of their threads; `handlers` runs the
//! roles in the cost simulator with a clock around every call.

mod cluster;
#[expect(unreachable_pub, reason = "the kernel's macros declare public items")]
mod driver;
mod handlers;
mod processor;

pub use cluster::{RealAndSimulated, beside};
pub use handlers::Timed;

use crate::profile::{Driver, Network, Profile};
use std::path::Path;
use std::time::{Duration, Instant};

/// A switch of ten gigabits within a room: networks are not measured, because one machine has none.
const NETWORK: Network = Network { latency_us: 25.0, gigabits_per_second: 10.0, overhead_bytes: 66 };
const FSYNCS: usize = 100;
const BLOCK: usize = 4_096;

/// Measures this machine; journals would be in `folder`. `each` is how long one of several measurements lasts.
///
/// # Errors
/// If hosts do not start, threads cannot be watched, or the folder cannot be written.
pub fn calibrate(folder: &Path, each: Duration) -> std::io::Result<Profile> {
    let fsync = fsync(folder)?;
    let steps = driver::measure(each)?;
    let mut profile = Profile {
        name: "calibrated".to_owned(),
        about: "measured by ordinate calibrate; the network is assumed".to_owned(),
        network: NETWORK,
        driver: Driver {
            // One system call each to wait, to read and to write; the write pays for the loopback's delivery as well.
            burst: steps.burst * 0.2,
            read: steps.burst * 0.3,
            write: steps.burst * 0.5,
            receive: steps.message / 2.0,
            receive_byte: steps.byte / 2.0,
            send: steps.message / 2.0,
            send_byte: steps.byte / 2.0,
            append_byte: steps.byte / 2.0,
            timer: steps.message,
            request: 0.0,
            burst_inputs_max: 4_096,
            fsync_us: fsync.as_secs_f64() * 1e6,
            // As the runtime decides it.
            fsync_blocks: fsync < Duration::from_micros(400),
        },
        handle: std::collections::BTreeMap::new(),
    };
    for (step, handle) in handlers::measure() {
        profile.set(step, handle);
    }
    Ok(profile)
}

/// The median of writing a block and having it on the disk.
fn fsync(folder: &Path) -> std::io::Result<Duration> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let path = folder.join(format!("ordinate-calibrate-{}", std::process::id()));
    let mut file = std::fs::File::create(&path)?;
    let outcome = (|| {
        file.write_all(&vec![0; BLOCK * FSYNCS])?;
        file.sync_all()?;
        let mut times = Vec::with_capacity(FSYNCS);
        for block in 0..FSYNCS {
            file.seek(SeekFrom::Start((block * BLOCK) as u64))?;
            let began = Instant::now();
            file.write_all(&[1; BLOCK])?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Ok(times[FSYNCS / 2])
    })();
    let removed = std::fs::remove_file(&path);
    outcome.and_then(|median| removed.map(|()| median))
}
