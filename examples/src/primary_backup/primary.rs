//! The primary: the order of the log is the order in which it appends.

use super::messages::{Answer, Copy, Entry, PrimaryIn, Stored, Submit};
use super::{COMMAND_BYTES_MAX, ENTRIES_MAX, PrimaryBackup};
use kernel::{Bytes, Cx, NodeId, Position, Role, StateMachine};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the backup has not said to be durable is sent again after so long.
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// Entries of one round of sending.
const COPIES_MAX: usize = 64;

kernel::timers! {
    /// The primary's timers.
    pub enum PrimaryTimer {
        /// Send again what the backup lacks.
        Resend,
    }
}

/// Orders commands and executes them.
///
/// Invariant: `executed` is at most what both journals have durably.
#[derive(Debug)]
pub struct Primary<M> {
    backup: NodeId,
    log: Vec<Entry>,
    /// Entries below are durable here.
    stored_here: u64,
    /// Entries below are durable at the backup.
    stored_there: u64,
    /// Entries below are executed.
    executed: u64,
    machine: M,
    /// The last tag of each client that was executed, and its answer.
    answers: BTreeMap<NodeId, (u64, Bytes)>,
}

impl<M: StateMachine> Primary<M> {
    /// A primary with an empty journal.
    pub fn new(backup: NodeId, machine: M) -> Self {
        Self {
            backup,
            log: Vec::new(),
            stored_here: 0,
            stored_there: 0,
            executed: 0,
            machine,
            answers: BTreeMap::new(),
        }
    }

    /// How many entries it has executed, for invariants.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    fn on_submit(&mut self, client: NodeId, message: Submit, cx: &mut Cx<'_, Self>) {
        let Submit { tag, command } = message;
        if let Some((answered, response)) = self.answers.get(&client)
            && tag <= *answered
        {
            if tag == *answered {
                cx.send(client, Answer { tag, response: response.clone() });
            }
            return;
        }
        let waits = |entry: &Entry| entry.client == client && entry.tag >= tag;
        if self.log[self.executed as usize..].iter().any(waits) {
            return;
        }
        if command.len() > COMMAND_BYTES_MAX || self.log.len() == ENTRIES_MAX {
            return cx.reject("a command that there is no room for");
        }
        let (index, entry) = (self.log.len() as u64, Entry { client, tag, command });
        let position = cx.append(&entry);
        assert_eq!(position, Position(index), "an entry's index is its position in the journal");
        self.log.push(entry.clone());
        cx.send(self.backup, Copy { index, entry });
        cx.send_durable(cx.node(), Stored { below: index + 1 });
    }

    fn on_stored(&mut self, from: NodeId, message: &Stored, cx: &mut Cx<'_, Self>) {
        let of = if from == self.backup { &mut self.stored_there } else { &mut self.stored_here };
        if message.below <= *of {
            return;
        }
        *of = message.below;
        let both = self.stored_here.min(self.stored_there);
        let durable = if kernel::planted!(one_copy_is_enough) { self.stored_here } else { both };
        assert!(durable <= self.log.len() as u64, "{durable} of {} entries are durable", self.log.len());
        while self.executed < durable {
            let Entry { client, tag, command } = &self.log[self.executed as usize];
            let mut response = Vec::new();
            self.machine.apply(command, &mut response);
            let response = Bytes::from(response);
            self.answers.insert(*client, (*tag, response.clone()));
            cx.send(*client, Answer { tag: *tag, response });
            self.executed += 1;
        }
    }
}

impl<M: StateMachine> Role for Primary<M> {
    type Family = PrimaryBackup;
    type In = PrimaryIn;
    type Timer = PrimaryTimer;
    type Record = Entry;

    fn restore(&mut self, _position: Position, entry: Entry) {
        self.log.push(entry);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // What was read back is durable.
        self.stored_here = self.log.len() as u64;
        cx.set_timer(PrimaryTimer::Resend, RESEND_AFTER);
    }

    fn on_timer(&mut self, PrimaryTimer::Resend: PrimaryTimer, cx: &mut Cx<'_, Self>) {
        let lacking = self.log.iter().zip(0..).skip(self.stored_there as usize).take(COPIES_MAX);
        for (entry, index) in lacking {
            cx.mark("primary.sent_again");
            cx.send(self.backup, Copy { index, entry: entry.clone() });
        }
        cx.set_timer(PrimaryTimer::Resend, RESEND_AFTER);
    }

    fn on_message(&mut self, from: NodeId, message: PrimaryIn, cx: &mut Cx<'_, Self>) {
        match message {
            PrimaryIn::Submit(message) => self.on_submit(from, message, cx),
            PrimaryIn::Stored(message) if from == self.backup || from == cx.node() => {
                self.on_stored(from, &message, cx);
            }
            PrimaryIn::Stored(_) => cx.reject("a copy that nobody asked for"),
        }
    }
}
