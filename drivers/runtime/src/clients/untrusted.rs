//! Why a client did not get through TLS.

use crate::front_end::CloseReason;
use rustls::{CertificateError, Error};
use std::io;

/// The reason in words that the client's operator can act on.
pub(super) fn reason_of(error: &io::Error) -> CloseReason {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    CloseReason(match cause {
        Some(Error::InvalidMessage(_)) => "it speaks without TLS, at a port with TLS",
        Some(Error::NoCertificatesPresented) => "it shows no certificate, at a port with TLS",
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has ended",
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "its certificate is of another authority"
        }
        Some(Error::InvalidCertificate(_)) => "its certificate is not accepted",
        Some(Error::PeerIncompatible(_)) => "it speaks no TLS 1.3",
        Some(Error::AlertReceived(_)) => "it does not accept this host's certificate",
        Some(_) | None => "no TLS that can be accepted",
    })
}
