//! What users want next, and what they have seen.

use super::history::asks_again;
use crate::limits::Sizes;
use ::fuzzylog::{
    AppendCall, AppendTime, Colour, Content, CountLogsCall, Edge, FindLogsCall, FuzzyRequest, FuzzyResponse,
    NodePosition, PlayCall, SnapshotCall, SyncCall, TrimCall,
};
use kernel::{Bytes, RequestId, Rng};
use std::collections::{BTreeMap, BTreeSet};

/// A user: one operation at a time.
#[derive(Default)]
struct User {
    incarnation: u32,
    next: u64,
    /// Numbers whose outcome it does not know.
    open: BTreeSet<u64>,
    seen: AppendTime,
    /// What it has played, by colour.
    played: BTreeMap<Colour, NodePosition>,
    /// How far colours go, as far as it knows.
    tails: BTreeMap<Colour, NodePosition>,
    /// What it asks for again, and by which request it asked first.
    again: Option<(FuzzyRequest, RequestId)>,
    /// The first request of what it is waiting for.
    first: Option<RequestId>,
    is_waiting: bool,
}

/// All users, and what they like to do.
pub(super) struct Users {
    users: BTreeMap<u16, User>,
    colours: u64,
    sizes: Sizes,
    /// How likely an append or a snapshot is.
    appends: f64,
    snapshots: f64,
    trims: f64,
    /// How likely an append has several colours.
    several: f64,
    /// So many others of the same host want something whenever a user does.
    companions: u16,
    /// They say how far they have played what they append to, and carry what they have seen from one region to another.
    says_what_it_played: bool,
    /// What users of other regions have seen, newest last, until one here has found it.
    carried: Vec<FindLogsCall>,
}

/// More that was carried is forgotten, the oldest first.
const CARRIED_MAX: usize = 8;

/// Users have numbers below it; their companions' are those of theirs and a multiple of it.
const COMPANIONS_FROM: u16 = 1_000;

/// An operation to begin.
pub(super) struct Planned {
    pub(super) request: FuzzyRequest,
    pub(super) incarnation: u32,
    pub(super) again: Option<RequestId>,
}

impl Users {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self {
            users: BTreeMap::new(),
            colours: rng.between(2, 7),
            sizes: Sizes::draw(rng),
            appends: 0.4 + 0.3 * rng.unit(),
            snapshots: 0.12 * rng.unit(),
            trims: if rng.chance(0.4) { 0.05 } else { 0.0 },
            several: if rng.chance(0.8) { 0.1 + 0.6 * rng.unit() } else { 0.0 },
            companions: if rng.chance(0.25) { rng.between(1, 6) as u16 } else { 0 },
            says_what_it_played: false,
            carried: Vec::new(),
        }
    }

    /// The same users of the same colours in one region among others, each asking by itself.
    pub(super) fn among_regions(&self) -> Self {
        let Self { colours, sizes, appends, snapshots, trims, several, .. } = *self;
        let users = BTreeMap::new();
        let (companions, says_what_it_played, carried) = (0, true, Vec::new());
        Self {
            users,
            colours,
            sizes,
            appends,
            snapshots,
            trims,
            several,
            companions,
            says_what_it_played,
            carried,
        }
    }

    /// A user of another region shares with one here what it has seen.
    pub(super) fn carry(&mut self, colour: Colour, counts: Vec<Edge>) {
        self.carried.push(FindLogsCall { colour, counts });
        if self.carried.len() > CARRIED_MAX {
            self.carried.remove(0);
        }
    }

    /// Who wants something besides a user: those of its companions that wait for nothing.
    pub(super) fn companions(&self, user: u16) -> Vec<u16> {
        let companions = (1..=self.companions).map(|nth| nth * COMPANIONS_FROM + user);
        companions.filter(|it| self.users.get(it).is_none_or(|user| !user.is_waiting)).collect()
    }

    /// How many colours there are.
    pub(super) fn colours(&self) -> u64 {
        self.colours
    }

    fn pick(&self, most: u64, rng: &mut Rng) -> Vec<Colour> {
        let mut all: Vec<Colour> = (0..self.colours).map(Colour).collect();
        rng.shuffle(&mut all);
        all.truncate(rng.between(1, most.min(self.colours)) as usize);
        all.sort_unstable();
        all
    }

    pub(super) fn plan(&mut self, client: u16, rng: &mut Rng) -> Planned {
        let draw = (rng.unit(), rng.unit(), rng.bits());
        let several = self.pick(4, rng);
        let colour = several[0];
        let (sizes, appends, snapshots, trims) = (self.sizes, self.appends, self.snapshots, self.trims);
        let (is_several, says) = (draw.1 < self.several, self.says_what_it_played);
        let user = self.users.entry(client).or_default();
        let incarnation = user.incarnation;
        if let Some((request, first)) = user.again.take() {
            user.first = Some(first);
            return Planned { request, incarnation, again: Some(first) };
        }
        user.first = None;
        let colours = if is_several { several } else { vec![colour] };
        let (client, seen) = (u64::from(client) + 1, user.seen);
        let request = if draw.0 < appends {
            let number = user.next;
            let body = |part: usize, rng: &mut Rng| {
                Bytes::from(sizes.stretch(format!("{client}.{number}.{part}"), 1_000, rng))
            };
            let each = colours.len() > 1 && draw.2.is_multiple_of(3);
            let count = if each { colours.len() } else { 1 };
            let bodies = (0..count).map(|part| body(part, rng)).collect();
            let played = |colour: &Colour| user.played.get(colour).copied().unwrap_or_default();
            let played = if says { colours.iter().map(played).collect() } else { Vec::new() };
            let content = Content { played, ..Content::new(colours, bodies) };
            user.next += 1;
            let below = user.open.first().copied().unwrap_or(number);
            user.open.insert(number);
            FuzzyRequest::Append(AppendCall { client, number, below, seen, content })
        } else if draw.0 < appends + snapshots {
            let number = user.next;
            user.next += 1;
            let below = user.open.first().copied().unwrap_or(number);
            user.open.insert(number);
            FuzzyRequest::Snapshot(SnapshotCall { client, number, below, seen, colours })
        } else if draw.0 < appends + snapshots + trims {
            let tail = user.tails.get(&colour).copied().unwrap_or_default();
            let before = NodePosition(draw.2 % (tail.0 + 1));
            FuzzyRequest::Trim(TrimCall { colour, before })
        } else if draw.0 > 0.93 {
            let to = user.tails.get(&colour).copied().unwrap_or_default();
            let from = NodePosition(draw.2 % (to.0 + 1));
            FuzzyRequest::Play(PlayCall { colour, from, to })
        } else if says && draw.2.is_multiple_of(4) && !self.carried.is_empty() {
            let nth = (draw.2 >> 2) as usize % self.carried.len();
            FuzzyRequest::FindLogs(self.carried[nth].clone())
        } else if says && draw.2 % 4 == 1 && user.played.contains_key(&colour) {
            let below = user.played.get(&colour).copied().unwrap_or_default();
            FuzzyRequest::CountLogs(CountLogsCall { colour, below })
        } else {
            let from = user.played.get(&colour).copied().unwrap_or_default();
            FuzzyRequest::Sync(SyncCall { colour, from, seen })
        };
        Planned { request, incarnation, again: None }
    }

    pub(super) fn began(&mut self, client: u16, id: RequestId) {
        let user = self.users.entry(client).or_default();
        user.first.get_or_insert(id);
        user.is_waiting = true;
    }

    pub(super) fn answered(&mut self, client: u16, request: &FuzzyRequest, response: &FuzzyResponse) {
        let user = self.users.entry(client).or_default();
        user.is_waiting = false;
        let know = |user: &mut User, colour: Colour, tail: NodePosition| {
            let known = user.tails.entry(colour).or_default();
            *known = tail.max(*known);
        };
        match response {
            FuzzyResponse::Appended { at, placed } => {
                user.seen = user.seen.max(*at);
                placed.iter().for_each(|it| know(user, it.colour, it.position.next()));
            }
            FuzzyResponse::Snapshotted { at, tails } => {
                user.seen = user.seen.max(*at);
                tails.iter().for_each(|it| know(user, it.colour, it.position));
            }
            FuzzyResponse::Played(page) => {
                user.seen = user.seen.max(page.seen);
                know(user, page.colour, page.tail);
                if matches!(request, FuzzyRequest::Sync(_)) {
                    user.played.insert(page.colour, page.from.plus(page.nodes.len() as u64));
                }
            }
            FuzzyResponse::AlreadyTrimmed { first } => {
                if let FuzzyRequest::Sync(call) = request {
                    user.played.insert(call.colour, *first);
                }
            }
            FuzzyResponse::LogsFound { below: Some(below), at } => {
                let FuzzyRequest::FindLogs(call) = request else { return };
                user.seen = user.seen.max(*at);
                know(user, call.colour, *below);
                // It goes on from there, as one that has played all before.
                let played = user.played.entry(call.colour).or_default();
                *played = (*played).max(*below);
                self.carried.retain(|it| it != call);
            }
            FuzzyResponse::Trimmed { .. }
            | FuzzyResponse::LogsCounted { .. }
            | FuzzyResponse::LogsFound { below: None, .. }
            | FuzzyResponse::Followed { .. }
            | FuzzyResponse::Scanned(_)
            | FuzzyResponse::Restored { .. }
            | FuzzyResponse::Changed { .. }
            | FuzzyResponse::PlacesForgotten { .. }
            | FuzzyResponse::ChangeUnknown
            | FuzzyResponse::Refused(_) => {}
        }
        match request {
            FuzzyRequest::Append(_) | FuzzyRequest::Snapshot(_) if asks_again(response) => {
                user.again = user.first.map(|first| (request.clone(), first));
            }
            FuzzyRequest::Append(AppendCall { number, .. })
            | FuzzyRequest::Snapshot(SnapshotCall { number, .. }) => {
                user.open.remove(number);
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
            | FuzzyRequest::Follow(_) => {}
        }
    }

    /// The client's host has died. The user asks again elsewhere, or gives up what it asked for and goes on.
    pub(super) fn lost(&mut self, client: u16, id: RequestId, request: FuzzyRequest) {
        let user = self.users.entry(client).or_default();
        user.is_waiting = false;
        let is_numbered = matches!(request, FuzzyRequest::Append(_) | FuzzyRequest::Snapshot(_));
        if is_numbered && !(id.0 + u64::from(client)).is_multiple_of(3) {
            user.again = Some((request, user.first.unwrap_or(id)));
        } else {
            user.incarnation += 1;
        }
    }
}
