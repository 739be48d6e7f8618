//! What a slot holds: a batch of clients' commands, a change of the cluster, or nothing.

use crate::configuration::Configuration;
use kernel::bounds::VALUE_BYTES_MAX;
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, TooLarge};
use parts::{Sequence, SessionId};
use std::sync::Arc;
pub use wire::commands::value::*;

/// The bytes of a value. There are never more than a slot holds: where they are made and where they are read is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload(Bytes);

impl Payload {
    /// These bytes, if a slot holds so many.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, TooLarge> {
        let bytes = bytes.into();
        let too_large = TooLarge { bytes: bytes.len(), max: VALUE_BYTES_MAX };
        if bytes.len() <= VALUE_BYTES_MAX { Ok(Self(bytes)) } else { Err(too_large) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Encode for Payload {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for Payload {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Self::new(Bytes::decode(input)?).map_err(|_| DecodeError::Invalid("value larger than a slot holds"))
    }
}

/// The value of a slot.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing: fills a slot that would block others.
    Noop,
    /// An encoded [`Batch`]; opaque to leaders and acceptors.
    Batch(Payload),
    /// A command of an engine that embeds the log: executed whenever it is chosen, without a session. The machine itself has to
    /// know one that it was given before.
    Entry(Payload),
    /// From `window` slots later on, this configuration governs. Its `first_slot` is set when it is executed.
    Configure(Arc<Configuration>),
}

impl Value {
    /// An encoded [`Batch`], if a slot holds it.
    pub fn batch(encoded: impl Into<Bytes>) -> Result<Self, TooLarge> {
        Payload::new(encoded).map(Self::Batch)
    }

    /// A command of an engine that embeds the log, if a slot holds it.
    pub fn entry(encoded: impl Into<Bytes>) -> Result<Self, TooLarge> {
        Payload::new(encoded).map(Self::Entry)
    }

    /// Its size on the wire, about.
    pub fn size(&self) -> usize {
        match self {
            Self::Noop => 1,
            Self::Batch(payload) | Self::Entry(payload) => payload.0.len() + 5,
            Self::Configure(configuration) => 64 * configuration.nodes().len(),
        }
    }

    /// The same in memory of its own: what came from a connection shares, and keeps alive, all that was read with it.
    #[must_use]
    pub fn owned(&self) -> Self {
        match self {
            Self::Batch(Payload(bytes)) => Self::Batch(Payload(Bytes::copy_from_slice(bytes))),
            Self::Entry(Payload(bytes)) => Self::Entry(Payload(Bytes::copy_from_slice(bytes))),
            Self::Noop | Self::Configure(_) => self.clone(),
        }
    }
}

impl Encode for Value {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Noop => out.push(0),
            Self::Batch(batch) => {
                out.push(1);
                batch.encode(out);
            }
            Self::Configure(configuration) => {
                out.push(2);
                configuration.encode(out);
            }
            Self::Entry(entry) => {
                out.push(3);
                entry.encode(out);
            }
        }
    }
}

impl Decode for Value {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::Noop),
            1 => Payload::decode(input).map(Self::Batch),
            2 => Decode::decode(input).map(Self::Configure),
            3 => Payload::decode(input).map(Self::Entry),
            tag => Err(DecodeError::UnknownTag("value", tag)),
        }
    }
}

kernel::record! {
    /// Names a batch, so that its batcher learns that it is through.
    pub struct BatchId {
        /// Who made it.
        batcher: NodeId,
        /// Counts that batcher's batches in this incarnation.
        number: u64,
    }
}

kernel::number! {
    /// Rules by which replicas answer, which are a part of what they execute: those of the batch hold wherever and whenever it is executed,
    /// so that a log that was written before a change of them is replayed as it was executed.
    pub struct Rules(u64);
}

impl Rules {
    /// What a failed condition found is repeated up to [`REPEATED_BYTES_MAX`], and not at all while the answers that sessions keep come to
    /// more than [`RETAINED_ANSWERS_BYTES_MAX`].
    pub const BRIEF: Self = Self(1);
}

/// The largest value that an answer repeats without having been asked for it.
pub const REPEATED_BYTES_MAX: usize = 1 << 10;
/// Answers that all sessions keep together, in bytes, beyond which no value is repeated.
pub const RETAINED_ANSWERS_BYTES_MAX: usize = 64 << 20;

kernel::record! {
    /// Commands of several clients that share a slot.
    pub struct Batch {
        /// Its name.
        id: BatchId,
        /// Where the clients' connections end.
        unbatcher: NodeId,
        /// One group per client message.
        groups: Vec<CommandGroup>,
        /// By which rules its commands are answered; none in batches of versions that had no others.
        rules: Option<Rules>,
    }
}

kernel::record! {
    /// What one client sent at once.
    pub struct CommandGroup {
        /// Its connection.
        client: NodeId,
        /// Its session.
        session: SessionId,
        /// It has every answer below this.
        acknowledged: Sequence,
        /// What it wants.
        kind: GroupKind,
        /// The commands, if it wants commands.
        commands: Commands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One byte more than a slot holds outgrows the journal's record of the vote, on every acceptor.
    #[test]
    fn a_value_is_never_larger_than_a_slot() {
        let of = |bytes: usize| vec![7; bytes];
        let largest = Value::entry(of(VALUE_BYTES_MAX)).expect("it fits");
        assert_eq!(Value::decoded(&largest.encoded().into()), Ok(largest));
        let too_large = TooLarge { bytes: VALUE_BYTES_MAX + 1, max: VALUE_BYTES_MAX };
        assert_eq!(Value::batch(of(VALUE_BYTES_MAX + 1)), Err(too_large));
        let mut sent = vec![1];
        of(VALUE_BYTES_MAX + 1).encode(&mut sent);
        let refused = Err(DecodeError::Invalid("value larger than a slot holds"));
        assert_eq!(Value::decoded(&sent.into()), refused, "no sender makes it sound");
    }

    // A row that loses or shifts a command would execute another one.
    #[test]
    fn rows_of_commands_read_back() {
        let mut row = Vec::new();
        Commands::push(&mut row, Sequence(3), b"put");
        Commands::push(&mut row, Sequence(9), b"");
        let whole = Commands::from_row(row.clone());
        let read: Vec<_> = whole.iter().map(|command| (command.sequence.0, command.bytes.to_vec())).collect();
        assert_eq!(read, [(3, b"put".to_vec()), (9, Vec::new())]);
        assert!(whole.is_sound());
        row.pop();
        assert!(!Commands::from_row(row).is_sound());
    }
}
