//! What calls of the shared log need.

use crate::access::{Area, Denied, Need, PortCaller, Right};
use crate::admin::call::HttpCall;
use axum::http::Method;
use shared_log::Request;

/// Whether the caller may do what it asks, all of it.
pub(super) fn may(caller: &mut PortCaller, request: &Request) -> bool {
    check(caller, request).is_ok()
}

fn check(caller: &mut PortCaller, request: &Request) -> Result<(), Denied> {
    let mut log = |right, name: &str| caller.check(Need::of(right, Area::Log, name.as_bytes()));
    match request {
        Request::Create(create) => log(Right::Manage, &create.name),
        Request::Append(append) => append.parts.iter().try_for_each(|part| log(Right::Write, &part.name)),
        Request::Produce(produce) => log(Right::Write, &produce.name),
        Request::Trim(trim) => log(Right::Manage, &trim.name),
        Request::Seal(named) | Request::Delete(named) => log(Right::Manage, &named.name),
        Request::Read(read) | Request::Recall(read) => log(Right::Read, &read.name),
        Request::Stat(named) | Request::Identify(named) | Request::Describe(named) => {
            log(Right::Read, &named.name)
        }
        // Of gateways alone; it drops what has expired.
        Request::Expire(named) => log(Right::Manage, &named.name),
        // The list has the names of all.
        Request::List(_) => caller.check(Need::whole(Right::Read, Area::Log)),
        Request::BeginGeneration(group) | Request::GroupOf(group) => {
            caller.check(Need::of(Right::Read, Area::Group, group.name.as_bytes()))
        }
        Request::Commit(commit) => {
            commit.progress.iter().try_for_each(|it| log(Right::Read, &it.log))?;
            caller.check(Need::of(Right::Read, Area::Group, commit.group.as_bytes()))
        }
    }
}

/// What is called over HTTP: each path has the log's name.
pub(super) fn check_http(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    let name = call.parameter("name").unwrap_or_default().as_bytes();
    let right = match *call.method {
        Method::GET | Method::HEAD => Right::Read,
        Method::POST => Right::Write,
        _ => Right::Manage,
    };
    caller.check(Need::of(right, Area::Log, name))
}
