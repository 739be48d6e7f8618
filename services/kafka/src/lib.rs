//! Kafka's protocol over the shared log: ApiVersions, Metadata, Produce, Fetch, ListOffsets, CreateTopics, DeleteTopics,
//! InitProducerId and consumer groups, in versions without compact fields.
//!
//! **Mapping.** A topic is a log of the same name, and it has one partition, 0, whose offsets are the log's positions: a log is the unit
//! that has one gapless sequence, and spaces are only where logs are. What Kafka spreads over partitions is spread over logs here, and one
//! native append can go to several of them at once. A record is an entry (see [`Record`]): Kafka's and native clients read each other's.
//!
//! **Promised.** A response to Produce means what the answer to a native append means, with acks 0 and 1 as with all: a majority has it on
//! its disk. Fetch sees every append that was answered before. Any host serves any topic; Metadata names one that is up as its leader.
//!
//! **Where we differ.** Batches are taken apart when they come: their records can then be read one by one, by everybody, and what a
//! log holds is counted the same way for all writers. So they are stored uncompressed whatever they came in, and so returned. A batch
//! that takes more than one append (1 MiB) is appended in parts, which other producers' records may come between; its base offset
//! is then reported as unknown (-1).
#![forbid(unsafe_code)]

mod batch;
mod brokers;
mod code;
mod compression;
mod connection;
mod entry;
mod groups;
mod permits;
mod request;
mod wire;

pub use batch::{Batch, Chunk, Sender, write as write_batch};
pub use brokers::{Broker, Brokers, node_of};
pub use code::Code;
pub use compression::PLAIN_BYTES_MAX;
pub use connection::{Connection, Fault, Outgoing, ProducerIds, Settings, Shared};
pub use entry::{NO_TIMESTAMP, Record};
pub use groups::{Groups, Join, Joined, Next};
pub use permits::{LoginStep, Of, Permits, Permitted, Verb};
pub use request::{APIS, Api, Committed, Head, Membership, Part, Request, key};
pub use wire::{Malformed, PutKafka, RequestBytes};
