//! Maps over the partially ordered log, served by each host: it plays a map's colours while the map is used, stores its views, and trims the
//! log behind them.
//!
//! ```text
//! call -> http, call -> OpenMap -> ServedMap (ordinate_client::maps) -> HostLog -> this host's gateway -> chains
//!                   '- tended: plays on, stores views, is closed when nobody has used it for a while, or it is removed
//! ```

mod access;
mod call;
mod http;
mod kinds;
mod log;
mod open;
mod removal;
mod scans;
mod served;
mod status;
mod words;

pub(super) use access::check_http;
pub(super) use http::routes;
pub(super) use open::MapsOfHosts;
pub use status::{MapLimits, MapsStatus};

use wire::fuzzylog::COLOURS_MAX;

/// Colours of a map: a change may be in all of them.
pub(super) const SHARDS_MAX: usize = COLOURS_MAX;
