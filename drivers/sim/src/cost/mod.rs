//! Cost physics: the same roles on machines whose cores, network cards and disks take time, and where nothing fails.
//!
//! A [`Testbed`] holds machines. On their cores run hosts, each with its nodes and its journal, as the runtime has them: what
//! has arrived while a core was busy is worked off as one burst, what the nodes send leaves when the burst ends, what has to
//! be durable waits for the journal. A [`Tariff`] says what each step costs. Virtual time passes by those costs alone, so
//! clusters of hundreds of machines run on one, and two runs of one seed are the same to the last event.
//!
//! - **Cores**: a burst begins when its core is free and lasts for the sum of what is done in it.
//! - **Network cards**: each direction of a machine carries so many bytes a second; links add a latency, which two machines may have
//!   of their own.
//! - **Clocks** are right, and may be wrong by so much as far as their hosts know.
//! - **Disks**: one fsync at a time, which makes durable whatever was appended before it began. Nothing is ever read back:
//!   journals have a length and no contents.
//! - **Clients** are nodes like any other. A [`Load`] says what they ask for, a [`Pace`] when: as soon as they are answered, at a
//!   given rate, or in sessions that come at a given rate.
//!
//! Faults are the other simulator's. One thing is here, for timelines: a host can be stopped at a moment given in advance.

mod host;
mod load;
mod machine;
mod outside;
mod price;
mod queue;
mod testbed;

pub use load::{Class, Load, LoadSession, Measured, Pace, Served, Visit, Window};
pub use machine::{Link, MachineIndex, MachineSpec};
pub use price::{Cost, Fsync, Handling, MessageKind, Scale, Tariff, TariffIndex, Weight};
pub use testbed::{HostPlan, Testbed};
