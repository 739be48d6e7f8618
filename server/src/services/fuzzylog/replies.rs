//! What the gateway answers, as HTTP and JSON. Every error says whether the call was executed and whether it may be sent again.

use crate::services::json_bytes::put_bytes;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fuzzylog::FuzzyOrder;
use kernel::Bytes;
use serde_json::{Map, Value, json};
use wire::fuzzylog::{
    FuzzyFailed, FuzzyFailure, FuzzyFault, FuzzyReply, LogCount, NodeOrigin, PlayedAcross, PlayedNode,
    PlayedNodes, SeenTime,
};

/// A call that came to nothing, and whether it may have been executed.
pub(super) struct Refused {
    status: StatusCode,
    pub(super) body: Value,
    /// The gateway's reason, if it was asked.
    pub(super) why: Option<(FuzzyFailure, u64)>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: &str, executed: Option<bool>, retry: bool) -> Self {
        Self { status, body: json!({ "error": why, "executed": executed, "retry": retry }), why: None }
    }

    /// It makes no sense, or is beyond a limit.
    pub(super) fn bad(why: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why.as_ref(), Some(false), false)
    }

    /// The same, of a call.
    pub(super) fn fault(fault: &FuzzyFault) -> Self {
        match fault {
            FuzzyFault::WrongNumber => {
                Self::bad("client.number is below client.below, or 1,024 or more above it")
            }
            fault => Self::bad(fault.to_string()),
        }
    }

    /// There is no such service.
    pub(super) fn absent() -> Self {
        let off = "there is no partially ordered log: fuzzylog.partitions is 0";
        Self::new(StatusCode::NOT_FOUND, off, Some(false), false)
    }

    /// Too much at once.
    pub(super) fn busy(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why, Some(false), true)
    }

    /// An answer to something else.
    pub(super) fn unexpected() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "an answer to something else", None, false)
    }

    /// What the gateway says, or nobody did; `writes`: it may have been executed although nobody answers.
    pub(super) fn failed(failed: &FuzzyFailed, writes: bool) -> Self {
        let FuzzyFailed { why, position, .. } = *failed;
        let status = match why {
            FuzzyFailure::Busy | FuzzyFailure::NoClock => StatusCode::SERVICE_UNAVAILABLE,
            FuzzyFailure::Unknown => StatusCode::GATEWAY_TIMEOUT,
            FuzzyFailure::Malformed | FuzzyFailure::OneDigest => StatusCode::BAD_REQUEST,
            FuzzyFailure::Forgotten | FuzzyFailure::NumberUsed => StatusCode::CONFLICT,
            FuzzyFailure::Trimmed => StatusCode::GONE,
            FuzzyFailure::BeyondTail => StatusCode::RANGE_NOT_SATISFIABLE,
            FuzzyFailure::Full | FuzzyFailure::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            FuzzyFailure::NotGranted => StatusCode::FORBIDDEN,
            FuzzyFailure::OtherRegion => StatusCode::CONFLICT,
            FuzzyFailure::NotHere => StatusCode::PRECONDITION_FAILED,
            FuzzyFailure::NoSnapshot | FuzzyFailure::FromTheFuture | FuzzyFailure::NoPartition => {
                StatusCode::BAD_REQUEST
            }
            FuzzyFailure::MovedSince
            | FuzzyFailure::MapFull
            | FuzzyFailure::TakenBack
            | FuzzyFailure::FirstPartition
            | FuzzyFailure::AmongRegions => StatusCode::CONFLICT,
        };
        let executed = (!writes || why.is_surely_void()).then_some(false);
        let text = match why {
            FuzzyFailure::Unknown if !writes => "no answer in time".to_owned(),
            FuzzyFailure::Trimmed => {
                "it was trimmed: go on at \"first\", with the state before it from elsewhere".to_owned()
            }
            why => why.to_string(),
        };
        let mut refused = Self::new(status, &text, executed, why.may_be_retried());
        refused.why = Some((why, position));
        match why {
            FuzzyFailure::Trimmed => refused.with("first", position),
            FuzzyFailure::BeyondTail => refused.with("tail", position),
            FuzzyFailure::Busy
            | FuzzyFailure::Unknown
            | FuzzyFailure::Malformed
            | FuzzyFailure::Forgotten
            | FuzzyFailure::NumberUsed
            | FuzzyFailure::Full
            | FuzzyFailure::DiskFull
            | FuzzyFailure::OneDigest
            | FuzzyFailure::NotGranted
            | FuzzyFailure::OtherRegion
            | FuzzyFailure::NotHere
            | FuzzyFailure::NoSnapshot
            | FuzzyFailure::NoClock
            | FuzzyFailure::FromTheFuture
            | FuzzyFailure::MovedSince
            | FuzzyFailure::NoPartition
            | FuzzyFailure::MapFull
            | FuzzyFailure::TakenBack
            | FuzzyFailure::FirstPartition
            | FuzzyFailure::AmongRegions => refused,
        }
    }

    /// It may have been executed, or may still be.
    pub(super) fn is_unknown(&self) -> bool {
        self.why.is_none_or(|(why, _)| !why.is_surely_void())
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Value::Object(fields) = &mut self.body {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let again = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let response = (self.status, Json(self.body)).into_response();
        if again { ([(header::RETRY_AFTER, "1")], response).into_response() } else { response }
    }
}

/// Positions by colours' names.
pub(super) fn positions(colours: &[Bytes], positions: &[u64]) -> Map<String, Value> {
    let name = |colour: &Bytes| String::from_utf8_lossy(colour).into_owned();
    colours.iter().zip(positions).map(|(colour, position)| (name(colour), json!(position))).collect()
}

/// A page of a colour; of several regions with where its nodes are from.
pub(super) struct Page {
    pub(super) nodes: PlayedNodes,
    pub(super) across: Option<PageAcross>,
    /// Times follow real time.
    order: FuzzyOrder,
}

/// What a page has of regions.
pub(super) struct PageAcross {
    region: Bytes,
    origins: Vec<NodeOrigin>,
}

impl Page {
    pub(super) fn of(reply: FuzzyReply, order: FuzzyOrder) -> Option<Self> {
        match reply {
            FuzzyReply::PlayedNodes(nodes) => Some(Self { nodes, across: None, order }),
            FuzzyReply::PlayedAcross(PlayedAcross { id, seen, from, tail, nodes, region, origins }) => {
                let nodes = PlayedNodes { id, seen, from, tail, nodes };
                Some(Self { nodes, across: Some(PageAcross { region, origins }), order })
            }
            _ => None,
        }
    }

    /// The position after its last node.
    pub(super) fn next(&self) -> u64 {
        self.nodes.from + self.nodes.nodes.len() as u64
    }

    /// Its nodes, with their positions.
    pub(super) fn nodes_in_words(&self) -> impl Iterator<Item = (u64, Value)> {
        let origins = self.across.iter().flat_map(|it| &it.origins).map(Some).chain(std::iter::repeat(None));
        let nodes = (self.nodes.from..).zip(&self.nodes.nodes).zip(origins);
        let order = self.order;
        nodes.map(move |((position, node), origin)| (position, node_in_words(position, node, origin, order)))
    }

    /// All of it.
    pub(super) fn in_words(&self) -> Map<String, Value> {
        let PlayedNodes { from, tail, seen, .. } = &self.nodes;
        let nodes: Vec<Value> = self.nodes_in_words().map(|(_, node)| node).collect();
        let mut fields = Map::new();
        fields.insert("from".to_owned(), json!(from));
        fields.insert("next".to_owned(), json!(self.next()));
        fields.insert("tail".to_owned(), json!(tail));
        fields.insert("seen".to_owned(), json!(seen.to_string()));
        fields.insert("nodes".to_owned(), json!(nodes));
        if let Some(PageAcross { region, .. }) = &self.across {
            fields.insert("region".to_owned(), json!(String::from_utf8_lossy(region)));
        }
        fields
    }
}

/// When something was ordered; in the strict order also as a time of day, in microseconds since the Unix epoch.
pub(super) fn time_in_words(at: SeenTime, order: FuzzyOrder) -> Map<String, Value> {
    let time = order.is_strict().then(|| ("time_us".to_owned(), json!(at.clock)));
    [("at".to_owned(), json!(at.to_string()))].into_iter().chain(time).collect()
}

/// A node; of several regions with where it is from.
fn node_in_words(position: u64, node: &PlayedNode, origin: Option<&NodeOrigin>, order: FuzzyOrder) -> Value {
    let mut fields = time_in_words(node.at, order);
    fields.insert("position".to_owned(), json!(position));
    if node.colours.is_empty() {
        fields.insert("other_colour".to_owned(), json!(true));
        return Value::Object(fields);
    }
    if let Some(NodeOrigin { region, number, edges }) = origin {
        let edge = |it: &LogCount| (String::from_utf8_lossy(&it.region).into_owned(), json!(it.count));
        let edges: Map<String, Value> = edges.iter().map(edge).collect();
        fields.insert("region".to_owned(), json!(String::from_utf8_lossy(region)));
        fields.insert("number".to_owned(), json!(number));
        fields.insert("edges".to_owned(), Value::Object(edges));
    }
    let colours: Vec<_> = node.colours.iter().map(|it| String::from_utf8_lossy(it)).collect();
    fields.insert("colours".to_owned(), json!(colours));
    put_bytes(&mut fields, "body", &node.body);
    Value::Object(fields)
}
