//! The sequencer: a counter (the paper's section 6.2: "monolithic").
//!
//! Tokens are soft state: one that is lost, or whose client dies, leaves a hole for readers to fill.

use crate::Corfu;
use crate::messages::auxiliary::SequencerPong;
use crate::messages::client::{Sealed, TailIs, Token};
pub use crate::messages::sequencer::*;
use crate::projection::{Epoch, JournalId, LogPosition};
use kernel::{Cx, NodeId, Position, Role, planted};
use std::convert::Infallible;

kernel::record! {
    /// The last epoch that it began to serve.
    pub struct Began {
        /// The epoch; 0 before the first.
        epoch: Epoch,
        /// Its incarnation.
        journal: Option<JournalId>,
    }
}

/// Gives positions away.
///
/// Invariant: it serves an epoch in one run only, and gives a position of it away once.
#[derive(Clone, Debug, Default)]
pub struct Sequencer {
    journal: Option<JournalId>,
    began: Epoch,
    /// The next position, while it serves.
    next: Option<LogPosition>,
}

impl Sequencer {
    /// One that serves nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The epoch that it serves, and the next position.
    pub fn serves(&self) -> Option<(Epoch, LogPosition)> {
        self.next.map(|next| (self.began, next))
    }

    /// What it must not forget.
    pub fn record(&self) -> Began {
        Began { epoch: self.began, journal: self.journal }
    }

    fn on_begin(&mut self, message: &Begin, cx: &mut Cx<'_, Self>) {
        let Begin { epoch, first, journal } = *message;
        if epoch > self.began && journal == self.journal {
            (self.began, self.next) = (epoch, Some(first));
            self.keep(cx);
        }
    }

    fn keep(&self, cx: &mut Cx<'_, Self>) {
        let position = cx.append(&self.record());
        cx.trim(position);
    }

    /// The next position, if this is the caller's epoch.
    fn serving(&self, client: NodeId, id: u64, epoch: Epoch, cx: &mut Cx<'_, Self>) -> Option<LogPosition> {
        if epoch < self.began {
            cx.send_durable(client, Sealed { id, epoch: self.began });
            return None;
        }
        // Another epoch's, or its own before it restarted: its auxiliaries will see to it.
        self.next.filter(|_| epoch == self.began)
    }
}

impl Role for Sequencer {
    type Family = Corfu;
    type In = SequencerIn;
    type Timer = Infallible;
    type Record = Began;

    fn restore(&mut self, _position: Position, record: Began) {
        self.journal = record.journal.or(self.journal);
        if !planted!(restarted_sequencer_serves_epoch_again) {
            self.began = self.began.max(record.epoch);
        }
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        if self.journal.is_none() {
            self.journal = Some(JournalId(cx.rng().bits()));
            self.keep(cx);
        }
    }

    fn on_message(&mut self, from: NodeId, message: SequencerIn, cx: &mut Cx<'_, Self>) {
        match message {
            SequencerIn::Next(Next { id, epoch, count }) => {
                let Some(position) = self.serving(from, id, epoch, cx) else { return };
                let next = LogPosition(position.0.saturating_add(count.into()));
                kernel::invariant!(UNIQ, next >= position, "{next} follows {position}");
                self.next = Some(next);
                cx.send_durable(from, Token { id, epoch, position });
            }
            SequencerIn::Tail(Tail { id, epoch }) => {
                let Some(next) = self.serving(from, id, epoch, cx) else { return };
                cx.send_durable(from, TailIs { id, epoch, next });
            }
            SequencerIn::Begin(message) => self.on_begin(&message, cx),
            SequencerIn::Ping(Ping {}) => {
                let serves = self.next.is_some();
                let pong = SequencerPong { began: self.began, serves, journal: self.journal };
                cx.repeat_durable([from], pong);
            }
        }
    }
}
