//! Keeps a host's links and its gate to what the log says of the membership: the cluster file only says how it began.

use crate::cluster::{ClusterFile, RoleName};
use crate::events::{EventLog, LogPart};
use crate::family::{HostedNode, LocalRequest};
use crate::gate::Gate;
use crate::latency::Latencies;
use crate::services::Follower;
use crate::status::{HostStatus, MembershipStatus, OF_LATE};
use runtime::{HostHandle, Metrics, PeerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often the membership is compared with the links.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// A host that left is dialled for so much longer, so that it learns of it.
const LEFT_DIALLED_FOR: Duration = Duration::from_secs(10);

/// The same where shards may have to take a snapshot of one that left.
const LEFT_DIALLED_FOR_SHARDS: Duration = Duration::from_secs(600);

/// Watches from a thread of its own until the host ends.
pub fn watch(
    handle: HostHandle<HostedNode>,
    file: ClusterFile,
    host: String,
    gate: Gate,
    log: EventLog,
    latencies: Latencies,
) {
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        let mut peers = Peers::new(file.hosts.iter().map(|it| (it.name.clone(), it.address.clone())), &host);
        let elsewhere = file.elsewhere.iter();
        peers.elsewhere = elsewhere.map(|it| (it.name.clone(), it.address.clone())).collect();
        let followers = file.services().iter().flat_map(|service| service.followers(&file, &host));
        let followers: Vec<Follower> = followers.collect();
        let left_dialled_for = if followers.is_empty() { LEFT_DIALLED_FOR } else { LEFT_DIALLED_FOR_SHARDS };
        let (mut seen, mut slow) = (Seen::default(), Slow::default());
        loop {
            log.tick();
            latencies.turn(Instant::now());
            slow.report(&latencies, &log, Instant::now());
            let of_late = HostStatus::of_late(&handle, &file, &host, OF_LATE);
            if let Some((status, metrics)) = runtime.block_on(of_late).as_deref() {
                gate.set(refusal(status));
                seen.report(status, &log);
                seen.report_installed(metrics, &log);
                follow(&handle, &followers, &status.membership, &host);
                if let Some(changed) =
                    peers.follow(&status.membership, status.executed, left_dialled_for, Instant::now())
                {
                    handle.set_peers(changed);
                }
            }
            std::thread::sleep(WATCH_EVERY);
        }
    });
}

/// Slow calls are summed up this often.
const SLOW_EVERY: Duration = Duration::from_secs(10);

/// When the log has named slow calls last.
#[derive(Default)]
struct Slow {
    said: Option<Instant>,
}

impl Slow {
    fn report(&mut self, latencies: &Latencies, log: &EventLog, now: Instant) {
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < SLOW_EVERY) {
            return;
        }
        let slow = latencies.take_slow();
        if slow.is_empty() {
            return;
        }
        self.said = Some(now);
        let named = slow.iter().map(|((service, operation), count, slowest)| {
            format!("{count} of {service} {operation}, the slowest {:.2} s", slowest.as_secs_f64())
        });
        log.warn(LogPart::Clients, &format!("calls were slow: {}", named.collect::<Vec<_>>().join("; ")));
    }
}

/// What the log has said of the members and of what is on the disk.
#[derive(Default)]
struct Seen {
    members: u64,
    snapshot: Option<u64>,
    installed: u64,
}

/// What roles mark when the state of another host replaces theirs.
const INSTALLED: [&str; 2] = ["replica.took_a_snapshot_from_a_peer", "shard.took_a_snapshot_from_a_peer"];

/// Snapshots of other hosts that were installed here, of all services, since the host started.
pub fn snapshots_installed(metrics: &Metrics) -> u64 {
    INSTALLED.iter().filter_map(|mark| metrics.marks.get(mark)).sum()
}

impl Seen {
    fn report(&mut self, status: &HostStatus, log: &EventLog) {
        let MembershipStatus { version, hosts, .. } = &status.membership;
        if *version != self.members {
            let names: Vec<&str> = hosts.keys().map(String::as_str).collect();
            log.say(LogPart::Members, &format!("the members are {} (version {version})", names.join(", ")));
            self.members = *version;
        }
        if let Some(slot) = status.snapshot.filter(|_| status.snapshot != self.snapshot) {
            let line =
                format!("a snapshot of the key-value store has all below slot {slot}, and is on the disk");
            log.say(LogPart::Disk, &line);
            self.snapshot = status.snapshot;
        }
    }

    fn report_installed(&mut self, metrics: &Metrics, log: &EventLog) {
        let installed = snapshots_installed(metrics);
        let more = installed.saturating_sub(std::mem::replace(&mut self.installed, installed));
        if more > 0 {
            let snapshots = if more == 1 { "a snapshot".to_owned() } else { format!("{more} snapshots") };
            let line =
                format!("{snapshots} of other hosts installed: this host is new, or had fallen behind");
            log.say(LogPart::Disk, &line);
        }
    }
}

/// Has the services' logs follow a change: the host that leads one puts the members into it, once. Asked again and again,
/// since who leads may change; the answers are for `ordinate status`, which looks for itself.
fn follow(
    handle: &HostHandle<HostedNode>,
    followers: &[Follower],
    membership: &MembershipStatus,
    host: &str,
) {
    if membership.version == 0 || !membership.hosts.contains_key(host) {
        return;
    }
    let entry = |(name, address): (&String, &String)| paxos::HostEntry {
        name: name.clone(),
        address: address.clone(),
    };
    let members =
        paxos::Members { version: membership.version, hosts: membership.hosts.iter().map(entry).collect() };
    for follower in followers {
        drop(handle.request_unused(follower.host_slot, LocalRequest::Service((follower.call)(&members))));
    }
}

/// Why clients are not served here, and who serves them; none if they are.
pub fn refusal(status: &HostStatus) -> Option<String> {
    let MembershipStatus { hosts, roles, .. } = &status.membership;
    let (cluster, host) = (&status.cluster, &status.host);
    let serving = roles.get(RoleName::Batcher.name()).map(Vec::as_slice).unwrap_or_default();
    if serving.contains(host) {
        return None;
    }
    let who = match serving {
        [] => "no host does".to_owned(),
        [one] => format!("host {one} does"),
        [most @ .., last] => format!("hosts {} and {last} do", most.join(", ")),
    };
    if hosts.contains_key(host) {
        return Some(format!("host {host} of cluster {cluster} serves no clients; {who}"));
    }
    Some(format!("host {host} is no member of cluster {cluster} and serves no clients; {who}"))
}

/// Whom to dial. Where the cluster file names a host, its address there is the operator's last word; the log has the address that
/// the host once joined with.
struct Peers {
    host: String,
    /// The cluster file's hosts.
    file: BTreeSet<String>,
    known: BTreeMap<String, String>,
    /// Hosts of other regions, which have members of their own.
    elsewhere: BTreeMap<String, String>,
    /// Since when hosts that are dialled are no members any more.
    left: BTreeMap<String, Instant>,
}

impl Peers {
    fn new(known: impl Iterator<Item = (String, String)>, host: &str) -> Self {
        let known: BTreeMap<_, _> = known.collect();
        let file = known.keys().cloned().collect();
        let (elsewhere, left) = (BTreeMap::new(), BTreeMap::new());
        Self { host: host.to_owned(), file, known, elsewhere, left }
    }

    /// The hosts to dial from now on, if they are others than before. One that left stays until this host has executed
    /// the last slot that the old members decided, and a while longer.
    fn follow(
        &mut self,
        membership: &MembershipStatus,
        executed: Option<u64>,
        left_dialled_for: Duration,
        now: Instant,
    ) -> Option<Vec<PeerConfig>> {
        let before = self.known.clone();
        for (name, address) in membership.hosts.iter().filter(|(_, address)| !address.is_empty()) {
            if !self.file.contains(name) || !self.known.contains_key(name) {
                self.known.insert(name.clone(), address.clone());
            }
        }
        let in_force = executed.is_none_or(|executed| executed >= membership.first_slot);
        // The first membership is the file's, and a host that joins knows others by its file alone.
        if membership.version > 0 && membership.hosts.contains_key(&self.host) && in_force {
            for name in self.known.keys().filter(|name| !membership.hosts.contains_key(*name)) {
                self.left.entry(name.clone()).or_insert(now);
            }
        }
        self.left.retain(|name, _| !membership.hosts.contains_key(name));
        let left = &self.left;
        self.known.retain(|name, _| left.get(name).is_none_or(|since| now - *since < left_dialled_for));
        if self.known == before {
            return None;
        }
        let others = self.known.iter().chain(&self.elsewhere).filter(|(name, _)| **name != self.host);
        Some(
            others
                .map(|(name, address)| PeerConfig { name: name.clone(), address: address.clone() })
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(version: u64, hosts: &[&str]) -> MembershipStatus {
        let hosts = hosts.iter().map(|name| ((*name).to_owned(), format!("{name}.example:7072"))).collect();
        MembershipStatus {
            version,
            settled: version,
            first_slot: 100 * version,
            columns: None,
            roles: BTreeMap::new(),
            hosts,
        }
    }

    fn names(peers: Option<Vec<PeerConfig>>) -> Option<String> {
        peers.map(|peers| peers.into_iter().map(|peer| peer.name).collect::<Vec<_>>().join(" "))
    }

    // A host that is dropped too early never learns that it left, and hosts that lag cannot ask it; one that is retained for ever
    // is dialled for ever.
    #[test]
    fn hosts_that_left_are_dialled_until_they_had_time_to_learn_it() {
        let file = ["a", "b", "c"].map(|name| (name.to_owned(), format!("{name}.example:7072")));
        let mut peers = Peers::new(file.into_iter(), "a");
        let start = Instant::now();
        let later = start + LEFT_DIALLED_FOR;
        assert_eq!(
            names(peers.follow(&membership(0, &["a", "b", "c"]), Some(5), LEFT_DIALLED_FOR, start)),
            None
        );
        let replaced = membership(2, &["a", "b", "d"]);
        assert_eq!(
            names(peers.follow(&replaced, Some(150), LEFT_DIALLED_FOR, start)).as_deref(),
            Some("b c d")
        );
        assert_eq!(
            names(peers.follow(&replaced, Some(199), LEFT_DIALLED_FOR, later)),
            None,
            "old slots are still to be executed"
        );
        assert_eq!(names(peers.follow(&replaced, Some(200), LEFT_DIALLED_FOR, later)), None);
        assert_eq!(
            names(peers.follow(&replaced, Some(201), LEFT_DIALLED_FOR, later + LEFT_DIALLED_FOR / 2)),
            None
        );
        let gone = peers.follow(&replaced, Some(202), LEFT_DIALLED_FOR, later + LEFT_DIALLED_FOR);
        assert_eq!(names(gone).as_deref(), Some("b d"));
        assert_eq!(
            names(peers.follow(&membership(3, &["a", "b", "c", "d"]), Some(300), LEFT_DIALLED_FOR, later))
                .as_deref(),
            Some("b c d")
        );
        // A host that has moved is dialled where the file says, and not where it joined.
        let moved = [("a", "a.example:7072"), ("b", "moved.example:7072")];
        let moved = moved.map(|(name, address)| (name.to_owned(), address.to_owned()));
        let mut peers = Peers::new(moved.into_iter(), "a");
        assert_eq!(peers.follow(&membership(0, &["a", "b"]), Some(5), LEFT_DIALLED_FOR, start), None);
        let joined = peers.follow(&membership(1, &["a", "b", "d"]), Some(105), LEFT_DIALLED_FOR, start);
        let dialled = joined.into_iter().flatten().map(|peer| peer.address).collect::<Vec<_>>();
        assert_eq!(dialled, ["moved.example:7072", "d.example:7072"]);
        // A host that is no member knows nobody better than those it began with.
        let mut outsider = Peers::new([("a".to_owned(), "a.example:7072".to_owned())].into_iter(), "e");
        assert_eq!(
            names(outsider.follow(&membership(2, &["b"]), None, LEFT_DIALLED_FOR, start)).as_deref(),
            Some("a b")
        );
        assert_eq!(names(outsider.follow(&membership(2, &["b"]), None, LEFT_DIALLED_FOR, later)), None);
    }
}
