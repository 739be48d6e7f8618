//! What calls of the partially ordered log need: rights on colours.

use super::body::{AppendBody, SnapshotBody};
use crate::access::{Area, Denied, Need, NeededNames, PortCaller, Right};
use crate::admin::call::HttpCall;
use axum::http::Method;

/// Whether the caller was granted what it calls, on each colour. What cannot be read is refused by who serves it.
pub(super) fn check_http(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    if let Some(colour) = call.parameter("colour") {
        let right = if *call.method == Method::GET { Right::Read } else { Right::Manage };
        return caller.check(Need::of(right, Area::Fuzzylog, colour.as_bytes()));
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
