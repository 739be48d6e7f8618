//! The bodies of HTTP calls.

use crate::services::json_bytes::JsonBytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use wire::fuzzylog::NumberedBy;

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

    /// As calls have it.
    pub(super) fn numbered(&self) -> Result<NumberedBy, String> {
        let by = NumberedBy { client: self.client()?, number: self.number, below: self.below };
        by.check(1).map_err(|fault| fault.to_string())?;
        Ok(by)
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
    /// A snapshot's id, of whichever region: all that it has comes before.
    pub(super) after: Option<String>,
    /// How long the region is waited for that has not all of it.
    pub(super) timeout_ms: Option<u32>,
    pub(super) client: Option<ClientBody>,
}

/// `POST /v1/fuzzylog/snapshot`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotBody {
    pub(super) colours: Vec<String>,
    pub(super) seen: Option<String>,
    pub(super) after: Option<String>,
    pub(super) timeout_ms: Option<u32>,
    pub(super) client: Option<ClientBody>,
}

/// `POST /v1/fuzzylog/await`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AwaitBody {
    pub(super) snapshot: String,
    pub(super) timeout_ms: Option<u32>,
}

/// What of a body names a snapshot.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AfterBody {
    pub(super) after: Option<String>,
    pub(super) snapshot: Option<String>,
}

/// What of a query does.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AfterQuery {
    pub(super) after: Option<String>,
}

/// `POST /v1/fuzzylog/move`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveBody {
    pub(super) colour: String,
    pub(super) partition: u16,
}

/// `POST /v1/fuzzylog/partitions`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartitionBody {
    /// Its number; none: the first that is not used.
    pub(super) partition: Option<u16>,
}

/// `POST /v1/fuzzylog/colours/COLOUR/trim`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimBody {
    pub(super) before: u64,
    /// Among several regions: of the one whose position it is.
    pub(super) seen: Option<String>,
}
