//! `ordinate backup --to`: takes the state of all services, and writes what is not there yet.

use super::colours;
use super::lease::Lease;
use super::manifest::{Manifest, Records, SavedLog, name_of, put_record, take_part};
use super::store::BackupStore;
use super::writer::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, ENDS_ONE_IN, Writer};
use crate::commands::admin;
use crate::commands::frame_file::{FrameFileReader, unsound};
use crate::commands::kv::Endpoint;
use crate::commands::{fetch, parse};
use crate::failure::Failure;
use kernel::Bytes;
use ordinate_client::{FuzzyLog, KeyRange, Log, LogError, Rows, TxnClient, TxnLevel};
use server::cut::{self, LogCut};
use server::http_client::{self, HttpClient};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::time::{Duration, SystemTime};

/// A log's chunks end behind positions that are multiples of this, or when they have so many bytes at most.
const LOG_CHUNK_ENTRIES: u64 = 4_096;
/// Entries of one read of a log, and keys of one of transactions.
const PAGE: u32 = 4_096;
/// How long the host may take for what it copies.
const CUT_WITHIN: Duration = Duration::from_secs(300);

/// Sorted records on their way into chunks.
#[derive(Default)]
struct Run {
    open: Vec<u8>,
    count: u64,
    records: Records,
}

impl Run {
    async fn add(&mut self, key: &[u8], record: &[u8], writer: &mut Writer<'_>) -> Result<(), Failure> {
        put_record(&mut self.open, record);
        self.count += 1;
        let ends = self.open.len() >= CHUNK_BYTES_MIN && parts::digest(key).is_multiple_of(ENDS_ONE_IN);
        if ends || self.open.len() >= CHUNK_BYTES_MAX { self.end(writer).await } else { Ok(()) }
    }

    async fn end(&mut self, writer: &mut Writer<'_>) -> Result<(), Failure> {
        if self.count > 0 {
            let (bytes, count) = (std::mem::take(&mut self.open), std::mem::take(&mut self.count));
            self.records.chunks.push(writer.write(bytes, 0, count).await?);
        }
        Ok(())
    }

    async fn whole(mut self, writer: &mut Writer<'_>) -> Result<Records, Failure> {
        self.end(writer).await?;
        Ok(self.records)
    }
}

/// Where a backup is taken, and how.
pub struct Source<'a> {
    pub admin: &'a str,
    pub endpoint: &'a Endpoint,
    /// What holds off those who remove chunks.
    pub lease: &'a Lease<'a>,
}

impl Source<'_> {
    fn failed(&self, what: String) -> Failure {
        let remedy = "ordinate status, and the same at another host (--admin)";
        Failure::failed(
            "O1044",
            format!("the state of the host at {} cannot be read", self.admin),
            what,
            remedy,
        )
    }

    /// Asks the host for the state of its services.
    fn ask(&self) -> std::io::Result<FrameFileReader<BufReader<impl Read + use<>>>> {
        let request = admin::request(self.admin, self.endpoint.token(), "GET", "/v1/cut", "")?;
        let answer = HttpClient::patient(CUT_WITHIN).begin(request)?;
        let is_there = answer.status() == 200;
        let input = BufReader::with_capacity(1 << 20, http_client::reader(answer));
        if !is_there {
            let mut said = String::new();
            input.take(4 << 10).read_to_string(&mut said)?;
            return Err(std::io::Error::other(said.trim().to_owned()));
        }
        Ok(FrameFileReader::new(input))
    }

    /// Takes a backup; returns its identifier.
    pub fn take(&self, store: &BackupStore, writer: &mut Writer<'_>) -> Result<(String, Manifest), Failure> {
        let begun_ms =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64);
        let status = parse(self.admin, &fetch(self.admin, self.endpoint.token(), "/v1/status")?)?;
        let is_on = |service: &str| status["serves"].get(service).is_some();
        let before = super::wait(async {
            match Manifest::all(store).await?.pop() {
                Some(id) => Manifest::read(store, &id).await.map(Some),
                None => Ok(None),
            }
        })?;
        let mut input = self.ask().map_err(|error| self.failed(error.to_string()))?;
        let about = input.about(cut::FIRST_LINE, "state of a host");
        let about = about.map_err(|error| self.failed(error.to_string()))?;
        let text = |name: &str| about[name].as_str().unwrap_or("").to_owned();
        let mut manifest = Manifest::begin(&text("cluster"), &text("host"), begun_ms);
        let has = |name: &str| about[name] == true;
        let logs =
            super::wait(self.read_cut(input, &mut manifest, (has("kv"), has("coordination")), writer))?;
        if let Some(kv) = &mut manifest.kv {
            kv.at = about["revision"].as_u64().unwrap_or(0);
        }
        if has("log") {
            let known: BTreeMap<&str, &SavedLog> = before
                .iter()
                .flat_map(|it| it.logs.iter().flatten())
                .map(|log| (log.name.as_str(), log))
                .collect();
            let saved = self.endpoint.with_log(|log| async move {
                let mut saved = Vec::new();
                for cut in logs {
                    let known = known.get(cut.name.as_str()).copied();
                    saved.extend(save_log(&log, cut, known, writer).await?);
                }
                Ok((saved, writer))
            })?;
            manifest.logs = Some(saved.0);
            return self.finish(store, manifest, before.as_ref(), is_on, saved.1);
        }
        self.finish(store, manifest, before.as_ref(), is_on, writer)
    }

    fn finish(
        &self,
        store: &BackupStore,
        mut manifest: Manifest,
        before: Option<&Manifest>,
        is_on: impl Fn(&str) -> bool,
        writer: &mut Writer<'_>,
    ) -> Result<(String, Manifest), Failure> {
        let endpoint = self.endpoint;
        if is_on("txn") {
            let writer = &mut *writer;
            let save = |client: TxnClient| async move { save_keys(&client, endpoint, writer).await };
            manifest.txn = Some(endpoint.with_transactions(save)?);
        }
        if is_on("fuzzylog") {
            let before = before.and_then(|before| before.fuzzylog.as_ref());
            let save = |log: FuzzyLog| async move { colours::save(&log, endpoint, before, writer).await };
            manifest.fuzzylog = Some(endpoint.with_fuzzylog(save)?);
        }
        let left_out = [("sequence", is_on("sequence")), ("log", is_on("log") && manifest.logs.is_none())];
        manifest.left_out = left_out.into_iter().filter(|it| it.1).map(|it| it.0.to_owned()).collect();
        self.lease.check()?;
        let id = super::wait(manifest.write(store))?;
        // Who took the lease for lost, and has not seen the manifest, may be at the chunks: then this is no backup.
        if let Err(lost) = self.lease.check_there() {
            super::wait(store.delete(&name_of(&id)))?;
            return Err(lost);
        }
        Ok((id, manifest))
    }

    async fn read_cut(
        &self,
        mut input: FrameFileReader<impl std::io::Read>,
        manifest: &mut Manifest,
        (has_kv, has_znodes): (bool, bool),
        writer: &mut Writer<'_>,
    ) -> Result<Vec<LogCut>, Failure> {
        let broken = |at, what: &str| self.failed(unsound(at, what).to_string());
        let mut runs: BTreeMap<u8, Run> = BTreeMap::new();
        let mut logs = Vec::new();
        loop {
            let Some((at, body)) = input.next().map_err(|error| self.failed(error.to_string()))? else {
                return Err(self.failed("the answer is truncated".to_owned()));
            };
            let Some((&kind, mut rest)) = body.split_first() else { return Err(broken(at, "empty frame")) };
            if kind == cut::END {
                break;
            }
            while !rest.is_empty() {
                let record = take_part(&mut rest).ok_or_else(|| broken(at, "malformed record"))?;
                if kind == cut::LOGS {
                    logs.push(
                        serde_json::from_slice(record).map_err(|error| broken(at, &error.to_string()))?,
                    );
                    continue;
                }
                let key = take_part(&mut &record[..]).unwrap_or(record);
                runs.entry(kind).or_default().add(key, record, writer).await?;
            }
        }
        let mut of = async |kind| runs.remove(&kind).unwrap_or_default().whole(writer).await;
        manifest.kv = if has_kv { Some(of(cut::KEYS).await?) } else { None };
        manifest.coordination = if has_znodes { Some(of(cut::ZNODES).await?) } else { None };
        manifest.groups = of(cut::GROUPS).await?;
        Ok(logs)
    }
}

/// The entries of a log up to where the cut found its end. Those that were trimmed meanwhile are left out; none if it was deleted.
async fn save_log(
    log: &Log,
    cut: LogCut,
    before: Option<&SavedLog>,
    writer: &mut Writer<'_>,
) -> Result<Option<SavedLog>, Failure> {
    let LogCut { name, number, created_ms, first, next, sealed, retain_bytes, retain_ms, cleanup } = cut;
    let chunks = Vec::new();
    let mut saved =
        SavedLog { name, number, created_ms, first, next, sealed, retain_bytes, retain_ms, cleanup, chunks };
    let mut at = first;
    // Entries never change: whole chunks of an earlier backup need not be read again.
    let same = before.filter(|it| (it.number, it.created_ms) == (number, created_ms));
    for chunk in same.iter().flat_map(|it| &it.chunks) {
        let end = chunk.first + chunk.count;
        let is_whole = end.is_multiple_of(LOG_CHUNK_ENTRIES) || chunk.bytes as usize >= CHUNK_BYTES_MAX;
        if chunk.first == at && end <= next && is_whole && writer.has(chunk).await? {
            saved.chunks.push(chunk.clone());
            at = end;
        }
    }
    let (mut open, mut begin) = (Rows::default(), at);
    while at < next {
        let most = (next - at).min(PAGE.into()) as u32;
        let page = match log.read(&saved.name, at, most, Duration::ZERO).await {
            Ok(page) => page,
            Err(LogError::Trimmed { resume_from, .. }) => {
                let resume = resume_from.min(next);
                (saved.first, at, begin, open) = (resume, resume, resume, Rows::default());
                saved.chunks.clear();
                continue;
            }
            Err(LogError::NoSuchLog(_)) => return Ok(None),
            Err(error) => return Err(crate::commands::log::failure(&error)),
        };
        for entry in page.entries {
            open.push(&entry);
            at += 1;
            if at.is_multiple_of(LOG_CHUNK_ENTRIES) || open.len() >= CHUNK_BYTES_MAX || at == next {
                let rows: Bytes = std::mem::take(&mut open).into_bytes();
                saved.chunks.push(writer.write(rows.to_vec(), begin, at - begin).await?);
                begin = at;
            }
        }
    }
    Ok(Some(saved))
}

/// All keys of transactions as of one timestamp.
async fn save_keys(
    client: &TxnClient,
    endpoint: &Endpoint,
    writer: &mut Writer<'_>,
) -> Result<Records, Failure> {
    let failed = |error| crate::commands::txn::explain(&error, endpoint);
    // A strict read of a key says when now is.
    let at = client.read(TxnLevel::Strict).keys(["now"]).run().await.map_err(failed)?.at;
    let (mut run, mut start) = (Run::default(), Bytes::new());
    loop {
        let range = KeyRange { start, end: None };
        let found = client.read(TxnLevel::At(at)).scan_range(range, PAGE).run().await.map_err(failed)?;
        let Some(page) = found.scans.into_iter().next() else { break };
        for row in page.rows {
            let Some(value) = row.value else { continue };
            let mut record = Vec::new();
            put_record(&mut record, &row.key);
            put_record(&mut record, &value);
            run.add(&row.key, &record, writer).await?;
        }
        match page.next {
            Some(next) => start = next,
            None => break,
        }
    }
    let mut records = run.whole(writer).await?;
    records.at = at.0;
    Ok(records)
}
