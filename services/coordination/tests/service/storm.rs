//! Everything at once: clients that write, read, watch, leave and come back, on hosts that lag by turns.

use crate::client::{Client, Heard, create, delete, multi, read, set, set_watches};
use crate::driver::Cluster;
use coordination::wire::op;
use std::collections::BTreeMap;

/// A client that remembers what it knows of nodes, as caches do.
struct Cache {
    client: Client,
    host: usize,
    /// Requests that are not answered, with the path of a watched read.
    asked: Vec<(i32, Option<String>)>,
    /// The mzxid under which a data watch is armed; 0 for a node that was not there.
    armed: BTreeMap<String, i64>,
    events: usize,
    seed: u64,
}

impl Cache {
    fn hear(&mut self, c: &mut Cluster) {
        for heard in self.client.hear(c) {
            match heard {
                Heard::Event { path, zxid, .. } => {
                    let armed = self.armed.remove(&path);
                    assert!(armed.is_some(), "seed {}: an event for {path} that nobody waits for", self.seed);
                    assert!(
                        zxid == -1 || armed < Some(zxid),
                        "seed {}: an event older than what the client knows",
                        self.seed
                    );
                    self.events += 1;
                }
                Heard::Reply(reply) if reply.xid == -8 => assert_eq!(reply.error, 0),
                Heard::Reply(reply) => {
                    assert!(!self.asked.is_empty(), "a reply to nothing: {reply:?}");
                    let (xid, watched) = self.asked.remove(0);
                    assert_eq!(reply.xid, xid, "replies out of order");
                    if let Some(path) = watched {
                        let known = if reply.error == 0 { reply.stat().mzxid } else { 0 };
                        assert!(reply.error == 0 || reply.error == -101, "{reply:?}");
                        // The oldest registration counts until it fires.
                        let armed = *self.armed.entry(path.clone()).or_insert(known);
                        assert!(
                            armed >= known || known == 0,
                            "seed {}: new data of {path} before the event",
                            self.seed
                        );
                    }
                }
            }
        }
    }

    fn act(&mut self, c: &mut Cluster) {
        let path = format!("/k{}", c.rng.below(6));
        let (opcode, body, watched) = match c.rng.below(10) {
            0 => (op::CREATE, create(&path, b"", (c.rng.below(2)) as i32), None),
            1 => (op::DELETE, delete(&path, -1), None),
            2 | 3 => (op::SET_DATA, set(&path, b"x", -1), None),
            4 => (op::CREATE, create("/q-", b"", 3), None),
            5 => {
                let other = format!("/k{}", c.rng.below(6));
                let steps = [(op::SET_DATA, set(&path, b"m", -1)), (op::SET_DATA, set(&other, b"m", -1))];
                (op::MULTI, multi(&steps), None)
            }
            6 => (op::GET_CHILDREN2, read("/", false), None),
            _ => (op::EXISTS, read(&path, true), Some(path)),
        };
        let xid = self.client.send(c, opcode, &body);
        self.asked.push((xid, watched));
    }

    /// Leaves, and comes back to another host with what it watches.
    fn move_on(&mut self, c: &mut Cluster) {
        c.disconnect(self.client.node);
        drop(c.output(self.client.node));
        self.asked.clear();
        self.host = (self.host + 1) % 3;
        let (session, password, zxid) =
            (self.client.session, self.client.password.clone(), self.client.last_zxid);
        c.held.clear();
        c.settle();
        self.client =
            Client::resume(c, self.host, session, &password, zxid, 10_000).expect("renewed in time");
        let there: Vec<&str> =
            self.armed.iter().filter(|(_, known)| **known > 0).map(|(path, _)| &**path).collect();
        let absent: Vec<&str> =
            self.armed.iter().filter(|(_, known)| **known == 0).map(|(path, _)| &**path).collect();
        self.client.send_as(c, -8, op::SET_WATCHES, &set_watches(zxid, [&there, &absent, &[]], None));
    }
}

// An interleaving that no other test thought of: a lost watch, an answer out of order, replicas that differ.
#[test]
fn no_watch_is_lost_and_nothing_goes_back_in_time() {
    let (mut events, mut moves) = (0, 0);
    for seed in (0..1500).chain([7809]) {
        let mut cluster = Cluster::new(3, 2, 1 + 3 * (seed % 2) as u16, 5000 + seed);
        let c = &mut cluster;
        let mut caches: Vec<Cache> = (0..4)
            .map(|n| Cache {
                client: Client::connect(c, n % 3),
                host: n % 3,
                asked: Vec::new(),
                armed: BTreeMap::new(),
                events: 0,
                seed,
            })
            .collect();
        for _ in 0..120 {
            let at = c.rng.index(caches.len());
            match c.rng.below(40) {
                0 => {
                    caches[at].hear(c);
                    caches[at].move_on(c);
                    moves += 1;
                }
                1 => {
                    let (host, space) = (c.rng.index(3), mason::Space(c.rng.below(4) as u16));
                    c.held.push((host, space));
                }
                2 => c.held.clear(),
                3 => c.pass(500),
                4..=20 => caches[at].act(c),
                _ => {
                    let steps = c.rng.index(30);
                    c.work(steps);
                    caches[at].hear(c);
                }
            }
        }
        c.held.clear();
        c.settle();
        let mut judge = Client::connect(c, 0);
        for cache in &mut caches {
            cache.hear(c);
            assert_eq!(cache.asked, [], "seed {seed}: unanswered");
            for (path, known) in &cache.armed {
                let reply = judge.ask(c, op::EXISTS, &read(path, false));
                let now = if reply.error == 0 { reply.stat().mzxid } else { 0 };
                assert_eq!(now, *known, "seed {seed}: the change of {path} was not announced");
            }
            events += cache.events;
        }
        c.agree();
    }
    assert!(events > 1000 && moves > 100, "{events} {moves}");
}
