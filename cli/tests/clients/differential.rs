//! The same random requests to Apache ZooKeeper and to Ordinate: what they answer must mean the same.
//!
//! One session at a time asks, so that ZooKeeper's answers are a function of the seed. On our side the sessions are spread
//! over all hosts. Events are compared in their order, at every write of a session that is answered, since the answer to a
//! write comes after all events up to it.

use crate::generate::{Ask, FOLDER, Generator, Leaves, SUPER_DIGEST};
use crate::peers;
use crate::support::raw::{Pass, Raw, Reply};
use crate::support::{number, side_by_side};
use crate::tokens::{Matching, Token, of_body};
use coordination::wire::{JuteInput, JuteOutput, op};
use kernel::Rng;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

const SESSIONS: usize = 4;
const TIMEOUT: i32 = 30_000;
/// How much of what went before is shown with a difference.
const SHOWN: usize = 60;
/// At most so many requests are in flight at a time.
const BATCH_MAX: u64 = 8;

/// One session, on both sides.
struct Pair {
    reference: Raw,
    ours: Raw,
}

struct Duel {
    reference: SocketAddr,
    ours: Vec<SocketAddr>,
    pairs: Vec<Pair>,
    matching: Matching,
    generator: Generator,
    history: VecDeque<String>,
    asked: u64,
    events: u64,
    failed: u64,
}

type Verdict = Result<(), String>;

impl Duel {
    fn new(reference: SocketAddr, ours: Vec<SocketAddr>, seed: u64) -> Self {
        let generator = Generator { rng: Rng::seeded(seed), made: Vec::new() };
        let (matching, history) = (Matching::default(), VecDeque::new());
        let mut duel = Self {
            reference,
            ours,
            pairs: Vec::new(),
            matching,
            generator,
            history,
            asked: 0,
            events: 0,
            failed: 0,
        };
        for session in 0..SESSIONS {
            let pair = duel.open(session, &Pass::default(), &Pass::default()).expect("both sides serve");
            duel.pairs.push(pair);
        }
        duel
    }

    fn note(&mut self, text: String) {
        if self.history.len() == SHOWN {
            self.history.pop_front();
        }
        self.history.push_back(text);
    }

    fn open(&mut self, session: usize, theirs: &Pass, ours: &Pass) -> Result<Pair, String> {
        let address = self.ours[session % self.ours.len()];
        let failed = |error: std::io::Error| error.to_string();
        let reference = Raw::connect(self.reference, theirs, TIMEOUT, 0).map_err(failed)?;
        let ours = Raw::connect(address, ours, TIMEOUT, 0).map_err(failed)?;
        if reference.timeout != ours.timeout {
            return Err(format!("timeout {}, here {}", reference.timeout, ours.timeout));
        }
        self.matching.session(reference.pass.session, ours.pass.session);
        Ok(Pair { reference, ours })
    }

    /// Sends the same to both sides and compares what they answer.
    fn ask(&mut self, session: usize, asks: &[Ask]) -> Verdict {
        let failed = |error: std::io::Error| error.to_string();
        let pair = &mut self.pairs[session];
        for ask in asks {
            pair.reference.push(ask.opcode, &ask.reference);
            pair.ours.push(ask.opcode, &ask.ours);
        }
        pair.reference.flush().map_err(failed)?;
        pair.ours.flush().map_err(failed)?;
        for (at, ask) in asks.iter().enumerate() {
            self.asked += 1;
            let theirs = self.pairs[session].reference.reply();
            let ours = self.pairs[session].ours.reply();
            let said = |reply: &std::io::Result<Reply>| {
                reply.as_ref().map_or_else(ToString::to_string, |reply| reply.error.to_string())
            };
            self.note(format!("{session}: {} -> {}, here {}", ask.text, said(&theirs), said(&ours)));
            let verdict = match (theirs, ours) {
                (Ok(theirs), Ok(ours)) => self.compare(session, ask, &theirs, &ours),
                (Err(error), _) => Err(format!("the reference: {error}")),
                (_, Err(error)) => Err(format!("here: {error}")),
            };
            if verdict.is_err() {
                asks[at + 1..]
                    .iter()
                    .for_each(|ask| self.note(format!("{session}: in flight: {}", ask.text)));
                return verdict;
            }
        }
        Ok(())
    }

    fn compare(&mut self, session: usize, ask: &Ask, theirs: &Reply, ours: &Reply) -> Verdict {
        if (theirs.xid, theirs.error) != (ours.xid, ours.error) {
            return Err(format!(
                "xid {} code {}, here xid {} code {}",
                theirs.xid, theirs.error, ours.xid, ours.error
            ));
        }
        let (reference, mine) = if theirs.error == 0 {
            (of_body(ask.opcode, &theirs.body), of_body(ask.opcode, &ours.body))
        } else {
            self.failed += 1;
            (vec![Token::Rest(theirs.body.clone())], vec![Token::Rest(ours.body.clone())])
        };
        let writes = matches!(
            ask.opcode,
            op::CREATE
                | op::CREATE2
                | op::CREATE_CONTAINER
                | op::CREATE_TTL
                | op::DELETE
                | op::SET_DATA
                | op::SET_ACL
        );
        self.matching.tokens(&reference, &mine)?;
        if writes && theirs.error == 0 {
            self.matching.gsns(theirs.zxid, ours.zxid)?;
            self.compare_events(session)?;
        }
        if let Some(Token::Text(path)) = mine.first().filter(|_| writes && path_is_sequential(&mine)) {
            self.generator.made.push(path.clone());
            if self.generator.made.len() > 12 {
                self.generator.made.remove(0);
            }
        }
        Ok(())
    }

    /// All events that have arrived, in their order. Only behind the answer to a write have all arrived.
    fn compare_events(&mut self, session: usize) -> Verdict {
        let pair = &mut self.pairs[session];
        let (theirs, ours) =
            (std::mem::take(&mut pair.reference.events), std::mem::take(&mut pair.ours.events));
        let (reported, reported_here) = (in_order(&theirs), in_order(&ours));
        let said = |events: &[Reported]| events.iter().map(|(_, what)| what.clone()).collect::<Vec<_>>();
        if said(&reported) != said(&reported_here) {
            return Err(format!("session {session}: events\n  {reported:x?}, here\n  {reported_here:x?}"));
        }
        for ((theirs, _), (ours, _)) in reported.iter().zip(&reported_here) {
            self.events += 1;
            // What setWatches sends has no global sequence number.
            if *theirs > 0 {
                self.matching.gsns(*theirs, *ours).map_err(|why| format!("event: {why}"))?;
            }
        }
        Ok(())
    }

    /// A write of every session, to collect its events.
    fn fence(&mut self) -> Verdict {
        for session in 0..self.pairs.len() {
            let mut body = Vec::new();
            body.put_text("/fence");
            body.put_buffer(None);
            body.put_i32(-1);
            let fence = plain(op::SET_DATA, body, "the fence");
            self.ask(session, &[fence])?;
        }
        Ok(())
    }

    fn step(&mut self) -> Verdict {
        let session = self.generator.rng.index(self.pairs.len());
        if self.generator.rng.chance(0.01) {
            return self.part(session);
        }
        if self.generator.rng.chance(0.02) {
            let ask = self.generator.hasty();
            return self.ask(session, &[ask]);
        }
        let count = self.generator.rng.between(1, BATCH_MAX);
        let mut asks: Vec<Ask> = (0..count).map(|_| self.generator.next(&self.matching)).collect();
        // ZooKeeper checks what is pipelined behind a setACL by the old list or the new one, as it happens.
        if let Some(at) = asks.iter().position(|ask| ask.opcode == op::SET_ACL) {
            asks.truncate(at + 1);
        }
        self.ask(session, &asks)
    }

    /// The connection ends, in one way or another, and there is a new one.
    fn part(&mut self, session: usize) -> Verdict {
        // Events that are in flight might be sent before the end, or not.
        self.fence()?;
        let ask = self.generator.last();
        let leaves = ask.leaves;
        self.ask(session, &[ask])?;
        let pair = &mut self.pairs[session];
        if leaves != Leaves::Connection && (!pair.reference.is_closed() || !pair.ours.is_closed()) {
            return Err("a connection stays open".to_owned());
        }
        let (theirs, ours) = (pair.reference.pass.clone(), pair.ours.pass.clone());
        if leaves == Leaves::Nothing {
            let gone = self.open(session, &theirs, &ours)?;
            if (gone.reference.timeout, gone.ours.timeout) != (0, 0) {
                return Err("a closed session is taken up".to_owned());
            }
            self.pairs[session] = self.open(session, &Pass::default(), &Pass::default())?;
        } else {
            self.pairs[session] = self.open(session, &theirs, &ours)?;
            let pair = &self.pairs[session];
            if (&pair.reference.pass, &pair.ours.pass) != (&theirs, &ours) {
                return Err("a session is not taken up".to_owned());
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str) -> Verdict {
        let mut body = Vec::new();
        body.put_text(path);
        body.put_buffer(None);
        body.put_i32(1);
        body.put_i32(31);
        body.put_text("world");
        body.put_text("anyone");
        body.put_i32(0);
        self.ask(0, &[plain(op::CREATE, body, path)])
    }

    /// Everything is removed by one who may, on both sides alike, and compared meanwhile.
    fn sweep(&mut self) -> Verdict {
        let mut auth = Vec::new();
        auth.put_i32(0);
        auth.put_text("digest");
        auth.put_buffer(Some(b"super:test"));
        let broom = self.pairs.len();
        let pair = self.open(broom, &Pass::default(), &Pass::default())?;
        self.pairs.push(pair);
        self.ask(broom, &[plain(op::AUTH, auth, "auth of the broom")])?;
        let verdict = self.remove_below(broom, FOLDER);
        verdict?;
        self.ask(broom, &[plain(op::CLOSE, Vec::new(), "close of the broom")])?;
        self.pairs.pop();
        self.generator.made.clear();
        self.create(FOLDER)
    }

    fn remove_below(&mut self, broom: usize, path: &str) -> Verdict {
        let mut body = Vec::new();
        body.put_text(path);
        body.push(0);
        let (list, data) =
            (plain(op::GET_CHILDREN2, body.clone(), path), plain(op::GET_DATA, body.clone(), path));
        body.pop();
        self.ask(broom, &[list, data, plain(op::GET_ACL, body.clone(), path)])?;
        body.push(0);
        let reply =
            self.pairs[broom].ours.call(op::GET_CHILDREN, &body).map_err(|error| error.to_string())?;
        let names: Vec<String> =
            JuteInput(&reply.body).texts().unwrap_or_default().into_iter().map(str::to_owned).collect();
        // The other side's count of requests must not fall behind.
        self.pairs[broom].reference.call(op::GET_CHILDREN, &body).map_err(|error| error.to_string())?;
        for name in names {
            self.remove_below(broom, &format!("{path}/{name}"))?;
        }
        let mut body = Vec::new();
        body.put_text(path);
        body.put_i32(-1);
        self.ask(broom, &[plain(op::DELETE, body, path)])
    }
}

/// A global sequence number, and what is announced of it: kind, state, path.
type Reported = (i64, (i32, i32, String));

/// Events in their order; those of one global sequence number, whose order ZooKeeper leaves open (it deletes a session's nodes in the order of a
/// hash table, and sends what was missed list by list), in the order of their paths and each once.
fn in_order(events: &VecDeque<Reply>) -> Vec<Reported> {
    let read = |event: &Reply| -> Option<Reported> {
        let mut input = JuteInput(&event.body);
        let what = (input.i32().ok()?, input.i32().ok()?, input.text().ok()?.to_owned());
        Some((event.zxid, what))
    };
    let mut reported: Vec<Reported> = events.iter().filter_map(read).collect();
    assert_eq!(reported.len(), events.len(), "a malformed event");
    for same in reported.chunk_by_mut(|one, other| one.0 == other.0) {
        same.sort();
    }
    reported.dedup();
    reported
}

fn plain(opcode: i32, body: Vec<u8>, text: &str) -> Ask {
    let text = format!("request({opcode}) {text}");
    Ask { opcode, reference: body.clone(), ours: body, text, leaves: Leaves::Connection }
}

fn path_is_sequential(tokens: &[Token]) -> bool {
    matches!(tokens.first(), Some(Token::Text(path)) if coordination::wire::is_sequential(path))
}

/// Both sides start empty; the first difference, with what was asked before it, or what was done.
fn duel(coordination: &str, peers: &Path, operations: u64, seed: u64) -> Result<Duel, String> {
    let zookeeper = peers::ZooKeeper::start(peers, SUPER_DIGEST);
    let settings = format!("{coordination}\nsuper_digest = \"{SUPER_DIGEST}\"\nreap_every = \"10h\"");
    let runtime = tokio::runtime::Handle::current();
    let (_cluster, addresses) = tokio::task::block_in_place(|| runtime.block_on(peers::ordinate(&settings)));
    let mut duel = Duel::new(zookeeper.address, addresses, seed);
    let mut run = || -> Verdict {
        duel.create("/fence")?;
        duel.create(FOLDER)?;
        while duel.asked < operations {
            for _ in 0..250 {
                duel.step()?;
            }
            duel.fence()?;
            duel.sweep()?;
        }
        Ok(())
    };
    let verdict = run();
    match verdict {
        Ok(()) => Ok(duel),
        Err(why) => {
            let history: Vec<&str> = duel.history.iter().map(String::as_str).collect();
            Err(format!("after {} requests: {why}\nbefore:\n{}", duel.asked, history.join("\n")))
        }
    }
}

fn judge(coordination: &str, operations: u64, seed: u64) {
    let Some(folder) = peers::installed("java") else { return };
    let mut differences = 0;
    for attempt in 0..number("ORDINATE_DIFFERENCES", 1) {
        match duel(coordination, &folder, operations, seed + attempt) {
            Ok(duel) => {
                let Duel { asked, failed, events, .. } = duel;
                let settings = coordination.replace('\n', " ");
                println!(
                    "{settings}: {asked} requests, {failed} of them refused alike, {events} events; seed {seed}: no difference"
                );
                assert!(events > operations / 100 && failed > operations / 10, "too little happens");
                break;
            }
            Err(why) => {
                differences += 1;
                println!("DIFFERENCE: seed {}, {why}\n", seed + attempt);
            }
        }
    }
    assert_eq!(differences, 0, "differences from ZooKeeper, see above");
}

// An answer that differs from ZooKeeper's breaks a client that nobody here has thought of: sharded ...
#[test]
fn answers_mean_what_zookeepers_mean_with_shards() {
    let (operations, seed) = (number("ORDINATE_OPERATIONS", 50_000), number("ORDINATE_SEED", 1));
    side_by_side(async { judge("[coordination]\nengine = \"mason\"\nshards = 4", operations, seed) });
}

// ... or not.
#[test]
fn answers_mean_what_zookeepers_mean_without_shards() {
    let (operations, seed) = (number("ORDINATE_OPERATIONS", 50_000) / 5, number("ORDINATE_SEED", 2));
    side_by_side(async { judge("[coordination]\nengine = \"paxos\"", operations, seed) });
}
