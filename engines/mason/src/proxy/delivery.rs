//! What a proxy's replica hands to the shards: runs of operations with consecutive numbers of one space.
//!
//! A run is encoded once, when its batch is applied. It is retained, handed over and sent again as it is, so that what a server
//! costs grows with its bytes and not with its operations.

use crate::order::{Gsn, MultiNumber, Number, Operation, Order, Placed, Space};
use crate::topology::ShardMap;
use kernel::{Bytes, Decode, DecodeError, Encode, Reader};

/// What a shard's server is given for one number.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivered {
    /// The operation's position. A no-op has one number only.
    pub order: Order,
    /// What is done.
    pub work: Work,
}

/// What is executed for one number.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// Nothing.
    NoOp,
    /// An operation of the service.
    Operation(Operation),
    /// The service's state is handed over among the shards.
    Reshard(ShardMap),
}

impl Work {
    /// The service's operation, if it is one.
    pub fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::NoOp | Self::Reshard(_) => None,
        }
    }
}

kernel::record! {
    /// Operations with consecutive numbers of one space.
    pub struct Run {
        /// The space.
        space: Space,
        /// The number of the first.
        first: Number,
        /// How many.
        count: u64,
        /// The wall clock of the leader that had them ordered, in milliseconds since 1970.
        time: u64,
        /// One row an operation.
        rows: Bytes,
    }
}

const NO_OP: u8 = 0;
/// An operation that this space executes alone.
const ALONE: u8 = 1;
/// An operation of several spaces; all its numbers follow.
const SHARED: u8 = 2;
/// A resharding; all its numbers follow.
const RESHARDING: u8 = 3;

impl Run {
    /// An empty run that starts at `first`; `bytes` is about how long its rows will be.
    pub fn begin(space: Space, first: Number, time: u64, bytes: usize) -> RunWriter {
        RunWriter { space, first, count: 0, time, rows: Vec::with_capacity(bytes) }
    }

    /// The number after the last.
    pub fn end(&self) -> Number {
        Number(self.first.0.saturating_add(self.count))
    }

    /// What it occupies, about.
    pub fn size(&self) -> usize {
        self.rows.len() + 96
    }

    /// The operations, by their numbers in this space. Ends at a malformed row.
    pub fn iter(&self) -> impl Iterator<Item = Result<(Number, Delivered), DecodeError>> + use<> {
        let (mut input, run) = (Reader::new(self.rows.clone()), self.clone());
        (self.first.0..self.end().0).map(move |number| {
            let number = Number(number);
            Ok((number, run.row(number, &mut input)?))
        })
    }

    fn row(&self, number: Number, input: &mut Reader) -> Result<Delivered, DecodeError> {
        let kind = u8::decode(input)?;
        let numbers = match kind {
            NO_OP | ALONE => MultiNumber::from([Placed { space: self.space, number }]),
            SHARED | RESHARDING => MultiNumber::decode(input)?,
            tag => return Err(DecodeError::UnknownTag("row of a run", tag)),
        };
        let order = Order { numbers, gsn: Gsn::decode(input)?, time: self.time };
        if order.number_in(self.space) != Some(number) {
            return Err(DecodeError::Invalid("row of another number"));
        }
        let work = match kind {
            NO_OP => Work::NoOp,
            RESHARDING => Work::Reshard(ShardMap::decode(input)?),
            _ => Work::Operation(Operation::decode(input)?),
        };
        Ok(Delivered { order, work })
    }
}

/// A run under construction.
#[derive(Debug)]
pub struct RunWriter {
    space: Space,
    first: Number,
    count: u64,
    time: u64,
    rows: Vec<u8>,
}

impl RunWriter {
    /// The space.
    pub fn space(&self) -> Space {
        self.space
    }

    /// The number that the next operation gets.
    pub fn next(&self) -> Number {
        self.first.plus(self.count)
    }

    /// Adds a no-op.
    pub fn push_no_op(&mut self, gsn: Gsn) {
        self.count += 1;
        self.rows.push(NO_OP);
        gsn.encode(&mut self.rows);
    }

    /// Adds an operation with all its numbers.
    pub fn push(&mut self, numbers: &[Placed], gsn: Gsn, operation: &Operation) {
        self.count += 1;
        if let [_] = numbers {
            self.rows.push(ALONE);
        } else {
            self.rows.push(SHARED);
            self.write_numbers(numbers);
        }
        gsn.encode(&mut self.rows);
        operation.encode(&mut self.rows);
    }

    /// Adds a resharding with all its numbers.
    pub fn push_reshard(&mut self, numbers: &[Placed], gsn: Gsn, shard_map: &ShardMap) {
        self.count += 1;
        self.rows.push(RESHARDING);
        self.write_numbers(numbers);
        gsn.encode(&mut self.rows);
        shard_map.encode(&mut self.rows);
    }

    fn write_numbers(&mut self, numbers: &[Placed]) {
        (numbers.len() as u32).encode(&mut self.rows);
        numbers.iter().for_each(|placed| placed.encode(&mut self.rows));
    }

    /// The run; none if nothing was added.
    pub fn finish(mut self) -> Option<Run> {
        // It may be retained for long.
        self.rows.shrink_to_fit();
        let Self { space, first, count, time, rows } = self;
        (count > 0).then(|| Run { space, first, count, time, rows: rows.into() })
    }
}

/// Runs of several spaces under construction; numbers of a space come in their order, with gaps.
#[derive(Debug, Default)]
pub struct Runs {
    open: Vec<RunWriter>,
    finished: Vec<Run>,
}

impl Runs {
    /// Where `number` of `space` is to be written.
    pub fn at(&mut self, placed: &Placed, time: u64) -> &mut RunWriter {
        let known = self.open.iter().position(|run| run.space == placed.space);
        let at = known.unwrap_or_else(|| {
            self.open.push(Run::begin(placed.space, placed.number, time, 0));
            self.open.len() - 1
        });
        if self.open[at].next() != placed.number {
            let next = Run::begin(placed.space, placed.number, time, 0);
            self.finished.extend(std::mem::replace(&mut self.open[at], next).finish());
        }
        &mut self.open[at]
    }

    /// All of them.
    pub fn finish(self) -> Vec<Run> {
        let mut runs = self.finished;
        runs.extend(self.open.into_iter().filter_map(RunWriter::finish));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::NodeId;

    fn placed(space: u16, number: u64) -> Placed {
        Placed { space: Space(space), number: Number(number) }
    }

    // A row that reads back otherwise would be executed otherwise by the servers that asked for it again.
    #[test]
    fn runs_give_back_what_was_written() {
        let operation = |tag| Operation {
            origin: NodeId::ZERO,
            incarnation: 3,
            tag,
            body: Bytes::from(vec![tag as u8; tag as usize]),
        };
        let mut runs = Runs::default();
        runs.at(&placed(2, 7), 9).push(&[placed(2, 7)], Gsn(70), &operation(1));
        runs.at(&placed(2, 8), 9).push_no_op(Gsn(71));
        let both = [placed(1, 4), placed(2, 9)];
        both.iter().for_each(|at| runs.at(at, 9).push(&both, Gsn(72), &operation(2)));
        runs.at(&placed(2, 12), 9).push(&[placed(2, 12)], Gsn(73), &operation(3));
        let runs = runs.finish();
        let shape: Vec<_> = runs.iter().map(|run| (run.space.0, run.first.0, run.count)).collect();
        assert_eq!(shape, [(2, 7, 3), (2, 12, 1), (1, 4, 1)]);
        let read: Vec<_> = runs[0].iter().map(|row| row.expect("what was just written")).collect();
        let order = |numbers: &[Placed], gsn| Order { numbers: numbers.into(), gsn: Gsn(gsn), time: 9 };
        let delivered = |order, work| Delivered { order, work };
        assert_eq!(
            read,
            [
                (Number(7), delivered(order(&[placed(2, 7)], 70), Work::Operation(operation(1)))),
                (Number(8), delivered(order(&[placed(2, 8)], 71), Work::NoOp)),
                (Number(9), delivered(order(&both, 72), Work::Operation(operation(2)))),
            ]
        );
    }

    // Rows come from other hosts, too: a claim of more than there is must end, not hang or be believed.
    #[test]
    fn rows_that_are_none_are_refused() {
        let run = Run { space: Space(1), first: Number(1), count: u64::MAX, time: 0, rows: Bytes::new() };
        assert_eq!(run.iter().next(), Some(Err(DecodeError::Truncated)));
        let mut other = Runs::default();
        other.at(&placed(1, 1), 0).push(
            &[placed(1, 2), placed(3, 1)],
            Gsn(1),
            &Operation { origin: NodeId::ZERO, incarnation: 0, tag: 0, body: Bytes::new() },
        );
        let runs = other.finish();
        assert_eq!(runs[0].iter().next(), Some(Err(DecodeError::Invalid("row of another number"))));
    }
}
