//! The access file: who there is, how each is known, and what each may do.

use super::grants::{Grant, Need};
use super::secrets::{DigestSecret, ScramKeys, TokenHash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What everybody may do who reaches a port, known or not, is granted to this name.
pub const ANYONE: &str = "anyone";
/// Longer files are refused.
const FILE_BYTES_MAX: u64 = 4 << 20;
const HEAD: &str =
    "# Who may do what: see docs/access.md. Written by `ordinate access`, which drops comments.\n\n";

/// The file as it is written.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessFile {
    /// Who there is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identity: BTreeMap<String, IdentityLines>,
    /// Grants under a name, for many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub role: BTreeMap<String, RoleLines>,
}

/// One who may log in.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityLines {
    /// Whose grants it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Names in certificates of the authority: a subject as RFC 2253 writes it, its CN, or an alternative name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Hashes of tokens; several are good at a time, so that one can follow the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<String>,
    /// What is stored of its password, for SCRAM and PLAIN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// What is stored of its password, for DIGEST-MD5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Grants under a name.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoleLines {
    /// What it grants.
    pub grants: Vec<String>,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is too long.
    #[error("it has {0} bytes, and may have {FILE_BYTES_MAX}")]
    TooLong(u64),
    /// Nothing is in it, not even a comment: somebody is about to write it.
    #[error("it is empty")]
    Empty,
    /// It is no TOML, or has a key that it should not have.
    #[error("{0}")]
    Malformed(String),
    /// What it says makes no sense.
    #[error("identity or role {name}: {why}")]
    Wrong {
        /// Whose lines.
        name: String,
        /// Why not.
        why: String,
    },
}

/// One who may log in, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownIdentity {
    /// Its name.
    pub name: String,
    /// Its own grants, and those of its roles.
    pub grants: Vec<Grant>,
    certificates: Vec<String>,
    tokens: Vec<TokenHash>,
    password: Option<ScramKeys>,
    digest: Option<DigestSecret>,
}

/// What is granted to whom.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policy {
    identities: BTreeMap<String, Arc<KnownIdentity>>,
}

/// By what somebody is known. What is stored of a secret is a part of it: when that is taken out of the file, nobody is known by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A certificate with these names.
    Certificate(Vec<String>),
    /// A token.
    Token(TokenHash),
    /// A password.
    Password(String, ScramKeys),
    /// A password, by DIGEST-MD5.
    Digest(String, DigestSecret),
}

impl AccessFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let bytes = std::fs::metadata(path)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(PolicyError::TooLong(bytes));
        }
        let text = std::fs::read_to_string(path)?;
        if text.trim().is_empty() {
            return Err(PolicyError::Empty);
        }
        toml::from_str(&text).map_err(|error| PolicyError::Malformed(error.to_string().trim().to_owned()))
    }

    /// As it is written to a file.
    pub fn text(&self) -> Result<String, PolicyError> {
        let lines =
            toml::to_string_pretty(self).map_err(|error| PolicyError::Malformed(error.to_string()))?;
        Ok(format!("{HEAD}{lines}"))
    }

    /// Checks it.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let wrong = |name: &str, why: String| PolicyError::Wrong { name: name.to_owned(), why };
        let grants = |name: &str, texts: &[String]| -> Result<Vec<Grant>, PolicyError> {
            let read = |text: &String| Grant::parse(text).map_err(|error| wrong(name, error.to_string()));
            texts.iter().map(read).collect()
        };
        let mut roles = BTreeMap::new();
        for (name, role) in &self.role {
            roles.insert(name.as_str(), grants(name, &role.grants)?);
        }
        let mut policy = Policy::default();
        for (name, lines) in &self.identity {
            if let Err(why) = check_identity_name(name) {
                return Err(wrong(name, why.to_owned()));
            }
            let mut granted = grants(name, &lines.grants)?;
            for role in &lines.roles {
                let of_role = roles
                    .get(role.as_str())
                    .ok_or_else(|| wrong(name, format!("there is no role {role}")))?;
                granted.extend(of_role.iter().cloned());
            }
            let unreadable = |what: &str| wrong(name, format!("what is stored of its {what} cannot be read"));
            let token = |text: &String| TokenHash::parse(text).ok_or_else(|| unreadable("tokens"));
            let (password, digest) = (lines.password.as_deref(), lines.digest.as_deref());
            let known = KnownIdentity {
                name: name.clone(),
                grants: granted,
                certificates: lines.certificates.clone(),
                tokens: lines.tokens.iter().map(token).collect::<Result<_, _>>()?,
                password: password
                    .map(|text| ScramKeys::parse(text).ok_or_else(|| unreadable("password")))
                    .transpose()?,
                digest: digest
                    .map(|text| DigestSecret::parse(text).ok_or_else(|| unreadable("digest")))
                    .transpose()?,
            };
            policy.add(known).map_err(|why| wrong(name, why))?;
        }
        Ok(policy)
    }
}

/// Whether an identity may be called so: it stands in logs, in headers, and between the commas of SASL.
pub fn check_identity_name(name: &str) -> Result<(), &'static str> {
    let sound = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte));
    if sound && (1..=64).contains(&name.len()) {
        Ok(())
    } else {
        Err("a name has 1 to 64 letters, digits, dots, hyphens, underscores and at-signs")
    }
}

impl Policy {
    /// Nothing may prove two identities: whose grants would hold?
    fn add(&mut self, known: KnownIdentity) -> Result<(), String> {
        for other in self.identities.values() {
            let of_both = known.certificates.iter().find(|name| other.certificates.contains(name));
            if let Some(name) = of_both {
                return Err(format!("{} is known by the certificate {name}, too", other.name));
            }
            if known.tokens.iter().any(|token| other.tokens.contains(token)) {
                return Err(format!("{} has the same token", other.name));
            }
        }
        let by_secret = !known.tokens.is_empty() || known.password.is_some() || known.digest.is_some();
        if known.name == ANYONE && (by_secret || !known.certificates.is_empty()) {
            return Err("it stands for everybody, and needs no proof".to_owned());
        }
        self.identities.insert(known.name.clone(), Arc::new(known));
        Ok(())
    }

    /// Who has this proof.
    pub fn known_by(&self, proof: &Proof) -> Option<Arc<KnownIdentity>> {
        let found = match proof {
            Proof::Certificate(names) => self
                .identities
                .values()
                .find(|it| it.certificates.iter().any(|certificate| names.contains(certificate))),
            Proof::Token(hash) => self.identities.values().find(|it| it.tokens.contains(hash)),
            Proof::Password(name, keys) => {
                self.identities.get(name).filter(|it| it.password.as_ref() == Some(keys))
            }
            Proof::Digest(name, secret) => self.identities.get(name).filter(|it| it.digest == Some(*secret)),
        };
        found.cloned()
    }

    /// One of its identities.
    pub fn identity(&self, name: &str) -> Option<&KnownIdentity> {
        self.identities.get(name).map(|identity| &**identity)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.identities.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Whether everybody may do it, known or not.
    pub fn is_for_anyone(&self, need: &Need<'_>) -> bool {
        self.identity(ANYONE).is_some_and(|anyone| anyone.may(need))
    }
}

impl KnownIdentity {
    /// Whether something that it is granted covers what is needed.
    pub fn may(&self, need: &Need<'_>) -> bool {
        self.grants.iter().any(|grant| grant.covers(need))
    }

    /// What is stored of its password.
    pub fn password(&self) -> Option<&ScramKeys> {
        self.password.as_ref()
    }

    /// The same, for DIGEST-MD5.
    pub fn digest(&self) -> Option<DigestSecret> {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::grants::{Area, Right};

    fn policy(text: &str) -> Result<Policy, String> {
        let file: AccessFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.policy().map_err(|error| error.to_string())
    }

    // A role that grants nothing, or grants to somebody who does not have it.
    #[test]
    fn grants_come_from_roles_and_from_an_identitys_own_lines() {
        let text = "[identity.a]\nroles = [\"r\"]\ngrants = [\"read log x\"]\ncertificates = [\"CN=a\"]\n\
                    [identity.b]\n[identity.anyone]\ngrants = [\"read kv public/*\"]\n\
                    [role.r]\ngrants = [\"write kv a/*\"]\n";
        let policy = policy(text).expect("it is sound");
        let a = policy.known_by(&Proof::Certificate(vec!["x".into(), "CN=a".into()])).expect("it is known");
        let write = Need::of(Right::Write, Area::Kv, b"a/1");
        assert!(a.may(&write) && a.may(&Need::of(Right::Read, Area::Log, b"x")));
        assert!(!policy.identity("b").expect("it is there").may(&write) && !policy.is_for_anyone(&write));
        assert!(policy.is_for_anyone(&Need::of(Right::Read, Area::Kv, b"public/x")));
        assert!(policy.known_by(&Proof::Token(TokenHash::of("x"))).is_none());
    }

    // A file with a mistake that is used as far as it goes lets somebody in, or locks somebody out.
    #[test]
    fn mistakes_are_named() {
        let hash = TokenHash::of("t");
        let twice = format!("[identity.a]\ntokens = [\"{hash}\"]\n[identity.b]\ntokens = [\"{hash}\"]\n");
        for (text, named) in [
            ("[identity.a]\nroles = [\"r\"]\n", "no role r"),
            ("[identity.a]\ngrants = [\"see kv *\"]\n", "no right"),
            ("[identity.a]\ntokens = [\"secret\"]\n", "tokens cannot be read"),
            ("[identity.a]\npassword = \"secret\"\n", "password cannot be read"),
            ("[identity.\"a b\"]\n", "a name has"),
            ("[identity.a]\nsecret = \"x\"\n", "unknown field"),
            ("[identity.a]\ncertificates = [\"c\"]\n[identity.b]\ncertificates = [\"c\"]\n", "too"),
            ("[identity.anyone]\ncertificates = [\"c\"]\n", "needs no proof"),
            (&twice, "the same token"),
        ] {
            let error = policy(text).expect_err("it is wrong");
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    // A file that is written otherwise than it is read loses somebody.
    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut file = AccessFile::default();
        let lines = IdentityLines { grants: vec!["read kv *".into()], ..IdentityLines::default() };
        file.identity.insert("a@b".into(), lines);
        file.role.insert("r".into(), RoleLines { grants: vec!["all log *".into()] });
        let text = file.text().expect("it can be written");
        assert_eq!(toml::from_str::<AccessFile>(&text).expect("it is TOML"), file);
    }
}
