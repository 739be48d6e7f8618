//! `ordinate restore`: writes what a backup holds into a cluster, which has an identity of its own.

use super::manifest::{BackupChunk, Manifest, Records, SavedColours, SavedLog, read_chunk, take_part};
use super::store::BackupStore;
use crate::commands::kv::Endpoint;
use crate::commands::log::failure as log_failure;
use crate::commands::zk::{Connecting, Target};
use crate::failure::Failure;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use indicatif::ProgressBar;
use kernel::{Bytes, Decode as _};
use ordinate_client::{
    Cleanup, Client, FuzzyLog, GroupState, Level, Log, LogOptions, Progress, Rows, TxnClient, TxnLevel,
};
use std::time::Duration;

/// Writes in flight at a time.
const IN_FLIGHT_MAX: usize = 128;
/// Bytes of one append, and keys of one transaction.
const APPEND_BYTES: usize = 256 << 10;
const KEYS_OF_ONE: usize = 200;

/// What of a backup is restored.
#[derive(Clone, Default)]
pub struct Wanted {
    /// Services; empty: all.
    pub services: Vec<String>,
    /// Keys that begin so, or znodes below this path.
    pub prefix: Option<String>,
    /// Logs; empty: all.
    pub logs: Vec<String>,
    /// Into what has something already.
    pub merge: bool,
}

impl Wanted {
    fn has(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|name| name == service)
    }

    fn has_log(&self, log: &SavedLog) -> bool {
        self.logs.is_empty() || self.logs.contains(&log.name)
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()))
    }

    /// A node of the subtree, or one on the way to it.
    fn has_path(&self, path: &str) -> bool {
        let Some(prefix) = self.prefix.as_deref().map(|prefix| prefix.trim_end_matches('/')) else {
            return true;
        };
        let below = |upper: &str, path: &str| {
            path == upper || path.strip_prefix(upper).is_some_and(|rest| rest.starts_with('/'))
        };
        below(prefix, path) || below(path, prefix)
    }
}

/// A backup that is sound, and where it goes.
pub struct Restoring<'a> {
    pub store: &'a BackupStore,
    pub id: &'a str,
    pub manifest: &'a Manifest,
    pub wanted: &'a Wanted,
    pub endpoint: &'a Endpoint,
    pub zookeeper: &'a Connecting,
    pub bar: Option<&'a ProgressBar>,
}

/// The records of a chunk.
fn records(bytes: &Bytes) -> Vec<Bytes> {
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    while let Some(record) = take_part(&mut rest) {
        found.push(bytes.slice_ref(record));
    }
    found
}

pub fn not_empty(what: &str) -> Failure {
    let fact = "what is there and not in the backup would stay: the result would be neither";
    let remedy = "an empty cluster, or --merge, or --only and --prefix with --merge";
    Failure::input("O1043", format!("the cluster has {what} already: nothing was written"), fact, remedy)
}

impl Restoring<'_> {
    fn chunks(&self) -> Vec<&BackupChunk> {
        let manifest = self.manifest;
        let services =
            [("kv", &manifest.kv), ("coordination", &manifest.coordination), ("txn", &manifest.txn)];
        let records = services.into_iter().filter(|(name, _)| self.wanted.has(name));
        let records = records.flat_map(|(_, records)| records.iter().flat_map(|it| &it.chunks));
        let logs = self.logs().into_iter().flat_map(|log| &log.chunks);
        let colours = manifest.fuzzylog.iter().filter(|_| self.wanted.has("fuzzylog"));
        let colours = colours.flat_map(SavedColours::chunks).map(|it| &it.chunk);
        records.chain(logs).chain(&manifest.groups.chunks).chain(colours).collect()
    }

    fn logs(&self) -> Vec<&SavedLog> {
        let all = self.manifest.logs.iter().flatten().filter(|_| self.wanted.has("log"));
        all.filter(|log| self.wanted.has_log(log)).collect()
    }

    /// Reads all that is wanted, so that nothing is written of a backup that is damaged.
    pub async fn check(&self) -> Result<(), Failure> {
        for chunk in self.chunks() {
            read_chunk(self.store, self.id, chunk).await?;
        }
        Ok(())
    }

    /// So many more records are restored.
    pub fn wrote(&self, count: u64) {
        if let Some(bar) = self.bar {
            bar.inc(count);
        }
    }

    /// A chunk's bytes.
    pub async fn read(&self, chunk: &BackupChunk) -> Result<Bytes, Failure> {
        read_chunk(self.store, self.id, chunk).await
    }

    /// Writes it; what was written, in words.
    pub fn run(&self) -> Result<Vec<String>, Failure> {
        super::wait(self.check())?;
        let mut done = Vec::new();
        let manifest = self.manifest;
        if let Some(kv) = manifest.kv.as_ref().filter(|_| self.wanted.has("kv")) {
            let count =
                self.endpoint.with_client(|client| async move { self.write_kv(&client, kv).await })?;
            done.push(format!("{count} keys"));
        }
        if let Some(nodes) = manifest.coordination.as_ref().filter(|_| self.wanted.has("coordination")) {
            done.push(format!("{} znodes", self.write_nodes(nodes)?));
        }
        if let Some(keys) = manifest.txn.as_ref().filter(|_| self.wanted.has("txn")) {
            let write = |client: TxnClient| async move { self.write_transactions(&client, keys).await };
            done.push(format!("{} keys of transactions", self.endpoint.with_transactions(write)?));
        }
        if manifest.logs.is_some() && self.wanted.has("log") {
            let (logs, entries) = self.endpoint.with_log(|log| async move { self.write_logs(&log).await })?;
            done.push(format!("{entries} entries of {logs} logs"));
        }
        if let Some(saved) = manifest.fuzzylog.as_ref().filter(|_| self.wanted.has("fuzzylog")) {
            let write = |log: FuzzyLog| async move { self.write_colours(&log, saved).await };
            let (colours, nodes) = self.endpoint.with_fuzzylog(write)?;
            done.push(format!("{nodes} nodes of {colours} colours"));
        }
        Ok(done)
    }

    async fn write_kv(&self, client: &Client, kv: &Records) -> Result<u64, Failure> {
        let failed = |error| self.endpoint.explain(&error);
        let page = client.scan("", None, 1, Level::Linearizable).await.map_err(failed)?;
        if !self.wanted.merge && !page.items.is_empty() {
            return Err(not_empty("keys"));
        }
        let (mut in_flight, mut count) = (FuturesUnordered::new(), 0);
        for chunk in &kv.chunks {
            for record in records(&self.read(chunk).await?) {
                let mut rest = &record[..];
                let parts = take_part(&mut rest).zip(take_part(&mut rest));
                let Some((key, value)) = parts.filter(|(key, _)| self.wanted.has_key(key)) else { continue };
                if in_flight.len() >= IN_FLIGHT_MAX {
                    in_flight.next().await.transpose().map_err(failed)?;
                }
                let (key, value) = (key.to_vec(), value.to_vec());
                in_flight.push(async move { client.put(key, value).await });
                count += 1;
                self.wrote(1);
            }
        }
        while let Some(written) = in_flight.next().await {
            written.map_err(failed)?;
        }
        Ok(count)
    }

    fn write_nodes(&self, nodes: &Records) -> Result<u64, Failure> {
        let failed = |error| self.zookeeper.explain(&error);
        let mut target =
            Target::new(self.zookeeper.connect(self.endpoint.tls()?.as_ref())?, self.wanted.merge)
                .map_err(failed)?;
        let mut count = 0;
        for chunk in &nodes.chunks {
            for record in records(&super::wait(self.read(chunk))?) {
                let mut body = &record[..];
                let path = take_part(&mut body).and_then(|path| std::str::from_utf8(path).ok());
                let Some(path) = path.filter(|path| self.wanted.has_path(path)) else { continue };
                target.restore_as_written(path, body).map_err(failed)?;
                count += 1;
                self.wrote(1);
            }
        }
        target.finish().map_err(failed)?;
        target.client.close();
        Ok(count)
    }

    async fn write_transactions(&self, client: &TxnClient, keys: &Records) -> Result<u64, Failure> {
        let failed = |error| crate::commands::txn::explain(&error, self.endpoint);
        let found = client.read(TxnLevel::Strict).scan("", 1).run().await.map_err(failed)?;
        if !self.wanted.merge && found.scans.iter().any(|scan| !scan.rows.is_empty()) {
            return Err(not_empty("keys of transactions"));
        }
        let (session, mut count) = (client.session(), 0);
        for chunk in &keys.chunks {
            let all: Vec<(Bytes, Bytes)> = records(&self.read(chunk).await?)
                .iter()
                .filter_map(|record| {
                    let mut rest = &record[..];
                    let (key, value) = take_part(&mut rest).zip(take_part(&mut rest))?;
                    self.wanted.has_key(key).then(|| (record.slice_ref(key), record.slice_ref(value)))
                })
                .collect();
            for some in all.chunks(KEYS_OF_ONE) {
                let call = some
                    .iter()
                    .fold(session.one_shot(), |call, (key, value)| call.put(key.clone(), value.clone()));
                call.run().await.map_err(failed)?;
                count += some.len() as u64;
                self.wrote(some.len() as u64);
            }
        }
        Ok(count)
    }

    async fn write_logs(&self, log: &Log) -> Result<(usize, u64), Failure> {
        let failed = |error| log_failure(&error);
        let there = log.list("", 1).await.map_err(failed)?;
        if !self.wanted.merge && !there.is_empty() {
            return Err(not_empty("logs"));
        }
        let (logs, mut entries) = (self.logs(), 0);
        for saved in &logs {
            entries += self.write_log(log, saved).await?;
        }
        for chunk in &self.manifest.groups.chunks {
            for record in records(&self.read(chunk).await?) {
                let Ok(state) = GroupState::decoded(&record) else { continue };
                let of_logs = |progress: &Progress| logs.iter().any(|log| log.name == progress.log);
                let progress: Vec<Progress> = state.progress.into_iter().filter(of_logs).collect();
                if !progress.is_empty() {
                    log.commit(&state.group, progress).await.map_err(failed)?;
                }
            }
        }
        Ok((logs.len(), entries))
    }

    async fn write_log(&self, log: &Log, saved: &SavedLog) -> Result<u64, Failure> {
        let failed = |error| log_failure(&error);
        let options = LogOptions {
            retain_bytes: saved.retain_bytes,
            // What is old by now is to come back all the same: it expires from today on.
            retain: (saved.retain_ms > 0).then(|| Duration::from_millis(saved.retain_ms)),
            cleanup: Cleanup::named(&saved.cleanup).unwrap_or_default(),
            first: saved.first,
        };
        log.create_with(&saved.name, options).await.map_err(failed)?;
        let mut at = saved.first;
        for chunk in &saved.chunks {
            let bytes = self.read(chunk).await?;
            let (mut batch, mut count) = (Rows::default(), 0u64);
            let mut entries = Rows::iter(&bytes).peekable();
            while let Some(entry) = entries.next() {
                batch.push(entry);
                count += 1;
                let is_full = entries.peek().is_none_or(|next| batch.len() + next.len() > APPEND_BYTES);
                if is_full {
                    let rows = std::mem::take(&mut batch);
                    log.append_if(&saved.name, Some(at), rows).await.map_err(failed)?;
                    at += std::mem::take(&mut count);
                }
            }
            self.wrote(chunk.count);
        }
        if saved.sealed {
            log.seal(&saved.name).await.map_err(failed)?;
        }
        Ok(at - saved.first)
    }
}
