//! The sequencer.

use super::{Did, Table, all, at, one, proxies, proxy, range, rejects, sends, sequencer, topology};
use mason::proxy::{Active, Allocated, Fill, GetMaxAndSeal, NotActive, Pong, Probed};
use mason::sequencer::{
    Allocate, Allocation, Filled, GroupSealed, Overtaken, Ping, Probe, Recover, Sequencer, SequencerTimer,
};
use mason::view::View;
use mason::{ConsistentCut, Group, Gsn, MasonParameters, Placed, Range, Space};

fn view(ranges: &[Range]) -> View {
    let mut view = View::default();
    ranges.iter().for_each(|range| view.insert_range(range));
    view
}

/// What a bench's first recovery draws.
fn first() -> Option<u64> {
    Some(kernel::Rng::seeded(1).bits())
}

fn sealed(group: u16, epoch: u64, ranges: &[Range], gsn: u64) -> GroupSealed {
    let (group, view, gsn) = (Group(group), view(ranges), Gsn(gsn));
    GroupSealed { group, epoch, view, gsn, attempt: first(), layout: None, handed: None }
}

fn parameters() -> MasonParameters {
    MasonParameters { gsn_gap: 100, ..MasonParameters::default() }
}

fn standby() -> Table<Sequencer> {
    Table::new(Sequencer::new(topology(), parameters()), sequencer(2))
}

/// The sequencer of epoch 1 of a new cluster.
fn active() -> Table<Sequencer> {
    let mut bench = standby();
    bench.hear(proxy(1, 0), Recover { epoch: 1 });
    bench.hear(proxy(1, 0), sealed(0, 1, &[], 0));
    bench.hear(proxy(2, 1), sealed(1, 1, &[], 0));
    assert_eq!(bench.role.active_epoch(), Some(1));
    bench
}

fn ask(group: u16, proxy_epoch: u64, request: u64, committed: u64, counts: &[(u16, u64)]) -> Allocate {
    let counts = counts.iter().map(|&(space, count)| (Space(space), count)).collect();
    Allocate {
        group: Group(group),
        proxy_epoch,
        epoch: 1,
        request,
        committed,
        counts,
        operations: 2,
        shard_map: None,
    }
}

fn given(request: u64, rows: &[Range], gsn: u64, next: [u64; 2]) -> Allocated {
    let next: Vec<Placed> = vec![at(0, next[0]), at(1, next[1])];
    let cut = ConsistentCut { gsn: Gsn(gsn + 2), next };
    let allocation = Allocation { request, rows: rows.to_vec(), gsn: Gsn(gsn), cut };
    Allocated { epoch: 1, allocation }
}

fn marks(did: &Did) -> usize {
    did.iter().filter(|effect| matches!(effect, kernel::Effect::Mark { .. })).count()
}

// Numbers given twice, or a batch whose rows overlap another's, break every promise at once.
#[test]
fn rows_follow_one_another_and_a_repeated_request_gets_the_same() {
    let mut bench = active();
    let first = given(1, &[range(0, 1, 2)], 100, [3, 1]);
    assert_eq!(sends(&bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 2)]))), one(proxy(1, 0), first.clone()));
    let second = given(1, &[range(0, 3, 1), range(1, 1, 2)], 102, [4, 3]);
    let did = bench.hear(proxy(2, 1), ask(1, 1, 1, 0, &[(0, 1), (1, 2)]));
    assert_eq!(sends(&did), one(proxy(2, 1), second), "the same request of another group");
    let again = bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 2)]));
    assert_eq!((sends(&again), marks(&again)), (one(proxy(1, 0), first), 1));
    assert_eq!(bench.role.remembered(), 2);
}

// A later request that is served before an earlier one turns an origin's order around.
#[test]
fn requests_are_served_in_their_order() {
    let mut bench = active();
    assert_eq!(bench.hear(proxy(1, 0), ask(0, 1, 2, 0, &[(0, 1)])), []);
    bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 1)]));
    let second = given(2, &[range(0, 2, 1)], 102, [3, 1]);
    assert_eq!(sends(&bench.hear(proxy(1, 0), ask(0, 1, 2, 0, &[(0, 1)]))), one(proxy(1, 0), second));
}

// What is never forgotten fills the memory; what is forgotten too early is served twice.
#[test]
fn committed_requests_are_forgotten_and_not_served_again() {
    let mut bench = active();
    bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 1)]));
    bench.hear(proxy(1, 0), ask(0, 1, 2, 1, &[(0, 1)]));
    assert_eq!(bench.role.remembered(), 1);
    assert_eq!(bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 1)])), []);
    let ahead = bench.hear(proxy(1, 0), ask(0, 1, 3, u64::MAX, &[(0, 1)]));
    assert_eq!(sends(&ahead), one(proxy(1, 0), given(3, &[range(0, 3, 1)], 104, [4, 1])));
    assert_eq!(bench.role.remembered(), 1);
}

// Spaces or counts that no proxy asks for must not bring the sequencer down.
#[test]
fn senseless_requests_are_rejected() {
    let mut bench = active();
    assert!(rejects(&bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(2, 1)]))));
    assert!(rejects(&bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, u64::MAX)]))));
    let many = Allocate { operations: u64::MAX, ..ask(0, 1, 1, 0, &[(0, 1)]) };
    assert!(rejects(&bench.hear(proxy(1, 0), many)));
    assert_eq!(bench.role.remembered(), 0);
}

// The numbers of a deposed leader's late request belong to nobody.
#[test]
fn a_probe_shows_what_was_lost_and_fences_the_leaders_before() {
    let mut bench = active();
    for request in 1..=3 {
        bench.hear(proxy(1, 0), ask(0, 1, request, 0, &[(0, 1)]));
    }
    let did = bench.hear(proxy(2, 0), Probe { group: Group(0), proxy_epoch: 2, epoch: 1, after: 1 });
    let lost = [given(2, &[range(0, 2, 1)], 102, [3, 1]), given(3, &[range(0, 3, 1)], 104, [4, 1])];
    let lost: Vec<Allocation> = lost.into_iter().map(|given| given.allocation).collect();
    assert_eq!(sends(&did), one(proxy(2, 0), Probed { epoch: 1, highest: 3, lost }));
    assert!(rejects(&bench.hear(proxy(1, 0), ask(0, 1, 4, 0, &[(0, 1)]))));
    assert!(rejects(&bench.hear(proxy(1, 0), Probe { group: Group(0), proxy_epoch: 1, epoch: 1, after: 0 })));
    let next = given(4, &[range(0, 4, 1)], 106, [5, 1]);
    assert_eq!(sends(&bench.hear(proxy(2, 0), ask(0, 2, 4, 1, &[(0, 1)]))), one(proxy(2, 0), next));
}

// A proxy that is not notified waits for a node that will never answer.
#[test]
fn a_proxy_that_asks_for_another_sequencer_is_notified() {
    let mut bench = standby();
    let other = |asked, epoch, recovering| one(proxy(1, 0), NotActive { asked, epoch, recovering });
    assert_eq!(sends(&bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 1)]))), other(1, 0, false));
    bench.hear(proxy(2, 0), Recover { epoch: 1 });
    assert_eq!(sends(&bench.hear(proxy(1, 0), Ping { epoch: 1 })), other(1, 1, true));
    let mut bench = active();
    let pong = one(proxy(1, 0), Pong { epoch: 1 });
    let did = bench.burst(proxy(1, 0), Ping { epoch: 1 });
    assert_eq!(sends(&did), [pong.clone(), pong].concat(), "an answer, and a beacon");
    assert_eq!(sends(&bench.hear(proxy(1, 0), Ping { epoch: 4 })), other(4, 1, false));
}

// A sequencer that starts before every proxy is sealed gives numbers that an unsealed one assigns too.
#[test]
fn a_standby_takes_over_when_all_groups_are_sealed() {
    let mut bench = standby();
    let everybody = || [proxies(Group(0)), proxies(Group(1))].concat();
    let did = bench.hear(proxy(1, 0), Recover { epoch: 4 });
    assert_eq!(sends(&did), all(everybody(), GetMaxAndSeal { epoch: 4, attempt: first() }));
    assert!(sends(&bench.hear(proxy(1, 0), Recover { epoch: 4 })).is_empty(), "a recovery is in progress");
    assert_eq!(bench.hear(proxy(1, 0), sealed(0, 4, &[range(0, 1, 3)], 7)), []);
    assert_eq!(bench.hear(proxy(2, 0), sealed(0, 4, &[range(0, 1, 3)], 7)), [], "a group counts once");
    assert_eq!(bench.hear(proxy(2, 1), sealed(1, 3, &[], 0)), [], "sealed for another sequencer");
    let other = GroupSealed { attempt: Some(7), ..sealed(1, 4, &[], 0) };
    bench.hear(proxy(2, 1), other);
    assert_eq!(
        bench.role.active_epoch(),
        None,
        "an earlier incarnation's seal says nothing of what that incarnation gave"
    );
    let retry = bench.timer(SequencerTimer::Retry);
    assert_eq!(
        sends(&retry),
        all(proxies(Group(1)), GetMaxAndSeal { epoch: 4, attempt: first() }),
        "only who is missing"
    );
    assert_eq!(bench.role.active_epoch(), None);
    let did = bench.hear(proxy(2, 1), sealed(1, 4, &[range(0, 6, 2), range(1, 2, 1)], 9));
    let fill = |space, first, count| Fill { epoch: 4, holes: vec![range(space, first, count)] };
    let expected = [
        all(everybody(), Active { epoch: 4 }),
        all(proxies(Group(0)), fill(0, 4, 2)),
        all(proxies(Group(1)), fill(1, 1, 1)),
    ];
    assert_eq!(sends(&did), expected.concat());
    let mut request = ask(1, 1, 1, 0, &[(0, 1), (1, 1)]);
    request.epoch = 4;
    let did = sends(&bench.hear(proxy(2, 1), request));
    let expected = given(1, &[range(0, 8, 1), range(1, 3, 1)], 109, [9, 4]);
    assert_eq!(did, one(proxy(2, 1), Allocated { epoch: 4, ..expected }));
}

// A hole whose filling was asked for once, by a lost message, stops every shard behind it.
#[test]
fn holes_are_asked_to_be_filled_until_they_are() {
    let mut bench = standby();
    bench.hear(proxy(1, 0), Recover { epoch: 1 });
    bench.hear(proxy(1, 0), sealed(0, 1, &[range(0, 2, 1)], 1));
    bench.hear(proxy(2, 1), sealed(1, 1, &[], 0));
    let retry = |bench: &mut Table<Sequencer>| sends(&bench.timer(SequencerTimer::Retry));
    let fill = Fill { epoch: 1, holes: vec![range(0, 1, 1)] };
    assert_eq!(retry(&mut bench), all(proxies(Group(0)), fill.clone()));
    bench.hear(proxy(1, 0), Filled { group: Group(0), epoch: 0 });
    assert_eq!(retry(&mut bench), all(proxies(Group(0)), fill));
    bench.hear(proxy(1, 0), Filled { group: Group(0), epoch: 1 });
    assert_eq!(retry(&mut bench), []);
}

// A sequencer that is asked to take over anew must forget what it gave as the earlier one.
#[test]
fn a_larger_epoch_begins_anew() {
    let mut bench = active();
    bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 5)]));
    bench.hear(proxy(1, 0), Recover { epoch: 1 });
    assert_eq!(bench.role.active_epoch(), Some(1), "its own epoch changes nothing");
    bench.hear(proxy(1, 0), Recover { epoch: 4 });
    assert_eq!((bench.role.active_epoch(), bench.role.remembered()), (None, 0));
    let answer = NotActive { asked: 1, epoch: 4, recovering: true };
    assert_eq!(sends(&bench.hear(proxy(1, 0), ask(0, 1, 1, 0, &[(0, 5)]))), one(proxy(1, 0), answer));
}

// A beacon of a sequencer that allocates no more has its proxies wait for it for ever.
#[test]
fn a_sequencer_is_seen_while_it_allocates() {
    let mut bench = active();
    let stopped = |did: &Did| {
        let stopped = |effect: &kernel::Effect<_, _>| match effect {
            kernel::Effect::StopBeacon { to } => Some(*to),
            _ => None,
        };
        did.iter().filter_map(stopped).collect::<Vec<_>>()
    };
    for proxy in [proxy(1, 0), proxy(2, 1)] {
        let did = bench.burst(proxy, Ping { epoch: 1 });
        assert!(
            did.iter().any(|effect| matches!(effect, kernel::Effect::SetBeacon { to, .. } if *to == proxy))
        );
        assert_eq!(stopped(&did), []);
    }
    assert_eq!(stopped(&bench.burst(proxy(1, 0), Ping { epoch: 4 })), [], "it was not active then");
    let mut did = bench.burst(proxy(1, 0), Recover { epoch: 4 });
    assert_eq!(stopped(&did).len(), 2, "{did:?}");
    did = bench.burst(proxy(1, 0), Ping { epoch: 1 });
    assert!(stopped(&did).is_empty() && !did.iter().any(|it| matches!(it, kernel::Effect::SetBeacon { .. })));
}

// A sequencer that another one has followed asks every group again, 16 times a second, for as long as its host runs.
#[test]
fn a_sequencer_that_was_overtaken_asks_no_more() {
    let overtaken = |epoch, attempt| Overtaken { epoch, attempt };
    let asks = |bench: &mut Table<Sequencer>| !sends(&bench.timer(SequencerTimer::Retry)).is_empty();
    let recovering = || {
        let mut bench = standby();
        bench.hear(proxy(1, 0), Recover { epoch: 4 });
        bench
    };
    let mut bench = recovering();
    for late in [overtaken(3, first()), overtaken(4, Some(7)), overtaken(4, None)] {
        bench.hear(proxy(1, 0), late.clone());
        assert!(asks(&mut bench), "{late:?} is of another attempt");
    }
    let mut taken = recovering();
    taken.hear(proxy(1, 0), overtaken(4, first()));
    assert!(!asks(&mut taken), "the epoch is another's");
    bench.hear(proxy(1, 0), overtaken(5, first()));
    assert!(!asks(&mut bench), "the log has a later epoch");
    bench.hear(proxy(1, 0), Recover { epoch: 7 });
    assert_eq!(bench.role.recovering_epoch(), Some(7), "and takes over when it is called");

    let mut active = standby();
    active.hear(proxy(1, 0), Recover { epoch: 1 });
    active.hear(proxy(1, 0), sealed(0, 1, &[range(0, 2, 1)], 1));
    active.hear(proxy(2, 1), sealed(1, 1, &[], 0));
    active.hear(proxy(1, 0), overtaken(1, None));
    assert!(asks(&mut active), "nobody has followed it");
    active.hear(proxy(1, 0), overtaken(4, None));
    assert!(!asks(&mut active) && active.role.active_epoch().is_none());
}
