//! Watch fan-out: every session watches one node, somebody changes it, and the time until the last one is notified is what counts.

use super::closed_loop::{self, Spent, Window};
use super::session::{FOLDER, Load, Session, Tally};
use coordination::wire::{JuteInput, JuteOutput, NOTIFICATION_XID, op};
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};
use server::process::cpu_time;
use std::io;
use std::time::{Duration, Instant};

/// Where a round is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// So many sessions have yet to hear that they watch.
    Watching(usize),
    /// So many have yet to be notified of the change.
    Telling(usize),
}

struct Seat {
    session: Session,
    writes: bool,
}

struct Fanout<'a> {
    bench: &'a Load<'a>,
    poll: Poll,
    /// The watchers, and the writer behind them.
    seats: Vec<Seat>,
    path: String,
}

/// Runs rounds for as long as the command says, after one that is not counted. The tally's operations are notifications; its latencies
/// are those of the last notification of each round.
pub fn measure(bench: &Load<'_>, tally: &mut Tally) -> io::Result<Spent> {
    let poll = Poll::new()?;
    let mut seats = Vec::new();
    for index in 0..=bench.sessions as usize {
        let mut stream = TcpStream::connect(bench.endpoints[index % bench.endpoints.len()])?;
        poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        let writes = index == bench.sessions as usize;
        seats.push(Seat { session: Session::new(stream), writes });
    }
    let path = format!("{FOLDER}/watched-{}x", tally.run);
    let mut fanout = Fanout { bench, poll, seats, path };
    fanout.prepare(tally)?;
    fanout.round(tally, &mut |_| {})?;
    let cpu_of = || bench.processes.iter().map(|&process| cpu_time(process)).sum::<Option<Duration>>();
    let (from, before) = (Instant::now(), cpu_of());
    while from.elapsed() < bench.seconds {
        let mut last = Duration::ZERO;
        let mut reported = 0;
        fanout.round(tally, &mut |took| {
            last = last.max(took);
            reported += 1;
        })?;
        tally.operations += reported;
        // A latency beyond the histogram's range is its maximum.
        tally.latency.saturating_record(last.as_nanos() as u64);
    }
    let server_cpu = match (before, cpu_of()) {
        (Some(before), Some(after)) if !bench.processes.is_empty() => Some(after - before),
        _ => None,
    };
    Ok(Spent { seconds: from.elapsed().as_secs_f64(), server_cpu })
}

impl Fanout<'_> {
    /// Handshakes, and the node.
    fn prepare(&mut self, tally: &mut Tally) -> io::Result<()> {
        let (path, value) = (self.path.clone(), self.bench.value);
        let (writer, watchers) = self.split();
        writer.create(1, FOLDER, 0);
        writer.create(2, &path, value);
        let mut behind = watchers.len();
        let mut answers = 0;
        self.until(tally, |writes, _, _| {
            answers += usize::from(writes);
            answers == 2
        })?;
        // Where reads may be stale a session may not see the node yet, and would leave no watch.
        for Seat { session, .. } in self.split().1 {
            session.request(1, op::SYNC, |out| out.put_text(&path));
        }
        self.until(tally, |writes, _, _| {
            behind -= usize::from(!writes);
            behind == 0
        })
    }

    /// The writer, and the watchers.
    fn split(&mut self) -> (&mut Session, &mut [Seat]) {
        let (writer, watchers) = self.seats.split_last_mut().expect("the writer is there from the beginning");
        (&mut writer.session, watchers)
    }

    fn round(&mut self, tally: &mut Tally, reported: &mut impl FnMut(Duration)) -> io::Result<()> {
        let (path, value) = (self.path.clone(), vec![b'w'; self.bench.value]);
        let watchers = self.split().1;
        for Seat { session, .. } in &mut *watchers {
            session.request(1, op::GET_DATA, |out| {
                out.put_text(&path);
                out.push(1);
            });
        }
        let all = watchers.len();
        let mut phase = Phase::Watching(all);
        self.until(tally, |writes, xid, _| {
            if !writes
                && xid != NOTIFICATION_XID
                && let Phase::Watching(left) = &mut phase
            {
                *left -= 1;
            }
            phase == Phase::Watching(0)
        })?;
        phase = Phase::Telling(all);
        let sent_at = Instant::now();
        self.split().0.request(2, op::SET_DATA, |out| {
            out.put_text(&path);
            out.put_buffer(Some(&value));
            out.put_i32(-1);
        });
        let mut acknowledged = false;
        self.until(tally, |writes, xid, now| {
            acknowledged |= writes;
            if xid == NOTIFICATION_XID
                && let Phase::Telling(left) = &mut phase
            {
                *left -= 1;
                reported(now - sent_at);
            }
            acknowledged && phase == Phase::Telling(0)
        })
    }

    /// Sends what waits, and hands every answer and notification to `took` until that says that it is enough. Its argument is whether it is
    /// the writer's, its number, and the time.
    fn until(
        &mut self,
        tally: &mut Tally,
        mut took: impl FnMut(bool, i32, Instant) -> bool,
    ) -> io::Result<()> {
        for Seat { session, .. } in &mut self.seats {
            session.flush()?;
        }
        let serve = |Seat { session, writes }: &mut Seat, _| {
            session.flush()?;
            session.take_in(tally)?;
            let (now, mut enough) = (Instant::now(), false);
            while let Some(body) = session.next_body() {
                let Ok(xid) = JuteInput(&body).i32() else {
                    return Err(io::Error::other("a reply without header"));
                };
                enough |= took(*writes, xid, now);
            }
            Ok(enough)
        };
        closed_loop::run(&mut self.poll, &mut self.seats, Window::until_done(), &[], |_| false, serve)
            .map(drop)
    }
}
