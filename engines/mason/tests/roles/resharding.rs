//! Handing a service's state over among shards: what comes first, who waits for what, and who is notified.

use super::{
    Table, at, gateway, node, one, operation, proxy, range, restored, sends, sequencer, server, topology,
};
use kernel::{BlobRange, Bytes, Decode, DecodeError, Encode, NodeId, SnapshotStep, StateMachine};
use mason::client::{GatewayNotice, ReadAnswer, ReadAnswers, UsesShardMap};
use mason::proxy::delivery::{Run, Runs, Work};
use mason::proxy::entry::Entry;
use mason::proxy::machine::ProxyMachine;
use mason::proxy::{Active, FromReplica, FromSequencer, NotActive, OtherShardMap, ProxyIn, Reshard};
use mason::sequencer::{Allocate, GroupSealed, HandedOver, Recover, Sequencer};
use mason::shard::{
    Attach, Deliver, Inputs, ReadShard, ShardIn, ShardQuery, ShardServer, ShardTimer, WantInputs,
    WantWatched, Watched,
};
use mason::view::View;
use mason::{
    Group, GroupTime, Gsn, Layout, MasonMessage, MasonParameters, Order, Resharded, Shard, ShardMap,
    ShardOut, Space, Stub, StubOut, Topology, Verdict,
};
use std::sync::Arc;

/// From two shards to three, by layout 4.
fn shard_map() -> ShardMap {
    ShardMap { version: 4, shards: 3, before: 2 }
}

fn layout() -> Layout {
    Layout { version: 4, shard_map: shard_map(), ..Layout::at_bootstrap(2, 2) }
}

/// Two shards are in use, and there is room for three.
fn roomy() -> Arc<Topology> {
    let mut topology = Topology::clone(&topology());
    topology.shards.push((1..=3).map(|host| server(host, 2)).collect());
    Arc::new(topology)
}

fn order() -> Order {
    Order { numbers: vec![at(0, 3), at(1, 2), at(2, 1)].into(), gsn: Gsn(50), time: 7 }
}

fn is_to(slot: u32) -> impl Fn(&(NodeId, MasonMessage)) -> bool {
    move |(to, _)| to.host_slot() == node(1, slot).host_slot()
}

mod the_sequencer {
    use super::*;

    fn parameters() -> MasonParameters {
        MasonParameters { gsn_gap: 10, ..MasonParameters::default() }
    }

    fn sealed(group: u16, handed: Option<ShardMap>) -> GroupSealed {
        let mut view = View::default();
        view.insert_range(&range(0, 1, 2));
        view.insert_range(&range(1, 1, 1));
        let attempt = Some(kernel::Rng::seeded(1).bits());
        GroupSealed {
            group: Group(group),
            epoch: 1,
            view,
            gsn: Gsn(40),
            attempt,
            layout: Some(layout()),
            handed,
        }
    }

    fn ask(shard_map: u64) -> Allocate {
        let (counts, shard_map) = (vec![(Space(2), 1)], Some(shard_map));
        let (proxy_epoch, request, committed) = (1, 1, 0);
        Allocate {
            group: Group(1),
            proxy_epoch,
            epoch: 1,
            request,
            committed,
            counts,
            operations: 1,
            shard_map,
        }
    }

    // An operation that is numbered by the new shard map below the resharding is executed by a shard that has not what it concerns.
    #[test]
    fn nothing_is_given_away_before_the_log_has_the_resharding() {
        let mut bench = Table::new(Sequencer::new(roomy(), parameters()), sequencer(2));
        bench.hear(proxy(1, 0), Recover { epoch: 1 });
        bench.hear(proxy(1, 1), sealed(1, None));
        let did = sends(&bench.hear(proxy(1, 0), sealed(0, None)));
        let reshard = Reshard { epoch: 1, shard_map: shard_map(), order: Order { time: 0, ..order() } };
        let expected: Vec<_> = (1..=3).flat_map(|host| one(proxy(host, 0), reshard.clone())).collect();
        assert_eq!(did, expected, "to the first group, and nobody is notified that it is active");
        let refused = NotActive { asked: 1, epoch: 1, recovering: true };
        assert_eq!(sends(&bench.hear(proxy(3, 1), ask(4))), one(proxy(3, 1), refused));
        let did = sends(&bench.hear(proxy(1, 0), HandedOver { epoch: 1 }));
        assert!(did.iter().any(|it| *it == (proxy(3, 1), Active { epoch: 1 }.into())), "{did:?}");
        let did = sends(&bench.hear(proxy(3, 1), ask(4)));
        let [(_, MasonMessage::Proxy(ProxyIn::Sequencer(FromSequencer::Allocated(allocated))))] = &did[..]
        else {
            panic!("{did:?}")
        };
        assert_eq!(allocated.allocation.rows, [range(2, 2, 1)], "above the resharding");
        assert!(allocated.allocation.gsn > order().gsn);
    }

    // Whose spaces were chosen by the old shard map is notified of the new one; and one that the log has is not handed over again.
    #[test]
    fn requests_of_another_shard_map_are_refused() {
        let mut bench = Table::new(Sequencer::new(roomy(), parameters()), sequencer(2));
        bench.hear(proxy(1, 0), Recover { epoch: 1 });
        bench.hear(proxy(1, 1), sealed(1, None));
        let did = sends(&bench.hear(proxy(1, 0), sealed(0, Some(shard_map()))));
        assert!(did.iter().any(|it| *it == (proxy(3, 1), Active { epoch: 1 }.into())), "{did:?}");
        let refused = OtherShardMap { epoch: 1, shard_map: shard_map() };
        assert_eq!(sends(&bench.hear(proxy(3, 1), ask(0))), one(proxy(3, 1), refused));
        assert_eq!(sends(&bench.hear(proxy(3, 1), ask(4))).len(), 1, "the same request, by the right one");
    }
}

mod the_log {
    use super::*;

    struct Nobody;

    impl Stub for Nobody {
        fn spaces(&self, _body: &[u8], _shard_map: &ShardMap) -> Vec<Space> {
            Vec::new()
        }

        fn apply(&mut self, _: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) -> Verdict {
            Verdict::Void
        }

        fn on_clock(&mut self, _: GroupTime, _: bool, _: &mut StubOut) {}

        fn apply_follow_up(&mut self, _: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) {}

        fn save(&self, _: &mut Vec<u8>) {}

        fn load(&mut self, _: &[u8]) -> Result<(), DecodeError> {
            Ok(())
        }
    }

    fn machine(group: u16) -> ProxyMachine<Nobody> {
        let host = node(1, 0).host();
        let mut machine = ProxyMachine::new(Group(group), host, roomy(), 1 << 10, Nobody);
        apply(&mut machine, &Entry::Seal { epoch: 5, claim: None });
        let layout = Layout { version: 1, shard_map: ShardMap { version: 1, ..shard_map() }, ..layout() };
        apply(&mut machine, &Entry::Layout { layout, below: Vec::new(), gsn: Gsn(0) });
        machine
    }

    fn apply(machine: &mut ProxyMachine<Nobody>, entry: &Entry) -> Vec<(NodeId, Bytes)> {
        machine.apply_entry(&entry.encoded().into());
        let mut notices = Vec::new();
        machine.take_notices(&mut notices);
        notices
    }

    fn hands_over(epoch: u64) -> Entry {
        Entry::Reshard { epoch, shard_map: ShardMap { version: 1, ..shard_map() }, order: order() }
    }

    fn delivered(notices: &[(NodeId, Bytes)]) -> Vec<Work> {
        let of = |(_, bytes): &(NodeId, Bytes)| match ShardIn::decoded(bytes) {
            Ok(ShardIn::Deliver(deliver)) => Some(deliver.runs),
            _ => None,
        };
        let rows = notices.iter().filter_map(of).flatten();
        rows.flat_map(|run| run.iter().map(|row| row.expect("a row").1.work).collect::<Vec<_>>()).collect()
    }

    fn answers(notices: &[(NodeId, Bytes)]) -> usize {
        let did = |(_, bytes): &&(NodeId, Bytes)| {
            matches!(ProxyIn::decoded(bytes), Ok(ProxyIn::Replica(FromReplica::DidReshard(_))))
        };
        notices.iter().filter(did).count()
    }

    // Handed over twice, a state is torn; by a sequencer that was followed by another, at numbers that are somebody else's.
    #[test]
    fn a_resharding_is_assigned_once_and_under_the_sequencer_in_force() {
        let mut first = machine(0);
        assert_eq!(delivered(&apply(&mut first, &hands_over(4))), [], "sealed for another");
        let reported = apply(&mut first, &hands_over(5));
        let shard_map = ShardMap { version: 1, ..shard_map() };
        assert_eq!(
            delivered(&reported),
            vec![Work::Reshard(shard_map); 3],
            "one for each shard that takes part"
        );
        assert!(order().numbers.iter().all(|placed| first.view().contains(placed)));
        assert_eq!(answers(&reported), 1);
        let again = apply(&mut first, &hands_over(5));
        assert_eq!((delivered(&again), answers(&again)), (Vec::new(), 1), "asked again, answered again");
        assert_eq!(delivered(&apply(&mut machine(1), &hands_over(5))), [], "the first group's log decides");
    }

    // A replica that starts from a snapshot must know that it was handed over.
    #[test]
    fn snapshots_have_it() {
        let mut first = machine(0);
        apply(&mut first, &hands_over(5));
        first.begin_snapshot();
        let mut copy = machine(0);
        copy.reset();
        loop {
            let mut chunk = Vec::new();
            let step = first.snapshot_step(1 << 10, &mut chunk);
            copy.install(&chunk).expect("what was just written");
            if step == SnapshotStep::Done {
                break;
            }
        }
        assert_eq!(copy.digest(), first.digest());
        assert_eq!(delivered(&apply(&mut copy, &hands_over(5))), []);
    }
}

/// Letters; each is in the space that is its slot in the alphabet modulo the shards. Readers watch everything.
#[derive(Debug)]
struct Letters {
    space: Space,
    has: Vec<u8>,
    readers: Vec<NodeId>,
    writing: Vec<u8>,
}

impl Letters {
    fn of(space: u16, has: &[u8]) -> Self {
        Self { space: Space(space), has: has.to_vec(), readers: Vec::new(), writing: Vec::new() }
    }

    fn home(letter: u8, shard_map: &ShardMap) -> Space {
        Space(u16::from(letter - b'a') % shard_map.shards)
    }
}

impl Shard for Letters {
    fn inputs(&self, _body: &[u8], _order: &Order, _out: &mut Vec<u8>) {}

    fn execute(&mut self, body: &Bytes, _: &Order, _: &[(Space, Bytes)], out: &mut ShardOut) {
        self.has.extend_from_slice(body);
        self.readers.iter().for_each(|&reader| out.notify(reader, body.clone()));
    }

    fn read(&mut self, reader: NodeId, _query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        self.readers.push(reader);
        out.extend_from_slice(&self.has);
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {
        self.writing = self.has.clone();
    }

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        chunk.append(&mut self.writing);
        SnapshotStep::Done
    }

    fn reset(&mut self) {
        self.has.clear();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.has.extend_from_slice(chunk);
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&self.has)
    }

    fn as_resharded(&self) -> Option<&dyn Resharded> {
        Some(self)
    }

    fn as_resharded_mut(&mut self) -> Option<&mut dyn Resharded> {
        Some(self)
    }
}

impl Resharded for Letters {
    fn use_shard_map(&mut self, _shard_map: &ShardMap) {}

    fn leaving(&self, shard_map: &ShardMap, _page_bytes: usize) -> Vec<(Space, Vec<Bytes>)> {
        let to = |space| {
            let goes = self.has.iter().filter(|&&letter| Self::home(letter, shard_map) == space);
            (space, goes.map(|&letter| Bytes::from(vec![letter])).collect())
        };
        shard_map.spaces().filter(|&space| space != self.space).map(to).collect()
    }

    fn watches_leaving(&mut self, shard_map: &ShardMap, _through: Gsn) -> Vec<(Space, Bytes)> {
        let readers = std::mem::take(&mut self.readers);
        let others = shard_map.spaces().filter(|&space| space != self.space && !readers.is_empty());
        others.map(|space| (space, readers.encoded().into())).collect()
    }

    fn reshard(&mut self, shard_map: &ShardMap, _order: &Order, pages: &[(Space, Vec<Bytes>)]) {
        self.has.retain(|&letter| Self::home(letter, shard_map) == self.space);
        pages.iter().flat_map(|(_, pages)| pages).for_each(|page| self.has.extend_from_slice(page));
    }

    fn take_watches(&mut self, watches: &Bytes, out: &mut ShardOut) {
        let readers = Vec::<NodeId>::decoded(watches).expect("another shard's server wrote it");
        readers.iter().for_each(|&reader| out.notify(reader, Bytes::from_static(b"taken")));
        self.readers.extend(readers);
    }
}

mod a_shard {
    use super::*;

    type Server = ShardServer<Letters>;

    fn bench(space: u16, has: &[u8]) -> Table<Server> {
        let role =
            ShardServer::new(Space(space), roomy(), MasonParameters::default(), Letters::of(space, has));
        Table::new(role, server(1, u32::from(space)))
    }

    fn replica() -> NodeId {
        node(1, 0x99)
    }

    fn runs(space: u16) -> Vec<Run> {
        let (order, mut runs) = (order(), Runs::default());
        let own =
            order.numbers.iter().find(|placed| placed.space == Space(space)).expect("it takes part").clone();
        for number in 1..own.number.0 {
            runs.at(&at(space, number), 7).push_no_op(Gsn(number));
        }
        runs.at(&own, 7).push_reshard(&order.numbers, order.gsn, &shard_map());
        let next = at(space, own.number.0 + 1);
        let later = operation(own.number.0, [b"m", b"n", b"o"][usize::from(space)]);
        runs.at(&next, 7).push(std::slice::from_ref(&next), order.gsn.plus(5), &later);
        runs.finish()
    }

    fn deliver(space: u16) -> Deliver {
        Deliver { group: Group(0), runs: runs(space), cut: None, more: false }
    }

    fn said(to: u64, from: u16, inputs: &'static [u8], part: Option<(u32, u32)>) -> Inputs {
        let more = part.is_some_and(|(index, of)| index + 1 < of);
        Inputs {
            number: mason::Number(to),
            space: Space(from),
            inputs: Bytes::from_static(inputs),
            more,
            part,
        }
    }

    fn watched(from: u16, watches: Bytes) -> Watched {
        Watched { version: 4, space: Space(from), watches }
    }

    fn read(tag: u64, shard_map: Option<u64>) -> ReadShard {
        ReadShard {
            at_least: Gsn(0),
            reads: vec![ShardQuery { tag, body: Bytes::new() }],
            shard_map,
            limits: None,
        }
    }

    // The letters a, b and c live in 0 and 1; by three shards b stays in 1, c goes to 2.
    #[test]
    fn what_leaves_goes_and_what_comes_is_asked_for_part_by_part() {
        let mut third = bench(2, b"");
        let did = sends(&third.burst(replica(), deliver(2)));
        assert_eq!(
            did,
            [one(server(1, 0), said(3, 2, b"", None)), one(server(1, 1), said(2, 2, b"", None))].concat()
        );
        third.burst(server(1, 1), said(1, 1, b"", None));
        let did = sends(&third.burst(server(1, 0), said(1, 0, b"c", Some((0, 2)))));
        let want = WantInputs { number: mason::Number(3), wanted_at: mason::Number(1), part: Some(1) };
        assert_eq!(did, one(server(1, 0), want), "the next part");
        let did = sends(&third.burst(server(1, 0), said(1, 0, b"f", Some((1, 2)))));
        let nothing = watched(2, Bytes::new());
        assert_eq!(did, [one(server(1, 0), nothing.clone()), one(server(1, 1), nothing)].concat());
        assert_eq!(third.role.next(), mason::Number(1), "what is watched there is missing");
        third.burst(server(1, 0), watched(0, Bytes::new()));
        third.burst(server(1, 1), watched(1, Bytes::new()));
        assert_eq!((third.role.next(), &third.role.service().has[..]), (mason::Number(3), &b"cfo"[..]));
        assert_eq!(third.role.shard_map(), &shard_map());
    }

    // Watches that are registered between giving and handing over, or reported by nobody, are lost.
    #[test]
    fn watches_cross_before_anything_else_is_executed() {
        let mut first = bench(0, b"ac");
        first.burst(gateway(1), Attach {});
        assert_eq!(sends(&first.burst(gateway(1), read(1, Some(0)))).len(), 1);
        let did = sends(&first.burst(replica(), deliver(0)));
        let parts: Vec<_> = did.into_iter().filter(is_to(0x202)).collect();
        assert_eq!(parts, one(server(1, 2), said(1, 0, b"c", None)));
        first.burst(server(1, 1), said(3, 1, b"", None));
        let did = sends(&first.burst(server(1, 2), said(3, 2, b"", None)));
        let given = watched(0, vec![gateway(1)].encoded().into());
        assert_eq!(
            did.into_iter().filter(is_to(0x201)).collect::<Vec<_>>(),
            one(server(1, 1), given.clone())
        );
        assert_eq!(sends(&first.burst(gateway(1), read(2, Some(0)))), [], "it could leave another");
        assert_eq!(first.role.next(), mason::Number(3));
        first.burst(server(1, 1), watched(1, vec![gateway(1)].encoded().into()));
        let did = sends(&first.burst(server(1, 2), watched(2, Bytes::new())));
        let notice = |gsn, body: &'static [u8]| GatewayNotice {
            space: Space(0),
            gsn: Gsn(gsn),
            body: Bytes::from_static(body),
        };
        let refused = ReadAnswers {
            space: Space(0),
            executed: Gsn(55),
            answers: vec![ReadAnswer { tag: 2, body: Bytes::new() }],
            refused: Some(shard_map()),
            withheld: None,
        };
        let reported: Vec<_> = did.into_iter().filter(is_to(super::super::GATEWAY)).collect();
        assert_eq!(
            reported[0],
            (gateway(1), UsesShardMap { space: Space(0), shard_map: shard_map() }.into()),
            "first of all"
        );
        let expected = [one(gateway(1), notice(50, b"taken")), one(gateway(1), notice(55, b"m"))].concat();
        assert_eq!(reported[1..3], expected);
        assert!(
            reported.contains(&(gateway(1), refused.into())),
            "chosen by the shard map before: {reported:?}"
        );
        assert_eq!(&first.role.service().has[..], b"am");
    }

    // A read that was sent by the new shard map to a shard that is not there yet would find nothing.
    #[test]
    fn reads_of_a_later_shard_map_wait_for_it() {
        let mut third = bench(2, b"");
        assert_eq!(sends(&third.burst(gateway(1), read(1, Some(4)))), []);
        third.burst(replica(), deliver(2));
        for other in 0..2 {
            third.burst(server(1, u32::from(other)), said(1, other, b"", None));
        }
        third.burst(server(1, 0), watched(0, Bytes::new()));
        let did = sends(&third.burst(server(1, 1), watched(1, Bytes::new())));
        let answer = ReadAnswers {
            space: Space(2),
            executed: Gsn(55),
            answers: vec![ReadAnswer { tag: 1, body: Bytes::from_static(b"o") }],
            refused: None,
            withheld: None,
        };
        assert!(did.contains(&(gateway(1), answer.into())), "{did:?}");
    }

    // A server that gave in an earlier incarnation is not asked for ever: who watched there is gone.
    #[test]
    fn who_is_waited_for_is_asked() {
        let mut third = bench(2, b"");
        third.burst(replica(), deliver(2));
        for other in 0..2 {
            third.burst(server(1, u32::from(other)), said(1, other, b"", None));
        }
        let mut tick = || {
            third.pass(MasonParameters::default().ask_after);
            sends(&third.timer(ShardTimer::Tick))
        };
        tick();
        let want = WantWatched { version: 4, space: Space(2) };
        assert_eq!(tick(), [one(server(1, 0), want.clone()), one(server(1, 1), want)].concat());
        let mut beyond = bench(0, b"a");
        let want = || WantWatched { version: 4, space: Space(2) };
        assert_eq!(sends(&beyond.burst(server(1, 2), want())), [], "it has still to give");
        beyond.burst(replica(), deliver(0));
        beyond.burst(server(1, 1), said(3, 1, b"", None));
        beyond.burst(server(1, 2), said(3, 2, b"", None));
        assert_eq!(sends(&beyond.burst(server(1, 2), want())), one(server(1, 2), watched(0, Bytes::new())));
    }

    // What was handed over must survive the giver's restart, and a peer that takes its snapshot must be where it is.
    #[test]
    fn snapshots_say_how_the_state_is_spread() {
        let mut first = bench(0, b"ac");
        first.burst(replica(), deliver(0));
        for other in 1..3 {
            first.burst(server(1, u32::from(other)), said(3, other, b"", None));
        }
        for other in 1..3 {
            first.burst(server(1, u32::from(other)), watched(other, Bytes::new()));
        }
        assert_eq!(first.role.shard_map(), &shard_map());
        for _ in 0..10 {
            first.pass(std::time::Duration::from_millis(5));
            first.end();
        }
        let mut again = bench(0, b"");
        again.role = restored(again.role, &first.journal());
        assert_eq!((again.role.shard_map(), &again.role.service().has[..]), (&shard_map(), &b"am"[..]));
        let want = WantInputs { number: mason::Number(3), wanted_at: mason::Number(1), part: None };
        let retained = sends(&again.hear(server(2, 2), want));
        assert_eq!(retained, one(server(2, 2), said(1, 0, b"c", None)), "retained for who lacks it");
    }
}
