//! What hosts know of each other's journals: how many batches of each were durable when it spoke last.
//!
//! A journal whose end is gone as a whole, or a data directory that was put back from an old copy, is sound in itself; only others can
//! show that it had held more. So whatever a host sends is preceded by the number of batches that are durable, and a host that begins
//! another run says how many it has found. One that has found fewer than it had reported is refused, and stops.
//!
//! The marks are in memory, and every few seconds in a file that is not synced: what is lost of them is a lower bound that is lower.

use crate::data::Incarnation;
use kernel::{ClockReport, HostId, HostSlot, Instant};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where marks are sent to and from: no node, and no client, is ever there.
pub(crate) const MARKS: HostSlot = HostSlot(crate::clients::CLIENT_SLOTS - 1);
/// How often the file is written, if there is news.
const KEEP_EVERY: Duration = Duration::from_secs(5);
const FILE: &str = "ordinate.peers";
const UNFINISHED: &str = "ordinate.peers.unfinished";
/// Hosts that are remembered; a host that is removed from a cluster is forgotten with the process.
const HOSTS_MAX: usize = 4_096;

/// How a host stood when its run began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunStart {
    /// Drawn at its start.
    pub run: u128,
    /// Batches that its journal had.
    pub found: u64,
}

kernel::record! {
    /// What a host says of itself before what it sends.
    pub(crate) struct Mark {
        /// How many batches are durable.
        batches: u64,
        /// Its disk is full.
        full: bool,
        /// How its clock stands, from time to time.
        clock: Option<ClockReport>,
    }
}

/// A host has found fewer batches than it had reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Behind {
    pub(crate) reported: u64,
    pub(crate) found: u64,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reported, found } = self;
        write!(
            f,
            "its journal has {found} batches, and had {reported}: its end is gone, or the data are an old copy"
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reported {
    incarnation: Incarnation,
    /// The run in which it reported so many: what it had found when that began says nothing of what it has reported since.
    run: u128,
    batches: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    reported: BTreeMap<HostId, Reported>,
    folder: Option<PathBuf>,
    retained_at: Option<Instant>,
    news: bool,
}

impl Marks {
    /// Those that the file in a data directory has.
    pub(crate) fn open(folder: PathBuf) -> Self {
        let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        Self { reported: parse(&text).unwrap_or_default(), folder: Some(folder), ..Self::default() }
    }

    /// A host begins to speak. An empty disk has another incarnation, and is judged by that.
    pub(crate) fn greet(
        &mut self,
        host: HostId,
        incarnation: Incarnation,
        run_start: Option<RunStart>,
    ) -> Result<(), Behind> {
        let Some(RunStart { run, found }) = run_start else { return Ok(()) };
        if let Some(known) = self.reported.get(&host).filter(|known| known.incarnation == incarnation) {
            if known.run == run {
                return Ok(());
            }
            if known.batches > found {
                return Err(Behind { reported: known.batches, found });
            }
        }
        if self.reported.len() < HOSTS_MAX || self.reported.contains_key(&host) {
            self.reported.insert(host, Reported { incarnation, run, batches: found });
            self.news = true;
        }
        Ok(())
    }

    /// A host that was greeted has so many batches.
    pub(crate) fn notify(&mut self, host: HostId, batches: u64) {
        if let Some(known) = self.reported.get_mut(&host).filter(|known| known.batches < batches) {
            (known.batches, self.news) = (batches, true);
        }
    }

    /// Writes the file if it is time. Without room, or without a folder, nothing is retained.
    pub(crate) fn keep(&mut self, now: Instant) {
        let due = self.retained_at.is_none_or(|at| now.since(at) >= KEEP_EVERY);
        let Some(folder) = self.folder.as_ref().filter(|_| due && self.news) else { return };
        (self.retained_at, self.news) = (Some(now), false);
        let _ = std::fs::write(folder.join(UNFINISHED), self.text())
            .and_then(|()| std::fs::rename(folder.join(UNFINISHED), folder.join(FILE)));
    }

    fn text(&self) -> String {
        let line = |(host, reported): (&HostId, &Reported)| {
            let Reported { incarnation, run, batches } = reported;
            format!("{:08x} {:032x} {run:032x} {batches}\n", host.0, incarnation.0)
        };
        let body: String = self.reported.iter().map(line).collect();
        format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
    }
}

/// None if it is not what `text` writes: then nothing is known.
fn parse(text: &str) -> Option<BTreeMap<HostId, Reported>> {
    let body = &text[..text.rfind("checksum ")?];
    if text[body.len()..].trim_end() != format!("checksum {:08x}", crc32c::crc32c(body.as_bytes())) {
        return None;
    }
    let line = |line: &str| {
        let mut words = line.split(' ');
        let host = HostId(u32::from_str_radix(words.next()?, 16).ok()?);
        let incarnation = Incarnation(u128::from_str_radix(words.next()?, 16).ok()?);
        let run = u128::from_str_radix(words.next()?, 16).ok()?;
        Some((host, Reported { incarnation, run, batches: words.next()?.parse().ok()? }))
    };
    body.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(7);
    const DISK: Incarnation = Incarnation(1);

    fn run(run: u128, found: u64) -> Option<RunStart> {
        Some(RunStart { run, found })
    }

    // A host that has lost what it acknowledged must not be let in; one that has it all, or is older, must.
    #[test]
    fn a_host_that_has_found_less_than_it_had_is_refused() {
        let mut marks = Marks::default();
        assert_eq!(marks.greet(HOST, DISK, None), Ok(()), "of an older version");
        assert_eq!(marks.greet(HOST, DISK, run(1, 10)), Ok(()));
        marks.notify(HOST, 25);
        marks.notify(HOST, 20);
        assert_eq!(marks.greet(HOST, DISK, run(1, 10)), Ok(()), "it dials anew in the same incarnation");
        assert_eq!(marks.greet(HOST, DISK, run(2, 24)), Err(Behind { reported: 25, found: 24 }));
        assert_eq!(marks.greet(HOST, DISK, run(2, 24)), Err(Behind { reported: 25, found: 24 }), "again");
        assert_eq!(marks.greet(HOST, DISK, run(3, 25)), Ok(()));
        assert_eq!(marks.greet(HOST, Incarnation(2), run(4, 0)), Ok(()), "another disk is judged elsewhere");
    }

    // A file that is believed too far refuses a sound host; one that is not read back knows nothing after a restart of all.
    #[test]
    fn marks_outlive_the_process() {
        let folder = std::env::temp_dir().join(format!("ordinate-marks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let mut marks = Marks::open(folder.clone());
        marks.greet(HOST, DISK, run(1, 10)).expect("nothing is known of it");
        marks.notify(HOST, 25);
        marks.keep(Instant(1));
        marks.notify(HOST, 30);
        marks.keep(Instant(2));
        let mut again = Marks::open(folder.clone());
        assert_eq!(
            again.greet(HOST, DISK, run(1, 10)),
            Ok(()),
            "it runs as before: who remembers was started anew"
        );
        assert_eq!(again.greet(HOST, DISK, run(2, 24)), Err(Behind { reported: 25, found: 24 }));
        assert_eq!(again.greet(HOST, DISK, run(2, 25)), Ok(()), "the last five seconds are not known");
        std::fs::write(folder.join(FILE), marks.text().replace('3', "4")).expect("the folder is writable");
        assert_eq!(Marks::open(folder.clone()).reported, BTreeMap::new(), "damaged: nothing is known");
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}
