//! The password of a session: proves to its home group that it is the same client that comes back.

use crate::wire::ZkSessionId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A keyed hash of the id, and of a number that differs each time that a cluster is made anew.
pub(crate) fn of(key: &[u8; 32], session: ZkSessionId, nonce: u64) -> [u8; 16] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(&session.0.to_be_bytes());
    mac.update(&nonce.to_be_bytes());
    let whole: [u8; 32] = mac.finalize().into_bytes().into();
    let mut password = [0; 16];
    password.copy_from_slice(&whole[..16]);
    password
}

/// Compares in a time that does not depend on where they differ.
pub(crate) fn same(ours: &[u8; 16], theirs: &[u8]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    // A password that another session, cluster or incarnation shares lets a stranger take over locks.
    #[test]
    fn passwords_differ_by_everything() {
        let base = of(&[1; 32], ZkSessionId(5), 7);
        assert_eq!(base, of(&[1; 32], ZkSessionId(5), 7));
        for other in [
            of(&[2; 32], ZkSessionId(5), 7),
            of(&[1; 32], ZkSessionId(6), 7),
            of(&[1; 32], ZkSessionId(5), 8),
        ] {
            assert!(!same(&base, &other));
        }
        assert!(same(&base, &base) && !same(&base, &base[..15]) && !same(&base, &[]));
    }
}
