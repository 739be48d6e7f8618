//! What a certificate says of whom it is of, and until when it is good.

use crate::services::coordination::subject;
use std::net::IpAddr;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The names in a certificate in DER: its subject, its common name, and its alternative names. None that can be read: none.
pub fn of(certificate: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = subject::of(certificate).into_iter().collect();
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return names };
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.extend(common.map(str::to_owned));
    names.extend(alternatives_of(&certificate));
    names
}

/// The alternative names of a certificate in DER: what it is good for when it is dialled.
pub fn alternatives(certificate: &[u8]) -> Vec<String> {
    X509Certificate::from_der(certificate).map_or_else(|_| Vec::new(), |(_, it)| alternatives_of(&it))
}

fn alternatives_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(found)) = certificate.subject_alternative_name() else { return Vec::new() };
    found.value.general_names.iter().filter_map(alternative).collect()
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from);
            four.or_else(|| <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from)).map(|it| it.to_string())
        }
        // Nobody names a client so.
        _ => None,
    }
}

/// Whether a certificate in DER is good for who is called, which a client's is not. One that names no purpose is good for all.
pub fn is_for_servers(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    certificate
        .extended_key_usage()
        .ok()
        .flatten()
        .is_none_or(|found| found.value.server_auth || found.value.any)
}

/// When a certificate in DER ends, in seconds since 1970.
pub fn ends_at(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
