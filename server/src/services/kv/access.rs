//! What calls of the key-value service need.

use super::http;
use crate::access::{Area, Denied, Need, NeededNames, PortCaller, Right};
use crate::admin::call::HttpCall;
use ::kv::{Command, Query};
use axum::http::Method;

/// What a command needs: what answers with what was there needs both rights.
pub(super) fn check_command(caller: &mut PortCaller, command: &Command<'_>) -> Result<(), Denied> {
    let mut to = |right, key: &[u8]| caller.check(Need::of(right, Area::Kv, key));
    match command {
        Command::Put { key, .. } | Command::Delete { key } => to(Right::Write, key),
        Command::CompareAndSet { key, .. } | Command::Increment { key, .. } => {
            to(Right::Read, key).and_then(|()| to(Right::Write, key))
        }
        Command::Batch { commands } => commands.iter().try_for_each(|it| check_command(caller, it)),
    }
}

/// What a query needs.
pub(super) fn check_query(caller: &mut PortCaller, query: &Query<'_>) -> Result<(), Denied> {
    match query {
        Query::Get { key } => caller.check(Need::of(Right::Read, Area::Kv, key)),
        Query::GetMany { keys } => {
            keys.iter().try_for_each(|key| caller.check(Need::of(Right::Read, Area::Kv, key)))
        }
        Query::Scan { start, end, .. } => {
            let names = NeededNames::Range { start, end: *end };
            caller.check(Need { right: Right::Read, area: Area::Kv, names })
        }
    }
}

/// What is called over HTTP. What cannot be read is refused by who serves it.
pub(super) fn check_http(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    match (call.parameter("key"), call.method) {
        (Some(key), &Method::GET | &Method::HEAD) => check_query(caller, &Query::Get { key: key.as_bytes() }),
        (Some(key), _) => {
            let key = key.as_bytes();
            // Conditions and increments are answered with what was there.
            let reads = call.method == Method::POST || call.uri.query().is_some();
            let command = match reads {
                true => Command::Increment { key, by: 0 },
                false => Command::Put { key, value: b"" },
            };
            check_command(caller, &command)
        }
        (None, &Method::POST) => http::keys_of_batch(call.body).iter().try_for_each(|(key, reads)| {
            let key = key.as_bytes();
            let read = if *reads { check_query(caller, &Query::Get { key }) } else { Ok(()) };
            read.and_then(|()| caller.check(Need::of(Right::Write, Area::Kv, key)))
        }),
        (None, _) => {
            let Some((start, end)) = http::range_of(call.uri) else { return Ok(()) };
            let (start, end) = (start.as_bytes(), end.as_ref().map(|end| end.as_bytes()));
            check_query(caller, &Query::Scan { start, end, limit: 1 })
        }
    }
}
