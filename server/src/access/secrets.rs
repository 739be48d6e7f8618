//! Tokens and passwords: how they are made, and what is stored of them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Bytes of a digest of SHA-256.
pub const HASH_BYTES: usize = 32;
/// Longer tokens and passwords are refused before anything is computed.
pub const SECRET_BYTES_MAX: usize = 1024;
/// What all tokens begin with, so that scanners for leaked secrets find them.
const TOKEN_PREFIX: &str = "ord_";
const TOKEN_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// Rounds of a new password's hash: what RFC 7677 asks for at the least.
const ROUNDS: u32 = 4096;
/// Rounds that a file may ask for; a host computes them for each login with a password in the clear.
const ROUNDS_MAX: u32 = 100_000;
/// The realm of DIGEST-MD5.
pub const REALM: &str = "ordinate";

/// Fills bytes that nobody can guess; an error says that the system gives none.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gives no random numbers: {error}"))?;
    Ok(bytes)
}

/// A token that nobody has had before.
pub fn new_token() -> Result<String, String> {
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>()?)))
}

/// A password that nobody has had before.
pub fn new_password() -> Result<String, String> {
    Ok(URL_SAFE_NO_PAD.encode(random::<18>()?))
}

/// What is stored of a token. A token is random: a salt and many rounds would add nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TokenHash([u8; HASH_BYTES]);

impl TokenHash {
    /// Of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let bytes = bytes_of_hex(digits)?;
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

/// What is stored of a password, as RFC 5803 has it: salt, rounds and two keys, of which neither opens anything by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramKeys {
    /// Beside the password in the hash.
    pub salt: Vec<u8>,
    /// How often it is hashed.
    pub rounds: u32,
    /// A hash of what the client proves to have.
    pub stored: [u8; HASH_BYTES],
    /// What the host proves to have.
    pub server: [u8; HASH_BYTES],
}

impl ScramKeys {
    /// Of a password, with a fresh salt.
    pub fn of(password: &str) -> Result<Self, String> {
        Ok(Self::with(password, random::<SALT_BYTES>()?.to_vec(), ROUNDS))
    }

    fn with(password: &str, salt: Vec<u8>, rounds: u32) -> Self {
        let salted = salted(password, &salt, rounds);
        let stored = Sha256::digest(mac(&salted, &[b"Client Key"])).into();
        let server = mac(&salted, &[b"Server Key"]);
        Self { salt, rounds, stored, server }
    }

    /// Whether it is of this password. Takes about a millisecond.
    pub fn is_of(&self, password: &str) -> bool {
        same(&Self::with(password, self.salt.clone(), self.rounds).stored, &self.stored)
    }

    /// Reads `SCRAM-SHA-256$ROUNDS:SALT$STORED:SERVER`, in base64.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let ((rounds, salt), (stored, server)) = (head.split_once(':')?, keys.split_once(':')?);
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        let rounds = rounds.parse().ok().filter(|rounds| (1..=ROUNDS_MAX).contains(rounds))?;
        Some(Self { salt: BASE64.decode(salt).ok()?, rounds, stored: key(stored)?, server: key(server)? })
    }
}

impl fmt::Display for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] = [&self.salt[..], &self.stored, &self.server].map(|it| BASE64.encode(it));
        write!(f, "SCRAM-SHA-256${}:{salt}${stored}:{server}", self.rounds)
    }
}

/// What is stored of a password for DIGEST-MD5. It is enough to log in: the scheme allows no better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DigestSecret(pub [u8; 16]);

impl DigestSecret {
    /// Of a user's password, in our realm.
    pub fn of(user: &str, password: &str) -> Self {
        Self(Md5::digest(format!("{user}:{REALM}:{password}").as_bytes()).into())
    }

    /// Reads `md5:` and 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        bytes_of_hex(text.strip_prefix("md5:")?)?.try_into().ok().map(Self)
    }
}

impl fmt::Display for DigestSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "md5:{}", hex(&self.0))
    }
}

/// `Hi` of RFC 5802.
fn salted(password: &str, salt: &[u8], rounds: u32) -> [u8; HASH_BYTES] {
    let mut last = mac(password.as_bytes(), &[salt, &1u32.to_be_bytes()]);
    let mut sum = last;
    for _ in 1..rounds {
        last = mac(password.as_bytes(), &[&last]);
        sum.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// The code of some bytes, one part behind the other, under a key.
pub fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; HASH_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do for a key");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Whether two secrets are alike, in a time that does not say where they differ.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// In hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let sound = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    sound.then(|| pairs.map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    // A hash that differs from everybody else's locks out all clients.
    #[test]
    fn keys_are_those_of_rfc_7677() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let keys = ScramKeys::with("pencil", salt, 4096);
        assert_eq!(ScramKeys::parse(&keys.to_string()), Some(keys.clone()));
        assert!(keys.is_of("pencil") && !keys.is_of("pencils"));
        // The messages of the RFC's example, without the proof.
        let said = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
                    r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
                    c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = BASE64.encode(mac(&keys.server, &[said.as_bytes()]));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    // What is stored must not open anything, and must be read back as it was written.
    #[test]
    fn what_is_stored_is_no_secret_and_is_read_back() {
        let token = new_token().expect("the system is random");
        assert_ne!(token, new_token().expect("the system is random"));
        let stored = TokenHash::of(&token).to_string();
        assert!(!stored.contains(&token) && TokenHash::parse(&stored) == Some(TokenHash::of(&token)));
        let digest = DigestSecret::of("user", "pencil");
        assert_eq!(DigestSecret::parse(&digest.to_string()), Some(digest));
        for wrong in ["", "sha256:", "sha256:00", "md5:zz", "SCRAM-SHA-256$0:AA==$AA==:AA==", "ord_x"] {
            assert!(TokenHash::parse(wrong).is_none(), "{wrong}");
            assert!(DigestSecret::parse(wrong).is_none() && ScramKeys::parse(wrong).is_none(), "{wrong}");
        }
    }
}
