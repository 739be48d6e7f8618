//! Starting a host, and waiting for its end.

use crate::agreement::Agreement;
use crate::blobs::Archive;
use crate::clock::{ClockError, ClockSource};
use crate::data::{DataDirectory, DataError, Incarnation, JOURNAL, Owner, SEGMENTS, random_u128};
use crate::descriptors::Descriptors;
use crate::disk::{Disk, RealDisk};
use crate::event::EventSink;
use crate::front_end::FrontEndConfig;
use crate::handle::HostHandle;
use crate::inbound::Admission;
use crate::journal::{JournalError, JournalOptions};
use crate::link::PeerConfig;
use crate::reactor::Reactor;
use crate::tls::PeerTls;
use kernel::{ClusterName, DecodeError, HostId, HostSlot, Node, Position};
use std::any::Any;
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Where a host keeps what it must not forget.
#[derive(Clone)]
pub enum Storage {
    /// Nowhere: messages are not held for any disk, and a restart begins from nothing.
    Memory,
    /// In a data directory.
    Directory {
        /// Which; made if it is not there.
        path: PathBuf,
        /// The journal's settings.
        journal: JournalOptions,
    },
    /// In a journal on the given disk, with the blobs beside it, without lock or owner: for tests.
    Disk {
        /// The directory.
        disk: Arc<dyn Disk>,
        /// The journal's settings.
        journal: JournalOptions,
    },
}

/// Everything a host needs to know; `HostConfig::new` has the defaults.
pub struct HostConfig {
    /// Peers and data directories of another cluster are refused.
    pub cluster: ClusterName,
    /// This host's name: its identity.
    pub name: String,
    /// Where other hosts connect.
    pub listen: Option<TcpListener>,
    /// The other hosts.
    pub peers: Vec<PeerConfig>,
    /// What survives a restart.
    pub storage: Storage,
    /// This host joins a living cluster: a data directory that is made by this start remembers it, see
    /// [`has_joined`](crate::has_joined).
    pub joins: bool,
    /// What all hosts must have alike; peers that differ are refused, and so is a data directory that was made with other values
    /// of what is for run.
    pub agreement: Agreement,
    /// Nodes that no longer live here, whose records may be forgotten.
    pub forget: Vec<HostSlot>,
    /// The wall clock.
    pub clock: ClockSource,
    /// Which incarnations of other hosts are let in; `None`: any without storage, else the first that is seen.
    pub admission: Option<Admission>,
    /// Hosts of the cluster that are no peers yet and are heard all the same, so that they can ask to be made members;
    /// nothing can be sent to them before they are peers. Zero: none.
    pub joining_max: usize,
    /// TLS between hosts.
    pub tls: Option<PeerTls>,
    /// The highest version of the messages that this build understands.
    pub message_version: u32,
    /// The lowest version that it still talks to; hosts that understand less are refused, and so are those that need more.
    pub message_version_min: u32,
    /// Bytes queued for one host while its link is up; more are dropped.
    pub queue_bytes_max: usize,
    /// Bytes queued for one host while its link is down.
    pub queue_bytes_max_down: usize,
    /// The largest frame between hosts, and so the largest message, in bytes.
    pub frame_body_max: usize,
    /// What clients of all ports may have of the descriptors that this process may have.
    pub descriptors: Descriptors,
    /// Where blobs are archived, if nodes ask for it.
    pub archive: Option<Arc<dyn Archive>>,
    /// The seed of the nodes' randomness; `None` for a seed of the system's.
    pub seed: Option<u64>,
    /// Keep the nodes' notes and report them as events.
    pub tracing: bool,
    /// Where events go.
    pub events: Option<EventSink>,
}

impl HostConfig {
    /// A host on its own, in memory, with a clock error of 10 ms.
    pub fn new(cluster: &str, name: &str) -> Self {
        Self {
            cluster: ClusterName(cluster.to_owned()),
            name: name.to_owned(),
            listen: None,
            peers: Vec::new(),
            storage: Storage::Memory,
            joins: false,
            agreement: Agreement::default(),
            forget: Vec::new(),
            clock: ClockSource::Fixed { epsilon: Duration::from_millis(10) },
            admission: None,
            joining_max: 0,
            tls: None,
            message_version: 1,
            message_version_min: 1,
            queue_bytes_max: 64 << 20,
            queue_bytes_max_down: 1 << 20,
            frame_body_max: kernel::bounds::FRAME_BYTES_MAX,
            descriptors: Descriptors::default(),
            archive: None,
            seed: None,
            tracing: false,
            events: None,
        }
    }
}

/// Why a host does not start, or has stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The journal cannot be used (any more). Nothing that it did not confirm was acknowledged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another host knows that this one's journal had held more.
    #[error(
        "the journal has {found} batches, and host {peer} knows that it had {told}: its end is gone, or the data are an old copy"
    )]
    JournalBehind {
        /// Who knows.
        peer: String,
        /// How many batches there were.
        told: u64,
        /// How many there are.
        found: u64,
    },
    /// A blob cannot be written, for another reason than want of space.
    #[error("cannot {action} {}: {source}", file.display())]
    Blob {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no usable wall clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A record that this version cannot read.
    #[error("record {} of slot {} cannot be read: {cause}", position.0, host_slot.0)]
    Record {
        /// Whose.
        host_slot: HostSlot,
        /// Which.
        position: Position,
        /// Why.
        cause: DecodeError,
    },
    /// The journal holds records of a node that is not placed here.
    #[error("the journal holds {records} records of slot {}, which is not on this host", host_slot.0)]
    Orphan {
        /// Whose.
        host_slot: HostSlot,
        /// How many are still needed.
        records: u64,
    },
    /// Two nodes at one slot, or a slot kept for clients.
    #[error("slot {} cannot be used: given twice, or above {:#x}", host_slot.0, crate::clients::CLIENT_SLOTS)]
    Slot {
        /// Which.
        host_slot: HostSlot,
    },
    /// A bug: an assertion failed on the reactor's thread.
    #[error("a role panicked: {0}")]
    Panicked(String),
}

/// A running host. Dropping it stops it and waits for its end.
pub struct Host<N: Node + 'static> {
    handle: HostHandle<N>,
    incarnation: Incarnation,
    thread: Option<JoinHandle<Result<(), HostError>>>,
}

impl<N: Node + 'static> Host<N> {
    /// Starts a host: opens the journal, builds the nodes by calling `nodes` on the reactor's thread, gives them their
    /// records back, starts them, and listens. Returns when all that is done.
    pub fn start(
        config: HostConfig,
        nodes: impl FnOnce() -> Vec<(HostSlot, N)> + Send + 'static,
        front_ends: Vec<FrontEndConfig<N::Family>>,
    ) -> Result<Self, HostError> {
        let host = HostId::named(&config.name);
        let (ready, started) = sync_channel(1);
        let body = move || {
            let mut events = EventsOut(None);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let (mut config, storage) = open_storage(config)?;
                events.0 = config.events.take();
                let mut reactor = Reactor::new(config, storage, nodes(), front_ends)?;
                // The starter waits for this; if it is gone, so is the host's owner.
                let _ = ready.send((reactor.inlet(), reactor.incarnation()));
                reactor.run(&mut events.0)
            }));
            let outcome = outcome.unwrap_or_else(|panic| Err(HostError::Panicked(text_of(&*panic))));
            if let (Err(error), Some(events)) = (&outcome, &mut events.0) {
                events(&crate::event::HostEvent::Stopping { reason: error.to_string() });
            }
            outcome
        };
        let thread = std::thread::Builder::new()
            .name("reactor".to_owned())
            .spawn(body)
            .map_err(|source| HostError::Io { action: "start a thread", source })?;
        match started.recv() {
            Ok((inlet, incarnation)) => {
                Ok(Self { handle: HostHandle { host, inlet }, incarnation, thread: Some(thread) })
            }
            Err(_) => Err(match thread.join() {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => HostError::Panicked("the reactor ended before it began".to_owned()),
            }),
        }
    }

    /// For other threads.
    pub fn handle(&self) -> HostHandle<N> {
        self.handle.clone()
    }

    /// The incarnation of the data directory, or of this run without one.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Waits for the end: `Ok` after `stop` or `kill`, else why it stopped by itself.
    pub fn join(mut self) -> Result<(), HostError> {
        self.thread.take().map_or(Ok(()), joined)
    }

    /// Stops and waits.
    pub fn stop(self) -> Result<(), HostError> {
        self.handle.stop();
        self.join()
    }

    /// Stops as a crash does, and waits until every file and socket is closed.
    pub fn kill(self) -> Result<(), HostError> {
        self.handle.kill();
        self.join()
    }
}

impl<N: Node + 'static> Drop for Host<N> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.stop();
            // `join` gives the outcome.
            let _ = joined(thread);
        }
    }
}

struct EventsOut(Option<EventSink>);

fn joined(thread: JoinHandle<Result<(), HostError>>) -> Result<(), HostError> {
    thread.join().unwrap_or_else(|panic| Err(HostError::Panicked(text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text").to_owned()
}

/// What the storage came down to.
pub(crate) struct OpenStorage {
    pub(crate) incarnation: Incarnation,
    pub(crate) journal: Option<(Arc<dyn Disk>, JournalOptions)>,
    /// Where blobs are; none: in memory.
    pub(crate) blobs: Option<Arc<dyn Disk>>,
    /// Random numbers of this start.
    pub(crate) drawn: u128,
    /// Held until the host ends.
    pub(crate) directory: Option<DataDirectory>,
}

fn open_storage(config: HostConfig) -> Result<(HostConfig, OpenStorage), HostError> {
    let random = || random_u128().map_err(|source| HostError::Io { action: "read /dev/urandom", source });
    let (drawn, fresh) = (random()?, Incarnation(random()?));
    let storage = match &config.storage {
        Storage::Memory => {
            OpenStorage { incarnation: fresh, journal: None, blobs: None, drawn, directory: None }
        }
        Storage::Disk { disk, journal } => {
            let (journal, blobs) = (Some((Arc::clone(disk), *journal)), Some(Arc::clone(disk)));
            OpenStorage { incarnation: Incarnation(0), journal, blobs, drawn, directory: None }
        }
        Storage::Directory { path, journal } => {
            let owner = Owner {
                cluster: config.cluster.0.clone(),
                host: config.name.clone(),
                incarnation: fresh,
                joined: config.joins,
                made_with: config.agreement.fixed(),
                extent_kept: false,
            };
            let directory = DataDirectory::open(path, owner)?;
            let disk = |name, action| match RealDisk::new(path.join(name)) {
                Ok(disk) => Ok(Arc::new(disk) as Arc<dyn Disk>),
                Err(source) => Err(HostError::Io { action, source }),
            };
            let journal = Some((disk(JOURNAL, "make the journal's directory")?, *journal));
            let blobs = Some(disk(SEGMENTS, "make the segments' directory")?);
            let incarnation = directory.incarnation;
            OpenStorage { incarnation, journal, blobs, drawn, directory: Some(directory) }
        }
    };
    Ok((config, storage))
}
