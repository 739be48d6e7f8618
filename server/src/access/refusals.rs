//! What was refused: counted by port and area, and logged with who and what, a line for each kind and then a sum.

use super::caller::Denied;
use super::grants::Need;
use crate::admin::exposition::MetricsPage;
use crate::events::{EventLog, LogPart};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// All refusals of a host.
#[derive(Default)]
pub struct Refusals {
    log: EventLog,
    refused: Mutex<BTreeMap<Refused, u64>>,
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

/// What is counted together: each part is one of few.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    port: &'static str,
    area: &'static str,
    right: &'static str,
    why: &'static str,
}

impl std::fmt::Debug for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refusals")
    }
}

impl Refusals {
    /// They go to this log.
    pub fn new(log: EventLog) -> Self {
        Self { log, ..Self::default() }
    }

    /// Somebody may not do what it asked.
    pub fn refused(&self, port: &'static str, address: IpAddr, who: &str, need: &Need<'_>, why: Denied) {
        let key = Refused { port, area: need.area.name(), right: need.right.name(), why: why.name() };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(0) += 1;
        // What names the keys are strangers' words: they are no part of the kind.
        let kind = format!("access {port} {address} {who} {} {}", key.right, key.area);
        let line = format!("access refused at {port}: {who} of {address} may not {need}");
        self.log.take_repeated(LogPart::Access, &kind, &line);
    }

    /// Somebody could not prove who it is; `by` says how it tried.
    pub fn failed(&self, port: &'static str, address: IpAddr, by: &str) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner).entry(port).or_insert(0) += 1;
        // A name that somebody gives is a stranger's word.
        let shown: String = by.chars().take(64).flat_map(char::escape_debug).collect();
        let line = format!("login refused at {port}: {address} by {shown}");
        self.log.take_repeated(LogPart::Access, &format!("login {port} {address}"), &line);
    }

    /// As metrics.
    pub fn metrics(&self, page: &mut MetricsPage) {
        let help = "Calls that somebody was not granted";
        for (key, count) in &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            let Refused { port, area, right, why } = *key;
            let labels = [("port", port), ("area", area), ("right", right), ("reason", why)];
            page.counter_of("access_refused", help, &labels, *count);
        }
        let help = "Logins with a wrong token or password";
        for (port, count) in &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            page.counter_of("access_failed_logins", help, &[("port", port)], *count);
        }
    }
}
