//! Whether this host serves, in total and by service: looked at all the time on a thread of its own, so that readiness, status, metrics,
//! page and log say the same.
//!
//! What is cheap is looked at twice a second, and once where nobody asks: whom this host hears, and what its roles say. A linearizable read of each service follows
//! where that has changed, where the host does not serve, while anybody asks, and else every few seconds. A read that has something logged
//! is not made while the leaders of the service's logs are heard, and the same as before.

use crate::cluster::ClusterFile;
use crate::cluster::description::{ReadyProbe, Service};
use crate::events::{EventLog, LogPart};
use crate::family::{HostedNode, LocalResponse as Answered};
use crate::readiness::{Health, Unready};
use crate::services::status::ServiceStatus;
use crate::status::HostStatus;
use runtime::{Answer, HostHandle, NoAnswer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks where nobody asks and all is well.
const QUIET_LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long a read may take.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// What was seen longer ago is not shown while a newer look can be had.
const FRESH_FOR: Duration = Duration::from_millis(2_500);
/// Reads go on for so long after the last who asked.
const ASKED_FOR: Duration = Duration::from_secs(3);
/// Reads where nobody asks and nothing changes.
const QUIET_READS_EVERY: Duration = Duration::from_secs(5);

/// A look, and when it began.
#[derive(Clone, Debug)]
struct Look {
    began: Instant,
    health: Arc<Health>,
    /// It came with reads of all services.
    with_reads: Option<Instant>,
}

/// What a host's watcher sees; cheap to clone.
#[derive(Clone)]
pub struct HealthWatch(Arc<Shared>);

struct Shared {
    begun: Instant,
    /// When it was asked last, in milliseconds after `begun`; 0: never.
    asked_at: AtomicU64,
    wanted: Notify,
    seen: watch::Sender<Look>,
}

impl HealthWatch {
    /// Looks at a host from a thread of its own until the host ends. What changes is written to `log`, if there is one; `started` is when
    /// the host was.
    pub fn start(
        handle: HostHandle<HostedNode>,
        file: ClusterFile,
        host: String,
        started: Instant,
        log: Option<EventLog>,
    ) -> std::io::Result<Self> {
        let begun = Instant::now();
        let health = Arc::new(Health::of_none(&file, Unready::Begins));
        let seen = watch::Sender::new(Look { began: begun, health, with_reads: None });
        let shared = Shared { begun, asked_at: AtomicU64::new(0), wanted: Notify::new(), seen };
        let watch = Self(Arc::new(shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let watcher = Watcher {
            shared: Arc::clone(&watch.0),
            reads: file.services().iter().map(|service| Read::of(service, &file, &host)).collect(),
            reporter: log.map(|log| Reporter {
                log,
                started,
                has_served: false,
                unready: None,
                leader: None,
                warned: BTreeSet::new(),
            }),
            handle,
            file,
            host,
            heard: BTreeMap::new(),
            cheap: None,
        };
        std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || runtime.block_on(watcher.run()))?;
        Ok(watch)
    }

    fn ask(&self) -> Instant {
        let now = Instant::now();
        let millis = now.duration_since(self.0.begun).as_millis() as u64;
        self.0.asked_at.store(millis.max(1), Ordering::Relaxed);
        now
    }

    /// What was seen of late, reads included.
    pub async fn latest(&self) -> Arc<Health> {
        let is_recent = |look: &Look, now: Instant| {
            let read_at = look.with_reads.unwrap_or(self.0.begun);
            now.saturating_duration_since(look.began) < FRESH_FOR
                && (look.health.host.is_some() || now.saturating_duration_since(read_at) < FRESH_FOR)
        };
        let look = self.0.seen.borrow().clone();
        let now = self.ask();
        if is_recent(&look, now) {
            return look.health;
        }
        self.after(now).await
    }

    /// What a look shows that begins now.
    pub async fn now(&self) -> Arc<Health> {
        let now = self.ask();
        self.after(now).await
    }

    /// Returns when all services have been served for so long without a break.
    pub async fn settled(&self, span: Duration) {
        let mut seen = self.0.seen.subscribe();
        // A host that has ended is watched no more, and settles no more.
        while seen.wait_for(|look| look.health.is_ready()).await.is_ok() {
            let ended = tokio::time::timeout(span, seen.wait_for(|look| !look.health.is_ready()));
            if ended.await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }

    async fn after(&self, moment: Instant) -> Arc<Health> {
        let mut seen = self.0.seen.subscribe();
        self.0.wanted.notify_one();
        let within = 2 * (READ_WITHIN + crate::status::ANSWER_WITHIN);
        let newer = seen.wait_for(|look| look.began >= moment);
        match tokio::time::timeout(within, newer).await {
            Ok(Ok(look)) => Arc::clone(&look.health),
            Ok(Err(_)) | Err(_) => Arc::new(Health { host: Some(Unready::Hangs), ..Health::default() }),
        }
    }
}

/// One service's read. At most one is on its way: one that is not answered is waited for again.
struct Read {
    service: &'static str,
    probe: ReadyProbe,
    unanswered: Mutex<Option<Answer<Answered>>>,
}

impl Read {
    fn of(service: &Arc<dyn Service>, file: &ClusterFile, host: &str) -> Self {
        Self {
            service: service.listed().name,
            probe: service.probe(file, host),
            unanswered: Mutex::new(None),
        }
    }

    fn unanswered(&self) -> std::sync::MutexGuard<'_, Option<Answer<Answered>>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why its users would not be served; none if they would.
    async fn look(&self, handle: &HostHandle<HostedNode>) -> Option<String> {
        let ReadyProbe { host_slot, request, accepts, is_logged: _ } = &self.probe;
        // What was answered meanwhile says nothing of now.
        let before = self.unanswered().take();
        let waiting = match before {
            Some(mut answer) => match tokio::time::timeout(Duration::ZERO, &mut answer).await {
                Ok(_) => None,
                Err(_) => Some(answer),
            },
            None => None,
        };
        let mut answer = waiting.unwrap_or_else(|| handle.request_unused(*host_slot, request()));
        match tokio::time::timeout(READ_WITHIN, &mut answer).await {
            Ok(Ok(answer)) if accepts(&answer) => None,
            Ok(Ok(_)) => Some("a read was refused".to_owned()),
            Ok(Err(NoAnswer::Stopped | NoAnswer::TimedOut(_))) => Some("the host is stopping".to_owned()),
            Err(_) => {
                *self.unanswered() = Some(answer);
                Some(format!("no answer to a read within {} s", READ_WITHIN.as_secs()))
            }
        }
    }
}

/// What a change of calls for reads.
#[derive(Clone, PartialEq, Eq)]
struct Cheap {
    leader: Option<String>,
    round: u64,
    unheard: Vec<String>,
    host: Option<Unready>,
}

struct Watcher {
    /// Who led the logs of a service when it was read last.
    heard: BTreeMap<&'static str, String>,
    shared: Arc<Shared>,
    reads: Vec<Read>,
    reporter: Option<Reporter>,
    handle: HostHandle<HostedNode>,
    file: ClusterFile,
    host: String,
    cheap: Option<Cheap>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            let began = Instant::now();
            let look = self.look(began).await;
            if let Some(reporter) = &mut self.reporter {
                reporter.report(&look.health, self.cheap.as_ref(), &self.host);
            }
            let quiet = look.health.is_ready() && !self.is_asked(began);
            self.shared.seen.send_replace(look);
            if self.has_ended().await {
                return;
            }
            let next = if quiet { QUIET_LOOKS_EVERY } else { LOOK_EVERY };
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.shared.wanted.notified() => {}
            }
        }
    }

    async fn has_ended(&self) -> bool {
        if self.shared.seen.borrow().health.host != Some(Unready::Hangs) {
            return false;
        }
        let answer = tokio::time::timeout(crate::status::ANSWER_WITHIN, self.handle.metrics()).await;
        matches!(answer, Ok(Err(NoAnswer::Stopped)))
    }

    fn is_asked(&self, now: Instant) -> bool {
        let asked_at = self.shared.asked_at.load(Ordering::Relaxed);
        let since = now.duration_since(self.shared.begun).saturating_sub(Duration::from_millis(asked_at));
        asked_at != 0 && since < ASKED_FOR
    }

    async fn look(&mut self, began: Instant) -> Look {
        let before = self.shared.seen.borrow().clone();
        let seen = HostStatus::of_late(&self.handle, &self.file, &self.host, Duration::ZERO).await;
        let Some((status, _)) = seen.as_deref() else {
            let health = Arc::new(Health::of_none(&self.file, Unready::Hangs));
            return Look { began, health, with_reads: before.with_reads };
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.warn(status.services.iter().flat_map(ServiceStatus::warnings).collect());
        }
        let host = status.not_ready();
        let heard: BTreeMap<_, _> = status.services.iter().filter_map(ServiceStatus::leaders_heard).collect();
        let (leader, unheard) = (status.leader.clone(), status.unheard.clone());
        let cheap = Some(Cheap { leader, round: status.round, unheard: unheard.clone(), host: host.clone() });
        let changed = cheap != self.cheap;
        self.cheap = cheap;
        let due = before.with_reads.is_none_or(|at| began.duration_since(at) >= QUIET_READS_EVERY);
        let reads = host.is_none() && (changed || due || !before.health.is_ready() || self.is_asked(began));
        if !reads {
            let services = before.health.services.clone();
            let health = Arc::new(Health { host, services, unheard });
            return Look { began, health, with_reads: before.with_reads };
        }
        let wanted = changed || !before.health.is_ready();
        let looks = self.reads.iter().map(|read| async {
            // While the same leaders are heard, and hear quorums, what a logged read would show is known.
            let is_same =
                heard.contains_key(read.service) && heard.get(read.service) == self.heard.get(read.service);
            let stands = read.probe.is_logged && !wanted && is_same;
            let known = before.health.services.get(read.service).filter(|_| stands);
            match known {
                Some(known) => (read.service, known.clone()),
                None => (read.service, read.look(&self.handle).await),
            }
        });
        let services = futures_util::future::join_all(looks).await.into_iter().collect();
        self.heard = heard;
        let health = Arc::new(Health { host, services, unheard });
        Look { began, health, with_reads: Some(began) }
    }
}

/// What the log says of changes.
struct Reporter {
    log: EventLog,
    started: Instant,
    /// The host has served since it started.
    has_served: bool,
    /// Since when it does not serve, and why; none while it does.
    unready: Option<(Instant, String)>,
    leader: Option<String>,
    /// What the services have warned of, and still do.
    warned: BTreeSet<String>,
}

impl Reporter {
    /// Each warning is said when it comes up.
    fn warn(&mut self, warnings: BTreeSet<String>) {
        warnings.difference(&self.warned).for_each(|warning| self.log.warn(LogPart::Health, warning));
        self.warned = warnings;
    }

    fn report(&mut self, health: &Health, cheap: Option<&Cheap>, host: &str) {
        if let Some(Cheap { leader, round, .. }) = cheap
            && *leader != self.leader
        {
            self.leader.clone_from(leader);
            self.log.say(
                LogPart::Health,
                &match leader {
                    Some(leader) if leader == host => format!("this host leads (round {round})"),
                    Some(leader) => format!("{leader} leads (round {round})"),
                    None => "no leader is heard".to_owned(),
                },
            );
        }
        self.lines_of(health.words(host), Instant::now())
            .iter()
            .for_each(|line| self.log.say(LogPart::Health, line));
    }

    /// The lines to write when a host serves, or does not for this reason.
    fn lines_of(&mut self, unready: Option<String>, now: Instant) -> Option<String> {
        let Some(why) = unready else {
            let since = self.unready.take();
            if !std::mem::replace(&mut self.has_served, true) {
                return Some(format!(
                    "serving after {:.2} s",
                    now.duration_since(self.started).as_secs_f64()
                ));
            }
            let (since, _) = since?;
            return Some(format!("serving again, after {:.1} s", now.duration_since(since).as_secs_f64()));
        };
        let since = self.unready.as_ref().map_or(now, |(since, _)| *since);
        let before = self.unready.replace((since, why.clone()));
        if before.is_some_and(|(_, before)| before == why) {
            return None;
        }
        Some(format!("not serving: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A host that is alone must not say that it serves, nor say every half second that it does not.
    #[test]
    fn the_log_has_a_line_for_each_change() {
        let started = Instant::now();
        let log = EventLog::default();
        let warned = BTreeSet::new();
        let mut reporter = Reporter { log, started, has_served: false, unready: None, leader: None, warned };
        let at = |millis| started + Duration::from_millis(millis);
        let alone = || Some("no quorum".to_owned());
        assert_eq!(reporter.lines_of(alone(), at(100)).as_deref(), Some("not serving: no quorum"));
        assert_eq!(reporter.lines_of(alone(), at(600)), None);
        assert_eq!(reporter.lines_of(None, at(1_500)).as_deref(), Some("serving after 1.50 s"));
        assert_eq!(reporter.lines_of(None, at(2_000)), None);
        assert!(reporter.lines_of(alone(), at(3_000)).is_some());
        let other = reporter.lines_of(Some("the disk is full".to_owned()), at(4_000));
        assert_eq!(other.as_deref(), Some("not serving: the disk is full"));
        assert_eq!(reporter.lines_of(None, at(5_500)).as_deref(), Some("serving again, after 2.5 s"));
    }

    // A service whose read is not answered must be named, and the others must not be shown as down with it.
    #[test]
    fn a_service_that_does_not_answer_is_named() {
        let services = [("kv", None), ("log", Some("no answer".to_owned()))].into_iter().collect();
        let health = Health { services, unheard: vec!["c".to_owned()], ..Health::default() };
        assert_eq!(health.words("a").as_deref(), Some("log: no answer; this host does not hear c"));
        assert!(health.serves("kv") && !health.serves("log") && !health.serves("txn") && !health.is_ready());
        let all = Health { host: Some(Unready::DiskFull), ..health };
        assert!(!all.serves("kv"));
        assert_eq!(all.words("a").as_deref(), Some("the disk is full"));
    }
}
