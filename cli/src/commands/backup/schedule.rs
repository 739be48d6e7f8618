//! Backups that the cluster file asks for: one host takes them at a time, the first by name that is heard and does not lead.

use super::manifest::Manifest;
use super::store::{BackupStore, Location};
use crate::commands::admin::GivenToken;
use crate::commands::kv::Endpoint;
use crate::failure::Failure;
use runtime::{HostHandle, NoAnswer};
use server::cluster::ClusterFile;
use server::cluster::keys::parse_duration;
use server::events::{EventLog, LogPart};
use server::family::HostedNode;
use server::status::HostStatus;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often it is looked whether a backup is due, and how long after a failure it is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What the cluster file asks for.
struct Schedule {
    to: Location,
    every: Duration,
    keep: usize,
    token_file: Option<PathBuf>,
}

impl Schedule {
    fn of(file: &ClusterFile) -> Option<Self> {
        let text = |name| file.value(name).map(|(value, _)| value);
        Some(Self {
            to: Location::parse(text("backup.to").filter(|to| !to.is_empty())?).ok()?,
            every: text("backup.every").and_then(parse_duration)?,
            keep: text("backup.keep").and_then(|keep| keep.parse().ok())?,
            token_file: text("backup.token_file").filter(|path| !path.is_empty()).map(PathBuf::from),
        })
    }

    /// Since when the newest backup is there; none without one.
    fn age(&self) -> Result<Option<Duration>, Failure> {
        let store = BackupStore::open(&self.to, true)?;
        let newest = super::wait(Manifest::all(&store))?.pop();
        let begun = newest.and_then(|id| id.split('-').next()?.parse().ok()).map(Duration::from_millis);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(begun.map(|begun| now.saturating_sub(begun)))
    }

    /// Read anew for each backup, so that it can be replaced.
    fn token(&self) -> Result<GivenToken, Failure> {
        let Some(path) = &self.token_file else { return Ok(GivenToken(None)) };
        let token = std::fs::read_to_string(path).map_err(|error| {
            let what = format!("{} cannot be read", path.display());
            Failure::failed("O1044", what, error.to_string(), "ordinate access token NAME makes one")
        })?;
        Ok(GivenToken(Some(token.trim().to_owned())))
    }

    fn run(&self, file: &ClusterFile) -> Result<Option<String>, Failure> {
        if self.age()?.is_some_and(|age| age < self.every) {
            return Ok(None);
        }
        let endpoint = Endpoint::of_host(file, self.token()?);
        let said = super::take(&self.to, &file.listen.admin, &endpoint)?.words();
        // What it does not remove because another host takes one, too, it removes the next time.
        super::prune(&self.to, self.keep)?;
        Ok(Some(said))
    }
}

/// Whether it is this host that takes backups now.
fn is_in_turn(status: &HostStatus) -> bool {
    let Some(leader) = &status.leader else { return false };
    let members = status.membership.hosts.keys();
    let heard = members.filter(|name| **name == status.host || !status.unheard.contains(name));
    let first = heard.clone().find(|name| *name != leader).unwrap_or(leader);
    *first == status.host
}

/// Takes backups on a thread of its own until the host ends, if the cluster file asks for them.
pub fn watch(handle: HostHandle<HostedNode>, file: ClusterFile, host: String, log: EventLog) {
    let Some(schedule) = Schedule::of(&file) else { return };
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        loop {
            std::thread::sleep(LOOK_EVERY);
            let status = runtime.block_on(HostStatus::of(&handle, &file, &host));
            match status {
                Some((status, _)) if is_in_turn(&status) => {}
                Some(_) => continue,
                None if matches!(handle.metrics().wait(LOOK_EVERY), Err(NoAnswer::Stopped)) => return,
                None => continue,
            }
            match schedule.run(&file) {
                Ok(None) => {}
                Ok(Some(said)) => log.say(LogPart::Backup, &said.replace('\n', "; ")),
                Err(failure) => {
                    let why = failure.to_string().replace('\n', "; ");
                    log.warn(LogPart::Backup, &format!("no backup was taken: {why}"));
                    std::thread::sleep(AGAIN_AFTER);
                }
            }
        }
    });
}
