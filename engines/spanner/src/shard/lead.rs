//! What the leader of a shard knows beside its log: everything here dies with its leadership, and a successor begins from what the
//! log has.

use super::active::{Active, OpenFate, Stage};
use super::counts::BoundedUse;
use super::frame::Frame;
use super::locks::Locks;
use super::moved::Moved;
use super::owners::Owners;
use super::reading::Reads;
use super::steps::Steps;
use super::{ShardTimer, SpannerShard};
use crate::messages::shard::{Began, LockedUnder, OpenDecision, PrepareTxn, ShardIn};
use crate::parameters::SpannerParameters;
use crate::txn::{PreparedTxn, Priority, ShardId, TrueTime, TxnId};
use kernel::{Cx, HostId, Instant, planted};
use parts::Ballot;
use paxos::Members;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::txn::Timestamp;

/// Transactions that a report names.
const DESCRIBED_MAX: usize = 40;
/// Requests that come before a new leader may serve.
const EARLY_MAX: usize = 1_024;

/// Leading.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) attempt: u64,
    begun: bool,
    begun_at: Instant,
    pub(super) steps: Steps,
    /// All timestamps are above this.
    assigns_above: Timestamp,
    /// Readers may be promised timestamps up to this: it is in the log of this leader.
    pub(super) horizon: Timestamp,
    pub(super) horizon_asked: Timestamp,
    /// Readers were promised that nothing at or below is assigned any more.
    promised: Timestamp,
    assigned: Timestamp,
    /// What was committed before this leader began has surely passed then: nothing is shown before.
    visible_from: Timestamp,
    visible: bool,
    early: VecDeque<ShardIn>,
    pub(super) closed_at: Instant,
    pub(super) close_wanted: bool,
    pub(super) locks: Locks,
    last_since: u64,
    pub(super) txns: BTreeMap<TxnId, Active>,
    /// Locks that transactions wait for, and bytes that they are to write.
    pub(super) wanted: usize,
    pub(super) bytes: usize,
    /// Transactions that wait for locks of another one.
    pub(super) waiters: BTreeMap<TxnId, BTreeSet<Priority>>,
    /// Those whose turn it may be.
    pub(super) woken: BTreeSet<Priority>,
    pub(super) passing: BTreeSet<(Timestamp, TxnId)>,
    pub(super) decisions: BTreeMap<TxnId, OpenFate>,
    pub(super) concluded: BTreeMap<ShardId, Vec<TxnId>>,
    pub(super) settled: BTreeMap<ShardId, Vec<TxnId>>,
    pub(super) owners: Owners,
    pub(super) reads: Reads,
    pub(super) collected: Timestamp,
    /// Something goes once this is collected, as this host's replica last knew.
    pub(super) due: Timestamp,
    /// The cluster's members that its log follows.
    pub(super) members: Members,
    pub(super) moved: Moved,
    /// The host that is to lead, and since when it asks for that.
    pub(super) asked_by: Option<(HostId, Instant)>,
}

impl Lead {
    pub(super) fn new(ballot: Ballot, attempt: u64, now: Instant) -> Self {
        Self {
            ballot,
            attempt,
            begun: false,
            begun_at: now,
            steps: Steps::default(),
            assigns_above: Timestamp(0),
            horizon: Timestamp(0),
            horizon_asked: Timestamp(0),
            promised: Timestamp(0),
            assigned: Timestamp(0),
            visible_from: Timestamp(0),
            visible: false,
            early: VecDeque::new(),
            closed_at: now,
            close_wanted: false,
            locks: Locks::default(),
            last_since: 0,
            txns: BTreeMap::new(),
            wanted: 0,
            bytes: 0,
            waiters: BTreeMap::new(),
            woken: BTreeSet::new(),
            passing: BTreeSet::new(),
            decisions: BTreeMap::new(),
            concluded: BTreeMap::new(),
            settled: BTreeMap::new(),
            owners: Owners::default(),
            reads: Reads::default(),
            collected: Timestamp(0),
            due: Timestamp::MAX,
            members: Members { version: 0, hosts: Vec::new() },
            moved: Moved::default(),
            asked_by: None,
        }
    }

    pub(super) fn next_since(&mut self) -> u64 {
        self.last_since += 1;
        self.last_since
    }

    /// True if it has begun, and may show what was committed before.
    pub(super) fn serves(&self) -> bool {
        self.begun && self.visible
    }

    /// True if nothing has to be looked after: no transaction, no read, nothing on its way to the log or to other shards.
    pub(super) fn is_at_rest(&self) -> bool {
        self.serves()
            && self.txns.is_empty()
            && self.reads.all.is_empty()
            && self.early.is_empty()
            && self.passing.is_empty()
            && self.decisions.is_empty()
            && self.concluded.is_empty()
            && self.settled.is_empty()
            && self.steps.is_at_rest()
            && !self.close_wanted
    }

    pub(super) fn in_progress(&self) -> usize {
        self.txns.len()
    }

    /// What is bounded, what it is now, and what it is at most.
    pub(super) fn usage(&self, shards: u16, parameters: &SpannerParameters) -> [BoundedUse; 6] {
        let SpannerParameters { transactions_max, locks_max, waiting_reads_max, queue_bytes_max, .. } =
            *parameters;
        [
            ("transactions in progress", self.txns.len(), transactions_max),
            // Every shard may ask for the end of what it has prepared.
            ("decisions to send", self.decisions.len(), usize::from(shards) * transactions_max),
            ("locks that are held or waited for", self.locks.count() + self.wanted, locks_max),
            ("bytes that transactions in progress write", self.bytes, queue_bytes_max),
            ("reads that wait", self.reads.all.len(), waiting_reads_max),
            ("requests to a leader that has just begun", self.early.len(), EARLY_MAX),
        ]
        .map(|(what, used, max)| BoundedUse { what, used, max })
    }

    /// The first transactions in progress, and how far they are.
    pub(super) fn describe(&self) -> String {
        let words = self.txns.iter().map(|(txn, active)| {
            let waits = self.waiters.get(txn).map_or(0, BTreeSet::len);
            let holder = self.waiters.iter().find(|(_, waiting)| waiting.contains(&active.priority));
            let holder = holder.map_or(String::new(), |(holder, _)| {
                format!(", waits for {}#{}", holder.gateway, holder.number)
            });
            format!("{}#{} {:?}{holder}, {waits} wait for it", txn.gateway, txn.number, active.stage)
        });
        let first: Vec<String> = words.take(DESCRIBED_MAX).collect();
        let (begun, visible) = (self.begun, self.visible);
        format!("{} ({}, begun {begun}, visible {visible})", first.join("; "), self.steps.describe())
    }

    pub(super) fn epoch(&self) -> u64 {
        self.steps.epoch()
    }

    /// What leaders before it have committed has this timestamp at most.
    pub(super) fn visible_from(&self) -> Timestamp {
        self.visible_from
    }

    /// All timestamps that it assigns are above this.
    pub(super) fn assigns_above(&self) -> Timestamp {
        self.assigns_above.max(self.promised).max(self.assigned)
    }

    /// The log has all that the leaders before have put there: what this one assigns comes after.
    pub(super) fn on_began(&mut self, message: Began, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let is_ours = (message.ballot, message.attempt) == (self.ballot, self.attempt);
        if !is_ours || message.leader != cx.node() || self.begun {
            return;
        }
        let now = cx.now();
        (self.begun, self.begun_at) = (true, now);
        self.steps.begin(message.epoch, message.index);
        self.assigns_above =
            if planted!(assigns_below_what_was_promised) { Timestamp(0) } else { message.assigns_above };
        self.horizon = message.assigns_above;
        self.visible_from = message.last_commit;
        self.due = message.due;
        self.owners.begin(message.owners, now);
        self.members = message.members;
        for OpenDecision { txn, fate, waits_for } in message.decisions {
            let waits_for = waits_for.into_iter().collect();
            self.decisions.insert(txn, OpenFate { fate, waits_for, sent_at: now });
            self.send_decision(&txn, frame, cx);
        }
        for prepared in message.prepared {
            self.take_back(prepared, frame, cx);
        }
        self.look_at_the_time(frame, cx);
    }

    /// Its locks are held again before anybody is served.
    fn take_back(&mut self, prepared: PreparedTxn, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        cx.mark("shard.took_back_prepared_locks");
        let PreparedTxn { txn, priority, t_p, t_ee, coordinator, reads, ranges, writes } = prepared;
        if !planted!(locks_of_prepared_not_taken_back) {
            if !planted!(read_locks_not_taken_back) {
                self.locks.acquire(txn, super::locks::Want::HasRead(&reads, &ranges));
            }
            self.locks.acquire(txn, super::locks::Want::Write(&writes));
        }
        let mut active = Active::new(priority, self.next_since(), cx.now());
        (active.stage, active.taken_back) = (Stage::Prepared { t_p }, true);
        let (locked, start): (Option<LockedUnder>, _) = (None, Timestamp(0));
        let participants = Vec::new();
        active.asked = Some(PrepareTxn {
            txn,
            priority,
            call: None,
            locked,
            start,
            t_ee,
            coordinator,
            participants,
            writes,
        });
        self.bytes += active.bytes();
        self.txns.insert(txn, active);
        self.report_prepared(&txn, frame, cx);
    }

    pub(super) fn on_message(
        &mut self,
        message: ShardIn,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        if !cx.wall().usable {
            // Asked again, until the clock can be relied on or another host leads.
            return cx.mark("shard.clock_cannot_be_relied_on");
        }
        if !self.serves() {
            if self.early.len() < EARLY_MAX {
                self.early.push_back(message);
            }
            return;
        }
        match message {
            ShardIn::ReadLocked(message) => self.on_read_locked(message, frame, cx),
            ShardIn::PrepareTxn(message) => self.on_prepare(message, frame, cx),
            ShardIn::Release(message) => self.on_release(&message.txn, frame, cx),
            ShardIn::ReadAt(message) => self.on_read_at(message, frame, cx),
            ShardIn::OwnerAlive(message) => self.on_owner_alive(&message, frame, cx),
            ShardIn::AskFate(message) => self.on_ask_fate(&message, frame),
            ShardIn::WantClosed(_) => self.close_wanted = true,
            ShardIn::DidPrepare(message) => self.on_did_prepare(&message, frame, cx),
            ShardIn::CannotPrepare(message) => self.abort_undecided(&message.txn, frame, cx),
            ShardIn::Decided(message) => self.on_decided(&message, frame, cx),
            ShardIn::DidConclude(message) => self.on_did_conclude(message),
            ShardIn::MakeWay(message) => self.on_make_way(&message, frame, cx),
            ShardIn::AskToLead(message) => self.on_ask_to_lead(message.role.host(), cx),
            ShardIn::ReadReplica(_)
            | ShardIn::FollowMembers(_)
            | ShardIn::Began(_)
            | ShardIn::Stepped(_)
            | ShardIn::Installed(_) => {
                cx.reject("message that is for no leader");
            }
        }
    }

    /// A timestamp that nobody has assigned here, above everything promised.
    pub(super) fn assign(&mut self, at_least: Timestamp, cx: &Cx<'_, SpannerShard>) -> Timestamp {
        let at = self.assigns_above().next().max(at_least).max(TrueTime(cx.wall()).latest());
        self.assigned = at;
        at
    }

    /// Nothing at or below is assigned from now on.
    pub(super) fn promise(&mut self, at: Timestamp) {
        if !planted!(read_promises_nothing) {
            self.promised = self.promised.max(at);
        }
    }

    /// A timestamp that another shard has assigned is here.
    pub(super) fn note_assigned(&mut self, at: Timestamp) {
        self.assigned = self.assigned.max(at);
    }

    /// Shows what has surely passed, and asks to be called when the next has.
    pub(super) fn look_at_the_time(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let now = TrueTime(cx.wall());
        if self.begun && !self.visible {
            self.visible = now.has_passed(self.visible_from) || planted!(shows_what_has_not_passed);
            if self.visible {
                for message in std::mem::take(&mut self.early) {
                    self.on_message(message, frame, cx);
                }
            } else {
                cx.mark("shard.new_leader_waited_for_the_time_of_a_commit");
                self.wait_for(self.visible_from, cx);
            }
        }
        while let Some(&(at, txn)) = self.passing.first() {
            if !now.has_passed(at) {
                self.wait_for(at, cx);
                break;
            }
            self.passing.pop_first();
            self.leave(&txn, frame, cx);
        }
    }

    fn wait_for(&self, at: Timestamp, cx: &mut Cx<'_, SpannerShard>) {
        if !cx.wall().usable {
            // Nobody knows when; the next tick looks again.
            return;
        }
        let after = TrueTime(cx.wall()).until_passed(at).max(Duration::from_micros(1));
        cx.set_timer(ShardTimer::Passed, after);
    }

    pub(super) fn on_passed(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        self.look_at_the_time(frame, cx);
    }

    pub(super) fn propose_begin(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        self.begun_at = cx.now();
        Steps::propose_begin(self.ballot, self.attempt, frame, cx);
    }

    pub(super) fn on_tick(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let now = cx.now();
        if !self.begun {
            if now.since(self.begun_at) >= frame.parameters.resend_after {
                self.propose_begin(frame, cx);
            }
            return;
        }
        self.steps.propose_again(frame, cx);
        self.look_at_the_time(frame, cx);
        if !self.serves() {
            return;
        }
        self.look_after_participants(frame, cx);
        self.look_after_decisions(frame, cx);
        self.look_after_those_in_the_way(frame, cx);
        self.look_after_owners(frame, cx);
        self.close(frame, cx);
        self.collect(frame, cx);
    }

    pub(super) fn end_burst(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        if self.begun {
            self.report_concluded(frame, cx);
            self.log_settled();
            self.steps.propose(frame, cx);
        }
    }
}
