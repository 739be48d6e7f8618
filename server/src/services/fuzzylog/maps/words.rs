//! Maps, and why a call of one came to nothing, as HTTP and JSON.

use super::super::replies::Refused;
use super::kinds::MapKind;
use super::open::OpenMap;
use super::served::Found;
use crate::services::json_bytes::put_bytes;
use axum::http::StatusCode;
use fuzzylog::FuzzyOrder;
use ordinate_client::FuzzyError;
use ordinate_client::maps::{MAPS_MAX, MapMade, NotCreated, NotRemoved};
use serde_json::{Map, Value, json};
use wire::fuzzylog::{FuzzyFailed, FuzzyFailure};

/// The log's word; `writes`: it may have been done although nobody answers.
pub(super) fn refused(error: FuzzyError, writes: bool) -> Refused {
    let failed = |why, position| Refused::failed(&FuzzyFailed { id: 0, why, position }, writes);
    match error {
        FuzzyError::Failed(why) => failed(why, 0),
        FuzzyError::AlreadyTrimmed { resume_from } => failed(FuzzyFailure::Trimmed, resume_from),
        FuzzyError::BeyondTail { tail } => failed(FuzzyFailure::BeyondTail, tail),
        FuzzyError::Fault(fault) => Refused::fault(&fault),
        FuzzyError::Unknown(_) => failed(FuzzyFailure::Unknown, 0),
        error @ FuzzyError::NoMemory { .. } => {
            let why = format!("{error} by fuzzylog.map_bytes: nothing was done");
            Refused::new(StatusCode::INSUFFICIENT_STORAGE, &why, Some(false), false)
        }
        FuzzyError::MapRemoved => {
            let why = "there is no such map any more: it is removed";
            Refused::new(StatusCode::NOT_FOUND, why, Some(false), false)
        }
        FuzzyError::Unreached(why) => {
            let executed = (!writes).then_some(false);
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string(), executed, false)
        }
    }
}

/// A map that was in use here is removed, and another one has its name: a call that is sent again finds that.
pub(super) fn replaced() -> Refused {
    let why = "another map has this name since it was removed: nothing was done, send it again";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, why, Some(false), true)
}

/// There is no such map.
pub(super) fn no_such_map(name: &str) -> Refused {
    let why = format!("there is no map {name}: PUT /v1/map/{name} makes one");
    Refused::new(StatusCode::NOT_FOUND, &why, Some(false), false)
}

/// The kind does not do this.
pub(super) fn not_of_this_kind(map: &OpenMap, what: &str, who: &str) -> Refused {
    let (name, kind) = (&map.name, map.kind);
    let why = format!("{name} is a map of the kind {kind}, which has no {what}: {who}");
    Refused::new(StatusCode::CONFLICT, &why, Some(false), false)
}

/// It was made as what this version does not know.
pub(super) fn of_a_later_version(name: &str) -> Refused {
    let why = format!("{name} is a map of a kind that this version does not know");
    Refused::new(StatusCode::CONFLICT, &why, Some(false), false)
}

/// Which map of its name it is, in hexadecimal digits.
pub(super) fn id_of(made: &MapMade) -> String {
    format!("{:x}", made.id)
}

/// The same as it is given.
pub(super) fn read_id(text: &str) -> Result<u64, Refused> {
    let sound = !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| sound);
    id.ok_or_else(|| Refused::bad("id is none of a map: wanted is what GET /v1/map/MAP has answered"))
}

/// Why a map was not removed.
pub(super) fn not_removed(name: &str, why: NotRemoved) -> Refused {
    match why {
        NotRemoved::NoMap => {
            let why = format!("there is no map {name}, and none that was removed lately");
            Refused::new(StatusCode::NOT_FOUND, &why, Some(false), false)
        }
        NotRemoved::Other(made) => {
            let why = format!("{name} is another map now, with the id {}: nothing was done", id_of(&made));
            Refused::new(StatusCode::CONFLICT, &why, Some(false), false)
        }
        why @ NotRemoved::TooMany => Refused::busy(&why.to_string()),
        NotRemoved::Log(error) => refused(error, true),
    }
}

/// Why a map was not made.
pub(super) fn not_created(name: &str, why: NotCreated) -> Refused {
    match why {
        NotCreated::Other(MapMade { kind, shards, .. }) => {
            let kind = kind.parse().map_or("a later version's", MapKind::name);
            let why = format!("there is a map {name} already, of the kind {kind} and of {shards} shards");
            Refused::new(StatusCode::CONFLICT, &why, Some(false), false)
        }
        NotCreated::TooMany => {
            let why = format!("there are {MAPS_MAX} maps, which is as many as there can be");
            Refused::new(StatusCode::INSUFFICIENT_STORAGE, &why, Some(false), false)
        }
        why @ NotCreated::Name => Refused::bad(format!("{name:?}: {why}")),
        NotCreated::Log(error) => refused(error, true),
    }
}

/// A map as it was made.
pub(super) fn made(name: &str, made: &MapMade, order: FuzzyOrder) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("map".to_owned(), json!(name));
    let kind = made.kind.parse::<MapKind>().ok();
    fields.insert("id".to_owned(), json!(id_of(made)));
    fields.insert("kind".to_owned(), json!(kind.map_or("unknown", MapKind::name)));
    let consistency = kind.map_or("unknown: of a later version", |kind| kind.consistency(order));
    fields.insert("consistency".to_owned(), json!(consistency));
    fields.insert("shards".to_owned(), json!(made.shards));
    fields
}

/// What this host has of a map in use.
pub(super) async fn in_use(map: &OpenMap) -> Map<String, Value> {
    let shards = map.map.status().await;
    let mut fields = Map::new();
    fields.insert("entries".to_owned(), json!(shards.iter().map(|it| it.entries).sum::<usize>()));
    fields.insert("bytes".to_owned(), json!(shards.iter().map(|it| it.bytes).sum::<usize>()));
    let colour = |it: &ordinate_client::maps::ShardPlayed| {
        let (played, covered, bytes) = (it.played, it.covered, it.uncovered_bytes);
        (it.colour.clone(), json!({ "played": played, "covered": covered, "uncovered_bytes": bytes }))
    };
    fields.insert("colours".to_owned(), Value::Object(shards.iter().map(colour).collect()));
    fields
}

/// What a key holds.
pub(super) fn found(key: &str, found: &Found) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("key".to_owned(), json!(key));
    match &found.value {
        Some(value) => put_bytes(&mut fields, "value", value),
        None => {
            fields.insert("value".to_owned(), Value::Null);
        }
    }
    if let Some(version) = found.version {
        fields.insert("version".to_owned(), json!(version));
    }
    fields
}
