//! TLS by rustls: certificates and keys from PEM files, checked when they are loaded.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Where a side's certificate, its key, and the authorities it trusts are stored, as PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate chain, leaf first. Names the host (subject alternative name).
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authorities whose certificates the other side must have.
    pub authorities: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or holds no such thing.
    #[error("cannot use {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// Certificate and key do not fit, or an authority cannot be used.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// TLS between hosts: both sides show a certificate of the cluster's authority, with the host's name.
///
/// Who calls must show what would be accepted of the host that it says it is, if that one were called: a certificate of a client is none of
/// a host, whatever its name.
///
/// Cheap to clone; all clones are one, and follow [`Self::reload`].
#[derive(Clone)]
pub struct PeerTls {
    client: Arc<RwLock<Arc<ClientConfig>>>,
    server: ServerTls,
    hosts: Arc<RwLock<Arc<WebPkiServerVerifier>>>,
}

/// TLS on a port for clients. Cheap to clone; all clones are one, and follow [`Self::reload`]: connections that are open go on as
/// they began.
#[derive(Clone)]
pub struct ServerTls(Arc<RwLock<Arc<ServerConfig>>>);

/// Whether clients must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// One of the authorities' must be shown.
    Required,
    /// None is asked for.
    NotAsked,
}

impl PeerTls {
    /// Reads the files of one host.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let server = ServerTls::load(files, ClientCertificates::Required)?;
        let client = Arc::new(RwLock::new(client_config(files)?));
        Ok(Self { client, server, hosts: Arc::new(RwLock::new(hosts_of(files)?)) })
    }

    /// Reads the files again, for connections from now on; after an error all is as before.
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        let (client, hosts) = (client_config(files)?, hosts_of(files)?);
        self.server.reload(files, ClientCertificates::Required)?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        *self.hosts.write().unwrap_or_else(PoisonError::into_inner) = hosts;
        Ok(())
    }

    /// Whether who shows these certificates, its own first, is the host `name`.
    pub(crate) fn is_host(&self, name: &str, shown: &[CertificateDer<'_>]) -> Result<(), String> {
        let refused = |why: String| format!("the caller shows no certificate of host {name}: {why}");
        let server = ServerName::try_from(name.to_owned()).map_err(|error| refused(error.to_string()))?;
        let Some((own, others)) = shown.split_first() else { return Err(refused("none at all".to_owned())) };
        let hosts = Arc::clone(&self.hosts.read().unwrap_or_else(PoisonError::into_inner));
        let verdict = hosts.verify_server_cert(own, others, &server, &[], UnixTime::now());
        verdict.map(drop).map_err(|error| refused(error.to_string()))
    }

    pub(crate) fn connect(&self, host: &str) -> Result<Connection, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let config = Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner));
        let client = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        Ok(client.into())
    }

    pub(crate) fn accept(&self) -> Result<Connection, String> {
        self.server.accept()
    }
}

fn hosts_of(files: &TlsFiles) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let roots = Arc::new(authorities(&files.authorities)?);
    WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(setup)
}

fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup)?
        .with_root_certificates(authorities(&files.authorities)?)
        .with_client_auth_cert(certificates(&files.certificates)?, key(&files.key)?)
        .map_err(setup)?;
    Ok(Arc::new(config))
}

impl ServerTls {
    /// Reads the files of one port.
    pub fn load(files: &TlsFiles, clients: ClientCertificates) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(RwLock::new(server_config(files, clients)?))))
    }

    /// Reads the files again, for connections from now on; after an error all is as before.
    pub fn reload(&self, files: &TlsFiles, clients: ClientCertificates) -> Result<(), TlsError> {
        let config = server_config(files, clients)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// For ports that are served by others: what holds now.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn accept(&self) -> Result<Connection, String> {
        Ok(ServerConnection::new(self.config()).map_err(|error| error.to_string())?.into())
    }
}

fn server_config(files: &TlsFiles, clients: ClientCertificates) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup)?;
    let builder = match clients {
        ClientCertificates::Required => {
            let roots = Arc::new(authorities(&files.authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(setup)?)
        }
        ClientCertificates::NotAsked => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_single_cert(certificates(&files.certificates)?, key(&files.key)?).map_err(setup)?;
    // No early data, and no tickets: links live long, and ticket state would be a table without an owner.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The only function that names the cryptography in use.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(certificates) if certificates.is_empty() => Err(file(path, "no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(file(path, error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| file(path, error))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| file(path, error))?;
    }
    Ok(roots)
}

fn file(path: &Path, cause: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), cause: cause.to_string() }
}

fn setup(error: impl ToString) -> TlsError {
    TlsError::Setup(error.to_string())
}
