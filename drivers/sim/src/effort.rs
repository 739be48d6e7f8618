//! What a thread has used of a core: how long something takes must not depend on what else the machine does.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Seconds of a core that this thread has used; those that have passed where the system does not report them.
pub fn core_seconds() -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let passed = BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64();
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = reported.and_then(|reported| reported.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or(passed, |it| it / 1e9)
}

/// A budget of this thread's time on a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    began: f64,
    seconds: f64,
}

impl Budget {
    pub(crate) fn of(budget: Duration) -> Self {
        Self { began: core_seconds(), seconds: budget.as_secs_f64() }
    }

    pub(crate) fn spent(&self) -> Duration {
        Duration::from_secs_f64((core_seconds() - self.began).max(0.0))
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.spent().as_secs_f64() >= self.seconds
    }
}
