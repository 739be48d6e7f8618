//! The small vocabulary of histories: times, processes, values, versions, fates.

use std::fmt;
use std::sync::Arc;

/// A point on one monotonic clock (nanoseconds), or an event number. Never the wall clocks of two machines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub u64);

impl Time {
    /// Later than every answer: the response time of an operation that has none.
    pub const NEVER: Time = Time(u64::MAX);
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "{}", self.0) }
    }
}

/// A client, thread or session that does one thing after another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u64);

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// The version of a key as its service numbers it; grows with every write of the key, 0 before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u64);

impl Version {
    /// The state of a key that nobody wrote yet.
    pub const INITIAL: Version = Version(0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    /// It answered, and its effect is certain.
    Ok,
    /// It certainly had no effect.
    Fail,
    /// It may have taken effect, may yet do so, or never will.
    Unknown,
}

impl Fate {
    /// The word of the file formats.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Ok => "ok",
            Fate::Fail => "fail",
            Fate::Unknown => "info",
        }
    }
}

/// A value that a history speaks of. Integers keep all 64 bits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// No value: an absent key.
    Nil,
    /// A whole number.
    Int(i64),
    /// Anything else, by its text.
    Text(Arc<str>),
}

impl Value {
    /// Text where the bytes are UTF-8, else `0x` and hexadecimal digits.
    pub fn from_bytes(bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(_) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Value::from(format!("0x{digits}"))
            }
        }
    }

    /// The number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Nil | Value::Text(_) => None,
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(Arc::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Arc::from(text))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Text(text) => write!(f, "{text}"),
        }
    }
}
