//! Has `/zookeeper/config` name where this gateway is to be reached. It is read before it is written: a line that stands there costs
//! no entry of a log.

use crate::gateway::Gateway;
use crate::tree::{CONFIG, lists};
use crate::wire::{Body, Caller, JuteInput, Query, op};
use kernel::{Bytes, Instant};
use std::time::Duration;

/// It is read again so often: a superuser may have written something else.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// An operation that has changed nothing by then is submitted again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the gateway has to say.
#[derive(Debug, Default)]
pub(super) struct Advertised {
    /// A `Body::Advertise`; nothing before the host's server has said what.
    operation: Bytes,
    /// When it was last seen to stand there.
    seen: Option<Instant>,
    submitted: Option<Instant>,
}

impl Gateway {
    /// From now on the gateway is to be reached where this `Body::Advertise` says.
    pub(super) fn on_advertise(&mut self, operation: Bytes) {
        if self.advertised.operation != operation {
            self.advertised = Advertised { operation, ..Advertised::default() };
        }
        self.look_after_config();
    }

    fn look_after_config(&mut self) {
        let Advertised { seen, submitted, .. } = self.advertised;
        let stands = seen.is_some_and(|at| self.now.since(at) < AGAIN_AFTER);
        let waits = submitted.is_some_and(|at| self.now.since(at) < PATIENCE);
        if !stands && !waits {
            let query =
                Query::Node { caller: Caller::default(), opcode: op::GET_DATA, path: CONFIG, watch: None };
            self.reads.ask_config(self.settings.placement.space_of(CONFIG), &query);
        }
    }

    /// What a shard has there, behind what it has executed.
    pub(super) fn on_config(&mut self, error: i32, body: &[u8]) {
        let Ok(Body::Advertise { host, line, members }) = Body::read(&self.advertised.operation) else {
            return;
        };
        // A shard without the node has not executed what begins the tree, or has handed it over.
        let (0, Ok(data)) = (error, JuteInput(body).buffer()) else { return };
        if lists(data.unwrap_or_default(), (host, line), &members) {
            (self.advertised.seen, self.advertised.submitted) = (Some(self.now), None);
        } else {
            self.advertised.submitted = Some(self.now);
            self.submit_unasked(self.advertised.operation.clone());
        }
    }
}
