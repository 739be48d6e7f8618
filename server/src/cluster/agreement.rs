//! What all hosts of a cluster must have alike: hosts compare when they greet each other.

use super::file::ClusterFile;
use runtime::Agreement;

const FOR_LIFE: bool = true;
/// A greeting has room for this, and not for any number of names.
const VALUE_BYTES_MAX: usize = 1000;

fn brief(value: String) -> String {
    if value.len() <= VALUE_BYTES_MAX {
        return value;
    }
    format!("{}... ({:016x})", value.chars().take(100).collect::<String>(), parts::digest(value.as_bytes()))
}

impl ClusterFile {
    /// Of every service that is on: what its data are made with, which is for life, and what its hosts decide by while they
    /// execute, which can be changed while all of them are stopped.
    pub fn agreement(&self) -> Agreement {
        let mut agreement = Agreement::default();
        let mut add = |name: &str, value: String, for_life: bool| agreement.add(name, &value, for_life);
        add("durability.ack", self.durability.to_string(), !FOR_LIFE);
        add("paxos.window", self.parameters.window.to_string(), FOR_LIFE);
        if let Some(it) = &self.coordination {
            let engine = if it.sharded { "mason" } else { "paxos" };
            add("coordination.engine", engine.to_owned(), FOR_LIFE);
            add("coordination.shards", it.shards.to_string(), FOR_LIFE);
            add("coordination.spread_levels", it.spread_levels.to_string(), FOR_LIFE);
            add("coordination.proxies", it.proxies.to_string(), FOR_LIFE);
            add("coordination.sessions_max", it.sessions_max.to_string(), !FOR_LIFE);
            // So few bits tell that secrets differ, and not what they are.
            let bits = parts::digest(it.secret.as_bytes()) as u16;
            add("coordination.secret", format!("({bits:04x})"), !FOR_LIFE);
        }
        if let Some(it) = &self.sequence {
            add("sequence.spaces", brief(it.spaces.join(",")), FOR_LIFE);
            add("sequence.proxies", it.proxies.to_string(), FOR_LIFE);
        }
        if let Some(it) = &self.logs {
            add("log.engine", it.engine.to_string(), FOR_LIFE);
            add("log.spaces", it.spaces.to_string(), FOR_LIFE);
            add("log.proxies", it.proxies.to_string(), FOR_LIFE);
            let archive = it.archive.as_ref().map_or_else(String::new, ToString::to_string);
            add("log.archive", archive, !FOR_LIFE);
        }
        agreement
    }
}
