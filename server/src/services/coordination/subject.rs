//! The subject of a certificate as ZooKeeper's x509 scheme names it: RFC 2253, the last part of the name first.

/// One element of DER: its tag, its content, and what follows.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count > 4 {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(count)?;
        (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
/// The version of a certificate, which old ones do not have.
const VERSION: u8 = 0xa0;

/// The subject of a certificate in DER; none if it cannot be read, or is empty.
pub fn of(certificate: &[u8]) -> Option<String> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, signed, _) = element(certificate)? else { return None };
    let mut rest = signed;
    if let Some((VERSION, _, behind)) = element(rest) {
        rest = behind;
    }
    // Serial number, signature, issuer, validity.
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (SEQUENCE, mut name, _) = element(rest)? else { return None };
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (SET, set, behind) = element(name)? else { return None };
        parts.push(part(set)?);
        name = behind;
    }
    parts.reverse();
    Some(parts.join(",")).filter(|subject| !subject.is_empty())
}

/// One part of a name; some have several values.
fn part(mut set: &[u8]) -> Option<String> {
    let mut values = Vec::new();
    while !set.is_empty() {
        let (SEQUENCE, pair, behind) = element(set)? else { return None };
        let (OID, kind, value) = element(pair)? else { return None };
        let (tag, content, _) = element(value)?;
        values.push(match (keyword(kind), text(tag, content)) {
            (Some(keyword), Some(text)) => format!("{keyword}={}", escaped(&text)),
            _ => {
                let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{}=#{hex}", dotted(kind)?)
            }
        });
        set = behind;
    }
    Some(values.join("+"))
}

/// The keywords of RFC 2253; other kinds are written by their numbers.
fn keyword(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01] => "UID",
        _ => return None,
    })
}

fn text(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        // UTF-8, printable, IA5.
        0x0c | 0x13 | 0x16 => String::from_utf8(content.to_vec()).ok(),
        // Teletex, read as Latin-1.
        0x14 => Some(content.iter().map(|&byte| char::from(byte)).collect()),
        // Two bytes a letter.
        0x1e => {
            let units: Vec<u16> =
                content.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, letter) in text.chars().enumerate() {
        let needs = matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';')
            || (at == 0 && matches!(letter, '#' | ' '))
            || (at == last && letter == ' ');
        if needs {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn dotted(kind: &[u8]) -> Option<String> {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    for &byte in kind {
        number = number.checked_shl(7)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let (first, rest) = numbers.split_first()?;
    let root = (first / 40).min(2);
    let whole = [root, first - 40 * root].into_iter().chain(rest.iter().copied());
    Some(whole.map(|number| number.to_string()).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::of;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        parts.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    // A name that is written otherwise than ZooKeeper writes it locks its owner out of data that were brought along.
    #[test]
    fn subjects_are_written_as_javas() {
        let parts = [
            (DnType::CountryName, "CH"),
            (DnType::OrganizationName, "Acme, \"Ltd\""),
            (DnType::OrganizationalUnitName, "#1 "),
            (DnType::CommonName, "Zoë"),
        ];
        assert_eq!(of(&certificate(&parts)).as_deref(), Some("CN=Zoë,OU=\\#1\\ ,O=Acme\\, \\\"Ltd\\\",C=CH"));
        let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        assert_eq!(
            of(&certificate(&[(DnType::CommonName, "a"), (email, "x@y")])).as_deref(),
            Some("1.2.840.113549.1.9.1=#0c03784079,CN=a")
        );
        assert_eq!(of(&certificate(&[])), None);
    }

    // What a stranger sends as a certificate was checked by then; reading it must end all the same.
    #[test]
    fn what_is_no_certificate_has_no_subject() {
        let whole = certificate(&[(DnType::CommonName, "client")]);
        assert_eq!(of(&whole).as_deref(), Some("CN=client"));
        for length in 0..whole.len() {
            let _ = of(&whole[..length]);
        }
        for at in 0..whole.len().min(200) {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = of(&changed);
        }
    }
}
