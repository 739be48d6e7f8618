//! Everything around the hosts of one run: the queue, the links, the trace, the counts.

use crate::archive::SimulatedArchive;
use crate::beacons::BeaconList;
use crate::class::Injections;
use crate::draw::mix_bytes;
use crate::echoes::{Echo, Echoes};
use crate::elders::Elders;
use crate::fact::Fact;
use crate::network::{Arrivals, Network, Packet};
use crate::plan::HostIndex;
use crate::queue::{Event, Queue};
use crate::spec::HostSpec;
use crate::swarm::Swarm;
use crate::trace::Trace;
use kernel::bounds::ENVELOPE_BYTES;
use kernel::{Bounds, Bytes, Decode, Encode, Family, HostId, HostSlot, NodeId, Position, RequestId};
use std::collections::BTreeMap;

/// Kinds of entries of the trace's hash.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Happening {
    Delivery = 1,
    Local,
    Timer,
    Request,
    Response,
    Record,
    Crash,
    Start,
    Synced,
    Fault,
    FaultEnd,
    Heal,
    Blob,
}

/// The world as a host sees it.
pub(crate) struct Outside<F: Family> {
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) network: Network,
    pub(crate) archive: SimulatedArchive,
    pub(crate) trace: Trace,
    pub(crate) swarm: Swarm,
    pub(crate) injections: Injections,
    pub(crate) marks: BTreeMap<&'static str, u64>,
    pub(crate) rejects: BTreeMap<&'static str, u64>,
    pub(crate) responses: Vec<(NodeId, RequestId, F::Response)>,
    /// Aimed faults whose moment has come, by their numbers among those that have begun.
    pub(crate) triggered: Vec<u32>,
    /// Which messages a scenario that audits is notified of.
    pub(crate) claims: Option<fn(&F::Message) -> bool>,
    /// What it was not notified of yet.
    pub(crate) facts: Vec<Fact<F::Message>>,
    pub(crate) bounds: Bounds,
    /// The roles of nodes, by the nodes' names, where somebody reads the trace.
    pub(crate) names: BTreeMap<String, &'static str>,
    /// Whose code runs.
    pub(crate) current: Option<HostId>,
    echoes: Echoes,
    elders: Elders,
    read_before: ReadBefore<F::Message>,
    packets: Vec<Option<Packet>>,
    free: Vec<u32>,
    index: Vec<(HostId, HostIndex)>,
    scratch: Vec<u8>,
}

impl<F: Family> Outside<F> {
    pub(crate) fn new(
        hosts: &[HostSpec],
        network: Network,
        archive: SimulatedArchive,
        trace: Trace,
        swarm: Swarm,
        bounds: Bounds,
        (echoes, elders): (Echoes, Elders),
    ) -> Self {
        let mut index: Vec<_> = hosts.iter().enumerate().map(|(i, host)| (host.id, i as HostIndex)).collect();
        index.sort_unstable();
        Self {
            now: 0,
            queue: Queue::default(),
            network,
            archive,
            trace,
            swarm,
            injections: Injections::default(),
            marks: BTreeMap::new(),
            rejects: BTreeMap::new(),
            responses: Vec::new(),
            triggered: Vec::new(),
            claims: None,
            facts: Vec::new(),
            bounds,
            names: BTreeMap::new(),
            current: None,
            echoes,
            elders,
            read_before: ReadBefore::new(),
            packets: Vec::new(),
            free: Vec::new(),
            index,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn host_index(&self, host: HostId) -> Option<HostIndex> {
        let at = self.index.binary_search_by_key(&host, |&(id, _)| id).ok()?;
        Some(self.index[at].1)
    }

    /// Mixes one event into the trace.
    #[inline]
    pub(crate) fn happened(&mut self, what: Happening, who: u64, detail: u64) {
        self.trace.mix((what as u64) << 56 ^ self.now);
        self.trace.mix(who ^ detail.rotate_left(32));
    }

    /// A message leaves its node: its receiver relies on what it says.
    #[inline]
    pub(crate) fn reported(&mut self, from: NodeId, to: NodeId, message: &F::Message) {
        if self.claims.is_some_and(|is_claim| is_claim(message)) {
            self.facts.push(Fact::Reported { from, to, message: message.clone() });
        }
    }

    /// Records of a node are needed no more.
    pub(crate) fn trimmed(&mut self, node: NodeId, before: Position) {
        if self.claims.is_some() {
            self.facts.push(Fact::Trimmed { node, before });
        }
    }

    /// Sends a message to another host.
    pub(crate) fn send(
        &mut self,
        from: NodeId,
        from_host: HostIndex,
        incarnation: u32,
        to: NodeId,
        message: &F::Message,
    ) {
        self.reported(from, to, message);
        let Some(to_host) = self.host_index(to.host()) else {
            *self.rejects.entry("message to a host outside the cluster").or_default() += 1;
            return;
        };
        let arrivals = self.network.carry(from_host, to_host, self.now, &mut self.injections);
        let arrivals = self.network.let_through(to, self.now, arrivals);
        if arrivals == [None, None] {
            self.trace.line(self.now, Some(from.host()), || format!("{from} -> {to} LOST {message:?}"));
            return;
        }
        self.scratch.clear();
        message.encode(&mut self.scratch);
        let (bytes, max) = (self.scratch.len() + ENVELOPE_BYTES, self.bounds.frame_bytes_max);
        assert!(bytes <= max, "BOUND: {from} sends {to} a message of {bytes} bytes; a frame takes {max}");
        let bytes = Bytes::copy_from_slice(&self.scratch);
        let from_incarnation = incarnation;
        let packet = Packet { from, to, from_host, to_host, from_incarnation, bytes, beacons: None };
        if let Some((nth, arrives)) = self.network.unstruck(arrivals) {
            self.echoes.remember(&packet, nth, self.now, arrives);
            if !self.network.is_healed() {
                let elders = self.elders.on_sent(&packet, nth, self.now, arrives);
                elders.into_iter().for_each(|elder| self.arrives_again(elder));
            }
        }
        self.depart(packet, arrivals);
    }

    /// A host has started again: some of what was sent to it and by it before arrives once more.
    pub(crate) fn echo(&mut self, host: HostIndex, lost_its_disk: bool) {
        let echoes = self.echoes.draw(host, lost_its_disk, self.now);
        echoes.into_iter().for_each(|echo| self.arrives_again(echo));
    }

    /// Nobody hears any more what a host sent before it lost its disk.
    pub(crate) fn forget_elders(&mut self, host: HostIndex) {
        self.elders.forget(host);
    }

    fn arrives_again(&mut self, echo: Echo) {
        let sent = (echo.nth, echo.sent);
        if self.network.repeat(&echo.packet, sent, echo.later, &mut self.injections) {
            self.depart(echo.packet, [Some(echo.at), None]);
        }
    }

    /// Sends a list of beacons to another host. Those to a node that is hindered are left out.
    pub(crate) fn send_beacons(&mut self, from_host: HostIndex, to: HostId, mut list: BeaconList) {
        let Some(to_host) = self.host_index(to) else {
            *self.rejects.entry("message to a host outside the cluster").or_default() += 1;
            return;
        };
        let arrivals = self.network.carry(from_host, to_host, self.now, &mut self.injections);
        if arrivals == [None, None] {
            return;
        }
        let (now, network) = (self.now, &mut self.network);
        list.retain(|to| network.let_through(to, now, arrivals) == arrivals);
        let (from_incarnation, at) = (list.incarnation, HostSlot(0));
        let (from, to) = (NodeId::new(list.from_host, at), NodeId::new(to, at));
        let (bytes, beacons) = (Bytes::new(), Some(list));
        self.depart(Packet { from, to, from_host, to_host, from_incarnation, bytes, beacons }, arrivals);
    }

    fn depart(&mut self, packet: Packet, arrivals: Arrivals) {
        for at in arrivals.into_iter().flatten() {
            let packet = packet.clone();
            let packet = match self.free.pop() {
                Some(slot) => {
                    self.packets[slot as usize] = Some(packet);
                    slot
                }
                None => {
                    self.packets.push(Some(packet));
                    self.packets.len() as u32 - 1
                }
            };
            self.queue.push(at, Event::Deliver { packet });
        }
    }

    /// Takes a packet off its link.
    pub(crate) fn arrived(&mut self, packet: u32) -> Packet {
        self.free.push(packet);
        self.packets[packet as usize].take().expect("each packet is delivered by one event")
    }

    /// Reads a message as its receiver does, and checks that it would write the same bytes. What is sent again and again, and to
    /// everybody, is read once.
    pub(crate) fn decode(&mut self, from: NodeId, to: NodeId, bytes: &Bytes) -> F::Message {
        let slot = self.read_before.slot_of(bytes);
        if let Some((known, message)) = slot
            && known == bytes
        {
            return message.clone();
        }
        let message = self.decode_anew(from, to, bytes);
        *self.read_before.slot_of(bytes) = Some((bytes.clone(), message.clone()));
        message
    }

    fn decode_anew(&mut self, from: NodeId, to: NodeId, bytes: &Bytes) -> F::Message {
        let message = match F::Message::decoded(bytes) {
            Ok(message) => message,
            Err(error) => {
                panic!("CODEC: what {from} sent to {to} does not decode: {error}")
            }
        };
        self.scratch.clear();
        message.encode(&mut self.scratch);
        assert!(self.scratch[..] == bytes[..], "CODEC: {message:?} encodes otherwise than it was sent");
        message
    }

    /// Mixes a message that stays on its host into the trace: not its contents, which follow from what arrived, and show in what
    /// leaves.
    #[inline]
    pub(crate) fn happened_locally(&mut self, from: NodeId, to: NodeId) {
        self.happened(Happening::Local, from.as_u64(), to.as_u64());
    }
}

/// What was read last, by a hash of its bytes.
struct ReadBefore<M>(Vec<Option<(Bytes, M)>>);

/// Longer messages are rarely sent twice.
const REMEMBERED_BYTES_MAX: usize = 4 << 10;

impl<M> ReadBefore<M> {
    const SLOTS: usize = 256;

    fn new() -> Self {
        Self((0..=Self::SLOTS).map(|_| None).collect())
    }

    fn slot_of(&mut self, bytes: &[u8]) -> &mut Option<(Bytes, M)> {
        let short = bytes.len() <= REMEMBERED_BYTES_MAX;
        let slot = if short { mix_bytes(0, bytes) as usize % Self::SLOTS } else { Self::SLOTS };
        &mut self.0[slot]
    }
}
