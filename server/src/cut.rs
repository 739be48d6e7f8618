//! The state of a host's services at one moment, for backups: `GET /v1/cut` of the admin port.
//!
//! The answer is a file of frames. The first has [`FIRST_LINE`] and what the state is of, as JSON; each of the others a kind and records of
//! it (`length: u32 | record`); the last has [`END`] alone.
//!
//! **What it is.** After a linearizable read of each service the host's own replicas are copied between two bursts: each has executed a
//! prefix of its order, with all that was acknowledged before the call. An operation over several shards is in all of them or in none:
//! while one has executed its part and another has not, the host looks again. The host does nothing else while it copies.

use crate::admin::state::Admin;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kernel::{Encode as _, FrameWriter};
use mason::shard::ShardServer;
use mason::{Number, Shard, Space};
use paxos::Member;
use runtime::HostView;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// With what the answer begins.
pub const FIRST_LINE: &[u8] = b"ordinate cut 1\n";
/// The kind of the last frame.
pub const END: u8 = 0;
/// Keys: `length: u32 | key | length: u32 | value | version: u64`, by key.
pub const KEYS: u8 = 1;
/// Znodes: `length: u32 | path | ` what `RestoredNode` is made of, by path.
pub const ZNODES: u8 = 2;
/// Logs: [`LogCut`] as JSON, by name.
pub const LOGS: u8 = 3;
/// Groups of readers: `GroupState` as it is encoded.
pub const GROUPS: u8 = 4;

/// A frame ends when it has so many bytes.
const FRAME_BYTES: usize = 256 << 10;
/// How often the host looks for a moment between operations over several shards, and how long it waits in between.
const LOOKS_MAX: u32 = 2_000;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// How long a read of a service may take.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// A log at that moment.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct LogCut {
    /// Its name.
    pub name: String,
    /// No other log of its space has this number.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// The first position that is left.
    pub first: u64,
    /// The position behind the last.
    pub next: u64,
    /// Nothing can be appended.
    pub sealed: bool,
    /// What it may hold, in bytes; 0: no limit.
    pub retain_bytes: u64,
    /// How long entries are retained, in milliseconds; 0: for ever.
    pub retain_ms: u64,
    /// What becomes of appends at the disk budget.
    pub cleanup: String,
}

/// Records of a kind on their way out.
#[derive(Default)]
struct Frames {
    frame: FrameWriter,
    open: Vec<u8>,
}

impl Frames {
    fn add(&mut self, kind: u8, record: &[u8]) {
        if self.open.first().is_some_and(|&open| open != kind) || self.open.len() >= FRAME_BYTES {
            self.end();
        }
        if self.open.is_empty() {
            self.open.push(kind);
        }
        self.open.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.open.extend_from_slice(record);
    }

    fn end(&mut self) {
        if !self.open.is_empty() {
            self.frame.body().append(&mut self.open);
            self.frame.close();
        }
    }
}

/// What was copied on the reactor's thread; only what can be done elsewhere is left to do.
#[derive(Default)]
struct Copied {
    revision: u64,
    keys: Option<Vec<Vec<u8>>>,
    znodes: Option<Vec<Vec<u8>>>,
    logs: Option<Vec<LogCut>>,
    groups: Vec<Vec<u8>>,
}

fn put_part(record: &mut Vec<u8>, part: &[u8]) {
    record.extend_from_slice(&(part.len() as u32).to_le_bytes());
    record.extend_from_slice(part);
}

/// Copies the state; none while an operation over several shards is half-way.
fn copy(view: &HostView<'_, HostedNode>) -> Option<Copied> {
    let mut copied = Copied::default();
    let (mut znodes, mut logs) = (Vec::new(), Vec::new());
    for (_, node) in view.nodes() {
        match node {
            HostedNode::Kv(embedded) => {
                let Member::Replica(replica) = embedded.node() else { continue };
                copied.revision = replica.machine().revision();
                copied.keys = Some(replica.machine().rows().map(key_record).collect());
            }
            HostedNode::Coordination(embedded) => {
                if let mason::MasonMember::Shard(server) = embedded.node() {
                    znodes.push(&**server);
                }
            }
            HostedNode::Log(embedded) => {
                if let mason::MasonMember::Shard(server) = embedded.node() {
                    logs.push(&**server);
                }
            }
            _ => {}
        }
    }
    if is_half_way(&znodes) || is_half_way(&logs) {
        return None;
    }
    if !znodes.is_empty() {
        let mut records = Vec::new();
        for server in znodes {
            server.service().restorable(|node| {
                let mut record = Vec::new();
                put_part(&mut record, node.path.as_bytes());
                node.write(&mut record);
                records.push(record);
            });
        }
        copied.znodes = Some(records);
    }
    if !logs.is_empty() {
        copied.logs = Some(logs.iter().flat_map(|server| server.service().logs().map(log_cut)).collect());
        copied.groups =
            logs.iter().flat_map(|server| server.service().groups()).map(|it| it.encoded()).collect();
    }
    Some(copied)
}

fn key_record((key, value, version): (&[u8], &[u8], u64)) -> Vec<u8> {
    let mut record = Vec::with_capacity(key.len() + value.len() + 16);
    put_part(&mut record, key);
    put_part(&mut record, value);
    record.extend_from_slice(&version.to_le_bytes());
    record
}

fn log_cut((name, log): (&str, shared_log::LogView<'_>)) -> LogCut {
    let shared_log::Description { stat, cleanup, .. } = log.description();
    LogCut {
        name: name.to_owned(),
        number: log.number(),
        created_ms: log.created_ms(),
        first: stat.first,
        next: stat.next,
        sealed: stat.sealed,
        retain_bytes: stat.retain_bytes,
        retain_ms: stat.retain_ms,
        cleanup: cleanup.name().to_owned(),
    }
}

/// One of these shards has executed its part of an operation, and another has not.
fn is_half_way<S: Shard>(servers: &[&ShardServer<S>]) -> bool {
    let next: BTreeMap<Space, Number> =
        servers.iter().map(|server| (server.space(), server.next())).collect();
    servers.iter().any(|server| {
        let mut executed = server.inputs_retained().filter(|(number, ..)| *number < server.next());
        executed.any(|(_, others, _)| {
            others.iter().any(|other| next.get(&other.space).is_some_and(|&next| next <= other.number))
        })
    })
}

impl Copied {
    fn write(self, file: &ClusterFile, host: &str) -> Vec<u8> {
        let about = self.about(file, host);
        let Self { keys, znodes, logs, groups, .. } = self;
        let mut frames = Frames::default();
        let first = frames.frame.body();
        first.extend_from_slice(FIRST_LINE);
        first.extend_from_slice(about.to_string().as_bytes());
        frames.frame.close();
        keys.iter().flatten().for_each(|record| frames.add(KEYS, record));
        let mut znodes = znodes.unwrap_or_default();
        // Parents come before their children.
        znodes.sort_unstable_by(|one, other| path_of(one).cmp(path_of(other)));
        znodes.iter().for_each(|record| frames.add(ZNODES, record));
        let mut logs = logs.unwrap_or_default();
        logs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        logs.iter().for_each(|log| frames.add(LOGS, json!(log).to_string().as_bytes()));
        groups.iter().for_each(|record| frames.add(GROUPS, record));
        frames.end();
        frames.frame.body().push(END);
        std::mem::take(frames.frame.bytes()).to_vec()
    }

    /// A service that is on and has its state elsewhere.
    fn lacks(&self, file: &ClusterFile) -> Option<&'static str> {
        let is_there = |name: &str| match name {
            "kv" => self.keys.is_some(),
            "coordination" => self.znodes.is_some(),
            _ => true,
        };
        file.services().iter().map(|service| service.listed().name).find(|name| !is_there(name))
    }

    fn about(&self, file: &ClusterFile, host: &str) -> Value {
        json!({ "cluster": file.cluster, "host": host, "revision": self.revision,
            "kv": self.keys.is_some(), "coordination": self.znodes.is_some(), "log": self.logs.is_some() })
    }
}

fn path_of(record: &[u8]) -> &[u8] {
    record
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize))
        .unwrap_or_default()
}

/// Answers with the state.
pub async fn cut(State(admin): State<Arc<Admin>>) -> Response {
    let refused = |what: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")).into_response();
    for service in admin.file.services().iter().filter(|service| service.is_in_cuts()) {
        let probe = service.probe(&admin.file, &admin.host);
        let asked = admin.handle.request(probe.host_slot, (probe.request)());
        match tokio::time::timeout(READ_WITHIN, asked).await {
            Ok(Ok(answer)) if (probe.accepts)(&answer) => {}
            Ok(_) | Err(_) => {
                return refused(format!("{} does not answer a read here", service.listed().name));
            }
        }
    }
    for _ in 0..LOOKS_MAX {
        match admin.handle.inspect(copy).await {
            Ok(Some(copied)) => {
                if let Some(service) = copied.lacks(&admin.file) {
                    return refused(format!("this host has no state of {service}: try another host"));
                }
                let (file, host) = (admin.file.clone(), admin.host.clone());
                let written = tokio::task::spawn_blocking(move || copied.write(&file, &host)).await;
                return written.map_or_else(
                    |_| refused("the state cannot be written".to_owned()),
                    IntoResponse::into_response,
                );
            }
            Ok(None) => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
            Err(_) => return refused("the host is stopping".to_owned()),
        }
    }
    refused("operations over several shards are half-way all the time: try another host".to_owned())
}
