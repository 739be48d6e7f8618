//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the host's side: a client proves that it has a password, and learns that the host has its keys.

use super::secrets::{HASH_BYTES, SECRET_BYTES_MAX, ScramKeys, hex, mac, random, same};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

/// A login after the client's first message.
#[derive(Debug)]
pub struct ScramLogin {
    user: String,
    /// None for a user who has no password: it goes on with made-up keys, so that nobody learns who has one.
    keys: ScramKeys,
    is_known: bool,
    nonce: String,
    /// What both sides have said so far, as the proof covers it.
    said: String,
    /// The header that the client repeats.
    header: String,
}

/// What a login came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProvenUser {
    /// Who.
    pub user: String,
    /// What the client is answered.
    pub answer: Vec<u8>,
}

/// The wrong password, or no such user, or a message that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unproven;

impl ScramLogin {
    /// Takes the client's first message; `keys_of` knows what is stored of users. The answer is what the client is sent.
    pub fn begin(
        message: &[u8],
        keys_of: impl FnOnce(&str) -> Option<ScramKeys>,
    ) -> Result<(Self, Vec<u8>), Unproven> {
        let text = text_of(message)?;
        // No channel is bound: `n` or `y`, and perhaps the name under which to act, which must be the same.
        let bare_at = text.match_indices(',').nth(1).ok_or(Unproven)?.0 + 1;
        let (header, bare) = text.split_at(bare_at);
        if !header.starts_with("n,") && !header.starts_with("y,") {
            return Err(Unproven);
        }
        let mut fields = bare.split(',');
        let user = fields.next().and_then(|field| field.strip_prefix("n=")).ok_or(Unproven)?;
        let theirs = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(Unproven)?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        let ours = random::<18>().map_err(|_| Unproven)?;
        let nonce = format!("{theirs}{}", BASE64.encode(ours));
        let known = keys_of(&user);
        let is_known = known.is_some();
        let keys = known.unwrap_or_else(|| made_up(&user));
        let answer = format!("r={nonce},s={},i={}", BASE64.encode(&keys.salt), keys.rounds);
        let (said, header) = (format!("{bare},{answer}"), header.to_owned());
        Ok((Self { user, keys, is_known, nonce, said, header }, answer.into_bytes()))
    }

    /// What its user's password is checked against.
    pub const fn keys(&self) -> &ScramKeys {
        &self.keys
    }

    /// Takes the client's proof.
    pub fn finish(self, message: &[u8]) -> Result<ProvenUser, Unproven> {
        let text = text_of(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Unproven)?;
        let mut fields = without_proof.split(',');
        let header = fields.next().and_then(|field| field.strip_prefix("c=")).ok_or(Unproven)?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(Unproven)?;
        let is_ours = header == BASE64.encode(&self.header) && nonce == self.nonce;
        let proof: [u8; HASH_BYTES] =
            BASE64.decode(proof).ok().and_then(|proof| proof.try_into().ok()).ok_or(Unproven)?;
        let said = format!("{},{without_proof}", self.said);
        let mut client_key = mac(&self.keys.stored, &[said.as_bytes()]);
        client_key.iter_mut().zip(proof).for_each(|(byte, proof)| *byte ^= proof);
        let is_proven = same(&Sha256::digest(client_key), &self.keys.stored);
        if !(is_ours && is_proven && self.is_known) {
            return Err(Unproven);
        }
        let signature = mac(&self.keys.server, &[said.as_bytes()]);
        Ok(ProvenUser { user: self.user, answer: format!("v={}", BASE64.encode(signature)).into_bytes() })
    }
}

fn text_of(message: &[u8]) -> Result<&str, Unproven> {
    if message.len() > SECRET_BYTES_MAX {
        return Err(Unproven);
    }
    std::str::from_utf8(message).map_err(|_| Unproven)
}

/// Keys that nobody has the password of; of one user they are always the same.
fn made_up(user: &str) -> ScramKeys {
    // Somebody who has read this line knows such a salt when it comes: what is hidden is hidden from idle tries only.
    let salt = mac(b"ordinate: no such user", &[user.as_bytes()])[..16].to_vec();
    let nobody = mac(hex(&salt).as_bytes(), &[b"nobody"]);
    ScramKeys { salt, rounds: 4096, stored: nobody, server: nobody }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A client's side.
    pub fn proof(password: &str, bare: &str, challenge: &str) -> Vec<u8> {
        let field =
            |name: &str| challenge.split(',').find_map(|it| it.strip_prefix(name)).expect("it is there");
        let without_proof = format!("c={},r={}", BASE64.encode("n,,"), field("r="));
        let said = format!("{bare},{challenge},{without_proof}");
        let salt = BASE64.decode(field("s=")).expect("base64");
        let mut last = mac(password.as_bytes(), &[&salt, &[0, 0, 0, 1]]);
        let mut salted = last;
        for _ in 1..field("i=").parse::<u32>().expect("a number") {
            last = mac(password.as_bytes(), &[&last]);
            salted.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
        }
        let client_key = mac(&salted, &[b"Client Key"]);
        let stored = Sha256::digest(client_key);
        let signature = mac(&stored, &[said.as_bytes()]);
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes()
    }

    fn login(user: &str, password: &str, known: Option<ScramKeys>) -> Result<ProvenUser, Unproven> {
        let bare = format!("n={user},r=abc");
        let (login, challenge) = ScramLogin::begin(format!("n,,{bare}").as_bytes(), |_| known)?;
        let challenge = String::from_utf8(challenge).expect("text");
        login.finish(&proof(password, &bare, &challenge))
    }

    // A wrong password that opens, or a right one that does not.
    #[test]
    fn only_the_password_proves_the_user() {
        let keys = ScramKeys::of("pencil").expect("the system is random");
        assert_eq!(login("u", "pencil", Some(keys.clone())).map(|it| it.user), Ok("u".to_owned()));
        assert_eq!(login("a=2Cb", "pencil", Some(keys.clone())).map(|it| it.user), Ok("a,b".to_owned()));
        assert_eq!(login("u", "crayon", Some(keys)), Err(Unproven));
        assert_eq!(login("u", "pencil", None), Err(Unproven));
    }

    // A message of a stranger must not end the host.
    #[test]
    fn noise_is_refused() {
        let keys = || ScramKeys::of("pencil").ok();
        for noise in ["", "n", "n,,", "n,,n=u", "p=tls-unique,,n=u,r=x", "n,,r=x,n=u"] {
            assert!(ScramLogin::begin(noise.as_bytes(), |_| keys()).is_err(), "{noise}");
        }
        assert!(ScramLogin::begin(&[0xff; 9], |_| keys()).is_err());
        assert!(ScramLogin::begin(&vec![b'n'; SECRET_BYTES_MAX + 1], |_| keys()).is_err());
        for noise in ["", "c=biws", "c=biws,r=abc,p=", "c=biws,r=abc,p=AAAA", ",p="] {
            let (login, _) = ScramLogin::begin(b"n,,n=u,r=abc", |_| keys()).expect("it begins");
            assert_eq!(login.finish(noise.as_bytes()), Err(Unproven), "{noise}");
        }
    }
}
