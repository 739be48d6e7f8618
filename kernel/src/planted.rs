//! Known protocol mistakes that the simulator switches on, one at a time, to show that it would notice them.
//!
//! Only builds with the feature `planted` contain them; in every other build the switch is the constant `false`.

macro_rules! planted_bugs {
    ($( $(#[$doc:meta])* $id:ident ),* $(,)?) => {
        /// A planted bug, by its id in the reliability goals.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Planted { $( $(#[$doc])* $id ),* }

        /// The bug called `name`; `None` in builds without planted bugs.
        #[cfg(feature = "planted")]
        pub fn parse(name: &str) -> Option<Planted> {
            match name {
                $( stringify!($id) => Some(Planted::$id), )*
                _ => None,
            }
        }
    };
}

planted_bugs! {
    /// An acceptor votes without persisting the vote.
    P01,
    /// An acceptor promises without persisting the promise.
    P02,
    /// Phase 1 is content with one acceptor fewer than a read quorum.
    P03,
    /// Phase 1 ignores the votes it is told of.
    P04,
    /// A replica executes past a hole and serves reads without waiting for their slot.
    P07,
    /// The session table is left out of snapshots.
    P08,
    /// A client does not raise its watermark, so that sequential reads go back in time.
    P09,
    /// A new leader fills no gaps.
    P10,
    /// A new leader asks the newest configuration's acceptors only, while the old one still owns slots.
    P12,
    /// A late copy of a session's opening brings the session back as if nothing had been executed in it.
    P20,
    /// A client accepts answers to another session or to an earlier life of its node.
    P21,
    /// An acceptor that lost its votes votes again under its old identity.
    P22,
    /// A machine that joins takes its cluster file for the cluster's configuration: it votes, leads, executes and reads by
    /// it.
    P23,
    /// Chunks of two snapshots are put together.
    P24,
    /// Acceptors of an old configuration go on answering reads after a change.
    P25,
    /// A change of membership is answered as done before the new replicas have it durably, so that machines leave early.
    P26,
    /// A replica has its acceptor remember as chosen what it learned from others, whatever the acceptor voted for.
    P27,
    /// A replica calls a snapshot durable when it begins to write it.
    P28,
    /// An acceptor that truncates trims the votes that it still needs.
    P29,
    /// An answer is forgotten one command before its client has acknowledged it.
    P30,
    /// Votes are forgotten when as many replicas as may fail have durable snapshots, and not one more.
    P31,
    /// An acceptor votes in ballots below its promise.
    P32,
    /// A page of votes to a candidate leaves out the one that the next page begins with.
    P33,
    /// An acceptor does not journal that it is sealed against reads.
    P34,
    /// A candidate does not journal its round.
    P35,
    /// A replica tells its acceptor one slot too many that it has executed.
    P36,
    /// An acceptor gives a replica that resumes votes of which nobody has said that they are chosen.
    P37,
    /// A replica takes its acceptor's vote for what is chosen, whatever its ballot.
    P38,
    /// A replica tells of its snapshot before its journal has it.
    P39,
    /// A proxy leader takes a slot for chosen with one vote fewer than a quorum.
    P40,
    /// A summary of an acceptor leaves out what it has promised.
    P41,
    /// A trim leaves nothing but the end of the newest snapshot.
    P42,
    /// A batcher's batch goes on growing while enough others are under way.
    P43,
    /// A proxy answers a sealing before its log has it.
    M01,
    /// A proxy checks the sequencer's epoch when the answer arrives, and not when its log applies it.
    M02,
    /// A standby goes on when most proxies are sealed, instead of all.
    M04,
    /// A standby goes on at the highest number assigned, instead of above it.
    M05,
    /// A standby has no holes filled.
    M06,
    /// A standby has the holes of one space filled only.
    M07,
    /// A proxy's leader that is asked to seal has no-ops executed for what it has proposed, before the log says what of it counts.
    M08,
    /// A proxy's leader hands operations to its host's shards before they are in the log.
    M09,
    /// A proxy's log holds the numbers without the operations, which its leader hands to the shards itself.
    M10,
    /// A new proxy leader fills the last of its predecessors' lost requests only.
    M11,
    /// A sequencer remembers requests without telling proxies apart.
    M13,
    /// A proxy accepts the answers of a sequencer that it has sealed.
    M14,
    /// A sequencer numbers a request over several spaces in two steps, and others in between.
    M17,
    /// A standby seals groups that were added and does not wait for what they have assigned.
    M18,
    /// A group is taken out, and what it had assigned is forgotten with it.
    M19,
    /// A sequencer gives numbers away before the hand-over to another spread is in the log.
    M20,
    /// A sequencer serves requests whose spaces were chosen by another spread.
    M21,
    /// A server calls a snapshot durable when it begins to write it.
    M22,
    /// A low watermark is logged when as many servers as may fail reach it, and not one more.
    M23,
    /// A group has settled when its log has moved, whatever its new servers have durably.
    M25,
    /// What was said to other participants is forgotten one operation too early.
    M26,
    /// A run that reaches beyond the low watermark is forgotten with those below.
    M27,
    /// A server's snapshots leave out what it has said to other participants.
    M28,
    /// A server's snapshots leave out the stamp of the last operation.
    M29,
    /// A log's snapshots leave out which operations of each origin come next.
    M30,
    /// A log's snapshots leave out what is kept for shards.
    M31,
    /// A log's snapshots leave out its low watermarks.
    M32,
    /// A log's snapshots leave out operations of the group itself that wait to be ordered.
    M33,
    /// A server that took a peer's snapshot calls it durable.
    M34,
    /// A gateway begins a life without journaling it.
    M35,
    /// A proxy's leader puts all that waits into one batch, whatever it comes to.
    M36,
    /// Groups that are to be removed are left out at once, before they are drained.
    M16,
    /// The coordination service answers writes that are not on any disk: P01 below it.
    K01,
    /// Sessions expire by what a replica knows and not by the log: one that reads its snapshot back lets them all go.
    K02,
    /// An answer goes out before the events that it must not overtake.
    K04,
    /// Versions are compared where a write is accepted, and no more where it is executed.
    K05,
    /// A node that lives in another shard than its parent is made without the parent's half.
    K06,
    /// Sequential names are counted by the children that are there, and not by the parent's own counter.
    K07,
    /// A client takes an append for done when the head of the chain has it.
    C01,
    /// A client reads from the head of a chain, whose tail may not have it.
    C02,
    /// A storage server writes a position a second time.
    C04,
    /// A storage server lets junk take the place of an entry.
    C05,
    /// A sealed storage server goes on serving the epoch before.
    C06,
    /// A sequencer that restarts serves its epoch again, from the beginning.
    C07,
    /// A storage server that was not sealed stays in the projection.
    C08,
    /// A new sequencer starts above the server that is written least far.
    C09,
    /// A log is read without asking how far the logs of the proxies have come.
    C10,
    /// A participant of an append to several logs does not heed what the others refuse.
    C11,
    /// A snapshot of the logs leaves the segments out that are still written to.
    C12,
    /// An auxiliary proposes its own projection whatever the others have accepted.
    C13,
    /// A client whose epoch was sealed under its write takes another position without looking.
    C14,
    /// A segment is let go from memory when it is handed to the disk, and not when it is durable.
    C15,
    /// A server that took a peer's snapshot writes its own before it has the blobs that it names.
    C16,
    /// The index of a stored segment is wrong by one entry.
    C17,
    /// A server lets a segment go when it is on its way to the archive, and not when it is there.
    C18,
    /// Snapshots leave out the segments that wait for the archive.
    C19,
    /// A newcomer is let into its chain when its copy is close, and not when it has the rest.
    C20,
    /// A server that comes back keeps what it had where its chain has gone on otherwise.
    C21,
    /// A server or an auxiliary that lost its disk is taken for what it was.
    C22,
    /// A newcomer says that it has everything before its disk has it.
    C23,
    /// A newcomer follows its source from the end of the comparison on, and not from its beginning.
    C24,
    /// A server takes for archived whatever it does not have.
    C25,
    /// A replica hands its log on with a hole that nobody sees.
    K13,
    /// A gateway answers pings although the session's home group does not hear of them.
    K14,
    /// What is watched is forgotten when a node goes to another shard.
    K15,
    /// A shard tells nobody that it has handed over, and answers reads of what it had.
    K16,
    /// A journal whose end is gone is taken for whole.
    J01,
    /// A shard that comes into use is not told which gateways watch all below a path.
    K17,
    /// Snapshots of sessions leave out where each has made ephemeral nodes.
    K18,
    /// Snapshots of sessions leave out which are closing.
    K19,
    /// Snapshots of sessions leave out how many were ever opened.
    K20,
    /// Snapshots of sessions leave out the epochs of their connections.
    K21,
    /// Sessions that arrive from another group are in no queue of deadlines.
    K22,
    /// A sign of life gives a session half of its timeout.
    K23,
    /// A new leader expires sessions by a clock that stood still while nobody listened to them.
    K24,
    /// Whoever closes its session is cut off when a sign of life finds it gone.
    K26,
    /// A session's burial goes to the shards where it made its nodes, although they were handed over since.
    K27,
    /// A session that is closing is not buried.
    K28,
    /// A closing session leaves with its group's sessions, and is buried by nobody.
    K29,
    /// A gateway asks shards for answers that there is no room for.
    K30,
}

#[cfg(not(feature = "planted"))]
mod switch {
    use super::Planted;

    /// Never, in this build.
    #[inline(always)]
    pub fn active(_bug: Planted) -> bool {
        false
    }

    /// Nothing to switch on in this build.
    pub fn activate(_bug: Option<Planted>) {}

    /// No bug has a name in this build.
    pub fn parse(_name: &str) -> Option<Planted> {
        None
    }
}

#[cfg(feature = "planted")]
mod switch {
    use super::Planted;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Whether this thread's simulation runs with `bug`.
    pub fn active(bug: Planted) -> bool {
        ACTIVE.get() == Some(bug)
    }

    /// Switches one bug on for this thread, or all off.
    pub fn activate(bug: Option<Planted>) {
        ACTIVE.set(bug);
    }
}

#[cfg(not(feature = "planted"))]
pub use switch::parse;
pub use switch::{activate, active};

/// True while the simulator runs with this planted bug.
///
/// ```
/// if kernel::planted!(P01) { /* the mistake */ }
/// ```
#[macro_export]
macro_rules! planted {
    ($id:ident) => {
        $crate::__private::active($crate::Planted::$id)
    };
}
