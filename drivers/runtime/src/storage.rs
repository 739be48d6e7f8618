//! Opening what a host must not forget.

use crate::config::{HostConfig, Storage};
use crate::data::{DataDirectory, Incarnation, JOURNAL, Owner, SEGMENTS, random_u128};
use crate::disk::{Disk, RealDisk};
use crate::error::HostError;
use crate::journal::JournalOptions;
use std::sync::Arc;

/// What the storage came down to.
pub(crate) struct OpenStorage {
    pub(crate) incarnation: Incarnation,
    pub(crate) journal: Option<(Arc<dyn Disk>, JournalOptions)>,
    /// Where blobs are; none: in memory.
    pub(crate) blobs: Option<Arc<dyn Disk>>,
    /// Random numbers of this start.
    pub(crate) drawn: u128,
    /// Held until the host ends.
    pub(crate) directory: Option<DataDirectory>,
}

pub(crate) fn open_storage(config: HostConfig) -> Result<(HostConfig, OpenStorage), HostError> {
    let random = || random_u128().map_err(|source| HostError::Io { action: "read /dev/urandom", source });
    let (drawn, fresh) = (random()?, Incarnation(random()?));
    let storage = match &config.storage {
        Storage::Memory => {
            OpenStorage { incarnation: fresh, journal: None, blobs: None, drawn, directory: None }
        }
        Storage::Disk { disk, journal } => {
            let (journal, blobs) = (Some((Arc::clone(disk), *journal)), Some(Arc::clone(disk)));
            OpenStorage { incarnation: Incarnation(0), journal, blobs, drawn, directory: None }
        }
        Storage::Directory { path, journal } => {
            let owner = Owner {
                cluster: config.cluster.0.clone(),
                host: config.name.clone(),
                incarnation: fresh,
                joined: config.joins,
                made_with: config.agreement.fixed(),
                extent_retained: false,
            };
            let directory = DataDirectory::open(path, owner)?;
            let disk = |name, action| match RealDisk::new(path.join(name)) {
                Ok(disk) => Ok(Arc::new(disk) as Arc<dyn Disk>),
                Err(source) => Err(HostError::Io { action, source }),
            };
            let journal = Some((disk(JOURNAL, "make the journal's directory")?, *journal));
            let blobs = Some(disk(SEGMENTS, "make the segments' directory")?);
            let incarnation = directory.incarnation;
            OpenStorage { incarnation, journal, blobs, drawn, directory: Some(directory) }
        }
    };
    Ok((config, storage))
}
