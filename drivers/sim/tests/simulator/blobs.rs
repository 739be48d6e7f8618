//! A node that records which of its blobs are stored, under every physical fault.

use kernel::{
    BlobId, BlobNotice, BlobRange, Bytes, Cx, Family, HostId, HostSlot, NodeId, Position, Rng, Role,
};
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Scenario, Tuning,
    run_seed,
};
use std::collections::BTreeSet;
use std::time::Duration;

kernel::messages! {
    pub enum KeeperIn in Message::Keeper {
        1 => Nothing {},
    }
}

kernel::timers! {
    pub enum Tick { Store }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Keeping {
        1 => Keeper(KeeperIn, Keeper, "keeper"),
    }
}

pub struct Keeping;

impl Family for Keeping {
    type Message = Message;
    type Request = ();
    type Response = ();
}

const KEEPER: NodeId = NodeId::new(HostId(1), HostSlot(4));
const KNOWN_MAX: usize = 6;

/// Every 10 ms stores a blob and reads one; the oldest goes when there are too many.
#[derive(Default)]
pub struct Keeper {
    incarnations: u32,
    /// Stored, by its records: an odd one says that the blob of half its number is not needed any more.
    known: BTreeSet<u64>,
    next: u64,
}

fn id(first: u64) -> BlobId {
    BlobId { series: 1, first }
}

fn contents(first: u64) -> Bytes {
    format!("blob {first}").repeat(3).into()
}

impl Role for Keeper {
    type Family = Keeping;
    type In = KeeperIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, record: u64) {
        if record.is_multiple_of(2) {
            self.known.insert(record / 2);
        } else {
            self.known.remove(&(record / 2));
        }
        self.next = self.next.max(record / 2 + 1);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.keep_blobs(self.known.iter().map(|&first| id(first)).collect());
        if self.incarnations > 0 {
            for &first in &self.known {
                cx.mark("keeper.read_after_a_crash");
                cx.load_blob(BlobRange { id: id(first), offset: 2, bytes: 5 });
            }
        }
        cx.set_timer(Tick::Store, Duration::from_millis(10));
    }

    fn on_message(&mut self, _from: NodeId, KeeperIn::Nothing(Nothing {}): KeeperIn, _cx: &mut Cx<'_, Self>) {
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Store, Duration::from_millis(10));
        cx.store_blob(id(self.next), contents(self.next));
        self.next += 1;
        if self.known.len() > KNOWN_MAX
            && let Some(first) = self.known.pop_first()
        {
            cx.append(&(2 * first + 1));
            cx.drop_blob(id(first));
        }
    }

    fn on_blob(&mut self, notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        match notice {
            BlobNotice::Stored { id } => {
                cx.append(&(2 * id.first));
                self.known.insert(id.first);
            }
            BlobNotice::Loaded { range, bytes } => {
                assert_eq!(bytes, contents(range.id.first).slice(2..7), "READ: {range:?}");
                cx.mark("keeper.read");
            }
            BlobNotice::Lost { id } => assert!(!self.known.contains(&id.first), "LOST: {id}"),
            BlobNotice::Archived { id } | BlobNotice::Unarchived { id } => {
                panic!("ARCH: {id} was never to be archived")
            }
        }
    }
}

struct KeepScenario;

impl Scenario for KeepScenario {
    type Node = Member;

    const FAMILY: &'static str = "keep";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(KEEPER.host())]
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL
    }

    fn tuning(&self) -> Tuning {
        Tuning { safety: (Duration::from_secs(5), Duration::from_secs(10)), ..Tuning::default() }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(
            KEEPER.host_slot(),
            Member::Keeper(Keeper { incarnations: incarnation.number, ..Keeper::default() }),
        )]
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: kernel::RequestId, (): (), _: &mut Control<'_, Member>) {}

    fn after_burst(&mut self, _host: HostId, cluster: &Cluster<'_, Member>) {
        let Some(Member::Keeper(keeper)) = cluster.node(KEEPER) else { return };
        for &first in &keeper.known {
            assert!(cluster.has_blob(KEEPER, id(first)), "LOST: {first} is not on the disk");
        }
    }

    fn core(&mut self, _cluster: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Hosts(vec![KEEPER.host()])
    }

    fn converged(&self, _: &[HostId], cluster: &Cluster<'_, Member>) -> Result<(), String> {
        let more = cluster.node(KEEPER).is_some_and(|Member::Keeper(keeper)| keeper.known.len() >= KNOWN_MAX);
        if more { Ok(()) } else { Err("a healed disk stores what it is given".to_owned()) }
    }
}

// A blob that was reported stored and is gone after a crash, or a full disk that swallows what it was given.
#[test]
fn what_was_stored_is_there_in_the_next_incarnation() {
    let (mut marks, mut struck) = (0, sim::Injections::default());
    for seed in 0..150 {
        let outcome = run_seed(&|_: &mut Rng| KeepScenario, seed, &Options::default());
        assert_eq!(outcome.violation, None, "seed {seed}");
        marks += outcome.marks.get("keeper.read_after_a_crash").copied().unwrap_or(0);
        struck.add(&outcome.injections);
    }
    assert!(marks > 500, "{marks}");
    for class in [
        Class::Crash,
        Class::LostWrites,
        Class::TornWrite,
        Class::DiskFull,
        Class::SlowDisk,
        Class::WriteError,
    ] {
        assert!(struck.of(class) > 0, "{class} never struck");
    }
}
