//! Everything around the hosts: the queue, the links between machines, the counts.

use super::machine::{Link, Machine};
use super::price::{Cost, Scale, Tariff};
use super::queue::{Event, Queue};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use kernel::{Beacons, Encode, Family, NodeId, RequestId};
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) struct Packet<F: Family> {
    pub(super) from_host: u32,
    pub(super) from: NodeId,
    pub(super) host: u32,
    pub(super) seat: u32,
    pub(super) bytes: u32,
    pub(super) message: F::Message,
}

/// Where a node is.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) host: u32,
    pub(super) seat: u32,
}

/// Mixes the bits of a node's identity, which are a hash already.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

/// Never iterated over.
pub(super) type Addresses = HashMap<NodeId, Address, BuildHasherDefault<Mixer>>;

/// The world as a host sees it.
pub(super) struct Outside<F: Family, S> {
    pub(super) now: u64,
    pub(super) queue: Queue,
    pub(super) scale: S,
    pub(super) link: Link,
    /// Between machines where it is not the link's, in picoseconds.
    pub(super) latencies: HashMap<(usize, usize), u64, BuildHasherDefault<Mixer>>,
    /// How far clocks may be off as far as hosts know, in nanoseconds.
    pub(super) clock_error: u64,
    pub(super) tariffs: Vec<Tariff>,
    pub(super) machines: Vec<Machine>,
    /// When each core is free.
    pub(super) cores: Vec<u64>,
    /// The machine of each host.
    pub(super) machine_of: Vec<usize>,
    pub(super) addresses: Addresses,
    pub(super) beacons: Beacons,
    /// What they say, by sender and receiver.
    lit: BTreeMap<(NodeId, NodeId), Vec<u8>>,
    pub(super) responses: Vec<(RequestId, F::Response, u64)>,
    pub(super) marks: BTreeMap<&'static str, u64>,
    pub(super) rejects: BTreeMap<&'static str, u64>,
    packets: Vec<Option<Packet<F>>>,
    free_packets: Vec<u32>,
    scratch: Vec<u8>,
}

impl<F: Family, S: Scale<F>> Outside<F, S> {
    pub(super) fn new(scale: S, link: Link) -> Self {
        Self {
            now: 0,
            queue: Queue::default(),
            scale,
            link,
            latencies: HashMap::default(),
            clock_error: 0,
            tariffs: Vec::new(),
            machines: Vec::new(),
            cores: Vec::new(),
            machine_of: Vec::new(),
            addresses: Addresses::default(),
            beacons: Beacons::unfailing(),
            lit: BTreeMap::new(),
            responses: Vec::new(),
            marks: BTreeMap::new(),
            rejects: BTreeMap::new(),
            packets: Vec::new(),
            free_packets: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// A beacon is set; true if it is another one than before.
    pub(super) fn lights(&mut self, from: NodeId, to: NodeId, message: &F::Message) -> bool {
        let bytes = message.encoded();
        self.beacons.light(from, to);
        self.lit.insert((from, to), bytes.clone()) != Some(bytes)
    }

    pub(super) fn puts_out(&mut self, from: NodeId, to: NodeId) {
        self.beacons.put_out(from, to);
        self.lit.remove(&(from, to));
    }

    pub(super) fn register(&mut self, node: NodeId, address: Address) -> bool {
        match self.addresses.entry(node) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(address);
                true
            }
        }
    }

    pub(super) fn size_of(&mut self, message: &F::Message) -> u32 {
        self.scratch.clear();
        message.encode(&mut self.scratch);
        self.scratch.len() as u32
    }

    /// Puts a packet on its way at `at`.
    pub(super) fn depart(&mut self, from_machine: usize, at: u64, packet: Packet<F>) {
        let to_machine = self.machine_of[packet.host as usize];
        let of_pair = self.latencies.get(&(from_machine, to_machine)).copied();
        let latency = of_pair.unwrap_or(Cost::from(self.link.latency).0);
        let bytes = u64::from(packet.bytes) + self.link.overhead_bytes;
        let (arrives, lands) = if from_machine == to_machine {
            (at + latency, false)
        } else if self.latencies.is_empty() {
            let sent = self.machines[from_machine].send(at, bytes);
            (self.machines[to_machine].receive(sent + latency, bytes), false)
        } else {
            (self.machines[from_machine].send(at, bytes) + latency, true)
        };
        let slot = match self.free_packets.pop() {
            Some(slot) => {
                self.packets[slot as usize] = Some(packet);
                slot
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        };
        let event = if lands { Event::Land { packet: slot } } else { Event::Deliver { packet: slot } };
        self.queue.push(arrives, event);
    }

    /// A packet has come to its machine's card.
    pub(super) fn land(&mut self, slot: u32) {
        let packet =
            self.packets[slot as usize].as_ref().expect("each packet lands once, before it is delivered");
        let (machine, bytes) = (self.machine_of[packet.host as usize], u64::from(packet.bytes));
        let arrives = self.machines[machine].receive(self.now, bytes + self.link.overhead_bytes);
        self.queue.push(arrives, Event::Deliver { packet: slot });
    }

    pub(super) fn arrived(&mut self, slot: u32) -> Packet<F> {
        self.free_packets.push(slot);
        self.packets[slot as usize].take().expect("each packet is delivered by one event")
    }
}
