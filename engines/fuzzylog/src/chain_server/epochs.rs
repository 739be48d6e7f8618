//! How a server is sealed, and begins to serve.

use super::{ChainServer, Links, Project, SealChain, SealedFor, Serves};
use crate::messages::client::ProjectionDecided;
use crate::messages::director::{Pong, SealAck};
use kernel::{Cx, NodeId, planted};

impl ChainServer {
    pub(super) fn report(&self, director: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(journal) = self.journal else { return };
        let notified = self.projection.as_ref().map(|it| it.epoch).unwrap_or_default();
        let serves = self.serves() == Some(notified);
        let copy = self.copy_progress();
        let (partition, sealed) = (self.partition, self.sealed);
        let whole_from = self.serving_projection().map(|it| it.whole_from);
        let has_all = Some(whole_from.is_some_and(|whole_from| self.length() >= whole_from));
        let moves = Some(self.moves_seen());
        let pong = Pong { partition, journal, sealed, notified, serves, copy, run: self.run, has_all, moves };
        cx.repeat_durable([director], pong);
    }

    pub(super) fn on_seal(&mut self, director: NodeId, message: &SealChain, cx: &mut Cx<'_, Self>) {
        let SealChain { epoch, journal: meant } = *message;
        let Some(journal) = self.journal else { return };
        if epoch < self.sealed || self.serves() == Some(epoch) {
            return self.report(director, cx);
        }
        if meant.is_some_and(|meant| meant != journal) {
            // It is taken for who had this name. It is to copy first, which nobody does who is sealed.
            cx.mark("chain.was_taken_for_who_it_was");
            return self.report(director, cx);
        }
        if epoch > self.sealed {
            self.sealed = epoch;
            if !planted!(seal_of_chain_server_not_journaled) {
                cx.append(&SealedFor { epoch }.into());
            }
            self.syncs.clear();
        }
        self.sealed_here = epoch;
        let copy = self.copy_progress().map(|copy| copy.epoch);
        let (partition, length, base) = (self.partition, self.length(), Some(self.base()));
        cx.send_durable(director, SealAck { partition, epoch, journal, length, copy, base });
    }

    pub(super) fn on_project(&mut self, message: Project, cx: &mut Cx<'_, Self>) {
        let Project { projection, copies } = message;
        let known = self.projection.as_ref().map(|it| it.epoch).unwrap_or_default();
        let epoch = projection.epoch;
        if projection.partition != self.partition || !projection.is_sound() || epoch < known {
            return;
        }
        let me = cx.node();
        let is_meant = self.journal.is_some_and(|journal| projection.means(me, journal));
        if epoch > known {
            // Its calls go on at once, and not when they are late.
            cx.send(self.client, ProjectionDecided { projection: projection.clone() });
        }
        self.projection = Some(projection);
        if is_meant {
            let may_open = self.opened < epoch && self.sealed_here == epoch
                || planted!(restarted_head_goes_on) && !self.serving;
            if epoch == self.sealed && may_open {
                self.open(cx);
            }
        } else {
            // A chain that goes on without it: what it has may not be what they have.
            if epoch > self.sealed {
                self.sealed = epoch;
                cx.append(&SealedFor { epoch }.into());
            }
            self.serving = false;
            if !copies {
                self.end_copy();
            } else if epoch == self.sealed {
                self.begin_copy(cx);
            }
        }
    }

    fn open(&mut self, cx: &mut Cx<'_, Self>) {
        if self.end_copy() {
            cx.mark("chain.joining_server_serves");
        }
        if self.saved.is_taking() {
            self.drop_snapshot();
        }
        let epoch = self.sealed;
        (self.opened, self.serving) = (epoch, true);
        self.copied = None;
        cx.append(&Serves { epoch }.into());
        self.syncs.clear();
        let answers_from = self.length();
        self.links = Links { moved: cx.now(), owes_length: true, answers_from, ..Links::default() };
        self.watched.forget();
        if !planted!(calls_stay_across_epochs) {
            self.unconfirmed.forget();
        }
        if let Some(projection) = &self.projection {
            self.retained.forget_members(projection);
        }
        self.forget_pulls();
        self.mover.forget_orders();
        self.begin_with_regions(cx);
        cx.mark("chain.serves");
    }
}
