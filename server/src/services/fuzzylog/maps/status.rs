//! What a host has of maps, for status pages and metrics.

use crate::admin::exposition::MetricsPage;
use serde::Serialize;

/// What maps may take at a host.
#[derive(Clone, Copy, Debug)]
pub struct MapLimits {
    /// Their views, in memory; more is not put.
    pub bytes: usize,
    /// A view is stored when so many bytes of nodes were played since the last one.
    pub log_bytes: u64,
}

/// What a host has of maps.
#[derive(Clone, Default, Debug, Serialize)]
pub struct MapsStatus {
    /// Maps that are in use here.
    pub open: usize,
    /// What their views take in memory, in bytes.
    pub bytes: usize,
    /// What they may take; more is not put.
    pub bytes_max: usize,
    /// Views that this host has stored since it started.
    pub views_stored: u64,
    /// Views that it failed to store, and tried again.
    pub views_failed: u64,
    /// Calls that it refused because there was no room in memory.
    pub refused: u64,
    /// Pages of keys that this host has answered since it started.
    pub pages_scanned: u64,
    /// Keys on them.
    pub keys_scanned: u64,
    /// Maps that were in use here, or that this host was asked to remove, and are removed.
    pub removed: u64,
    /// Removals whose colours are not empty yet, as far as this host knows.
    pub removals_unfinished: usize,
    /// Maps whose views are too large to be stored: their logs are not trimmed.
    pub too_large: Vec<String>,
}

impl MapsStatus {
    /// Adds its metrics to the page.
    pub(in crate::services::fuzzylog) fn metrics(&self, page: &mut MetricsPage) {
        for (name, help, value) in [
            ("fuzzylog_maps", "Maps that are in use at this host", self.open),
            ("fuzzylog_map_bytes", "Bytes that their views take in memory", self.bytes),
            ("fuzzylog_map_bytes_max", "What they may take, by fuzzylog.map_bytes", self.bytes_max),
            (
                "fuzzylog_map_removals_unfinished",
                "Removed maps whose colours are not empty yet, as far as this host knows",
                self.removals_unfinished,
            ),
        ] {
            page.gauge(name, help, value as f64);
        }
        for (name, help, count) in [
            ("fuzzylog_map_views_stored", "Views of maps that this host has stored", self.views_stored),
            ("fuzzylog_map_views_failed", "Views that it could not store", self.views_failed),
            ("fuzzylog_map_refused", "Calls of maps refused for want of memory", self.refused),
            ("fuzzylog_map_pages_scanned", "Pages of keys of maps that were answered", self.pages_scanned),
            (
                "fuzzylog_map_removed",
                "Removals of maps that this host has learned of in use, or done",
                self.removed,
            ),
            ("fuzzylog_map_keys_scanned", "Keys on pages that were answered", self.keys_scanned),
        ] {
            page.counter(name, help, count);
        }
    }

    /// Of one that was not asked for any.
    pub(super) fn nothing(limits: MapLimits) -> Self {
        Self { bytes_max: limits.bytes, ..Self::default() }
    }
}
