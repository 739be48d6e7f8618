//! How a client shows who it is: a certificate, a token, both, or neither.

use crate::tls::Tls;

/// By what a client is known. [`Tls`] becomes one.
#[derive(Clone, Default, Debug)]
pub struct Credentials {
    /// TLS, with the client's certificate.
    pub tls: Option<Tls>,
    /// A token, which hosts with access control know. Without TLS it can be overheard.
    pub token: Option<AccessToken>,
}

/// A token; it is not shown when it is debugged.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl AccessToken {
    /// Of what `ordinate access token` has printed.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessToken")
    }
}

impl From<Tls> for Credentials {
    fn from(tls: Tls) -> Self {
        Self { tls: Some(tls), token: None }
    }
}
