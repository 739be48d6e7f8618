//! What a backup is made of: a manifest that names chunks by the digest of their bytes.

use super::store::BackupStore;
use crate::failure::Failure;
use kernel::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The folder of manifests, and that of chunks.
pub const MANIFESTS: &str = "manifests";
pub const CHUNKS: &str = "chunks";
const FORMAT: u32 = 1;
/// Digits of a manifest's digest in its name.
const NAME_DIGITS: usize = 16;

/// A run of records.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BackupChunk {
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub digest: String,
    /// Its length.
    pub bytes: u64,
    /// Of a log: the position of its first entry; 0 of others.
    #[serde(default)]
    pub first: u64,
    /// How many records or entries.
    pub count: u64,
}

impl BackupChunk {
    /// Its object's name.
    pub fn name(&self) -> String {
        format!("{CHUNKS}/{}/{}", self.digest.get(..2).unwrap_or_default(), self.digest)
    }
}

/// One service's records, sorted.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Records {
    /// The point that they are of, as the service counts: a revision, a timestamp.
    pub at: u64,
    /// In order.
    pub chunks: Vec<BackupChunk>,
}

impl Records {
    /// How many.
    pub fn count(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.count).sum()
    }
}

/// A log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SavedLog {
    /// Its name.
    pub name: String,
    /// Which log of its space: no other had this number.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its first position.
    pub first: u64,
    /// The position behind its last entry.
    pub next: u64,
    /// Nothing can be appended.
    pub sealed: bool,
    /// What it may hold, in bytes; 0: no limit.
    pub retain_bytes: u64,
    /// How long entries are retained, in milliseconds; 0: for ever.
    pub retain_ms: u64,
    /// What becomes of appends at the disk budget.
    pub cleanup: String,
    /// Its entries.
    pub chunks: Vec<BackupChunk>,
}

/// A place among the nodes of a partition: by colour, and in a colour by position.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct NodePlace {
    /// The colour: the first 64 bits of the SHA-256 of its name.
    pub colour: u64,
    /// The position.
    pub position: u64,
}

/// Nodes of a partition, by colour and position.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct ColourChunk {
    /// The nodes: a colour and a position each, `u64 | u64`, and the node as the engine has it; no node where all of a colour were trimmed.
    #[serde(flatten)]
    pub chunk: BackupChunk,
    /// Colours that begin in it.
    pub colours: u64,
    /// Nodes, each counted once in each of its colours.
    pub nodes: u64,
    /// All that is from here ...
    pub from: NodePlace,
    /// ... to there is in it; none: to the end.
    pub to: Option<NodePlace>,
    /// The digest by which the cluster knows whether it has just that, in hexadecimal digits.
    pub span: String,
}

/// The nodes of the partially ordered log.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SavedColours {
    /// Of all that is earlier than this time.
    pub at: String,
    /// Of each partition.
    pub partitions: Vec<Vec<ColourChunk>>,
}

impl SavedColours {
    /// Its chunks.
    pub fn chunks(&self) -> impl Iterator<Item = &ColourChunk> {
        self.partitions.iter().flatten()
    }
}

/// A backup.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub struct Manifest {
    /// Of what is written here.
    pub format: u32,
    /// The program that wrote it.
    pub program: String,
    /// The cluster.
    pub cluster: String,
    /// The host whose state it is.
    pub host: String,
    /// When it was begun, in milliseconds since 1970.
    pub begun_ms: u64,
    /// Keys and values; none if the service was off.
    pub kv: Option<Records>,
    /// Znodes.
    pub coordination: Option<Records>,
    /// Keys and values of transactions, as of one timestamp.
    pub txn: Option<Records>,
    /// Logs; none if the service was off.
    pub logs: Option<Vec<SavedLog>>,
    /// How far groups of readers have come in logs.
    pub groups: Records,
    /// Nodes of the partially ordered log; none if the service was off, and of earlier versions.
    #[serde(default)]
    pub fuzzylog: Option<SavedColours>,
    /// Services that were on and are not in it.
    pub left_out: Vec<String>,
}

impl Manifest {
    /// An empty one.
    pub fn begin(cluster: &str, host: &str, begun_ms: u64) -> Self {
        let (cluster, host, program) =
            (cluster.to_owned(), host.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { format: FORMAT, program, cluster, host, begun_ms, ..Self::default() }
    }

    /// All chunks that it names.
    pub fn chunks(&self) -> impl Iterator<Item = &BackupChunk> {
        let records = [&self.kv, &self.coordination, &self.txn].into_iter().flatten().chain([&self.groups]);
        let logs = self.logs.iter().flatten().flat_map(|log| &log.chunks);
        let colours = self.fuzzylog.iter().flat_map(SavedColours::chunks).map(|it| &it.chunk);
        records.flat_map(|records| &records.chunks).chain(logs).chain(colours)
    }

    /// Writes it; returns its identifier, which sorts by time.
    pub async fn write(&self, store: &BackupStore) -> Result<String, Failure> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| {
            Failure::failed("O1040", "the backup cannot be written", error.to_string(), "")
        })?;
        let id = format!("{:013}-{}", self.begun_ms, &digest_of(&text)[..NAME_DIGITS]);
        store.put(&name_of(&id), text).await?;
        Ok(id)
    }

    /// Reads one and checks that it is what was written.
    pub async fn read(store: &BackupStore, id: &str) -> Result<Self, Failure> {
        let Some(text) = store.get(&name_of(id)).await? else {
            let remedy = "ordinate backup list --to ...";
            return Err(Failure::input("O1042", format!("there is no backup {id}"), "", remedy));
        };
        let expected = id.rsplit_once('-').map_or("", |(_, digits)| digits);
        if !digest_of(&text).starts_with(expected) || expected.len() != NAME_DIGITS {
            return Err(damaged(id, &name_of(id), "its bytes are not those that were written"));
        }
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(id, &name_of(id), &error.to_string()))?;
        if manifest.format != FORMAT {
            let what = format!("it has format {}, and this program reads {FORMAT}", manifest.format);
            return Err(damaged(id, &name_of(id), &what));
        }
        Ok(manifest)
    }

    /// The identifiers of all, the oldest first.
    pub async fn all(store: &BackupStore) -> Result<Vec<String>, Failure> {
        let names = store.list(MANIFESTS).await?;
        let id = |name: &String| Some(name.strip_prefix("manifests/")?.strip_suffix(".json")?.to_owned());
        Ok(names.iter().filter_map(id).collect())
    }

    /// The one of this identifier, or the newest.
    pub async fn chosen(store: &BackupStore, id: Option<&str>) -> Result<(String, Self), Failure> {
        let id = match id {
            Some(id) => id.to_owned(),
            None => Self::all(store).await?.pop().ok_or_else(|| {
                Failure::input("O1042", "there is no backup", "", "ordinate backup --to ...")
            })?,
        };
        let manifest = Self::read(store, &id).await?;
        Ok((id, manifest))
    }
}

/// The object of a manifest.
pub fn name_of(id: &str) -> String {
    format!("{MANIFESTS}/{id}.json")
}

/// SHA-256 in hexadecimal digits.
pub fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A backup that cannot be used, and which object of it.
pub fn damaged(id: &str, object: &str, what: &str) -> Failure {
    let remedy = "ordinate backup list --to ..., and another one with --backup ID";
    Failure::failed("O1041", format!("the backup {id} is damaged"), format!("{object}: {what}"), remedy)
}

/// A chunk's bytes, which are those that were written.
pub async fn read_chunk(store: &BackupStore, id: &str, chunk: &BackupChunk) -> Result<Bytes, Failure> {
    let name = chunk.name();
    let Some(bytes) = store.get(&name).await? else { return Err(damaged(id, &name, "it is gone")) };
    if digest_of(&bytes) != chunk.digest || bytes.len() as u64 != chunk.bytes {
        return Err(damaged(id, &name, "its bytes are not those that were written"));
    }
    Ok(bytes)
}

/// Adds a record to a chunk.
pub fn put_record(chunk: &mut Vec<u8>, record: &[u8]) {
    chunk.extend_from_slice(&(record.len() as u32).to_le_bytes());
    chunk.extend_from_slice(record);
}

/// Takes the first part off: a length and its bytes.
pub fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::super::store::Location;
    use super::*;

    // A backup that is damaged and restored all the same.
    #[tokio::test]
    async fn what_is_damaged_is_named_and_refused() {
        let folder = std::env::temp_dir().join(format!("ordinate-manifest-{}", std::process::id()));
        let location = Location::parse(&folder.display().to_string()).expect("a directory");
        let store = BackupStore::open(&location, true).expect("it is writable");
        let mut bytes = Vec::new();
        put_record(&mut bytes, b"record");
        let chunk = BackupChunk { digest: digest_of(&bytes), bytes: bytes.len() as u64, first: 0, count: 1 };
        store.put(&chunk.name(), bytes.clone()).await.expect("it is writable");
        let mut manifest = Manifest::begin("c", "a", 7);
        manifest.kv = Some(Records { at: 1, chunks: vec![chunk.clone()] });
        let id = manifest.write(&store).await.expect("it is writable");
        let (found, read) = Manifest::chosen(&store, None).await.expect("it is sound");
        assert_eq!((found, read.kv), (id.clone(), manifest.kv.clone()));
        assert_eq!(read_chunk(&store, &id, &chunk).await.expect("it is sound"), bytes);
        bytes[5] ^= 1;
        store.put(&chunk.name(), bytes).await.expect("it is writable");
        let said = read_chunk(&store, &id, &chunk).await.expect_err("it is damaged").to_string();
        assert!(said.contains("O1041") && said.contains(&chunk.digest), "{said}");
        store.delete(&chunk.name()).await.expect("it is there");
        assert!(read_chunk(&store, &id, &chunk).await.is_err());
        let mut text = store.get(&name_of(&id)).await.expect("readable").expect("it is there").to_vec();
        text[10] ^= 1;
        store.put(&name_of(&id), text).await.expect("it is writable");
        assert!(Manifest::read(&store, &id).await.is_err());
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
