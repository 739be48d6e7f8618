//! The way out to clients: what waits for whom, who takes nothing, and who is disconnected for it.

use super::{BROKEN, Client, ClientIndex, Clients, Outside, give_back};
use crate::front_end::{CloseReason, Room};
use kernel::{Family, Instant};
use std::time::Duration;

const TOO_SLOW: CloseReason = CloseReason("does not read what it is sent");
const UNREAD: CloseReason = CloseReason("has read nothing for long while answers wait");
/// A session learns what its client has taken, when it is so much.
const TAKEN_REPORTED_BYTES: u64 = 4 << 10;
/// Of those who hold more than so much, who has taken nothing for longer by so long is disconnected first.
const HELD_RANKED_BYTES: usize = 64 << 10;
const RANKED_BY: Duration = Duration::from_millis(250);
/// How often it is looked who takes nothing, while something waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a client was sent and has taken.
#[derive(Default)]
pub(super) struct Tally {
    /// Bytes that the socket has taken since the client came.
    pub(super) taken: u64,
    /// As the session knows it.
    reported: u64,
    /// The session is to be notified.
    listed: bool,
    /// The longest that was written at once since nothing waited: one answer may be of any size.
    largest: usize,
    /// When something was taken last, or something came to wait.
    moved_at: Instant,
}

impl Tally {
    /// So much was written at once.
    pub(super) fn write(&mut self, bytes: usize) {
        self.largest = self.largest.max(bytes);
    }
}

impl<F: Family> Client<F> {
    /// What it may be sent before it takes what waits.
    fn bound(&self, output_bytes_max: usize) -> usize {
        output_bytes_max.saturating_add(self.tally.largest)
    }
}

impl<F: Family> Clients<F> {
    pub(super) fn room_of(&self, front_end: usize) -> Room {
        let service = &self.services[front_end];
        let left = service.limits.output_bytes_max_total.saturating_sub(service.held_bytes);
        Room { of_client: service.limits.output_bytes_max, of_service: left }
    }

    /// Reports to the service what a client's buffers have become.
    pub(super) fn recount(&mut self, index: ClientIndex) {
        let Some(client) = &mut self.table[index.0] else { return };
        let service = &mut self.services[client.front_end];
        let held = client.held_bytes();
        service.held_bytes = service.held_bytes + held - client.counted_bytes;
        client.counted_bytes = held;
    }

    pub(super) fn enforce_output_bounds(&mut self, index: ClientIndex, outside: &mut Outside<'_>) {
        let Some(client) = &self.table[index.0] else { return };
        let front_end = client.front_end;
        let limits = self.services[front_end].limits;
        let too_slow = |client: &Client<F>| client.unsent_bytes() > client.bound(limits.output_bytes_max);
        if too_slow(client) {
            self.write_out(index, outside);
            if self.table[index.0].as_ref().is_some_and(too_slow) {
                self.close(index, TOO_SLOW, outside);
            }
        }
        if self.services[front_end].held_bytes > limits.output_bytes_max_total {
            self.flush(outside);
            while self.services[front_end].held_bytes > limits.output_bytes_max_total {
                // Who holds much and has taken nothing for the longest; readers of large answers take some all the time.
                let rank = |client: &Client<F>| {
                    let (held, waits) = (client.held_bytes(), outside.now.since(client.tally.moved_at));
                    let steps = waits.as_millis() / RANKED_BY.as_millis();
                    (held > HELD_RANKED_BYTES, steps, held)
                };
                let of_service = self.table.iter().enumerate().filter_map(|(index, client)| {
                    let client = client.as_ref().filter(|client| client.front_end == front_end)?;
                    Some((rank(client), index))
                });
                let Some((_, slowest)) = of_service.max() else { return };
                self.close(ClientIndex(slowest), TOO_SLOW, outside);
            }
        }
    }

    /// Writes what sessions have written, one write a connection, and reports to them what their clients have taken.
    pub(crate) fn flush(&mut self, outside: &mut Outside<'_>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            self.write_out(index, outside);
        }
        // Closing a connection may have made others dirty, through what their sessions share.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        for index in std::mem::take(&mut self.taken) {
            let Some(client) = &mut self.table[index.0] else { continue };
            if std::mem::take(&mut client.tally.listed) {
                client.tally.reported = client.tally.taken;
                self.call(index, outside, |session, cx| session.on_taken(cx));
            }
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.dirty.is_empty() || !self.taken.is_empty()
    }

    pub(super) fn write_out(&mut self, index: ClientIndex, outside: &mut Outside<'_>) {
        let Some(client) = &mut self.table[index.0] else { return };
        client.dirty = false;
        let waited = !client.backlog.is_empty();
        let outcome = client.send();
        if !client.output.is_empty() {
            client.output.clear();
            give_back(&mut self.pool, std::mem::take(&mut client.output));
        }
        let Ok((taken, all)) = outcome else {
            return self.close(index, BROKEN, outside);
        };
        outside.metrics.bytes_out += taken as u64;
        let tally = &mut client.tally;
        tally.taken += taken as u64;
        if all {
            tally.largest = 0;
        }
        if taken > 0 || !waited {
            tally.moved_at = outside.now;
        }
        let much = tally.taken - tally.reported >= TAKEN_REPORTED_BYTES;
        if (much || (all && waited)) && !tally.listed {
            tally.listed = true;
            self.taken.push(index);
        }
        if all && let Some(reason) = client.flags.finish {
            return self.close(index, reason, outside);
        }
        if !all {
            self.look_at.get_or_insert(outside.now + LOOK_EVERY);
        }
        let limits = &self.services[client.front_end].limits;
        let may_read = !client.flags.paused && client.unsent_bytes() <= limits.output_bytes_max / 4;
        if may_read && client.readable && !client.listed {
            client.listed = true;
            self.readable.push_back(index);
        }
        self.recount(index);
    }

    /// Closes connections whose clients have taken nothing for long though something waits.
    pub(super) fn look_for_unread(&mut self, outside: &mut Outside<'_>) {
        if self.look_at.is_none_or(|at| at > outside.now) {
            return;
        }
        self.look_at = None;
        for index in (0..self.table.len()).map(ClientIndex) {
            let Some(client) = self.table[index.0].as_ref().filter(|it| !it.backlog.is_empty()) else {
                continue;
            };
            self.look_at = Some(outside.now + LOOK_EVERY);
            let limit = self.services[client.front_end].limits.unread_for_max;
            if outside.now.since(client.tally.moved_at) >= limit {
                self.close(index, UNREAD, outside);
            }
        }
    }
}
