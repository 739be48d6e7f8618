//! Who may do what: access control lists, the identities of a caller, and how one is held against the other.

use crate::wire::{Code, JuteInput, JuteOutput, Malformed};
use std::borrow::Cow;
use std::net::IpAddr;

/// What may be allowed; the bits of ZooKeeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission(pub i32);

impl Permission {
    /// Read data, list children.
    pub const READ: Self = Self(1);
    /// Write data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Change the list.
    pub const ADMIN: Self = Self(16);
    /// Read, or change the list.
    pub const READ_OR_ADMIN: Self = Self(17);
}

/// Somebody, in the words of a scheme.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// How it was established: `world`, `digest`, `ip`, `x509`, `sasl`, `super`.
    pub scheme: Box<str>,
    /// Who.
    pub id: Box<str>,
}

impl Identity {
    /// Somebody.
    pub fn new(scheme: &str, id: &str) -> Self {
        Self { scheme: scheme.into(), id: id.into() }
    }
}

/// One line of a list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Acl {
    /// The bits of [`Permission`].
    pub permissions: i32,
    /// To whom.
    pub who: Identity,
}

/// What everybody may do to a node that nobody protects.
pub const OPEN: i32 = 31;

/// Everybody may do everything.
pub fn is_open(acls: &[Acl]) -> bool {
    acls.is_empty() || matches!(acls, [only] if only.permissions == OPEN && is_anyone(&only.who))
}

fn is_anyone(who: &Identity) -> bool {
    &*who.scheme == "world" && &*who.id == "anyone"
}

/// Who asks: as whom it has been authenticated. Stored as it travels, because nearly no operation needs to look inside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller<'a> {
    /// Scheme and id of one after the other.
    encoded: Cow<'a, [u8]>,
}

impl Caller<'static> {
    /// Somebody with these identities.
    pub fn of(identities: &[Identity]) -> Self {
        let mut caller = Self::default();
        identities.iter().for_each(|who| caller.add(who));
        caller
    }

    /// One identity more.
    pub fn add(&mut self, who: &Identity) {
        let encoded = self.encoded.to_mut();
        encoded.put_text(&who.scheme);
        encoded.put_text(&who.id);
    }
}

impl<'a> Caller<'a> {
    /// The same, without a copy.
    pub fn borrowed(&self) -> Caller<'_> {
        Caller { encoded: Cow::Borrowed(&self.encoded) }
    }

    /// Schemes and ids.
    pub fn identities(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut input = JuteInput(&self.encoded);
        std::iter::from_fn(move || Some((input.text().ok()?, input.text().ok()?)))
    }

    fn is_super(&self) -> bool {
        self.identities().any(|(scheme, _)| scheme == "super")
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_buffer(Some(&self.encoded));
    }

    /// Reads it.
    pub fn read(input: &mut JuteInput<'a>) -> Result<Self, Malformed> {
        Ok(Self { encoded: Cow::Borrowed(input.buffer()?.unwrap_or_default()) })
    }
}

/// Whether the list allows the caller one of the bits of `permission`.
pub fn allowed(acls: &[Acl], permission: Permission, caller: &Caller<'_>) -> Result<(), Code> {
    let granted = |acl: &Acl| {
        acl.permissions & permission.0 != 0
            && (is_anyone(&acl.who) || caller.identities().any(|mine| matches(&acl.who, mine)))
    };
    let holds = is_open(acls) || caller.is_super() || acls.iter().any(granted);
    if holds { Ok(()) } else { Err(Code::NoAuth) }
}

fn matches(listed: &Identity, (scheme, id): (&str, &str)) -> bool {
    &*listed.scheme == scheme
        && if scheme == "ip" { address_matches(&listed.id, id) } else { &*listed.id == id }
}

/// An address with the number of its leading bits that count.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok())?;
    (bits <= bits_max).then_some((address, bits))
}

fn address_matches(listed: &str, mine: &str) -> bool {
    let bits_of = |address: IpAddr| match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    };
    let (Some((net, bits)), Ok(mine)) = (network(listed), mine.parse::<IpAddr>()) else { return false };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    net.is_ipv4() == mine.is_ipv4() && (bits_of(net) ^ bits_of(mine)) & mask == 0
}

/// The list as it is stored: without duplicates, `auth` replaced by who the caller is, nothing invalid, never empty.
pub fn fixed(asked: &[Acl], caller: &Caller<'_>) -> Result<Vec<Acl>, Code> {
    let mut fixed = Vec::with_capacity(asked.len());
    for (at, acl) in asked.iter().enumerate() {
        if asked[..at].contains(acl) {
            continue;
        }
        match &*acl.who.scheme {
            "auth" => {
                let proven =
                    caller.identities().filter(|(scheme, _)| matches!(*scheme, "digest" | "x509" | "sasl"));
                let before = fixed.len();
                let permissions = acl.permissions;
                fixed.extend(proven.map(|(scheme, id)| Acl { permissions, who: Identity::new(scheme, id) }));
                if fixed.len() == before {
                    return Err(Code::InvalidAcl);
                }
            }
            _ if is_valid(&acl.who) => fixed.push(acl.clone()),
            _ => return Err(Code::InvalidAcl),
        }
    }
    if fixed.is_empty() { Err(Code::InvalidAcl) } else { Ok(fixed) }
}

/// The list of a node that is restored as it is stored: what was proven elsewhere is not proven again, and schemes that nobody can
/// prove here stay, so that nobody but a superuser is let in.
pub fn plain(asked: &[Acl]) -> Result<Vec<Acl>, Code> {
    let mut plain: Vec<Acl> = Vec::with_capacity(asked.len());
    for acl in asked {
        if acl.who.scheme.is_empty() || &*acl.who.scheme == "auth" {
            return Err(Code::InvalidAcl);
        }
        if !plain.contains(acl) {
            plain.push(acl.clone());
        }
    }
    if plain.is_empty() { Err(Code::InvalidAcl) } else { Ok(plain) }
}

fn is_valid(who: &Identity) -> bool {
    match &*who.scheme {
        "world" => &*who.id == "anyone",
        "digest" => who.id.split(':').filter(|part| !part.is_empty()).count() == 2,
        "ip" => network(&who.id).is_some(),
        "x509" => who.id.contains('='),
        "sasl" => !who.id.is_empty(),
        _ => false,
    }
}

/// Reads a vector of lines; null is empty.
pub fn read_acls(input: &mut JuteInput<'_>) -> Result<Vec<Acl>, Malformed> {
    let count = input.count(12)?.unwrap_or(0);
    let mut acls = Vec::with_capacity(count);
    for _ in 0..count {
        let permissions = input.i32()?;
        acls.push(Acl { permissions, who: Identity::new(input.text()?, input.text()?) });
    }
    Ok(acls)
}

/// Appends a vector of lines.
pub fn write_acls(acls: &[Acl], out: &mut Vec<u8>) {
    out.put_count(acls.len());
    for acl in acls {
        out.put_i32(acl.permissions);
        out.put_text(&acl.who.scheme);
        out.put_text(&acl.who.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(permissions: i32, scheme: &str, id: &str) -> Acl {
        Acl { permissions, who: Identity::new(scheme, id) }
    }

    fn caller(identities: &[(&str, &str)]) -> Caller<'static> {
        let identities: Vec<_> = identities.iter().map(|(scheme, id)| Identity::new(scheme, id)).collect();
        Caller::of(&identities)
    }

    // A mask that is off by one bit lets a neighbouring network in.
    #[test]
    fn addresses_match_by_leading_bits() {
        let cases = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("0.0.0.0/0", "::1", false),
            ("nonsense", "::1", false),
        ];
        for (listed, mine, expected) in cases {
            let verdict = allowed(&[acl(1, "ip", listed)], Permission::READ, &caller(&[("ip", mine)]));
            assert_eq!(verdict.is_ok(), expected, "{listed} {mine}");
        }
    }

    // A list that grants more than its bits, or to more than its people, protects nothing.
    #[test]
    fn a_list_grants_its_bits_to_its_people() {
        let list = [acl(1, "world", "anyone"), acl(31, "digest", "u:h")];
        let (nobody, u, admin) = (caller(&[]), caller(&[("digest", "u:h")]), caller(&[("super", "")]));
        assert_eq!(allowed(&list, Permission::READ, &nobody), Ok(()));
        assert_eq!(allowed(&list, Permission::WRITE, &nobody), Err(Code::NoAuth));
        assert_eq!(allowed(&list, Permission::WRITE, &u), Ok(()));
        assert_eq!(allowed(&list, Permission::ADMIN, &admin), Ok(()));
        assert_eq!(allowed(&list, Permission::ADMIN, &caller(&[("x509", "u:h")])), Err(Code::NoAuth));
    }

    // A list that is stored as it was asked would name a scheme that nobody can ever prove.
    #[test]
    fn lists_are_fixed_before_they_are_stored() {
        let u = caller(&[("ip", "1.2.3.4"), ("digest", "u:h"), ("digest", "v:h")]);
        let auth = [acl(31, "auth", "")];
        assert_eq!(fixed(&auth, &u), Ok(vec![acl(31, "digest", "u:h"), acl(31, "digest", "v:h")]));
        assert_eq!(fixed(&auth, &caller(&[("ip", "1.2.3.4")])), Err(Code::InvalidAcl));
        let twice = [acl(1, "world", "anyone"), acl(1, "world", "anyone")];
        assert_eq!(fixed(&twice, &u).map(|list| list.len()), Ok(1));
        for bad in [acl(1, "world", "all"), acl(1, "digest", "u"), acl(1, "ip", "300.0.0.1"), acl(1, "", "")]
        {
            assert_eq!(fixed(&[bad], &u), Err(Code::InvalidAcl));
        }
        assert_eq!(fixed(&[], &u), Err(Code::InvalidAcl));
    }
}
