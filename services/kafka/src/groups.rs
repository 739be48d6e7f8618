//! The members of consumer groups, as the host that coordinates a group knows them.
//!
//! This is soft state: a host that coordinates a group for the first time knows nobody, answers heartbeats with UNKNOWN_MEMBER, and
//! members join anew. What must not be lost or doubled is in the log's replicated state: a generation is begun there (see
//! [`shared_log::Commit`]), so that of two hosts that take themselves for the coordinator only the one that began the latest has members
//! who may commit.
//!
//! A group is *joining* while members come; once all that are known have come, or the time for it is over, its next generation is
//! *beginning* in the log; then the leader *assigns*, and the group is *stable* until somebody joins, leaves or falls silent.

use crate::code::Code;
use kernel::{Bytes, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Groups that a host coordinates; further ones are refused.
const GROUPS_MAX: usize = 1_000;
/// Members of one group.
const MEMBERS_MAX: usize = 1_000;
/// What a member says of itself, and what it is assigned, in bytes.
const METADATA_BYTES_MAX: usize = 64 << 10;
/// How long the log may take to begin a generation before it is asked again.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The range of times that a member may be silent, or take to join.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A member's wish to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The group.
    pub group: Arc<str>,
    /// Its name; empty for one that has none yet.
    pub member: String,
    /// How long it may be silent, in milliseconds.
    pub session_ms: i32,
    /// How long it may take to join anew, in milliseconds.
    pub rebalance_ms: i32,
    /// What kind of group.
    pub kind: String,
    /// Its protocols, the one it likes best first, with what it says of itself in each.
    pub protocols: Vec<(String, Bytes)>,
}

/// What a member that has joined is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The generation.
    pub generation: i32,
    /// The protocol that all have.
    pub protocol: String,
    /// Who assigns.
    pub leader: String,
    /// Everybody with what they say of themselves; for the leader only.
    pub members: Vec<(String, Bytes)>,
}

#[derive(Clone, Debug)]
struct Member {
    session: Duration,
    rebalance: Duration,
    protocols: Vec<(String, Bytes)>,
    heard: Instant,
    /// Waits for the next generation.
    has_joined: bool,
    assignment: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Joining { since: Instant },
    Beginning { since: Instant },
    Assigning,
    Stable,
}

#[derive(Clone, Debug)]
struct Group {
    kind: String,
    generation: i32,
    protocol: String,
    leader: String,
    stage: Stage,
    members: BTreeMap<String, Member>,
}

/// What tools learn of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Kafka's word for its state.
    pub state: &'static str,
    /// What kind of group.
    pub kind: String,
    /// How its members are assigned.
    pub protocol: String,
    /// Each member, with what it says of itself and what it is assigned.
    pub members: Vec<(String, Bytes, Bytes)>,
}

impl Described {
    /// Of a group that nobody is in.
    pub fn without_members(state: &'static str) -> Self {
        Self { state, kind: String::new(), protocol: String::new(), members: Vec::new() }
    }
}

/// What a group that is waited for does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Others are waited for.
    Wait,
    /// The log is to begin the next generation.
    Begin,
    /// It has begun.
    Ready,
}

/// The groups that a host coordinates.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    known: BTreeMap<Arc<str>, Group>,
    next_member: u64,
}

fn timeout(ms: i32) -> Duration {
    Duration::from_millis(ms.max(0) as u64).clamp(TIMEOUT_MIN, TIMEOUT_MAX)
}

impl Group {
    fn rejoin(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Joining { .. }) {
            self.stage = Stage::Joining { since: now };
            self.members.values_mut().for_each(|member| member.has_joined = false);
        }
    }

    /// Lets go of those who were silent for too long.
    fn expire(&mut self, now: Instant) {
        let before = self.members.len();
        self.members.retain(|_, member| {
            let silent_max =
                member.session + if member.has_joined { member.rebalance } else { Duration::ZERO };
            now.since(member.heard) < silent_max
        });
        if self.members.len() < before && matches!(self.stage, Stage::Stable | Stage::Assigning) {
            self.rejoin(now);
        }
    }

    /// What a member says of itself in the protocol that was chosen.
    fn said_by(&self, member: &Member) -> Bytes {
        let of_protocol = member.protocols.iter().find(|(name, _)| *name == self.protocol);
        of_protocol.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    /// The first protocol of the leader that all members have.
    fn choose(&self) -> Option<String> {
        let mut members = self.members.values();
        let first = members.next()?;
        let has = |member: &Member, name: &str| member.protocols.iter().any(|(other, _)| other == name);
        let all_have = |name: &&str| self.members.values().all(|member| has(member, name));
        first.protocols.iter().map(|(name, _)| name.as_str()).find(all_have).map(str::to_owned)
    }
}

impl Groups {
    /// Takes a member's wish; its name, which it has to give from now on.
    pub fn join(&mut self, join: Join, now: Instant) -> Result<String, Code> {
        let bytes: usize = join.protocols.iter().map(|(name, bytes)| name.len() + bytes.len()).sum();
        if !shared_log::is_group(&join.group) || join.protocols.is_empty() || bytes > METADATA_BYTES_MAX {
            return Err(Code::INVALID_GROUP_ID);
        }
        // Groups without members are of no use: what matters of them is in the log.
        for group in self.known.values_mut() {
            group.expire(now);
        }
        self.known.retain(|_, group| !group.members.is_empty());
        if self.known.len() >= GROUPS_MAX && !self.known.contains_key(&join.group) {
            return Err(Code::GROUP_MAX_SIZE_REACHED);
        }
        let fresh = || Group {
            kind: join.kind.clone(),
            generation: -1,
            protocol: String::new(),
            leader: String::new(),
            stage: Stage::Joining { since: now },
            members: BTreeMap::new(),
        };
        let known = join.member.is_empty()
            || self.known.get(&join.group).is_some_and(|group| group.members.contains_key(&join.member));
        if !known {
            return Err(Code::UNKNOWN_MEMBER_ID);
        }
        let name = if join.member.is_empty() {
            self.next_member += 1;
            format!("member-{}-{}", now.0, self.next_member)
        } else {
            join.member
        };
        let group = self.known.entry(join.group.clone()).or_insert_with(fresh);
        if group.kind != join.kind {
            return Err(Code::INCONSISTENT_GROUP_PROTOCOL);
        }
        if group.members.len() >= MEMBERS_MAX && !group.members.contains_key(&name) {
            return Err(Code::GROUP_MAX_SIZE_REACHED);
        }
        group.rejoin(now);
        let (session, rebalance) = (timeout(join.session_ms), timeout(join.rebalance_ms));
        let (protocols, assignment) = (join.protocols, Bytes::new());
        let member = Member { session, rebalance, protocols, heard: now, has_joined: true, assignment };
        group.members.insert(name.clone(), member);
        Ok(name)
    }

    /// What a member that joins waits for. One that is known no more waits for nothing.
    pub fn next(&mut self, name: &str, member: &str, now: Instant) -> Next {
        let Some(group) = self.known.get_mut(name) else { return Next::Ready };
        group.expire(now);
        let Some(member) = group.members.get_mut(member) else { return Next::Ready };
        match group.stage {
            Stage::Joining { since } => {
                // It may have joined a generation that was given up before it was answered.
                member.has_joined = true;
                let patience =
                    group.members.values().map(|member| member.rebalance).max().unwrap_or_default();
                if now.since(since) >= patience {
                    group.members.retain(|_, member| member.has_joined);
                }
                let all = group.members.values().all(|member| member.has_joined);
                if !all {
                    return Next::Wait;
                }
                group.stage = Stage::Beginning { since: now };
                Next::Begin
            }
            Stage::Beginning { since } if now.since(since) >= BEGIN_AGAIN_AFTER => {
                group.stage = Stage::Beginning { since: now };
                Next::Begin
            }
            Stage::Beginning { .. } => Next::Wait,
            Stage::Assigning | Stage::Stable => Next::Ready,
        }
    }

    /// The log has begun a generation for a group.
    pub fn begun(&mut self, name: &str, generation: i32, now: Instant) {
        let Some(group) = self.known.get_mut(name) else { return };
        if !matches!(group.stage, Stage::Beginning { .. }) {
            return;
        }
        // Somebody may have come whom the others have no protocol with: they join anew, and it is notified.
        let Some(protocol) = group.choose() else { return group.rejoin(now) };
        let leader = group.members.keys().next().cloned().unwrap_or_default();
        group.members.values_mut().for_each(|member| {
            member.heard = now;
            member.has_joined = false;
        });
        (group.generation, group.protocol, group.leader) = (generation, protocol, leader);
        group.stage = Stage::Assigning;
    }

    /// What a member is answered once its group is ready.
    pub fn joined(&self, name: &str, member: &str) -> Result<Joined, Code> {
        let group = self.known.get(name).filter(|group| group.members.contains_key(member));
        let group = group.ok_or(Code::UNKNOWN_MEMBER_ID)?;
        let members = if group.leader == member {
            group.members.iter().map(|(name, it)| (name.clone(), group.said_by(it))).collect()
        } else {
            Vec::new()
        };
        let (protocol, leader) = (group.protocol.clone(), group.leader.clone());
        Ok(Joined { generation: group.generation, protocol, leader, members })
    }

    /// A member is heard of; an error if it is none of this generation, or is to join anew.
    pub fn hear(&mut self, name: &str, member: &str, generation: i32, now: Instant) -> Result<(), Code> {
        let group = self.known.get_mut(name).ok_or(Code::UNKNOWN_MEMBER_ID)?;
        group.expire(now);
        let known = group.members.get_mut(member).ok_or(Code::UNKNOWN_MEMBER_ID)?;
        if generation != group.generation {
            return Err(Code::ILLEGAL_GENERATION);
        }
        known.heard = now;
        match group.stage {
            Stage::Joining { .. } | Stage::Beginning { .. } => Err(Code::REBALANCE_IN_PROGRESS),
            Stage::Assigning | Stage::Stable => Ok(()),
        }
    }

    /// The leader says who reads what.
    pub fn assign(&mut self, name: &str, member: &str, assignments: Vec<(String, Bytes)>) {
        let Some(group) = self.known.get_mut(name) else { return };
        if group.stage != Stage::Assigning || group.leader != member {
            return;
        }
        for (name, assignment) in assignments {
            if let Some(member) = group.members.get_mut(&name) {
                member.assignment = assignment;
            }
        }
        group.stage = Stage::Stable;
    }

    /// What a member reads; none while the leader has not said.
    pub fn assignment(&self, name: &str, member: &str) -> Option<Bytes> {
        let group = self.known.get(name).filter(|group| group.stage == Stage::Stable)?;
        group.members.get(member).map(|member| member.assignment.clone())
    }

    /// The groups that have members, with their kinds.
    pub fn list(&mut self, now: Instant) -> Vec<(Arc<str>, String)> {
        self.known.values_mut().for_each(|group| group.expire(now));
        let alive = self.known.iter().filter(|(_, group)| !group.members.is_empty());
        alive.map(|(name, group)| (name.clone(), group.kind.clone())).collect()
    }

    /// What is known of a group; nothing of one without members.
    pub fn describe(&mut self, name: &str, now: Instant) -> Option<Described> {
        let group = self.known.get_mut(name)?;
        group.expire(now);
        if group.members.is_empty() {
            return None;
        }
        let state = match group.stage {
            Stage::Joining { .. } | Stage::Beginning { .. } => "PreparingRebalance",
            Stage::Assigning => "CompletingRebalance",
            Stage::Stable => "Stable",
        };
        let member = |(name, member): (&String, &Member)| {
            (name.clone(), group.said_by(member), member.assignment.clone())
        };
        Some(Described {
            state,
            kind: group.kind.clone(),
            protocol: group.protocol.clone(),
            members: group.members.iter().map(member).collect(),
        })
    }

    /// A member goes.
    pub fn leave(&mut self, name: &str, member: &str, now: Instant) -> Result<(), Code> {
        let group = self.known.get_mut(name).ok_or(Code::UNKNOWN_MEMBER_ID)?;
        group.members.remove(member).ok_or(Code::UNKNOWN_MEMBER_ID)?;
        group.rejoin(now);
        Ok(())
    }
}
