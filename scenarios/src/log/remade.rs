//! A log that is deleted and made anew under its writers, now with its oldest entries to go where there is no room, now not.
//!
//! What a full host has let into the one log, because that drops its oldest entries, comes late, into the next log of its name.

use super::Node;
use crate::moments::{leaders, sequencer};
use ::mason::Deployment;
use kernel::{Encode as _, HostId, RequestId, Rng};
use shared_log::{Answer, Append, Cleanup, Create, Named, Part, Request, Rows};
use sim::{Cluster, Control};
use std::collections::BTreeSet;
use std::time::Duration;

/// The log.
pub(super) const REMADE: &str = "remade";
/// What comes late holds so many segments at most.
const LATE_MAX: u64 = 8;
/// A plot that gets no further is given up.
const PLOTTED_FOR: Duration = Duration::from_secs(3);

/// How far the plot is.
enum Stage {
    /// The log is written to, and made if it is not there.
    Fills,
    Deletes(RequestId),
    MakesAnew(RequestId),
    /// It is made anew, and what was let in before comes.
    Awaits,
}

/// See the file's head.
pub(super) struct Remade {
    rng: Rng,
    segment_bytes: usize,
    stage: Stage,
    acts_at: u64,
    gives_up_at: u64,
    /// Who deletes and makes it.
    operator: Option<HostId>,
    /// The appends that come late.
    late: BTreeSet<RequestId>,
    written: u64,
}

fn ms(least: u64, most: u64, rng: &mut Rng) -> Duration {
    rng.duration(Duration::from_millis(least), Duration::from_millis(most))
}

/// What the log is on a host; none if it is not there.
fn cleanup_at(host: HostId, cluster: &Cluster<'_, Node>) -> Option<Cleanup> {
    cluster.nodes_of(host).find_map(|(_, node)| {
        let Node::Shard(server) = node else { return None };
        let mut logs = server.service().logs().logs();
        logs.find(|(name, _)| *name == REMADE).map(|(_, log)| log.description().cleanup)
    })
}

/// True if the logs of a host have no room.
fn is_full(host: HostId, cluster: &Cluster<'_, Node>) -> bool {
    cluster.nodes_of(host).any(|(_, node)| match node {
        Node::Gateway(gateway) => {
            let (used, most) = gateway.disk();
            used >= most
        }
        _ => false,
    })
}

impl Remade {
    pub(super) fn new(segment_bytes: usize, rng: Rng) -> Self {
        Self {
            rng,
            segment_bytes,
            stage: Stage::Fills,
            acts_at: 0,
            gives_up_at: 0,
            operator: None,
            late: BTreeSet::new(),
            written: 0,
        }
    }

    /// Does the next step if it is time.
    pub(super) fn watch(&mut self, control: &mut Control<'_, Node>) {
        let now = control.cluster.now();
        if now < self.acts_at {
            return;
        }
        self.acts_at = now + ms(20, 300, &mut self.rng).as_nanos() as u64;
        if matches!(self.stage, Stage::Fills) {
            self.fill(control);
        } else if now > self.gives_up_at || self.late.is_empty() {
            self.stage = Stage::Fills;
            self.late.clear();
        }
    }

    fn fill(&mut self, control: &mut Control<'_, Node>) {
        let up: Vec<HostId> = control.cluster.hosts().filter(|host| control.cluster.is_up(*host)).collect();
        let Some(&host) = self.rng.pick(&up) else { return };
        let others: Vec<HostId> = up.into_iter().filter(|other| *other != host).collect();
        match cleanup_at(host, &control.cluster) {
            None => {
                self.ask(host, &made(Cleanup::DropOldest), control);
            }
            Some(Cleanup::Refuse) => {
                self.ask(host, &Request::Delete(named()), control);
            }
            Some(Cleanup::DropOldest) => {
                // Who leads or numbers would hold up the others, too.
                let leads = leaders(&control.cluster).iter().any(|(_, leader)| *leader == host);
                let is_needed = leads || sequencer(&control.cluster) == Some(host);
                let operator = self.rng.pick(&others).copied();
                match operator.filter(|_| is_full(host, &control.cluster)) {
                    Some(operator) if !is_needed => self.begin(host, operator, &others, control),
                    Some(_) | None => {
                        let append = self.append();
                        self.ask(host, &append, control);
                    }
                }
            }
        }
    }

    /// What a full host lets in is late; meanwhile another one deletes the log.
    fn begin(&mut self, host: HostId, operator: HostId, others: &[HostId], control: &mut Control<'_, Node>) {
        let late = ms(100, 800, &mut self.rng);
        others.iter().for_each(|other| control.clog(host, *other, late));
        for _ in 0..self.rng.between(2, LATE_MAX) {
            let append = self.append();
            let id = self.ask(host, &append, control);
            self.late.insert(id);
        }
        self.stage = Stage::Deletes(self.ask(operator, &Request::Delete(named()), control));
        self.operator = Some(operator);
        self.gives_up_at = control.cluster.now() + PLOTTED_FOR.as_nanos() as u64;
    }

    pub(super) fn answered(&mut self, id: RequestId, answer: &Answer, control: &mut Control<'_, Node>) {
        let is_late = self.late.remove(&id);
        match (&self.stage, answer) {
            (Stage::Deletes(asked), Answer::Done) if *asked == id => {
                if let Some(operator) = self.operator {
                    self.stage = Stage::MakesAnew(self.ask(operator, &made(Cleanup::Refuse), control));
                }
            }
            (Stage::MakesAnew(asked), Answer::Done) if *asked == id => self.stage = Stage::Awaits,
            (Stage::Awaits, Answer::Appended(_)) if is_late => {
                control.mark("scenario.remade_a_log_under_its_writers");
            }
            _ => {}
        }
    }

    /// An entry of up to a segment.
    fn append(&mut self) -> Request {
        self.written += 1;
        let padding = self.rng.between(1, self.segment_bytes as u64) as usize;
        let mut rows = Rows::default();
        rows.push(format!("{REMADE}.{}.{:.<padding$}", self.written, "").as_bytes());
        let part = Part { name: REMADE.to_owned(), expect: None, entries: rows.into_bytes() };
        Request::Append(Append { parts: vec![part], admitted: None })
    }

    fn ask(&mut self, host: HostId, request: &Request, control: &mut Control<'_, Node>) -> RequestId {
        control.request(Deployment::gateway(host), request.encoded().into())
    }
}

fn named() -> Named {
    Named { name: REMADE.to_owned() }
}

fn made(cleanup: Cleanup) -> Request {
    Request::Create(Create {
        name: REMADE.to_owned(),
        retain_bytes: 0,
        retain_ms: 0,
        capacity: 0,
        cleanup: Some(cleanup),
        first: None,
    })
}
