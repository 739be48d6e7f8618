//! Names into addresses, on a thread of its own: the system's resolver blocks.

use kernel::HostId;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

/// An answer: which link asked, and what its name stands for now.
pub(crate) type Resolved = (HostId, Result<SocketAddr, String>);

/// Starts its thread at the first name that is not an address itself. The thread ends with this value, or with the lookup
/// it is in then.
pub(crate) struct Resolver {
    names: Option<Sender<(HostId, String)>>,
    answers: Receiver<Resolved>,
    outbox: Sender<Resolved>,
    notify: std::sync::Arc<dyn Fn() + Send + Sync>,
}

impl Resolver {
    pub(crate) fn new(notify: std::sync::Arc<dyn Fn() + Send + Sync>) -> Self {
        let (outbox, answers) = channel();
        Self { names: None, answers, outbox, notify }
    }

    /// The address at once if `name` is one, else later by `poll`.
    pub(crate) fn resolve(&mut self, host: HostId, name: &str) -> Option<Result<SocketAddr, String>> {
        if let Ok(address) = name.parse() {
            return Some(Ok(address));
        }
        if self.names.is_none() {
            let (names, inbox) = channel::<(HostId, String)>();
            let (outbox, notify) = (self.outbox.clone(), std::sync::Arc::clone(&self.notify));
            let spawned = std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
                for (host, name) in inbox {
                    if outbox.send((host, look_up(&name))).is_err() {
                        return;
                    }
                    notify();
                }
            });
            if let Err(error) = spawned {
                return Some(Err(format!("cannot look up {name}: {error}")));
            }
            self.names = Some(names);
        }
        let names = self.names.as_ref()?;
        names.send((host, name.to_owned())).is_err().then(|| Err(format!("cannot look up {name}")))
    }

    pub(crate) fn poll(&mut self) -> Option<Resolved> {
        self.answers.try_recv().ok()
    }
}

fn look_up(name: &str) -> Result<SocketAddr, String> {
    let mut addresses = name.to_socket_addrs().map_err(|error| format!("cannot look up {name}: {error}"))?;
    addresses.next().ok_or_else(|| format!("{name} has no address"))
}
