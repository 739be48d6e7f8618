//! Running many deployments side by side.

use super::drawing::Point;
use crate::multipaxos::{Running, StoreDeployment, Workload};
use crate::profile::Profile;
use sim::cost::{Measured, Pace, Window};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Who receives the progress of a figure.
pub struct RunWatch<'a> {
    /// Called with how many runs are done, and how many there are.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
    /// Runs at one time.
    pub threads: usize,
}

impl RunWatch<'_> {
    /// Does all the work, several pieces at one time, and returns what came of them in their order.
    pub fn each<T: Sync, R: Send>(&self, work: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<Mutex<Option<R>>> = work.iter().map(|_| Mutex::new(None)).collect();
        (self.progress)(0, work.len());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, work.len().max(1)) {
                scope.spawn(|| {
                    while let Some(piece) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let index = work.iter().position(|other| std::ptr::eq(other, piece)).unwrap_or(0);
                        let result = run(piece);
                        if let Ok(mut slot) = results[index].lock() {
                            *slot = Some(result);
                        }
                        (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
                    }
                });
            }
        });
        let taken = results.into_iter().map(|slot| slot.into_inner().ok().flatten());
        taken
            .map(|result| result.expect("every piece was worked off, or its thread's panic came first"))
            .collect()
    }
}

/// One run of a deployment.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) deployment: StoreDeployment,
    pub(super) workload: Workload,
    /// Clients, and calls that each keeps in flight.
    pub(super) clients: usize,
    pub(super) outstanding: u32,
    pub(super) measured: Duration,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) throughput: f64,
    pub(super) median: Duration,
    pub(super) clients: usize,
    pub(super) bottleneck: &'static str,
    pub(super) busy: f64,
}

impl Run {
    pub(super) fn new(deployment: StoreDeployment, workload: Workload, clients: usize) -> Self {
        Self { deployment, workload, clients, outstanding: 1, measured: Duration::from_millis(100) }
    }

    /// The sessions of all clients are opened in the beginning, one command each.
    fn window(&self) -> Window {
        let opening = Duration::from_micros(60) * self.clients as u32;
        Window { warm_up: Duration::from_millis(40) + opening, measured: self.measured }
    }

    pub(super) fn run(&self, profile: &Profile) -> Result<Given, String> {
        let running = Running::start(&self.deployment, profile, &self.workload, self.clients, 1);
        let mut running = running.map_err(|error| error.to_string())?;
        let clients = running.clients.clone();
        let pace = Pace::Closed { outstanding: self.outstanding };
        let measured = running.testbed.run(&clients, pace, &mut self.workload.clone(), self.window());
        let (bottleneck, busy) = running.bottleneck(&measured);
        Ok(self.given(&measured, bottleneck, busy))
    }

    fn given(&self, measured: &Measured, bottleneck: &'static str, busy: f64) -> Given {
        Given {
            throughput: measured.throughput(),
            median: measured.latency(0.5),
            clients: self.clients * self.outstanding as usize,
            bottleneck,
            busy,
        }
    }
}

impl Given {
    pub(super) fn note(&self) -> String {
        let Given { clients, bottleneck, busy, .. } = self;
        format!("{clients} calls in flight; {bottleneck} {:.0} % busy", busy * 100.0)
    }

    /// Throughput across, median latency up, in milliseconds.
    pub(super) fn latency_point(&self) -> Point {
        Point { x: self.throughput, y: self.median.as_secs_f64() * 1e3, note: self.note() }
    }
}

/// Runs all.
pub(super) fn run_all(runs: &[Run], profile: &Profile, watch: &RunWatch<'_>) -> Result<Vec<Given>, String> {
    watch.each(runs, |run| run.run(profile)).into_iter().collect()
}
