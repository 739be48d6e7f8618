//! How long sessions live, by the true time that the simulator knows and nobody else does.
//!
//! A session must not expire sooner than its timeout after the last sign of life that a log has applied. Its group counts that by a
//! clock of its own, which is looked at, too: it may stand still, and never runs ahead of the time.

use super::node::Seat;
use super::rest;
use coordination::wire::ZkSessionId;
use kernel::{HostId, NodeId, invariant};
use mason::Group;
use sim::Cluster;
use std::collections::BTreeMap;

/// Clocks gain or lose up to one part in a hundred in the simulator.
const DRIFT: u64 = 100;
/// How long a sign of life may be on its way to the log, or the log's leader stand still, beyond the slack of sessions: what was
/// logged meanwhile counts from an earlier time of the group's clock.
const STALL_MAX: u64 = 4_000_000_000;
const MILLION: u64 = 1_000_000;

/// What is known of one session.
#[derive(Debug, Default)]
struct Incarnation {
    /// In milliseconds.
    timeout: u64,
    /// The latest deadline that any replica of a group has shown, in that group's time: the clocks of groups have nothing to do with
    /// each other.
    deadlines: BTreeMap<Group, u64>,
    /// When that was, in true time.
    put_off_at: u64,
    /// When the user asked for the last thing that its session is known to have done.
    acted_at: u64,
    /// The user may have closed it.
    closes: bool,
    over: bool,
}

/// The incarnations of all sessions.
#[derive(Debug, Default)]
pub(super) struct Living {
    incarnations: BTreeMap<u64, Incarnation>,
    /// Which replica had which session, and with which deadline. One that attaches with a shorter timeout has an earlier one.
    had: BTreeMap<NodeId, BTreeMap<u64, u64>>,
    /// Which replica was closing which session, and with which deadline: nothing that the session asks puts it off any more.
    closing: BTreeMap<NodeId, BTreeMap<u64, u64>>,
    /// The time of a replica's group when it was looked at last, and the leader's epoch.
    times: BTreeMap<NodeId, (u64, u64)>,
    /// How far each group's time is.
    clocks: BTreeMap<Group, GroupClock>,
    /// The newest layout of groups.
    layout: u64,
}

/// The furthest time of a group that any replica has shown.
#[derive(Clone, Copy, Debug, Default)]
struct GroupClock {
    time: u64,
    /// When it was shown first, in true time.
    moved_at: u64,
    /// For how long, in true time, the one before was the furthest. A leader that is paused, and that nobody can follow, moves no clock.
    stood: u64,
}

impl Living {
    pub(super) fn forget(&mut self, host: HostId) {
        self.had.retain(|node, _| node.host() != host);
        self.closing.retain(|node, _| node.host() != host);
        self.times.retain(|node, _| node.host() != host);
    }

    /// A session was granted, or has done what was asked then.
    pub(super) fn acted(&mut self, session: u64, asked: u64) {
        let incarnation = self.incarnations.entry(session).or_default();
        incarnation.acted_at = asked.max(incarnation.acted_at);
    }

    pub(super) fn closes(&mut self, session: u64) {
        self.incarnations.entry(session).or_default().closes = true;
    }

    /// A session of the core that nobody puts off and nobody ends.
    pub(super) fn endless(&self, core: &[HostId], cluster: &Cluster<'_, Seat>) -> Option<String> {
        let of_core = rest::replicas(cluster.nodes()).filter(|(node, _)| core.contains(&node.host()));
        let current = of_core.filter(|(_, machine)| machine.layout().version == self.layout);
        let mut views = current.flat_map(|(node, machine)| {
            machine.stub().sessions().after(ZkSessionId(0), machine.now()).map(move |view| (node, view))
        });
        views.find_map(|(node, view)| {
            let known = self.incarnations.get(&view.session.0).filter(|_| !view.closing)?;
            let since = cluster.now().saturating_sub(known.put_off_at);
            let is_endless = since > 2 * known.timeout * MILLION + STALL_MAX;
            is_endless.then(|| format!("{node} has session {}, put off {since} ns ago", view.session))
        })
    }

    /// Looks at the replicas of a host after a burst.
    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, Seat>) {
        let now = cluster.now();
        let known =
            rest::replicas(cluster.called_nodes_of(host)).map(|(_, machine)| machine.layout().version);
        self.layout = known.fold(self.layout, u64::max);
        for (node, machine) in rest::replicas(cluster.called_nodes_of(host)) {
            let (group, time) = (machine.group(), machine.now().0);
            let begun = (time, machine.leader_epoch());
            let before = self.times.insert(node, begun);
            invariant!(
                SESS,
                time * MILLION <= now + now / DRIFT,
                "the clock of group {group} is at {time} ms, {now} ns after the beginning"
            );
            let clock = self.clocks.entry(group).or_default();
            if time > clock.time {
                *clock = GroupClock { time, moved_at: now, stood: now - clock.moved_at };
            }
            let stall = STALL_MAX.max(clock.stood);
            // A leader that begins gives everybody a whole timeout again.
            let begins = before.is_some_and(|(_, epoch)| epoch != begun.1);
            let had = self.had.entry(node).or_default();
            for view in machine.stub().sessions().after(ZkSessionId(0), machine.now()) {
                let session = view.session.0;
                let deadline_here = had.insert(session, view.deadline.0);
                let incarnation = self.incarnations.entry(session).or_default();
                incarnation.timeout = u64::from(view.timeout);
                if view.closing {
                    let closing = self.closing.entry(node).or_default();
                    let before = *closing.entry(session).or_insert(view.deadline.0);
                    invariant!(
                        SESS,
                        before == view.deadline.0,
                        "{node} is closing session {session:x}, and has put it off from {before} to {:?}",
                        view.deadline
                    );
                    incarnation.ends(session, (deadline_here.unwrap_or(0), time), (now, stall));
                    continue;
                }
                let deadline = incarnation.deadlines.entry(group).or_insert(0);
                let put_off = view.deadline.0 > *deadline;
                *deadline = view.deadline.0.max(*deadline);
                if put_off {
                    incarnation.put_off_at = now;
                }
                let since = before.map_or(0, |(before, _)| before);
                invariant!(
                    SESS,
                    !(put_off || begins) || view.deadline.0 >= since + incarnation.timeout,
                    "session {session:x} with a timeout of {} ms is put off to {:?} after {since}",
                    incarnation.timeout,
                    view.deadline
                );
            }
            if machine.layout().version < self.layout {
                // One that begins anew, or lags, knows of earlier homes only.
                continue;
            }
            for (&session, &deadline) in
                had.iter().filter(|(session, _)| machine.stub().sessions().has_ended(ZkSessionId(**session)))
            {
                self.incarnations.entry(session).or_default().ends(session, (deadline, time), (now, stall));
            }
            had.retain(|session, _| machine.stub().sessions().contains(ZkSessionId(*session)));
        }
    }
}

impl Incarnation {
    fn ends(&mut self, session: u64, (deadline, time): (u64, u64), (now, stall): (u64, u64)) {
        if std::mem::replace(&mut self.over, true) || self.closes {
            return;
        }
        invariant!(
            SESS,
            time >= deadline,
            "session {session:x} is over at {time} of its group's time, and its deadline is {deadline}"
        );
        let due = self.timeout * MILLION;
        invariant!(
            SESS,
            now.saturating_sub(self.acted_at) + stall >= due - due / DRIFT,
            "session {session:x} with a timeout of {} ms is over at {now} ns; it did what its user asked at {} ns",
            self.timeout,
            self.acted_at
        );
    }
}
