//! Hosts on loopback whose clocks lie or are set, and timers of less than a millisecond.

use super::support::{LIMIT, cluster, eventually};
use kernel::{ClockTrouble, Cx, Family, HostSlot, NodeId, Position, RequestId, Role, Wall};
use runtime::{ClockConfig, ClockSource, ClockState, Host, HostConfig, HostHandle};
use std::convert::Infallible;
use std::time::Duration;

kernel::messages! {
    /// To the ticker: nothing.
    pub enum TickerIn in Message::Ticker {
        /// Never sent.
        1 => Nothing { number: u64 },
    }
}

kernel::timers! {
    /// The ticker's timers.
    pub enum TickerTimer {
        /// Set once. Of two that run out at one moment it comes first.
        End,
        /// Set again and again.
        Fine,
    }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Ticking {
        1 => Ticker(TickerIn, Ticker, "ticker"),
    }
}

#[derive(Debug)]
pub struct Ticking;

impl Family for Ticking {
    type Message = Message;
    /// How often, in microseconds, to tick for 10 ms; none: how often it has ticked, and the clock.
    type Request = Option<u64>;
    /// How often it ticked, and the clock.
    type Response = (u64, Wall);
}

#[derive(Debug, Default)]
pub struct Ticker {
    asked: Option<RequestId>,
    every: Duration,
    ticks: u64,
}

impl Role for Ticker {
    type Family = Ticking;
    type In = TickerIn;
    type Timer = TickerTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, _from: NodeId, TickerIn::Nothing(_): TickerIn, _cx: &mut Cx<'_, Self>) {}

    fn on_request(&mut self, id: RequestId, every: Option<u64>, cx: &mut Cx<'_, Self>) {
        let Some(every) = every else { return cx.respond(id, (self.ticks, cx.wall())) };
        (self.asked, self.every, self.ticks) = (Some(id), Duration::from_micros(every), 0);
        cx.set_timer(TickerTimer::End, Duration::from_millis(10));
        cx.set_timer(TickerTimer::Fine, self.every);
    }

    fn on_timer(&mut self, timer: TickerTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            TickerTimer::Fine => {
                self.ticks += 1;
                cx.set_timer(TickerTimer::Fine, self.every);
            }
            TickerTimer::End => {
                cx.stop_timer(TickerTimer::Fine);
                if let Some(id) = self.asked.take() {
                    cx.respond(id, (self.ticks, cx.wall()));
                }
            }
        }
    }
}

const TICKER: HostSlot = HostSlot(1);

fn ticker() -> Vec<(HostSlot, Member)> {
    vec![(TICKER, Member::Ticker(Ticker::default()))]
}

fn state(host: &HostHandle<Member>) -> ClockState {
    host.metrics().wait(LIMIT).expect("it runs").clock
}

fn wall(host: &HostHandle<Member>) -> Wall {
    host.request(TICKER, None).wait(LIMIT).expect("it runs").1
}

// A wait of 100 us that takes a millisecond makes every commit wait one; an alarm that goes on spins an idle host.
#[test]
fn timers_of_less_than_a_millisecond_are_that_and_end() {
    let host = Host::start(HostConfig::new("test", "a"), ticker, vec![]).expect("it starts");
    let handle = host.handle();
    // Whole milliseconds leave room for 10 ticks in 10 ms; a busy machine needs several tries.
    eventually("20 ticks of 100 us within 10 ms", || {
        handle.request(TICKER, Some(100)).wait(LIMIT).expect("it runs").0 >= 20
    });
    let before = handle.metrics().wait(LIMIT).expect("it runs").bursts;
    std::thread::sleep(Duration::from_millis(200));
    let rounds = handle.metrics().wait(LIMIT).expect("it runs").bursts - before;
    assert!(rounds < 20, "{rounds} rounds with nothing to do");
    host.stop().expect("it stops in peace");
}

// A timer that fires although it was stopped makes a leader of a host that has just heard of one, and ticks for ever.
#[test]
fn a_timer_that_is_stopped_at_the_moment_it_runs_out_does_not_fire() {
    let host = Host::start(HostConfig::new("test", "a"), ticker, vec![]).expect("it starts");
    let ticks = |every| host.handle().request(TICKER, every).wait(LIMIT).expect("it runs").0;
    assert_eq!(ticks(Some(10_000)), 0, "the end comes first, and stops it");
    assert_eq!(ticks(None), 0, "it came after it was stopped");
    host.stop().expect("it stops in peace");
}

// A host whose clock is off by a second goes on serving by it, or takes the honest ones down with it.
#[test]
fn a_clock_that_lies_is_fenced_by_the_others_and_comes_back() {
    let hosts: Vec<_> = cluster(&["a", "b", "c"])
        .into_iter()
        .map(|config| Host::start(config, ticker, vec![]).expect("it starts"))
        .collect();
    let handles: Vec<_> = hosts.iter().map(Host::handle).collect();
    for off in [1_000_000_000, -1_000_000_000] {
        assert!(handles.iter().all(|handle| wall(handle).usable), "honest clocks");
        handles[1].set_clock_off(off);
        eventually("the liar is fenced", || {
            let state = state(&handles[1]);
            state.trouble == Some(ClockTrouble::Contradicted) && state.contradicted_by.len() == 2
        });
        assert!(!wall(&handles[1]).usable, "roles see it");
        assert!(wall(&handles[0]).usable && wall(&handles[2]).usable, "the others go on");
        handles[1].set_clock_off(0);
        eventually("it is usable again by itself", || wall(&handles[1]).usable);
        eventually("nobody is blamed any more", || {
            handles.iter().all(|handle| state(handle).contradicted_by.is_empty())
        });
    }
    for host in hosts {
        host.stop().expect("it stops in peace");
    }
}

// A host that needs a clock and has none must say so before it serves; one that needs none must serve.
#[test]
fn a_host_starts_without_a_clock_only_if_it_needs_none() {
    let tight = |required| ClockConfig {
        source: ClockSource::Fixed { epsilon: Duration::from_millis(2) },
        error_max: Duration::from_millis(1),
        required,
    };
    let start = |required| {
        let config = HostConfig { clock: tight(required), ..HostConfig::new("test", "a") };
        Host::start(config, ticker, vec![])
    };
    let refused = start(true).err().expect("2 ms are more than 1 ms").to_string();
    assert!(refused.contains("exceeds clock.error_max"), "{refused}");
    let host = start(false).expect("no clock is needed");
    assert_eq!(state(&host.handle()).trouble, Some(ClockTrouble::TooWide));
    let wall = wall(&host.handle());
    assert!(!wall.usable && wall.trusted().is_none());
    assert_eq!(wall.latest - wall.earliest, 4_000_000);
    host.stop().expect("it stops in peace");
}
