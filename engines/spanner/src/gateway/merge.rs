//! Puts together what shards have found.

use kernel::Bytes;
use std::collections::BTreeMap;
use wire::txn::{KeyRow, KeyScan, ScannedRows, Timestamp};

/// The rows of one scan from several shards, in the order of their keys.
pub(super) fn merge(scan: &KeyScan, parts: impl IntoIterator<Item = ScannedRows>) -> ScannedRows {
    let (mut rows, mut next): (BTreeMap<Bytes, KeyRow>, Option<Bytes>) = (BTreeMap::new(), None);
    for part in parts {
        rows.extend(part.rows.into_iter().map(|row| (row.key.clone(), row)));
        next = match (next, part.next) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    // Behind where one shard has stopped, it may have keys that are missing here.
    if let Some(next) = &next {
        rows.split_off(next);
    }
    let limit = scan.limit as usize;
    if rows.len() > limit {
        next = rows.keys().nth(limit).cloned();
    }
    ScannedRows { rows: rows.into_values().take(limit).collect(), next }
}

/// A key that a transaction was found to have written.
pub(super) fn overwrite(row: &mut KeyRow, value: Option<Bytes>, at: Timestamp) {
    if row.version < at {
        (row.value, row.version) = (value, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::txn::KeyRange;

    fn part(keys: &[&'static str], next: Option<&'static str>) -> ScannedRows {
        let row = |key: &&'static str| KeyRow {
            key: Bytes::from_static(key.as_bytes()),
            value: Some(Bytes::new()),
            version: Timestamp(1),
        };
        ScannedRows {
            rows: keys.iter().map(row).collect(),
            next: next.map(|it| Bytes::from_static(it.as_bytes())),
        }
    }

    fn merged(limit: u32, parts: &[ScannedRows]) -> (Vec<Bytes>, Option<Bytes>) {
        let range = KeyRange { start: Bytes::new(), end: None };
        let merged = merge(&KeyScan { range, limit }, parts.iter().cloned());
        (merged.rows.into_iter().map(|row| row.key).collect(), merged.next)
    }

    // A row behind the key where another shard has stopped hides that shard's keys before it.
    #[test]
    fn scans_stop_where_the_first_shard_has_stopped() {
        let keys = |keys: &[&'static str]| {
            keys.iter().map(|it| Bytes::from_static(it.as_bytes())).collect::<Vec<_>>()
        };
        let (one, other) = (part(&["a", "d"], None), part(&["b", "c"], None));
        assert_eq!(merged(9, &[one.clone(), other.clone()]), (keys(&["a", "b", "c", "d"]), None));
        assert_eq!(merged(3, &[one.clone(), other]), (keys(&["a", "b", "c"]), Some("d".into())));
        let stopped = part(&["b"], Some("c"));
        assert_eq!(merged(9, &[one, stopped]), (keys(&["a", "b"]), Some("c".into())));
    }
}
