//! Groups that are added and removed: what their logs and a standby make of it.

use super::{Table, at, gateway, operation, proxy, range, sends, sequencer, topology};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, StateMachine};
use mason::client::GatewayIn;
use mason::proxy::entry::{AssignmentBatch, Claim, Entry, Item, StubPage};
use mason::proxy::machine::ProxyMachine;
use mason::proxy::{FromAnyReplica, FromReplica, FromSequencer, GetMaxAndSeal, GroupStatus, ProxyIn};
use mason::sequencer::{GroupSealed, Recover, Sequencer};
use mason::view::View;
use mason::{
    Group, GroupTime, Gsn, Layout, MasonMessage, MasonParameters, Number, Order, ShardMap, Space, Stub,
    StubOut, Verdict,
};
use parts::Ballot;

/// Keeps one byte for every group that is at home here, and remembers what was executed.
struct Bag {
    group: Group,
    layout: Option<Layout>,
    has: Vec<u8>,
    executed: Vec<u8>,
}

impl Stub for Bag {
    fn spaces(&self, _body: &[u8], _shard_map: &ShardMap) -> Vec<Space> {
        Vec::new()
    }

    fn apply(&mut self, body: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) -> Verdict {
        self.executed.extend_from_slice(body);
        Verdict::Execute
    }

    fn on_clock(&mut self, _: GroupTime, _: bool, _: &mut StubOut) {}

    fn apply_follow_up(&mut self, _: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) {}

    fn arrange(&mut self, layout: &Layout, _awaited: &[Group]) {
        self.layout = Some(layout.clone());
    }

    fn depart(&mut self, _page_bytes: usize) -> Vec<(Group, Bytes)> {
        let layout = self.layout.clone().expect("it was sent the layout first");
        let home = |byte: u8| layout.home(Group(u16::from(byte)));
        let goes: Vec<u8> = self.has.extract_if(.., |byte| home(*byte) != self.group).collect();
        goes.into_iter().map(|byte| (home(byte), vec![byte].into())).collect()
    }

    fn arrive(&mut self, page: &Bytes, _: GroupTime) -> Result<(), DecodeError> {
        self.has.extend_from_slice(page);
        Ok(())
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.has);
    }

    fn load(&mut self, saved: &[u8]) -> Result<(), DecodeError> {
        self.has = saved.to_vec();
        Ok(())
    }
}

type Machine = ProxyMachine<Bag>;

fn machine(group: u16) -> Machine {
    let group = Group(group);
    let bag = Bag { group, layout: None, has: vec![group.0 as u8], executed: Vec::new() };
    ProxyMachine::new(group, proxy(1, 0).host(), topology(), 64, bag)
}

fn apply(machine: &mut Machine, entry: &Entry) -> Vec<(NodeId, Bytes)> {
    machine.apply_entry(&entry.encoded().into());
    let mut notices = Vec::new();
    machine.take_notices(&mut notices);
    notices
}

fn layout(version: u64, serving: u16, spanning: u16) -> Layout {
    Layout { version, serving, spanning, after: 5, shard_map: ShardMap::at_bootstrap(2) }
}

fn lays_out(layout: Layout) -> Entry {
    Entry::Layout { layout, below: Vec::new(), gsn: Gsn(0) }
}

/// Led, and sealed for sequencer 5.
fn begun(group: u16) -> Machine {
    let mut machine = machine(group);
    let leader = proxy(2, u32::from(group));
    apply(&mut machine, &Entry::Begin { ballot: Ballot { round: 1, leader }, leader });
    apply(&mut machine, &Entry::Seal { epoch: 5, claim: None });
    machine
}

/// The `index`th batch: one operation of number `index` in space 0, or one that concerns the group alone.
fn batch(index: u64, numbered: bool) -> Entry {
    let rows = if numbered { vec![range(0, index, 1)] } else { Vec::new() };
    let spaces = if numbered { [Space(0)].as_slice() } else { &[] };
    let item = Item { spaces: spaces.into(), follow_up: None, operation: operation(index, b"x") };
    let (request, gsn) = (if numbered { index } else { 0 }, Gsn(10 * index));
    let batch = AssignmentBatch {
        epoch: 1,
        index,
        sequencer: 5,
        request,
        rows,
        gsn,
        cut: None,
        time: 0,
        items: vec![item],
    };
    Entry::Batch(batch)
}

fn status(notices: &[(NodeId, Bytes)], to: NodeId) -> Option<GroupStatus> {
    notices.iter().filter(|(node, _)| *node == to).find_map(|(_, bytes)| match ProxyIn::decoded(bytes) {
        Ok(ProxyIn::AnyReplica(FromAnyReplica::GroupStatus(status))) => Some(status),
        _ => None,
    })
}

fn pages(notices: &[(NodeId, Bytes)]) -> Vec<StubPage> {
    let page = |(_, bytes): &(NodeId, Bytes)| match ProxyIn::decoded(bytes) {
        Ok(ProxyIn::AnyReplica(FromAnyReplica::Leaving(leaving))) => Some(leaving.page),
        _ => None,
    };
    notices.iter().filter_map(page).collect()
}

fn turned_away(notices: &[(NodeId, Bytes)]) -> Vec<u64> {
    let tag = |(node, bytes): &(NodeId, Bytes)| match GatewayIn::decoded(bytes) {
        Ok(GatewayIn::Elsewhere(message)) if *node == gateway(1) => Some(message.tag),
        _ => None,
    };
    notices.iter().filter_map(tag).collect()
}

// A layout that skips one, or has no groups, would leave stubs waiting for what nobody hands over.
#[test]
fn a_layout_follows_the_one_before() {
    let mut machine = begun(0);
    for wrong in [layout(2, 1, 2), layout(1, 0, 2), layout(1, 2, 1), layout(1, 3, 3), layout(0, 1, 1)] {
        assert_eq!(apply(&mut machine, &lays_out(wrong)), []);
        assert_eq!(*machine.layout(), Layout::at_bootstrap(2, 2));
    }
    let reported = apply(&mut machine, &lays_out(layout(1, 1, 2)));
    assert_eq!(*machine.layout(), layout(1, 1, 2));
    let both = [proxy(1, 0), proxy(1, 1)].map(|proxy| status(&reported, proxy));
    assert!(both.iter().flatten().all(|it| it.layout == layout(1, 1, 2) && it.sealed == 0), "{both:?}");
    assert_eq!(both.iter().flatten().count(), 2, "proxies of every group are notified");
}

// What is executed by a group that does not serve could be executed again by the one that does.
#[test]
fn a_group_that_does_not_serve_turns_origins_away_and_retires() {
    let mut machine = begun(1);
    apply(&mut machine, &batch(1, true));
    apply(&mut machine, &lays_out(layout(1, 1, 2)));
    let away = apply(&mut machine, &batch(2, true));
    assert_eq!(turned_away(&away), [2]);
    assert_eq!(machine.stub().executed, b"x", "the first only");
    assert_eq!(machine.view().end(Space(0)), Number(3), "a no-op has the number");
    apply(&mut machine, &Entry::Retire { version: 1 });
    apply(&mut machine, &batch(3, true));
    assert_eq!(machine.view().end(Space(0)), Number(4), "what it has is not handed over: it has not retired");
    apply(&mut machine, &Entry::Arrived { at: Group(0), version: 1 });
    let reported = apply(&mut machine, &Entry::Retire { version: 1 });
    let stands = status(&reported, proxy(1, 0)).expect("it has changed");
    assert!(stands.retired && stands.spent.is_none(), "shards may still ask for what it has assigned");
    assert_eq!(apply(&mut machine, &batch(4, true)), [], "void");
    assert_eq!(machine.view().end(Space(0)), Number(4));
    assert_eq!(turned_away(&apply(&mut machine, &batch(4, false))), [4]);
    let reported = apply(&mut machine, &Entry::Durable { low_watermarks: vec![at(0, 4)], version: None });
    let spent = status(&reported, proxy(1, 0)).and_then(|stands| stands.spent).expect("nothing is left");
    assert_eq!((spent.below, spent.gsn), (vec![at(0, 4), at(1, 1)], Gsn(30)));
    // Where it is taken out, what it had assigned is not given away again.
    let mut first = begun(0);
    apply(&mut first, &lays_out(layout(1, 1, 2)));
    let out = Entry::Layout { layout: layout(2, 1, 1), below: vec![at(0, 4)], gsn: Gsn(30) };
    apply(&mut first, &out);
    assert_eq!(first.view().end(Space(0)), Number(4));
    // And it may come back.
    apply(&mut machine, &lays_out(layout(2, 1, 1)));
    let reported = apply(&mut machine, &lays_out(layout(3, 2, 2)));
    assert!(status(&reported, proxy(1, 0)).is_some_and(|stands| !stands.retired));
}

// A sequencer that was followed while the group was not in use is still there, and has given away numbers that others have by now.
#[test]
fn a_group_that_comes_back_waits_for_a_sequencer_that_knows_of_it() {
    let mut machine = begun(1);
    apply(&mut machine, &batch(1, true));
    apply(&mut machine, &lays_out(layout(1, 1, 2)));
    apply(&mut machine, &Entry::Arrived { at: Group(0), version: 1 });
    apply(&mut machine, &Entry::Retire { version: 1 });
    apply(&mut machine, &lays_out(layout(2, 1, 1)));
    let back = Layout { after: 7, ..layout(3, 2, 2) };
    let reported = apply(&mut machine, &lays_out(back));
    let did_seal = |notices: &[(NodeId, Bytes)]| {
        notices.iter().find_map(|(_, bytes)| match ProxyIn::decoded(bytes) {
            Ok(ProxyIn::Replica(FromReplica::DidSeal(did))) => Some((did.sequencer, did.claim)),
            _ => None,
        })
    };
    assert_eq!(did_seal(&reported), Some((7, None)), "the leader must not ask the old one any more");
    let by = |sequencer, index| match batch(index, true) {
        Entry::Batch(batch) => Entry::Batch(AssignmentBatch { sequencer, ..batch }),
        other => other,
    };
    let claim = |host| Some(Claim { sequencer: sequencer(host), attempt: 1 });
    assert_eq!(apply(&mut machine, &by(5, 2)), []);
    // One that was called before the group was added may have counted without it.
    let reported = apply(&mut machine, &Entry::Seal { epoch: 7, claim: claim(1) });
    assert_eq!(did_seal(&reported), Some((7, None)));
    assert_eq!(apply(&mut machine, &by(7, 2)), []);
    assert_eq!(apply(&mut machine, &Entry::Fill { epoch: 7, holes: vec![range(0, 2, 1)] }), []);
    assert_eq!(machine.view().end(Space(0)), Number(2));
    let reported = apply(&mut machine, &Entry::Seal { epoch: 8, claim: claim(2) });
    assert_eq!(did_seal(&reported), Some((8, claim(2))));
    apply(&mut machine, &by(8, 2));
    assert_eq!(machine.view().end(Space(0)), Number(3));
    // What decides is what the first group's log had.
    let mut first = begun(0);
    apply(&mut first, &Entry::Seal { epoch: 6, claim: None });
    apply(&mut first, &lays_out(layout(1, 1, 2)));
    assert_eq!(first.layout().after, 6);
}

// A page that is lost, taken twice or out of order is a session lost or doubled.
#[test]
fn what_a_stub_has_is_handed_over_once() {
    let (mut from, mut to) = (begun(1), begun(0));
    let leaving = pages(&apply(&mut from, &lays_out(layout(1, 1, 2))));
    let shape: Vec<_> =
        leaving.iter().map(|page| (page.to.0, page.index, page.last, &page.bytes[..])).collect();
    assert_eq!(shape, [(0, 0, false, &[1u8][..]), (0, 1, true, &[][..])]);
    assert_eq!(from.stub().has, []);
    apply(&mut to, &Entry::Page(leaving[0].clone()));
    assert_eq!(to.stub().has, [0], "it does not know of the layout yet");
    let reported = apply(&mut to, &lays_out(layout(1, 1, 2)));
    assert_eq!(status(&reported, proxy(1, 1)).map(|stands| stands.awaited.len()), Some(1));
    apply(&mut to, &Entry::Page(leaving[1].clone()));
    assert_eq!(to.stub().has, [0], "not the first");
    for page in [&leaving[0], &leaving[0], &leaving[1], &leaving[0], &leaving[1]] {
        apply(&mut to, &Entry::Page(page.clone()));
    }
    assert_eq!(to.stub().has, [0, 1]);
    // A replica that reads a snapshot knows what is still to come, and notifies this host's proxies.
    let mut chunks = Vec::new();
    from.begin_snapshot();
    loop {
        let mut chunk = Vec::new();
        let step = from.snapshot_step(64, &mut chunk);
        chunks.push(chunk);
        if step == kernel::SnapshotStep::Done {
            break;
        }
    }
    let mut again = machine(1);
    chunks.iter().for_each(|chunk| again.install(chunk).expect("what was just written"));
    let mut notices = Vec::new();
    again.take_notices(&mut notices);
    assert_eq!(pages(&notices), leaving);
    assert_eq!(again.stub().layout, Some(layout(1, 1, 2)));
}

// A standby that does not know of a group gives away again what that has assigned.
#[test]
fn a_standby_seals_the_groups_that_the_first_ones_log_has() {
    let mut few = mason::Topology::clone(&topology());
    few.layout = layout(3, 1, 1);
    let mut bench = Table::new(Sequencer::new(few.into(), MasonParameters::default()), sequencer(2));
    let asked = sends(&bench.hear(proxy(1, 0), Recover { epoch: 1 }));
    assert!(asked.iter().all(|(to, _)| to.host_slot() == proxy(1, 0).host_slot()), "{asked:?}");
    let Some((
        _,
        MasonMessage::Proxy(ProxyIn::Sequencer(FromSequencer::GetMaxAndSeal(GetMaxAndSeal {
            attempt, ..
        }))),
    )) = asked.into_iter().next()
    else {
        panic!("a recovery begins with a seal");
    };
    let sealed = |group, layout| {
        let mut view = View::default();
        view.insert_range(&range(0, 1, 4 * (1 + u64::from(group))));
        GroupSealed { group: Group(group), epoch: 1, view, gsn: Gsn(9), attempt, layout, handed: None }
    };
    bench.hear(proxy(1, 0), sealed(0, Some(layout(4, 2, 2))));
    assert_eq!(bench.role.active_epoch(), None, "another group is in use");
    let retry = bench.timer(mason::sequencer::SequencerTimer::Retry);
    assert!(
        sends(&retry).iter().all(|(to, _)| to.host_slot() == proxy(1, 1).host_slot())
            && !sends(&retry).is_empty()
    );
    bench.hear(proxy(1, 1), sealed(1, Some(layout(3, 1, 1))));
    assert_eq!(bench.role.active_epoch(), Some(1));
}
