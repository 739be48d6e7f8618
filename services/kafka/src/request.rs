//! Requests, in the versions that are spoken here: all without compact fields, apart from ApiVersions.

use crate::groups::Join;
use crate::wire::{Malformed, RequestBytes};
use kernel::Bytes;
use std::sync::Arc;

/// A kind of request, and the versions of it that are spoken here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Api {
    /// Kafka's number for it.
    pub key: i16,
    /// Its name in metrics.
    pub name: &'static str,
    /// The oldest version.
    pub min: i16,
    /// The newest.
    pub max: i16,
}

/// Numbers of requests.
pub mod key {
    /// Appends records.
    pub const PRODUCE: i16 = 0;
    /// Reads records.
    pub const FETCH: i16 = 1;
    /// Asks where a topic begins and ends.
    pub const LIST_OFFSETS: i16 = 2;
    /// Asks which hosts and topics there are.
    pub const METADATA: i16 = 3;
    /// Keeps how far a group has come.
    pub const OFFSET_COMMIT: i16 = 8;
    /// Asks how far a group has come.
    pub const OFFSET_FETCH: i16 = 9;
    /// Asks who coordinates a group.
    pub const FIND_COORDINATOR: i16 = 10;
    /// Joins a group.
    pub const JOIN_GROUP: i16 = 11;
    /// Reports that a member is alive.
    pub const HEARTBEAT: i16 = 12;
    /// Leaves a group.
    pub const LEAVE_GROUP: i16 = 13;
    /// Gives or gets assignments.
    pub const SYNC_GROUP: i16 = 14;
    /// Asks who is in a group.
    pub const DESCRIBE_GROUPS: i16 = 15;
    /// Asks which groups there are.
    pub const LIST_GROUPS: i16 = 16;
    /// Begins a login.
    pub const SASL_HANDSHAKE: i16 = 17;
    /// Asks what is spoken.
    pub const API_VERSIONS: i16 = 18;
    /// Makes topics.
    pub const CREATE_TOPICS: i16 = 19;
    /// Drops topics.
    pub const DELETE_TOPICS: i16 = 20;
    /// Asks for a producer's number.
    pub const INIT_PRODUCER_ID: i16 = 22;
    /// Goes on with a login.
    pub const SASL_AUTHENTICATE: i16 = 36;
}

/// All that is spoken. Clients switch features off where the oldest version is too new for them, so these are as old as batches of
/// version 2 allow.
pub const APIS: &[Api] = &[
    Api { key: key::PRODUCE, name: "produce", min: 3, max: 7 },
    Api { key: key::FETCH, name: "fetch", min: 4, max: 11 },
    Api { key: key::LIST_OFFSETS, name: "list_offsets", min: 1, max: 5 },
    Api { key: key::METADATA, name: "metadata", min: 1, max: 8 },
    Api { key: key::OFFSET_COMMIT, name: "offset_commit", min: 2, max: 7 },
    Api { key: key::OFFSET_FETCH, name: "offset_fetch", min: 1, max: 5 },
    Api { key: key::FIND_COORDINATOR, name: "find_coordinator", min: 0, max: 2 },
    Api { key: key::JOIN_GROUP, name: "join_group", min: 2, max: 5 },
    Api { key: key::HEARTBEAT, name: "heartbeat", min: 0, max: 3 },
    Api { key: key::LEAVE_GROUP, name: "leave_group", min: 0, max: 3 },
    Api { key: key::SYNC_GROUP, name: "sync_group", min: 0, max: 3 },
    Api { key: key::DESCRIBE_GROUPS, name: "describe_groups", min: 0, max: 4 },
    Api { key: key::LIST_GROUPS, name: "list_groups", min: 0, max: 2 },
    Api { key: key::API_VERSIONS, name: "api_versions", min: 0, max: 3 },
    Api { key: key::CREATE_TOPICS, name: "create_topics", min: 2, max: 4 },
    Api { key: key::DELETE_TOPICS, name: "delete_topics", min: 1, max: 3 },
    Api { key: key::INIT_PRODUCER_ID, name: "init_producer_id", min: 0, max: 1 },
    Api { key: key::SASL_HANDSHAKE, name: "sasl_handshake", min: 0, max: 1 },
    Api { key: key::SASL_AUTHENTICATE, name: "sasl_authenticate", min: 0, max: 1 },
];

/// What comes before every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// See [`key`].
    pub key: i16,
    /// The version of the request and of its response.
    pub version: i16,
    /// Comes back in the response.
    pub correlation: i32,
}

/// One partition of a topic, with what is asked of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Part<T> {
    /// The topic; shared, since a long name before many partitions would take more memory than the request.
    pub topic: Arc<str>,
    /// The partition; there is none but 0.
    pub partition: i32,
    /// What is asked.
    pub asked: T,
}

/// Appends records.
#[derive(Clone, PartialEq, Debug)]
pub struct Produce {
    /// Of a transaction, which are not served.
    pub transactional: Option<String>,
    /// 0: no response is wanted.
    pub acks: i16,
    /// How long the client waits, in milliseconds.
    pub timeout_ms: i32,
    /// A batch for each partition.
    pub parts: Vec<Part<Option<Bytes>>>,
}

/// What Fetch asks of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchFrom {
    /// The first offset.
    pub offset: i64,
    /// So many bytes at most, unless the first record is larger.
    pub bytes_max: i32,
}

/// Reads records.
#[derive(Clone, PartialEq, Debug)]
pub struct Fetch {
    /// How long to wait for `bytes_min`, in milliseconds.
    pub wait_ms: i32,
    /// Answer as soon as there are so many bytes.
    pub bytes_min: i32,
    /// So many bytes at most, unless the first record is larger.
    pub bytes_max: i32,
    /// From where.
    pub parts: Vec<Part<FetchFrom>>,
}

/// Asks for topics, and makes them if need be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// None for all.
    pub topics: Option<Vec<Arc<str>>>,
    /// Makes those that are not there.
    pub may_create: bool,
}

/// A topic to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: Arc<str>,
    /// How many partitions; -1 for what is usual.
    pub partitions: i32,
    /// Whether the client places replicas itself.
    pub is_placed: bool,
    /// Its settings.
    pub settings: Vec<(String, Option<String>)>,
}

/// Makes topics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateTopics {
    /// Which.
    pub topics: Vec<NewTopic>,
    /// Only says whether they could be made.
    pub only_checks: bool,
}

/// A member of a group, in a generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The group.
    pub group: Arc<str>,
    /// The generation; -1 outside of any.
    pub generation: i32,
    /// The member.
    pub member: String,
}

/// How far a group has come in a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The offset that is read next.
    pub offset: i64,
    /// The group's note.
    pub note: Option<String>,
}

/// A request.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// What is spoken? In a version that is.
    ApiVersions,
    /// What is spoken? In a version that is not: it is answered in the oldest.
    NewerApiVersions,
    /// See [`Metadata`].
    Metadata(Metadata),
    /// See [`Produce`].
    Produce(Produce),
    /// See [`Fetch`].
    Fetch(Fetch),
    /// The offset at a timestamp in milliseconds, -1 for the end, -2 for the beginning.
    ListOffsets(Vec<Part<i64>>),
    /// See [`CreateTopics`].
    CreateTopics(CreateTopics),
    /// Drops the topics of these names.
    DeleteTopics(Vec<Arc<str>>),
    /// Wants a number for a producer; of a transaction, if it names one.
    InitProducerId(Option<String>),
    /// Who coordinates the group of this name? Or, with another kind than 0, something else.
    FindCoordinator(Arc<str>, i8),
    /// Joins a group.
    JoinGroup(Join),
    /// Gives assignments, if it leads, and gets its own.
    SyncGroup(Membership, Vec<(String, Bytes)>),
    /// Reports that it is alive.
    Heartbeat(Membership),
    /// These members of a group go.
    LeaveGroup(Arc<str>, Vec<String>),
    /// Who is in the groups of these names?
    DescribeGroups(Vec<Arc<str>>),
    /// Which groups have members here?
    ListGroups,
    /// Keeps how far the group has come.
    OffsetCommit(Membership, Vec<Part<Committed>>),
    /// Asks how far a group has come in these partitions; none for all.
    OffsetFetch(Arc<str>, Option<Vec<Part<()>>>),
    /// Begins a login by this mechanism.
    SaslHandshake(String),
    /// A message of the mechanism.
    SaslAuthenticate(Bytes),
}

/// Topics or partitions of one request; more are malformed.
const PARTS_MAX: usize = 10_000;

impl Request {
    /// Reads a frame without its length.
    pub fn read(frame: Bytes) -> Result<(Head, Self), Malformed> {
        let mut input = RequestBytes(frame);
        let input = &mut input;
        let head = Head { key: input.i16()?, version: input.i16()?, correlation: input.i32()? };
        let api = APIS.iter().find(|api| api.key == head.key).ok_or(Malformed)?;
        if !(api.min..=api.max).contains(&head.version) {
            let newer = head.key == key::API_VERSIONS && head.version > api.max;
            return newer.then_some((head, Self::NewerApiVersions)).ok_or(Malformed);
        }
        input.text_or_null()?;
        let version = head.version;
        let request = match head.key {
            key::PRODUCE => Self::Produce(Produce::read(input)?),
            key::FETCH => Self::Fetch(Fetch::read(input, version)?),
            key::LIST_OFFSETS => Self::ListOffsets(read_list_offsets(input, version)?),
            key::METADATA => Self::Metadata(Metadata::read(input, version)?),
            key::CREATE_TOPICS => Self::CreateTopics(CreateTopics::read(input)?),
            key::DELETE_TOPICS => {
                let names = input.items(2, read_name)?;
                input.i32()?;
                Self::DeleteTopics(names)
            }
            key::INIT_PRODUCER_ID => {
                let transactional = input.text_or_null()?;
                input.i32()?;
                Self::InitProducerId(transactional)
            }
            key::FIND_COORDINATOR => {
                Self::FindCoordinator(read_name(input)?, if version >= 1 { input.i8()? } else { 0 })
            }
            key::JOIN_GROUP => Self::JoinGroup(read_join(input, version)?),
            key::SYNC_GROUP => {
                let membership = Membership::read(input, version >= 3)?;
                let assignments =
                    input.items(6, |input| Ok((input.text()?, input.bytes()?.unwrap_or_default())))?;
                Self::SyncGroup(membership, assignments)
            }
            key::HEARTBEAT => Self::Heartbeat(Membership::read(input, version >= 3)?),
            key::LEAVE_GROUP => Self::read_leave(input, version)?,
            key::DESCRIBE_GROUPS => {
                let names = input.items(2, read_name)?;
                if version >= 3 {
                    input.i8()?;
                }
                Self::DescribeGroups(names)
            }
            key::LIST_GROUPS => Self::ListGroups,
            key::OFFSET_COMMIT => Self::read_commit(input, version)?,
            key::OFFSET_FETCH => {
                let group = read_name(input)?;
                let parts = input.array(6, |input| {
                    let topic = read_name(input)?;
                    input.items(4, |input| {
                        Ok(Part { topic: topic.clone(), partition: input.i32()?, asked: () })
                    })
                })?;
                Self::OffsetFetch(group, parts.map(|parts| parts.into_iter().flatten().collect()))
            }
            key::SASL_HANDSHAKE => Self::SaslHandshake(input.text()?),
            key::SASL_AUTHENTICATE => Self::SaslAuthenticate(input.bytes()?.unwrap_or_default()),
            // What the client says of itself is of no use here.
            key::API_VERSIONS => return Ok((head, Self::ApiVersions)),
            _ => return Err(Malformed),
        };
        input.end()?;
        if request.parts() > PARTS_MAX { Err(Malformed) } else { Ok((head, request)) }
    }

    fn parts(&self) -> usize {
        match self {
            Self::ApiVersions
            | Self::NewerApiVersions
            | Self::InitProducerId(_)
            | Self::FindCoordinator(..)
            | Self::ListGroups
            | Self::SaslHandshake(_)
            | Self::SaslAuthenticate(_)
            | Self::Heartbeat(_) => 0,
            Self::JoinGroup(join) => join.protocols.len(),
            Self::SyncGroup(_, assignments) => assignments.len(),
            Self::LeaveGroup(_, members) => members.len(),
            Self::OffsetCommit(_, parts) => parts.len(),
            Self::OffsetFetch(_, parts) => parts.as_ref().map_or(0, Vec::len),
            Self::Metadata(metadata) => metadata.topics.as_ref().map_or(0, Vec::len),
            Self::Produce(produce) => produce.parts.len(),
            Self::Fetch(fetch) => fetch.parts.len(),
            Self::ListOffsets(parts) => parts.len(),
            Self::CreateTopics(create) => create.topics.len(),
            Self::DeleteTopics(names) | Self::DescribeGroups(names) => names.len(),
        }
    }
}

impl Request {
    fn read_leave(input: &mut RequestBytes, version: i16) -> Result<Self, Malformed> {
        let group = read_name(input)?;
        if version < 3 {
            return Ok(Self::LeaveGroup(group, vec![input.text()?]));
        }
        let members = input.items(4, |input| {
            let member = input.text()?;
            input.text_or_null()?;
            Ok(member)
        })?;
        Ok(Self::LeaveGroup(group, members))
    }

    fn read_commit(input: &mut RequestBytes, version: i16) -> Result<Self, Malformed> {
        let membership = Membership::read(input, version >= 7)?;
        if version <= 4 {
            // How long to keep it: as long as there is room.
            input.i64()?;
        }
        let parts = read_parts(input, 10, |input| {
            let offset = input.i64()?;
            if version >= 6 {
                input.i32()?;
            }
            Ok(Committed { offset, note: input.text_or_null()? })
        })?;
        Ok(Self::OffsetCommit(membership, parts))
    }
}

impl Membership {
    fn read(input: &mut RequestBytes, has_instance: bool) -> Result<Self, Malformed> {
        let membership = Self { group: read_name(input)?, generation: input.i32()?, member: input.text()? };
        if has_instance {
            // Names of members that outlive them: they are given new ones here.
            input.text_or_null()?;
        }
        Ok(membership)
    }
}

fn read_join(input: &mut RequestBytes, version: i16) -> Result<Join, Malformed> {
    let (group, session_ms, rebalance_ms) = (read_name(input)?, input.i32()?, input.i32()?);
    let member = input.text()?;
    if version >= 5 {
        input.text_or_null()?;
    }
    let kind = input.text()?;
    let protocols = input.items(6, |input| {
        let bytes = |bytes: Option<Bytes>| Bytes::copy_from_slice(&bytes.unwrap_or_default());
        Ok((input.text()?, bytes(input.bytes()?)))
    })?;
    Ok(Join { group, member, session_ms, rebalance_ms, kind, protocols })
}

fn read_name(input: &mut RequestBytes) -> Result<Arc<str>, Malformed> {
    input.text().map(Arc::from)
}

/// An array of topics, each with an array of partitions whose fields behind the index take at least `asked_bytes_min`.
fn read_parts<T>(
    input: &mut RequestBytes,
    asked_bytes_min: usize,
    asked: impl Fn(&mut RequestBytes) -> Result<T, Malformed>,
) -> Result<Vec<Part<T>>, Malformed> {
    let topics = input.items(6, |input| {
        let topic = read_name(input)?;
        input.items(4 + asked_bytes_min, |input| {
            Ok(Part { topic: topic.clone(), partition: input.i32()?, asked: asked(input)? })
        })
    })?;
    Ok(topics.into_iter().flatten().collect())
}

impl Produce {
    fn read(input: &mut RequestBytes) -> Result<Self, Malformed> {
        Ok(Self {
            transactional: input.text_or_null()?,
            acks: input.i16()?,
            timeout_ms: input.i32()?,
            parts: read_parts(input, 4, RequestBytes::bytes)?,
        })
    }
}

impl Fetch {
    fn read(input: &mut RequestBytes, version: i16) -> Result<Self, Malformed> {
        input.i32()?;
        let (wait_ms, bytes_min, bytes_max) = (input.i32()?, input.i32()?, input.i32()?);
        input.i8()?;
        if version >= 7 {
            // Sessions of fetches: none is ever opened.
            input.i32()?;
            input.i32()?;
        }
        let parts = read_parts(input, 12, |input| {
            if version >= 9 {
                input.i32()?;
            }
            let offset = input.i64()?;
            if version >= 5 {
                input.i64()?;
            }
            Ok(FetchFrom { offset, bytes_max: input.i32()? })
        })?;
        if version >= 7 {
            read_parts(input, 0, |_| Ok(()))?;
        }
        if version >= 11 {
            input.text_or_null()?;
        }
        Ok(Self { wait_ms, bytes_min, bytes_max, parts })
    }
}

fn read_list_offsets(input: &mut RequestBytes, version: i16) -> Result<Vec<Part<i64>>, Malformed> {
    input.i32()?;
    if version >= 2 {
        input.i8()?;
    }
    read_parts(input, 8, |input| {
        if version >= 4 {
            input.i32()?;
        }
        input.i64()
    })
}

impl Metadata {
    fn read(input: &mut RequestBytes, version: i16) -> Result<Self, Malformed> {
        let topics = input.array(2, read_name)?;
        let may_create = version < 4 || input.bool()?;
        if version >= 8 {
            input.bool()?;
            input.bool()?;
        }
        Ok(Self { topics, may_create })
    }
}

impl CreateTopics {
    fn read(input: &mut RequestBytes) -> Result<Self, Malformed> {
        let topics = input.items(16, |input| {
            let (name, partitions) = (read_name(input)?, input.i32()?);
            input.i16()?;
            let placed = input.items(8, |input| {
                input.i32()?;
                input.items(4, RequestBytes::i32)
            })?;
            let settings = input.items(4, |input| Ok((input.text()?, input.text_or_null()?)))?;
            Ok(NewTopic { name, partitions, is_placed: !placed.is_empty(), settings })
        })?;
        input.i32()?;
        Ok(Self { topics, only_checks: input.bool()? })
    }
}
