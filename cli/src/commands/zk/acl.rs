//! `ordinate zk acl` and `whoami`: access lists, and who one is to them.

use super::client::{ZkClient, ZkError};
use coordination::wire::{Acl, Identity, JuteInput, JuteOutput as _, op, read_acls, write_acls};
use serde_json::{Value, json};

/// ZooKeeper's letters, by bit.
const LETTERS: [(char, i32); 5] = [('c', 4), ('d', 8), ('r', 1), ('w', 2), ('a', 16)];

fn letters(permissions: i32) -> String {
    LETTERS.iter().filter(|(_, bit)| permissions & bit != 0).map(|(letter, _)| *letter).collect()
}

/// An entry as people write it. Ids may have colons, schemes and permissions have none.
fn parse(entry: &str) -> Result<Acl, ZkError> {
    let wrong = || {
        ZkError::Input(format!(
            "{entry} is no entry of an access list: wanted SCHEME:ID:PERMISSIONS, for example world:anyone:r"
        ))
    };
    let (scheme, rest) = entry.split_once(':').ok_or_else(wrong)?;
    let (id, permissions) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let bit = |letter| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit);
    let bits: Option<Vec<i32>> = permissions.chars().map(bit).collect();
    let permissions = bits.ok_or_else(wrong)?.into_iter().fold(0, |all, bit| all | bit);
    Ok(Acl { permissions, who: Identity::new(scheme, id) })
}

/// Prints the list of a node.
pub fn print(session: &mut ZkClient, path: &str, json: bool) -> Result<(), ZkError> {
    let mut body = Vec::new();
    body.put_text(path);
    let reply = session.ask(op::GET_ACL, &body)?;
    for Acl { permissions, who } in read_acls(&mut JuteInput(&reply))? {
        let letters = letters(permissions);
        if json {
            println!("{}", json!({ "scheme": &*who.scheme, "id": &*who.id, "permissions": letters }));
        } else {
            println!("{}:{}:{letters}", who.scheme, who.id);
        }
    }
    Ok(())
}

/// Sets the list of a node.
pub fn set(session: &mut ZkClient, path: &str, entries: &[String]) -> Result<(), ZkError> {
    let acls = entries.iter().filter(|entry| !entry.is_empty()).map(|entry| parse(entry));
    let acls: Vec<Acl> = acls.collect::<Result<_, _>>()?;
    let mut body = Vec::new();
    body.put_text(path);
    write_acls(&acls, &mut body);
    body.put_i32(-1);
    session.ask(op::SET_ACL, &body).map(drop)
}

/// Prints the identities of this client.
pub fn whoami(session: &mut ZkClient, json: bool) -> Result<(), ZkError> {
    let reply = session.ask(op::WHO_AM_I, &[])?;
    let mut input = JuteInput(&reply);
    let mut identities: Vec<Value> = Vec::new();
    for _ in 0..input.count(8)?.unwrap_or(0) {
        let (scheme, id) = (input.text()?.to_owned(), input.text()?.to_owned());
        if !json {
            println!("{scheme}:{id}");
        }
        identities.push(json!({ "scheme": scheme, "id": id }));
    }
    if json {
        println!("{}", Value::Array(identities));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{letters, parse};

    // A permission that is read as another one opens a node to strangers.
    #[test]
    fn entries_are_zookeepers() {
        let list = parse("x509:CN=a,O=b:c:rwa").expect("an entry");
        assert_eq!((list.permissions, &*list.who.scheme, &*list.who.id), (19, "x509", "CN=a,O=b:c"));
        assert_eq!(letters(31), "cdrwa");
        assert_eq!(letters(parse("world:anyone:dc").expect("an entry").permissions), "cd");
        for wrong in ["world", "world:anyone", "world:anyone:x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
