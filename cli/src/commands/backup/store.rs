//! Where backups are: a directory or a bucket, with objects that are never changed.

use crate::failure::Failure;
use futures_util::TryStreamExt as _;
use kernel::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutPayload};
use server::services::log::ArchiveLocation;
use server::services::log::archive::bucket_of;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory (a path, or `file:///PATH`) or `s3://BUCKET/PREFIX`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location(ArchiveLocation);

impl Location {
    /// Reads it; says what is wrong with anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return ArchiveLocation::parse(text).map(Self);
        }
        let path = std::path::absolute(PathBuf::from(text)).map_err(|error| error.to_string())?;
        ArchiveLocation::parse(&format!("file://{}", path.display())).map(Self)
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The objects there, by names without the prefix.
#[derive(Clone)]
pub struct BackupStore {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    location: Location,
}

impl BackupStore {
    /// Opens it; `makes`: a directory that is not there is made.
    pub fn open(location: &Location, makes: bool) -> Result<Self, Failure> {
        let failed = |what: String| unusable(location, what);
        let (store, prefix): (Arc<dyn ObjectStore>, Path) = match &location.0 {
            ArchiveLocation::Directory(path) => {
                if makes {
                    std::fs::create_dir_all(path).map_err(|error| failed(error.to_string()))?;
                }
                let local =
                    LocalFileSystem::new_with_prefix(path).map_err(|error| failed(error.to_string()))?;
                (Arc::new(local.with_fsync(true)), Path::default())
            }
            ArchiveLocation::Bucket { bucket, prefix } => {
                let bucket = bucket_of(bucket).map_err(|error| failed(error.to_string()))?;
                (Arc::new(bucket), Path::from(prefix.as_str()))
            }
        };
        Ok(Self { store, prefix, location: location.clone() })
    }

    fn path(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(name).parts()))
    }

    fn failed(&self, error: &Error) -> Failure {
        unusable(&self.location, error.to_string())
    }

    /// An object; none if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        let read = match self.store.get(&self.path(name)).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// How large an object is; none if there is none.
    pub async fn length(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.store.head(&self.path(name)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// When an object was written, in milliseconds since 1970 by the store's clock; none if there is none.
    pub async fn written_ms(&self, name: &str) -> Result<Option<i64>, Failure> {
        match self.store.head(&self.path(name)).await {
            Ok(found) => Ok(Some(found.last_modified.timestamp_millis())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes an object, durably.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let put = self.store.put(&self.path(name), PutPayload::from(bytes)).await;
        put.map(drop).map_err(|error| self.failed(&error))
    }

    /// The names of the objects below a folder, sorted.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, Failure> {
        let below = self.path(folder);
        let found: Vec<_> =
            self.store.list(Some(&below)).try_collect().await.map_err(|error| self.failed(&error))?;
        let count = self.prefix.parts().count();
        let name = |path: &Path| {
            path.parts().skip(count).map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
        };
        let mut names: Vec<String> = found.iter().map(|it| name(&it.location)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes an object.
    pub async fn delete(&self, name: &str) -> Result<(), Failure> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

fn unusable(location: &Location, what: String) -> Failure {
    let remedy =
        "is the directory there and writable, or the bucket and its credentials (AWS_ACCESS_KEY_ID, ...)?";
    Failure::failed("O1040", format!("backups at {location} cannot be read or written"), what, remedy)
}
