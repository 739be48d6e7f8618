//! Clients under TLS, with the certificates that `ordinate tls init` makes.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// A connection under TLS.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Connects as the client of this folder; hands are shaken with the first byte.
pub fn connect(address: SocketAddr, folder: &Path) -> io::Result<Secured> {
    connect_as(address, folder, "client")
}

/// The same with another certificate of it.
pub fn connect_as(address: SocketAddr, folder: &Path, name: &str) -> io::Result<Secured> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("ca.pem")).expect("it was made");
    roots.add(authority).expect("it is sound");
    let chain = CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).expect("it was made");
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).expect("it was made");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has all of them")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain], key)
        .expect("they fit");
    let server = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(Arc::new(config), server).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(StreamOwned::new(connection, stream))
}
