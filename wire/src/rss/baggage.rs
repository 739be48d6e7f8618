//! The causal context in one W3C baggage entry, `ordinate=v1.<base64url>`.
//!
//! A header above the limits is dropped whole by many libraries, silently, and causality with it. So a token that
//! is too large is not carried: its service is fenced and the token says only that.

use super::context::{CausalContext, ServiceName, Token};
use thiserror::Error;

/// Bytes of a baggage header that every library passes on.
pub const HEADER_BYTES_MAX: usize = 8192;
/// Entries of a baggage header that every library passes on.
pub const ENTRIES_MAX: usize = 64;
/// A token above this many bytes is replaced by a fence.
pub const TOKEN_INLINE_MAX: usize = 512;

const NAME: &str = "ordinate";
const VERSION: &str = "v1.";

/// Why a context did not go into, or come out of, a header.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BaggageError<E> {
    /// A service could not be fenced; do not send the message yet. Safe to retry.
    #[error("the fence of service {service} failed")]
    Fence {
        /// Whose fence.
        service: ServiceName,
        /// What it said.
        source: E,
    },
    /// The header has no room even for fences. All services of the context were fenced, so the message may go
    /// without it, and the receiver acts as a fresh client.
    #[error("baggage of {bytes} bytes and {entries} entries leaves no room for the causal context")]
    Full {
        /// Bytes the header would have.
        bytes: usize,
        /// Entries it would have.
        entries: usize,
    },
    /// The entry is not ours or was truncated. Act as if none had come: as a fresh, fenced client, and count it.
    #[error("the baggage entry {NAME} cannot be read")]
    Malformed,
}

/// A header to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injected {
    /// The whole header: the entries that were there, and ours.
    pub header: String,
    /// The services that had to be fenced because their tokens were too large.
    pub fenced: Vec<ServiceName>,
}

/// Puts `context` into the header `existing` (empty for none). `fence` runs a service's real-time fence and returns
/// its epoch; the context remembers the fences that ran, also when this fails later.
pub fn inject<E>(
    context: &mut CausalContext,
    existing: &str,
    mut fence: impl FnMut(&ServiceName) -> Result<u64, E>,
) -> Result<Injected, BaggageError<E>> {
    let others: Vec<&str> = entries(existing).filter(|entry| name_of(entry) != NAME).collect();
    let mut fenced = Vec::new();
    let mut replace = |context: &mut CausalContext, longer_than: usize| {
        let large = |token: &Token| matches!(token, Token::Inline(bytes) if bytes.len() > longer_than);
        let services: Vec<ServiceName> = context
            .tokens
            .iter()
            .filter(|(_, token)| large(token))
            .map(|(service, _)| service.clone())
            .collect();
        for service in services {
            let epoch =
                fence(&service).map_err(|source| BaggageError::Fence { service: service.clone(), source })?;
            context.tokens.insert(service.clone(), Token::Fenced(epoch));
            fenced.push(service);
        }
        Ok(())
    };
    replace(context, TOKEN_INLINE_MAX)?;
    let mut header = join(&others, context);
    if header.len() > HEADER_BYTES_MAX {
        replace(context, 0)?;
        header = join(&others, context);
    }
    let count = others.len() + 1;
    if header.len() > HEADER_BYTES_MAX || count > ENTRIES_MAX {
        replace(context, 0)?;
        return Err(BaggageError::Full { bytes: header.len(), entries: count });
    }
    Ok(Injected { header, fenced })
}

/// The context in a header, if one is there.
pub fn extract(header: &str) -> Result<Option<CausalContext>, BaggageError<std::convert::Infallible>> {
    let Some(entry) = entries(header).find(|entry| name_of(entry) == NAME) else { return Ok(None) };
    let value = entry.split_once('=').map_or("", |(_, value)| value);
    let value = value.split_once(';').map_or(value, |(value, _)| value).trim();
    let bytes = value.strip_prefix(VERSION).and_then(from_base64).ok_or(BaggageError::Malformed)?;
    CausalContext::decode(&bytes).map(Some).ok_or(BaggageError::Malformed)
}

fn entries(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn name_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name).trim()
}

fn join(others: &[&str], context: &CausalContext) -> String {
    let own = format!("{NAME}={VERSION}{}", to_base64(&context.encode()));
    others.iter().copied().chain([&*own]).collect::<Vec<_>>().join(",")
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..=chunk.len() {
            out.push(LETTERS[(word >> (18 - 6 * letter) & 63) as usize] as char);
        }
    }
    out
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for byte in chunk {
            word = word << 6 | LETTERS.iter().position(|letter| letter == byte)? as u32;
        }
        word <<= 6 * (4 - chunk.len());
        let whole = chunk.len().checked_sub(1).filter(|whole| *whole > 0)?;
        // Bits beyond the last whole byte must be zero, or two texts would mean one context.
        if word & (0xff_ffff >> (8 * whole)) != 0 {
            return None;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..1 + whole]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn name(text: &str) -> ServiceName {
        ServiceName::new(text).expect("short and not empty")
    }

    fn context(size: usize) -> CausalContext {
        CausalContext {
            last: [name("kv")].into(),
            tokens: [(name("kv"), Token::Inline(vec![7; size])), (name("queue"), Token::Fenced(9))].into(),
        }
    }

    fn never(_: &ServiceName) -> Result<u64, &'static str> {
        Err("no fence expected")
    }

    #[test]
    fn goes_there_and_back_beside_other_entries() {
        // A second injection that left the old entry would bring back an older past.
        for size in 0..40 {
            let mut sent = context(size);
            let first = inject(&mut sent, "tenant=7;p=1, trace=a%20b", never).expect("fits");
            let second = inject(&mut sent, &first.header, never).expect("fits");
            assert_eq!(first.header, second.header);
            assert!(second.header.starts_with("tenant=7;p=1,trace=a%20b,ordinate=v1."));
            assert_eq!(extract(&second.header), Ok(Some(sent)));
        }
        assert_eq!(extract("tenant=7"), Ok(None));
    }

    #[test]
    fn a_large_token_becomes_a_fence() {
        // A dropped header is silently lost causality.
        let mut sent = context(TOKEN_INLINE_MAX + 1);
        assert!(matches!(inject(&mut sent, "", never), Err(BaggageError::Fence { .. })));
        let injected = inject(&mut sent, "", |_| Ok::<u64, ()>(4)).expect("fits");
        assert_eq!(injected.fenced, [name("kv")]);
        assert_eq!(sent.tokens[&name("kv")], Token::Fenced(4));
        assert!(injected.header.len() < 100, "{}", injected.header);
        let mut exact = context(TOKEN_INLINE_MAX);
        assert!(inject(&mut exact, "", never).expect("fits").fenced.is_empty());
    }

    #[test]
    fn a_full_header_fences_everything_or_refuses() {
        // Others' entries are never thrown away to make room.
        let nearly = format!("other={}", "x".repeat(HEADER_BYTES_MAX - 120));
        let mut sent = context(300);
        let injected = inject(&mut sent, &nearly, |_| Ok::<u64, ()>(5)).expect("fits without the token");
        assert_eq!(injected.fenced, [name("kv")]);
        assert!(injected.header.len() <= HEADER_BYTES_MAX && injected.header.starts_with(&nearly));
        let full = format!("other={}", "x".repeat(HEADER_BYTES_MAX - 6));
        assert!(matches!(
            inject(&mut context(3), &full, |_| Ok::<u64, ()>(5)),
            Err(BaggageError::Full { .. })
        ));
        let many: Vec<String> = (0..ENTRIES_MAX).map(|at| format!("k{at}=v")).collect();
        let refused = inject(&mut context(3), &many.join(","), |_| Ok::<u64, ()>(5));
        assert!(matches!(refused, Err(BaggageError::Full { entries: 65, .. })));
    }

    #[test]
    fn whatever_arrives_is_read_or_refused() {
        // A header is whatever the network brings; it must not bring the process down.
        let mut dice = Dice(5);
        let good = inject(&mut context(30), "", never).expect("fits").header;
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = good.clone().into_bytes();
            let at = "ordinate=".len() + dice.below(bytes.len() - "ordinate=".len());
            if dice.once_in(2) {
                bytes.truncate(at);
            } else {
                bytes[at] = b'!' + dice.below(90) as u8;
            }
            refused += usize::from(extract(&String::from_utf8_lossy(&bytes)).is_err());
        }
        assert!(refused > 5_000, "{refused}");
    }

    #[test]
    fn absorbing_keeps_the_stronger_demand() {
        // A fence of the sender does not cover what the receiver itself read since.
        let larger = |_: &ServiceName, a: &[u8], b: &[u8]| a.max(b).to_vec();
        let mut ours = context(0);
        ours.tokens.insert(name("kv"), Token::Inline(vec![3]));
        let mut theirs = context(0);
        theirs.tokens.insert(name("kv"), Token::Inline(vec![5]));
        theirs.last.insert(name("log"));
        ours.absorb(&theirs, larger);
        assert_eq!(ours.tokens[&name("kv")], Token::Inline(vec![5]));
        assert_eq!(ours.last.len(), 2);
        theirs.tokens.insert(name("kv"), Token::Fenced(8));
        ours.absorb(&theirs, larger);
        assert_eq!(ours.tokens[&name("kv")], Token::Inline(vec![5]));
    }
}
