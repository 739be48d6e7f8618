//! What is asked of the logs, and what they answer.

pub mod native;
mod rows;

pub use rows::{ROW_OVERHEAD, Rows};

use kernel::bounds::{ANSWER_BYTES_MAX, PAGE_HEAD_BYTES};
use kernel::{Bytes, Decode, DecodeError, Encode, Reader};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// What the entries of one append may cost; each costs 8 bytes more than it holds.
pub const APPEND_BYTES_MAX: usize = 1 << 20;
/// Logs of one append.
pub const PARTS_MAX: usize = 64;
/// The least byte limit that a log may be created with.
pub const RETAIN_BYTES_MIN: u64 = 1 << 20;
/// The most that one read returns, unless a single entry is larger.
pub const READ_BYTES_MAX: u32 = 1 << 20;

const _: () = assert!(
    READ_BYTES_MAX as usize + APPEND_BYTES_MAX + PAGE_HEAD_BYTES <= ANSWER_BYTES_MAX,
    "a page that ends with the largest entry is an answer"
);
/// The longest name of a group of readers, in bytes.
pub const GROUP_BYTES_MAX: usize = 256;
/// The longest note of a group about a log, in bytes.
pub const NOTE_BYTES_MAX: usize = 1_024;
/// Producers' numbers of entries begin anew here.
pub const SEQUENCES: u32 = 1 << 31;
/// Logs of one space.
pub const LOGS_MAX: usize = 4_096;

kernel::record! {
    /// Makes a log.
    pub struct Create {
        /// Its name.
        name: String,
        /// What it may hold, in bytes; beyond it the oldest entries go. Each entry costs 8 bytes more than it holds. 0: no limit of its
        /// own, where `cleanup` is given.
        retain_bytes: u64,
        /// How long entries are retained, in milliseconds; 0: for ever. Looked at whenever something is appended.
        retain_ms: u64,
        /// What all logs of its space with a limit of their own may be created to hold together. The host fills it in.
        capacity: u64,
        /// What becomes of appends when the service's disk budget is reached. None in calls of versions that had no budget: it is
        /// [`Cleanup::Refuse`] then.
        cleanup: Option<Cleanup>,
        /// The position of its first entry, below 2^62: of a log that is restored; 0 unless it is given.
        first: Option<u64>,
    }
}

/// The largest first position.
const FIRST_MAX: u64 = 1 << 62;

/// What becomes of appends to a log when the hosts' logs have reached their disk budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Cleanup {
    /// They are refused.
    #[default]
    Refuse = 0,
    /// The log's oldest entries go to make room for them, and are counted.
    DropOldest = 1,
}

impl Cleanup {
    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropOldest => "drop-oldest",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Refuse, Self::DropOldest].into_iter().find(|cleanup| cleanup.name() == name)
    }
}

impl Encode for Cleanup {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl Decode for Cleanup {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::Refuse),
            1 => Ok(Self::DropOldest),
            tag => Err(DecodeError::UnknownTag("cleanup", tag)),
        }
    }
}

/// How the host that let entries in stood to its disk budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Admitted {
    /// The budget was not reached.
    WithinBudget = 0,
    /// It was: logs that may drop their oldest entries do, until they hold less than before.
    BeyondBudget = 1,
}

impl Encode for Admitted {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl Decode for Admitted {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::WithinBudget),
            1 => Ok(Self::BeyondBudget),
            tag => Err(DecodeError::UnknownTag("admission", tag)),
        }
    }
}

kernel::record! {
    /// Entries for one log.
    pub struct Part {
        /// The log.
        name: String,
        /// Nothing is appended unless the first entry gets this position.
        expect: Option<u64>,
        /// See [`Rows`].
        entries: Bytes,
    }
}

kernel::record! {
    /// Appends to one log or to several: everything or nothing.
    pub struct Append {
        /// Each log once.
        parts: Vec<Part>,
        /// The host fills it in. None in what versions ordered that counted nothing of what they dropped.
        admitted: Option<Admitted>,
    }
}

kernel::record! {
    /// Appends to one log what a producer numbers: once, however often it is sent. See [`Rejected`].
    pub struct Produce {
        /// The log.
        name: String,
        /// The producer: a number that no other has.
        producer: u64,
        /// A producer's later epoch fences off earlier ones, and begins with 0 again.
        epoch: u16,
        /// The number of the first entry: for each log from 0 on, without gaps, below 2^31; then from 0 again.
        sequence: u32,
        /// See [`Rows`].
        entries: Bytes,
        /// The host fills it in. None in what versions ordered that counted nothing of what they dropped.
        admitted: Option<Admitted>,
    }
}

kernel::record! {
    /// How far a group of readers has come in a log.
    pub struct Progress {
        /// The log.
        log: String,
        /// The position that it reads next.
        position: u64,
        /// The readers' own words; at most [`NOTE_BYTES_MAX`].
        note: String,
    }
}

kernel::record! {
    /// Keeps how far a group of readers has come.
    pub struct Commit {
        /// The group.
        group: String,
        /// Nothing is stored unless this is the group's latest generation; none for readers that are in none.
        generation: Option<u32>,
        /// Each log once.
        progress: Vec<Progress>,
    }
}

kernel::record! {
    /// What is known of a group of readers.
    pub struct GroupState {
        /// Its name.
        group: String,
        /// The generation that was begun last; 0: none was.
        generation: u32,
        /// How far it has come, sorted by log.
        progress: Vec<Progress>,
    }
}

impl GroupState {
    /// Of a group that nothing is known of.
    pub fn of(group: &str) -> Self {
        Self { group: group.to_owned(), generation: 0, progress: Vec::new() }
    }
}

kernel::record! {
    /// Drops entries.
    pub struct Trim {
        /// The log.
        name: String,
        /// Positions below this one go.
        before: u64,
    }
}

kernel::record! {
    /// Names a log.
    pub struct Named {
        /// The log.
        name: String,
    }
}

kernel::record! {
    /// Reads entries in order.
    pub struct Read {
        /// The log.
        name: String,
        /// The first position.
        from: u64,
        /// So many at most.
        entries_max: u32,
        /// So many bytes at most (and never more than [`READ_BYTES_MAX`]), unless the first entry is larger.
        bytes_max: u32,
        /// How long to wait for an entry where there is none yet, in milliseconds; at most 30,000.
        wait_ms: u32,
    }
}

kernel::record! {
    /// Asks which logs there are.
    pub struct List {
        /// Those whose names come after this one.
        after: String,
        /// So many at most.
        limit: u32,
    }
}

/// A call.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// Makes a log.
    Create(Create),
    /// Appends.
    Append(Append),
    /// Drops entries.
    Trim(Trim),
    /// Lets nothing be appended any more.
    Seal(Named),
    /// Drops a log with its entries.
    Delete(Named),
    /// Reads entries.
    Read(Read),
    /// Asks how far a log goes.
    Stat(Named),
    /// Asks which logs there are.
    List(List),
    /// Appends what a producer numbers.
    Produce(Produce),
    /// Begins the next generation of a group of readers.
    BeginGeneration(Named),
    /// Keeps how far a group has come.
    Commit(Commit),
    /// Asks how far a group has come.
    GroupOf(Named),
    /// Reads entries, also those that are trimmed, as far as hosts still have them; does not wait.
    Recall(Read),
    /// Asks which log has a name now.
    Identify(Named),
    /// Asks what a log was made to be, and what it has dropped.
    Describe(Named),
    /// Drops what is expired of the log, and of those of its space.
    Expire(Named),
}

impl Request {
    /// The logs that it changes; none for a read.
    pub fn written(&self) -> Vec<&str> {
        match self {
            Self::Create(create) => vec![&create.name],
            Self::Append(append) => append.parts.iter().map(|part| part.name.as_str()).collect(),
            Self::Produce(produce) => vec![&produce.name],
            Self::BeginGeneration(group) => vec![&group.name],
            Self::Commit(commit) => vec![&commit.group],
            Self::Trim(trim) => vec![&trim.name],
            Self::Seal(named) | Self::Delete(named) | Self::Expire(named) => vec![&named.name],
            Self::Read(_)
            | Self::Describe(_)
            | Self::Recall(_)
            | Self::Stat(_)
            | Self::Identify(_)
            | Self::List(_)
            | Self::GroupOf(_) => Vec::new(),
        }
    }

    /// What is wrong with it, whatever the logs hold.
    pub fn fault(&self) -> Option<Why> {
        let named = |name: &str| (!is_name(name)).then_some(Why::Malformed);
        match self {
            Self::Create(create) if !create.is_sound() => Some(Why::Malformed),
            Self::Create(create) => named(&create.name),
            Self::Append(append) => append.fault(),
            Self::Produce(Produce { name, sequence, .. }) if !is_name(name) || *sequence >= SEQUENCES => {
                Some(Why::Malformed)
            }
            Self::BeginGeneration(group) | Self::GroupOf(group) => {
                (!is_group(&group.name)).then_some(Why::Malformed)
            }
            Self::Commit(commit) => {
                let sound =
                    |progress: &Progress| is_name(&progress.log) && progress.note.len() <= NOTE_BYTES_MAX;
                let sound = is_group(&commit.group) && commit.progress.iter().all(sound);
                (!sound).then_some(Why::Malformed)
            }
            Self::Produce(produce) => fault_of_entries([&produce.entries].into_iter()),
            Self::Trim(trim) => named(&trim.name),
            Self::Seal(log)
            | Self::Delete(log)
            | Self::Stat(log)
            | Self::Identify(log)
            | Self::Describe(log)
            | Self::Expire(log) => named(&log.name),
            Self::Read(read) | Self::Recall(read) => named(&read.name),
            Self::List(_) => None,
        }
    }
}

impl Create {
    fn is_sound(&self) -> bool {
        let is_limit =
            self.retain_bytes >= RETAIN_BYTES_MIN || self.retain_bytes == 0 && self.cleanup.is_some();
        is_limit && self.first.is_none_or(|first| first <= FIRST_MAX)
    }
}

impl Append {
    fn fault(&self) -> Option<Why> {
        let mut names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        names.sort_unstable();
        let repeated = names.windows(2).any(|pair| pair[0] == pair[1]);
        if names.is_empty() || names.len() > PARTS_MAX || repeated || !names.iter().all(|name| is_name(name))
        {
            return Some(Why::Malformed);
        }
        fault_of_entries(self.parts.iter().map(|part| &part.entries))
    }
}

fn fault_of_entries<'a>(parts: impl Iterator<Item = &'a Bytes>) -> Option<Why> {
    let mut bytes = 0;
    for entries in parts {
        match Rows::count(entries) {
            None | Some(0) => return Some(Why::Malformed),
            Some(count) => bytes += entries.len() + count * (ROW_OVERHEAD - 4),
        }
    }
    (bytes > APPEND_BYTES_MAX).then_some(Why::TooLarge)
}

/// Any text of 1 to [`GROUP_BYTES_MAX`] bytes.
pub fn is_group(name: &str) -> bool {
    (1..=GROUP_BYTES_MAX).contains(&name.len())
}

/// Letters, digits, `.`, `_` and `-`: at least one, at most [`NAME_BYTES_MAX`].
pub fn is_name(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(sound)
}

/// Why nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    /// Too many calls wait at this host.
    Busy = 1,
    /// It is not known whether it was done: the host lost track of the call.
    Unknown = 2,
    /// A malformed call: its name or its entries, or a log named twice.
    Malformed = 3,
    /// There is no such log.
    NoSuchLog = 4,
    /// There is one already.
    Exists = 5,
    /// The log is sealed; `at` is its tail.
    Sealed = 6,
    /// The tail is not where the writer expects it; `at` is where it is.
    Moved = 7,
    /// Entries from there on are gone; `at` is the first that is left, where a reader may resume.
    Trimmed = 8,
    /// There is no such position yet; `at` is the tail.
    BeyondTail = 9,
    /// The space has no room for such a log; `at` is what is free, in bytes.
    Full = 10,
    /// The entries of one append cost more than [`APPEND_BYTES_MAX`].
    TooLarge = 11,
    /// The engine that orders this log cannot do it.
    Unsupported = 12,
    /// Nothing is appended while so much waits for the archive; `at` is how many bytes do.
    Unarchived = 13,
    /// Nothing was done: the disks are full.
    DiskFull = 14,
    /// Nothing was appended: the logs of the host have reached their disk budget; `at` is what they hold, in bytes.
    OverBudget = 15,
    /// Nothing was done: the client was not granted it.
    NotGranted = 20,
}

impl Why {
    /// The reason with this number; what is not known is taken for a malformed call.
    pub fn of(number: u8) -> Self {
        const ALL: [Why; 16] = [
            Why::Busy,
            Why::Unknown,
            Why::Malformed,
            Why::NoSuchLog,
            Why::Exists,
            Why::Sealed,
            Why::Moved,
            Why::Trimmed,
            Why::BeyondTail,
            Why::Full,
            Why::TooLarge,
            Why::Unsupported,
            Why::Unarchived,
            Why::DiskFull,
            Why::OverBudget,
            Why::NotGranted,
        ];
        ALL.into_iter().find(|why| *why as u8 == number).unwrap_or(Why::Malformed)
    }
}

impl Encode for Why {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl Decode for Why {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        u8::decode(input).map(Self::of)
    }
}

kernel::record! {
    /// How far a log goes.
    pub struct LogStat {
        /// Its name.
        name: String,
        /// The first position that is left.
        first: u64,
        /// The tail: the position of the next entry.
        next: u64,
        /// What its entries cost, in bytes.
        bytes: u64,
        /// What they may cost; 0: the log has no limit of its own.
        retain_bytes: u64,
        /// How long they are retained, in milliseconds; 0: for ever.
        retain_ms: u64,
        /// Nothing can be appended any more.
        sealed: bool,
    }
}

kernel::record! {
    /// What a log was made to be, and what became of its entries.
    pub struct Description {
        /// How far it goes.
        stat: LogStat,
        /// What becomes of appends when the disk budget is reached.
        cleanup: Cleanup,
        /// Entries that went because of a limit in bytes or for want of room; neither those that were trimmed nor those that expired.
        dropped: u64,
        /// What those had cost, in bytes.
        dropped_bytes: u64,
    }
}

kernel::record! {
    /// Which of the logs that have had its name a log is, and what of it hosts still have.
    pub struct LogIdentity {
        /// The space where it is.
        space: u16,
        /// Its number there: no other log of the space has had it.
        number: u64,
        /// When it was made, in milliseconds since 1970; 0 if that was before logs remembered it.
        created_ms: u64,
        /// The first position that hosts still have, trimmed or not; some behind it may be in the archive alone.
        retained: u64,
        /// What of its trimmed segments waits for the archive, in bytes.
        waiting_bytes: u64,
    }
}

kernel::record! {
    /// Entries that were read.
    pub struct Entries {
        /// The position of the first.
        first: u64,
        /// The position after the last, where to read on.
        next: u64,
        /// The log's tail.
        tail: u64,
        /// The log is sealed: the tail is final.
        sealed: bool,
        /// See [`Rows`].
        rows: Bytes,
    }
}

kernel::record! {
    /// Nothing was done.
    pub struct Refused {
        /// Why.
        why: Why,
        /// The log that it is about, if it is about one.
        name: String,
        /// See [`Why`].
        at: u64,
    }
}

/// What a producer sent is not what comes next: nothing was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// The next entry has this number, and another one came.
    OutOfSequence(u64),
    /// The producer has begun this later epoch; the group this later generation.
    Fenced(u64),
    /// Nothing is known of the producer (any more), and its entries do not begin with 0; the log's tail.
    Unknown(u64),
}

/// The answer to a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The position of the first entry in each log, in the order asked.
    Appended(Vec<u64>),
    /// What was read.
    Entries(Entries),
    /// The logs asked for, sorted by name.
    Logs(Vec<LogStat>),
    /// Nothing was done.
    Refused(Refused),
    /// Nothing was appended of what a producer sent, or stored of what a group committed.
    Rejected(Rejected),
    /// What is known of a group.
    Group(GroupState),
    /// Which log it is.
    Identity(LogIdentity),
    /// What it was made to be.
    Description(Description),
}

impl Answer {
    /// The tags of [`Self::Refused`] and [`Self::Rejected`], with which an answer begins.
    pub const FAILING_TAGS: [u8; 2] = [4, 5];

    /// A refusal that is about no log in particular.
    pub fn refused(why: Why) -> Self {
        Self::about(why, "", 0)
    }

    /// A refusal that concerns a log, and a position or a size of it.
    pub fn about(why: Why, name: &str, at: u64) -> Self {
        Self::Refused(Refused { why, name: name.to_owned(), at })
    }
}

/// The codec of an enum whose variants hold one value each.
macro_rules! tagged {
    ($Name:ident, $what:literal, $($tag:literal => $Variant:ident),*) => {
        impl Encode for $Name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Variant(value) => {
                        out.push($tag);
                        value.encode(out);
                    } )*
                    #[allow(unreachable_patterns, reason = "one of them has a variant that holds nothing")]
                    _ => out.push(0),
                }
            }
        }

        impl Decode for $Name {
            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                match u8::decode(input)? {
                    $( $tag => Decode::decode(input).map(Self::$Variant), )*
                    tag => Self::bare(tag).ok_or(DecodeError::UnknownTag($what, tag)),
                }
            }
        }
    };
}

impl Request {
    fn bare(_tag: u8) -> Option<Self> {
        None
    }
}

impl Rejected {
    fn bare(_tag: u8) -> Option<Self> {
        None
    }
}

impl Answer {
    fn bare(tag: u8) -> Option<Self> {
        (tag == 0).then_some(Self::Done)
    }
}

tagged!(
    Request, "log request",
    1 => Create, 2 => Append, 3 => Trim, 4 => Seal, 5 => Delete, 6 => Read, 7 => Stat, 8 => List, 9 => Produce, 10 => BeginGeneration,
    11 => Commit, 12 => GroupOf, 13 => Recall, 14 => Identify, 15 => Describe, 16 => Expire
);
tagged!(
    Answer, "log answer",
    1 => Appended, 2 => Entries, 3 => Logs, 4 => Refused, 5 => Rejected, 6 => Group, 7 => Identity, 8 => Description
);
tagged!(Rejected, "log rejection", 1 => OutOfSequence, 2 => Fenced, 3 => Unknown);
