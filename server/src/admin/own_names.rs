//! The names by which a host may be called over HTTP.

use axum::http::uri::Authority;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The names by which this host may be called over HTTP, in lower case. Addresses in numbers are none: nobody else can have them point here.
#[derive(Clone, Debug)]
pub struct OwnNames(BTreeSet<String>);

impl OwnNames {
    /// The names in these addresses (`host:port`), and these names.
    pub fn of<'a>(addresses: impl Iterator<Item = &'a str>, names: impl Iterator<Item = &'a str>) -> Self {
        let of_addresses = addresses.filter_map(|address| address.rsplit_once(':')).map(|(host, _)| host);
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let all = of_addresses.chain(names).map(str::to_lowercase);
        let all = all.chain(["localhost".to_owned(), machine.trim().to_lowercase()]);
        Self(all.filter(|name| !name.is_empty()).collect())
    }

    /// Whether a request may be meant for this host.
    pub(super) fn have(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host.parse::<IpAddr>().is_ok() || self.0.contains(host.trim_end_matches('.').to_lowercase().as_str())
    }
}
