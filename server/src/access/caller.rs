//! Somebody at a port: what has been proven of who it is, and whether it may do what it asks.

use super::digest_md5::DigestLogin;
use super::grants::Need;
use super::policy::{KnownIdentity, Policy, Proof};
use super::scram::{ProvenUser, ScramLogin, Unproven};
use super::secrets::{SECRET_BYTES_MAX, TokenHash};
use super::{Access, ActiveAccess, names};
use std::net::IpAddr;
use std::sync::Arc;

/// Proofs of one connection; a client that brings more is refused the next.
const PROOFS_MAX: usize = 16;

/// Somebody at a port. While access control is off, it may do everything and costs nothing.
#[derive(Debug)]
pub struct PortCaller(Option<Box<Known>>);

#[derive(Debug)]
struct Known {
    active: Arc<ActiveAccess>,
    port: &'static str,
    address: IpAddr,
    proofs: Vec<Proof>,
    /// The policy that `identities` are of.
    policy: Arc<Policy>,
    version: u64,
    identities: Vec<Arc<KnownIdentity>>,
}

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Nobody knows who asks.
    Unknown,
    /// It is known, and was not granted this.
    NotGranted,
}

impl Denied {
    /// For metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotGranted => "not_granted",
        }
    }
}

impl PortCaller {
    /// Somebody who may do everything: access control is off.
    pub const fn unchecked() -> Self {
        Self(None)
    }

    /// Somebody of whom nothing is known yet.
    pub fn at(access: &Access, port: &'static str, address: IpAddr) -> Self {
        Self(access.active().map(|active| {
            let (policy, version) = active.policy();
            let active = Arc::clone(active);
            let (proofs, identities) = (Vec::new(), Vec::new());
            Box::new(Known { active, port, address, proofs, policy, version, identities })
        }))
    }

    /// Whether access control is on.
    pub const fn is_checked(&self) -> bool {
        self.0.is_some()
    }

    /// Its certificate, which the authority has signed, in DER. Unknown names prove nothing, and are no failure.
    pub fn show(&mut self, certificate: Option<&[u8]>) {
        if let (Some(known), Some(certificate)) = (&mut self.0, certificate) {
            known.prove(Proof::Certificate(names::of(certificate)));
        }
    }

    /// A token; the name of whom it proves.
    pub fn log_in_by_token(&mut self, token: &str) -> Result<String, Unproven> {
        let Some(known) = &mut self.0 else { return Ok(String::new()) };
        let proof = (token.len() <= SECRET_BYTES_MAX).then(|| Proof::Token(TokenHash::of(token)));
        known.log_in("a token", proof)
    }

    /// A name with a password or a token.
    pub fn log_in(&mut self, name: &str, secret: &str) -> Result<String, Unproven> {
        let Some(known) = &mut self.0 else { return Ok(String::new()) };
        known.refresh();
        if secret.len() > SECRET_BYTES_MAX {
            return known.log_in(name, None);
        }
        let by_token = Proof::Token(TokenHash::of(secret));
        if known.policy.known_by(&by_token).is_some_and(|it| it.name == name) {
            return known.log_in(name, Some(by_token));
        }
        let keys = known.policy.identity(name).and_then(|it| it.password());
        let proof =
            keys.filter(|keys| keys.is_of(secret)).map(|keys| Proof::Password(name.to_owned(), keys.clone()));
        known.log_in(name, proof)
    }

    /// A name with a token that may be meant for somebody else than us: it proves who has it, and is no failure otherwise.
    pub fn show_token(&mut self, name: &str, token: &str) {
        let Some(known) = &mut self.0 else { return };
        known.refresh();
        let proof = Proof::Token(TokenHash::of(token));
        if token.len() <= SECRET_BYTES_MAX && known.policy.known_by(&proof).is_some_and(|it| it.name == name)
        {
            known.prove(proof);
        }
    }

    /// Begins SCRAM; what the client is sent.
    pub fn begin_scram(&mut self, message: &[u8]) -> Result<(ScramLogin, Vec<u8>), Unproven> {
        let known = self.0.as_mut().ok_or(Unproven)?;
        known.refresh();
        let policy = Arc::clone(&known.policy);
        let begun = ScramLogin::begin(message, |name| policy.identity(name)?.password().cloned());
        begun.inspect_err(|Unproven| known.active.refusals.failed(known.port, known.address, "SCRAM"))
    }

    /// Ends it.
    pub fn finish_scram(&mut self, login: ScramLogin, message: &[u8]) -> Result<ProvenUser, Unproven> {
        let known = self.0.as_mut().ok_or(Unproven)?;
        let keys = login.keys().clone();
        let outcome = login.finish(message);
        let proof = outcome.as_ref().ok().map(|it| Proof::Password(it.user.clone(), keys));
        known.log_in("SCRAM", proof)?;
        outcome
    }

    /// Ends a login by DIGEST-MD5.
    pub fn finish_digest(&mut self, login: DigestLogin, response: &[u8]) -> Result<ProvenUser, Unproven> {
        let known = self.0.as_mut().ok_or(Unproven)?;
        known.refresh();
        let mut found = None;
        let policy = Arc::clone(&known.policy);
        let outcome = login.finish(response, |name| {
            found = policy.identity(name).and_then(|it| it.digest());
            found
        });
        let proof = outcome.as_ref().ok().and_then(|it| Some(Proof::Digest(it.user.clone(), found?)));
        known.log_in("DIGEST-MD5", proof)?;
        outcome
    }

    /// Whether it may; a refusal is counted and logged.
    pub fn may(&mut self, need: Need<'_>) -> bool {
        self.check(need).is_ok()
    }

    /// The same, with what is missing.
    pub fn check(&mut self, need: Need<'_>) -> Result<(), Denied> {
        let Some(known) = &mut self.0 else { return Ok(()) };
        known.check(need).inspect_err(|denied| {
            let Known { active, port, address, .. } = &**known;
            active.refusals.refused(port, *address, &known.name(), &need, *denied);
        })
    }

    /// Whether it may, without a trace: for what is left out of a list.
    pub fn would_be_allowed(&mut self, need: Need<'_>) -> bool {
        self.0.as_mut().is_none_or(|known| known.check(need).is_ok())
    }

    /// Who it is, for people.
    pub fn name(&self) -> String {
        self.0.as_ref().map_or_else(|| "anyone".to_owned(), |known| known.name())
    }

    /// Whether it is known at all.
    pub fn is_known(&mut self) -> bool {
        self.0.as_mut().is_none_or(|known| {
            known.refresh();
            !known.identities.is_empty()
        })
    }
}

impl Known {
    fn prove(&mut self, proof: Proof) {
        if self.proofs.len() < PROOFS_MAX && !self.proofs.contains(&proof) {
            self.proofs.push(proof);
            self.look_up();
        }
    }

    /// Takes a proof over if it proves somebody; `by`: what was tried.
    fn log_in(&mut self, by: &str, proof: Option<Proof>) -> Result<String, Unproven> {
        self.refresh();
        let found = proof.as_ref().and_then(|proof| self.policy.known_by(proof));
        match (proof, found) {
            (Some(proof), Some(identity)) => {
                self.prove(proof);
                Ok(identity.name.clone())
            }
            _ => {
                self.active.refusals.failed(self.port, self.address, by);
                Err(Unproven)
            }
        }
    }

    /// Follows the file: what was granted or proven before may not be any more.
    fn refresh(&mut self) {
        if self.version != self.active.version() {
            (self.policy, self.version) = self.active.policy();
            self.look_up();
        }
    }

    fn look_up(&mut self) {
        self.identities = self.proofs.iter().filter_map(|proof| self.policy.known_by(proof)).collect();
    }

    fn check(&mut self, need: Need<'_>) -> Result<(), Denied> {
        self.refresh();
        if self.identities.iter().any(|it| it.may(&need)) || self.policy.is_for_anyone(&need) {
            return Ok(());
        }
        Err(if self.identities.is_empty() { Denied::Unknown } else { Denied::NotGranted })
    }

    fn name(&self) -> String {
        let names: Vec<&str> = self.identities.iter().map(|it| it.name.as_str()).collect();
        if names.is_empty() { "somebody unknown".to_owned() } else { names.join("+") }
    }
}
