//! What a reactor opens before it runs.

use super::{INBOUNDS, PEER_LISTENER, PORTS, Reactor};
use crate::config::HostConfig;
use crate::data::{DataDirectory, Incarnation};
use crate::disk::Disk;
use crate::error::HostError;
use crate::front_end::FrontEndConfig;
use crate::handshake::{Hello, PROTOCOL};
use crate::inbound::{Admission, Inbounds};
use crate::journal::{Journal, JournalOptions};
use crate::link::LinkSettings;
use crate::marks::{Marks, RunStart};
use kernel::Node;
use std::net::TcpListener;
use std::sync::Arc;

/// The journal on `disk`, which `directory` remembers from then on.
pub(super) fn journal(
    (disk, options): (Arc<dyn Disk>, JournalOptions),
    incarnation: Incarnation,
    directory: &mut Option<DataDirectory>,
    notify: Arc<dyn Fn() + Send + Sync>,
) -> Result<Journal, HostError> {
    if let Some(directory) = directory {
        directory.check_journal(&*disk)?;
    }
    let journal = Journal::open(disk, options, incarnation.0, notify)?;
    // A full disk has no room for the line; the next start adds it.
    if let Some(directory) = directory.as_mut().filter(|_| journal.extent_is_retained())
        && let Err(error) = directory.note_journal()
        && !error.is_shortage()
    {
        return Err(error.into());
    }
    Ok(journal)
}

/// What is reported to others of this run, and what they report: a disk without a data directory is a test's, and nobody else keeps two
/// under one name.
pub(super) fn marks(
    directory: Option<&DataDirectory>,
    journal: Option<&Journal>,
    drawn: u128,
) -> (Option<RunStart>, Marks) {
    let Some(directory) = directory else { return (None, Marks::default()) };
    let run_start = journal.map(|journal| RunStart { run: drawn, found: journal.batches_found() });
    (run_start, Marks::open(directory.path().to_owned()))
}

/// How this host's links and its ends of others' links begin.
pub(super) fn dealings(
    config: &mut HostConfig,
    incarnation: Incarnation,
    run_start: Option<RunStart>,
    marks: Marks,
    has_journal: bool,
) -> (LinkSettings, Inbounds) {
    let hello = Hello {
        protocol: PROTOCOL,
        cluster: config.cluster.0.clone(),
        from: config.name.clone(),
        to: String::new(),
        incarnation,
        message_version: config.message_version,
        message_version_min: config.message_version_min,
        agreement: config.agreement.values(),
        run_start,
    };
    let settings = LinkSettings {
        hello: hello.clone(),
        tls: config.tls.clone(),
        queue_bytes_max: config.queue_bytes_max,
        queue_bytes_max_down: config.queue_bytes_max_down,
        frame_body_max: config.frame_body_max,
    };
    let default = if has_journal { Admission::FirstSeen } else { Admission::Any };
    let admission = config.admission.take().unwrap_or(default);
    let (tls, joining_max, frame_body_max) = (config.tls.clone(), config.joining_max, config.frame_body_max);
    let inbounds = Inbounds::new(hello, tls, admission, joining_max, marks, frame_body_max, INBOUNDS);
    (settings, inbounds)
}

impl<N: Node + 'static> Reactor<N> {
    /// Listens for hosts and for clients.
    pub(super) fn listen(
        &mut self,
        hosts: Option<TcpListener>,
        front_ends: Vec<FrontEndConfig<N::Family>>,
    ) -> Result<(), HostError> {
        let io = |action| move |source| HostError::Io { action, source };
        if let Some(listener) = hosts {
            self.inbounds
                .listen(listener, PEER_LISTENER, self.poll.registry())
                .map_err(io("listen for hosts"))?;
        }
        for front_end in front_ends {
            self.clients
                .listen(front_end, PORTS, self.poll.registry(), self.clock.now())
                .map_err(io("listen for clients"))?;
        }
        Ok(())
    }
}
