//! What users asked for and were answered, what the servers hold, and what must be true of both.

use super::judged::JudgedLogs;
use super::{DROPPING, RETAINED, begins_anew};
use ::mason::shard::ShardServer;
use ::mason::{Number, Shard};
use kernel::{HostId, NodeId, RequestId, invariant};
use shared_log::{Answer, Append, Entries, Logs, Produce, ROW_OVERHEAD, Request, Rows, Why};
use sim::Cluster;
use std::collections::BTreeMap;
use std::fmt::Write as _;

type Entry = Vec<u8>;

/// So many entries are counted again at each look.
const COUNTED_MAX: u64 = 64;

struct Asked {
    node: NodeId,
    request: Request,
    at: u64,
    /// The tails that anybody had learned of when this was asked: nothing older may be the answer.
    tails: BTreeMap<String, u64>,
    answered: Option<(u64, Answer)>,
}

/// A shard of the log service, as a family runs it.
pub(crate) trait HoldsLogs: Shard {
    /// The logs themselves.
    fn logs_here(&self) -> &Logs;
}

impl HoldsLogs for JudgedLogs {
    fn logs_here(&self) -> &Logs {
        self.logs()
    }
}

impl HoldsLogs for Logs {
    fn logs_here(&self) -> &Logs {
        self
    }
}

/// All calls of one run, and every entry that anybody has seen.
#[derive(Default)]
pub(crate) struct History {
    calls: BTreeMap<RequestId, Asked>,
    tails: BTreeMap<String, u64>,
    firsts: BTreeMap<String, u64>,
    entries: BTreeMap<(String, u64), Entry>,
    /// Where each entry of a log is.
    positions: BTreeMap<(String, Entry), u64>,
    /// Below which position of each log anybody has asked for entries to be dropped.
    trimmed: BTreeMap<String, u64>,
    looked: BTreeMap<(NodeId, String), u64>,
    /// Where a server stood when its blobs were looked for last.
    relied: BTreeMap<NodeId, Relied>,
}

/// What decides whether a server's blobs have to be looked for again.
#[derive(Clone, Copy, PartialEq)]
struct Relied {
    changes: u64,
    on_disk: usize,
    durable_below: Number,
    next: Number,
}

impl History {
    /// The tail of a log, as far as users know.
    pub(crate) fn tail(&self, name: &str) -> u64 {
        self.tails.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn asked(&mut self, id: RequestId, node: NodeId, request: Request, at: u64) {
        if let Request::Trim(trim) = &request {
            let known = self.trimmed.entry(trim.name.clone()).or_insert(0);
            *known = trim.before.max(*known);
        }
        let asked = Asked { node, request, at, tails: self.tails.clone(), answered: None };
        self.calls.insert(id, asked);
    }

    /// The host starts anew: what it holds is looked at again.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.looked.retain(|(node, _), _| node.host() != host);
        self.relied.retain(|node, _| node.host() != host);
    }

    fn is_at(&mut self, name: &str, position: u64, entry: &[u8], who: &dyn std::fmt::Display) {
        let known = self.entries.entry((name.to_owned(), position)).or_insert_with(|| entry.to_vec());
        let words = |entry: &[u8]| String::from_utf8_lossy(entry).into_owned();
        invariant!(
            UNIQ,
            *known == entry,
            "{who}: position {position} of {name} holds {} and {}",
            words(known),
            words(entry)
        );
        let known = *self.positions.entry((name.to_owned(), entry.to_vec())).or_insert(position);
        invariant!(
            UNIQ,
            known == position,
            "{who}: {} is at {known} and at {position} of {name}",
            words(entry)
        );
    }

    fn has_tail(&mut self, name: &str, tail: u64) {
        let known = self.tails.entry(name.to_owned()).or_insert(tail);
        *known = tail.max(*known);
    }

    /// What is there already is answered as it was then, however far the log has come.
    fn produced(&mut self, id: RequestId, produce: &Produce, firsts: &[u64]) {
        invariant!(UNIQ, firsts.len() == 1, "{}: one part, and {firsts:?}", id.0);
        for &first in firsts {
            for (position, entry) in (first..).zip(Rows::iter(&produce.entries)) {
                self.is_at(&produce.name, position, entry, &id.0);
                self.has_tail(&produce.name, position + 1);
            }
        }
    }

    fn appended(&mut self, id: RequestId, append: &Append, firsts: &[u64]) {
        invariant!(UNIQ, firsts.len() == append.parts.len(), "{}: {firsts:?}", id.0);
        for (part, &first) in append.parts.iter().zip(firsts) {
            invariant!(UNIQ, part.expect.is_none_or(|at| at == first), "{}: not at {first}", id.0);
            for (position, entry) in (first..).zip(Rows::iter(&part.entries)) {
                self.is_at(&part.name, position, entry, &id.0);
                self.has_tail(&part.name, position + 1);
            }
        }
    }

    fn on_entries(&mut self, id: RequestId, name: &str, entries: &Entries) {
        let count = Rows::count(&entries.rows).map(|count| count as u64);
        let whole = count == Some(entries.next - entries.first);
        invariant!(CONTIG, whole, "{}: a hole among {} to {}", id.0, entries.first, entries.next);
        invariant!(CONTIG, entries.next <= entries.tail, "{}: beyond the tail", id.0);
        invariant!(
            CONTIG,
            entries.next > entries.first || entries.tail == entries.first,
            "{}: nothing at {} below the tail",
            id.0,
            entries.first
        );
        for (position, entry) in (entries.first..).zip(Rows::iter(&entries.rows)) {
            self.is_at(name, position, entry, &id.0);
        }
        self.has_tail(name, entries.tail);
    }

    pub(crate) fn answered(&mut self, id: RequestId, answer: Answer, now: u64) {
        let Some(asked) = self.calls.get_mut(&id) else { return };
        asked.answered = Some((now, answer.clone()));
        let (request, tails) = (asked.request.clone(), std::mem::take(&mut asked.tails));
        let low_watermark = |name: &str| tails.get(name).copied().unwrap_or(0);
        let recent = |name: &str, tail: u64| {
            invariant!(
                LIN,
                tail >= low_watermark(name),
                "{}: {name} ends at {tail}, not {}",
                id.0,
                low_watermark(name)
            );
        };
        match (request, answer) {
            (Request::Append(append), Answer::Appended(firsts)) => {
                append.parts.iter().zip(&firsts).for_each(|(part, &first)| recent(&part.name, first));
                self.appended(id, &append, &firsts);
            }
            (Request::Produce(produce), Answer::Appended(firsts)) => self.produced(id, &produce, &firsts),
            (Request::Read(read) | Request::Recall(read), Answer::Entries(entries)) => {
                invariant!(CONTIG, entries.first == read.from, "{}: not from {} on", id.0, read.from);
                recent(&read.name, entries.tail);
                self.on_entries(id, &read.name, &entries);
            }
            (Request::Stat(_) | Request::List(_), Answer::Logs(logs)) => {
                let sorted = logs.windows(2).all(|pair| pair[0].name < pair[1].name);
                invariant!(LIN, sorted, "{}: logs out of order", id.0);
                for log in logs.into_iter().filter(|log| !begins_anew(&log.name)) {
                    recent(&log.name, log.next);
                    self.has_tail(&log.name, log.next);
                }
            }
            (_, Answer::Refused(refused)) => match refused.why {
                // A client that knows of an entry knows that there is a log.
                Why::NoSuchLog => recent(&refused.name, 0),
                Why::Sealed | Why::Moved | Why::BeyondTail => recent(&refused.name, refused.at),
                Why::Trimmed => {
                    let first = self.firsts.entry(refused.name.clone()).or_insert(0);
                    *first = refused.at.max(*first);
                }
                Why::Exists
                | Why::Unknown
                | Why::Busy
                | Why::Unarchived
                | Why::OverBudget
                | Why::DiskFull => {}
                // Nobody is asked for grants in a simulation.
                Why::NotGranted => {}
                Why::Malformed | Why::Full | Why::TooLarge | Why::Unsupported => {
                    invariant!(LIVE, false, "{}: {refused:?}", id.0);
                }
            },
            (Request::Describe(_), Answer::Description(described)) => {
                recent(&described.stat.name, described.stat.next);
                self.has_tail(&described.stat.name, described.stat.next);
            }
            (Request::Identify(_), Answer::Identity(_)) | (Request::Expire(_), Answer::Done) => {}
            (Request::Create(_) | Request::Trim(_) | Request::Seal(_) | Request::Commit(_), Answer::Done)
            | (Request::Commit(_) | Request::Produce(_), Answer::Rejected(_))
            | (Request::BeginGeneration(_) | Request::GroupOf(_), Answer::Group(_)) => {}
            (request, answer) => invariant!(UNIQ, false, "{}: {request:?} -> {answer:?}", id.0),
        }
    }

    /// What the servers of a host hold agrees with all that was seen before, and lacks nothing between its ends.
    pub(crate) fn look<'a, S: HoldsLogs + 'a, N: kernel::Node>(
        &mut self,
        host: HostId,
        servers: impl Iterator<Item = (NodeId, &'a ShardServer<S>)>,
        cluster: &Cluster<'_, N>,
    ) {
        for (node, server) in servers {
            for (name, log) in server.service().logs_here().logs().filter(|(name, _)| !begins_anew(name)) {
                let (first, next) = log.range();
                // Nothing goes by itself, but for what is retained for a second, and what the budget has no room for.
                let asked = self.trimmed.get(name).copied().unwrap_or(0);
                let may_go = name == RETAINED || name == DROPPING;
                invariant!(
                    DUR,
                    first <= asked || may_go,
                    "{node} begins {name} at {first}, and what is below {asked} may go"
                );
                let (dropped, gone) = (log.description().dropped, if name == DROPPING { first } else { 0 });
                invariant!(DUR, dropped == gone, "{node} counts {dropped} of {gone} entries of {name}");
                let (counted, known) = (log.description().dropped_bytes, self.bytes_below(name, gone));
                invariant!(
                    DUR,
                    known.is_none_or(|known| known == counted),
                    "{node} counts {counted} bytes of entries that {name} dropped, of {known:?}"
                );
                let key = (node, name.to_owned());
                let mut at = self.looked.get(&key).copied().unwrap_or(0).max(first);
                if at > next {
                    // It has taken an older snapshot of its own after a restart.
                    at = first;
                }
                for segment in log.segments(at) {
                    let begins = segment.first;
                    invariant!(DUR, begins <= at, "{node} holds {begins} of {name} after {at}");
                    let entries = segment.rows.into_iter().flat_map(Rows::iter);
                    for (position, entry) in (begins..).zip(entries).skip((at - begins) as usize) {
                        self.is_at(name, position, entry, &node);
                    }
                    at = segment.next;
                }
                invariant!(DUR, at == next, "{node} says that {name} ends at {next}, and lacks {at}");
                self.looked.insert(key, at);
            }
            // What has left the memory, and what a snapshot that others rely on names, must be on the disk.
            let relied = Relied {
                changes: cluster.blob_changes(host),
                on_disk: server.blobs_on_disk().size_hint().0,
                durable_below: server.durable_below(),
                next: server.next(),
            };
            if self.relied.insert(node, relied) == Some(relied) {
                continue;
            }
            for id in server.blobs_on_disk().chain(server.blobs_named()) {
                invariant!(
                    DUR,
                    cluster.has_blob(node, id),
                    "{node} takes {id} for durable, and it is not there"
                );
            }
        }
    }

    /// What the entries below a position cost, if all of them are known and there are few.
    fn bytes_below(&self, name: &str, end: u64) -> Option<u64> {
        if end > COUNTED_MAX {
            return None;
        }
        let entries = self.entries.range((name.to_owned(), 0)..(name.to_owned(), end));
        let (count, bytes) = entries.fold((0, 0), |(count, bytes), (_, entry)| {
            (count + 1, bytes + (entry.len() + ROW_OVERHEAD) as u64)
        });
        (count == end).then_some(bytes)
    }

    /// What is known to be at a position.
    pub(crate) fn entry(&self, name: &str, position: u64) -> Option<&[u8]> {
        self.entries.get(&(name.to_owned(), position)).map(Vec::as_slice)
    }

    pub(crate) fn check<'a, S: HoldsLogs + 'a>(
        &self,
        servers: impl Iterator<Item = (NodeId, &'a ShardServer<S>)>,
    ) {
        self.check_acknowledged(servers);
        self.check_atomicity();
        self.check_order();
    }

    /// Every acknowledged entry is at its position, or was trimmed there.
    fn check_acknowledged<'a, S: HoldsLogs + 'a>(
        &self,
        servers: impl Iterator<Item = (NodeId, &'a ShardServer<S>)>,
    ) {
        let mut tails: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, server) in servers {
            for (name, log) in server.service().logs_here().logs() {
                let tail = tails.entry(name).or_insert(0);
                *tail = log.range().1.max(*tail);
            }
        }
        if tails.is_empty() {
            return;
        }
        for (name, &known) in &self.tails {
            let tail = tails.get(name.as_str()).copied().unwrap_or(0);
            invariant!(DUR, known <= tail, "{name} ends at {tail}; users learned of {known}");
        }
    }

    /// An append is in all of its logs or in none, as far as the logs are known from end to end.
    fn check_atomicity(&self) {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (name, position) in self.entries.keys() {
            let (count, end) = counts.entry(name).or_default();
            *count += 1;
            *end = position + 1;
        }
        let whole = |name: &str| counts.get(name).is_some_and(|(count, end)| count == end);
        for (id, asked) in &self.calls {
            let Request::Append(append) = &asked.request else { continue };
            let known = append.parts.iter().filter(|part| whole(&part.name));
            let there: Vec<bool> = known
                .flat_map(|part| Rows::iter(&part.entries).map(|entry| (part.name.clone(), entry.to_vec())))
                .map(|entry| self.positions.contains_key(&entry))
                .collect();
            let all = there.windows(2).all(|pair| pair[0] == pair[1]);
            invariant!(ATOMIC, all, "{}: one part was appended without another: {there:?}", id.0);
        }
    }

    /// Two appends that share two logs stand in the same order in both.
    fn check_order(&self) {
        let mut in_both: BTreeMap<(&str, &str), Vec<(u64, u64)>> = BTreeMap::new();
        for asked in self.calls.values() {
            let Request::Append(append) = &asked.request else { continue };
            let at = append.parts.iter().filter_map(|part| {
                let entry = Rows::iter(&part.entries).next()?.to_vec();
                Some((part.name.as_str(), *self.positions.get(&(part.name.clone(), entry))?))
            });
            let at: Vec<(&str, u64)> = at.collect();
            for (nth, &(one, first)) in at.iter().enumerate() {
                for &(other, second) in &at[nth + 1..] {
                    in_both.entry((one, other)).or_default().push((first, second));
                }
            }
        }
        for (names, mut pairs) in in_both {
            pairs.sort_unstable();
            let agree = pairs.windows(2).all(|pair| pair[0].1 < pair[1].1);
            invariant!(MSO, agree, "{names:?} disagree on the order of their appends: {pairs:?}");
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, Asked { node, request, at, answered, .. }) in &self.calls {
            let outcome = answered.as_ref().map(|(at, answer)| format!("{at} {answer:?}"));
            let outcome = outcome.unwrap_or_else(|| "unknown".to_owned());
            let _ = writeln!(text, "{} {node} {at} {request:?} -> {outcome}", id.0);
        }
        text
    }
}
