//! A snapshot: a header, sessions, lists, nodes, and a checksum over all of it; plain or gzipped.

use super::FilesError;
use super::tree::{Node, Tree};
use adler2::Adler32;
use coordination::wire::{Acl, Identity, OPEN};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

const MAGIC: i32 = i32::from_be_bytes(*b"ZKSN");
/// No field of a sound file is longer.
const FIELD_BYTES_MAX: usize = 1 << 30;

/// Reads fields, counts and sums what it reads.
struct Input<R> {
    inner: R,
    sum: Adler32,
    offset: u64,
}

impl<R: Read> Input<R> {
    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        // What a broken length asks for is not given before it has come.
        let mut bytes = Vec::with_capacity(length.min(1 << 16));
        let taken = (&mut self.inner).take(length as u64).read_to_end(&mut bytes)?;
        if taken < length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends here"));
        }
        self.sum.write_slice(&bytes);
        self.offset += length as u64;
        Ok(bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn i64(&mut self) -> io::Result<i64> {
        Ok(i64::from(self.i32()?) << 32 | i64::from(self.i32()? as u32))
    }

    fn buffer(&mut self) -> io::Result<Option<Vec<u8>>> {
        match usize::try_from(self.i32()?) {
            Err(_) => Ok(None),
            Ok(length) if length <= FIELD_BYTES_MAX => self.take(length).map(Some),
            Ok(length) => Err(io::Error::other(format!("a field of {length} bytes"))),
        }
    }

    fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.buffer()?.unwrap_or_default())
            .map_err(|_| io::Error::other("a text that is not UTF-8"))
    }

    fn count(&mut self) -> io::Result<usize> {
        usize::try_from(self.i32()?).map_err(|_| io::Error::other("a negative count"))
    }
}

/// Reads the snapshot at `path`; its checksum must be right.
pub fn read(path: &Path) -> Result<Tree, FilesError> {
    let failed = |error| FilesError::Io { path: path.to_owned(), error };
    let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let inner: Box<dyn Read> = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Box::new(BufReader::with_capacity(1 << 20, flate2::read::MultiGzDecoder::new(file))),
        Some("snappy") => {
            let what = "snapshots compressed by snappy are not read; have ZooKeeper write plain or gz ones \
                        (snapshot.compression.method)";
            return Err(FilesError::Damaged { path: path.to_owned(), offset: 0, what: what.to_owned() });
        }
        _ => Box::new(file),
    };
    let mut input = Input { inner, sum: Adler32::new(), offset: 0 };
    parse(&mut input).map_err(|error| FilesError::Damaged {
        path: path.to_owned(),
        offset: input.offset,
        what: error.to_string(),
    })
}

fn parse<R: Read>(input: &mut Input<R>) -> io::Result<Tree> {
    if input.i32()? != MAGIC {
        return Err(io::Error::other("it is no snapshot of ZooKeeper's"));
    }
    let (_version, _id) = (input.i32()?, input.i64()?);
    let mut tree = Tree::default();
    for _ in 0..input.count()? {
        let session = input.i64()?;
        let timeout = input.i32()?;
        tree.sessions.insert(session, timeout);
    }
    let open: Arc<[Acl]> = Arc::new([Acl { permissions: OPEN, who: Identity::new("world", "anyone") }]);
    let mut lists: BTreeMap<i64, Arc<[Acl]>> = BTreeMap::from([(-1, open)]);
    for _ in 0..input.count()? {
        let id = input.i64()?;
        let mut list = Vec::new();
        for _ in 0..input.count()? {
            let permissions = input.i32()?;
            let (scheme, id) = (input.text()?, input.text()?);
            list.push(Acl { permissions, who: Identity::new(&scheme, &id) });
        }
        lists.insert(id, list.into());
    }
    loop {
        let path = input.text()?;
        if path == "/" {
            break;
        }
        let data = input.buffer()?;
        let acl = input.i64()?;
        let acl = lists
            .get(&acl)
            .ok_or_else(|| io::Error::other(format!("{path} has list {acl}, which is not there")))?;
        let (czxid, _mzxid, ctime, mtime) = (input.i64()?, input.i64()?, input.i64()?, input.i64()?);
        let (version, creates, aversion) = (input.i32()?, input.i32()?, input.i32()?);
        let (owner, _pzxid) = (input.i64()?, input.i64()?);
        // The root's path is empty here, since "/" ends the list.
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let acl = acl.clone();
        tree.nodes.insert(path, Node { data, acl, czxid, ctime, mtime, version, creates, aversion, owner });
    }
    // In 64 bits, as the files have it.
    let sum = u64::from(input.sum.checksum());
    let written = input.i64()? as u64;
    if written != sum {
        return Err(io::Error::other(format!("its checksum is {written:#x}, its content's {sum:#x}")));
    }
    // What newer versions write behind are digests of their own.
    Ok(tree)
}
