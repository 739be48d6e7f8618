//! Who takes a backup says so by an object, and so does who prunes: chunks that a backup relies on are not removed below it.
//!
//! Both write their object first and look for the other's then, so one of them sees the other at least: a backup waits until nobody
//! prunes, and pruning leaves chunks alone while a backup is being taken. An object that is not written again for [`LEASE`] is that of a
//! process that has ended; ages are those of the store's own clock.

use super::store::BackupStore;
use super::wait;
use crate::failure::Failure;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(600);
const RENEW_EVERY: Duration = Duration::from_secs(30);
/// Who could not renew for so long does nothing more: the others wait twice as long before they go on.
const HELD_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Backup,
    Prune,
}

impl Work {
    fn folder(self) -> &'static str {
        match self {
            Self::Backup => "running/backup",
            Self::Prune => "running/prune",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Prune => "removal of old backups",
        }
    }
}

/// The right to do it, until it is dropped.
pub struct Lease<'a> {
    store: &'a BackupStore,
    work: Work,
    name: String,
    renewed: Arc<Mutex<Instant>>,
    renewal: Option<(Sender<()>, JoinHandle<()>)>,
}

impl<'a> Lease<'a> {
    /// Says that this is being done from now on.
    pub fn take(store: &'a BackupStore, work: Work) -> Result<Self, Failure> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| {
            Failure::failed("O1000", "the system has no random numbers", error.to_string(), "")
        })?;
        let name = format!("{}/{:016x}", work.folder(), u64::from_le_bytes(random));
        wait(store.put(&name, Vec::new()))?;
        let renewed = Arc::new(Mutex::new(Instant::now()));
        let (stop, stopped) = channel();
        let (store_of, name_of, renewed_at) = (store.clone(), name.clone(), Arc::clone(&renewed));
        let renewing = std::thread::spawn(move || {
            while stopped.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                // One that is gone was taken for that of a process that has ended: it does not come back.
                let renewed = wait(async {
                    match store_of.length(&name_of).await? {
                        Some(_) => store_of.put(&name_of, Vec::new()).await.map(|()| true),
                        None => Ok(false),
                    }
                });
                if renewed.is_ok_and(|there| there) {
                    *renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                }
            }
        });
        Ok(Self { store, work, name, renewed, renewal: Some((stop, renewing)) })
    }

    /// Whether others still wait for this one.
    ///
    /// # Errors
    /// O1045 if it took so long that they may not.
    pub fn check(&self) -> Result<(), Failure> {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.elapsed() < HELD_WITHIN { Ok(()) } else { Err(self.lost()) }
    }

    /// The same, and the object is looked for.
    pub fn check_there(&self) -> Result<(), Failure> {
        self.check()?;
        wait(self.store.length(&self.name))?.map(drop).ok_or_else(|| self.lost())
    }

    fn lost(&self) -> Failure {
        let what = format!("the {} was given up", self.work.name());
        let fact = format!("{} could not be renewed for minutes, and others may have gone on", self.name);
        Failure::failed("O1045", what, fact, "the same command again")
    }

    /// How many others do this now. Those whose process has ended are removed.
    pub fn others(&self, work: Work) -> Result<usize, Failure> {
        wait(async {
            let Some(now) = self.store.written_ms(&self.name).await? else { return Err(self.lost()) };
            let mut others = 0;
            for name in self.store.list(work.folder()).await? {
                let Some(written) = self.store.written_ms(&name).await?.filter(|_| name != self.name) else {
                    continue;
                };
                if now.saturating_sub(written) > LEASE.as_millis() as i64 {
                    self.store.delete(&name).await?;
                } else {
                    others += 1;
                }
            }
            Ok(others)
        })
    }

    /// Waits until nobody else does this; `say` says so, if it has to wait.
    pub fn wait_for(&self, work: Work, say: impl FnOnce(&str)) -> Result<(), Failure> {
        let mut say = Some(say);
        while self.others(work)? > 0 {
            if let Some(say) = say.take() {
                say(&format!("waits: another process is at the {}", work.name()));
            }
            std::thread::sleep(LOOK_EVERY);
            // The store's clock is read off our own object.
            wait(self.store.put(&self.name, Vec::new()))?;
        }
        Ok(())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some((stop, renewing)) = self.renewal.take() {
            drop(stop);
            // Its last renewal must not come behind the removal.
            let _ = renewing.join();
        }
        // What is left here is removed by others, later.
        let _ = wait(self.store.delete(&self.name));
    }
}
