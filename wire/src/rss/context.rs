//! What a process knows, in a form that others can carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The unique name of an RSS service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// At most this many bytes count; baggage is small.
    pub const BYTES_MAX: usize = 255;

    /// A name; nothing for an empty one or one longer than [`ServiceName::BYTES_MAX`].
    pub fn new(name: &str) -> Option<ServiceName> {
        (!name.is_empty() && name.len() <= ServiceName::BYTES_MAX).then(|| ServiceName(Arc::from(name)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one service wants its later operations to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// The service's own bytes: Spanner-RSS's t_min, Gryff-RSC's dependency.
    Inline(Vec<u8>),
    /// A fence ran instead; everything before it is visible to everybody. The number distinguishes one fence from another.
    Fenced(u64),
}

/// The services a process used last (several after messages) and what each must know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CausalContext {
    /// Services to fence before another one is used.
    pub last: BTreeSet<ServiceName>,
    /// One token per service.
    pub tokens: BTreeMap<ServiceName, Token>,
}

impl CausalContext {
    /// Takes in what another process knew. `join` combines two inline tokens of one service (the larger t_min, the
    /// newer dependency). An inline token stays beside a fence: the fence covers only what came before it.
    pub fn absorb(
        &mut self,
        other: &CausalContext,
        mut join: impl FnMut(&ServiceName, &[u8], &[u8]) -> Vec<u8>,
    ) {
        self.last.extend(other.last.iter().cloned());
        for (service, theirs) in &other.tokens {
            let joined = match (self.tokens.get(service), theirs) {
                (None | Some(Token::Fenced(_)), Token::Inline(_)) | (None, Token::Fenced(_)) => {
                    theirs.clone()
                }
                (Some(Token::Inline(ours)), Token::Inline(theirs)) => {
                    Token::Inline(join(service, ours, theirs))
                }
                (Some(Token::Inline(ours)), Token::Fenced(_)) => Token::Inline(ours.clone()),
                (Some(Token::Fenced(ours)), Token::Fenced(theirs)) => Token::Fenced((*ours).max(*theirs)),
            };
            self.tokens.insert(service.clone(), joined);
        }
    }

    /// The bytes of version 1: counts, then length-prefixed names and tokens, in order.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
            number(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        };
        number(&mut out, self.last.len() as u64);
        for service in &self.last {
            bytes(&mut out, service.0.as_bytes());
        }
        number(&mut out, self.tokens.len() as u64);
        for (service, token) in &self.tokens {
            bytes(&mut out, service.0.as_bytes());
            match token {
                Token::Inline(token) => {
                    out.push(0);
                    bytes(&mut out, token);
                }
                Token::Fenced(epoch) => {
                    out.push(1);
                    number(&mut out, *epoch);
                }
            }
        }
        out
    }

    /// The reverse; nothing for bytes that are not exactly one context.
    pub(super) fn decode(bytes: &[u8]) -> Option<CausalContext> {
        let mut rest = bytes;
        let mut context = CausalContext::default();
        for _ in 0..take_number(&mut rest)? {
            context.last.insert(take_name(&mut rest)?);
        }
        for _ in 0..take_number(&mut rest)? {
            let service = take_name(&mut rest)?;
            let (kind, tail) = rest.split_first()?;
            rest = tail;
            let token = match kind {
                0 => Token::Inline(take_bytes(&mut rest)?.to_vec()),
                1 => Token::Fenced(take_number(&mut rest)?),
                _ => return None,
            };
            context.tokens.insert(service, token);
        }
        rest.is_empty().then_some(context)
    }
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(bytes)
}

fn take_name(rest: &mut &[u8]) -> Option<ServiceName> {
    ServiceName::new(std::str::from_utf8(take_bytes(rest)?).ok()?)
}
