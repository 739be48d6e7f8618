//! What users ask, and what they make of the answers.

use super::checks::{LOCK, Reported};
use super::user::{Awaited, QueuePosition};
use super::words::{self, Ask, EPHEMERAL, NO_NODE, SEQUENTIAL};
use super::{CoordinationScenario, Seat, node, send, workload};
use sim::Control;

impl CoordinationScenario {
    pub(super) fn say(&mut self, number: usize, ask: Ask, of_task: bool, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        if self.is_quiet(number) && ask != Ask::Ping || self.is_silent(number) {
            return;
        }
        let user = &mut self.users[number];
        // What is said before the greeting would come before the watches that a client library sets again.
        if user.link.as_ref().is_none_or(|link| !link.greeted) {
            return;
        }
        if let (Ask::Close, Some(session)) = (&ask, &user.session) {
            self.living.closes(session.id);
        }
        if let (Ask::Delete { path, .. }, Some(queued)) = (&ask, &mut user.queued)
            && queued.path == *path
        {
            queued.leaving = true;
        }
        if let Some((socket, bytes)) = user.ask(ask, of_task, now) {
            send(socket, node::INPUT, &bytes, control);
        }
    }

    /// Sends what can be sent, or says that the operation is done.
    pub(super) fn pump(&mut self, number: usize, control: &mut Control<'_, Seat>) {
        while !self.is_quiet(number) && !self.is_silent(number) {
            let user = &mut self.users[number];
            let Some(link) = user.link.as_ref().filter(|link| link.greeted) else { break };
            let waits = link.awaited.iter().any(|awaited| awaited.of_task);
            let Some(task) = user.task.as_mut().filter(|task| task.pipelined || !waits) else { break };
            let Some(ask) = task.asks.pop_front() else { break };
            self.say(number, ask, true, control);
        }
        let user = &mut self.users[number];
        let waits = user.link.as_ref().is_some_and(|link| link.awaited.iter().any(|it| it.of_task));
        if !waits && user.task.as_ref().is_some_and(|task| task.asks.is_empty()) {
            user.task = None;
            if let Some(ticket) = user.ticket.take() {
                send(self.desk_of(number), node::RELEASE, &ticket.0.to_le_bytes(), control);
            }
        }
    }

    pub(super) fn on_answer(
        &mut self,
        number: usize,
        awaited: &Awaited,
        (seen, zxid, error): (u64, u64, i32),
        body: &[u8],
        control: &mut Control<'_, Seat>,
    ) {
        let now = control.cluster.now();
        let session = self.users[number].session.as_ref().map_or(0, |session| session.id);
        let believed = match &awaited.ask {
            Ask::Set { path, version, .. } => {
                let known = self.users[number].known.get(path);
                known.filter(|(known, _)| known == version).map(|(_, zxid)| *zxid)
            }
            _ => None,
        };
        let body = if error == 0 { awaited.ask.read_answer(body) } else { None };
        let shows_from = if self.is_linearizable() { Some(awaited.at) } else { awaited.synced_at };
        let reported = Reported { awaited, shows_from, seen, zxid, error, body: body.clone(), now, session };
        self.checks.on_answer(&reported, believed);
        self.check_shown(number, &reported);
        if error == 0 && !matches!(awaited.ask, Ask::Close) && awaited.ask.writes() {
            self.living.acted(session, awaited.at);
        }
        self.mark_answer(&reported, control);
        self.users[number].shown(zxid, awaited.ask.watch_left(error));
        match (&awaited.ask, &body) {
            (Ask::Get { path, .. }, Some(words::Body::Data(_, stat)))
            | (Ask::Set { path, .. }, Some(words::Body::Stat(stat))) => {
                self.users[number].known.insert(path.clone(), (stat.version, stat.mzxid as u64));
            }
            (Ask::Create { flags, .. }, Some(words::Body::Created(path, _)))
                if *flags == EPHEMERAL | SEQUENTIAL =>
            {
                let queued = QueuePosition { path: path.clone(), session, since: now, leaving: false };
                self.users[number].queued = Some(queued);
            }
            (Ask::Delete { path, .. }, _) => {
                let user = &mut self.users[number];
                user.queued.take_if(|queued| queued.path == *path);
            }
            (Ask::Children { path, .. }, Some(words::Body::Names(names, _)))
                if path == LOCK && self.is_linearizable() =>
            {
                self.checks.on_queue(names, awaited.at, now, &self.users);
                self.mark_holder(number, names, control);
            }
            (Ask::SetWatches { below, .. }, _) => {
                self.users[number].renewed(now);
                below.iter().for_each(|path| self.users[number].lasting.set(path, now));
            }
            (Ask::Unwatch { .. }, _) => self.on_unwatched(number, &awaited.ask, error),
            (Ask::WatchBelow { path }, _) => self.users[number].lasting.set(path, now),
            (Ask::Close, _) => {
                control.mark("coordination.closed_a_session");
                self.session_is_over(number);
            }
            _ => {}
        }
        // The header of a multi says that all is well, even when it is refused.
        let lacks = |step: &Result<words::Step, i32>| *step == Err(NO_NODE);
        let is_refused = matches!(&body, Some(words::Body::Steps(steps)) if steps.iter().any(lacks));
        if error == NO_NODE || is_refused {
            let value = self.value();
            let remedy = workload::remedy(&awaited.ask, value);
            if let (Some(ask), Some(task)) = (remedy, &mut self.users[number].task) {
                task.asks.push_front(ask);
            }
        }
    }

    /// What a client library does now and then.
    pub(super) fn tick(&mut self, number: usize, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        self.end_quiet(number, control);
        let timeout = self.users[number].session.as_ref().map_or(u64::MAX, |session| session.timeout);
        let Some(link) = &self.users[number].link else {
            if now >= self.users[number].retry_at {
                control.mark("coordination.attached_anew");
                self.connect(number, control);
            }
            return;
        };
        let asked = link.awaited.front().map(|awaited| awaited.at);
        let silent = asked.into_iter().chain(link.pinged_at).min().map_or(0, |at| now - at);
        let patience = u64::from(self.users[number].stretch) * 1_500_000_000;
        let late = if link.greeted { silent > timeout / 3 * 2 } else { now - link.began_at > patience };
        if late {
            self.users[number].waited_in_vain();
            return self.disconnect(number, now, Some(control));
        }
        if link.greeted && link.pinged_at.is_none() && now - link.said_at > timeout / 3 {
            self.say(number, Ask::Ping, false, control);
        }
    }
}
