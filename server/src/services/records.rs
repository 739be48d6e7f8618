//! Whose a slot is, and what its records say: for `ordinate inspect`.
//!
//! A service says which role is at each of its slots, and every engine how its roles' records read.

use crate::cluster::RoleName;
use crate::services::Slots;
use kernel::{Bytes, Decode as _, DecodeError, HostSlot};
use mason::{LogRole, Number, Part, Post};
use parts::{Incarnation, Slot, SnapshotRecord};
use paxos::Value;
use paxos::multipaxos::acceptor::AcceptorRecord;
use paxos::multipaxos::leader::LeaderRecord;

/// Puts a record into words.
pub type Notify = fn(&Bytes) -> Result<DescribedRecord, DecodeError>;

/// How many nodes a segment of a partition has.
pub type CountNodes = fn(&Bytes) -> Result<u64, DecodeError>;

/// The role at a slot.
#[derive(Clone, Debug)]
pub struct RecordOwner {
    /// Service and role, as in `log shard 3`.
    pub name: String,
    notify: Notify,
    nodes_in: Option<CountNodes>,
}

/// A record in words, and what it does to the snapshot that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedRecord {
    /// One line.
    pub line: String,
    /// Part of a snapshot.
    pub step: SnapshotEffect,
}

/// What a record does to a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotEffect {
    /// Nothing.
    Apart,
    /// Begins one of all below this slot or number.
    Begin(u64),
    /// Adds so many bytes.
    Chunk(u64),
    /// Completes it.
    End,
}

impl RecordOwner {
    /// A role whose records read so.
    pub fn new(name: impl Into<String>, notify: Notify) -> Self {
        Self { name: name.into(), notify, nodes_in: None }
    }

    /// The same, whose segments are of nodes, and not of a log's entries.
    #[must_use]
    pub fn with_nodes(self, nodes_in: CountNodes) -> Self {
        Self { nodes_in: Some(nodes_in), ..self }
    }

    /// What counts the nodes of its segments; none: they have a log's entries, if there are any.
    pub fn nodes_in(&self) -> Option<CountNodes> {
        self.nodes_in
    }

    /// Of a slot that no role ever had.
    pub fn unknown() -> Self {
        Self::new("unknown", none)
    }

    /// Puts a record of this role into words.
    pub fn notify(&self, record: &[u8]) -> Result<DescribedRecord, DecodeError> {
        (self.notify)(&Bytes::copy_from_slice(record))
    }
}

/// The role of the cluster's own log at a slot; `service` is the one that it carries.
pub fn paxos_owner(service: &str, host_slot: HostSlot) -> Option<RecordOwner> {
    let role = RoleName::ALL.into_iter().find(|role| *role as u32 == host_slot.0)?;
    let notify: Notify = match role {
        RoleName::Leader => leader,
        RoleName::Acceptor => acceptor,
        RoleName::Replica => replica,
        RoleName::Batcher | RoleName::ProxyLeader | RoleName::Unbatcher => none,
    };
    Some(RecordOwner::new(format!("{service} {}", role.name().trim_start_matches("paxos.")), notify))
}

/// The role of a service over Mason at one of its slots, which are numbered from `first`.
pub fn mason_owner(service: &str, slots: Slots, first: u32, host_slot: HostSlot) -> Option<RecordOwner> {
    let post = Post::at(host_slot.0.checked_sub(first)?).filter(|_| slots.contains(host_slot))?;
    let (role, notify): (String, Notify) = match post {
        Post::Sequencer => ("sequencer".to_owned(), none),
        Post::Gateway => ("gateway".to_owned(), gateway),
        Post::Shard(space) => (format!("shard {}", space.0), shard),
        Post::Part(group, Part::Proxy) => (format!("group {} proxy", group.0), none),
        Post::Part(group, Part::Log(role)) => {
            return Some(log_owner(&format!("{service} group {}", group.0), role));
        }
    };
    Some(RecordOwner::new(format!("{service} {role}"), notify))
}

/// A role of a replicated log; `log` says which one.
pub fn log_owner(log: &str, role: LogRole) -> RecordOwner {
    let (name, notify): (_, Notify) = match role {
        LogRole::Leader => ("leader", leader),
        LogRole::ProxyLeader => ("proxy_leader", none),
        LogRole::Acceptor => ("acceptor", acceptor),
        LogRole::Replica => ("replica", replica),
        LogRole::Batcher => ("batcher", none),
        LogRole::Unbatcher => ("unbatcher", none),
    };
    RecordOwner::new(format!("{log} {name}"), notify)
}

/// A server of a shard.
pub fn shard_owner(name: &str) -> RecordOwner {
    RecordOwner::new(name, shard)
}

/// A gateway, which writes its incarnations.
pub fn gateway_owner(name: &str) -> RecordOwner {
    RecordOwner::new(name, gateway)
}

/// Of a role that writes none.
pub fn none(_record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    Err(DecodeError::Invalid("record of a role that writes none"))
}

/// A record that is no part of a snapshot.
pub fn apart(line: String) -> DescribedRecord {
    DescribedRecord { line, step: SnapshotEffect::Apart }
}

fn leader(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    Ok(apart(format!("leads in round {}", LeaderRecord::decoded(record)?.round)))
}

fn replica(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    snapshot::<Slot>(record, "slot", |slot| slot.0)
}

fn shard(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    snapshot::<Number>(record, "number", |number| number.0)
}

/// A record of a snapshot of everything below a position, which is a `what`.
fn snapshot<P: kernel::Encode + kernel::Decode>(
    record: &Bytes,
    what: &str,
    number: fn(P) -> u64,
) -> Result<DescribedRecord, DecodeError> {
    Ok(match SnapshotRecord::<P>::decoded(record)? {
        SnapshotRecord::Begin { below } => begin(what, number(below)),
        SnapshotRecord::Chunk { bytes } => chunk(bytes.len()),
        SnapshotRecord::End => end(),
    })
}

fn gateway(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    Ok(apart(format!("begins incarnation {}", Incarnation::decoded(record)?.number)))
}

fn begin(what: &str, below: u64) -> DescribedRecord {
    DescribedRecord {
        line: format!("begins a snapshot below {what} {below}"),
        step: SnapshotEffect::Begin(below),
    }
}

fn chunk(bytes: usize) -> DescribedRecord {
    DescribedRecord { line: format!("chunk of {bytes} bytes"), step: SnapshotEffect::Chunk(bytes as u64) }
}

fn end() -> DescribedRecord {
    DescribedRecord { line: "ends the snapshot".to_owned(), step: SnapshotEffect::End }
}

fn acceptor(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    Ok(apart(vote_in_words(AcceptorRecord::decoded(record)?)))
}

fn vote_in_words(record: AcceptorRecord) -> String {
    match record {
        AcceptorRecord::Blank { incarnation } => format!("blank, incarnation {incarnation:x}"),
        AcceptorRecord::Active { members } => format!("active, began with {} acceptors", members.len()),
        AcceptorRecord::Promise { ballot } => format!("promise {ballot:?}"),
        AcceptorRecord::Vote { ballot, slot, value } => {
            format!("vote {ballot:?} slot {slot} {}", value_in_words(&value))
        }
        AcceptorRecord::Sealed { version } => format!("sealed below membership version {version}"),
        AcceptorRecord::Executed { from, below } => {
            format!("slots {from} to {below} are chosen as learned or voted for")
        }
        AcceptorRecord::Summary(it) => format!(
            "summary: promised {:?}, voted through {}, truncated below {}, sealed below {}{}",
            it.promised,
            it.voted_through,
            it.truncated_below,
            it.sealed,
            if it.active { "" } else { ", not active" }
        ),
        AcceptorRecord::Learned { slot, value } => {
            format!("learned that slot {slot} is {}", value_in_words(&value))
        }
    }
}

fn value_in_words(value: &Value) -> String {
    match value {
        Value::Noop => "nothing".to_owned(),
        Value::Batch(payload) => format!("batch of {} bytes", payload.bytes().len()),
        Value::Entry(payload) => format!("entry of {} bytes", payload.bytes().len()),
        Value::Configure(configuration) => format!("membership version {}", configuration.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::owner_of;
    use kernel::Encode as _;
    use mason::SLOTS_PER_DEPLOYMENT;

    // A slot named after another role would have its records read as what they are not.
    #[test]
    fn slots_have_the_names_of_their_roles() {
        let name = |host_slot| owner_of(HostSlot(host_slot)).name;
        assert_eq!(name(4), "kv acceptor");
        assert_eq!(name(0x202), "coordination shard 2");
        assert_eq!(name(SLOTS_PER_DEPLOYMENT + 0x100), "sequence sequencer");
        assert_eq!(name(2 * SLOTS_PER_DEPLOYMENT + 0x1013), "log group 1 acceptor");
        assert_eq!(name(2 * SLOTS_PER_DEPLOYMENT + 0x1018), "unknown");
        assert_eq!(name(u32::MAX), "unknown");
    }

    // A record that is not its role's must be refused, never shown as something else.
    #[test]
    fn records_are_reported_by_their_role() {
        let begin = SnapshotRecord::Begin { below: Number(7) }.encoded();
        let reported = owner_of(HostSlot(0x200)).notify(&begin).expect("a shard's record");
        assert_eq!(
            reported,
            DescribedRecord {
                line: "begins a snapshot below number 7".to_owned(),
                step: SnapshotEffect::Begin(7)
            }
        );
        let sealed = AcceptorRecord::Sealed { version: 3 }.encoded();
        let reported = owner_of(HostSlot(4)).notify(&sealed).expect("an acceptor's record");
        assert_eq!(reported.line, "sealed below membership version 3");
        assert!(owner_of(HostSlot(4)).notify(&[99]).is_err());
        assert!(owner_of(HostSlot(1)).notify(&sealed).is_err());
    }
}
