//! The reactor's dealings with other hosts: links out, frames in, and who belongs to the cluster.

use super::{LINKS, Message, Reactor};
use crate::error::HostError;
use crate::event::HostEvent;
use crate::inbound::{self, Item};
use crate::journal::Journal;
use crate::link::{self, Link, LinkStatus, PeerConfig, Wish};
use crate::marks::Mark;
use crate::socket::Readiness;
use kernel::{HostId, Instant, Node, NodeId};
use mio::Token;

/// After so many times that a host has said that it is alive. A clock that lies is noticed after two reports at most, one each way.
const CLOCK_REPORT_EVERY: u32 = 5;

impl<N: Node + 'static> Reactor<N> {
    pub(super) fn on_link_ready(&mut self, host: HostId, ready: Readiness) {
        let mut came_up = false;
        self.with_link(host, |link, outside| {
            let was_up = link.is_up();
            let complaint = link.on_ready(ready, outside);
            came_up = !was_up && link.is_up();
            (complaint, came_up)
        });
        if came_up {
            self.check_partner(host);
        }
        self.heed_refusal(host);
    }

    /// What this host has acknowledged is gone: it must not vote, serve or hand on what is left.
    fn heed_refusal(&mut self, host: HostId) {
        let Ok(index) = self.router.links.binary_search_by_key(&host, |link| link.host) else { return };
        let link = &mut self.router.links[index];
        let Some(reported) = link.take_behind() else { return };
        let found = self.run_start.map_or(0, |run_start| run_start.found);
        if reported > found {
            let peer = link.config.name.clone();
            self.refused = Some(HostError::JournalBehind { peer, reported, found });
        }
    }

    /// Reports to every other host how many batches are durable, before it is sent what follows from that; true if that cannot wait for
    /// anything else to be sent.
    pub(crate) fn mark_links(&mut self) -> bool {
        let Some(batches) = self.journal.as_ref().map(Journal::batches_durable) else { return false };
        if self.run_start.is_none() {
            return false;
        }
        let (mark, mut news) = (Mark { batches, full: self.disk_full, clock: None }, false);
        for link in &mut self.router.links {
            news |= link.mark(self.me, &mark, &self.router.settings);
        }
        news
    }

    /// Reports to every other host how this one's clock stands, if it is time.
    pub(super) fn report_clock(&mut self) {
        let now = self.nodes.now;
        if self.clock_report_at > now {
            return;
        }
        // With what is said again and again.
        let every = self.inbounds.uses.pace().every();
        self.clock_report_at = (now + every * CLOCK_REPORT_EVERY).last_turn(every);
        for link in self.router.links.iter_mut().filter(|link| !self.router.severed_to.contains(&link.host)) {
            link.report(self.me, self.clock.report(link.host), &self.router.settings);
        }
    }

    pub(super) fn link_statuses(&self) -> Vec<LinkStatus> {
        let silent_for = |link: &Link| {
            let heard_at =
                self.inbounds.heard_at(link.host).filter(|_| !self.router.is_severed_from(link.host));
            heard_at.map(|at| self.nodes.now.since(at))
        };
        self.router.links.iter().map(|link| link.status(silent_for(link))).collect()
    }

    /// When `report_clock` is wanted: never while nobody hears it.
    pub(super) fn clock_report_due(&self) -> Option<Instant> {
        self.router.links.iter().any(Link::is_up).then_some(self.clock_report_at)
    }

    /// Nothing can be made durable while this host's disk is full, or those of half of the hosts.
    pub(crate) fn judge_disks(&mut self) {
        let counts = |host: &HostId| !self.apart.contains(host);
        let hosts = self.router.links.iter().filter(|link| counts(&link.host)).count() + 1;
        let full =
            self.inbounds.full.iter().filter(|host| counts(host)).count() + usize::from(self.disk_full);
        self.nodes.disk_full = self.disk_full || 2 * full >= hosts.max(2);
    }

    /// The host that we called must be let in as if it had called us.
    fn check_partner(&mut self, host: HostId) {
        let Ok(index) = self.router.links.binary_search_by_key(&host, |link| link.host) else { return };
        let link = &self.router.links[index];
        let Some(partner) = link.partner() else { return };
        let name = link.config.name.clone();
        let admitted = self.inbounds.admit(&name, partner.incarnation).and_then(|()| {
            let greeted = self.inbounds.marks.greet(host, partner.incarnation, partner.run_start);
            greeted.map_err(|behind| format!("host {name}: {behind}"))
        });
        if let Err(reason) = admitted {
            self.with_link(host, |link, outside| (link.break_off(reason, outside), false));
        }
    }

    /// Calls a link, and reports what changed.
    pub(super) fn with_link(
        &mut self,
        host: HostId,
        call: impl FnOnce(&mut Link, &mut link::Outside<'_>) -> (Option<String>, bool),
    ) {
        let Ok(index) = self.router.links.binary_search_by_key(&host, |link| link.host) else { return };
        let link = &mut self.router.links[index];
        let mut outside = link::Outside {
            registry: self.poll.registry(),
            now: self.nodes.now,
            metrics: &mut self.router.metrics,
            rng: &mut self.rng,
        };
        let (complaint, came_up) = call(link, &mut outside);
        let name = &link.config.name;
        if let Some(reason) = complaint {
            self.events_out.push(HostEvent::LinkDown { host: name.clone(), reason });
        }
        if came_up {
            self.events_out.push(HostEvent::LinkUp { host: name.clone() });
        }
    }

    pub(super) fn set_peers(&mut self, peers: Vec<PeerConfig>) {
        let now = self.nodes.now;
        self.clock.set_peers(peers.iter().map(|peer| HostId::named(&peer.name)));
        let mut before = std::mem::take(&mut self.router.links);
        for peer in peers {
            let host = HostId::named(&peer.name);
            let token = Token(LINKS + host.0 as usize);
            let retained =
                before.iter().position(|link| link.config == peer).map(|index| before.remove(index));
            let link = retained.unwrap_or_else(|| {
                let mut link = Link::new(peer, token, now);
                before.iter_mut().filter(|it| it.host == host).for_each(|it| link.inherit(it));
                link
            });
            self.router.links.push(link);
        }
        self.router.links.sort_by_key(|link| link.host);
        for mut link in before {
            let mut outside = link::Outside {
                registry: self.poll.registry(),
                now,
                metrics: &mut self.router.metrics,
                rng: &mut self.rng,
            };
            // The caller that took the host out knows why its link ends.
            let _ = link.break_off("no longer a host of the cluster".to_owned(), &mut outside);
            if self.router.links.binary_search_by_key(&link.host, |link| link.host).is_err() {
                self.nodes.beacons.forget(link.host);
                let (inbounds, mut outside) = self.inbound_parts();
                inbounds.forget(link.host, &mut outside);
            }
        }
    }

    /// Reads what other hosts have sent, once from each; true if that was beacons as they were and no more.
    pub(super) fn hears_only_beacons(&mut self) -> bool {
        self.inbounds.has_news = false;
        self.read_hosts();
        !self.inbounds.has_news && !self.inbounds.is_ready()
    }

    pub(super) fn read_hosts(&mut self) {
        if self.may_read_hosts() {
            for _ in 0..self.inbounds.ready_count() {
                self.read_host();
            }
        }
    }

    fn read_host(&mut self) {
        let (inbounds, mut outside) = self.inbound_parts();
        let Some(read) = inbounds.read_next(&mut outside) else { return };
        self.refresh();
        self.inbounds.has_news |= read.end.is_some() || !self.inbounds.is_greeted(read.index);
        let mut end = read.end;
        loop {
            let links = &self.router.links;
            let is_known = |host| links.binary_search_by_key(&host, |link| link.host).is_ok();
            let mut outside = inbound::Outside {
                registry: self.poll.registry(),
                now: self.nodes.now,
                metrics: &mut self.router.metrics,
            };
            match self.inbounds.next_frame(read.index, is_known, &mut outside) {
                Ok(Some((host, body))) => {
                    if let Err(reason) = self.on_frame(read.index, host, body) {
                        end = Some(reason);
                        break;
                    }
                }
                Ok(None) => break,
                Err(reason) => {
                    end = Some(reason);
                    break;
                }
            }
        }
        if let Some(reason) = end {
            let (inbounds, mut outside) = self.inbound_parts();
            inbounds.close(read.index, Some(reason), &mut outside);
        }
    }

    fn on_frame(&mut self, index: usize, host: HostId, body: kernel::Bytes) -> Result<(), String> {
        let severed = self.router.is_severed_from(host);
        let connection = self.inbounds.number_of(index).unwrap_or_default();
        self.inbounds.has_news |= severed || !self.muted.is_empty();
        if !severed {
            self.inbounds.has_news |= self.nodes.beacons.hear(host, connection, self.nodes.now);
            self.hear_muted(host, connection);
        }
        let (mut marked, mut unused): (Option<Mark>, Option<u32>) = (None, None);
        let mut heard = self.inbounds.heard_of(index).map(std::mem::take).unwrap_or_default();
        let outcome = inbound::each_item::<Message<N>>(body, &mut heard, |item| {
            self.inbounds.has_news |= !matches!(item, Item::Steady | Item::Unused { .. });
            match item {
                Item::Steady if !severed => {
                    self.router.metrics.messages_in += 1;
                    self.inbounds.has_news |= self.inbounds.uses.on_used(host);
                }
                Item::Unused { again_within } if !severed => unused = Some(again_within),
                Item::Mark(mark) => {
                    let before = marked.take().and_then(|mark| mark.clock);
                    marked = Some(Mark { clock: mark.clock.or(before), ..mark });
                }
                item => self.on_item((host, connection), item, severed),
            }
        });
        if let Some(before) = self.inbounds.heard_of(index) {
            *before = heard;
        }
        if let Some(mark) = marked {
            self.on_mark(host, mark, severed);
        }
        outcome?;
        unused.map_or(Ok(()), |again_within| self.on_unused(host, again_within))
    }

    /// Nobody uses the host, and it speaks rarely: it counts as heard until it has to speak again.
    fn on_unused(&mut self, host: HostId, again_within: u32) -> Result<(), String> {
        self.router.metrics.messages_in += 1;
        let (trusted_for, is_news) = self.inbounds.uses.on_unused(host, again_within)?;
        self.inbounds.has_news |= is_news;
        self.nodes.beacons.trust_until(host, self.nodes.now + trusted_for);
        Ok(())
    }

    fn on_mark(&mut self, host: HostId, Mark { batches, full, clock }: Mark, severed: bool) {
        if let Some(report) = clock.filter(|_| !severed) {
            self.clock.on_report(host, report);
            self.nodes.wall = self.clock.wall();
        }
        self.inbounds.marks.notify(host, batches);
        let changed = if full { self.inbounds.full.insert(host) } else { self.inbounds.full.remove(&host) };
        if changed {
            self.judge_disks();
        }
    }

    /// Takes what a host has sent over one of its connections.
    fn on_item(&mut self, (host, connection): (HostId, u64), item: Item<Message<N>>, severed: bool) {
        let to_us = |from: NodeId, to: NodeId| from.host() == host && to.host() == self.me;
        match item {
            Item::Lit { from, to, message: Ok(message) } if to_us(from, to) => {
                self.on_beacon((connection, from, to), Some(message), severed);
            }
            Item::Out { from, to } if to_us(from, to) => {
                self.on_beacon((connection, from, to), None, severed)
            }
            _ if severed => self.router.metrics.drop_message("link severed on purpose"),
            Item::Repeats | Item::Steady | Item::Unused { .. } => self.router.metrics.messages_in += 1,
            Item::Message { from, to, message: Ok(message), again } if from.host() == host => {
                let metrics = &mut self.router.metrics;
                *(if again { &mut metrics.repeats_in } else { &mut metrics.messages_in }) += 1;
                self.deliver(from, to, message);
            }
            Item::Message { message: Err(_), .. } | Item::Lit { message: Err(_), .. } => {
                *self.router.metrics.rejects.entry("message cannot be decoded").or_insert(0) += 1
            }
            Item::Message { .. } | Item::Lit { .. } | Item::Out { .. } | Item::Mark(_) => {
                *self.router.metrics.rejects.entry("message in another host's name").or_insert(0) += 1
            }
        }
    }

    /// A beacon is lit, with this message, or stopped.
    fn on_beacon(&mut self, at: (u64, NodeId, NodeId), message: Option<Message<N>>, severed: bool) {
        let (_, from, to) = at;
        match message {
            message if severed => _ = self.muted.insert(at, message),
            Some(message) => {
                self.router.metrics.messages_in += 1;
                self.nodes.beacons.light(from, to);
                self.deliver(from, to, message);
            }
            None => {
                self.nodes.beacons.put_out(from, to);
                self.nodes.timers.end_silences(from, to, self.nodes.now);
            }
        }
    }

    /// What came while a fault severed the link.
    fn hear_muted(&mut self, host: HostId, connection: u64) {
        if self.muted.is_empty() {
            return;
        }
        for (at, message) in std::mem::take(&mut self.muted) {
            if at.1.host() != host {
                self.muted.insert(at, message);
            } else if at.0 == connection {
                self.on_beacon(at, message, false);
            }
        }
    }

    pub(super) fn drive_links(&mut self) {
        let now = self.nodes.now;
        for index in 0..self.router.links.len() {
            if self.router.links[index].due().is_none_or(|due| due > now) {
                continue;
            }
            let host = self.router.links[index].host;
            let mut wish = Wish::Nothing;
            self.with_link(host, |link, outside| {
                let complaint;
                (wish, complaint) = link.on_time(outside);
                (complaint, false)
            });
            if wish == Wish::Resolve {
                let address = self.router.links[index].config.address.clone();
                if let Some(found) = self.resolver.resolve(host, &address) {
                    self.dial(host, found);
                }
            }
        }
        while let Some((host, found)) = self.resolver.poll() {
            self.dial(host, found);
        }
    }

    pub(super) fn dial(&mut self, host: HostId, address: Result<std::net::SocketAddr, String>) {
        let settings = self.router.settings.clone();
        self.with_link(host, |link, outside| (link.dial(address, &settings, outside), false));
    }
}
