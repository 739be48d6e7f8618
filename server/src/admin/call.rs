//! A call of a service over HTTP: what a service is asked before it, and what goes along with it.

use crate::family::{LocalRequest, LocalResponse};
use axum::body::Bytes;
use axum::http::{Method, Uri};
use kernel::HostSlot;
use std::collections::BTreeMap;

/// A call of a service, as far as it matters for what it needs.
pub struct HttpCall<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Where.
    pub uri: &'a Uri,
    /// Its body.
    pub body: &'a Bytes,
    pub(super) parameters: BTreeMap<String, String>,
}

impl HttpCall<'_> {
    /// What stands in the path for this name of the route.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }
}

/// What a service's later operations must know, in its own bytes: beside a request for its handlers, and beside a response from them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CarriedToken(pub Vec<u8>);

/// A service's fence.
pub struct FenceCall {
    /// The node that is asked.
    pub host_slot: HostSlot,
    /// What it is asked.
    pub request: LocalRequest,
    /// Whether it has been answered that the fence has passed.
    pub has_passed: fn(&LocalResponse) -> bool,
}
