//! A commit's name as people write it.

use super::CallKey;
use std::fmt;
use std::str::FromStr;

/// A text that names no commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoCommitId(String);

impl fmt::Display for NoCommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} names no commit: wanted is SESSION-NUMBER, as in 9f1c0a7be2d34455-1", self.0)
    }
}

impl std::error::Error for NoCommitId {}

/// The session in hexadecimal digits, and the number.
impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.session, self.number)
    }
}

impl FromStr for CallKey {
    type Err = NoCommitId;

    fn from_str(text: &str) -> Result<Self, NoCommitId> {
        let parsed = text.split_once('-').and_then(|(session, number)| {
            let sound = session.len() == 16 && session.bytes().all(|byte| byte.is_ascii_hexdigit());
            let session = u64::from_str_radix(session, 16).ok().filter(|_| sound)?;
            let number = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
            Some(Self { session, number })
        });
        parsed.ok_or_else(|| NoCommitId(text.chars().take(100).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A name that is read as another one informs a user of somebody else's commit.
    #[test]
    fn names_read_back_and_others_are_refused() {
        for key in [CallKey { session: 1, number: 0 }, CallKey { session: u64::MAX, number: u64::MAX }] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        let long = format!("{}-1", "0".repeat(17));
        for text in ["", "-", "1-1", "000000000000000g-1", "0000000000000001", "0000000000000001-+1", &long] {
            assert!(text.parse::<CallKey>().is_err(), "{text}");
        }
    }
}
