//! A host as other threads see it: commands go in through a queue, answers come out.

use crate::answer::{Answer, Promise, promise};
use crate::link::{LinkStatus, PeerConfig};
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use kernel::{Family, HostId, HostSlot, Instant, Node, NodeId};
use mio::Waker;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One end of the traffic with another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// What we send there.
    To,
    /// What arrives from there.
    From,
}

/// What can be done to a link on purpose, by tests and the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFault {
    /// Messages are dropped.
    Sever(Direction),
    /// They no longer are.
    Heal(Direction),
    /// Messages there leave this much later; zero for at once.
    Delay(Duration),
}

type Response<N> = <<N as Node>::Family as Family>::Response;
type Request<N> = <<N as Node>::Family as Family>::Request;
type Message<N> = <<N as Node>::Family as Family>::Message;
type Visit<N> = Box<dyn FnOnce(&HostView<'_, N>) + Send>;

pub(crate) enum Command<N: Node> {
    Request { host_slot: HostSlot, request: Request<N>, promise: Promise<Response<N>>, is_use: bool },
    Inject { from: NodeId, to: NodeId, message: Message<N> },
    Visit(Visit<N>),
    SetPeers(Vec<PeerConfig>),
    Fault { host: HostId, fault: LinkFault },
    SetClockOff(i64),
    Pause,
    Resume,
    Stop,
    Kill,
}

struct Queue<N: Node> {
    commands: Vec<Command<N>>,
    closed: bool,
}

/// The queue between the handles and the reactor.
pub(crate) struct Inlet<N: Node> {
    queue: Mutex<Queue<N>>,
    waker: Arc<Waker>,
}

impl<N: Node> Inlet<N> {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { queue: Mutex::new(Queue { commands: Vec::new(), closed: false }), waker }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<N>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, command: Command<N>) {
        let mut queue = self.queue();
        if queue.closed {
            return; // Dropping the command ends the wait for it.
        }
        let first = queue.commands.is_empty();
        queue.commands.push(command);
        drop(queue);
        if first {
            // Fails only if the process is out of file descriptors for good; the command is then found at the next
            // event.
            let _ = self.waker.wake();
        }
    }

    pub(crate) fn take(&self, into: &mut Vec<Command<N>>) {
        std::mem::swap(&mut self.queue().commands, into);
    }

    /// Nothing is taken any more.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let commands = std::mem::take(&mut queue.commands);
        drop(queue);
        drop(commands);
    }
}

/// A host's nodes and counters, while its reactor stands still.
pub struct HostView<'a, N: Node> {
    pub(crate) nodes: &'a Nodes<N>,
    pub(crate) metrics: Metrics,
    pub(crate) links: Vec<LinkStatus>,
}

impl<N: Node> HostView<'_, N> {
    /// The node at a slot.
    pub fn node(&self, host_slot: HostSlot) -> Option<&N> {
        self.nodes.find(host_slot).map(|index| &self.nodes.slots[index.0].node)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        self.nodes.slots.iter().map(|slot| (slot.id, &slot.node))
    }

    /// When it was looked at.
    pub fn now(&self) -> Instant {
        self.nodes.now
    }

    /// The links to the other hosts.
    pub fn links(&self) -> &[LinkStatus] {
        &self.links
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// A host, from any thread. All calls return at once; what they ask for happens on the reactor's thread, in the
/// order of the calls.
pub struct HostHandle<N: Node> {
    pub(crate) host: HostId,
    pub(crate) inlet: Arc<Inlet<N>>,
    /// What was seen of it of late, and when.
    pub(crate) seen: Arc<Mutex<Option<Seen>>>,
}

/// Somebody's view of a host, for others who want the same.
pub(crate) type Seen = (std::time::Instant, Arc<dyn Any + Send + Sync>);

impl<N: Node> Clone for HostHandle<N> {
    fn clone(&self) -> Self {
        Self { host: self.host, inlet: Arc::clone(&self.inlet), seen: Arc::clone(&self.seen) }
    }
}

impl<N: Node + 'static> HostHandle<N> {
    /// The host's identity.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Asks the node at `slot`. Without such a node the answer is `NoAnswer::Stopped`.
    pub fn request(&self, host_slot: HostSlot, request: Request<N>) -> Answer<Response<N>> {
        self.ask(host_slot, request, true)
    }

    /// The same for the host's own sake: a host that nobody else asks anything counts as unused.
    pub fn request_unused(&self, host_slot: HostSlot, request: Request<N>) -> Answer<Response<N>> {
        self.ask(host_slot, request, false)
    }

    fn ask(&self, host_slot: HostSlot, request: Request<N>, is_use: bool) -> Answer<Response<N>> {
        let (promise, answer) = promise();
        self.inlet.push(Command::Request { host_slot, request, promise, is_use });
        answer
    }

    /// Has a message delivered or sent as if `from` had sent it on this host.
    pub fn inject(&self, from: NodeId, to: NodeId, message: impl Into<Message<N>>) {
        self.inlet.push(Command::Inject { from, to, message: message.into() });
    }

    /// Calls `look` on the reactor's thread, between two bursts: everything waits meanwhile.
    pub fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&HostView<'_, N>) -> T + Send + 'static,
    ) -> Answer<T> {
        let (promise, answer) = promise();
        self.inlet.push(Command::Visit(Box::new(move |view| promise.keep(look(view)))));
        answer
    }

    /// Shows others what was seen just now: they need not have the reactor look for them. The latest of any type is shown.
    pub fn show<T: Send + Sync + 'static>(&self, seen: Arc<T>) {
        *self.seen() = Some((std::time::Instant::now(), seen));
    }

    /// What somebody has shown, not longer ago than this.
    pub fn shown<T: Send + Sync + 'static>(&self, within: Duration) -> Option<Arc<T>> {
        let (at, seen) = self.seen().clone()?;
        if at.elapsed() > within { None } else { seen.downcast().ok() }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the counters.
    pub fn metrics(&self) -> Answer<Metrics> {
        self.inspect(|view| view.metrics().clone())
    }

    /// The other hosts of the cluster from now on; links to others end.
    pub fn set_peers(&self, peers: Vec<PeerConfig>) {
        self.inlet.push(Command::SetPeers(peers));
    }

    /// Damages or heals the link with another host.
    pub fn fault(&self, host: HostId, fault: LinkFault) {
        self.inlet.push(Command::Fault { host, fault });
    }

    /// As if somebody had set the host's system clock so many nanoseconds ahead of what it is, or behind: for tests and the demo.
    pub fn set_clock_off(&self, nanoseconds: i64) {
        self.inlet.push(Command::SetClockOff(nanoseconds));
    }

    /// Stands still, as a process that the scheduler has forgotten: sockets fill up, timers run late.
    pub fn pause(&self) {
        self.inlet.push(Command::Pause);
    }

    /// Goes on.
    pub fn resume(&self) {
        self.inlet.push(Command::Resume);
    }

    /// Stops after the journal is durable and the sockets have taken what they take.
    pub fn stop(&self) {
        self.inlet.push(Command::Stop);
    }

    /// Stops as a crash does: what is not on the disk or in a socket is lost.
    pub fn kill(&self) {
        self.inlet.push(Command::Kill);
    }
}
