//! Whose a place is, and what its records say.

use crate::cluster::RoleName;
use kernel::{Bytes, Decode as _, DecodeError, Place};
use mason::{LogRole, PLACES_PER_DEPLOYMENT, Part, Post};
use parts::{Incarnation, Slot, SnapshotRecord};
use paxos::Value;
use paxos::multipaxos::acceptor::AcceptorRecord;
use paxos::multipaxos::leader::LeaderRecord;

/// The services over Mason, in the order of their places.
const DEPLOYMENTS: [&str; 3] = ["coordination", "sequence", "log"];

/// What the records of a role are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Leader,
    Acceptor,
    Replica,
    Shard,
    Gateway,
    /// The role writes none.
    None,
}

/// The role at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Service and role, as in `log shard 3`.
    pub name: String,
    kind: Kind,
}

/// A record in words, and what it does to the snapshot that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// One line.
    pub line: String,
    /// Part of a snapshot.
    pub step: Step,
}

/// What a record does to a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing.
    Apart,
    /// Begins one of all below this slot or number.
    Begin(u64),
    /// Adds so many bytes.
    Chunk(u64),
    /// Completes it.
    End,
}

impl Owner {
    /// The role that has this place in every cluster.
    pub fn of(place: Place) -> Self {
        let kv = RoleName::ALL.into_iter().find(|role| *role as u32 == place.0);
        if let Some(role) = kv {
            let kind = match role {
                RoleName::Leader => Kind::Leader,
                RoleName::Acceptor => Kind::Acceptor,
                RoleName::Replica => Kind::Replica,
                RoleName::Batcher | RoleName::ProxyLeader | RoleName::Unbatcher => Kind::None,
            };
            return Self { name: format!("kv {}", role.name().trim_start_matches("paxos.")), kind };
        }
        let service = DEPLOYMENTS.get((place.0 / PLACES_PER_DEPLOYMENT) as usize);
        let post = Post::at(place.0 % PLACES_PER_DEPLOYMENT);
        let (Some(service), Some(post)) = (service, post) else {
            return Self { name: "unknown".to_owned(), kind: Kind::None };
        };
        let (role, kind) = match post {
            Post::Sequencer => ("sequencer".to_owned(), Kind::None),
            Post::Gateway => ("gateway".to_owned(), Kind::Gateway),
            Post::Shard(space) => (format!("shard {}", space.0), Kind::Shard),
            Post::Part(group, part) => {
                let (name, kind) = match part {
                    Part::Log(LogRole::Leader) => ("leader", Kind::Leader),
                    Part::Log(LogRole::ProxyLeader) => ("proxy_leader", Kind::None),
                    Part::Log(LogRole::Acceptor) => ("acceptor", Kind::Acceptor),
                    Part::Log(LogRole::Replica) => ("replica", Kind::Replica),
                    Part::Log(LogRole::Batcher) => ("batcher", Kind::None),
                    Part::Log(LogRole::Unbatcher) => ("unbatcher", Kind::None),
                    Part::Proxy => ("proxy", Kind::None),
                };
                (format!("group {} {name}", group.0), kind)
            }
        };
        Self { name: format!("{service} {role}"), kind }
    }

    /// Puts a record of this role into words.
    pub fn tell(&self, record: &[u8]) -> Result<Told, DecodeError> {
        let bytes = Bytes::copy_from_slice(record);
        let apart = |line| Told { line, step: Step::Apart };
        Ok(match self.kind {
            Kind::Leader => apart(format!("leads in round {}", LeaderRecord::decoded(&bytes)?.round)),
            Kind::Acceptor => apart(acceptor(AcceptorRecord::decoded(&bytes)?)),
            Kind::Replica => match SnapshotRecord::<Slot>::decoded(&bytes)? {
                SnapshotRecord::Begin { below } => begin("slot", below.0),
                SnapshotRecord::Chunk { bytes } => chunk(bytes.len()),
                SnapshotRecord::End => end(),
            },
            Kind::Shard => match SnapshotRecord::<mason::Number>::decoded(&bytes)? {
                SnapshotRecord::Begin { below } => begin("number", below.0),
                SnapshotRecord::Chunk { bytes } => chunk(bytes.len()),
                SnapshotRecord::End => end(),
            },
            Kind::Gateway => apart(format!("begins life {}", Incarnation::decoded(&bytes)?.number)),
            Kind::None => return Err(DecodeError::Invalid("record of a role that writes none")),
        })
    }
}

fn begin(what: &str, below: u64) -> Told {
    Told { line: format!("begins a snapshot below {what} {below}"), step: Step::Begin(below) }
}

fn chunk(bytes: usize) -> Told {
    Told { line: format!("chunk of {bytes} bytes"), step: Step::Chunk(bytes as u64) }
}

fn end() -> Told {
    Told { line: "ends the snapshot".to_owned(), step: Step::End }
}

fn acceptor(record: AcceptorRecord) -> String {
    match record {
        AcceptorRecord::Blank { incarnation } => format!("blank, incarnation {incarnation:x}"),
        AcceptorRecord::Active { members } => format!("active, born with {} acceptors", members.len()),
        AcceptorRecord::Promise { ballot } => format!("promise {ballot:?}"),
        AcceptorRecord::Vote { ballot, slot, value } => {
            let value = match value {
                Value::Noop => "nothing".to_owned(),
                Value::Batch(payload) => format!("batch of {} bytes", payload.bytes().len()),
                Value::Entry(payload) => format!("entry of {} bytes", payload.bytes().len()),
                Value::Configure(configuration) => format!("membership version {}", configuration.version),
            };
            format!("vote {ballot:?} slot {slot} {value}")
        }
        AcceptorRecord::Sealed { version } => format!("sealed below membership version {version}"),
        AcceptorRecord::Executed { from, below } => {
            format!("slots {from} to {below} are chosen as voted for")
        }
        AcceptorRecord::Summary(it) => format!(
            "summary: promised {:?}, voted through {}, truncated below {}, sealed below {}{}",
            it.promised,
            it.voted_through,
            it.truncated_below,
            it.sealed,
            if it.active { "" } else { ", not active" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Encode as _;

    // A place named after another role would have its records read as what they are not.
    #[test]
    fn places_have_the_names_of_their_roles() {
        let name = |place| Owner::of(Place(place)).name;
        assert_eq!(name(4), "kv acceptor");
        assert_eq!(name(0x202), "coordination shard 2");
        assert_eq!(name(PLACES_PER_DEPLOYMENT + 0x100), "sequence sequencer");
        assert_eq!(name(2 * PLACES_PER_DEPLOYMENT + 0x1013), "log group 1 acceptor");
        assert_eq!(name(2 * PLACES_PER_DEPLOYMENT + 0x1018), "unknown");
        assert_eq!(name(u32::MAX), "unknown");
    }

    // A record that is not its role's must be refused, never shown as something else.
    #[test]
    fn records_are_told_by_their_role() {
        let begin = SnapshotRecord::Begin { below: mason::Number(7) }.encoded();
        let told = Owner::of(Place(0x200)).tell(&begin).expect("a shard's record");
        assert_eq!(told, Told { line: "begins a snapshot below number 7".to_owned(), step: Step::Begin(7) });
        let sealed = AcceptorRecord::Sealed { version: 3 }.encoded();
        let told = Owner::of(Place(4)).tell(&sealed).expect("an acceptor's record");
        assert_eq!(told.line, "sealed below membership version 3");
        assert!(Owner::of(Place(4)).tell(&[99]).is_err());
        assert!(Owner::of(Place(1)).tell(&sealed).is_err());
    }
}
