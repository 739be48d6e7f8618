//! Keys, values and bodies in JSON: text, or any bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// As a caller writes it: text, or `{"base64": "AA=="}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "wanted is text, or {\"base64\": \"AA==\"}")]
pub enum JsonBytes {
    /// Text.
    Plain(String),
    /// Any bytes.
    Encoded {
        /// In base64.
        base64: String,
    },
}

impl JsonBytes {
    /// What it means; an error says what is wrong with it.
    pub fn bytes(&self) -> Result<Bytes, String> {
        match self {
            Self::Plain(text) => Ok(text.clone().into_bytes().into()),
            Self::Encoded { base64 } => BASE64
                .decode(base64)
                .map(Bytes::from)
                .map_err(|why| format!("{base64:?} is no base64: {why}")),
        }
    }
}

/// Puts bytes into an answer under their name; under `NAME_base64` if they are no text.
pub fn put_bytes(into: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => into.insert(name.to_owned(), json!(text)),
        Err(_) => into.insert(format!("{name}_base64"), json!(BASE64.encode(bytes))),
    };
}
