//! A log that is made and deleted again and again: what one of its name has had is nothing to the next one.
//!
//! One client alone uses it, one request at a time, so what it must find is clear at any time.

use super::Node;
use kernel::{Bytes, RequestId, Rng, invariant};
use shared_log::{Answer, Create, Named, Produce, RETAIN_BYTES_MIN, Request, Rows};
use sim::Control;

/// The log.
pub(super) const SCRATCH: &str = "scratch";
/// The client, and the number by which it appends.
pub(super) const CLIENT: u16 = 0;
const PRODUCER: u64 = 1 << 20;

/// What must be there, by the answers so far.
#[derive(Default)]
pub(super) struct Scratch {
    exists: bool,
    /// How many entries it has.
    entries: u32,
    asked: Option<(RequestId, Step)>,
    /// A request may have been executed or not: nothing is clear any more.
    lost: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Creates,
    Appends(u32),
    Deletes,
}

impl Scratch {
    /// What the client asks next; none while an answer is missing.
    pub(super) fn draw(&self, entries: Bytes, rng: &mut Rng) -> Option<Request> {
        if self.asked.is_some() || self.lost {
            return None;
        }
        let name = SCRATCH.to_owned();
        Some(if !self.exists {
            Request::Create(Create {
                name,
                retain_bytes: RETAIN_BYTES_MIN,
                retain_ms: 0,
                capacity: 0,
                cleanup: None,
                first: None,
            })
        } else if self.entries > 0 && rng.chance(0.4) {
            Request::Delete(Named { name })
        } else {
            let (epoch, sequence) = (0, self.entries);
            Request::Produce(Produce { name, producer: PRODUCER, epoch, sequence, entries, admitted: None })
        })
    }

    /// True if the request is about this log.
    pub(super) fn asked(&mut self, id: RequestId, request: &Request) -> bool {
        let step = match request {
            Request::Create(create) if create.name == SCRATCH => Step::Creates,
            Request::Delete(named) if named.name == SCRATCH => Step::Deletes,
            Request::Produce(produce) if produce.name == SCRATCH => {
                Step::Appends(Rows::count(&produce.entries).unwrap_or(0) as u32)
            }
            _ => return false,
        };
        self.asked = Some((id, step));
        true
    }

    pub(super) fn answered(&mut self, id: RequestId, answer: &Answer, control: &mut Control<'_, Node>) {
        let Some((_, step)) = self.asked.take_if(|(asked, _)| *asked == id) else { return };
        match (step, answer) {
            (Step::Creates, Answer::Done) => (self.exists, self.entries) = (true, 0),
            (Step::Deletes, Answer::Done) => {
                control.mark("log.deleted_a_log");
                self.exists = false;
            }
            (Step::Appends(count), Answer::Appended(firsts)) => {
                let first = u64::from(self.entries);
                invariant!(
                    UNIQ,
                    *firsts == [first],
                    "{SCRATCH} has {first} entries, and the next is at {firsts:?}"
                );
                self.entries += count;
            }
            (Step::Appends(_), Answer::Rejected(rejected)) => {
                invariant!(
                    LIN,
                    false,
                    "{SCRATCH} has {} entries, and refuses more: {rejected:?}",
                    self.entries
                );
            }
            // It may have been done.
            _ => self.lost = true,
        }
    }
}
