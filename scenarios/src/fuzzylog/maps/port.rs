//! The log as a process of maps sees it: what its maps ask become requests of the client role at its host.
//!
//! ```text
//! a map's future -- ask --> outbox -- request --> client role -- response --> answers -- poll --> the future goes on
//! ```
//! A process has no thread: its futures are polled when an answer has come, in the order in which they began, until none moves.

use ::fuzzylog::{
    AppendCall, AppendTime, Colour, ColourNode, Content, FuzzyRefusal, FuzzyRequest, FuzzyResponse,
    NodePosition, PlayCall, SnapshotCall, SyncCall, TrimCall,
};
use kernel::Bytes;
use ordinate_client::maps::{MapLog, MapPage};
use ordinate_client::{
    CallError, FuzzyAppended, FuzzyError, FuzzyFailure, FuzzyNode, NumberedBy, SeenTime, SnapshotId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// The names of all colours, which the engine knows by their numbers.
pub(super) struct ColourNames {
    numbers: BTreeMap<String, Colour>,
}

impl ColourNames {
    pub(super) fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self { numbers: names.into_iter().zip((0..).map(Colour)).collect() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Colour)> {
        self.numbers.iter().map(|(name, colour)| (name.as_str(), *colour))
    }

    fn number(&self, name: &str) -> Result<Colour, FuzzyError> {
        self.numbers.get(name).copied().ok_or(FuzzyError::Failed(FuzzyFailure::Malformed))
    }

    fn name(&self, colour: Colour) -> String {
        self.all().find(|(_, it)| *it == colour).map(|(name, _)| name.to_owned()).unwrap_or_default()
    }

    /// A node as maps have it.
    pub(super) fn node(&self, position: u64, node: &ColourNode) -> FuzzyNode {
        let colours = node.colours.iter().map(|&colour| self.name(colour)).collect();
        FuzzyNode { position, at: seen_of(node.at), colours, body: node.body.clone(), origin: None }
    }
}

/// What the sessions of a process share.
struct Shared {
    names: Arc<ColourNames>,
    /// Questions that are to be sent, with the process' numbers for them.
    outbox: VecDeque<(u64, FuzzyRequest)>,
    /// Answers that nobody has taken yet.
    answers: BTreeMap<u64, FuzzyResponse>,
    asked: u64,
    /// What its own appends and snapshots are called by.
    client: u64,
    next: u64,
    open: BTreeSet<u64>,
}

/// A session of a process. Clones are the same session.
#[derive(Clone)]
pub(super) struct Port {
    shared: Arc<Mutex<Shared>>,
    seen: Arc<Mutex<AppendTime>>,
}

fn seen_of(at: AppendTime) -> SeenTime {
    SeenTime { clock: at.clock, partition: at.partition.0, ahead: at.ahead }
}

fn unreadable() -> FuzzyError {
    FuzzyError::Unreached(CallError::Unreadable("an answer to something else".to_owned()))
}

/// As gateways answer it.
fn failed(response: FuzzyResponse) -> FuzzyError {
    match response {
        FuzzyResponse::AlreadyTrimmed { first } => FuzzyError::AlreadyTrimmed { resume_from: first.0 },
        FuzzyResponse::Refused(refusal) => FuzzyError::Failed(match refusal {
            FuzzyRefusal::Busy => FuzzyFailure::Busy,
            FuzzyRefusal::Full => FuzzyFailure::Full,
            FuzzyRefusal::Content(_) | FuzzyRefusal::NumberOutOfRange => FuzzyFailure::Malformed,
            FuzzyRefusal::Forgotten => FuzzyFailure::Forgotten,
            FuzzyRefusal::NumberUsed => FuzzyFailure::NumberUsed,
            FuzzyRefusal::MovedSince => FuzzyFailure::MovedSince,
            FuzzyRefusal::NoClock => FuzzyFailure::NoClock,
            FuzzyRefusal::FromTheFuture => FuzzyFailure::FromTheFuture,
            // No map asks for a change of where colours are.
            FuzzyRefusal::Change(_) => return unreadable(),
            FuzzyRefusal::BeyondTail { tail } => return FuzzyError::BeyondTail { tail: tail.0 },
        }),
        _ => unreadable(),
    }
}

impl Port {
    /// A process that asks under this client, which nobody else is.
    pub(super) fn new(names: Arc<ColourNames>, client: u64) -> Self {
        let (outbox, answers, open) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        let shared = Shared { names, outbox, answers, asked: 0, client, next: 0, open };
        Self { shared: Arc::new(Mutex::new(shared)), seen: Arc::default() }
    }

    /// Another session of the process, which has seen nothing.
    pub(super) fn session(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: Arc::default() }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session has seen.
    pub(super) fn seen(&self) -> AppendTime {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has seen what somebody else has.
    pub(super) fn absorb(&self, at: AppendTime) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = at.max(*seen);
    }

    /// What is to be asked now.
    pub(super) fn take_questions(&self) -> Vec<(u64, FuzzyRequest)> {
        self.shared().outbox.drain(..).collect()
    }

    /// The answer to a question.
    pub(super) fn answer(&self, question: u64, response: FuzzyResponse) {
        self.shared().answers.insert(question, response);
    }

    async fn ask(&self, request: FuzzyRequest) -> FuzzyResponse {
        let question = {
            let mut shared = self.shared();
            shared.asked += 1;
            let question = shared.asked;
            shared.outbox.push_back((question, request));
            question
        };
        poll_fn(|_| match self.shared().answers.remove(&question) {
            Some(response) => Poll::Ready(response),
            None => Poll::Pending,
        })
        .await
    }

    /// The next number of the process' own.
    fn number(&self) -> NumberedBy {
        let mut shared = self.shared();
        let number = shared.next;
        shared.next += 1;
        let below = shared.open.first().copied().unwrap_or(number);
        shared.open.insert(number);
        NumberedBy { client: shared.client, number, below }
    }

    fn answered(&self, by: NumberedBy) {
        self.shared().open.remove(&by.number);
    }

    async fn append_as(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        let names = Arc::clone(&self.shared().names);
        let mut parts = BTreeMap::new();
        for (name, body) in bodies {
            parts.insert(names.number(&name)?, body);
        }
        let content = Content::new(parts.keys().copied().collect(), parts.into_values().collect());
        let NumberedBy { client, number, below } = by;
        let call = AppendCall { client, number, below, seen: self.seen(), content };
        match self.ask(FuzzyRequest::Append(call)).await {
            FuzzyResponse::Appended { at, placed } => {
                self.absorb(at);
                let positions = placed.iter().map(|it| (names.name(it.colour), it.position.0)).collect();
                Ok(FuzzyAppended { at: seen_of(at), positions })
            }
            other => Err(failed(other)),
        }
    }
}

impl MapLog for Port {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        let by = self.number();
        let appended = self.append_as(by, bodies).await;
        self.answered(by);
        appended
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.append_as(by, bodies).await
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        let names = Arc::clone(&self.shared().names);
        let mut numbers = colours.iter().map(|name| names.number(name)).collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        let by = self.number();
        let NumberedBy { client, number, below } = by;
        let call = SnapshotCall { client, number, below, seen: self.seen(), colours: numbers };
        let response = self.ask(FuzzyRequest::Snapshot(call)).await;
        self.answered(by);
        match response {
            FuzzyResponse::Snapshotted { at, tails } => {
                self.absorb(at);
                let tails = tails.iter().map(|it| (names.name(it.colour), it.position.0)).collect();
                Ok(SnapshotId { seen: seen_of(at), tails, across: None })
            }
            other => Err(failed(other)),
        }
    }

    async fn play(&self, colour: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        let names = Arc::clone(&self.shared().names);
        let (colour, from) = (names.number(colour)?, NodePosition(from));
        let request = match to {
            Some(to) => FuzzyRequest::Play(PlayCall { colour, from, to: NodePosition(to) }),
            None => FuzzyRequest::Sync(SyncCall { colour, from, seen: self.seen() }),
        };
        match self.ask(request).await {
            FuzzyResponse::Played(page) => {
                self.absorb(page.seen);
                let nodes: Vec<FuzzyNode> =
                    (from.0..).zip(&page.nodes).map(|(position, node)| names.node(position, node)).collect();
                Ok(MapPage { next: from.0 + nodes.len() as u64, nodes, tail: page.tail.0 })
            }
            other => Err(failed(other)),
        }
    }

    async fn trim(&self, colour: &str, before: u64) -> Result<(), FuzzyError> {
        let colour = self.shared().names.number(colour)?;
        match self.ask(FuzzyRequest::Trim(TrimCall { colour, before: NodePosition(before) })).await {
            FuzzyResponse::Trimmed { .. } => Ok(()),
            other => Err(failed(other)),
        }
    }

    fn is_among_regions(&self) -> bool {
        false
    }
}
