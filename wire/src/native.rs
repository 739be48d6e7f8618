//! The native protocol's outer layer, shared by clients and servers.
//!
//! A client connects and sends a [preface](PREFACE_BYTES): `ORDINATE | version: u32 | token_bytes: u32`, and so many bytes of its token
//! if it has one (hosts of before there were tokens take none); the server answers alike, without a token, with the version it will speak, or with version 0 if it turns the client away: then the last word is the length of
//! a text that follows and says why. Frames follow both ways:
//! `length: u32 | crc32c: u32 | body`; a body is a row of `length: u32 | message`. All integers are little-endian.

/// The newest version.
pub const VERSION: u32 = 1;
/// The length of the preface.
pub const PREFACE_BYTES: usize = 16;
/// The largest body of a frame that a client accepts.
pub const BODY_BYTES_MAX: usize = kernel::bounds::CLIENT_FRAME_BYTES_MAX;

const MAGIC: &[u8; 8] = b"ORDINATE";

/// The preface of a version.
pub fn preface(version: u32) -> [u8; PREFACE_BYTES] {
    let mut preface = [0; PREFACE_BYTES];
    preface[..8].copy_from_slice(MAGIC);
    preface[8..12].copy_from_slice(&version.to_le_bytes());
    preface
}

/// The longest token.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// A preface with a token behind it.
pub fn preface_with_token(version: u32, token: &str) -> Vec<u8> {
    let mut preface = preface(version);
    preface[12..].copy_from_slice(&(token.len() as u32).to_le_bytes());
    [&preface, token.as_bytes()].concat()
}

/// The length of the token that follows a client's preface.
pub fn token_bytes(preface: &[u8; PREFACE_BYTES]) -> usize {
    let [.., a, b, c, d] = *preface;
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// The longest text of a refusal.
pub const REFUSAL_BYTES_MAX: usize = 1024;

/// A preface of version 0 that says why; what exceeds [`REFUSAL_BYTES_MAX`] is truncated.
pub fn refusal(why: &str) -> Vec<u8> {
    let why = &why[..why.floor_char_boundary(REFUSAL_BYTES_MAX)];
    let mut preface = preface(0);
    preface[12..].copy_from_slice(&(why.len() as u32).to_le_bytes());
    [&preface, why.as_bytes()].concat()
}

/// The length of the text that follows a preface of version 0.
pub fn refusal_bytes(preface: &[u8; PREFACE_BYTES]) -> usize {
    let [.., a, b, c, d] = *preface;
    (u32::from_le_bytes([a, b, c, d]) as usize).min(REFUSAL_BYTES_MAX)
}

/// True of what comes from a host and begins as a preface does. No frame does: its length would be too large.
pub fn begins_as_preface(input: &[u8]) -> bool {
    !input.is_empty() && MAGIC.starts_with(&input[..input.len().min(MAGIC.len())])
}

/// The version of a preface; none if it is not one.
pub fn version_of(preface: &[u8; PREFACE_BYTES]) -> Option<u32> {
    let (magic, rest) = preface.split_first_chunk::<8>()?;
    let (version, _) = rest.split_first_chunk::<4>()?;
    (magic == MAGIC).then_some(u32::from_le_bytes(*version))
}
