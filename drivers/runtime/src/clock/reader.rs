//! The thread that reads the clock's source, so that the reactor never waits for it.

use super::error::ClockError;
use super::source::{ClockReading, ClockSource, Sources};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the source is looked at; a loss is known within a second also with chrony, which is asked less often.
const READ_EVERY: Duration = Duration::from_millis(100);

/// What the thread leaves for the reactor.
struct Desk {
    /// Grows with each reading: the reactor takes the lock for news only.
    number: AtomicU64,
    last: Mutex<Result<ClockReading, ClockError>>,
    over: AtomicBool,
}

/// Reads a source again and again. Dropping it ends the thread some time soon.
pub(super) struct Reader {
    desk: Arc<Desk>,
    taken: u64,
    /// Ends by itself: a chronyc that hangs must not hold up the end of the host.
    _thread: JoinHandle<()>,
}

impl Reader {
    /// Goes on from what was read first. `notify` is called when the source is lost or is back.
    pub(super) fn start(
        source: ClockSource,
        mut sources: Sources,
        first: Result<ClockReading, ClockError>,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk {
            number: AtomicU64::new(0),
            last: Mutex::new(first),
            over: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new().name("clock".to_owned()).spawn({
            let desk = Arc::clone(&desk);
            move || {
                while !desk.over.load(Ordering::Relaxed) {
                    let reading = sources.read(source);
                    let mut last = desk.last.lock().unwrap_or_else(PoisonError::into_inner);
                    let changes = last.is_ok() != reading.is_ok();
                    *last = reading;
                    drop(last);
                    desk.number.fetch_add(1, Ordering::Release);
                    if changes {
                        notify();
                    }
                    std::thread::sleep(READ_EVERY);
                }
            }
        })?;
        Ok(Self { desk, taken: 0, _thread: thread })
    }

    /// The last reading, if it was not taken yet.
    pub(super) fn take(&mut self) -> Option<Result<ClockReading, ClockError>> {
        let number = self.desk.number.load(Ordering::Acquire);
        if number == self.taken {
            return None;
        }
        self.taken = number;
        Some(self.desk.last.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.desk.over.store(true, Ordering::Relaxed);
    }
}
