//! Colours' names, what a node holds, and the bodies of HTTP calls.
//!
//! The engine knows a colour by the first 64 bits of the SHA-256 of its name. A node holds the names of its colours, so that two names that have one digest
//! are distinguished when they are read.

use crate::services::json_bytes::JsonBytes;
use fuzzylog::{AppendTime, Colour, PartitionId};
use kernel::Bytes;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// Bytes of a colour's name.
const NAME_BYTES_MAX: usize = 128;

kernel::record! {
    /// What a node holds.
    pub(super) struct NamedBody {
        /// The names of all its colours, in the order of the engine's.
        colours: Vec<Bytes>,
        /// What its user appended.
        body: Bytes,
    }
}

/// The engine's colour of a name.
pub(super) fn colour_of(name: &str) -> Colour {
    let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    let (head, _) = digest.split_at(8);
    Colour(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A name that a colour can have.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let sound =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(|it| it.is_control() || it == ',');
    let why = || {
        format!(
            "{name:?} is no colour: wanted are 1 to {NAME_BYTES_MAX} bytes of text without commas and control characters"
        )
    };
    if sound { Ok(()) } else { Err(why()) }
}

/// Colours by their names, each once, in the engine's order.
pub(super) fn colours_of(names: &[String]) -> Result<BTreeMap<Colour, String>, String> {
    if names.is_empty() {
        return Err("colours names none".to_owned());
    }
    let mut colours = BTreeMap::new();
    for name in names {
        check_name(name)?;
        match colours.insert(colour_of(name), name.clone()) {
            None => {}
            Some(other) if other == *name => return Err(format!("the colour {name} is named twice")),
            Some(other) => return Err(format!("the colours {name} and {other} have one digest: rename one")),
        }
    }
    Ok(colours)
}

/// What a caller has seen, as answers write it: `CLOCK-PARTITION-AHEAD`, in hexadecimal digits.
pub(super) fn seen_in_words(seen: AppendTime) -> String {
    format!("{:x}-{:x}-{:x}", seen.clock, seen.partition.0, seen.ahead)
}

/// The inverse of [`seen_in_words`].
pub(super) fn seen_of(text: &str) -> Result<AppendTime, String> {
    let mut parts = text.splitn(3, '-').map(|part| u64::from_str_radix(part, 16).ok());
    let mut next = || parts.next().flatten();
    let seen = (|| {
        let (clock, partition, ahead) = (next()?, next()?, next()?);
        let partition = PartitionId(u16::try_from(partition).ok()?);
        Some(AppendTime { clock, partition, ahead })
    })();
    seen.ok_or_else(|| format!("{text:?} is no time that an answer has in \"seen\""))
}

/// By whom, and as which of its appends, something is done once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientBody {
    /// 64 bits that no other client has, in hexadecimal digits.
    pub(super) id: String,
    /// Its number for this.
    pub(super) number: u64,
    /// It has the answers to all numbers below.
    pub(super) below: u64,
}

impl ClientBody {
    /// The client's id.
    pub(super) fn client(&self) -> Result<u64, String> {
        let sound = !self.id.is_empty() && self.id.bytes().all(|it| it.is_ascii_hexdigit());
        let id = u64::from_str_radix(&self.id, 16).ok().filter(|_| sound);
        id.ok_or_else(|| format!("{:?} is no client: wanted are 1 to 16 hexadecimal digits", self.id))
    }
}

/// `POST /v1/fuzzylog/append`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendBody {
    pub(super) colours: Vec<String>,
    /// One body for all colours ...
    pub(super) body: Option<JsonBytes>,
    /// ... or one for each.
    pub(super) bodies: Option<BTreeMap<String, JsonBytes>>,
    pub(super) seen: Option<String>,
    pub(super) client: Option<ClientBody>,
}

/// `POST /v1/fuzzylog/snapshot`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotBody {
    pub(super) colours: Vec<String>,
    pub(super) seen: Option<String>,
    pub(super) client: Option<ClientBody>,
}

/// `POST /v1/fuzzylog/colours/COLOUR/trim`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimBody {
    pub(super) before: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    // A time that is read as an earlier one lets an append go before what its user has seen.
    #[test]
    fn times_are_read_as_they_are_written() {
        let seen = AppendTime { clock: u64::MAX, partition: PartitionId(300), ahead: 17 };
        assert_eq!(seen_of(&seen_in_words(seen)), Ok(seen));
        for bad in ["", "1", "1-2", "1-2-3-4", "x-0-0", "1-10000-0", "-1-0-0"] {
            assert!(seen_of(bad).is_err(), "{bad}");
        }
    }

    // A name that is two colours, or none, is somebody else's colour or nobody's.
    #[test]
    fn names_of_colours_are_checked() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(colours_of(&names(&["red", "blue"])).map(|it| it.len()), Ok(2));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in [&[][..], &[""], &["red", "red"], &["a,b"], &["a\nb"], &[&long]] {
            assert!(colours_of(&names(bad)).is_err(), "{bad:?}");
        }
    }
}
