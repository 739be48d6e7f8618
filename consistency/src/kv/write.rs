//! A key-value history as a file of our JSON lines (docs/checking.md, "Formats").

use super::{Expected, KvCall, KvHistory, KvReply};
use crate::json::quoted;
use crate::terms::{Fate, Value};
use std::io::{self, Write};

impl KvHistory {
    /// Writes the history as JSON lines: a header, one operation a line, a trailer that shows truncation.
    pub fn write_jsonl<W: Write>(&self, out: &mut W) -> io::Result<()> {
        writeln!(out, "{{\"ordinate\":\"history\",\"format\":1,\"data\":\"kv\"}}")?;
        for (key, op) in self.operations() {
            let mut line = format!("{{\"client\":{},\"key\":{}", op.process.0, quoted(key));
            let mut field = |name: &str, text: &str| line.push_str(&format!(",\"{name}\":{text}"));
            match &op.call {
                KvCall::Get => field("f", "\"get\""),
                KvCall::Put(value) => {
                    field("f", "\"put\"");
                    field("value", &json(value));
                }
                KvCall::Delete => field("f", "\"delete\""),
                KvCall::CompareAndSet { expected, value } => {
                    field("f", "\"cas\"");
                    match expected {
                        Expected::Version(version) => field("expected-version", &version.to_string()),
                        Expected::Value(old) => field("expected", &json(old)),
                    }
                    field("value", &json(value));
                }
                KvCall::Increment(by) => {
                    field("f", "\"increment\"");
                    field("value", &by.to_string());
                }
            }
            if let Some(reply) = &op.reply {
                let (word, value, version) = match reply {
                    KvReply::Found { value, version } => ("found", value, version),
                    KvReply::Written { value, version } => ("written", value, version),
                };
                field("answer", &quoted(word));
                if let Some(value) = value {
                    field("output", &json(value));
                }
                if let Some(version) = version {
                    field("version", &version.to_string());
                }
            }
            field("call", &op.invoke.0.to_string());
            if op.fate != Fate::Unknown {
                field("return", &op.complete.0.to_string());
            }
            field("type", &quoted(op.fate.word()));
            line.push('}');
            writeln!(out, "{line}")?;
        }
        writeln!(out, "{{\"end\":{}}}", self.len())
    }
}

fn json(value: &Value) -> String {
    match value {
        Value::Nil => "null".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => quoted(text),
    }
}
