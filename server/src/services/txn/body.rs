//! The bodies of HTTP calls, and the calls of the gateway that they mean.

use crate::cluster::keys::parse_duration;
use crate::services::json_bytes::JsonBytes;
use kernel::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use wire::txn::{
    CallKey, Condition, KeyRange, KeyScan, KeyWrite, OneShot, ReadOnly, Timestamp, TxnCall, TxnLevel,
};

/// Rows of a scan unless its caller says.
const ROWS: u32 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PutBody {
    key: JsonBytes,
    value: JsonBytes,
}

/// `{"a": "1"}`, or `[{"key": {"base64": "AA=="}, "value": "1"}]` for keys that are no text.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "wanted are texts by their keys, {\"a\": \"1\"}, or a list of {\"key\": \"a\", \"value\": \"1\"}"
)]
enum Puts {
    ByKey(PutPairs),
    Listed(Vec<PutBody>),
}

/// The pairs of an object, with names that stand there twice: of a map, all but the last would be dropped.
#[derive(Debug)]
struct PutPairs(Vec<(String, JsonBytes)>);

impl<'de> Deserialize<'de> for PutPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = PutPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("keys and their values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PutPairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(PutPairs(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

impl Default for Puts {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

/// By a prefix, or by a start and an end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScanBody {
    prefix: Option<JsonBytes>,
    start: Option<JsonBytes>,
    end: Option<JsonBytes>,
    limit: Option<u32>,
}

impl ScanBody {
    fn scan(&self) -> Result<KeyScan, String> {
        let limit = self.limit.unwrap_or(ROWS);
        let bytes = |text: &Option<JsonBytes>| text.as_ref().map(JsonBytes::bytes).transpose();
        let range = match (bytes(&self.prefix)?, bytes(&self.start)?, bytes(&self.end)?) {
            (Some(prefix), None, None) => KeyRange::with_prefix(prefix),
            // Going on with a prefix: from where it stopped, to its end.
            (Some(prefix), Some(start), None) => {
                let whole = KeyRange::with_prefix(prefix);
                KeyRange { start: start.max(whole.start), end: whole.end }
            }
            (None, start, end) => KeyRange { start: start.unwrap_or_default(), end },
            (Some(_), _, Some(_)) => return Err("a scan has a prefix or an end, not both".to_owned()),
        };
        Ok(KeyScan { range, limit })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionBody {
    key: JsonBytes,
    /// 0: there is no such key.
    version: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Otherwise {
    #[serde(default)]
    read: Vec<JsonBytes>,
}

/// `POST /v1/txn`: reads alone are a read-only transaction; anything else is a one-shot.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TransactionBody {
    level: Option<String>,
    at: Option<u64>,
    stale: Option<String>,
    pub(super) token: u64,
    read: Vec<JsonBytes>,
    scan: Vec<ScanBody>,
    #[serde(rename = "if")]
    conditions: Vec<ConditionBody>,
    put: Puts,
    delete: Vec<JsonBytes>,
    #[serde(rename = "else")]
    otherwise: Option<Otherwise>,
    id: Option<String>,
}

/// `POST /v1/txn/begin`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BeginBody {
    pub(super) token: u64,
    pub(super) priority: Option<u64>,
}

/// `POST /v1/txn/fence`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FenceBody {
    pub(super) token: u64,
}

/// `POST /v1/txn/ID/read`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReadBody {
    read: Vec<JsonBytes>,
    scan: Vec<ScanBody>,
}

/// `POST /v1/txn/ID/commit`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CommitBody {
    put: Puts,
    delete: Vec<JsonBytes>,
    id: Option<String>,
}

fn all_bytes(texts: &[JsonBytes]) -> Result<Vec<Bytes>, String> {
    texts.iter().map(JsonBytes::bytes).collect()
}

fn scans(bodies: &[ScanBody]) -> Result<Vec<KeyScan>, String> {
    bodies.iter().map(ScanBody::scan).collect()
}

fn writes(puts: &Puts, deletes: &[JsonBytes]) -> Result<Vec<KeyWrite>, String> {
    let mut writes: Vec<KeyWrite> = match puts {
        Puts::ByKey(PutPairs(puts)) => puts
            .iter()
            .map(|(key, value)| {
                Ok(KeyWrite { key: key.clone().into_bytes().into(), value: Some(value.bytes()?) })
            })
            .collect::<Result<_, String>>()?,
        Puts::Listed(puts) => puts
            .iter()
            .map(|put| Ok(KeyWrite { key: put.key.bytes()?, value: Some(put.value.bytes()?) }))
            .collect::<Result<_, String>>()?,
    };
    for key in deletes {
        writes.push(KeyWrite { key: key.bytes()?, value: None });
    }
    Ok(writes)
}

/// A commit's name.
pub(super) fn commit_id(text: &str) -> Result<CallKey, String> {
    text.parse::<CallKey>().map_err(|why| why.to_string())
}

/// A timestamp that JSON numbers hold.
pub(super) fn timestamp(number: u64) -> Result<Timestamp, String> {
    let at = Timestamp(number);
    if at <= Timestamp::MAX { Ok(at) } else { Err(format!("{number} is no timestamp: they are below 2^53")) }
}

impl TransactionBody {
    fn level(&self) -> Result<TxnLevel, String> {
        let stale = match &self.stale {
            None => None,
            Some(text) => Some(
                parse_duration(text)
                    .ok_or_else(|| format!("stale is {text:?}: wanted is a span as in 2s"))?,
            ),
        };
        match (self.level.as_deref(), self.at, stale) {
            (None | Some("strict"), None, None) => Ok(TxnLevel::Strict),
            (Some("rss"), None, None) => Ok(TxnLevel::Rss),
            (Some("process-ordered"), None, None) => Ok(TxnLevel::ProcessOrdered),
            (None | Some("at"), Some(at), None) => timestamp(at).map(TxnLevel::At),
            (None | Some("stale"), None, Some(by)) => Ok(TxnLevel::Stale(by.as_micros() as u64)),
            (Some("at"), None, None) => Err("the level at wants \"at\": a timestamp".to_owned()),
            (Some("stale"), None, None) => Err("the level stale wants \"stale\": a span as in 2s".to_owned()),
            (Some(name @ ("strict" | "rss" | "process-ordered" | "at" | "stale")), ..) => {
                Err(format!("the level {name} does not go with \"at\" or \"stale\""))
            }
            (None, Some(_), Some(_)) => Err("\"at\" and \"stale\" do not go together".to_owned()),
            (Some(other), ..) => {
                Err(format!("unknown level {other}; known: strict, rss, process-ordered, at, stale"))
            }
        }
    }

    fn writes_something(&self) -> bool {
        let puts = match &self.put {
            Puts::ByKey(PutPairs(puts)) => !puts.is_empty(),
            Puts::Listed(puts) => !puts.is_empty(),
        };
        puts || !self.delete.is_empty() || !self.conditions.is_empty() || self.otherwise.is_some()
    }

    /// The call that it means, and the name of its commit, if it has one. `key`: the name unless the body gives one.
    pub(super) fn call(&self, key: CallKey) -> Result<(TxnCall, Option<CallKey>), String> {
        let (id, token) = (0, timestamp(self.token)?);
        let (level, keys, scans) = (self.level()?, all_bytes(&self.read)?, scans(&self.scan)?);
        if !self.writes_something() {
            if self.id.is_some() {
                return Err("\"id\" names a commit, and nothing is written".to_owned());
            }
            return Ok((ReadOnly { id, token, level, keys, scans }.into(), None));
        }
        if level != TxnLevel::Strict {
            return Err(format!("what writes is strict; the level {level} is for reads alone"));
        }
        if !scans.is_empty() {
            return Err(
                "\"scan\" goes with reads alone; an interactive transaction may scan and write".to_owned()
            );
        }
        let condition =
            |it: &ConditionBody| Ok(Condition { key: it.key.bytes()?, version: timestamp(it.version)? });
        let conditions = self.conditions.iter().map(condition).collect::<Result<_, String>>()?;
        let key = self.id.as_deref().map(commit_id).transpose()?.unwrap_or(key);
        let otherwise =
            self.otherwise.as_ref().map(|it| all_bytes(&it.read)).transpose()?.unwrap_or_default();
        let writes = writes(&self.put, &self.delete)?;
        let one_shot = OneShot {
            id,
            token,
            key: Some(key),
            acknowledged: 0,
            conditions,
            writes,
            reads: keys,
            otherwise,
        };
        Ok((one_shot.into(), Some(key)))
    }
}

impl ReadBody {
    /// What it reads.
    pub(super) fn reads(&self) -> Result<(Vec<Bytes>, Vec<KeyScan>), String> {
        Ok((all_bytes(&self.read)?, scans(&self.scan)?))
    }
}

impl CommitBody {
    /// What it writes, and the name that its caller gives it.
    pub(super) fn commit(&self) -> Result<(Vec<KeyWrite>, Option<CallKey>), String> {
        Ok((writes(&self.put, &self.delete)?, self.id.as_deref().map(commit_id).transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CallKey = CallKey { session: 1, number: 1 };

    fn call(json: &str) -> Result<TxnCall, String> {
        let body: TransactionBody = serde_json::from_str(json).map_err(|why| why.to_string())?;
        body.call(KEY).map(|(call, _)| call)
    }

    // A body that is understood otherwise than it was meant reads or writes what nobody asked for.
    #[test]
    fn bodies_mean_what_they_say() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let Ok(TxnCall::ReadOnly(read)) =
            call(r#"{"level": "rss", "read": ["a"], "scan": [{"prefix": "p/", "limit": 7}], "token": 5}"#)
        else {
            panic!("a read-only transaction");
        };
        assert_eq!((read.level, read.token, read.keys), (TxnLevel::Rss, Timestamp(5), vec![bytes("a")]));
        assert_eq!(read.scans, [KeyScan { range: KeyRange::with_prefix(bytes("p/")), limit: 7 }]);
        let text = r#"{"if": [{"key": "a", "version": 17}], "put": {"a": "1"}, "delete": ["b"], "else": {"read": ["a"]}}"#;
        let Ok(TxnCall::OneShot(one_shot)) = call(text) else { panic!("a one-shot") };
        assert_eq!(one_shot.conditions, [Condition { key: bytes("a"), version: Timestamp(17) }]);
        assert_eq!(
            one_shot.writes,
            [
                KeyWrite { key: bytes("a"), value: Some(bytes("1")) },
                KeyWrite { key: bytes("b"), value: None }
            ]
        );
        assert_eq!((one_shot.otherwise, one_shot.key), (vec![bytes("a")], Some(KEY)));
        let any = r#"{"put": [{"key": {"base64": "AAE="}, "value": {"base64": "/w=="}}]}"#;
        let Ok(TxnCall::OneShot(any)) = call(any) else { panic!("a one-shot") };
        let written = KeyWrite { key: Bytes::from_static(&[0, 1]), value: Some(Bytes::from_static(&[255])) };
        assert_eq!(any.writes, [written]);
        let twice = call(r#"{"put": {"a": "1", "a": "2"}}"#).expect("it is JSON");
        assert!(twice.fault().is_some(), "one of the two values would be dropped");
    }

    // What makes no sense and is taken all the same does something else than was meant.
    #[test]
    fn bodies_that_make_no_sense_are_refused() {
        for (text, why) in [
            (r#"{"level": "serializable"}"#, "unknown level"),
            (r#"{"level": "rss", "put": {"a": "1"}}"#, "what writes is strict"),
            (r#"{"put": {"a": "1"}, "scan": [{"prefix": "a"}]}"#, "goes with reads alone"),
            (r#"{"scan": [{"prefix": "a", "end": "b"}]}"#, "not both"),
            (r#"{"at": 9007199254740992}"#, "below 2^53"),
            (r#"{"level": "strict", "at": 1}"#, "does not go with"),
            (r#"{"level": "at"}"#, "wants"),
            (r#"{"stale": "soon"}"#, "wanted is a span"),
            (r#"{"read": ["a"], "id": "0000000000000001-1"}"#, "nothing is written"),
            (r#"{"put": {"a": "1"}, "id": "7"}"#, "names no commit"),
            (r#"{"reads": ["a"]}"#, "unknown field"),
            (r#"{"put": {"a": {"base64": "!"}}}"#, "is no base64"),
        ] {
            let refused = call(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
