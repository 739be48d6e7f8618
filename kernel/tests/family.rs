//! A family of two roles, written with the macros as an engine writes it, and driven by hand.
#![allow(missing_docs)]

use kernel::{
    Beacons, Cx, Decode, Effect, Effects, Encode, Family, HostId, HostSlot, Instant, Node, NodeId, Position,
    RequestId,
};
use kernel::{Role, Situation, Wall};
use std::convert::Infallible;
use std::time::Duration;

kernel::number! {
    /// A count.
    pub struct Count(u64);
}

kernel::messages! {
    /// To the counter.
    pub enum CounterIn in Message::Counter {
        /// Add and reply.
        1 => Add { amount: u64 },
    }
}

kernel::messages! {
    /// To the asker.
    pub enum AskerIn in Message::Asker {
        /// The sum so far.
        1 => Sum { sum: Count, since_the_second_version: Option<u64> },
    }
}

kernel::timers! {
    /// The counter's timers.
    pub enum CounterTimer { Flush, Idle }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Counting {
        1 => Counter(CounterIn, Counter, "counter"),
        2 => Asker(AskerIn, Asker, "asker"),
    }
}

pub struct Counting;

impl Family for Counting {
    type Message = Message;
    type Request = u64;
    type Response = Count;
}

#[derive(Default)]
pub struct Counter {
    sum: u64,
}

impl Role for Counter {
    type Family = Counting;
    type In = CounterIn;
    type Timer = CounterTimer;
    type Record = u64;

    fn restore(&mut self, _position: Position, record: u64) {
        self.sum = record;
    }

    fn on_message(&mut self, from: NodeId, message: CounterIn, cx: &mut Cx<'_, Self>) {
        match message {
            CounterIn::Add(Add { amount }) => {
                self.sum += amount;
                let at = cx.append(&self.sum);
                cx.send_durable(from, Sum { sum: Count(self.sum), since_the_second_version: None });
                cx.trim(at);
                cx.set_timer(CounterTimer::Idle, Duration::from_secs(1));
            }
        }
    }
}

pub struct Asker;

impl Role for Asker {
    type Family = Counting;
    type In = AskerIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, _from: NodeId, message: AskerIn, cx: &mut Cx<'_, Self>) {
        match message {
            AskerIn::Sum(Sum { sum, .. }) => cx.respond(RequestId(1), sum),
        }
    }
}

fn with<T>(call: impl FnOnce(Situation<'_>) -> T) -> T {
    let mut rng = kernel::Rng::seeded(1);
    let node = NodeId::new(HostId(1), HostSlot(1));
    let (now, wall, beacons) = (Instant(0), Wall::between(0, 1), Beacons::default());
    call(Situation { node, now, wall, rng: &mut rng, disk_full: false, beacons: &beacons })
}

// If effects came out of order, or a record's slot were wrong, acknowledgements would leave before their journal.
#[test]
fn effects_come_out_in_order_with_their_positions() {
    let peer = NodeId::new(HostId(2), HostSlot(2));
    let mut counter = Member::Counter(Counter::default());
    let mut effects = Effects::new(Position(5), false);
    with(|now| counter.on_message(peer, Add { amount: 3 }.into(), now, &mut effects));
    let records: Vec<_> = effects.records().map(|record| (record.position, record.bytes.to_vec())).collect();
    assert_eq!(records, [(Position(5), 3u64.encoded())]);
    let sum = Sum { sum: Count(3), since_the_second_version: None };
    let expected = [
        Effect::SendDurable { to: peer, message: sum.clone().into(), after: Position(6) },
        Effect::Trim { before: Position(5) },
        Effect::SetTimer { timer: kernel::TimerIndex(1), after: Duration::from_secs(1), silence: None },
    ];
    assert_eq!(effects.drain().collect::<Vec<_>>(), expected);
    with(|now| counter.on_message(peer, sum.into(), now, &mut effects));
    let rejected = [Effect::Reject { reason: "message for another role" }];
    assert_eq!(effects.drain().collect::<Vec<_>>(), rejected);
}

// A rolling upgrade breaks if an older sender's shorter message, or a newer one's longer message, is refused.
#[test]
fn messages_of_older_and_newer_versions_are_read() {
    let full = Message::from(Sum { sum: Count(9), since_the_second_version: Some(4) }).encoded();
    let older = &full[..full.len() - 9];
    let newer = [&full[..], &[1, 2, 3]].concat();
    let read = |bytes: &[u8]| Message::decoded(&kernel::Bytes::copy_from_slice(bytes));
    assert_eq!(read(older), Ok(Sum { sum: Count(9), since_the_second_version: None }.into()));
    assert_eq!(read(&newer), Ok(Sum { sum: Count(9), since_the_second_version: Some(4) }.into()));
    assert!(read(&full[..full.len() - 10]).is_err());
}
