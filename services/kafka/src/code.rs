//! Kafka's error codes, as far as they are answered here.

/// An error code; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub i16);

impl Code {
    /// Nothing is wrong.
    pub const NONE: Self = Self(0);
    /// There is no such offset: it was trimmed, or is not there yet. Clients resume by their `auto.offset.reset`.
    pub const OFFSET_OUT_OF_RANGE: Self = Self(1);
    /// The batch's checksum does not match.
    pub const CORRUPT_MESSAGE: Self = Self(2);
    /// No such log, or a partition other than 0.
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    /// It may have been done: the host lost track of it, or it took longer than the client waits.
    pub const REQUEST_TIMED_OUT: Self = Self(7);
    /// A record is larger than one append may be.
    pub const MESSAGE_TOO_LARGE: Self = Self(10);
    /// What a group notes about an offset is too long.
    pub const OFFSET_METADATA_TOO_LARGE: Self = Self(12);
    /// The coordinator did not get an answer from the log: clients look for it again.
    pub const COORDINATOR_NOT_AVAILABLE: Self = Self(15);
    /// Another host coordinates the group.
    pub const NOT_COORDINATOR: Self = Self(16);
    /// A name that no log can have.
    pub const INVALID_TOPIC: Self = Self(17);
    /// Nothing was done, and the same may succeed later: the host is busy, or the archive keeps what is trimmed waiting.
    pub const NOT_ENOUGH_REPLICAS: Self = Self(19);
    /// Acknowledgements other than -1, 0 and 1.
    pub const INVALID_REQUIRED_ACKS: Self = Self(21);
    /// The group is in another generation.
    pub const ILLEGAL_GENERATION: Self = Self(22);
    /// A group of another kind, or members that have no protocol together.
    pub const INCONSISTENT_GROUP_PROTOCOL: Self = Self(23);
    /// A name that no group can have, or a member that says too much of itself.
    pub const INVALID_GROUP_ID: Self = Self(24);
    /// The host knows no such member: it joins anew.
    pub const UNKNOWN_MEMBER_ID: Self = Self(25);
    /// The members are to join anew.
    pub const REBALANCE_IN_PROGRESS: Self = Self(27);
    /// The client was not granted it, of a topic.
    pub const TOPIC_AUTHORIZATION_FAILED: Self = Self(29);
    /// The client was not granted it, of a group.
    pub const GROUP_AUTHORIZATION_FAILED: Self = Self(30);
    /// A mechanism by which nobody can log in here.
    pub const UNSUPPORTED_SASL_MECHANISM: Self = Self(33);
    /// A version that is not spoken here.
    pub const UNSUPPORTED_VERSION: Self = Self(35);
    /// There is a log of this name already.
    pub const TOPIC_ALREADY_EXISTS: Self = Self(36);
    /// A topic has one partition.
    pub const INVALID_PARTITIONS: Self = Self(37);
    /// A setting that cannot be.
    pub const INVALID_CONFIG: Self = Self(40);
    /// What is asked cannot be done here at all.
    pub const INVALID_REQUEST: Self = Self(42);
    /// A batch older than version 2.
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: Self = Self(43);
    /// The log is sealed, there is no room for it, or the logs have reached their disk budget.
    pub const POLICY_VIOLATION: Self = Self(44);
    /// A producer's batch is not the one that comes next.
    pub const OUT_OF_ORDER_SEQUENCE: Self = Self(45);
    /// A producer has begun a later epoch.
    pub const INVALID_PRODUCER_EPOCH: Self = Self(47);
    /// Transactions are not there; of the codes that a client gives up at once upon, the nearest.
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Self = Self(53);
    /// The client is not who it says.
    pub const SASL_AUTHENTICATION_FAILED: Self = Self(58);
    /// Nothing is known of a producer any more: it asks for another number.
    pub const UNKNOWN_PRODUCER: Self = Self(59);
    /// An unknown codec.
    pub const UNSUPPORTED_COMPRESSION_TYPE: Self = Self(76);
    /// Too many groups, or members of one.
    pub const GROUP_MAX_SIZE_REACHED: Self = Self(81);
    /// A batch that breaks its own rules.
    pub const INVALID_RECORD: Self = Self(87);

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::NONE => "none",
            Self::OFFSET_OUT_OF_RANGE => "offset_out_of_range",
            Self::CORRUPT_MESSAGE => "corrupt_message",
            Self::UNKNOWN_TOPIC_OR_PARTITION => "unknown_topic_or_partition",
            Self::REQUEST_TIMED_OUT => "request_timed_out",
            Self::MESSAGE_TOO_LARGE => "message_too_large",
            Self::OFFSET_METADATA_TOO_LARGE => "offset_metadata_too_large",
            Self::COORDINATOR_NOT_AVAILABLE => "coordinator_not_available",
            Self::NOT_COORDINATOR => "not_coordinator",
            Self::INVALID_TOPIC => "invalid_topic",
            Self::NOT_ENOUGH_REPLICAS => "not_enough_replicas",
            Self::INVALID_REQUIRED_ACKS => "invalid_required_acks",
            Self::ILLEGAL_GENERATION => "illegal_generation",
            Self::INCONSISTENT_GROUP_PROTOCOL => "inconsistent_group_protocol",
            Self::INVALID_GROUP_ID => "invalid_group_id",
            Self::UNKNOWN_MEMBER_ID => "unknown_member_id",
            Self::REBALANCE_IN_PROGRESS => "rebalance_in_progress",
            Self::TOPIC_AUTHORIZATION_FAILED => "topic_authorization_failed",
            Self::GROUP_AUTHORIZATION_FAILED => "group_authorization_failed",
            Self::UNSUPPORTED_SASL_MECHANISM => "unsupported_sasl_mechanism",
            Self::UNSUPPORTED_VERSION => "unsupported_version",
            Self::TOPIC_ALREADY_EXISTS => "topic_already_exists",
            Self::INVALID_PARTITIONS => "invalid_partitions",
            Self::INVALID_CONFIG => "invalid_config",
            Self::INVALID_REQUEST => "invalid_request",
            Self::UNSUPPORTED_FOR_MESSAGE_FORMAT => "unsupported_for_message_format",
            Self::POLICY_VIOLATION => "policy_violation",
            Self::OUT_OF_ORDER_SEQUENCE => "out_of_order_sequence",
            Self::INVALID_PRODUCER_EPOCH => "invalid_producer_epoch",
            Self::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => "transactional_id_authorization_failed",
            Self::SASL_AUTHENTICATION_FAILED => "sasl_authentication_failed",
            Self::UNKNOWN_PRODUCER => "unknown_producer",
            Self::UNSUPPORTED_COMPRESSION_TYPE => "unsupported_compression_type",
            Self::GROUP_MAX_SIZE_REACHED => "group_max_size_reached",
            Self::INVALID_RECORD => "invalid_record",
            _ => "other",
        }
    }

    /// True if the service could not do it, and nothing was wrong with what was asked.
    pub fn is_of_service(self) -> bool {
        [
            Self::REQUEST_TIMED_OUT,
            Self::COORDINATOR_NOT_AVAILABLE,
            Self::NOT_ENOUGH_REPLICAS,
            Self::POLICY_VIOLATION,
        ]
        .contains(&self)
    }
}
