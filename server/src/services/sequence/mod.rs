//! The sequence: named spaces in a deployment of Mason of their own.

mod http;
mod nodes;
mod status;

pub use status::SequenceStatus;

use super::records::{self, RecordOwner};
use super::status::ServiceStatus;
use super::{Asker, Engine, Follower, Listed, NativeCalls, ReadyProbe, Service, slots};
use crate::access::{Area, Need, PortCaller, Right};
use crate::admin::state::HttpRoutes;
use crate::cluster::ClusterFile;
use crate::cluster::agreement::FIXED;
use crate::cluster::keys::{Key, KeyKind, key};
use crate::cluster::values::{FileError, Values, names_of};
use crate::family::{HostedNode, LocalRequest, LocalResponse, Ordinate, OrdinateMessage, SequenceMember};
use crate::latency::{CallFailure, MeasuredOperation};
use crate::owed::{OwedRead, OwedReads};
use crate::services::native::{SMALL_ANSWER_BYTES, UNREADABLE};
use ::sequence::native::{Native, Numbered, Outcome, TO_CLIENT, TO_HOST};
use axum::Router;
use kernel::client::{ConnectionIn, Input};
use kernel::{Bytes, Decode as _, Encode as _, HostSlot, Instant, NodeId};
use runtime::{Agreement, CloseReason, HostView, SessionCx};
use std::sync::Arc;

/// The service's line of the list.
pub const LISTED: Listed = Listed {
    name: "sequence",
    engines: &[Engine::Mason],
    keys: KEYS,
    slots: &[slots::SEQUENCE],
    receivers: &[TO_HOST, TO_CLIENT],
    off: "call of the sequence, which is off",
    read,
    check_http: http::check,
    reads: None,
    owner: |host_slot| -> Option<RecordOwner> {
        records::mason_owner(LISTED.name, slots::SEQUENCE, slots::SEQUENCE.first, host_slot)
    },
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes = HttpRoutes {
    service: &LISTED,
    paths: &["/v1/sequence"],
    of_users: http::routes,
    of_operators: Router::new,
};

const KEYS: &[Key] = &[
    key(
        "sequence.spaces",
        KeyKind::Names,
        "",
        "names of the sequence's spaces, separated by commas; without it there is no sequence service",
        "all hosts must agree on them and their order, from the first start on",
    ),
    key(
        "sequence.proxies",
        KeyKind::Number(1, 256),
        "3",
        "how many replicated proxies assign the sequence's numbers; their leaders are spread over the hosts",
        "all hosts must agree, from the first start on",
    ),
];

/// The sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceService {
    /// The names of its spaces.
    pub spaces: Vec<String>,
    /// How many proxies.
    pub proxies: u16,
}

fn read(values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    let Some(spaces) = values.text("sequence.spaces").and_then(|text| names_of(&text)) else {
        return Ok(None);
    };
    let proxies = values.number("sequence.proxies").unwrap_or(1) as u16;
    Ok(Some(Arc::new(SequenceService { spaces, proxies })))
}

/// The role of the sequence that a node is, if it is one.
fn member_of(node: &HostedNode) -> Option<&SequenceMember> {
    let HostedNode::Sequence(embedded) = node else { return None };
    Some(embedded.node())
}

/// A greeting has room for this, and not for any number of names.
const VALUE_BYTES_MAX: usize = 1000;

fn brief(value: String) -> String {
    if value.len() <= VALUE_BYTES_MAX {
        return value;
    }
    format!("{}... ({:016x})", value.chars().take(100).collect::<String>(), parts::digest(value.as_bytes()))
}

impl Service for SequenceService {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        Engine::Mason
    }

    fn agree(&self, agreement: &mut Agreement) {
        agreement.add("sequence.spaces", &brief(self.spaces.join(",")), FIXED);
        agreement.add("sequence.proxies", &self.proxies.to_string(), FIXED);
    }

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        nodes::nodes(file, self, host, joins)
    }

    fn followers(&self, file: &ClusterFile, host: &str) -> Vec<Follower> {
        super::mason::proxies(&nodes::deployment(file, self), host)
    }

    fn native(&self, file: &ClusterFile, host: &str) -> Option<Box<dyn NativeCalls>> {
        Some(Box::new(Calls { gateway: nodes::gateway(file, self, host) }))
    }

    fn probe(&self, file: &ClusterFile, host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: nodes::gateway(file, self, host).host_slot(),
            request: || LocalRequest::Service(Bytes::new()),
            is_logged: false,
            accepts: |answer| matches!(answer, LocalResponse::Service(body) if *body == ::sequence::READY),
        }
    }

    fn status(&self, _file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        let members = view.nodes().filter_map(|(_, node)| member_of(node));
        Box::new(SequenceStatus::of(&self.spaces, members))
    }
}

/// The client's number for a call, which stands behind the tags of calls and answers.
fn id_of(message: &Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(*message.get(2..)?.first_chunk()?))
}

/// Where an answer says what came of the call: behind its number.
const STATUS_AT: usize = 10;

const NEXT: MeasuredOperation = (LISTED.name, "next");

/// Why a call was not done; none if it was.
fn failure_of(outcome: Outcome) -> Option<CallFailure> {
    Some(match outcome {
        Outcome::Done => return None,
        Outcome::Busy => CallFailure::BUSY,
        Outcome::Unknown => CallFailure::of_service("unknown"),
        Outcome::Malformed => CallFailure::of_caller("malformed"),
        Outcome::DiskFull => CallFailure::of_service("disk_full"),
        Outcome::NotGranted => CallFailure::NOT_GRANTED,
    })
}

/// Whether the caller may take numbers of all the spaces that it names.
fn is_granted(message: &Bytes, caller: &mut PortCaller) -> Result<bool, CloseReason> {
    let Ok(Native::Next(next)) = Native::decoded(message) else { return Err(UNREADABLE) };
    Ok(next.spaces.iter().all(|space| caller.may(Need::of(Right::Write, Area::Sequence, space.as_bytes()))))
}

/// Calls to this host's gateway.
struct Calls {
    gateway: NodeId,
}

impl NativeCalls for Calls {
    fn take(
        &self,
        message: &Bytes,
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        if message.first() != Some(&TO_HOST) {
            return Err(UNREADABLE);
        }
        if asker.caller.is_checked() && !is_granted(message, asker.caller)? {
            let id = id_of(message).unwrap_or_default();
            asker.reads.watch.refuse(NEXT, CallFailure::NOT_GRANTED);
            let status = Outcome::NotGranted as u8;
            let refused = Native::Numbered(Numbered { id, status, numbers: Vec::new(), gsn: 0 });
            asker.refusals.push(refused.encoded().into());
            return Ok(true);
        }
        let reads = &mut *asker.reads;
        if !reads.admits(SMALL_ANSWER_BYTES) {
            return Ok(false);
        }
        if let Some(id) = id_of(message) {
            reads.watch.start(OwedRead::Call(TO_HOST, id), NEXT, cx.now());
        }
        cx.send(self.gateway, OrdinateMessage::User(Input { bytes: message.clone() }.into()));
        Ok(true)
    }

    fn answered(&self, message: OrdinateMessage, reads: &mut OwedReads, now: Instant) -> OrdinateMessage {
        if let OrdinateMessage::Connection(ConnectionIn::Output(output)) = &message
            && output.bytes.first() == Some(&TO_CLIENT)
            && let Some(id) = id_of(&output.bytes)
        {
            let call = OwedRead::Call(TO_HOST, id);
            match output.bytes.get(STATUS_AT).and_then(|status| failure_of(Outcome::of(*status))) {
                Some(failure) => reads.watch.fail(call, LISTED.name, failure, now),
                None => reads.watch.stop(call, now),
            }
        }
        message
    }
}
