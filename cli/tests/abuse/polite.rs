//! A client that does nothing wrong: it writes and reads small nodes, one request at a time, and says how long each took.

use crate::support::raw::Raw;
use crate::support::zookeeper::{create_body, read_body, session, set_body};
use coordination::wire::{JuteInput, op};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two requests.
const THINK: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Said {
    /// When each request was answered, and how long it took.
    waits: Vec<(Instant, Duration)>,
    /// When the two were asked that are not answered.
    asked: Option<Instant>,
    /// Connections lost, or answers that did not come.
    breaks: u64,
    /// The number written last, as far as that was acknowledged.
    acknowledged: u64,
}

/// See the file's head; on a thread of its own until it is dropped.
pub struct Polite {
    path: String,
    said: Arc<Mutex<Said>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Polite {
    /// Begins at the host of this address, with a node of its own.
    pub fn start(address: SocketAddr, path: &str) -> Self {
        let (said, stop) = (Arc::new(Mutex::new(Said::default())), Arc::new(AtomicBool::new(false)));
        let mut raw = session(address);
        let made = raw.call(op::CREATE, &create_body(path, b"0", 0)).expect("the host serves");
        assert_eq!(made.error, 0, "{path}");
        let thread = std::thread::spawn({
            let (said, stop, path) = (Arc::clone(&said), Arc::clone(&stop), path.to_owned());
            move || converse(raw, address, &path, &said, &stop)
        });
        Self { path: path.to_owned(), said, stop, thread: Some(thread) }
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The 99th of a hundred, and the longest, of the requests answered since; and how many there were. If there was none, what is not
    /// answered has waited so far.
    pub fn waits_since(&self, since: Instant) -> (Duration, Duration, usize) {
        let said = self.said();
        let mut waits: Vec<Duration> =
            said.waits.iter().filter(|(at, _)| *at >= since).map(|(_, wait)| *wait).collect();
        waits.sort();
        let so_far = said.asked.map_or(Duration::ZERO, |asked| asked.elapsed());
        let rank = (waits.len() * 99).div_ceil(100).max(1) - 1;
        let of = |at: usize| waits.get(at).copied().unwrap_or(so_far);
        (of(rank), of(waits.len().wrapping_sub(1)), waits.len())
    }

    /// How often it lost its connection.
    pub fn breaks(&self) -> u64 {
        self.said().breaks
    }

    /// Ends it, and reads at `address` what it wrote last: `Err` if an acknowledged write is not there.
    pub fn finish(mut self, address: SocketAddr) -> Result<u64, String> {
        self.end();
        let acknowledged = self.said().acknowledged;
        let reply = session(address).call(op::GET_DATA, &read_body(&self.path, false));
        let reply = reply.map_err(|error| format!("{}: {error}", self.path))?;
        let data = JuteInput(&reply.body).buffer().ok().flatten().unwrap_or_default().to_vec();
        let found: u64 =
            String::from_utf8_lossy(&data).parse().map_err(|_| format!("{}: {data:?}", self.path))?;
        let sound = found == acknowledged || found == acknowledged + 1;
        if sound {
            Ok(acknowledged)
        } else {
            Err(format!("{}: {acknowledged} acknowledged, {found} found", self.path))
        }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a polite client does not panic");
        }
    }
}

impl Drop for Polite {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn converse(mut raw: Raw, address: SocketAddr, path: &str, said: &Mutex<Said>, stop: &AtomicBool) {
    let mut written = 0_u64;
    raw.set_patience(PATIENCE);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        said.lock().unwrap_or_else(PoisonError::into_inner).asked = Some(begun);
        let outcome = raw
            .call(op::SET_DATA, &set_body(path, (written + 1).to_string().as_bytes()))
            .and_then(|set| raw.call(op::GET_DATA, &read_body(path, false)).map(|got| (set, got)));
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.asked = None;
        match outcome {
            Ok((set, got)) if set.error == 0 && got.error == 0 => {
                written += 1;
                said.acknowledged = written;
                // Of the two the mean: a pair is what a user waits for twice.
                said.waits.push((Instant::now(), begun.elapsed() / 2));
            }
            Ok(_) | Err(_) => {
                said.breaks += 1;
                said.waits.push((Instant::now(), begun.elapsed()));
                drop(said);
                raw = session(address);
                raw.set_patience(PATIENCE);
                // Whether the last one was executed is not known: what is there says so.
                let reply = raw.call(op::GET_DATA, &read_body(path, false));
                let data = reply
                    .ok()
                    .and_then(|reply| JuteInput(&reply.body).buffer().ok().flatten().map(<[u8]>::to_vec));
                if let Some(found) = data.and_then(|data| String::from_utf8_lossy(&data).parse::<u64>().ok())
                {
                    assert!(found >= written, "{path}: {written} was acknowledged, {found} is there");
                    written = found;
                }
                continue;
            }
        }
        drop(said);
        std::thread::sleep(THINK);
    }
}
