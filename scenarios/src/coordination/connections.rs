//! Users come, go, and hear what the hosts send them.

use super::user::{Awaited, News};
use super::words::Ask;
use super::{CoordinationScenario, SOCKETS, SOCKETS_PER_USER, Seat, nanos, node, send};
use kernel::{Bytes, HostSlot, NodeId};
use sim::Control;
use std::time::Duration;

impl CoordinationScenario {
    pub(super) fn connect(&mut self, number: usize, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        let within = self.hosts_to_try();
        let Some(&host) = self.rng.pick(&within) else { return };
        let forges = self.healed_at.is_none() && self.rng.chance(0.03);
        let user = &mut self.users[number];
        let attempts = user.attempts.entry(host).or_insert(0);
        *attempts += 1;
        let turn = *attempts % SOCKETS_PER_USER;
        let socket = NodeId::new(host, HostSlot(SOCKETS + number as u32 * SOCKETS_PER_USER + turn));
        control.request(socket, Bytes::from_static(&[node::CONNECT]));
        send(socket, node::INPUT, &user.greeting(forges), control);
        let poll = control.request(socket, Bytes::from_static(&[node::POLL]));
        user.connected(host, socket, poll, now);
    }

    /// The connection is broken, by the user or by somebody else.
    pub(super) fn disconnect(&mut self, number: usize, now: u64, control: Option<&mut Control<'_, Seat>>) {
        self.forget_what_was_planned(number);
        let user = &mut self.users[number];
        if let (Some(link), Some(control)) = (&user.link, control) {
            send(link.socket, node::DISCONNECT, &[], control);
        }
        user.retry_at = now + nanos(self.rng.duration(Duration::from_millis(20), Duration::from_millis(600)));
        self.check_watches(number);
        for awaited in self.users[number].disconnected() {
            self.lose(number, &awaited, now);
        }
    }

    pub(super) fn lose(&mut self, number: usize, awaited: &Awaited, now: u64) {
        let session = self.users[number].session.as_ref().map_or(0, |session| session.id);
        self.checks.unknown(awaited, session, now);
        let healed = self.healed_at.is_some();
        let user = &mut self.users[number];
        if let (Ask::Delete { path, .. }, Some(queued)) = (&awaited.ask, &mut user.queued)
            && queued.path == *path
        {
            queued.leaving = true;
        }
        if let Some(task) = user.task.as_mut().filter(|_| awaited.of_task) {
            // Who asks again is not notified twice; but after the heal only an answer counts.
            task.asks.clear();
            if healed {
                task.asks.push_back(Ask::Exists { path: "/".to_owned(), watch: false });
            }
        }
    }

    pub(super) fn hear(&mut self, number: usize, answer: &[u8], control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        match answer.split_first() {
            Some((&node::OUTPUT, bytes)) => {
                if let Some(link) = &mut self.users[number].link {
                    link.poll = control.request(link.socket, Bytes::from_static(&[node::POLL]));
                }
                self.users[number].feed(bytes);
                while !self.is_disconnected(number, control)
                    && let Some(news) = self.users[number].hear(now)
                {
                    self.on_news(number, news, control);
                }
            }
            Some((&node::CLOSED, reason)) => {
                self.check_disconnected(number, reason, now);
                self.disconnect(number, now, Some(control));
            }
            Some(_) | None => {}
        }
        self.pump(number, control);
    }

    pub(super) fn on_news(&mut self, number: usize, news: News, control: &mut Control<'_, Seat>) {
        match news {
            News::Attached => {
                let user = &self.users[number];
                if let (Some(session), Some(link)) = (&user.session, &user.link) {
                    self.living.acted(session.id, link.began_at);
                }
                if let Some(ask) = self.users[number].set_watches() {
                    control.mark("coordination.set_watches_again");
                    self.say(number, ask, false, control);
                }
            }
            News::Refused(session) => {
                if let Some(session) = session {
                    control.mark("coordination.lost_a_session");
                    self.check_refusal(number, &session, control.cluster.now());
                }
                self.session_is_over(number);
            }
            News::TurnedAway => {
                control.mark("coordination.turned_a_stranger_away");
                self.disconnect(number, control.cluster.now(), Some(control));
            }
            News::Pong { pinged_at } => self.check_pong(number, pinged_at),
            News::Event { kind, path, zxid, armed } => {
                control.mark(if zxid > 0 {
                    "coordination.heard_an_event"
                } else {
                    "coordination.heard_of_a_missed_event"
                });
                if self.users[number].lasting.reports_from_above(&path) {
                    control.mark("coordination.heard_from_below");
                }
                self.checks.on_event(&path, kind, zxid, &armed);
            }
            News::Answer { awaited, seen, zxid, error, body } => {
                self.on_answer(number, &awaited, (seen, zxid, error), &body, control);
            }
        }
    }

    pub(super) fn session_is_over(&mut self, number: usize) {
        self.check_watches(number);
        let user = &mut self.users[number];
        (user.session, user.queued, user.last_zxid) = (None, None, 0);
        user.watches.clear();
        user.lasting.forget_session();
    }
}
