//! Where a message goes: to a node or client of this host by way of the inbox, or out over a link.

use crate::handle::{Direction, LinkFault};
use crate::link::{Link, LinkSettings};
use crate::metrics::Metrics;
use crate::observer::ObservedBy;
use kernel::{Encode, HostId, Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Messages that a fault delays, in the order they leave.
struct Delayed<M> {
    by: Duration,
    queue: VecDeque<(Instant, NodeId, NodeId, M)>,
}

/// More are dropped.
const DELAYED_MAX: usize = 1 << 16;

pub(crate) struct Router<M> {
    me: HostId,
    /// For nodes and clients of this host, in the order they were sent: from, to, message.
    pub(crate) inbox: VecDeque<(NodeId, NodeId, M)>,
    /// By host.
    pub(crate) links: Vec<Link>,
    pub(crate) settings: LinkSettings,
    pub(crate) severed_to: BTreeSet<HostId>,
    severed_from: BTreeSet<HostId>,
    delayed: BTreeMap<HostId, Delayed<M>>,
    /// Beacons to nodes of this host, by sender and receiver.
    beacons: BTreeMap<(NodeId, NodeId), Vec<u8>>,
    pub(crate) metrics: Metrics,
    pub(crate) observer: ObservedBy<M>,
}

impl<M: Encode> Router<M> {
    pub(crate) fn new(me: HostId, settings: LinkSettings) -> Self {
        Self {
            me,
            inbox: VecDeque::new(),
            links: Vec::new(),
            settings,
            severed_to: BTreeSet::new(),
            severed_from: BTreeSet::new(),
            delayed: BTreeMap::new(),
            beacons: BTreeMap::new(),
            metrics: Metrics::default(),
            observer: None,
        }
    }

    pub(crate) fn route(&mut self, from: NodeId, to: NodeId, message: M, now: Instant) {
        if let Some(observer) = &mut self.observer {
            observer.on_sent(from, to, &message);
        }
        if to.host() == self.me {
            self.metrics.messages_local += 1;
            self.inbox.push_back((from, to, message));
        } else if self.severed_to.is_empty() && self.delayed.is_empty() {
            self.send(from, to, &message, now);
        } else {
            self.send_faulty(from, to, message, now);
        }
    }

    /// Routes a message that is sent again and again.
    pub(crate) fn repeat(&mut self, from: NodeId, to: NodeId, message: M, now: Instant) {
        if to.host() == self.me || !self.severed_to.is_empty() || !self.delayed.is_empty() {
            return self.route(from, to, message, now);
        }
        match self.links.binary_search_by_key(&to.host(), |link| link.host) {
            Ok(index) => {
                let outside = (now, &mut self.metrics);
                self.links[index].repeat(from, to, &message, &self.settings, outside);
            }
            Err(_) => self.metrics.drop_message("no such host"),
        }
    }

    /// Sets a beacon; true if it is to a node of this host, and lit now. Links that are delayed on purpose do not delay it.
    pub(crate) fn set_beacon(&mut self, from: NodeId, to: NodeId, message: M, now: Instant) -> bool {
        if to.host() == self.me {
            let bytes = message.encoded();
            if self.beacons.get(&(from, to)) != Some(&bytes) {
                self.beacons.insert((from, to), bytes);
                self.route(from, to, message, now);
            }
            return true;
        }
        match self.links.binary_search_by_key(&to.host(), |link| link.host) {
            Ok(index) => self.links[index].set_beacon(from, to, &message, now),
            Err(_) => self.metrics.drop_message("no such host"),
        }
        false
    }

    /// Stops a beacon.
    pub(crate) fn stop_beacon(&mut self, from: NodeId, to: NodeId, now: Instant) {
        if to.host() == self.me {
            self.beacons.remove(&(from, to));
        } else if let Ok(index) = self.links.binary_search_by_key(&to.host(), |link| link.host) {
            self.links[index].stop_beacon(from, to, now);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &M, now: Instant) {
        match self.links.binary_search_by_key(&to.host(), |link| link.host) {
            Ok(index) => {
                let outside = (now, &mut self.metrics);
                self.links[index].push(from, to, message, &self.settings, outside);
            }
            Err(_) => self.metrics.drop_message("no such host"),
        }
    }

    fn send_faulty(&mut self, from: NodeId, to: NodeId, message: M, now: Instant) {
        if self.severed_to.contains(&to.host()) {
            return self.metrics.drop_message("link severed on purpose");
        }
        match self.delayed.get_mut(&to.host()) {
            Some(delayed) if delayed.queue.len() >= DELAYED_MAX => {
                self.metrics.drop_message("delayed on purpose, too many");
            }
            Some(delayed) => delayed.queue.push_back((now + delayed.by, from, to, message)),
            None => self.send(from, to, &message, now),
        }
    }

    /// True if what arrives from `host` is to be dropped.
    pub(crate) fn is_severed_from(&self, host: HostId) -> bool {
        self.severed_from.contains(&host)
    }

    pub(crate) fn set_fault(&mut self, host: HostId, fault: LinkFault) {
        match fault {
            LinkFault::Sever(Direction::To) => _ = self.severed_to.insert(host),
            LinkFault::Sever(Direction::From) => _ = self.severed_from.insert(host),
            LinkFault::Heal(Direction::To) => _ = self.severed_to.remove(&host),
            LinkFault::Heal(Direction::From) => _ = self.severed_from.remove(&host),
            LinkFault::Delay(by) => {
                self.delayed.entry(host).or_insert(Delayed { by, queue: VecDeque::new() }).by = by;
            }
        }
    }

    /// When `on_time` is wanted.
    pub(crate) fn due(&self) -> Option<Instant> {
        let delayed = self.delayed.values().filter_map(|delayed| delayed.queue.front()).map(|(due, ..)| *due);
        delayed.chain(self.links.iter().filter_map(Link::repeats_due)).min()
    }

    /// Says again what is due.
    pub(crate) fn say_again(&mut self, now: Instant) {
        for link in self.links.iter_mut().filter(|link| link.repeats_due().is_some_and(|due| due <= now)) {
            if self.severed_to.contains(&link.host) {
                link.forget_repeats(now, &mut self.metrics);
            } else {
                link.say_again(self.me, &self.settings, (now, &mut self.metrics));
            }
        }
    }

    /// Sends what has been delayed long enough.
    pub(crate) fn on_time(&mut self, now: Instant) {
        let hosts: Vec<HostId> = self.delayed.keys().copied().collect();
        for host in hosts {
            while let Some(delayed) = self.delayed.get_mut(&host)
                && delayed.queue.front().is_some_and(|(due, ..)| *due <= now)
                && let Some((_, from, to, message)) = delayed.queue.pop_front()
            {
                self.send(from, to, &message, now);
            }
            if self.delayed.get(&host).is_some_and(|delayed| delayed.by.is_zero() && delayed.queue.is_empty())
            {
                self.delayed.remove(&host);
            }
        }
    }
}
