//! A log of transactions: a header, and records of a checksum, a length, a transaction and an end mark. The file is filled with
//! zeros ahead; a crash leaves a record that is not whole.

use super::FilesError;
use super::checksum;
use super::tree::{At, Tree};
use coordination::wire::{Acl, JuteInput, Malformed, op, read_acls};
use std::path::Path;
use std::sync::Arc;

const MAGIC: i32 = i32::from_be_bytes(*b"ZKLG");
const HEADER_BYTES: usize = 16;
const END_MARK: u8 = b'B';
const CREATE_SESSION: i32 = -10;
const DELETE_CONTAINER: i32 = 20;

/// What a log held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Transactions that were applied.
    pub applied: u64,
    /// It ends in the middle of one.
    pub torn: bool,
}

/// Applies what comes after `from`. `progress` receives how many bytes have been read.
pub fn replay(
    path: &Path,
    from: u64,
    tree: &mut Tree,
    mut progress: impl FnMut(u64),
) -> Result<Replayed, FilesError> {
    let bytes = std::fs::read(path).map_err(|error| FilesError::Io { path: path.to_owned(), error })?;
    let damaged = |offset: usize, what: String| FilesError::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        what,
    };
    let mut replayed = Replayed { applied: 0, torn: false };
    if bytes.len() < HEADER_BYTES || bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0) {
        // It was made, and never written to.
        return Ok(Replayed { torn: !bytes.is_empty(), ..replayed });
    }
    if JuteInput(&bytes).i32() != Ok(MAGIC) {
        return Err(damaged(0, "it is no log of ZooKeeper's".to_owned()));
    }
    let mut offset = HEADER_BYTES;
    while let Some(record) = record_at(&bytes, offset) {
        let Some((sum, transaction, next)) = record.whole else {
            replayed.torn = true;
            break;
        };
        if checksum(transaction) != sum {
            return Err(damaged(
                offset,
                format!(
                    "the checksum of a transaction is {sum:#x}, its content's {:#x}",
                    checksum(transaction)
                ),
            ));
        }
        let applied = apply(transaction, from, tree)
            .map_err(|_| damaged(offset, "a transaction that cannot be read".to_owned()))?;
        replayed.applied += u64::from(applied);
        offset = next;
        progress(offset as u64);
    }
    Ok(replayed)
}

struct Record<'a> {
    /// Checksum, transaction, and where the next record begins; none if it is not whole.
    whole: Option<(u64, &'a [u8], usize)>,
}

/// None where the log ends: at the end of the file, or where only zeros follow.
fn record_at(bytes: &[u8], offset: usize) -> Option<Record<'_>> {
    let mut input = JuteInput(bytes.get(offset..)?);
    if input.0.is_empty() {
        return None;
    }
    let truncated = Some(Record { whole: None });
    let (Ok(sum), Ok(length)) = (input.u64(), input.i32()) else { return truncated };
    match usize::try_from(length) {
        Ok(0) => None,
        Err(_) => truncated,
        Ok(length) => match (input.take(length), input.u8()) {
            (Ok(transaction), Ok(END_MARK)) => {
                Some(Record { whole: Some((sum, transaction, offset + 12 + length + 1)) })
            }
            _ => truncated,
        },
    }
}

fn apply(transaction: &[u8], from: u64, tree: &mut Tree) -> Result<bool, Malformed> {
    let mut input = JuteInput(transaction);
    let (session, _cxid) = (input.i64()?, input.i32()?);
    let (zxid, time, kind) = (input.i64()?, input.i64()?, input.i32()?);
    // The snapshot's name is the last transaction that is in it for certain.
    if zxid as u64 <= from {
        return Ok(false);
    }
    tree.zxid = tree.zxid.max(zxid as u64);
    execute(kind, &mut input, At { session, zxid, time }, tree)?;
    Ok(true)
}

fn list(input: &mut JuteInput<'_>) -> Result<Arc<[Acl]>, Malformed> {
    read_acls(input).map(Arc::from)
}

fn execute(kind: i32, input: &mut JuteInput<'_>, at: At, tree: &mut Tree) -> Result<(), Malformed> {
    match kind {
        op::CREATE | op::CREATE2 => {
            let (path, data, acl) = (input.text()?, input.buffer()?, list(input)?);
            let owner = if input.bool()? { at.session } else { 0 };
            // Old logs do not say.
            let creates = input.i32().unwrap_or(-1);
            tree.create(path, data, acl, owner, creates, at);
        }
        op::CREATE_CONTAINER => {
            let (path, data, acl) = (input.text()?, input.buffer()?, list(input)?);
            tree.create(path, data, acl, i64::MIN, input.i32()?, at);
        }
        op::CREATE_TTL => {
            let (path, data, acl) = (input.text()?, input.buffer()?, list(input)?);
            let creates = input.i32()?;
            let owner = (0xff_i64 << 56) | input.i64()?;
            tree.create(path, data, acl, owner, creates, at);
        }
        op::DELETE | DELETE_CONTAINER => tree.delete(input.text()?),
        op::SET_DATA | op::RECONFIG => {
            let (path, data) = (input.text()?, input.buffer()?);
            tree.set_data(path, data, input.i32()?, at);
        }
        op::SET_ACL => {
            let (path, acl) = (input.text()?, list(input)?);
            tree.set_acl(path, acl, input.i32()?);
        }
        CREATE_SESSION => {
            tree.sessions.insert(at.session, input.i32()?);
        }
        op::CLOSE => {
            tree.close(at.session);
            // Newer logs name the nodes; all of them are the session's.
            for path in input.texts().unwrap_or_default() {
                tree.delete(path);
            }
        }
        op::MULTI => {
            let count = input.count(8)?.unwrap_or(0);
            let mut steps = Vec::with_capacity(count);
            for _ in 0..count {
                steps.push((input.i32()?, input.buffer()?.unwrap_or_default()));
            }
            // One that failed is logged as failures, each step of it.
            if steps.iter().all(|(kind, _)| *kind != op::ERROR) {
                for (kind, body) in steps {
                    execute(kind, &mut JuteInput(body), at, tree)?;
                }
            }
        }
        op::CHECK | op::ERROR => {}
        _ => return Err(Malformed),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordination::wire::{Identity, JuteOutput as _};

    fn transaction(zxid: i64, kind: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_i64(77);
        out.put_i32(1);
        out.put_i64(zxid);
        out.put_i64(1_000 + zxid);
        out.put_i32(kind);
        body(&mut out);
        out
    }

    fn create(path: &str, ephemeral: bool, creates: i32) -> impl FnOnce(&mut Vec<u8>) {
        move |out| {
            out.put_text(path);
            out.put_buffer(Some(b"data"));
            coordination::wire::write_acls(
                &[Acl { permissions: 31, who: Identity::new("world", "anyone") }],
                out,
            );
            out.push(ephemeral.into());
            out.put_i32(creates);
        }
    }

    fn file(name: &str, transactions: &[Vec<u8>], tail: &[u8]) -> std::path::PathBuf {
        let mut bytes = Vec::new();
        bytes.put_i32(MAGIC);
        bytes.put_i32(2);
        bytes.put_i64(0);
        for transaction in transactions {
            bytes.put_u64(checksum(transaction));
            bytes.put_buffer(Some(transaction));
            bytes.push(END_MARK);
        }
        bytes.extend_from_slice(tail);
        let path = std::env::temp_dir().join(format!("ordinate-log-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("the folder for temporary files is writable");
        path
    }

    fn root() -> Tree {
        let mut tree = Tree::default();
        let acl: Arc<[Acl]> = Arc::new([]);
        let root = super::super::tree::Node {
            data: None,
            acl,
            czxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            creates: 0,
            aversion: 0,
            owner: 0,
        };
        tree.nodes.insert("/".to_owned(), root);
        tree
    }

    // A log that a crash has truncated is a log; one whose middle has changed is not, and must not be taken for one.
    #[test]
    fn torn_tails_end_a_log_and_damage_is_reported() {
        let steps = [
            transaction(1, op::CREATE, create("/a", false, 1)),
            transaction(2, op::CREATE, create("/e", true, 2)),
            transaction(3, op::SET_DATA, |out| {
                out.put_text("/a");
                out.put_buffer(None);
                out.put_i32(1);
            }),
            transaction(4, op::CLOSE, |_| {}),
            transaction(5, op::CREATE, create("/b", false, 3)),
        ];
        let mut truncated = Vec::new();
        truncated.put_u64(checksum(&steps[0]));
        truncated.put_buffer(Some(&steps[0]));
        truncated.truncate(40);
        let tails: [(&str, Vec<u8>, bool); 4] = [
            ("whole", Vec::new(), false),
            ("zeros", vec![0; 4096], false),
            ("truncated", truncated.clone(), true),
            ("truncated-and-zeros", [truncated, vec![0; 4096]].concat(), true),
        ];
        for (name, tail, torn) in tails {
            let path = file(name, &steps, &tail);
            let mut tree = root();
            let read = replay(&path, 0, &mut tree, |_| {}).expect("a log");
            assert_eq!(read, Replayed { applied: 5, torn }, "{name}");
            let paths: Vec<&str> = tree.nodes.keys().map(String::as_str).collect();
            assert_eq!(paths, ["/", "/a", "/b"], "{name}: the session's node is gone");
            let (a, top) = (&tree.nodes["/a"], &tree.nodes["/"]);
            assert_eq!((a.version, &a.data, a.ctime, a.mtime), (1, &None, 1_001, 1_003));
            assert_eq!((top.creates, tree.zxid), (3, 5));
            // Replayed on itself, as on a snapshot that was taken meanwhile, it changes nothing but what it says.
            let before = tree.clone();
            replay(&path, 0, &mut tree, |_| {}).expect("a log");
            assert_eq!(before.nodes["/"], tree.nodes["/"], "{name}: counted twice");
            let mut bytes = std::fs::read(&path).expect("it was written");
            bytes[HEADER_BYTES + 30] ^= 1;
            std::fs::write(&path, bytes).expect("it was written");
            let error = replay(&path, 0, &mut root(), |_| {}).expect_err("damage").to_string();
            assert!(error.contains(", at byte 16: the checksum of a transaction"), "{error}");
            std::fs::remove_file(path).expect("it was written");
        }
    }

    // A transaction of the snapshot that is applied again makes old data new.
    #[test]
    fn what_the_snapshot_holds_is_not_applied_again() {
        let steps = [
            transaction(8, op::CREATE, create("/a", false, 1)),
            transaction(9, op::CREATE, create("/b", false, 2)),
        ];
        let path = file("behind", &steps, &[]);
        let mut tree = root();
        let read = replay(&path, 8, &mut tree, |_| {}).expect("a log");
        assert_eq!(
            (read.applied, tree.nodes.contains_key("/a"), tree.nodes.contains_key("/b")),
            (1, false, true)
        );
        std::fs::remove_file(path).expect("it was written");
    }
}
