//! Whether users would be served here now: a barrier passes, so every group answers by its log, and every shard's server of
//! this host answers a read.

use crate::gateway::Gateway;
use kernel::{Bytes, Cx, Instant, RequestId};
use mason::Space;
use std::collections::BTreeMap;

/// Probes in flight; more are refused, because one shows as much as many.
const PROBES_MAX: usize = 16;

/// One question of the host's server.
#[derive(Debug)]
struct Probe {
    id: RequestId,
    since: Instant,
    barrier: u64,
}

/// The probes in flight, and when each shard was heard last.
#[derive(Debug, Default)]
pub(super) struct Probes {
    waiting: Vec<Probe>,
    heard: BTreeMap<Space, Instant>,
}

impl Probes {
    pub(super) fn heard(&mut self, space: Space, now: Instant) {
        self.heard.insert(space, now);
    }
}

impl Gateway {
    /// Answered with `READY`, as soon as it is true; what was not answered in time is not ready.
    pub(super) fn begin_probe(&mut self, id: RequestId, cx: &mut Cx<'_, Self>) {
        if self.probes.waiting.len() >= PROBES_MAX {
            return cx.respond(id, kernel::client::Response(Bytes::new()));
        }
        let barrier = self.upstream.barriers().want_for_nobody();
        for space in 0..self.settings.placement.shards() {
            self.reads.ask_sizes(Space(space));
        }
        self.probes.waiting.push(Probe { id, since: self.now, barrier });
    }

    pub(super) fn answer_probes(&mut self, cx: &mut Cx<'_, Self>) {
        let shards = self.settings.placement.shards();
        let (barriers, heard) = (&self.upstream, &self.probes.heard);
        self.probes.waiting.retain(|probe| {
            let answers = |space| heard.get(&Space(space)).is_some_and(|at| *at >= probe.since);
            let ready = barriers.has_passed(probe.barrier) && (0..shards).all(answers);
            if ready {
                cx.respond(probe.id, kernel::client::Response(Self::READY));
            }
            !ready
        });
    }

    /// What a probe is answered when users would be served.
    pub const READY: Bytes = Bytes::from_static(b"ready");
}
