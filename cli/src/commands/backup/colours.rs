//! The partially ordered log in backups: its nodes by colour and position, as of one time of all partitions.

use super::manifest::{BackupChunk, ColourChunk, NodePlace, SavedColours, put_record, take_part};
use super::restore::{Restoring, not_empty};
use super::writer::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, ENDS_ONE_IN, Writer};
use crate::commands::admin::GRANT_REMEDY;
use crate::commands::kv::Endpoint;
use crate::failure::Failure;
use colours::names::{NamedBody, colour_of};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use fuzzylog::{Colour, ColourNode, NodePosition, SpanDigest};
use kernel::{Bytes, Decode as _};
use ordinate_client::{FuzzyError, FuzzyFailure, FuzzyLog, NodeAt, NodePoint, SeenTime};
use server::unique::unique_number;
use std::collections::BTreeMap;

/// Colours whose nodes are on their way into a cluster at a time.
const IN_FLIGHT_MAX: usize = 64;
/// Nodes of one call, and their bytes, unless one node has more.
const PAGE_NODES: usize = 256;
const PAGE_BYTES: usize = 256 << 10;
/// A record begins with the colour and the position; the node follows, if there is one.
const PLACE_BYTES: usize = 16;

/// A failed call, in the user's terms.
fn explain(error: &FuzzyError, endpoint: &Endpoint) -> Failure {
    let said = error.to_string();
    match error {
        FuzzyError::Failed(FuzzyFailure::NotGranted) => {
            let what = "the cluster refuses this: it was not granted";
            Failure::failed("O1050", what, said, GRANT_REMEDY)
        }
        FuzzyError::Failed(FuzzyFailure::OtherRegion) => {
            let what = "the cluster has regions, which take no nodes of a backup";
            let remedy = "a cluster without [regions], or --only with other services";
            Failure::input("O1047", what, "their logs of a colour begin where their own appends do", remedy)
        }
        FuzzyError::Failed(_) => {
            let what = "the partially ordered log refused the call";
            Failure::failed("O1012", what, said, "ordinate fuzzylog partitions")
        }
        FuzzyError::Unreached(error) | FuzzyError::Unknown(error) => endpoint.explain_unexecuted(error),
        FuzzyError::AlreadyTrimmed { .. }
        | FuzzyError::BeyondTail { .. }
        | FuzzyError::NoMemory { .. }
        | FuzzyError::MapRemoved
        | FuzzyError::Fault(_) => {
            Failure::failed("O1012", "the partially ordered log refused the call", said, "")
        }
    }
}

fn place_of(point: NodePoint) -> NodePlace {
    NodePlace { colour: point.colour, position: point.position }
}

fn point_of(place: NodePlace) -> NodePoint {
    NodePoint { colour: place.colour, position: place.position }
}

/// Where the next record may be: behind a node, or where a colour goes on whose nodes were trimmed.
fn behind(node: &NodeAt) -> NodePlace {
    let NodePoint { colour, position } = node.at;
    NodePlace { colour, position: position + u64::from(node.node.is_some()) }
}

/// A chunk that is being made.
struct OpenChunk {
    from: NodePlace,
    /// Where the partition is read on.
    next: NodePlace,
    bytes: Vec<u8>,
    count: u64,
    nodes: u64,
    colours: u64,
    /// Of the record before.
    colour: Option<u64>,
    digest: SpanDigest,
}

impl OpenChunk {
    fn at(from: NodePlace) -> Self {
        let colour = (from.position > 0).then_some(from.colour);
        let (bytes, digest) = (Vec::new(), SpanDigest::default());
        Self { from, next: from, bytes, count: 0, nodes: 0, colours: 0, colour, digest }
    }

    /// Adds a node; true if the chunk ends behind it.
    fn add(&mut self, found: &NodeAt) -> Result<bool, Failure> {
        let unreadable = |_| {
            Failure::failed("O1044", "a node cannot be read", "it is of a later version", "ordinate version")
        };
        let NodePoint { colour, position } = found.at;
        let place = [colour.to_le_bytes(), position.to_le_bytes()].concat();
        let node = found.node.as_ref().map(ColourNode::decoded).transpose().map_err(unreadable)?;
        self.digest.add(Colour(colour), NodePosition(position), node.as_ref());
        let body = found.node.as_deref().unwrap_or_default();
        put_record(&mut self.bytes, &[&place, body].concat());
        (self.count, self.next) = (self.count + 1, behind(found));
        self.nodes += u64::from(found.node.is_some());
        self.colours += u64::from(self.colour.replace(colour) != Some(colour));
        let ends = parts::digest(&place).is_multiple_of(ENDS_ONE_IN) && self.bytes.len() >= CHUNK_BYTES_MIN;
        Ok(ends || self.bytes.len() >= CHUNK_BYTES_MAX)
    }

    /// Writes it. `is_last`: the partition has nothing behind it.
    async fn end(self, is_last: bool, writer: &mut Writer<'_>) -> Result<ColourChunk, Failure> {
        let chunk = writer.write(self.bytes, 0, self.count).await?;
        let to = (!is_last).then_some(self.next);
        let span = format!("{:016x}", self.digest.finish());
        Ok(ColourChunk { chunk, colours: self.colours, nodes: self.nodes, from: self.from, to, span })
    }
}

/// Reads one partition as of a cut.
struct PartitionReader<'a> {
    log: &'a FuzzyLog,
    endpoint: &'a Endpoint,
    partition: u16,
    below: SeenTime,
    /// Chunks of an earlier backup, by where they begin.
    known: BTreeMap<NodePlace, &'a ColourChunk>,
}

impl PartitionReader<'_> {
    /// A chunk of an earlier backup that begins here, if the partition has just that.
    async fn same(&self, from: NodePlace, writer: &mut Writer<'_>) -> Result<Option<ColourChunk>, Failure> {
        let Some(&known) = self.known.get(&from) else { return Ok(None) };
        let span = (point_of(known.from), known.to.map(point_of));
        let digest = self.log.scan_digest(self.partition, self.below, span).await;
        let digest = digest.map_err(|error| explain(&error, self.endpoint))?;
        let is_same = digest.is_some_and(|digest| format!("{digest:016x}") == known.span);
        let is_there = is_same && writer.has(&known.chunk).await?;
        Ok(is_there.then(|| known.clone()))
    }

    async fn save(&self, writer: &mut Writer<'_>) -> Result<Vec<ColourChunk>, Failure> {
        let (mut chunks, mut open) = (Vec::new(), OpenChunk::at(NodePlace::default()));
        'chunks: loop {
            if open.count == 0
                && let Some(chunk) = self.same(open.from, writer).await?
            {
                let to = chunk.to;
                chunks.push(chunk);
                let Some(to) = to else { return Ok(chunks) };
                open = OpenChunk::at(to);
                continue;
            }
            let page = self.log.scan(self.partition, self.below, point_of(open.next)).await;
            let page = page.map_err(|error| explain(&error, self.endpoint))?;
            for node in &page.nodes {
                if open.add(node)? {
                    let next = open.next;
                    chunks.push(open.end(false, writer).await?);
                    open = OpenChunk::at(next);
                    if self.known.contains_key(&next) {
                        continue 'chunks;
                    }
                }
            }
            match page.next {
                // Nothing of what was looked at was there at the cut.
                Some(next) => open.next = place_of(next),
                None if open.count == 0 => return Ok(chunks),
                None => {
                    chunks.push(open.end(true, writer).await?);
                    return Ok(chunks);
                }
            }
        }
    }
}

/// All colours as of one time; what an earlier backup has of them is not read again.
pub async fn save(
    log: &FuzzyLog,
    endpoint: &Endpoint,
    before: Option<&SavedColours>,
    writer: &mut Writer<'_>,
) -> Result<SavedColours, Failure> {
    let cut = log.cut().await.map_err(|error| explain(&error, endpoint))?;
    let mut saved = SavedColours { at: cut.at.to_string(), partitions: Vec::new() };
    for partition in 0..cut.partitions {
        let known = before.and_then(|before| before.partitions.get(usize::from(partition)));
        let known = known.into_iter().flatten().map(|chunk| (chunk.from, chunk)).collect();
        let reader = PartitionReader { log, endpoint, partition, below: cut.at, known };
        saved.partitions.push(reader.save(writer).await?);
    }
    Ok(saved)
}

/// Nodes of one colour that go into a cluster together.
#[derive(Debug, PartialEq)]
struct RestoredPage {
    at: NodePoint,
    begins: bool,
    nodes: Vec<Bytes>,
    bytes: usize,
}

/// Goes through a partition's records: which colours are wanted, and which pages their nodes make.
#[derive(Default)]
struct Pages<'a> {
    prefix: Option<&'a str>,
    last: Option<LastColour>,
    colours: u64,
    nodes: u64,
}

/// The colour of the last record.
#[derive(Clone, Copy)]
struct LastColour {
    colour: u64,
    is_wanted: bool,
    /// The position behind its last node, and how many nodes it has so far.
    next: u64,
    nodes: u64,
}

impl Pages<'_> {
    /// A colour without a node has no name, so no prefix names it.
    fn is_wanted(&self, colour: u64, node: Option<&ColourNode>) -> bool {
        let Some(prefix) = self.prefix else { return true };
        let named = node.and_then(|node| NamedBody::decoded(&node.body).ok());
        let is_it = |name: &Bytes| colour_of(name).0 == colour && name.starts_with(prefix.as_bytes());
        named.is_some_and(|named| named.colours.iter().any(is_it))
    }

    /// The pages of a chunk, those of a colour together. None: it does not hold what a backup holds.
    fn of_chunk(&mut self, bytes: &Bytes) -> Option<Vec<Vec<RestoredPage>>> {
        let mut of_colours: Vec<Vec<RestoredPage>> = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let record = take_part(&mut rest)?;
            let (place, body) = record.split_at_checked(PLACE_BYTES)?;
            let (colour, position) = place.split_at(8);
            let colour = u64::from_le_bytes(*colour.first_chunk()?);
            let position = u64::from_le_bytes(*position.first_chunk()?);
            let body = (!body.is_empty()).then(|| bytes.slice_ref(body));
            let node = body.as_ref().map(ColourNode::decoded).transpose().ok()?;
            let known = self.last.filter(|last| last.colour == colour);
            let is_wanted =
                known.map_or_else(|| self.is_wanted(colour, node.as_ref()), |last| last.is_wanted);
            let follows = known.is_some_and(|last| last.next == position) && body.is_some();
            let has = u64::from(body.is_some());
            let before = known.map_or(0, |last| last.nodes);
            let nodes = if follows { before + has } else { has };
            self.last = Some(LastColour { colour, is_wanted, next: position + has, nodes });
            if !is_wanted {
                continue;
            }
            self.colours += u64::from(known.is_none());
            // What was trimmed while the backup was taken, behind a page that had it, goes again.
            self.nodes = self.nodes + nodes - before;
            let is_same = |pages: &Vec<RestoredPage>| pages.first().is_some_and(|it| it.at.colour == colour);
            if !of_colours.last().is_some_and(is_same) {
                of_colours.push(Vec::new());
            }
            let pages = of_colours.last_mut()?;
            let size = body.as_ref().map_or(0, Bytes::len);
            let has_room = |page: &RestoredPage| {
                follows && page.nodes.len() < PAGE_NODES && page.bytes + size <= PAGE_BYTES
            };
            match pages.last_mut().filter(|page| has_room(page)) {
                Some(page) => {
                    page.nodes.extend(body);
                    page.bytes += size;
                }
                None => {
                    let at = NodePoint { colour, position };
                    let nodes = body.into_iter().collect();
                    pages.push(RestoredPage { at, begins: !follows, nodes, bytes: size });
                }
            }
        }
        Some(of_colours)
    }
}

impl Restoring<'_> {
    fn explain_node(&self, error: &FuzzyError, at: NodePoint, nodes: &[Bytes]) -> Failure {
        let FuzzyError::BeyondTail { tail } = error else { return explain(error, self.endpoint) };
        let named = nodes.first().and_then(|node| ColourNode::decoded(node).ok());
        let named = named.and_then(|node| NamedBody::decoded(&node.body).ok());
        let names = named.into_iter().flat_map(|named| named.colours);
        let name = names.into_iter().find(|name| colour_of(name).0 == at.colour);
        let name = name.map_or_else(
            || format!("with the digest {:016x}", at.colour),
            |name| String::from_utf8_lossy(&name).into_owned(),
        );
        Failure::input(
            "O1043",
            format!("the colour {name} has {tail} nodes already: no node was restored"),
            "nodes that are there keep their positions, and no others can have them",
            "an empty cluster, or --only fuzzylog --prefix with colours that have nothing",
        )
    }

    /// Puts all that is wanted out of view.
    async fn put_colours(
        &self,
        log: &FuzzyLog,
        restore: u64,
        saved: &SavedColours,
    ) -> Result<(u64, u64), Failure> {
        let (mut colours, mut nodes) = (0, 0);
        for partition in &saved.partitions {
            let mut pages = Pages { prefix: self.wanted.prefix.as_deref(), ..Pages::default() };
            for chunk in partition {
                let bytes = self.read(&chunk.chunk).await?;
                let of_colours = pages.of_chunk(&bytes).ok_or_else(|| self.unreadable(&chunk.chunk))?;
                let mut in_flight = FuturesUnordered::new();
                for pages in of_colours {
                    if in_flight.len() >= IN_FLIGHT_MAX {
                        in_flight.next().await.transpose()?;
                    }
                    in_flight.push(async move {
                        for RestoredPage { at, begins, nodes, .. } in pages {
                            let put = log.restore_nodes(restore, at, begins, nodes.clone()).await;
                            put.map_err(|error| self.explain_node(&error, at, &nodes))?;
                            self.wrote(nodes.len() as u64);
                        }
                        Ok(())
                    });
                }
                // A colour may go on in the next chunk.
                while let Some(written) = in_flight.next().await {
                    written?;
                }
            }
            (colours, nodes) = (colours + pages.colours, nodes + pages.nodes);
        }
        Ok((colours, nodes))
    }

    fn unreadable(&self, chunk: &BackupChunk) -> Failure {
        super::manifest::damaged(self.id, &chunk.name(), "it does not hold nodes")
    }

    async fn has_colours(&self, log: &FuzzyLog) -> Result<bool, FuzzyError> {
        let cut = log.cut().await?;
        for partition in 0..cut.partitions {
            let mut from = Some(NodePoint { colour: 0, position: 0 });
            while let Some(at) = from {
                let page = log.scan(partition, cut.at, at).await?;
                if !page.nodes.is_empty() {
                    return Ok(true);
                }
                from = page.next;
            }
        }
        Ok(false)
    }

    /// Restores colours and nodes; how many of each. They come into view together, or not at all.
    pub async fn write_colours(&self, log: &FuzzyLog, saved: &SavedColours) -> Result<(u64, u64), Failure> {
        let failed = |error| explain(&error, self.endpoint);
        if !self.wanted.merge && self.has_colours(log).await.map_err(failed)? {
            return Err(not_empty("colours"));
        }
        let restore = unique_number().max(1);
        let (colours, nodes) = match self.put_colours(log, restore, saved).await {
            Ok(put) => put,
            Err(failure) => {
                // What is out of view would have appends wait. Who cannot be reached drops it with the next restore.
                let _ = log.open_restored(0).await;
                return Err(failure);
            }
        };
        let opened = log.open_restored(restore).await.map_err(failed)?;
        if opened != colours {
            let what = format!("{opened} of {colours} colours were restored");
            let fact = "another restore of the partially ordered log has dropped the others meanwhile";
            return Err(Failure::failed("O1048", what, fact, "an empty cluster, and one restore at a time"));
        }
        Ok((colours, nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuzzylog::{AppendId, AppendTime, PartitionId};
    use kernel::Encode as _;

    fn record(colour: u64, position: u64, name: Option<&'static str>) -> Vec<u8> {
        let body = |name: &'static str| {
            let colours = vec![Bytes::from_static(name.as_bytes())];
            let body = NamedBody { colours, body: Bytes::from_static(b"body") }.encoded().into();
            let at = AppendTime { clock: position + 1, partition: PartitionId(0), ahead: 0 };
            let id = AppendId { client: 1, number: position, content: 2 };
            ColourNode { id, at, colours: vec![Colour(colour)], body, across: None }.encoded()
        };
        let mut record = [colour.to_le_bytes(), position.to_le_bytes()].concat();
        record.extend(name.into_iter().flat_map(body));
        record
    }

    fn chunk(records: &[Vec<u8>]) -> Bytes {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| put_record(&mut bytes, record));
        bytes.into()
    }

    // A colour that goes on in the next chunk and begins anew there loses what it had; one with a hole has wrong positions.
    #[test]
    fn pages_follow_one_another_over_chunks() {
        let (red, blue) = (colour_of(b"red").0, colour_of(b"blue").0);
        let mut pages = Pages::default();
        let first = chunk(&[record(1, 9, None), record(red, 3, Some("red")), record(red, 4, Some("red"))]);
        let short = |pages: Vec<Vec<RestoredPage>>| -> Vec<(u64, u64, bool, usize)> {
            let of = |it: RestoredPage| (it.at.colour, it.at.position, it.begins, it.nodes.len());
            pages.into_iter().flatten().map(of).collect()
        };
        let found = pages.of_chunk(&first).expect("it is sound");
        assert_eq!(short(found), [(1, 9, true, 0), (red, 3, true, 2)]);
        let second =
            chunk(&[record(red, 5, Some("red")), record(red, 8, Some("red")), record(blue, 0, Some("blue"))]);
        let found = pages.of_chunk(&second).expect("it is sound");
        // What was trimmed between two pages of the backup: the colour begins behind it.
        assert_eq!(short(found), [(red, 5, false, 1), (red, 8, true, 1), (blue, 0, true, 1)]);
        assert_eq!((pages.colours, pages.nodes), (3, 2), "those that are left");
        let mut some = Pages { prefix: Some("re"), ..Pages::default() };
        assert_eq!(short(some.of_chunk(&first).expect("it is sound")), [(red, 3, true, 2)]);
        assert_eq!(
            short(some.of_chunk(&second).expect("it is sound")),
            [(red, 5, false, 1), (red, 8, true, 1)]
        );
        assert_eq!((some.colours, some.nodes), (1, 1));
        assert!(pages.of_chunk(&chunk(&[vec![1; 7]])).is_none());
    }
}
