//! Access control: who is at a port, and what it may do. Off unless `access.file` names a file; then everything is refused that the file
//! does not grant.
//!
//! The file is the same on all hosts and is looked at again when it changes. It is a file, and no replicated state, because it must
//! hold when there is no quorum, and because it must say who may make the first grant.

pub mod caller;
pub mod digest_md5;
pub mod grants;
pub mod names;
pub mod policy;
pub mod refusals;
pub mod scram;
pub mod secrets;

pub use caller::{Denied, PortCaller};
pub use grants::{Area, Need, NeededNames, Right};
pub use policy::{AccessFile, Policy, PolicyError};

use crate::admin::exposition::MetricsPage;
use crate::events::{EventLog, LogPart};
use refusals::Refusals;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The file is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Access control of a host. Cheap to clone; all clones are one.
#[derive(Clone, Default, Debug)]
pub struct Access(Option<Arc<ActiveAccess>>);

/// Access control that is on.
#[derive(Debug)]
pub struct ActiveAccess {
    path: PathBuf,
    policy: RwLock<Arc<Policy>>,
    version: AtomicU64,
    /// The file as it was last looked at.
    seen: Mutex<Option<Vec<u8>>>,
    is_sound: AtomicBool,
    refusals: Refusals,
}

impl Access {
    /// That of a file, which must be sound; none: it is off.
    pub fn open(path: Option<&Path>, log: &EventLog) -> Result<Self, PolicyError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let policy = AccessFile::read(path)?.policy()?;
        Ok(Self(Some(Arc::new(ActiveAccess {
            path: path.to_owned(),
            policy: RwLock::new(Arc::new(policy)),
            version: AtomicU64::new(1),
            seen: Mutex::new(std::fs::read(path).ok()),
            is_sound: AtomicBool::new(true),
            refusals: Refusals::new(log.clone()),
        }))))
    }

    /// Whether anything is checked.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn active(&self) -> Option<&Arc<ActiveAccess>> {
        self.0.as_ref()
    }

    /// Follows the file on a thread of its own, until the process ends.
    pub fn follow(&self, log: EventLog) -> std::io::Result<()> {
        let Some(active) = self.0.clone() else { return Ok(()) };
        std::thread::Builder::new().name("access".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOOK_EVERY);
                if let Some(line) = active.look() {
                    log.say(LogPart::Access, &line);
                }
            }
        })?;
        Ok(())
    }

    /// As metrics.
    pub fn metrics(&self, page: &mut MetricsPage) {
        page.gauge(
            "access_on",
            "1 while calls are checked against the access file",
            f64::from(u8::from(self.is_on())),
        );
        let Some(active) = &self.0 else { return };
        let is_sound = f64::from(u8::from(active.is_sound.load(Ordering::Relaxed)));
        page.gauge("access_file_sound", "1 while the access file that was last seen is in use", is_sound);
        page.gauge("access_identities", "Identities in the access file", active.policy().0.len() as f64);
        active.refusals.metrics(page);
    }
}

impl ActiveAccess {
    fn policy(&self) -> (Arc<Policy>, u64) {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&policy), self.version())
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes over what the file says now, if that is something else; what is to be logged of it. A file that makes no sense, is gone, or is
    /// empty, as it is for a moment while an editor writes it, changes nothing.
    fn look(&self) -> Option<String> {
        let found = std::fs::read(&self.path).ok();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return None;
        }
        seen.clone_from(&found);
        let shown = self.path.display();
        match AccessFile::read(&self.path).and_then(|file| file.policy()) {
            Ok(policy) => {
                let count = policy.len();
                let mut now = self.policy.write().unwrap_or_else(PoisonError::into_inner);
                *now = Arc::new(policy);
                self.version.fetch_add(1, Ordering::AcqRel);
                self.is_sound.store(true, Ordering::Relaxed);
                Some(format!("{shown} is in use as it is now, with {count} identities"))
            }
            Err(error) => {
                self.is_sound.store(false, Ordering::Relaxed);
                Some(format!("{shown} cannot be used, and the one before holds: {error}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::secrets::{TokenHash, new_token};

    // A token that is taken out of the file must end where it is in use, and a broken file must not let everybody in, or nobody.
    #[test]
    fn connections_follow_the_file() {
        let folder = std::env::temp_dir().join(format!("ordinate-access-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("access.toml");
        let (first, second) = (new_token().expect("random"), new_token().expect("random"));
        let write = |tokens: &[&str], grant: &str| {
            let tokens: Vec<String> = tokens.iter().map(|it| format!("\"{}\"", TokenHash::of(it))).collect();
            let text = format!("[identity.a]\ntokens = [{}]\ngrants = [\"{grant}\"]\n", tokens.join(","));
            std::fs::write(&path, text).expect("it is writable");
        };
        write(&[&first], "read kv *");
        let access = Access::open(Some(&path), &EventLog::default()).expect("it is sound");
        let active = access.active().expect("it is on");
        let mut caller = PortCaller::at(&access, "native", [127, 0, 0, 1].into());
        let need = Need::of(Right::Read, Area::Kv, b"x");
        assert_eq!(caller.check(need), Err(Denied::Unknown));
        assert!(caller.log_in_by_token(&second).is_err() && caller.log_in_by_token(&first).is_ok());
        assert_eq!(caller.check(need), Ok(()));
        assert!(active.look().is_none(), "nothing has changed");
        std::fs::write(&path, "[identity.a]\ngrants = [\"nonsense\"]\n").expect("it is writable");
        assert!(active.look().is_some_and(|line| line.contains("the one before holds")));
        assert_eq!(caller.check(need), Ok(()));
        std::fs::write(&path, "").expect("it is writable");
        assert!(
            active.look().is_some_and(|line| line.contains("the one before holds")),
            "an editor has begun"
        );
        assert_eq!(caller.check(need), Ok(()));
        // Both are good while one follows the other.
        write(&[&first, &second], "write kv *");
        assert!(active.look().is_some_and(|line| line.contains("in use")));
        assert_eq!(caller.check(need), Err(Denied::NotGranted));
        write(&[&second], "read kv *");
        active.look();
        assert_eq!(caller.check(need), Err(Denied::Unknown));
        let mut page = MetricsPage::default();
        access.metrics(&mut page);
        let page = page.written(crate::admin::exposition::Format::Text);
        let labels = "port=\"native\",area=\"kv\",right=\"read\",reason=\"unknown\"";
        assert!(page.contains(&format!("ordinate_access_refused_total{{{labels}}} 2\n")), "{page}");
        assert!(page.contains("ordinate_access_failed_logins_total{port=\"native\"} 1\n"), "{page}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
