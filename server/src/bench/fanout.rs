//! Watch fan-out: every session watches one node, somebody changes it, and the time until the last one is told is what counts.

use super::local::cpu_time;
use super::zk::{FOLDER, STUCK_AFTER, Session, Tally, Zk};
use coordination::wire::{JuteInput, JuteOutput, NOTIFICATION_XID, op};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::time::{Duration, Instant};

/// Where a round is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// So many sessions have yet to hear that they watch.
    Watching(usize),
    /// So many have yet to be told of the change.
    Telling(usize),
}

struct Fanout<'a> {
    bench: &'a Zk,
    poll: Poll,
    /// The watchers, and the writer behind them.
    sessions: Vec<Session>,
    path: String,
}

/// Runs rounds for as long as the command says, after one that is not counted. The tally's operations are notifications; its latencies
/// are those of the last notification of each round.
pub fn measure(bench: &Zk, tally: &mut Tally) -> io::Result<(f64, Option<Duration>)> {
    let poll = Poll::new()?;
    let mut sessions = Vec::new();
    for index in 0..=bench.sessions as usize {
        let mut stream = TcpStream::connect(bench.endpoints[index % bench.endpoints.len()])?;
        poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        sessions.push(Session::new(stream));
    }
    let path = format!("{FOLDER}/watched-{}x", tally.run);
    let mut fanout = Fanout { bench, poll, sessions, path };
    fanout.prepare(tally)?;
    fanout.round(tally, &mut |_, _| {})?;
    let cpu_of = || bench.processes.iter().map(|&process| cpu_time(process)).sum::<Option<Duration>>();
    let (from, before) = (Instant::now(), cpu_of());
    while from.elapsed() < bench.seconds {
        let mut last = Duration::ZERO;
        let mut told = 0;
        fanout.round(tally, &mut |_, took| {
            last = last.max(took);
            told += 1;
        })?;
        tally.operations += told;
        // A latency beyond the histogram's range is its maximum.
        tally.latency.saturating_record(last.as_nanos() as u64);
    }
    let cpu = match (before, cpu_of()) {
        (Some(before), Some(after)) if !bench.processes.is_empty() => Some(after - before),
        _ => None,
    };
    Ok((from.elapsed().as_secs_f64(), cpu))
}

impl Fanout<'_> {
    /// Handshakes, and the node.
    fn prepare(&mut self, tally: &mut Tally) -> io::Result<()> {
        let writer = self.bench.sessions as usize;
        let mut answers = 0;
        let path = self.path.clone();
        self.sessions[writer].create(1, FOLDER, 0);
        self.sessions[writer].create(2, &path, self.bench.value);
        self.until(tally, |session, _, _| {
            answers += usize::from(session == writer);
            answers == 2
        })?;
        // Where reads may be stale a session may not see the node yet, and would leave no watch.
        let mut behind = writer;
        for session in &mut self.sessions[..writer] {
            session.request(1, op::SYNC, |out| out.put_text(&path));
        }
        self.until(tally, |session, _, _| {
            behind -= usize::from(session != writer);
            behind == 0
        })
    }

    fn round(&mut self, tally: &mut Tally, told: &mut impl FnMut(usize, Duration)) -> io::Result<()> {
        let writer = self.bench.sessions as usize;
        let mut phase = Phase::Watching(writer);
        for session in &mut self.sessions[..writer] {
            session.request(1, op::GET_DATA, |out| {
                out.put_text(&self.path);
                out.push(1);
            });
        }
        self.until(tally, |session, xid, _| {
            if session != writer
                && xid != NOTIFICATION_XID
                && let Phase::Watching(left) = &mut phase
            {
                *left -= 1;
            }
            phase == Phase::Watching(0)
        })?;
        phase = Phase::Telling(writer);
        let value = vec![b'w'; self.bench.value];
        let sent_at = Instant::now();
        self.sessions[writer].request(2, op::SET_DATA, |out| {
            out.put_text(&self.path);
            out.put_buffer(Some(&value));
            out.put_i32(-1);
        });
        let mut acknowledged = false;
        self.until(tally, |session, xid, now| {
            acknowledged |= session == writer;
            if xid == NOTIFICATION_XID
                && let Phase::Telling(left) = &mut phase
            {
                *left -= 1;
                told(session, now - sent_at);
            }
            acknowledged && phase == Phase::Telling(0)
        })
    }

    /// Sends what waits, and hands every answer and notification to `took` until that says that it is enough.
    fn until(
        &mut self,
        tally: &mut Tally,
        mut took: impl FnMut(usize, i32, Instant) -> bool,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        for session in &mut self.sessions {
            session.flush()?;
        }
        let mut progress_at = Instant::now();
        let mut enough = false;
        while !enough {
            self.poll.poll(&mut events, Some(Duration::from_millis(20)))?;
            if !events.is_empty() {
                progress_at = Instant::now();
            } else if progress_at.elapsed() > STUCK_AFTER {
                return Err(io::Error::other("the servers give no answers"));
            }
            for event in &events {
                let index = event.token().0;
                let session = &mut self.sessions[index];
                session.flush()?;
                session.take_in(tally)?;
                let now = Instant::now();
                while let Some(body) = session.next_body() {
                    let Ok(xid) = JuteInput(&body).i32() else {
                        return Err(io::Error::other("a reply without header"));
                    };
                    enough |= took(index, xid, now);
                }
            }
        }
        Ok(())
    }
}
