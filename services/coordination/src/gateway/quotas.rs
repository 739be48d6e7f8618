//! Quotas: what they allow, how much is used, and who is refused. Collected from the shards every second, so all of it is a moment old;
//! what this gateway has sent on its way meanwhile is added.

use crate::gateway::Gateway;
use crate::wire::{
    Code, JuteInput, JuteOutput, Malformed, Query, QuotaLimits, Update, WriteOperation, limited_by, op,
};
use mason::Space;
use std::collections::BTreeMap;

/// One quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota {
    /// Whether this round has found its limits.
    is_there: bool,
    limits: QuotaLimits,
    /// Nodes and bytes, once they have been counted.
    used: Option<(u64, u64)>,
    /// Nodes and bytes that were sent on their way since.
    sent: (u64, u64),
}

impl Quota {
    fn is_exceeded(&self) -> bool {
        let (nodes, bytes) = self.used.unwrap_or_default();
        self.limits.count.is_some_and(|max| nodes > max) || self.limits.bytes.is_some_and(|max| bytes > max)
    }

    fn allows(&self, update: &Update<'_>) -> bool {
        let (nodes, bytes) = self.used.unwrap_or_default();
        let (nodes, bytes) = (nodes + self.sent.0, bytes + self.sent.1);
        let within = |used: u64, max: Option<u64>| max.is_none_or(|max| used <= max);
        match update {
            Update::Create(_) | Update::Restore(_) => {
                within(nodes + 1, self.limits.count_hard)
                    && within(bytes + update.data_len() as u64, self.limits.bytes_hard)
            }
            // How much it replaces is not known here: it passes until the limit is exceeded.
            Update::SetData { .. } => within(bytes, self.limits.bytes_hard),
            Update::Delete { .. }
            | Update::SetAcl { .. }
            | Update::Check { .. }
            | Update::CheckSame { .. } => true,
        }
    }
}

/// All of them, by the path that they are for.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    known: BTreeMap<Box<str>, Quota>,
    /// What this round has found, and how many shards have answered it.
    found: BTreeMap<Box<str>, Quota>,
    answered: u16,
    /// The paths that this round asks for.
    asked: Vec<Box<str>>,
    pub(crate) round: u64,
}

impl Quotas {
    /// How much is used below a path that has a quota.
    pub(crate) fn used(&self, path: &str) -> Option<(u64, u64)> {
        self.known.get(path)?.used
    }

    pub(crate) fn len(&self) -> u64 {
        self.known.len() as u64
    }

    pub(crate) fn exceeded(&self) -> u64 {
        self.known.values().filter(|quota| quota.is_exceeded()).count() as u64
    }

    fn add(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut input = JuteInput(body);
        for _ in 0..input.count(8)?.unwrap_or(0) {
            let (path, data) = (input.text()?, input.buffer()?.unwrap_or_default());
            if let Some(path) = limited_by(path) {
                let quota = self.found.entry(path.into()).or_default();
                (quota.is_there, quota.limits) = (true, QuotaLimits::read(data));
            }
        }
        for path in &self.asked {
            let (nodes, bytes) = (input.u64()?, input.u64()?);
            let used = self.found.entry(path.clone()).or_default().used.get_or_insert_default();
            (used.0, used.1) = (used.0 + nodes, used.1 + bytes);
        }
        Ok(())
    }

    /// The longest path above with a quota, as ZooKeeper has it.
    fn of(&mut self, path: &str) -> Option<&mut Quota> {
        let mut above = path;
        while !self.known.contains_key(above) {
            above = crate::wire::parent_of(above).filter(|&parent| parent != above)?;
        }
        self.known.get_mut(above)
    }
}

impl Gateway {
    /// Begins a round; one that has not ended is given up.
    pub(crate) fn ask_quotas(&mut self) {
        let quotas = &mut self.quotas;
        quotas.round += 1;
        (quotas.found, quotas.answered) = (BTreeMap::new(), 0);
        quotas.asked = quotas.known.keys().cloned().collect();
        let paths: Vec<&str> = quotas.asked.iter().map(|path| &**path).collect();
        let query = Query::Quotas { paths };
        let spaces: Vec<Space> = self.settings.placement.spaces().collect();
        spaces.into_iter().for_each(|space| self.reads.ask_quotas(space, &query, quotas.round));
    }

    pub(crate) fn on_quotas(&mut self, round: u64, body: &[u8]) {
        let quotas = &mut self.quotas;
        if round != quotas.round || quotas.add(body).is_err() {
            return;
        }
        quotas.answered += 1;
        if quotas.answered == self.settings.placement.shards() {
            quotas.known = std::mem::take(&mut quotas.found);
            // One whose limits have gone is none any more.
            quotas.known.retain(|_, quota| quota.is_there);
        }
    }

    /// The first step that no quota allows. If all are allowed they count from now on.
    pub(crate) fn refused_by_quota(&mut self, operation: &WriteOperation<'_>) -> Option<usize> {
        if !self.settings.enforce_quota || self.quotas.known.is_empty() {
            return None;
        }
        let updates = operation.updates();
        let refuses =
            |update: &Update<'_>| self.quotas.of(update.path()).is_some_and(|quota| !quota.allows(update));
        if let Some(at) = updates.iter().position(refuses) {
            self.metrics.quota_refused += 1;
            return Some(at);
        }
        for update in updates {
            let makes = matches!(update, Update::Create(_) | Update::Restore(_));
            if let Some(quota) = self.quotas.of(update.path()).filter(|_| makes) {
                quota.sent.0 += 1;
                quota.sent.1 += update.data_len() as u64;
            }
        }
        None
    }
}

/// What a multi is answered whose step `at` is refused.
pub(crate) fn refused_multi(steps: usize, at: usize, code: Code) -> Vec<u8> {
    let mut body = Vec::new();
    let mut header = |kind: i32, done: bool, error: i32| {
        body.put_i32(kind);
        body.push(done.into());
        body.put_i32(error);
        if !done {
            body.put_i32(error);
        }
    };
    for step in 0..steps {
        let code = match step.cmp(&at) {
            std::cmp::Ordering::Less => Code::Ok,
            std::cmp::Ordering::Equal => code,
            std::cmp::Ordering::Greater => Code::RuntimeInconsistency,
        };
        header(op::ERROR, false, code.number());
    }
    header(-1, true, -1);
    body
}
