//! What users asked for and were answered, and what must be true of it.

use super::strict::{Dated, check_times};
use super::truth::Truth;
use ::fuzzylog::{
    AppendCall, AppendId, AppendTime, Colour, ColourNode, Content, Edge, FuzzyRefusal, FuzzyRequest,
    FuzzyResponse, NodePosition, PlayedPage, RegionId, SnapshotCall,
};
use consistency::history::{Draft, History as Recorded};
use consistency::{Model, Process, Time, Verdict, check, operation_line};
use kernel::{NodeId, RequestId, invariant};
use std::collections::BTreeMap;
use std::fmt::Write as _;

struct Asked {
    user: u16,
    /// How often something of the user's had an unknown outcome before.
    incarnation: u32,
    node: NodeId,
    request: FuzzyRequest,
    at: u64,
    /// The first request of which this is the repetition.
    again: Option<RequestId>,
    answered: Option<(u64, FuzzyResponse)>,
}

/// All calls of one run.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, Asked>,
    /// How far users have asked to trim each colour.
    trimmed: BTreeMap<Colour, NodePosition>,
    /// The region, if there are several.
    region: Option<RegionId>,
    /// Where other regions' logs begin here, where it is not at their beginning.
    begins: BTreeMap<(RegionId, Colour), u64>,
    /// A region that is removed at some time.
    goes: Option<RegionId>,
}

/// Processes that stand for what comes from other regions have numbers from here on.
const COPIED_FROM: u64 = 1 << 62;

fn process(user: u16, incarnation: u32) -> Process {
    Process(u64::from(incarnation) << 16 | u64::from(user))
}

/// What an append's element is called.
fn element(id: AppendId) -> String {
    format!("{}.{}", id.client, id.number)
}

fn key(colour: Colour) -> String {
    format!("c{colour}")
}

/// What a request appends or takes a snapshot of.
fn content_of(request: &FuzzyRequest) -> Option<Content> {
    match request {
        FuzzyRequest::Append(call) => Some(call.content.clone()),
        FuzzyRequest::Snapshot(SnapshotCall { colours, .. }) => {
            Some(Content::new(colours.clone(), Vec::new()))
        }
        FuzzyRequest::Sync(_)
        | FuzzyRequest::Play(_)
        | FuzzyRequest::Trim(_)
        | FuzzyRequest::CountLogs(_)
        | FuzzyRequest::FindLogs(_)
        | FuzzyRequest::Cut(_)
        | FuzzyRequest::Scan(_)
        | FuzzyRequest::Restore(_)
        | FuzzyRequest::Open(_)
        | FuzzyRequest::Change(_)
        | FuzzyRequest::Follow(_) => None,
    }
}

/// True of an answer after which users ask for the same again: a clock cannot be relied on.
pub(super) fn asks_again(response: &FuzzyResponse) -> bool {
    use FuzzyRefusal::{FromTheFuture, NoClock};
    matches!(response, FuzzyResponse::Refused(NoClock | FromTheFuture))
}

fn name_of(call: &AppendCall) -> AppendId {
    AppendId { client: call.client, number: call.number, content: call.content.digest() }
}

impl History {
    /// The calls in one region among others.
    pub(super) fn of_region(region: RegionId) -> Self {
        Self { region: Some(region), ..Self::default() }
    }

    /// What is not here of other regions' logs.
    pub(super) fn lacks(&mut self, begins: BTreeMap<(RegionId, Colour), u64>, goes: Option<RegionId>) {
        (self.begins, self.goes) = (begins, goes);
    }

    /// Whether as much of each region's log was counted as is below a position. Of a log that begins later that may not be known yet.
    fn is_counted(&self, colour: Colour, counted: &Counts, there: &Counts) -> bool {
        let regions = counted.keys().chain(there.keys()).filter(|it| Some(**it) != self.goes);
        regions.into_iter().all(|region| match (counted.get(region), there.get(region)) {
            (Some(count), None) => self.begins.get(&(*region, colour)) == Some(count),
            (counted, there) => counted == there,
        })
    }

    /// What other regions have appended, each node in each colour by itself: at some time, as far as users here know.
    fn add_copied(&self, only: Option<Colour>, truth: &Truth, recorded: &mut Recorded) {
        let Some(region) = self.region else { return };
        for (nth, (colour, node)) in (0..).zip(truth.copied(region)) {
            if only.is_none_or(|only| only == colour) {
                let draft = Draft::new(Process(COPIED_FROM + nth), Time(0), Time(u64::MAX));
                recorded.add(draft.append(key(colour), element(node.id)).unknown());
            }
        }
    }

    pub(super) fn asked(
        &mut self,
        id: RequestId,
        (user, incarnation): (u16, u32),
        node: NodeId,
        request: FuzzyRequest,
        again: Option<RequestId>,
        at: u64,
    ) {
        if let FuzzyRequest::Trim(call) = &request {
            let trimmed = self.trimmed.entry(call.colour).or_default();
            *trimmed = call.before.max(*trimmed);
        }
        self.calls.insert(id, Asked { user, incarnation, node, request, at, again, answered: None });
    }

    /// Returns the user and what it asked for.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        response: &FuzzyResponse,
        now: u64,
    ) -> Option<(u16, FuzzyRequest)> {
        let asked = self.calls.get_mut(&id)?;
        asked.answered = Some((now, response.clone()));
        let is_sound = match (&asked.request, response) {
            (FuzzyRequest::Append(_), FuzzyResponse::Appended { .. })
            | (FuzzyRequest::Snapshot(_), FuzzyResponse::Snapshotted { .. })
            | (FuzzyRequest::Sync(_) | FuzzyRequest::Play(_), FuzzyResponse::Played(_))
            | (FuzzyRequest::Trim(_), FuzzyResponse::Trimmed { .. })
            | (FuzzyRequest::CountLogs(_), FuzzyResponse::LogsCounted { .. })
            | (FuzzyRequest::FindLogs(_), FuzzyResponse::LogsFound { .. })
            | (_, FuzzyResponse::Refused(FuzzyRefusal::Busy)) => true,
            (_, response) if asks_again(response) => true,
            (FuzzyRequest::Sync(call), FuzzyResponse::AlreadyTrimmed { first }) => {
                *first > call.from && Some(first) <= self.trimmed.get(&call.colour)
            }
            (FuzzyRequest::Play(call), FuzzyResponse::AlreadyTrimmed { first }) => {
                *first > call.from && Some(first) <= self.trimmed.get(&call.colour)
            }
            (FuzzyRequest::CountLogs(call), FuzzyResponse::AlreadyTrimmed { first }) => {
                *first > call.below && Some(first) <= self.trimmed.get(&call.colour)
            }
            _ => false,
        };
        invariant!(DUR, is_sound, "{:?} is answered {response:?}, {:?}", asked.request, self.trimmed);
        Some((asked.user, asked.request.clone()))
    }

    pub(super) fn user_of(&self, id: RequestId) -> Option<(u16, FuzzyRequest)> {
        self.calls.get(&id).map(|asked| (asked.user, asked.request.clone()))
    }

    /// Everything, at the end.
    pub(super) fn check(&self, truth: &Truth, follows_real_time: bool) {
        for asked in self.calls.values() {
            match (&asked.request, &asked.answered) {
                (FuzzyRequest::Append(call), Some((_, FuzzyResponse::Appended { at, placed }))) => {
                    let colours: Vec<Colour> = placed.iter().map(|it| it.colour).collect();
                    invariant!(ATOMIC, colours == call.content.colours, "{call:?} is in {placed:?}");
                    for placed in placed {
                        let node = truth.nodes(placed.colour).get(placed.position.0 as usize);
                        let is_there = node.is_some_and(|node| node.id == name_of(call) && node.at == *at);
                        invariant!(DUR, is_there, "{call:?} was at {at:?} in {placed:?}, where {node:?} is");
                    }
                }
                (FuzzyRequest::Snapshot(call), Some((_, FuzzyResponse::Snapshotted { at, tails }))) => {
                    invariant!(SNAP, tails.len() == call.colours.len(), "{call:?}: {tails:?}");
                    for tail in tails {
                        let nodes = truth.nodes(tail.colour);
                        let (inside, outside) = nodes.split_at((tail.position.0 as usize).min(nodes.len()));
                        let is_cut =
                            inside.iter().all(|it| it.at < *at) && outside.iter().all(|it| it.at > *at);
                        let is_there = inside.len() as u64 == tail.position.0;
                        invariant!(
                            SNAP,
                            is_cut && is_there,
                            "{call:?} of {at:?} cuts {} at {tail:?}",
                            tail.colour
                        );
                    }
                }
                (_, Some((_, FuzzyResponse::Played(page)))) => check_page(page, truth),
                (FuzzyRequest::CountLogs(call), Some((_, FuzzyResponse::LogsCounted { counts }))) => {
                    let there = counts_below(call.colour, call.below, truth);
                    let counted: Counts = counts.iter().map(|it| (it.region, it.count)).collect();
                    let is_counted = self.is_counted(call.colour, &counted, &there);
                    invariant!(SNAP, is_counted, "{call:?} counts {counts:?} of {there:?}");
                }
                (FuzzyRequest::FindLogs(call), Some((_, FuzzyResponse::LogsFound { below, at }))) => {
                    let Some(below) = below else { continue };
                    let there = counts_below(call.colour, *below, truth);
                    let count = |region| {
                        let begins = self.begins.get(&(region, call.colour)).copied().unwrap_or(0);
                        there.get(&region).copied().unwrap_or(begins)
                    };
                    let lacks = |it: &&Edge| count(it.region) < it.count && Some(it.region) != self.goes;
                    let lacked = call.counts.iter().find(lacks);
                    invariant!(SNAP, lacked.is_none(), "{call:?} is below {below:?}, where {there:?} is");
                    let last = truth.nodes(call.colour)[..below.0 as usize].last();
                    invariant!(
                        TS,
                        last.is_none_or(|it| it.at <= *at),
                        "{call:?} is seen at {at:?}: {last:?}"
                    );
                }
                _ => {}
            }
        }
        self.check_colours(truth);
        self.check_all(truth, follows_real_time);
        if follows_real_time {
            check_times(self.dated());
        }
    }

    /// Appends and snapshots that were answered, from when they were asked for first.
    fn dated(&self) -> Vec<Dated> {
        let dated = self.calls.values().filter_map(|asked| {
            let (answered, response) = asked.answered.as_ref()?;
            let (FuzzyResponse::Appended { at, .. } | FuzzyResponse::Snapshotted { at, .. }) = response
            else {
                return None;
            };
            let first = asked.again.and_then(|first| self.calls.get(&first)).unwrap_or(asked);
            Some(Dated { began: first.at, answered: *answered, at: *at })
        });
        dated.collect()
    }

    /// Syncs and appends of each colour are linearizable.
    fn check_colours(&self, truth: &Truth) {
        let colours: Vec<Colour> = truth.colours().map(|(colour, _)| colour).collect();
        for colour in colours {
            let mut recorded = Recorded::new();
            for (id, asked) in &self.calls {
                if let Some(draft) = self.draft(*id, asked, Some(colour), truth) {
                    recorded.add(draft);
                }
            }
            self.add_copied(Some(colour), truth, &mut recorded);
            recorded.add(end(&[(colour, truth.nodes(colour))]));
            decide(&recorded, Model::Linearizable, "LIN");
        }
    }

    /// All of it has an order that each user's own order agrees with.
    fn check_all(&self, truth: &Truth, follows_real_time: bool) {
        let mut recorded = Recorded::new();
        for (id, asked) in &self.calls {
            if let Some(draft) = self.draft(*id, asked, None, truth) {
                recorded.add(draft);
            }
        }
        self.add_copied(None, truth, &mut recorded);
        recorded.add(end(&truth.colours().collect::<Vec<_>>()));
        match follows_real_time {
            true => decide(&recorded, Model::StrictSerializable, "SSER"),
            false => decide(&recorded, Model::ProcessOrderedSerializable, "SER"),
        }
    }

    /// A call as one operation, as far as it concerns a colour.
    fn draft(&self, id: RequestId, asked: &Asked, only: Option<Colour>, truth: &Truth) -> Option<Draft> {
        if asked.again.is_some() {
            // It stands in the first one's place.
            return None;
        }
        let mut answers = self.calls.iter().filter(|(other, it)| **other == id || it.again == Some(id));
        let answered = answers.find_map(|(_, it)| it.answered.clone().filter(|(_, it)| !asks_again(it)));
        let who = process(asked.user, asked.incarnation);
        let concerns = |colour: &Colour| only.is_none_or(|only| only == *colour);
        let list = |draft: Draft, colour: Colour, tail: NodePosition| {
            let nodes = &truth.nodes(colour)[..(tail.0 as usize).min(truth.nodes(colour).len())];
            draft.read_list(key(colour), nodes.iter().map(|node| element(node.id)))
        };
        if let Some(content) = content_of(&asked.request).filter(|it| it.colours.iter().any(&concerns)) {
            let complete = answered.as_ref().map_or(u64::MAX, |(at, _)| *at);
            let mut draft = Draft::new(who, Time(asked.at), Time(complete));
            match (&asked.request, answered) {
                (FuzzyRequest::Append(call), answered) => {
                    for &colour in content.colours.iter().filter(|it| concerns(it)) {
                        draft = draft.append(key(colour), element(name_of(call)));
                    }
                    let is_done = matches!(answered, Some((_, FuzzyResponse::Appended { .. })));
                    return Some(if is_done { draft } else { draft.unknown() });
                }
                (_, Some((_, FuzzyResponse::Snapshotted { tails, .. }))) => {
                    // Of one colour, a snapshot of several need not be as new as real time.
                    if only.is_some() && content.colours.len() > 1 {
                        return None;
                    }
                    for tail in tails.iter().filter(|it| concerns(&it.colour)) {
                        draft = list(draft, tail.colour, tail.position);
                    }
                    return Some(draft);
                }
                (_, _) => return None,
            }
        }
        match (&asked.request, answered) {
            (FuzzyRequest::Sync(call), Some((at, FuzzyResponse::Played(page)))) if concerns(&call.colour) => {
                let draft = Draft::new(who, Time(asked.at), Time(at));
                Some(list(draft, call.colour, page.tail))
            }
            (_, _) => None,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, asked) in &self.calls {
            let Asked { user, incarnation, node, request, at, again, answered } = asked;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{} {user}.{incarnation} {node} {at} {request:?} again {again:?} -> {answered:?}",
                id.0
            );
        }
        text
    }
}

/// Everything, read after the end.
fn end(colours: &[(Colour, &[ColourNode])]) -> Draft {
    let last = u64::MAX - 1;
    colours
        .iter()
        .fold(Draft::new(Process(u64::MAX), Time(last - 1), Time(last)), |draft, (colour, nodes)| {
            draft.read_list(key(*colour), nodes.iter().map(|node| element(node.id)))
        })
}

fn decide(recorded: &Recorded, model: Model, invariant: &str) {
    match check(recorded, model) {
        Ok(Verdict::Holds) => {}
        Ok(Verdict::Violated(witness)) => {
            let lines: Vec<String> =
                witness.operations.iter().map(|it| operation_line(recorded, *it)).collect();
            panic!("{invariant}: {}\n{}", witness.summary, lines.join("\n"));
        }
        Ok(Verdict::Undecided(why)) => panic!("{invariant}: undecided, {why}"),
        Err(error) => panic!("{invariant}: {error}"),
    }
}

type Counts = BTreeMap<RegionId, u64>;

/// How much of each region's log is below a position.
fn counts_below(colour: Colour, below: NodePosition, truth: &Truth) -> Counts {
    let nodes = truth.nodes(colour).get(..below.0 as usize);
    invariant!(DUR, nodes.is_some(), "{colour} does not go to {below:?}");
    let mut counts = Counts::new();
    for source in nodes.into_iter().flatten().filter_map(ColourNode::source) {
        counts.insert(source.region, source.number + 1);
    }
    counts
}

/// What was played is what is there.
fn check_page(page: &PlayedPage, truth: &Truth) {
    let nodes = truth.nodes(page.colour);
    let from = page.from.0 as usize;
    let there = nodes.get(from..from + page.nodes.len());
    invariant!(
        DUR,
        there == Some(&page.nodes[..]),
        "{} of {} was played as {page:?}",
        page.from,
        page.colour
    );
    let last = page.nodes.last().map_or(AppendTime::ZERO, |node| node.at);
    invariant!(TS, last <= page.seen, "{page:?} has seen less than it has");
    invariant!(DUR, page.tail.0 as usize <= nodes.len(), "{} goes to {}", page.colour, page.tail);
}
