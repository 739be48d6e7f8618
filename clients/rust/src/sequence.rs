//! Calls of the sequence service.

use crate::calls::{Ask, Calls, SoFar};
use crate::connect::connects;
use crate::{CallError, TIMEOUT};
use kernel::Bytes;
use std::future::Future;
use std::time::Duration;
use wire::sequence::{Native, Next, Numbered, Outcome};

/// A position in the order of all operations of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequencePosition {
    /// One number for each space, in the order asked. Contiguous in every space: each number is somebody's, or a no-op's.
    pub numbers: Vec<u64>,
    /// Grows with real time, over all spaces; has holes.
    pub gsn: u64,
}

#[derive(Debug)]
struct Wanted {
    spaces: Vec<String>,
    label: Bytes,
}

impl Ask for Wanted {
    type Message = Native;
    type Reply = Numbered;
    type Answer = SequencePosition;

    fn message(&self, id: u64) -> Native {
        Native::Next(Next { id, spaces: self.spaces.clone(), label: self.label.clone() })
    }

    fn reply(message: Native) -> Option<(u64, Numbered)> {
        match message {
            Native::Numbered(numbered) => Some((numbered.id, numbered)),
            Native::Next(_) => None,
        }
    }

    fn outcome(&self, numbered: Numbered, so_far: SoFar) -> Option<Result<SequencePosition, CallError>> {
        match Outcome::of(numbered.status) {
            Outcome::Busy => so_far.is_last.then_some(Err(CallError::Busy)),
            Outcome::Done => Some(Ok(SequencePosition { numbers: numbered.numbers, gsn: numbered.gsn })),
            Outcome::Unknown => Some(Err(CallError::MaybeExecuted)),
            Outcome::DiskFull => Some(Err(CallError::DiskFull)),
            Outcome::NotGranted => Some(Err(CallError::NotGranted)),
            Outcome::Malformed => Some(Err(CallError::Invalid(format!(
                "the cluster has no such spaces ({}), or the label is longer than 256 bytes",
                self.spaces.join(", ")
            )))),
        }
    }

    /// One caller would be given two positions.
    fn may_repeat(&self) -> bool {
        false
    }
}

/// A client of the sequence. Cheap to clone; must be made inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Sequence {
    calls: Calls<Wanted>,
    timeout: Duration,
}

connects!(Sequence, |calls| Self { calls, timeout: TIMEOUT });

impl Sequence {
    /// Takes one position in each of `spaces`. The call is on its way when this returns; its answer comes by the future.
    ///
    /// [`CallError::MaybeExecuted`] and [`CallError::TimedOut`]: a number may have been assigned that no caller received. Calls
    /// are never sent twice, so that no caller is given two positions for one.
    pub fn next<S: AsRef<str>>(
        &self,
        spaces: &[S],
        label: &[u8],
    ) -> impl Future<Output = Result<SequencePosition, CallError>> + use<S> {
        let spaces = spaces.iter().map(|name| name.as_ref().to_owned()).collect();
        self.calls.call(Wanted { spaces, label: Bytes::copy_from_slice(label) }, self.timeout)
    }
}
