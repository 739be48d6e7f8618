//! A server that joins a chain, and the one that it copies.

use super::server::{PARTITION, node, order, serving_as, snapping};
use fuzzylog::chain_server::{
    ChainServerIn, ChainTimer, FromServer, Project, PullState, Pulled, SealChain, SnapshotPage,
};
use fuzzylog::{ChainEpoch, ChainMember, ChainProjection, ChainServer, FuzzyLog, FuzzyMessage, RowIndex};
use kernel::{Bytes, Effect};
use std::collections::BTreeSet;
use std::time::Duration;
use table::{Did, Table, restored, sent};

/// What a server sends another one.
fn to_servers(did: &Did<FuzzyLog>) -> Vec<FromServer> {
    let of = |(_, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Server(message)) => Some(message),
        FuzzyMessage::ChainServer(_)
        | FuzzyMessage::Client(_)
        | FuzzyMessage::Director(_)
        | FuzzyMessage::Log(_) => None,
    };
    sent(did).into_iter().filter_map(of).collect()
}

/// A server of another host that copies the table's one, and its first question.
fn copying(source: &Table<ChainServer>) -> (Table<ChainServer>, Vec<FromServer>) {
    let mut joins = Table::new(snapping(), node(4));
    let members = vec![ChainMember { node: node(1), journal: source.role.journal() }];
    let (epoch, whole_from) = (ChainEpoch(2), RowIndex(0));
    let projection = ChainProjection { partition: PARTITION, epoch, members, whole_from };
    let did = joins.burst(node(3), Project { projection, copies: true });
    (joins, to_servers(&did))
}

/// Both of them, and what is on its way between them.
struct Joins {
    source: Table<ChainServer>,
    joins: Table<ChainServer>,
    questions: Vec<FromServer>,
    pages: usize,
    /// The names of the snapshots that the source has begun to hand over.
    snapshots: BTreeSet<u64>,
}

impl Joins {
    /// The source has ordered so many commands, and has none of them in memory any more.
    fn behind(commands: u64) -> Self {
        let mut source = serving_as(snapping(), true);
        order(&mut source, 0..commands);
        source.end();
        let (joins, questions) = copying(&source);
        Self { source, joins, questions, pages: 0, snapshots: BTreeSet::new() }
    }

    /// What was asked is answered, or else so much time passes; true if it did.
    fn step(&mut self, time: Duration) -> bool {
        let mut answers = Vec::new();
        for question in self.questions.drain(..) {
            answers.extend(to_servers(&self.source.burst(node(4), ChainServerIn::Server(question))));
        }
        for answer in answers {
            if let FromServer::SnapshotPage(page) = &answer {
                self.pages += 1;
                self.snapshots.insert(page.transfer);
            }
            self.questions.extend(to_servers(&self.joins.burst(node(1), ChainServerIn::Server(answer))));
        }
        let is_quiet = self.questions.is_empty();
        if is_quiet {
            self.source.pass(time);
            self.source.timer(ChainTimer::Tick);
            self.source.end();
            self.joins.pass(time);
            self.questions.extend(to_servers(&self.joins.timer(ChainTimer::Tick)));
        }
        is_quiet
    }

    fn until_it_has_all(&mut self, time: Duration, mut meanwhile: impl FnMut(&mut Self)) {
        for _ in 0..5_000 {
            if self.joins.role.length() == self.source.role.length() {
                assert_eq!(self.joins.role.state().digest(), self.source.role.state().digest());
                return;
            }
            if self.step(time) {
                meanwhile(self);
            }
        }
        panic!("it has {} of {}", self.joins.role.length(), self.source.role.length());
    }
}

// A server that joins and gets half of a state, or one whose row is counted before it is on its disk, is a member in name only.
#[test]
fn a_joining_server_takes_what_is_gone_as_a_snapshot() {
    let mut both = Joins::behind(40);
    let mut waited = 0;
    both.until_it_has_all(Duration::from_millis(3), |both| {
        waited += u32::from(both.joins.role.length() == RowIndex(0));
    });
    assert!(both.pages > 10 && waited > 10, "it counts when its journal has all {}: {waited}", both.pages);
    let again = restored(snapping(), &both.joins.journal());
    assert_eq!((again.length(), again.state().digest()), (RowIndex(40), both.source.role.state().digest()));
}

// A chain that drops what comes while a server writes a snapshot never gets that server back while it is used.
#[test]
fn what_comes_while_a_snapshot_is_written_is_retained() {
    let mut both = Joins::behind(40);
    let (mut number, begun) = (40, both.joins.now());
    // Longer than a silent server is waited for.
    both.until_it_has_all(Duration::from_millis(200), |both| {
        if both.joins.role.length() == RowIndex(0) {
            order(&mut both.source, number..number + 1);
            number += 1;
        }
    });
    assert!(both.joins.now().since(begun) > Duration::from_secs(3) && number > 55, "{number} came meanwhile");
    assert_eq!((both.snapshots.len(), both.source.role.outrun()), (1, 0));
    assert!(both.source.role.retained_bytes_max() > 0, "it is no member yet");
    both.source.pass(Duration::from_secs(3));
    both.source.timer(ChainTimer::Tick);
    order(&mut both.source, number..number + 2);
    both.source.end();
    let (begins_at, length) = (both.source.role.begins_at(), both.source.role.length());
    assert_eq!((begins_at, both.source.role.retained_bytes_max()), (length, 0), "it was silent for long");
}

// A chain that too few servers are left for waits for ever, if those that are left are in the middle of their own snapshots.
#[test]
fn a_server_that_is_sealed_completes_its_snapshot_and_hands_one_over() {
    let mut source = serving_as(snapping(), true);
    order(&mut source, 0..40);
    source.end();
    source.timer(ChainTimer::Tick);
    assert_eq!(source.role.saved_below(), RowIndex(40), "one is being written");
    source.burst(node(3), SealChain { epoch: ChainEpoch(3), journal: None });
    let base = source.role.base();
    let (joins, questions) = copying(&source);
    let mut both = Joins { source, joins, questions, pages: 0, snapshots: BTreeSet::new() };
    both.until_it_has_all(Duration::from_millis(100), |_| {});
    assert_eq!(both.source.role.base(), base, "its row stays as it is");
}

// A server that hangs while it takes a snapshot must not fill the memory of those that serve.
#[test]
fn what_is_retained_for_who_joins_is_bounded() {
    let mut both = Joins::behind(40);
    while both.pages < 3 {
        both.step(Duration::from_millis(3));
    }
    let most = both.source.role.retained_bytes_max();
    assert_eq!(most, both.source.role.state().live_bytes(), "the snapshot's size");
    for number in 40..400 {
        order(&mut both.source, number..number + 1);
        both.source.end();
        let bytes = both.source.role.row_bytes();
        assert!(bytes <= most, "{bytes} of {most}");
        assert!(bytes > 0 || both.source.role.outrun() == 1, "{number}");
    }
    assert_eq!((both.source.role.outrun(), both.source.role.retained_bytes_max()), (1, 0));
    both.until_it_has_all(Duration::from_millis(3), |_| {});
    assert_eq!(both.snapshots.len(), 2, "it begins again");
}

// A peer that hands a damaged state over must not stop this host, nor be believed.
#[test]
fn a_snapshot_that_cannot_be_read_is_refused() {
    let mut source = serving_as(snapping(), true);
    order(&mut source, 0..8);
    source.end();
    let (mut joins, questions) = copying(&source);
    let FromServer::PullRow(pull) = &questions[0] else { panic!("{questions:?}") };
    let pulled = Pulled {
        session: pull.session,
        first: RowIndex(0),
        entries: Vec::new(),
        length: RowIndex(8),
        stable: RowIndex(8),
        base: Some(RowIndex(8)),
    };
    for bytes in [&b"not a state"[..], &[]] {
        let asked = to_servers(&joins.burst(node(1), pulled.clone()));
        let Some(FromServer::PullState(asked)) = asked.last() else { panic!("{asked:?}") };
        let PullState { transfer, index, .. } = *asked;
        let bytes = Bytes::copy_from_slice(bytes);
        let page = SnapshotPage { transfer, below: RowIndex(8), index, last: true, bytes };
        let did = joins.burst(node(1), page);
        let is_refused = did.iter().any(|effect| matches!(effect, Effect::Reject { .. }));
        assert!(is_refused, "{did:?}");
        assert_eq!((joins.role.length(), joins.role.state().applied()), (RowIndex(0), RowIndex(0)));
    }
}
