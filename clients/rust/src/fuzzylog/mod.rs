//! The partially ordered log.
//!
//! ```no_run
//! # async fn example() -> Result<(), ordinate_client::FuzzyError> {
//! use ordinate_client::FuzzyLog;
//! let log = FuzzyLog::connect(["127.0.0.1:7071"]);
//! log.append(&["red", "blue"], "in both, or in none").await?;
//! let mut red = log.new_instance("red", None)?;
//! let snapshot = red.sync(|node| println!("{}: {:?}", node.position, node.body)).await?;
//! red.trim(&snapshot).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`FuzzyLog`] is a session: what it does is ordered behind what it has seen. Its clones are the same session;
//! [`FuzzyLog::session`] begins another one. Appends are executed once: they are sent again, to another host if need be, under the
//! session's number for them.

mod asked;
mod backups;
mod errors;
mod instance;
mod session;

pub use backups::{FuzzyCut, FuzzyScan};
pub use errors::FuzzyError;
pub use instance::FuzzyInstance;

use crate::calls::{Ask as _, Calls};
use crate::connect::connects;
use crate::{CallError, TIMEOUT};
use kernel::Bytes;
use session::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::fuzzylog::{
    AppendNodes, AppendPlayed, AppendedNode, AwaitSnapshot, FuzzyCall, FuzzyFailure, FuzzyReply,
    NameSnapshot, NewNode, NodeOrigin, NumberedBy, SeenTime, SnapshotColours, SnapshotId, TrimColour,
    TrimSeen, WAIT_MS_MAX,
};

/// A client of the partially ordered log, and a session of it. Cheap to clone; must be made inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct FuzzyLog {
    calls: Calls<FuzzyCall>,
    timeout: Duration,
    session: Arc<Session>,
}

/// Where an append is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FuzzyAppended {
    /// When; the same in all colours.
    pub at: SeenTime,
    /// Its position in each.
    pub positions: BTreeMap<String, u64>,
}

/// A node, as it is played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FuzzyNode {
    /// Its position in the colour that is played.
    pub position: u64,
    /// When it was appended; the same in all its colours.
    pub at: SeenTime,
    /// All its colours.
    pub colours: Vec<String>,
    /// What it holds for the colour that is played.
    pub body: Bytes,
    /// Where it is from, among several regions.
    pub origin: Option<NodeOrigin>,
}

fn names<S: AsRef<str>>(colours: &[S]) -> Vec<Bytes> {
    colours.iter().map(|name| Bytes::copy_from_slice(name.as_ref().as_bytes())).collect()
}

connects!(FuzzyLog, |calls| Self { calls, timeout: TIMEOUT, session: Arc::new(Session::new()) });

impl FuzzyLog {
    /// Another session over the same connection, which has seen nothing yet.
    #[must_use]
    pub fn session(&self) -> Self {
        Self { session: Arc::new(Session::new()), ..self.clone() }
    }

    /// What the session has seen, to be carried to another process or host.
    pub fn seen(&self) -> SeenTime {
        self.session.seen()
    }

    /// The session has seen what another one has: what it does from now on is ordered behind.
    pub fn absorb(&self, seen: SeenTime) {
        self.session.absorb(seen);
    }

    /// True if the session has played in one of several regions.
    pub(crate) fn knows_regions(&self) -> bool {
        self.session.is_among_regions()
    }

    /// The one of several regions that the session has played in.
    pub(crate) fn region(&self) -> Option<Bytes> {
        self.session.region()
    }

    /// An instance that plays one colour, from its beginning or behind a snapshot.
    pub fn new_instance(
        &self,
        colour: &str,
        snapshot: Option<&SnapshotId>,
    ) -> Result<FuzzyInstance, FuzzyError> {
        wire::fuzzylog::check_colour(colour.as_bytes())?;
        let next = snapshot.map_or(0, |snapshot| snapshot.tail(colour));
        if let Some(snapshot) = snapshot {
            self.absorb(snapshot.seen);
        }
        Ok(FuzzyInstance::new(self.clone(), colour, next))
    }

    /// Appends a node to all of these colours, or to none.
    pub async fn append<S: AsRef<str>>(
        &self,
        colours: &[S],
        body: impl Into<Bytes>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.append_node(NewNode { colours: names(colours), bodies: vec![body.into()] }).await
    }

    /// The same, behind what these snapshots, of whichever colours, have seen.
    pub async fn append_after<S: AsRef<str>>(
        &self,
        colours: &[S],
        body: impl Into<Bytes>,
        after: &[SnapshotId],
    ) -> Result<FuzzyAppended, FuzzyError> {
        after.iter().for_each(|snapshot| self.absorb(snapshot.seen));
        self.append(colours, body).await
    }

    /// Appends a node that holds something else in each of its colours.
    pub async fn append_each<S: AsRef<str>, B: Into<Bytes>>(
        &self,
        bodies: impl IntoIterator<Item = (S, B)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        let (colours, bodies): (Vec<S>, Vec<Bytes>) =
            bodies.into_iter().map(|(colour, body)| (colour, body.into())).unzip();
        self.append_node(NewNode { colours: names(&colours), bodies }).await
    }

    /// The same under a number of the caller's own, whose client is not this session: sent again under it, through whichever session or
    /// host, it is executed once.
    ///
    /// # Errors
    /// [`FuzzyFailure::NumberUsed`]: the client has appended something else under the number. [`FuzzyFailure::Forgotten`]: it has said that
    /// it has the answer.
    pub async fn append_numbered<S: AsRef<str>, B: Into<Bytes>>(
        &self,
        by: NumberedBy,
        bodies: impl IntoIterator<Item = (S, B)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        let (colours, bodies): (Vec<S>, Vec<Bytes>) =
            bodies.into_iter().map(|(colour, body)| (colour, body.into())).unzip();
        let node = NewNode { colours: names(&colours), bodies };
        let colours = node.colours.clone();
        let call = AppendNodes { id: 0, seen: self.seen(), by, nodes: vec![node] };
        let answer = self.call(self.behind_what_was_played(call)).await.map_err(unknown_if_sent)?;
        let FuzzyReply::AppendedNodes(reply) = answer else { return Err(unreadable()) };
        appended(&colours, reply.nodes)
    }

    async fn append_node(&self, node: NewNode) -> Result<FuzzyAppended, FuzzyError> {
        let colours = node.colours.clone();
        appended(&colours, self.append_all(vec![node]).await?)
    }

    /// The other regions are to have what was played before.
    fn behind_what_was_played(&self, call: AppendNodes) -> FuzzyCall {
        match self.session.played_of(&call.nodes) {
            Some(played) => {
                let AppendNodes { id, seen, by, nodes } = call;
                AppendPlayed { id, seen, by, nodes, played }.into()
            }
            None => call.into(),
        }
    }

    /// Appends several nodes by one message, at most 256 and 1 MiB. Each is in all its colours or in none; nothing orders them among each
    /// other.
    pub async fn append_all(&self, nodes: Vec<NewNode>) -> Result<Vec<AppendedNode>, FuzzyError> {
        let count = nodes.len() as u64;
        let unnumbered = NumberedBy { client: 0, number: 0, below: 0 };
        let mut call = AppendNodes { id: 0, seen: self.seen(), by: unnumbered, nodes };
        if let Some(fault) = FuzzyCall::from(call.clone()).fault() {
            return Err(fault.into());
        }
        call.by = self.numbers(count).await?;
        let by = call.by;
        let call = self.behind_what_was_played(call);
        match self.numbered(by, count, call).await? {
            FuzzyReply::AppendedNodes(reply) if reply.nodes.len() as u64 == count => Ok(reply.nodes),
            _ => Err(unreadable()),
        }
    }

    /// How far several colours go, at one point of the order: no node is half inside.
    pub async fn snapshot<S: AsRef<str>>(&self, colours: &[S]) -> Result<SnapshotId, FuzzyError> {
        let unnumbered = NumberedBy { client: 0, number: 0, below: 0 };
        let mut call = SnapshotColours { id: 0, seen: self.seen(), by: unnumbered, colours: names(colours) };
        if let Some(fault) = FuzzyCall::from(call.clone()).fault() {
            return Err(fault.into());
        }
        call.by = self.numbers(1).await?;
        let by = call.by;
        match self.numbered(by, 1, call.into()).await? {
            FuzzyReply::SnapshotTaken(reply) if reply.tails.len() == colours.len() => {
                let tails = colours.iter().map(|name| name.as_ref().to_owned()).zip(reply.tails).collect();
                Ok(SnapshotId { seen: reply.seen, tails, across: None })
            }
            _ => Err(unreadable()),
        }
    }

    /// A snapshot of this session, named so that another region can have it: with how many nodes of each region's log it has.
    ///
    /// # Errors
    /// [`FuzzyError::AlreadyTrimmed`]: nobody knows any more what is below its positions.
    pub async fn named(&self, snapshot: &SnapshotId) -> Result<SnapshotId, FuzzyError> {
        let SnapshotId { seen, ref tails, .. } = *snapshot;
        let colours = names(&tails.keys().collect::<Vec<_>>());
        let tails = tails.values().copied().collect();
        match self.call(NameSnapshot { id: 0, seen, colours, tails }).await? {
            FuzzyReply::SnapshotNamed(named) => read_snapshot(&named.snapshot),
            _ => Err(unreadable()),
        }
    }

    /// Waits, 30 s at most, until the region of this session's hosts has all that a named snapshot of whichever region has; returns the same
    /// of this region. What the session does from now on is ordered behind, and other regions see its appends to these colours behind it.
    ///
    /// # Errors
    /// [`FuzzyError::Failed`] with [`FuzzyFailure::NotHere`]: it has not all of it yet; with [`FuzzyFailure::NoSnapshot`]: the id is none
    /// of this cluster.
    pub async fn await_snapshot(
        &self,
        snapshot: &SnapshotId,
        wait: Duration,
    ) -> Result<SnapshotId, FuzzyError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).min(WAIT_MS_MAX);
        let text = Bytes::from(snapshot.to_string().into_bytes());
        match self.call(AwaitSnapshot { id: 0, snapshot: text, wait_ms }).await? {
            FuzzyReply::SnapshotIsHere(here) => {
                let here = read_snapshot(&here.snapshot)?;
                if let Some(across) = &here.across {
                    if !self.session.plays_in(&Bytes::copy_from_slice(across.region.as_bytes())) {
                        return Err(FuzzyError::Failed(FuzzyFailure::OtherRegion));
                    }
                    here.tails.iter().for_each(|(colour, &tail)| self.session.has_played(colour, tail));
                }
                Ok(here)
            }
            _ => Err(unreadable()),
        }
    }

    /// Drops the nodes that a snapshot has, from each of its colours. They stay in colours that it does not name.
    pub async fn trim(&self, snapshot: &SnapshotId) -> Result<(), FuzzyError> {
        for (colour, &before) in &snapshot.tails {
            self.trim_colour(colour, before, snapshot.seen).await?;
        }
        Ok(())
    }

    /// `seen` says of which region the position is.
    async fn trim_colour(&self, colour: &str, before: u64, seen: SeenTime) -> Result<(), FuzzyError> {
        let colour = Bytes::copy_from_slice(colour.as_bytes());
        let call: FuzzyCall = match self.session.is_among_regions() {
            true => TrimSeen { id: 0, seen, colour, before }.into(),
            false => TrimColour { id: 0, colour, before }.into(),
        };
        match self.call(call).await.map_err(unknown_if_sent)? {
            FuzzyReply::TrimmedColour(_) => Ok(()),
            _ => Err(unreadable()),
        }
    }

    async fn numbers(&self, count: u64) -> Result<NumberedBy, FuzzyError> {
        let waited = tokio::time::timeout(self.timeout, self.session.numbers(count)).await;
        waited.map_err(|_| FuzzyError::Unreached(CallError::Busy))
    }

    /// A call that has numbers, from here until its answer is there.
    async fn numbered(&self, by: NumberedBy, count: u64, call: FuzzyCall) -> Result<FuzzyReply, FuzzyError> {
        let open = Open { session: &self.session, by, count, is_answered: false };
        match self.call(call).await.map_err(unknown_if_sent) {
            Err(FuzzyError::Unknown(error)) => Err(FuzzyError::Unknown(error)),
            Err(FuzzyError::Failed(why)) if why == FuzzyFailure::Full => Err(FuzzyError::Failed(why)),
            answer => {
                open.answered();
                answer
            }
        }
    }

    async fn call(&self, call: impl Into<FuzzyCall>) -> Result<FuzzyReply, FuzzyError> {
        let call = call.into();
        if let Some(fault) = call.fault() {
            return Err(fault.into());
        }
        let timeout = self.timeout + call.wait();
        let reply = self.calls.call(call, timeout).await.map_err(FuzzyError::Unreached)?;
        if let Some(seen) = reply.seen() {
            self.absorb(seen);
        }
        let FuzzyReply::FuzzyFailed(failed) = reply else { return Ok(reply) };
        Err(match failed.why {
            FuzzyFailure::Trimmed => FuzzyError::AlreadyTrimmed { resume_from: failed.position },
            FuzzyFailure::BeyondTail => FuzzyError::BeyondTail { tail: failed.position },
            why => FuzzyError::Failed(why),
        })
    }
}

/// Numbers in use: what is dropped without an answer is given up.
struct Open<'a> {
    session: &'a Session,
    by: NumberedBy,
    count: u64,
    is_answered: bool,
}

impl Open<'_> {
    fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            self.session.answered(self.by, self.count);
        } else {
            self.session.given_up(self.by);
        }
    }
}

fn read_snapshot(text: &Bytes) -> Result<SnapshotId, FuzzyError> {
    let id = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    id.ok_or_else(unreadable)
}

/// Where a node is that was appended to these colours.
fn appended(colours: &[Bytes], nodes: Vec<AppendedNode>) -> Result<FuzzyAppended, FuzzyError> {
    let node = nodes.into_iter().next().ok_or_else(unreadable)?;
    let name = |colour: &Bytes| String::from_utf8_lossy(colour).into_owned();
    let positions = colours.iter().map(name).zip(node.positions).collect();
    Ok(FuzzyAppended { at: node.at, positions })
}

/// Of a call that changes something: no answer says nothing about it, unless it was not sent.
fn unknown_if_sent(error: FuzzyError) -> FuzzyError {
    match error {
        FuzzyError::Unreached(error) if !is_surely_unsent(&error) => FuzzyError::Unknown(error),
        error => error,
    }
}

/// No host has such a service.
fn is_surely_unsent(error: &CallError) -> bool {
    matches!(error, CallError::Off(_))
}

fn unreadable() -> FuzzyError {
    FuzzyError::Unreached(CallError::Unreadable("it belongs to another call".to_owned()))
}
