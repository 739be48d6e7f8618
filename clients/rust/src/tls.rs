//! TLS of a client: the authority it trusts, the certificate it shows.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

/// Certificates in PEM files, as `ordinate tls init` makes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The authority that signed the hosts' certificates.
    pub ca: PathBuf,
    /// The client's certificate.
    pub cert: PathBuf,
    /// The client's private key.
    pub key: PathBuf,
}

/// A TLS file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub cause: String,
}

/// TLS 1.3 with certificates of both sides, ready for use. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&files.ca)? {
            roots.add(authority).map_err(|error| failed(&files.ca, error))?;
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failed(&files.key, error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| failed(&files.cert, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&files.cert)?, key)
            .map_err(|error| failed(&files.cert, error))?;
        Ok(Self(Arc::new(config)))
    }

    /// The handshake; `endpoint` is `name:port`, and the name must be in the host's certificate.
    pub(crate) async fn greet(&self, endpoint: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::clone(&self.0)).connect(name_of(endpoint)?, stream).await
    }

    /// The same for a socket that blocks: the handshake begins with the first byte.
    pub fn blocking(
        &self,
        endpoint: &str,
        stream: std::net::TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, std::net::TcpStream>> {
        let connection = ClientConnection::new(Arc::clone(&self.0), name_of(endpoint)?);
        Ok(StreamOwned::new(connection.map_err(io::Error::other)?, stream))
    }
}

/// The name or address in `name:port`.
fn name_of(endpoint: &str) -> io::Result<ServerName<'static>> {
    let name = endpoint.rsplit_once(':').map_or(endpoint, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(name).map_err(io::Error::other)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(certificates) if certificates.is_empty() => Err(failed(path, "no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(failed(path, error)),
    }
}

fn failed(path: &Path, cause: impl ToString) -> TlsError {
    TlsError { path: path.to_owned(), cause: cause.to_string() }
}
