//! Values as large as the limits allow, many at once: one seed in four. A quarter of those seeds have the real limits, the others
//! smaller ones in the same proportions, which are reached sooner and cost less.

use super::history::{Asked, Histories, LARGE_KEYS};
use super::{Node, PaxosScenario};
use ::paxos::{Call, Level, Parameters};
use kernel::bounds::RECORD_BYTES_MAX;
use kernel::{Bounds, NodeId, Rng};
use kv::{Command, Query};
use sim::Control;
use std::time::Duration;

/// The alarm for the next one.
pub(super) const FLOOD: u64 = 1;
/// What a record takes where limits are small.
const SMALL_RECORD_BYTES_MAX: usize = 32 << 10;
/// What a command adds to a value: its key, lengths, its index in a row.
const COMMAND_BYTES: usize = 64;

/// The limits of a run, and what drives it to them.
#[derive(Debug)]
pub(super) struct Floods {
    pub(super) bounds: Bounds,
    /// How many are still to come.
    left: u32,
    count: u32,
    rng: Rng,
}

impl Floods {
    /// Draws whether there are any, and changes what of the parameters they concern.
    pub(super) fn draw(parameters: &mut Parameters, rng: &mut Rng) -> Self {
        let (choice, own) = (rng.below(16), rng.fork());
        let mut floods = Self { bounds: Bounds::REAL, left: 0, count: 0, rng: own };
        if choice > 3 {
            return floods;
        }
        floods.left = rng.between(1, 3) as u32;
        if choice > 0 {
            floods.left *= 2;
            floods.bounds = Bounds::small(SMALL_RECORD_BYTES_MAX);
        }
        let part = RECORD_BYTES_MAX / floods.bounds.record_bytes_max;
        let default = Parameters::DEFAULT;
        parameters.batch_bytes_max = default.batch_bytes_max / part;
        parameters.page_bytes = (default.page_bytes / part) >> rng.below(4);
        parameters.snapshot_chunk_bytes = (default.snapshot_chunk_bytes / part) >> rng.below(3);
        parameters.snapshot_every_bytes = ((8 << 20) / part as u64) << rng.below(3);
        parameters.retained_bytes_max = ((8 << 20) / part) << rng.below(3);
        parameters.pending_bytes_max = (default.pending_bytes_max / part) >> (4 * rng.below(2));
        floods
    }

    pub(super) fn are_on(&self) -> bool {
        self.left > 0
    }

    pub(super) fn begin(&mut self, control: &mut Control<'_, Node>) {
        if self.left > 0 {
            control.alarm(self.rng.duration(Duration::from_millis(200), Duration::from_secs(8)), FLOOD);
        }
    }
}

impl PaxosScenario {
    /// One client writes many large values at once, and reads some.
    pub(super) fn flood(&mut self, control: &mut Control<'_, Node>) {
        if self.healed || self.floods.left == 0 {
            return;
        }
        self.floods.left -= 1;
        let clients = self.layout.client_nodes();
        let Some(&client) = self.floods.rng.pick(&clients) else { return };
        let largest = self.parameters.batch_bytes_max - COMMAND_BYTES;
        for _ in 0..self.floods.rng.between(10, 40) {
            self.floods.count += 1;
            let size = match self.floods.rng.below(4) {
                0 => self.floods.rng.between(16, largest as u64) as usize,
                _ => largest,
            };
            let name = format!("{}.", self.floods.count);
            let value = name.clone() + &"x".repeat(size.saturating_sub(name.len()));
            ask(client, value, &mut self.histories, &mut self.floods.rng, control);
        }
        self.floods.begin(control);
    }
}

fn ask(
    client: NodeId,
    value: String,
    histories: &mut Histories,
    rng: &mut Rng,
    control: &mut Control<'_, Node>,
) {
    let key = rng.pick(&LARGE_KEYS).copied().unwrap_or(LARGE_KEYS[0]);
    let mut bytes = Vec::new();
    let (call, asked) = if rng.chance(0.1) {
        Query::Get { key: key.as_bytes() }.encode(&mut bytes);
        (Call::Read { query: bytes.into(), level: Level::Linearizable }, Asked::Get)
    } else {
        Command::Put { key: key.as_bytes(), value: value.as_bytes() }.encode(&mut bytes);
        (Call::Write(bytes.into()), Asked::Put(value))
    };
    let id = control.request(client, call);
    histories.asked(id, client, key, asked, control.cluster.now());
}
