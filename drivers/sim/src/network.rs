//! Links between hosts: when a packet arrives, if it does.

use crate::beacons::BeaconList;
use crate::class::{Class, Injections};
use crate::draw::{Purpose, log_uniform, mix, root};
use crate::latency::Latency;
use crate::plan::{Fate, Fault, HostIndex, NetworkPartition};
use crate::swarm::Swarm;
use kernel::{Bytes, NodeId};
use std::collections::BTreeSet;

/// A message in flight.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) from_host: HostIndex,
    pub(crate) to_host: HostIndex,
    pub(crate) from_incarnation: u32,
    pub(crate) bytes: Bytes,
    /// It is a list of beacons and no message.
    pub(crate) beacons: Option<BeaconList>,
}

#[derive(Clone, Debug, Default)]
struct Link {
    carried: u64,
    severed: u32,
    clogged_until: u64,
    last_arrival: u64,
    script: Vec<Scripted>,
    script_at: usize,
}

/// What becomes of what other hosts send to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hindrance {
    /// It arrives when the hindrance is over.
    Held,
    /// It arrives, and once more when the hindrance is over.
    Repeated,
    /// Every other message is lost.
    Halved,
    /// It is lost.
    Lost,
}

impl Link {
    /// The fate that a plan has for this message.
    fn scripted(&mut self, nth: u64, now: u64) -> Option<Fate> {
        while let Some(&scripted) = self.script.get(self.script_at) {
            let (has_come, strikes) = match scripted.at {
                None => (scripted.nth <= nth, scripted.nth == nth),
                Some(at) => ((at, scripted.nth) <= (now, nth) || at < now, now <= at + STRIKES_WITHIN),
            };
            if !has_come {
                return None;
            }
            self.script_at += 1;
            if strikes {
                return Some(scripted.fate);
            }
        }
        None
    }
}

/// A fate of a plan.
#[derive(Clone, Copy, Debug)]
struct Scripted {
    nth: u64,
    at: Option<u64>,
    fate: Fate,
}

/// What hinders one node's messages.
#[derive(Clone, Copy, Debug)]
struct Hindered {
    to: NodeId,
    how: Hindrance,
    until: u64,
    /// How many messages it has met.
    met: u64,
}

/// When a packet arrives: never, once or twice.
pub(crate) type Arrivals = [Option<u64>; 2];

/// All links.
pub(crate) struct Network {
    hosts: usize,
    links: Vec<Link>,
    latency: Latency,
    distances: Vec<u64>,
    sites: Vec<u16>,
    root: u64,
    /// Cumulative thresholds of 2^64 for each fate; zero in a replay.
    thresholds: [u64; 4],
    /// Fates drawn so far, for the plan.
    pub(crate) drawn: Vec<Fault>,
    hindered: Vec<Hindered>,
    healed: bool,
    /// What arrives once more: links, and which of their messages.
    repeated: BTreeSet<(HostIndex, HostIndex, u64)>,
    /// Which message of its link was carried last, and when it arrives; none if a fault struck it.
    unstruck: Option<(u64, u64)>,
}

const SECOND: f64 = 1e9;
/// A message that is sent so much later is not the one that a plan means, in nanoseconds.
const STRIKES_WITHIN: u64 = 50_000_000;

impl Network {
    /// Links between `hosts` hosts. With `script`, fates come from it and none is drawn; another `salt` draws other latencies.
    pub(crate) fn new(hosts: usize, seed: u64, salt: u64, swarm: &Swarm, script: Option<&[Fault]>) -> Self {
        let mut links = vec![Link::default(); hosts * hosts];
        let mut thresholds = [0; 4];
        if let Some(script) = script {
            for fault in script {
                if let Fault::Message { from, to, nth, at, fate } = *fault
                    && usize::from(from.max(to)) < hosts
                {
                    links[usize::from(from) * hosts + usize::from(to)].script.push(Scripted {
                        nth,
                        at,
                        fate,
                    });
                }
            }
            for link in &mut links {
                link.script.sort_by_key(|scripted| scripted.nth);
            }
        } else {
            let mut sum = 0.0;
            let classes = [Class::Loss, Class::Duplication, Class::Reorder, Class::Delay];
            for (threshold, class) in thresholds.iter_mut().zip(classes) {
                sum += swarm.rate(class);
                *threshold = (sum.min(0.9) * u64::MAX as f64) as u64;
            }
        }
        let root = root(seed ^ salt, Purpose::Link);
        Self {
            hosts,
            links,
            latency: swarm.latency,
            distances: swarm.distances.clone(),
            sites: swarm.sites.clone(),
            root,
            thresholds,
            drawn: Vec::new(),
            hindered: Vec::new(),
            healed: false,
            repeated: BTreeSet::new(),
            unstruck: None,
        }
    }

    fn link(&mut self, from: HostIndex, to: HostIndex) -> &mut Link {
        &mut self.links[usize::from(from) * self.hosts + usize::from(to)]
    }

    /// Decides when a packet sent `now` arrives.
    pub(crate) fn carry(
        &mut self,
        from: HostIndex,
        to: HostIndex,
        now: u64,
        injections: &mut Injections,
    ) -> Arrivals {
        let index = usize::from(from) * self.hosts + usize::from(to);
        let nth = self.links[index].carried;
        self.links[index].carried += 1;
        self.unstruck = None;
        let key = mix(mix(self.root, index as u64), nth);
        // What is sent at one instant travels together, as the segments of one connection do: else a busy link under a heavy tail is as
        // slow as the slowest of hundreds.
        let latency = self.distance(from, to) + self.latency.of(mix(mix(self.root ^ index as u64, now), 1));
        if self.links[index].severed > 0 {
            return [None, None];
        }
        let fate = if self.healed { None } else { self.fate(index, nth, now, key) };
        let link = &mut self.links[index];
        let in_order = (now + latency).max(link.clogged_until).max(link.last_arrival);
        let Some(fate) = fate else {
            link.last_arrival = in_order;
            self.unstruck = Some((nth, in_order));
            return [Some(in_order), None];
        };
        match fate {
            Fate::Lost => {
                injections.count(Class::Loss);
                [None, None]
            }
            Fate::Twice { later } => {
                injections.count(Class::Duplication);
                link.last_arrival = in_order;
                [Some(in_order), Some(in_order + later)]
            }
            Fate::Overtaken { by } => {
                injections.count(Class::Reorder);
                [Some(in_order + by), None]
            }
            Fate::Late { by } => {
                injections.count(Class::Delay);
                [Some(in_order + by), None]
            }
        }
    }

    /// Which message of its link the last one was, if it arrives at these times and no fault has struck it.
    pub(crate) fn unstruck(&self, arrivals: Arrivals) -> Option<(u64, u64)> {
        self.unstruck.filter(|&(_, at)| arrivals == [Some(at), None])
    }

    /// A message arrives once more: the one that was sent as the `nth` of its link, at this time, and so much later than it. False if it
    /// does so already.
    pub(crate) fn repeat(
        &mut self,
        packet: &Packet,
        (nth, sent): (u64, u64),
        later: u64,
        injections: &mut Injections,
    ) -> bool {
        let (from, to) = (packet.from_host, packet.to_host);
        if !self.repeated.insert((from, to, nth)) {
            return false;
        }
        injections.count(Class::Duplication);
        self.drawn.push(Fault::Message { from, to, nth, at: Some(sent), fate: Fate::Twice { later } });
        true
    }

    fn distance(&self, from: HostIndex, to: HostIndex) -> u64 {
        let of = |host: HostIndex| self.distances.get(usize::from(host)).copied().unwrap_or(0);
        let site = |host: HostIndex| self.sites.get(usize::from(host));
        let is_near = from == to || site(from).is_some() && site(from) == site(to);
        if is_near { 0 } else { of(from) + of(to) }
    }

    fn fate(&mut self, index: usize, nth: u64, now: u64, key: u64) -> Option<Fate> {
        if let Some(scripted) = self.links[index].scripted(nth, now) {
            return Some(scripted);
        }
        let bits = mix(key, 2);
        if bits >= self.thresholds[3] {
            return None;
        }
        let detail = mix(key, 3);
        let fate = if bits < self.thresholds[0] {
            Fate::Lost
        } else if bits < self.thresholds[1] {
            Fate::Twice { later: log_uniform(detail, 1e4, 3.0 * SECOND) as u64 }
        } else if bits < self.thresholds[2] {
            let typical = self.latency.of(mix(key, 4)) as f64;
            Fate::Overtaken { by: (log_uniform(detail, 0.1, 10.0) * typical) as u64 + 1 }
        } else {
            Fate::Late { by: log_uniform(detail, 1e6, 10.0 * SECOND) as u64 }
        };
        let (from, to) = ((index / self.hosts) as HostIndex, (index % self.hosts) as HostIndex);
        self.drawn.push(Fault::Message { from, to, nth, at: Some(now), fate });
        Some(fate)
    }

    /// When a packet to this node arrives, since some are hindered.
    pub(crate) fn let_through(&mut self, to: NodeId, now: u64, arrivals: Arrivals) -> Arrivals {
        let Some(hindered) = self.hindered.iter_mut().find(|it| it.to == to && now < it.until) else {
            return arrivals;
        };
        hindered.met += 1;
        match hindered.how {
            Hindrance::Held => arrivals.map(|at| at.map(|at| at.max(hindered.until))),
            Hindrance::Repeated => [arrivals[0], arrivals[0].map(|at| at.max(hindered.until))],
            Hindrance::Halved if hindered.met.is_multiple_of(2) => arrivals,
            Hindrance::Halved | Hindrance::Lost => [None, None],
        }
    }

    /// Hinders what is sent to a node until then, or nothing any more.
    pub(crate) fn hinder(&mut self, to: NodeId, how: Option<Hindrance>, until: u64) {
        self.hindered.retain(|it| it.to != to);
        self.hindered.extend(how.map(|how| Hindered { to, how, until, met: 0 }));
    }

    /// Severs the links of a partition, or mends what this partition severed.
    pub(crate) fn sever(&mut self, links: NetworkPartition, severed: bool) {
        for from in 0..self.hosts as HostIndex {
            for to in 0..self.hosts as HostIndex {
                if from != to && links.severs(from, to) {
                    self.sever_link(from, to, severed);
                }
            }
        }
    }

    /// Holds everything sent on a link until `until`.
    pub(crate) fn clog(&mut self, from: HostIndex, to: HostIndex, until: u64) {
        let link = self.link(from, to);
        link.clogged_until = link.clogged_until.max(until);
    }

    /// Mends every link, and strikes no message any more.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.hindered.clear();
        for link in &mut self.links {
            link.severed = 0;
            link.clogged_until = 0;
            // What a clog still holds comes late; what is sent from now on does not wait for it.
            link.last_arrival = 0;
        }
    }

    /// Whether no message is struck any more.
    pub(crate) fn is_healed(&self) -> bool {
        self.healed
    }

    /// Whether a link carries nothing.
    pub(crate) fn is_severed(&self, from: HostIndex, to: HostIndex) -> bool {
        self.links[usize::from(from) * self.hosts + usize::from(to)].severed > 0
    }

    /// Severs one link, or undoes that once.
    pub(crate) fn sever_link(&mut self, from: HostIndex, to: HostIndex, severed: bool) {
        let link = self.link(from, to);
        link.severed = if severed { link.severed + 1 } else { link.severed.saturating_sub(1) };
    }
}
