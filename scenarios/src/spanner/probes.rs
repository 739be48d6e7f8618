//! After the heal every host serves reads of every level and writes, whether it has a replica or not.

use super::workload;
use super::{Node, SpannerScenario};
use kernel::{HostId, RequestId};
use sim::Control;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::txn::{TxnLevel, TxnReply};

/// The alarm by which who has not been served asks again.
pub(super) const ASK_AGAIN: u64 = 4;
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The sessions of probes follow all others.
const CLIENTS_FROM: u16 = 30_000;

/// What is asked: a read at a level, or a write of keys of its own.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Probe {
    Read(TxnLevel),
    Write,
}

/// Replicas answer the first two.
const PROBES: [Probe; 5] = [
    Probe::Read(TxnLevel::ProcessOrdered),
    Probe::Read(TxnLevel::Stale(1_000_000)),
    Probe::Read(TxnLevel::Strict),
    Probe::Read(TxnLevel::Rss),
    Probe::Write,
];

/// Hosts that are to serve.
#[derive(Default)]
pub(super) struct Probes {
    /// Those that have not, and their reads in progress.
    missing: Vec<(HostId, Probe)>,
    asked: BTreeMap<RequestId, (HostId, Probe)>,
    count: u16,
}

impl Probes {
    /// Who has not been served.
    pub(super) fn missing(&self) -> Option<String> {
        let (host, probe) = self.missing.first()?;
        Some(format!("{host:?} has not served {probe:?}"))
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    pub(super) fn on_answer(&mut self, id: RequestId, reply: &TxnReply) {
        if let Some(asked) = self.asked.remove(&id)
            && matches!(reply, TxnReply::ReadRows(_) | TxnReply::Committed(_))
        {
            self.missing.retain(|missing| *missing != asked);
        }
    }
}

impl SpannerScenario {
    pub(super) fn begin_probes(&mut self, core: &[HostId], control: &mut Control<'_, Node>) {
        let all = core.iter().flat_map(|&host| PROBES.map(|probe| (host, probe)));
        self.probes.missing = all.collect();
        self.probe(control);
    }

    pub(super) fn probe(&mut self, control: &mut Control<'_, Node>) {
        if self.probes.missing.is_empty() {
            return;
        }
        control.alarm(ASK_EVERY, ASK_AGAIN);
        for (host, probe) in self.probes.missing.clone() {
            let is_asked = self.probes.asked.values().any(|asked| *asked == (host, probe));
            if is_asked || !control.cluster.is_up(host) {
                continue;
            }
            let client = CLIENTS_FROM + self.probes.count;
            self.probes.count += 1;
            let id = u64::from(client) << 32;
            let planned = match probe {
                Probe::Read(level) => workload::read_of_all(id, level),
                Probe::Write => {
                    let nth = control.cluster.hosts().position(|it| it == host).unwrap_or(0);
                    workload::writes_own(id, nth, &format!("{client}.probes"))
                }
            };
            let node = self.deployment.gateway_of(host);
            let id = self.ask(node, &planned.call, control);
            self.history.asked(id, (client, 0), node, &planned, control.cluster.now());
            self.probes.asked.insert(id, (host, probe));
        }
    }
}
