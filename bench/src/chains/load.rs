//! What clients append.

use fuzzylog::{
    AppendCall, AppendTime, Colour, ColourPlacement, Content, FuzzyLog, FuzzyRequest, FuzzyResponse,
    NodePosition, SyncCall,
};
use kernel::{Bytes, Rng};
use sim::cost::{Class, Load, LoadSession};
use std::collections::BTreeMap;
use std::time::Duration;

/// "16-byte appends" (section 6.1).
const BODY_BYTES: usize = 16;
/// Handles of the library that each client's calls are spread over.
const HANDLES: u64 = 2;

/// What a user's appends are ordered behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PastOf {
    /// What was answered through the same handle.
    Handle,
    /// What was answered to anybody: nothing overtakes a pending append then, as in the paper.
    All,
}

fn body(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

fn append(session: u64, number: u64, seen: AppendTime, colours: Vec<Colour>, body: &Bytes) -> FuzzyRequest {
    let content = Content::new(colours, vec![body.clone()]);
    FuzzyRequest::Append(AppendCall { client: session, number, below: number, seen, content })
}

/// Each client appends to a colour of its own, and sometimes to another client's as well.
#[derive(Clone, Debug)]
pub struct ColourLoad {
    /// By client.
    colours: Vec<Colour>,
    two: f64,
    past: PastOf,
    /// By session: how many appends it has made.
    numbers: BTreeMap<u64, u64>,
    /// By handle.
    seen: BTreeMap<(usize, u64), AppendTime>,
    all_have_seen: AppendTime,
    apart: Option<ColourPlacement>,
    body: Bytes,
}

impl ColourLoad {
    /// The clients' colours, and the share of appends that go to two.
    pub fn new(colours: Vec<Colour>, two: f64, past: PastOf) -> Self {
        let (numbers, seen) = (BTreeMap::new(), BTreeMap::new());
        let (all_have_seen, body) = (AppendTime::ZERO, body(BODY_BYTES));
        Self { colours, two, past, numbers, seen, all_have_seen, apart: None, body }
    }

    /// Bodies of so many bytes.
    #[must_use]
    pub fn of_bytes(self, bytes: usize) -> Self {
        Self { body: body(bytes), ..self }
    }

    /// An append to two colours goes to two partitions.
    #[must_use]
    pub fn on_two_partitions(self, placement: ColourPlacement) -> Self {
        Self { apart: Some(placement), ..self }
    }

    /// What may be the second colour beside `own`.
    fn others(&self, own: Colour) -> Vec<Colour> {
        let is_apart = |other: Colour| {
            self.apart.is_none_or(|placement| placement.partition_of(other) != placement.partition_of(own))
        };
        self.colours.iter().copied().filter(|&other| other != own && is_apart(other)).collect()
    }

    fn handle(session: LoadSession) -> (usize, u64) {
        (session.client, session.number % HANDLES)
    }
}

impl Load<FuzzyLog> for ColourLoad {
    fn ask(&mut self, session: LoadSession, rng: &mut Rng) -> (FuzzyRequest, Class) {
        let own = self.colours[session.client];
        let mut colours = vec![own];
        if self.two > 0.0 && rng.unit() < self.two {
            colours.extend(rng.pick(&self.others(own)));
            colours.sort_unstable();
        }
        let class = Class(colours.len() as u8 - 1);
        let seen = match self.past {
            PastOf::Handle => self.seen.get(&Self::handle(session)).copied().unwrap_or_default(),
            PastOf::All => self.all_have_seen,
        };
        let number = self.numbers.entry(session.number).or_default();
        *number += 1;
        (append(session.number, *number, seen, colours, &self.body), class)
    }

    fn answered(&mut self, session: LoadSession, _: Class, response: &FuzzyResponse, _: Duration) -> bool {
        let FuzzyResponse::Appended { at, .. } = response else { return false };
        let seen = self.seen.entry(Self::handle(session)).or_default();
        *seen = (*seen).max(*at);
        self.all_have_seen = self.all_have_seen.max(*at);
        true
    }
}

/// Servers of an AtomicMap (section 4.1), each with a shard of its own, which is a colour: puts into it, sometimes into another server's as
/// well, and meanwhile one session of each server that plays its colour, so that it could answer gets.
#[derive(Clone, Debug)]
pub struct MapLoad {
    puts: ColourLoad,
    /// By server: the session that plays, what it plays next, and the last time that it has seen.
    players: BTreeMap<usize, (u64, NodePosition, AppendTime)>,
    /// Nodes that were played.
    played: u64,
}

impl MapLoad {
    /// The class of pages that were played: no puts.
    pub const PLAYED: Class = Class(2);

    /// The servers' colours, and the share of puts that go to two.
    pub fn new(colours: Vec<Colour>, two: f64) -> Self {
        let puts = ColourLoad::new(colours, two, PastOf::Handle);
        Self { puts, players: BTreeMap::new(), played: 0 }
    }

    /// Nodes that were played so far, by all servers.
    pub fn played(&self) -> u64 {
        self.played
    }
}

impl Load<FuzzyLog> for MapLoad {
    fn ask(&mut self, session: LoadSession, rng: &mut Rng) -> (FuzzyRequest, Class) {
        let first = (session.number, NodePosition::default(), AppendTime::ZERO);
        let &mut (player, from, seen) = self.players.entry(session.client).or_insert(first);
        if session.number != player {
            return self.puts.ask(session, rng);
        }
        let colour = self.puts.colours[session.client];
        (FuzzyRequest::Sync(SyncCall { colour, from, seen }), Self::PLAYED)
    }

    fn answered(
        &mut self,
        session: LoadSession,
        class: Class,
        response: &FuzzyResponse,
        at: Duration,
    ) -> bool {
        if class != Self::PLAYED {
            return self.puts.answered(session, class, response, at);
        }
        let FuzzyResponse::Played(page) = response else { return false };
        self.played += page.nodes.len() as u64;
        if let Some((_, from, seen)) = self.players.get_mut(&session.client) {
            (*from, *seen) = (NodePosition(page.from.0 + page.nodes.len() as u64), page.seen);
        }
        true
    }
}

/// Tango's appends, emulated as in section 6.1: a position from the sequencer's colour, then an entry at the partition whose turn that is.
/// How many colours an entry has makes no difference.
#[derive(Clone, Debug)]
pub struct TokenLoad {
    sequencer: Colour,
    /// By partition.
    colours: Vec<Colour>,
    numbers: BTreeMap<u64, u64>,
    /// Positions that sessions have got, and not used.
    tokens: BTreeMap<u64, u64>,
    body: Bytes,
}

impl TokenLoad {
    /// The class of requests for a position: no appends.
    pub const TOKENS: Class = Class(1);

    /// The sequencer's colour, and one of each partition.
    pub fn new(sequencer: Colour, colours: Vec<Colour>) -> Self {
        let (numbers, tokens) = (BTreeMap::new(), BTreeMap::new());
        Self { sequencer, colours, numbers, tokens, body: body(BODY_BYTES) }
    }
}

impl Load<FuzzyLog> for TokenLoad {
    fn ask(&mut self, session: LoadSession, _rng: &mut Rng) -> (FuzzyRequest, Class) {
        let number = self.numbers.entry(session.number).or_default();
        *number += 1;
        let (colour, class) = match self.tokens.remove(&session.number) {
            Some(position) => (self.colours[(position % self.colours.len() as u64) as usize], Class(0)),
            None => (self.sequencer, Self::TOKENS),
        };
        (append(session.number, *number, AppendTime::ZERO, vec![colour], &self.body), class)
    }

    fn answered(
        &mut self,
        session: LoadSession,
        class: Class,
        response: &FuzzyResponse,
        _: Duration,
    ) -> bool {
        let FuzzyResponse::Appended { placed, .. } = response else { return false };
        if class == Self::TOKENS
            && let Some(placed) = placed.first()
        {
            self.tokens.insert(session.number, placed.position.0);
        }
        true
    }
}
