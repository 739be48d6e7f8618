//! What calls of maps need: rights on the map's name, among those on colours.

use crate::access::{Area, Denied, Need, PortCaller, Right};
use crate::admin::call::HttpCall;
use axum::http::Method;

/// Whether the caller was granted what it calls; none if it calls no map.
pub(in crate::services::fuzzylog) fn check_http(
    call: &HttpCall<'_>,
    caller: &mut PortCaller,
) -> Option<Result<(), Denied>> {
    let rest = call.uri.path().strip_prefix("/v1/map")?;
    let Some(map) = call.parameter("map") else {
        // A list of all maps.
        return Some(caller.check(Need::whole(Right::Read, Area::Fuzzylog)));
    };
    let rights: &[Right] = match (call.method, call.parameter("key")) {
        (&Method::GET | &Method::HEAD, _) => &[Right::Read],
        (_, Some(_)) => &[Right::Write],
        (&Method::PUT | &Method::DELETE, None) => &[Right::Manage],
        (_, None) if rest.ends_with("/get") => &[Right::Read],
        // The answer says whether what was read is as the caller believes.
        (_, None) if rest.ends_with("/transaction") => &[Right::Read, Right::Write],
        (_, None) => &[Right::Write],
    };
    let each = |right: &Right| caller.check(Need::of(*right, Area::Fuzzylog, map.as_bytes()));
    Some(rights.iter().try_for_each(each))
}
