//! The one thread of a host: waits for events, reads what is there, lets the nodes work, writes what came of it.

mod hosts;
mod opening;
mod reporting;

use crate::alarm::Alarm;
use crate::answer::Promise;
use crate::blobs::{Blobs, Changed};
use crate::clients::{self, Clients};
use crate::clock::Clock;
use crate::config::HostConfig;
use crate::data::{DataDirectory, Incarnation};
use crate::error::HostError;
use crate::event::{EventSink, HostEvent};
use crate::front_end::FrontEndConfig;
use crate::handle::{Command, HostView, Inlet};
use crate::inbound::{self, Inbounds};
use crate::journal::{CommitNumber, Journal};
use crate::link::Link;
use crate::marks::RunStart;
use crate::nodes::Nodes;
use crate::pace::Pace;
use crate::resolver::Resolver;
use crate::router::Router;
use crate::shortage::Shortage;
use crate::socket::Readiness;
use crate::storage::OpenStorage;
use kernel::{BlobEffect, ClockTrouble, Family, HostId, HostSlot, Instant, Node, NodeId, Rng};
use mio::{Events, Poll, Token, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const PEER_LISTENER: Token = Token(1);
const PORTS: usize = 2;
const PORTS_END: usize = 1 << 16;
const ALARM: Token = Token(PORTS_END);
const LINKS: usize = 1 << 32;
const INBOUNDS: usize = 2 << 32;
const CLIENTS: usize = 3 << 32;
const EVENTS_PER_ROUND: usize = 1024;
/// Read from clients in one burst.
const CLIENT_BYTES_PER_BURST: usize = 1 << 20;
/// An empty batch vouches for the last one after so much quiet.
const WITNESS_AFTER: Duration = Duration::from_millis(20);
const DISK_RETRY_EVERY: Duration = Duration::from_millis(250);
/// Records waiting for the disk beyond which nothing is read from other hosts either.
const STAGED_BYTES_MAX: usize = 64 << 20;

pub(crate) type Message<N> = <<N as Node>::Family as Family>::Message;
pub(crate) type Response<N> = <<N as Node>::Family as Family>::Response;

/// What waits for a commit.
pub(crate) enum Held<M> {
    Send { from: NodeId, to: NodeId, message: M },
    Repeat { from: NodeId, to: NodeId, message: M },
    Trim { host_slot: HostSlot, before: kernel::Position },
    Blob { host_slot: HostSlot, effect: BlobEffect },
}

/// How a run ended without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Stopped,
    Killed,
}

pub(crate) struct Reactor<N: Node> {
    poll: Poll,
    inlet: Arc<Inlet<N>>,
    pub(crate) nodes: Nodes<N>,
    pub(crate) router: Router<Message<N>>,
    pub(crate) clients: Clients<N::Family>,
    inbounds: Inbounds,
    /// Hosts whose disks do not matter for what is made durable here.
    apart: Vec<HostId>,
    resolver: Resolver,
    pub(crate) journal: Option<Journal>,
    pub(crate) blobs: Blobs,
    pub(crate) held: VecDeque<(CommitNumber, Held<Message<N>>)>,
    pub(crate) requests: BTreeMap<kernel::RequestId, Promise<Response<N>>>,
    next_request: u64,
    clock: Clock,
    alarm: Alarm,
    /// When it is reported to other hosts next how the clock stands.
    clock_report_at: Instant,
    /// Nodes have duties that rest on the clock: the operator learns if they are given up.
    clock_required: bool,
    /// What was said last of the clock, and when.
    clock_said: (Option<ClockTrouble>, Option<Instant>),
    rng: Rng,
    incarnation: Incarnation,
    pub(crate) me: HostId,
    /// What its journal had when it started, if others are to know.
    pub(crate) run_start: Option<RunStart>,
    /// Another host knows that this one has lost what it acknowledged.
    pub(crate) refused: Option<HostError>,
    commands: Vec<Command<N>>,
    /// Beacons that reached this host while a fault severed the link, by their connection; none: it was stopped.
    muted: BTreeMap<(u64, NodeId, NodeId), Option<Message<N>>>,
    paused: bool,
    /// Readiness that arrived during a pause.
    stashed: BTreeMap<usize, Readiness>,
    /// What the journal waits for, from the first record that had to wait on.
    shortage: Option<Shortage>,
    /// It is room on the disk: roles refuse writes meanwhile.
    pub(crate) disk_full: bool,
    /// When a shortage was last said, and which is still to be said to be over.
    short_reported_at: Option<Instant>,
    over_unreported: Option<Shortage>,
    /// When a blob last waited for room.
    blobs_full_at: Option<Instant>,
    disk_retry_at: Option<Instant>,
    witness_at: Option<Instant>,
    syncs_seen: u64,
    pub(crate) events_out: Vec<HostEvent>,
    _directory: Option<DataDirectory>,
}

impl<N: Node + 'static> Reactor<N> {
    pub(crate) fn new(
        mut config: HostConfig,
        storage: OpenStorage,
        nodes: Vec<(HostSlot, N)>,
        front_ends: Vec<FrontEndConfig<N::Family>>,
    ) -> Result<Self, HostError> {
        let io = |action| move |source| HostError::Io { action, source };
        let poll = Poll::new().map_err(io("make an event queue"))?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(io("make a waker"))?);
        let me = HostId::named(&config.name);
        let mut rng = Rng::seeded(config.seed.unwrap_or(storage.drawn as u64));
        let notify = notifier(Arc::clone(&waker));
        let clock = Clock::new(&config.clock, Arc::clone(&notify))?;
        let alarm = Alarm::new(poll.registry(), ALARM).map_err(io("make a timer"))?;
        let blobs = Blobs::open(storage.blobs, config.archive.take(), Arc::clone(&notify))?;
        let mut directory = storage.directory;
        let journal = match storage.journal {
            Some(disk) => {
                Some(opening::journal(disk, storage.incarnation, &mut directory, Arc::clone(&notify))?)
            }
            None => None,
        };
        let (run_start, marks) = opening::marks(directory.as_ref(), journal.as_ref(), storage.drawn);
        let (settings, inbounds) =
            opening::dealings(&mut config, storage.incarnation, run_start, marks, journal.is_some());
        let first_slot = (storage.drawn >> 32) as u32;
        let mut reactor = Self {
            inlet: Arc::new(Inlet::new(waker)),
            nodes: Nodes::new(clock.now(), clock.wall()),
            router: Router::new(me, settings),
            clients: Clients::new(me, first_slot, CLIENTS, config.descriptors),
            inbounds,
            apart: config.apart,
            resolver: Resolver::new(notify),
            journal,
            blobs,
            held: VecDeque::new(),
            requests: BTreeMap::new(),
            next_request: 1,
            clock,
            alarm,
            clock_report_at: Instant(0),
            clock_required: config.clock.required,
            clock_said: (None, None),
            rng: rng.fork(),
            incarnation: storage.incarnation,
            me,
            run_start,
            refused: None,
            commands: Vec::new(),
            muted: BTreeMap::new(),
            paused: false,
            stashed: BTreeMap::new(),
            shortage: None,
            disk_full: false,
            short_reported_at: None,
            over_unreported: None,
            blobs_full_at: None,
            disk_retry_at: None,
            witness_at: None,
            syncs_seen: 0,
            events_out: Vec::new(),
            _directory: directory,
            poll,
        };
        reactor.place_nodes(nodes, &config.forget, me, config.tracing, &mut rng)?;
        reactor.listen(config.listen, front_ends)?;
        reactor.set_peers(config.peers);
        Ok(reactor)
    }

    pub(crate) fn inlet(&self) -> Arc<Inlet<N>> {
        Arc::clone(&self.inlet)
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Runs until it is asked to stop, or until it cannot go on.
    pub(crate) fn run(&mut self, sink: &mut Option<EventSink>) -> Result<(), HostError> {
        let outcome = self.rounds(sink);
        self.inlet.close();
        let outcome = match outcome {
            Ok(End::Stopped) => self.wind_up(),
            Ok(End::Killed) => Ok(()),
            Err(error) => Err(error),
        };
        self.report(sink);
        outcome
    }

    fn rounds(&mut self, sink: &mut Option<EventSink>) -> Result<End, HostError> {
        let mut events = Events::with_capacity(EVENTS_PER_ROUND);
        self.nodes.start();
        self.work()?;
        loop {
            self.report(sink);
            self.wait(&mut events)?;
            if let Some(end) = self.obey() {
                return Ok(end);
            }
            if self.paused {
                continue;
            }
            self.router.metrics.bursts += 1;
            self.hear_of_blobs()?;
            self.read_all();
            self.on_time();
            if let Some(refused) = self.refused.take() {
                return Err(refused);
            }
            self.work()?;
            self.inbounds.marks.keep(self.nodes.now);
        }
    }

    /// Until there is something to do: beacons that are heard in time are nothing.
    fn wait(&mut self, events: &mut Events) -> Result<(), HostError> {
        self.refresh();
        loop {
            let timeout = self.timeout();
            let until = timeout.map(|timeout| self.nodes.now + timeout);
            self.alarm.set_for(timeout);
            match self.poll.poll(events, timeout) {
                Ok(()) => {}
                // There are no events, and less is left to wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(HostError::Io { action: "wait for events", source }),
            }
            self.refresh();
            for event in &*events {
                self.on_event(event.token().0, Readiness::of(event));
            }
            let is_due = until.is_some_and(|until| until <= self.nodes.now);
            let of_hosts_alone = events.iter().all(|event| (INBOUNDS..CLIENTS).contains(&event.token().0));
            if is_due || !of_hosts_alone || self.paused || !self.hears_only_beacons() {
                return Ok(());
            }
            self.router.metrics.bursts += 1;
        }
    }

    fn refresh(&mut self) {
        self.clock.refresh();
        (self.nodes.now, self.nodes.wall) = (self.clock.now(), self.clock.wall());
    }

    /// How long to sleep: not at all if something is left to do.
    fn timeout(&mut self) -> Option<Duration> {
        if self.paused {
            return None;
        }
        let ready = !self.router.inbox.is_empty()
            || !self.clients.sends.is_empty()
            || self.clients.has_output()
            || self.blobs.is_ready()
            || self.clients.is_ready(self.may_read_clients())
            || (self.inbounds.is_ready() && self.may_read_hosts());
        if ready {
            return Some(Duration::ZERO);
        }
        let links = self.router.links.iter().filter_map(Link::due).min();
        let due = [
            self.nodes.timers.next(self.nodes.now, &self.nodes.beacons),
            self.clients.due(),
            self.inbounds.due(),
            self.inbounds.uses.due(),
            self.router.due(),
            self.disk_retry_at,
            self.blobs.due(),
            self.witness_at,
            self.clock_report_due(),
            links,
        ];
        due.into_iter().flatten().min().map(|due| due.since(self.nodes.now))
    }

    fn may_read_clients(&self) -> bool {
        // While the disk is full, roles refuse what would have to be written, and answer the rest.
        let journal = self.journal.as_ref();
        self.router.inbox.is_empty()
            && journal.is_none_or(|journal| !journal.is_blocked() || self.disk_full)
            && self.may_read_hosts()
    }

    fn may_read_hosts(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.staged_bytes() < STAGED_BYTES_MAX)
    }

    fn on_event(&mut self, token: usize, ready: Readiness) {
        if self.paused && token != WAKER.0 && token != ALARM.0 {
            let stashed = self.stashed.entry(token).or_default();
            *stashed = stashed.or(ready);
            return;
        }
        match token {
            token if token == WAKER.0 || token == ALARM.0 => {}
            token if token == PEER_LISTENER.0 => {
                let (inbounds, mut outside) = self.inbound_parts();
                inbounds.accept(&mut outside);
            }
            PORTS..PORTS_END => self.clients.on_acceptable(token - PORTS),
            LINKS..INBOUNDS => self.on_link_ready(HostId((token - LINKS) as u32), ready),
            INBOUNDS..CLIENTS => self.inbounds.on_ready(token - INBOUNDS, ready),
            _ => self.clients.on_ready(clients::ClientIndex(token - CLIENTS), ready),
        }
    }

    /// Carries out what other threads have asked for.
    fn obey(&mut self) -> Option<End> {
        let mut commands = std::mem::take(&mut self.commands);
        self.inlet.take(&mut commands);
        let mut end = None;
        for command in commands.drain(..) {
            match command {
                Command::Request { host_slot, request, promise, is_use } => {
                    if is_use {
                        self.inbounds.uses.note(self.nodes.now);
                    }
                    if let Some(index) = self.nodes.find(host_slot) {
                        let id = kernel::RequestId(self.next_request);
                        self.next_request += 1;
                        self.requests.insert(id, promise);
                        self.nodes.request(index, id, request);
                    }
                }
                Command::Inject { from, to, message } => self.router.route(from, to, message, self.nodes.now),
                Command::Visit(visit) => {
                    let links = self.link_statuses();
                    visit(&HostView { metrics: self.metrics(), nodes: &self.nodes, links });
                }
                Command::SetPeers(peers) => self.set_peers(peers),
                Command::Fault { host, fault } => {
                    self.inbounds.uses.doubt_all();
                    self.router.set_fault(host, fault);
                }
                Command::SetClockOff(nanoseconds) => self.clock.set_off(nanoseconds),
                Command::Pause => self.paused = true,
                Command::Resume => {
                    self.paused = false;
                    for (token, ready) in std::mem::take(&mut self.stashed) {
                        self.on_event(token, ready);
                    }
                }
                Command::Stop => end = end.or(Some(End::Stopped)),
                Command::Kill => end = Some(End::Killed),
            }
        }
        self.commands = commands;
        end
    }

    /// Reads from every ready socket, once or as far as the bounds allow.
    fn read_all(&mut self) {
        self.read_hosts();
        let may_read = self.may_read_clients();
        let (clients, mut outside) = self.client_parts();
        clients.accept(&mut outside);
        if may_read {
            clients.read(CLIENT_BYTES_PER_BURST, &mut outside);
        }
        // What was read arrived before now: the wall clock's upper bound must not be older than that.
        self.refresh();
    }

    /// Everything that waits for a moment.
    fn on_time(&mut self) {
        let now = self.nodes.now;
        while let Some((node, timer)) = self.nodes.timers.pop(now, &self.nodes.beacons) {
            self.nodes.timer(node, timer);
        }
        self.router.on_time(now);
        let (clients, mut outside) = self.client_parts();
        if clients.due().is_some_and(|due| due <= now) {
            clients.on_time(&mut outside);
        }
        let (inbounds, mut outside) = self.inbound_parts();
        if inbounds.due().is_some_and(|due| due <= now) {
            inbounds.on_time(&mut outside);
        }
        self.drive_links();
        self.report_clock();
        self.notify_of_clock();
    }

    /// Lets the nodes work until all is quiet, and carries their effects out: first what waits for nothing, then the
    /// journal, then what waited for it.
    fn work(&mut self) -> Result<(), HostError> {
        self.settle();
        self.keep_pace();
        self.router.say_again(self.nodes.now);
        self.flush();
        if self.journal.is_some() {
            self.commit()?;
            let news = self.mark_links();
            if self.release() || news {
                self.flush();
            }
        }
        Ok(())
    }

    /// Says more often that this host is alive, or less, as somebody uses a host or nobody does.
    fn keep_pace(&mut self) {
        let now = self.nodes.now;
        if self.clients.count() > 0 {
            self.inbounds.uses.note(now);
        }
        let others = self.router.links.iter().map(|link| (link.host, link.is_up()));
        let at_once = self.inbounds.uses.decide(now, others);
        let pace = self.inbounds.uses.pace();
        self.router.links.iter_mut().for_each(|link| link.set_pace(pace, at_once, now));
        self.nodes.timers.together = (pace == Pace::AllUnused).then_some(pace.every());
        for host in self.inbounds.uses.take_doubted() {
            self.nodes.beacons.trust_no_longer(host, now);
        }
        if at_once {
            self.clock_report_at = self.clock_report_at.min(now);
        }
    }

    fn flush(&mut self) {
        for index in 0..self.router.links.len() {
            let host = self.router.links[index].host;
            self.with_link(host, |link, outside| (link.flush(outside), false));
        }
        if self.clients.has_output() {
            let (clients, mut outside) = self.client_parts();
            clients.flush(&mut outside);
        }
    }

    fn commit(&mut self) -> Result<(), HostError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.poll()?;
        if self.disk_retry_at.is_some_and(|at| at <= self.nodes.now) {
            journal.retry()?;
            self.disk_retry_at = None;
        }
        if journal.is_disk_full() && self.disk_retry_at.is_none() {
            self.disk_retry_at = Some(self.nodes.now + DISK_RETRY_EVERY);
        }
        // Until there is some: not only while a record waits, since none is taken then.
        let waits = journal.is_disk_full() && (journal.is_blocked() || self.shortage.is_some());
        self.shortage = journal.shortage().filter(|_| waits);
        let full = self.shortage == Some(Shortage::Space);
        let changed = full != std::mem::replace(&mut self.disk_full, full);
        let syncs = journal.sync_latency().1;
        if !journal.is_unwitnessed() {
            self.witness_at = None;
        } else if self.syncs_seen != syncs || self.witness_at.is_none() {
            self.witness_at = Some(self.nodes.now + WITNESS_AFTER);
        } else if self.witness_at.is_some_and(|at| at <= self.nodes.now) {
            journal.witness()?;
            self.witness_at = None;
        }
        self.syncs_seen = syncs;
        if changed {
            self.judge_disks();
        }
        self.notify_of_shortage();
        self.notify_of_slow_disk();
        Ok(())
    }

    /// Reports to the nodes what became of their blobs.
    fn hear_of_blobs(&mut self) -> Result<(), HostError> {
        self.blobs.retry(self.nodes.now);
        while let Some((host_slot, notice)) = self.blobs.poll(self.nodes.now)? {
            if let Some(index) = self.nodes.find(host_slot) {
                self.nodes.blob(index, notice);
            }
        }
        while let Some(change) = self.blobs.archive_change() {
            self.events_out.push(match change {
                Changed::Failing(reason) => HostEvent::ArchiveFails { reason },
                Changed::Back => HostEvent::ArchiveBack,
            });
        }
        Ok(())
    }

    /// A last effort for what is in flight, without waiting for anybody but the disk.
    fn wind_up(&mut self) -> Result<(), HostError> {
        self.settle();
        if let Some(journal) = &mut self.journal {
            journal.finish()?;
            // Without it the next start knows as much as after a crash.
            let _ = journal.close();
        }
        let _ = self.mark_links();
        self.release();
        self.flush();
        Ok(())
    }

    fn inbound_parts(&mut self) -> (&mut Inbounds, inbound::Outside<'_>) {
        let outside = inbound::Outside {
            registry: self.poll.registry(),
            now: self.nodes.now,
            metrics: &mut self.router.metrics,
        };
        (&mut self.inbounds, outside)
    }

    pub(crate) fn client_parts(&mut self) -> (&mut Clients<N::Family>, clients::Outside<'_>) {
        let outside = clients::Outside {
            registry: self.poll.registry(),
            now: self.nodes.now,
            metrics: &mut self.router.metrics,
        };
        (&mut self.clients, outside)
    }
}

fn notifier(waker: Arc<Waker>) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || {
        // See `Inlet::push`.
        let _ = waker.wake();
    })
}
