//! Maps over the partially ordered log, served by each host: it plays a map's colours while the map is used, stores its views, and trims the
//! log behind them.
//!
//! ```text
//! call -> http -> OpenMap -> ServedMap (ordinate_client::maps) -> HostLog -> this host's gateway -> chains
//!                   '- tended: plays on, stores views, is closed when nobody has used it for a while
//! ```

mod access;
mod catalogue;
mod http;
mod kinds;
mod log;
mod open;
mod scans;
mod served;
mod status;
mod words;

pub(super) use access::check_http;
pub(super) use http::routes;
pub(super) use open::MapsOfHosts;
pub use status::{MapLimits, MapsStatus};

use wire::fuzzylog::{COLOURS_MAX, FuzzyFault, check_colour};

/// Colours of a map: a change may be in all of them.
pub(super) const SHARDS_MAX: usize = COLOURS_MAX;

/// Whether a map can have this name: its colours must have theirs.
pub(super) fn check_name(name: &str) -> Result<(), FuzzyFault> {
    check_colour(name.as_bytes())?;
    check_colour(format!("{name}.{}.view", SHARDS_MAX - 1).as_bytes())
}
