//! The real driver: one reactor thread a host, sockets, a journal. It runs the same roles as the simulator.
//!
//! # A burst
//!
//! 1. Wait for events (`mio`), then read every ready socket once, up to a bound, and hand the decoded messages to the nodes.
//! 2. Messages between nodes of the host travel in memory, without codec, until all is quiet; then the burst of every node
//!    that was called ends, and what that sends travels until all is quiet again.
//! 3. What waits for nothing is written: one buffer and one write a peer. So a follower's disk works beside ours.
//! 4. What was appended is written to the journal and synced, as one batch; then what waited for it leaves.
//!
//! # Threads
//!
//! All of the above is one thread. Others: one that prepares journal segments; one that syncs, used only while the disk is
//! slow; one that reads the clock's source, if there is one; two that write and read blobs, started with the first; four that copy them into an archive, if there is one; one that looks up names, started at the first name that is no
//! address.
//!
//! # An example
//!
//! ```
//! use kernel::{Cx, Family, HostId, NodeId, HostSlot, Position, RequestId, Role};
//! use runtime::{Host, HostConfig, PeerConfig};
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! kernel::messages! {
//!     /// To a doubler.
//!     pub enum DoublerIn in Message::Doubler {
//!         /// Double it.
//!         1 => Double { number: u64 },
//!     }
//! }
//! kernel::messages! {
//!     /// To an asker.
//!     pub enum AskerIn in Message::Asker {
//!         /// The double.
//!         1 => Doubled { number: u64 },
//!     }
//! }
//! kernel::family! {
//!     /// All messages.
//!     messages Message;
//!     /// All roles.
//!     members Member [] [] of Doubling {
//!         1 => Doubler(DoublerIn, Doubler, "doubler"),
//!         2 => Asker(AskerIn, Asker, "asker"),
//!     }
//! }
//! pub struct Doubling;
//! impl Family for Doubling {
//!     type Message = Message;
//!     type Request = u64;
//!     type Response = u64;
//! }
//! pub struct Doubler;
//! impl Role for Doubler {
//!     type Family = Doubling;
//!     type In = DoublerIn;
//!     type Timer = Infallible;
//!     type Record = u64;
//!     fn restore(&mut self, _position: Position, _record: u64) {}
//!     fn on_message(&mut self, from: NodeId, DoublerIn::Double(double): DoublerIn, cx: &mut Cx<'_, Self>) {
//!         cx.append(&double.number);
//!         cx.send_durable(from, Doubled { number: 2 * double.number }); // Leaves after the record is on the disk.
//!     }
//! }
//! pub struct Asker(NodeId, Option<RequestId>);
//! impl Role for Asker {
//!     type Family = Doubling;
//!     type In = AskerIn;
//!     type Timer = Infallible;
//!     type Record = Infallible;
//!     fn restore(&mut self, _position: Position, record: Infallible) {
//!         match record {}
//!     }
//!     fn on_request(&mut self, id: RequestId, number: u64, cx: &mut Cx<'_, Self>) {
//!         self.1 = Some(id);
//!         cx.send(self.0, Double { number }); // A real asker sets a timer: links lose messages.
//!     }
//!     fn on_message(&mut self, _from: NodeId, AskerIn::Doubled(doubled): AskerIn, cx: &mut Cx<'_, Self>) {
//!         if let Some(id) = self.1.take() {
//!             cx.respond(id, doubled.number);
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listen = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let peer = PeerConfig { name: "b".into(), address: listen.local_addr()?.to_string() };
//! let a_listen = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let a_peer = PeerConfig { name: "a".into(), address: a_listen.local_addr()?.to_string() };
//! let b = HostConfig { listen: Some(listen), peers: vec![a_peer], ..HostConfig::new("example", "b") };
//! let a = HostConfig { listen: Some(a_listen), peers: vec![peer], ..HostConfig::new("example", "a") };
//! // With `storage: Storage::Directory { .. }` in the configuration, records survive restarts.
//! let b = Host::start(b, || vec![(HostSlot(1), Member::Doubler(Doubler))], vec![])?;
//! let doubler = NodeId::new(HostId::named("b"), HostSlot(1));
//! let a = Host::start(a, move || vec![(HostSlot(2), Member::Asker(Asker(doubler, None)))], vec![])?;
//! assert_eq!(a.handle().request(HostSlot(2), 21).wait(Duration::from_secs(10))?, 42);
//! a.stop()?;
//! b.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! Clients of other protocols come in by way of a [`FrontEnd`]; other threads by way of a [`HostHandle`].

mod agreement;
mod alarm;
mod answer;
mod beacons;
pub mod blobs;
mod burst;
mod clients;
mod clock;
mod config;
mod data;
pub mod descriptors;
pub mod direct;
pub mod disk;
mod error;
mod event;
mod front_end;
mod handle;
mod handshake;
mod host;
mod inbound;
pub mod journal;
mod link;
mod marks;
pub mod memory;
mod metrics;
mod nodes;
mod observer;
mod pace;
mod reactor;
mod repeats;
mod resolver;
mod router;
mod shortage;
mod socket;
mod storage;
mod timers;
mod tls;
mod worker;

pub use agreement::Agreement;
pub use answer::{Answer, NoAnswer};
pub use clock::{ClockConfig, ClockError, ClockReading, ClockSource, ClockState, ClockSurvey, survey};
pub use config::{HostConfig, Storage};
pub use data::{DataError, IdleDirectory, Incarnation, Owner, SEGMENTS, has_joined, owner_of};
pub use descriptors::{Descriptor, Descriptors};
pub use error::HostError;
pub use event::{EventSink, HostEvent};
pub use front_end::{BuildFrontEnd, ClientLimits, CloseReason, FrontEnd, FrontEndConfig, Session, SessionCx};
pub use handle::{Direction, HostHandle, HostView, LinkFault};
pub use host::Host;
pub use inbound::{Admission, AskAdmission};
pub use journal::{FsyncPlacement, JournalError, JournalOptions};
pub use link::{LinkStatus, Partner, PeerConfig};
pub use marks::RunStart;
pub use metrics::{ArchiveCounts, BlobCounts, Histogram, Metrics, ProtocolClients};
pub use observer::{ObservedBy, Observer};
pub use shortage::Shortage;
pub use tls::{ClientCertificates, PeerTls, ServerTls, TlsError, TlsFiles};
