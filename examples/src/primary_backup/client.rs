//! The client: asks until it is answered.

use super::PrimaryBackup;
use super::messages::{Answer, ClientIn, Submit};
use kernel::{Bytes, Cx, NodeId, Position, RequestId, Role};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

const RESEND_AFTER: Duration = Duration::from_millis(100);
/// Calls at a time; more are not answered.
const CALLS_MAX: usize = 1;

kernel::timers! {
    /// The client's timers.
    pub enum ClientTimer {
        /// Ask again.
        Resend,
    }
}

/// Asks the primary, one command at a time.
#[derive(Debug)]
pub struct Client {
    primary: NodeId,
    /// The tag of the last call. It begins at the clock, so that a later incarnation's are larger.
    tag: u64,
    calls: BTreeMap<u64, (RequestId, Bytes)>,
}

impl Client {
    /// A client of this primary.
    pub fn new(primary: NodeId) -> Self {
        Self { primary, tag: 0, calls: BTreeMap::new() }
    }

    fn ask(&mut self, cx: &mut Cx<'_, Self>) {
        for (&tag, (_, command)) in &self.calls {
            cx.send(self.primary, Submit { tag, command: command.clone() });
        }
        cx.set_timer(ClientTimer::Resend, RESEND_AFTER);
    }
}

impl Role for Client {
    type Family = PrimaryBackup;
    type In = ClientIn;
    type Timer = ClientTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_request(&mut self, id: RequestId, command: Bytes, cx: &mut Cx<'_, Self>) {
        if self.calls.len() == CALLS_MAX {
            return cx.reject("a call beside another");
        }
        self.tag = (self.tag + 1).max(cx.wall().midpoint());
        self.calls.insert(self.tag, (id, command));
        self.ask(cx);
    }

    fn on_timer(&mut self, ClientTimer::Resend: ClientTimer, cx: &mut Cx<'_, Self>) {
        if !self.calls.is_empty() {
            cx.mark("client.asked_again");
            self.ask(cx);
        }
    }

    fn on_message(&mut self, _from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        let ClientIn::Answer(Answer { tag, response }) = message;
        if let Some((id, _)) = self.calls.remove(&tag) {
            cx.respond(id, response);
        }
    }
}
