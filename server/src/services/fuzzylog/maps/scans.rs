//! Scans of a map's keys over HTTP, page by page.

use super::super::replies::Refused;
use super::call::{KEY_BYTES_MAX, MapCall};
use super::served::Found;
use crate::admin::state::Admin;
use crate::services::json_bytes::put_bytes;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use kernel::{Bytes, Decode as _, Encode as _};
use ordinate_client::maps::{MapScan, MapScanPoint};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// Keys of a page, unless the caller says how many; and at most.
const ENTRIES: usize = 100;
const ENTRIES_MAX: usize = 1_000;
/// Keys and values of a page together, in bytes, unless a single one is longer.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// The longest text of a point at which a scan goes on: a key and its shard in hexadecimal digits, and their check.
const POINT_CHARS_MAX: usize = 2 * (KEY_BYTES_MAX + 64);

/// What of a scan is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScanQuery {
    /// Keys that begin like this.
    #[serde(default)]
    prefix: String,
    /// Keys that are not before this one.
    #[serde(default)]
    from: String,
    /// Keys that are before this one.
    to: Option<String>,
    /// How many at most.
    limit: Option<usize>,
    /// Without their values, if this is false.
    values: Option<bool>,
    /// What the page before has answered.
    next: Option<String>,
    seen: Option<String>,
}

impl ScanQuery {
    fn scan(&self) -> Result<MapScan, Refused> {
        let limit = self.limit.unwrap_or(ENTRIES);
        if !(1..=ENTRIES_MAX).contains(&limit) {
            return Err(Refused::bad(format!("limit is {limit}: wanted are 1 to {ENTRIES_MAX} keys")));
        }
        let to = self.to.as_ref();
        for (what, text) in [("prefix", Some(&self.prefix)), ("from", Some(&self.from)), ("to", to)] {
            let len = text.map_or(0, String::len);
            if len > KEY_BYTES_MAX {
                let why = format!("{what} has {len} bytes, and no key has more than {KEY_BYTES_MAX}");
                return Err(Refused::bad(why));
            }
        }
        let bytes = |text: &String| Bytes::copy_from_slice(text.as_bytes());
        Ok(MapScan {
            prefix: bytes(&self.prefix),
            from: bytes(&self.from),
            to: to.map(bytes),
            entries_max: limit,
            bytes_max: PAGE_BYTES_MAX,
        })
    }

    /// What a point is of: this scan of this map, and no other one.
    fn check_of(&self, map: &str, point: &[u8]) -> u64 {
        let mut bytes = Vec::new();
        for part in [map, &self.prefix, &self.from, self.to.as_deref().unwrap_or_default()] {
            Bytes::copy_from_slice(part.as_bytes()).encode(&mut bytes);
        }
        bytes.push(u8::from(self.to.is_some()));
        bytes.extend_from_slice(point);
        parts::digest(&bytes)
    }

    /// A point as text, with a check, so that one that was cut, changed or is of another scan is seen.
    fn text_of(&self, map: &str, point: &MapScanPoint) -> String {
        let bytes = point.encoded();
        let mut text = String::with_capacity(2 * bytes.len() + 17);
        for byte in &bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, "-{:016x}", self.check_of(map, &bytes));
        text
    }

    fn point(&self, map: &str) -> Result<Option<MapScanPoint>, Refused> {
        let Some(text) = &self.next else { return Ok(None) };
        let point = read_point(text).and_then(|(bytes, check)| {
            let is_own = self.check_of(map, &bytes) == check;
            is_own.then(|| MapScanPoint::decoded(&Bytes::from(bytes)).ok()).flatten()
        });
        let why =
            "next is not what a page of this scan has answered: send it with the same prefix, from and to";
        point.map(Some).ok_or_else(|| Refused::bad(why))
    }
}

/// The bytes of a point and their check.
fn read_point(text: &str) -> Option<(Vec<u8>, u64)> {
    let (bytes, check) = text.split_once('-')?;
    let is_hex = |part: &str| part.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let is_sound = text.len() <= POINT_CHARS_MAX && bytes.len() % 2 == 0 && check.len() == 16;
    if !is_sound || !is_hex(bytes) || !is_hex(check) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).ok();
    let bytes = (0..bytes.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
    Some((bytes, u64::from_str_radix(check, 16).ok()?))
}

/// `GET /v1/map/MAP/keys`
pub(super) async fn scan(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<ScanQuery>,
) -> Result<Response, Refused> {
    let (wanted, point) = (query.scan()?, query.point(&name)?);
    let call = MapCall::begin(&admin, &name, query.seen.as_deref()).await?;
    call.come_after().await?;
    let page = call.done_in_time(call.map.map.scan(&wanted, point.as_ref()), false).await?;
    call.maps.count_scanned(page.entries.len());
    let has_values = query.values.unwrap_or(true);
    let entry = |(key, found): &(Bytes, Found)| {
        let mut fields = Map::new();
        put_bytes(&mut fields, "key", key);
        if let Some(value) = found.value.as_ref().filter(|_| has_values) {
            put_bytes(&mut fields, "value", value);
        }
        if let Some(version) = found.version {
            fields.insert("version".to_owned(), json!(version));
        }
        Value::Object(fields)
    };
    let entries: Vec<Value> = page.entries.iter().map(entry).collect();
    let mut fields = Map::new();
    fields.insert("entries".to_owned(), json!(entries));
    if let Some(next) = &page.next {
        fields.insert("next".to_owned(), json!(query.text_of(&name, next)));
    }
    Ok(call.answer(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(prefix: &str, next: Option<String>) -> ScanQuery {
        let prefix = prefix.to_owned();
        ScanQuery { prefix, from: String::new(), to: None, limit: None, values: None, next, seen: None }
    }

    // A point that was cut, changed or is of another scan is taken, and keys are left out.
    #[test]
    fn points_are_of_one_scan_of_one_map() {
        let key = Bytes::from(vec![b'k'; KEY_BYTES_MAX]);
        for point in [
            MapScanPoint { shard: 3, after: Some(Bytes::from_static(b"a\xff")) },
            MapScanPoint { shard: u32::MAX, after: Some(key) },
            MapScanPoint { shard: 0, after: None },
        ] {
            let text = query("p", None).text_of("m", &point);
            let read = |map: &str, prefix: &str, text: &str| {
                query(prefix, Some(text.to_owned())).point(map).ok().flatten()
            };
            assert_eq!(read("m", "p", &text), Some(point.clone()));
            assert_eq!((read("n", "p", &text), read("m", "", &text)), (None, None));
            for at in (0..text.len()).step_by(1 + text.len() / 50) {
                let mut changed = text.clone().into_bytes();
                changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
                let changed = String::from_utf8(changed).expect("digits");
                assert_eq!(read("m", "p", &changed), None, "changed at {at}");
                assert_eq!(read("m", "p", &text[..at]), None, "cut at {at}");
            }
        }
        for forged in ["", "-", "zz-0000000000000000", "\u{e4}0-0000000000000000", &"0".repeat(9_999)] {
            assert!(query("", Some(forged.to_owned())).point("m").is_err(), "{forged:?}");
        }
    }
}
