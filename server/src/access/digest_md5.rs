//! DIGEST-MD5 (RFC 2831) as ZooKeeper's clients speak it, the host's side. Old and weak, and the only scheme that they all have: use it
//! under TLS.

use super::scram::{ProvenUser, Unproven};
use super::secrets::{DigestSecret, REALM, SECRET_BYTES_MAX, hex, random, same};
use md5::{Digest as _, Md5};
use std::collections::BTreeMap;

/// A login after the challenge was sent.
#[derive(Debug)]
pub struct DigestLogin {
    nonce: String,
}

impl DigestLogin {
    /// The challenge for a client that begins.
    pub fn begin() -> Result<(Self, Vec<u8>), Unproven> {
        let nonce = hex(&random::<16>().map_err(|_| Unproven)?);
        let challenge =
            format!("realm=\"{REALM}\",nonce=\"{nonce}\",qop=\"auth\",charset=utf-8,algorithm=md5-sess");
        Ok((Self { nonce }, challenge.into_bytes()))
    }

    /// Takes the client's response; `secret_of` knows what is stored of users.
    pub fn finish(
        self,
        response: &[u8],
        secret_of: impl FnOnce(&str) -> Option<DigestSecret>,
    ) -> Result<ProvenUser, Unproven> {
        if response.len() > 4 * SECRET_BYTES_MAX {
            return Err(Unproven);
        }
        let fields = fields_of(std::str::from_utf8(response).map_err(|_| Unproven)?).ok_or(Unproven)?;
        let field = |name: &str| fields.get(name).map(String::as_str).ok_or(Unproven);
        let (user, cnonce, count) = (field("username")?, field("cnonce")?, field("nc")?);
        let (uri, theirs) = (field("digest-uri")?, field("response")?);
        let is_ours = field("nonce")? == self.nonce
            && fields.get("realm").is_none_or(|realm| realm == REALM)
            && fields.get("qop").is_none_or(|qop| qop == "auth");
        let secret = secret_of(user);
        let stored = secret.map_or([0; 16], |secret| secret.0);
        let session = [&stored[..], format!(":{}:{cnonce}", self.nonce).as_bytes()].concat();
        let session = match fields.get("authzid") {
            None => session,
            Some(authzid) if authzid == user || authzid.is_empty() => {
                [&session[..], format!(":{authzid}").as_bytes()].concat()
            }
            // Nobody acts for another.
            Some(_) => return Err(Unproven),
        };
        let of = |method: &str| {
            let one = hex(&Md5::digest(&session));
            let two = hex(&Md5::digest(format!("{method}:{uri}").as_bytes()));
            hex(&Md5::digest(format!("{one}:{}:{count}:{cnonce}:auth:{two}", self.nonce).as_bytes()))
        };
        let is_proven = same(of("AUTHENTICATE").as_bytes(), theirs.to_lowercase().as_bytes());
        if !(is_ours && is_proven && secret.is_some()) {
            return Err(Unproven);
        }
        Ok(ProvenUser { user: user.to_owned(), answer: format!("rspauth={}", of("")).into_bytes() })
    }
}

/// Fields more than a response has.
const FIELDS_MAX: usize = 32;

/// `name=value` and `name="value"` between commas; in quotes, a backslash stands before what is meant as it is.
fn fields_of(text: &str) -> Option<BTreeMap<String, String>> {
    let (mut fields, mut rest) = (BTreeMap::new(), text.trim_start());
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = if behind.starts_with('"') {
            chars.next();
            loop {
                match chars.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => value.push(chars.next()?.1),
                    (_, other) => value.push(other),
                }
            }
        } else {
            let end = behind.find(',').unwrap_or(behind.len());
            value.push_str(behind[..end].trim());
            end
        };
        // A name that comes twice is somebody's trick.
        if fields.len() == FIELDS_MAX || fields.insert(name.trim().to_lowercase(), value).is_some() {
            return None;
        }
        rest = behind[end..].trim_start().trim_start_matches(',').trim_start();
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of RFC 2831, section 4: another digest locks all clients out.
    #[test]
    fn the_digest_is_the_rfcs() {
        let response = "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",\
            nonce=\"OA6MG9tEQGm2hh\",nc=00000001,cnonce=\"OA6MHXh6VqTrRk\",digest-uri=\"imap/elwood.innosoft.com\",\
            response=d388dad90d4bbd760a152321f2143af7,qop=auth";
        let response = response.replace("elwood.innosoft.com\",nonce", "ordinate\",nonce");
        // The realm is ours: the secret is the one of theirs, which is all that the digest sees of it.
        let secret = DigestSecret(Md5::digest(b"chris:elwood.innosoft.com:secret").into());
        let login = DigestLogin { nonce: "OA6MG9tEQGm2hh".to_owned() };
        let proven = login.finish(response.as_bytes(), |user| (user == "chris").then_some(secret));
        let answer = "rspauth=ea40f60335c427b5527b84dbabcdfffd".into();
        assert_eq!(proven, Ok(ProvenUser { user: "chris".to_owned(), answer }));
    }

    // A digest for another nonce is one that somebody has overheard.
    #[test]
    fn what_is_overheard_or_noise_is_refused() {
        let secret = |_: &str| Some(DigestSecret::of("u", "p"));
        for noise in [
            "",
            "username=\"u\"",
            "username=\"u",
            "a=1,a=2",
            "username=\"u\",nonce=\"x\",cnonce=\"c\",nc=00000001,digest-uri=\"z/z\",response=00",
        ] {
            let (login, _) = DigestLogin::begin().expect("the system is random");
            assert_eq!(login.finish(noise.as_bytes(), secret), Err(Unproven), "{noise}");
        }
        assert_eq!(fields_of("a=\"x\\\"y\",b=z").map(|it| it["a"].clone()), Some("x\"y".to_owned()));
        let (login, _) = DigestLogin::begin().expect("the system is random");
        assert_eq!(login.finish(&[0xff], secret), Err(Unproven));
    }
}
