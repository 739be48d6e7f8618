//! The service of the paper's section 7.1: an operation is the spaces it wants numbers of, and is answered by them.

use kernel::client::Response;
use kernel::{Bytes, Decode, DecodeError, Encode, Rng};
use mason::{GroupTime, Mason, MasonMember, Order, ShardMap, Space, Stub, StubOut, Verdict};
use sequence::{Ask, Gateway, Labels};
use sim::cost::{Class, Load, LoadSession};
use std::time::Duration;

/// What a host runs.
pub type Seat = MasonMember<Numbers, Labels, Gateway>;

/// The proxies' part: answers with the numbers, and has nothing executed.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// How many spaces there are.
    pub spaces: u16,
}

impl Stub for Numbers {
    fn spaces(&self, body: &[u8], shard_map: &ShardMap) -> Vec<Space> {
        sequence::Spaces { count: self.spaces }.spaces(body, shard_map)
    }

    fn apply(&mut self, _body: &Bytes, order: Option<&Order>, _now: GroupTime, out: &mut StubOut) -> Verdict {
        out.answer(order.map(|order| order.encoded()).unwrap_or_default());
        Verdict::Void
    }

    fn on_clock(&mut self, _now: GroupTime, _new_leader: bool, _out: &mut StubOut) {}

    fn apply_follow_up(&mut self, _: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) {}

    fn save(&self, _out: &mut Vec<u8>) {}

    fn load(&mut self, _saved: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// Clients that ask for one number of one space, or of each.
#[derive(Clone, Debug)]
pub struct Asks {
    body: Bytes,
    /// Every number that was answered, if they are to be recorded, by space.
    pub answered: Option<Vec<Vec<u64>>>,
}

impl Asks {
    /// For a number of each of so many spaces.
    pub fn of_all(spaces: u16) -> Self {
        let ask = Ask { spaces: (0..spaces).map(Space).collect(), label: Bytes::new() };
        Self { body: ask.encoded().into(), answered: None }
    }

    /// Keeps what is answered.
    #[must_use]
    pub fn retained(self, spaces: u16) -> Self {
        Self { answered: Some(vec![Vec::new(); usize::from(spaces)]), ..self }
    }
}

impl Load<Mason> for Asks {
    fn ask(&mut self, _session: LoadSession, _rng: &mut Rng) -> (Bytes, Class) {
        (self.body.clone(), Class(0))
    }

    fn answered(
        &mut self,
        _session: LoadSession,
        _class: Class,
        response: &Response,
        _now: Duration,
    ) -> bool {
        let Ok(order) = Order::decoded(&response.0) else { return false };
        if let Some(answered) = &mut self.answered {
            for placed in &order.numbers {
                if let Some(space) = answered.get_mut(usize::from(placed.space.0)) {
                    space.push(placed.number.0);
                }
            }
        }
        true
    }
}
