//! How a head makes room for new clients of users: it has those forgotten that were silent for long.
//!
//! What a client sends again after it was forgotten is executed a second time, so nobody is forgotten before `forget_after`, by the head's
//! own clock and since it is the head, and nobody while there is room.

use super::ChainServer;
use crate::partition::command::{ForgetClients, RowEntry};
use crate::terms::RowIndex;
use kernel::{Cx, Instant};
use std::collections::VecDeque;

/// How far the row had been applied at moments of the past, the earliest first.
#[derive(Clone, Debug, Default)]
pub(super) struct PassedRow {
    moments: VecDeque<(Instant, RowIndex)>,
}

/// So many moments are remembered of the time for which a client must be silent.
const MOMENTS: u32 = 16;
/// Clients are forgotten when so many parts of four of the table are full.
const FULL_PARTS: usize = 3;

impl ChainServer {
    /// Has clients forgotten that were silent for long, if there is little room.
    pub(super) fn look_after_clients(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.is_head(cx.node()) {
            return self.passed.moments.clear();
        }
        let (now, forget_after) = (cx.now(), self.parameters.forget_after);
        let moments = &mut self.passed.moments;
        let is_due = moments.back().is_none_or(|(at, _)| now.since(*at) >= forget_after / MOMENTS);
        if !is_due {
            return;
        }
        moments.push_back((now, self.state.applied()));
        // The second is long enough ago as well, and knows more.
        while moments.get(1).is_some_and(|(at, _)| now.since(*at) >= forget_after) {
            moments.pop_front();
        }
        let Some(&(at, used_below)) = moments.front() else { return };
        let is_full = 4 * self.state.clients() >= FULL_PARTS * self.parameters.clients_max;
        if is_full && now.since(at) >= forget_after && self.state.has_idle_clients(used_below) {
            cx.mark("chain.forgot_idle_clients");
            let command = ForgetClients { used_below }.into();
            self.order(RowEntry { origin: cx.node(), call: 0, command }, cx);
        }
    }
}
