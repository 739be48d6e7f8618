//! What calls of the partially ordered log need: rights on colours.

use super::body::{AfterBody, AfterQuery, AppendBody, SnapshotBody};
use super::maps;
use crate::access::{Area, Denied, Need, NeededNames, PortCaller, Right};
use crate::admin::call::HttpCall;
use axum::extract::Query;
use axum::http::Method;
use kernel::Bytes;
use wire::fuzzylog::{FuzzyCall, SnapshotId};

/// Whether the caller may do what it asks, all of it.
pub(super) fn may(caller: &mut PortCaller, call: &FuzzyCall) -> bool {
    let mut each = |right: Right, colours: Vec<&Bytes>| {
        let mut granted = |colour: &Bytes| caller.check(Need::of(right, Area::Fuzzylog, colour)).is_ok();
        colours.into_iter().all(&mut granted)
    };
    match call {
        FuzzyCall::AppendNodes(call) => {
            each(Right::Write, call.nodes.iter().flat_map(|node| &node.colours).collect())
        }
        FuzzyCall::SyncColour(call) => each(Right::Read, vec![&call.colour]),
        FuzzyCall::PlayColour(call) => each(Right::Read, vec![&call.colour]),
        FuzzyCall::SnapshotColours(call) => each(Right::Read, call.colours.iter().collect()),
        FuzzyCall::TrimColour(call) => each(Right::Manage, vec![&call.colour]),
        FuzzyCall::AppendPlayed(call) => {
            each(Right::Write, call.nodes.iter().flat_map(|node| &node.colours).collect())
        }
        FuzzyCall::NameSnapshot(call) => each(Right::Read, call.colours.iter().collect()),
        FuzzyCall::AwaitSnapshot(call) => {
            let colours = std::str::from_utf8(&call.snapshot).map_or_else(|_| Vec::new(), colours_of);
            each(Right::Read, colours.iter().collect())
        }
        FuzzyCall::TrimSeen(call) => each(Right::Manage, vec![&call.colour]),
        // These concern all colours, whatever their names.
        FuzzyCall::CutColours(_) | FuzzyCall::ScanNodes(_) => {
            caller.check(Need::whole(Right::Read, Area::Fuzzylog)).is_ok()
        }
        FuzzyCall::RestoreNodes(_) | FuzzyCall::OpenRestored(_) => {
            caller.check(Need::whole(Right::Manage, Area::Fuzzylog)).is_ok()
        }
        // Which host does what is an operator's to say.
        FuzzyCall::MoveColour(_) | FuzzyCall::AddPartition(_) | FuzzyCall::RemovePartition(_) => {
            caller.check(Need::whole(Right::Manage, Area::Cluster)).is_ok()
        }
    }
}

/// The colours of a snapshot's id; none if it is none, which is refused by who serves it.
fn colours_of(snapshot: &str) -> Vec<Bytes> {
    let id = snapshot.parse::<SnapshotId>();
    let colours = id.map(|id| id.tails.into_keys().map(|colour| Bytes::from(colour.into_bytes())));
    colours.map_or_else(|_| Vec::new(), Iterator::collect)
}

/// Whether the caller was granted what it calls, on each colour. What cannot be read is refused by who serves it.
pub(super) fn check_http(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    if let Some(checked) = maps::check_http(call, caller) {
        return checked;
    }
    if call.uri.path() == "/v1/fuzzylog/colours" {
        // A list of all.
        return caller.check(Need::whole(Right::Read, Area::Fuzzylog));
    }
    let mut may_read = |snapshot: Option<&str>| {
        let colours = snapshot.map_or_else(Vec::new, colours_of);
        colours.iter().try_for_each(|colour| caller.check(Need::of(Right::Read, Area::Fuzzylog, colour)))
    };
    let query = Query::<AfterQuery>::try_from_uri(call.uri).ok();
    may_read(query.as_ref().and_then(|query| query.after.as_deref()))?;
    if let Ok(AfterBody { after, snapshot }) = serde_json::from_slice(call.body) {
        may_read(after.as_deref())?;
        may_read(snapshot.as_deref())?;
    }
    if let Some(colour) = call.parameter("colour") {
        let right = if *call.method == Method::GET { Right::Read } else { Right::Manage };
        return caller.check(Need::of(right, Area::Fuzzylog, colour.as_bytes()));
    }
    if call.uri.path().ends_with("/await") {
        return caller.check(Need { right: Right::Read, area: Area::Fuzzylog, names: NeededNames::Some });
    }
    let (right, colours) = if call.uri.path().ends_with("/append") {
        (Right::Write, serde_json::from_slice::<AppendBody>(call.body).map(|body| body.colours))
    } else {
        (Right::Read, serde_json::from_slice::<SnapshotBody>(call.body).map(|body| body.colours))
    };
    match colours {
        Ok(colours) if !colours.is_empty() => colours
            .iter()
            .try_for_each(|colour| caller.check(Need::of(right, Area::Fuzzylog, colour.as_bytes()))),
        Ok(_) | Err(_) => caller.check(Need { right, area: Area::Fuzzylog, names: NeededNames::Some }),
    }
}
