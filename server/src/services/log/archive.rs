//! The archive of trimmed segments: a directory, or a bucket of an object store.
//!
//! Nothing here removes anything. Every request ends within a bounded time, so that an archive that does not answer is one that fails.

use super::ArchiveLocation;
use futures_util::TryStreamExt as _;
use kernel::{ArchiveObject, Bytes};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, RetryConfig,
};
use runtime::blobs::ArchiveError;
use shared_log::archive::{ArchivedName, ArchivedSegment, LogIncarnation};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a request is repeated, and until when.
const RETRIES_MAX: usize = 2;
const RETRY_WITHIN: Duration = Duration::from_secs(10);
/// What one request to an object store may take.
const REQUEST_WITHIN: &str = "20s";
const CONNECT_WITHIN: &str = "3s";

/// An archive, whether it can be reached or not.
#[derive(Clone)]
pub struct LogArchive {
    location: ArchiveLocation,
    store: Option<Arc<dyn ObjectStore>>,
    prefix: Path,
}

/// The segments of a log, by their positions.
pub type Segments = BTreeMap<ArchivedName, Path>;

/// A log that has segments in the archive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ArchivedLog {
    /// The cluster's name.
    pub cluster: String,
    /// The log's name.
    pub name: String,
    /// Which of the logs of that name.
    pub incarnation: LogIncarnation,
}

impl LogArchive {
    /// The archive at a location; fails only for what the environment says of it.
    pub fn open(location: &ArchiveLocation) -> Result<Self, ArchiveError> {
        let (store, prefix): (Option<Arc<dyn ObjectStore>>, _) = match location {
            // Opened when it is used: it may have to be mounted first.
            ArchiveLocation::Directory(_) => (None, Path::default()),
            ArchiveLocation::Bucket { bucket, prefix } => {
                (Some(Arc::new(bucket_of(bucket)?)), Path::from(prefix.as_str()))
            }
        };
        Ok(Self { location: location.clone(), store, prefix })
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>, ArchiveError> {
        match (&self.store, &self.location) {
            (Some(store), _) => Ok(Arc::clone(store)),
            (None, ArchiveLocation::Directory(path)) => {
                // Never made here: where a file system ought to be mounted, what is written beneath would be shared by nobody.
                if !path.is_dir() {
                    let what = format!("there is no directory {} (is it mounted?)", path.display());
                    return Err(ArchiveError(what));
                }
                let local = LocalFileSystem::new_with_prefix(path).map_err(|error| self.error(&error))?;
                Ok(Arc::new(local.with_fsync(true)))
            }
            (None, ArchiveLocation::Bucket { .. }) => {
                Err(ArchiveError(format!("{} is not open", self.location)))
            }
        }
    }

    fn error(&self, error: &Error) -> ArchiveError {
        let mut text = format!("{}: {error}", self.location);
        // What an S3 client says of a failure is long, and the cause comes last.
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            let said = inner.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = inner.source();
        }
        ArchiveError(text)
    }

    fn path_of(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from_iter(name.split('/')).parts()))
    }

    /// The bytes of an object; none if there is none.
    async fn get(&self, path: &Path) -> Result<Option<Bytes>, ArchiveError> {
        let store = self.store()?;
        let read = match store.get(path).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn has(&self, object: &ArchiveObject) -> Result<bool, ArchiveError> {
        let Some(bytes) = self.get(&self.path_of(&object.name)).await? else { return Ok(false) };
        Ok(bytes.starts_with(&object.head) && ArchivedSegment::read(&bytes).is_ok())
    }

    async fn put(&self, object: &ArchiveObject, contents: Bytes) -> Result<(), ArchiveError> {
        let (store, path) = (self.store()?, self.path_of(&object.name));
        let payload: PutPayload = [object.head.clone(), contents].into_iter().collect();
        match store.put_opts(&path, payload.clone(), PutMode::Create.into()).await {
            Ok(_) => return Ok(()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) if self.has(object).await? => {
                return Ok(());
            }
            // It is there and damaged; or the store knows no conditions, and the name stands for the same bytes anyway.
            Err(
                Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotImplemented { .. }
                | Error::NotSupported { .. },
            ) => {}
            Err(error) => return Err(self.error(&error)),
        }
        store
            .put_opts(&path, payload, PutMode::Overwrite.into())
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    async fn below(&self, path: &Path) -> Result<Vec<String>, ArchiveError> {
        let listed = self.store()?.list_with_delimiter(Some(path)).await;
        let listed = listed.map_err(|error| self.error(&error))?;
        let last = |path: &Path| path.filename().map(str::to_owned);
        Ok(listed.common_prefixes.iter().filter_map(last).collect())
    }

    /// The logs that have ever had `name` and that something was archived of, sorted.
    pub async fn logs_named(&self, name: &str) -> Result<Vec<ArchivedLog>, ArchiveError> {
        let mut logs = Vec::new();
        for cluster in self.below(&self.prefix).await? {
            for incarnation in self.below(&self.path_of(&format!("{cluster}/{name}"))).await? {
                let (cluster, name) = (cluster.clone(), name.to_owned());
                let incarnation = LogIncarnation::parse(&incarnation);
                logs.extend(incarnation.map(|incarnation| ArchivedLog { cluster, name, incarnation }));
            }
        }
        logs.sort_unstable();
        Ok(logs)
    }

    /// The segments of a log that is there.
    pub async fn segments_of(&self, log: &ArchivedLog) -> Result<Segments, ArchiveError> {
        let ArchivedLog { cluster, name, incarnation } = log;
        let path = self.path_of(&format!("{cluster}/{name}/{incarnation}"));
        let store = self.store()?;
        let mut objects = store.list(Some(&path));
        let mut segments = Segments::new();
        while let Some(object) = objects.try_next().await.map_err(|error| self.error(&error))? {
            if let Some(name) = object.location.filename().and_then(ArchivedName::parse) {
                segments.insert(name, object.location);
            }
        }
        Ok(segments)
    }

    /// All logs that something was archived of, with what is there: segments, the first position, the one after the last, bytes with
    /// the heads, and how many positions between them are missing.
    pub async fn logs(&self) -> Result<BTreeMap<ArchivedLog, ArchivedExtent>, ArchiveError> {
        let store = self.store()?;
        let mut objects = store.list(Some(&self.prefix));
        let mut logs: BTreeMap<ArchivedLog, Vec<(ArchivedName, u64)>> = BTreeMap::new();
        while let Some(object) = objects.try_next().await.map_err(|error| self.error(&error))? {
            let parts: Vec<String> = object.location.parts().map(|part| part.as_ref().to_owned()).collect();
            let [.., cluster, name, incarnation, last] = &parts[..] else { continue };
            let (Some(incarnation), Some(last)) =
                (LogIncarnation::parse(incarnation), ArchivedName::parse(last))
            else {
                continue;
            };
            let log = ArchivedLog { cluster: cluster.clone(), name: name.clone(), incarnation };
            logs.entry(log).or_default().push((last, object.size));
        }
        Ok(logs.into_iter().map(|(log, segments)| (log, ArchivedExtent::of(segments))).collect())
    }

    /// Reads a segment that was listed, and checks it.
    pub async fn segment(&self, path: &Path) -> Result<(ArchivedSegment, Bytes), Unreadable> {
        let bytes = self.get(path).await.map_err(Unreadable::Archive)?;
        let bytes = bytes.ok_or_else(|| Unreadable::Damaged(format!("{path} is there no more")))?;
        let read =
            ArchivedSegment::read(&bytes).map_err(|error| Unreadable::Damaged(format!("{path} {error}")))?;
        if !path.as_ref().ends_with(self.path_of(&read.0.object_name()).as_ref()) {
            let is = read.0.object_name();
            return Err(Unreadable::Damaged(format!("{path} is damaged: it holds {is}")));
        }
        Ok(read)
    }
}

/// Why a segment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nobody knows.
    #[error(transparent)]
    Archive(ArchiveError),
    /// It is gone, or not what was written.
    #[error("{0}")]
    Damaged(String),
}

/// What of a log is in the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedExtent {
    /// Segments.
    pub segments: u64,
    /// The first position.
    pub first: u64,
    /// The position after the last.
    pub next: u64,
    /// Bytes of the objects.
    pub bytes: u64,
    /// Positions between them that are not there.
    pub missing: u64,
}

impl ArchivedExtent {
    fn of(mut segments: Vec<(ArchivedName, u64)>) -> Self {
        segments.sort_unstable();
        let first = segments.first().map_or(0, |(name, _)| name.first);
        let (mut next, mut missing, mut bytes) = (first, 0, 0);
        for (name, size) in &segments {
            missing += name.first.saturating_sub(next);
            next = next.max(name.next);
            bytes += size;
        }
        Self { segments: segments.len() as u64, first, next, bytes, missing }
    }
}

/// A bucket, by what the environment says of it.
pub fn bucket_of(bucket: &str) -> Result<impl ObjectStore + use<>, ArchiveError> {
    // Another part of the process may have chosen already; all choose the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_WITHIN,
    };
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_WITHIN)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout), CONNECT_WITHIN)
        .with_retry(retry);
    builder.build().map_err(|error| ArchiveError(format!("s3://{bucket}: {error}")))
}

/// The archive for a host's threads, which wait.
pub struct Waiting {
    archive: LogArchive,
    runtime: tokio::runtime::Runtime,
}

impl Waiting {
    /// The archive of a location.
    pub fn open(location: &ArchiveLocation) -> Result<Self, ArchiveError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            builder.worker_threads(1).max_blocking_threads(4).thread_name("archive-io").enable_all().build();
        let runtime = runtime.map_err(|error| ArchiveError(format!("no thread for the archive: {error}")))?;
        Ok(Self { archive: LogArchive::open(location)?, runtime })
    }
}

impl runtime::blobs::Archive for Waiting {
    fn has(&self, object: &ArchiveObject) -> Result<bool, ArchiveError> {
        self.runtime.block_on(self.archive.has(object))
    }

    fn put(&self, object: &ArchiveObject, contents: Bytes) -> Result<(), ArchiveError> {
        self.runtime.block_on(self.archive.put(object, contents))
    }
}
