//! Which fence must run before which transaction.

use super::context::{CausalContext, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Why a transaction may not start. Nothing was sent: all of these are safe to retry.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CompositionError<E> {
    /// Nobody registered this service.
    #[error("service {0} is not registered with libRSS")]
    Unregistered(ServiceName),
    /// The service used last could not be fenced; the transaction must wait.
    #[error("the fence of service {service} failed")]
    Fence {
        /// Whose fence.
        service: ServiceName,
        /// What it said.
        source: E,
    },
    /// A service of this name is there already.
    #[error("service {0} is registered already")]
    Registered(ServiceName),
}

/// The rule without the callbacks, for clients that run fences themselves.
///
/// Invariant: every service in `last` has been used, here or by a sender, since its last fence here.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    last: BTreeSet<ServiceName>,
}

impl Composition {
    /// A process that used nothing yet.
    pub fn new() -> Composition {
        Composition::default()
    }

    /// The services whose fences must complete before a transaction at `service` starts. Report each with
    /// [`Composition::on_fenced`], then call [`Composition::on_start`].
    pub fn fences_before(&self, service: &ServiceName) -> Vec<ServiceName> {
        self.last.iter().filter(|last| *last != service).cloned().collect()
    }

    /// The fence of `service` completed.
    pub fn on_fenced(&mut self, service: &ServiceName) {
        self.last.remove(service);
    }

    /// A transaction at `service` starts. Panics if a fence before it is missing: the caller skipped it.
    pub fn on_start(&mut self, service: &ServiceName) {
        let missing = self.fences_before(service);
        assert!(missing.is_empty(), "a transaction at {service} starts without the fences of {missing:?}");
        self.last.insert(service.clone());
    }

    /// What another process knew arrived with a message.
    pub fn on_context(&mut self, context: &CausalContext) {
        self.last.extend(context.last.iter().cloned());
    }

    /// The services used last: they travel with every message this process sends.
    pub fn last(&self) -> &BTreeSet<ServiceName> {
        &self.last
    }
}

/// The paper's interface (Figure 3): services with their fences, and the call before each transaction.
///
/// ```
/// use wire::rss::{LibRss, ServiceName};
/// use std::{cell::RefCell, rc::Rc};
///
/// let fenced = Rc::new(RefCell::new(Vec::new()));
/// let mut library: LibRss<_> = LibRss::new();
/// for name in ["kv", "queue"] {
///     let fenced = fenced.clone();
///     let name = ServiceName::new(name).expect("short and not empty");
///     library.register_service(name.clone(), move || {
///         fenced.borrow_mut().push(name.to_string());
///         Ok::<(), std::convert::Infallible>(())
///     })?;
/// }
/// let (kv, queue) = (ServiceName::new("kv").unwrap(), ServiceName::new("queue").unwrap());
/// library.start_transaction(&kv)?;
/// library.start_transaction(&kv)?;
/// library.start_transaction(&queue)?;
/// assert_eq!(*fenced.borrow(), ["kv"]);
/// # Ok::<(), wire::rss::CompositionError<std::convert::Infallible>>(())
/// ```
pub struct LibRss<F> {
    fences: BTreeMap<ServiceName, F>,
    composition: Composition,
}

impl<E, F: FnMut() -> Result<(), E>> Default for LibRss<F> {
    fn default() -> LibRss<F> {
        LibRss::new()
    }
}

impl<E, F: FnMut() -> Result<(), E>> LibRss<F> {
    /// No services.
    pub fn new() -> LibRss<F> {
        LibRss { fences: BTreeMap::new(), composition: Composition::new() }
    }

    /// RegisterService: a client library names its service and how to fence it.
    pub fn register_service(&mut self, name: ServiceName, fence: F) -> Result<(), CompositionError<E>> {
        if self.fences.contains_key(&name) {
            return Err(CompositionError::Registered(name));
        }
        self.fences.insert(name, fence);
        Ok(())
    }

    /// UnregisterService. A service used last is fenced first: afterwards nobody could.
    pub fn unregister_service(&mut self, name: &ServiceName) -> Result<(), CompositionError<E>> {
        if self.composition.last().contains(name) {
            self.fence(name)?;
        }
        self.fences.remove(name);
        Ok(())
    }

    /// StartTransaction: runs the fences that must come first. On an error the transaction must not start.
    pub fn start_transaction(&mut self, name: &ServiceName) -> Result<(), CompositionError<E>> {
        if !self.fences.contains_key(name) {
            return Err(CompositionError::Unregistered(name.clone()));
        }
        for service in self.composition.fences_before(name) {
            self.fence(&service)?;
        }
        self.composition.on_start(name);
        Ok(())
    }

    /// What another process knew arrived with a message.
    pub fn on_context(&mut self, context: &CausalContext) {
        self.composition.on_context(context);
    }

    /// The services used last, for the context of messages to other processes.
    pub fn last(&self) -> &BTreeSet<ServiceName> {
        self.composition.last()
    }

    fn fence(&mut self, service: &ServiceName) -> Result<(), CompositionError<E>> {
        let fence =
            self.fences.get_mut(service).ok_or_else(|| CompositionError::Unregistered(service.clone()))?;
        fence().map_err(|source| CompositionError::Fence { service: service.clone(), source })?;
        self.composition.on_fenced(service);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    fn name(text: &str) -> ServiceName {
        ServiceName::new(text).expect("short and not empty")
    }

    #[test]
    fn a_fence_that_fails_stops_the_transaction_and_is_retried() {
        // Going on after a failed fence would lose the order across services.
        let (up, ran) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(0)));
        let mut library = LibRss::new();
        for service in ["a", "b"] {
            let (up, ran) = (up.clone(), ran.clone());
            let fence = move || {
                *ran.borrow_mut() += 1;
                if up.get() { Ok(()) } else { Err("down") }
            };
            library.register_service(name(service), fence).expect("registered once");
        }
        library.start_transaction(&name("a")).expect("nothing to fence");
        assert!(matches!(library.start_transaction(&name("b")), Err(CompositionError::Fence { .. })));
        assert_eq!(library.last().iter().collect::<Vec<_>>(), [&name("a")]);
        up.set(true);
        library.start_transaction(&name("b")).expect("the fence works now");
        assert_eq!(*ran.borrow(), 2);
        assert!(matches!(library.start_transaction(&name("c")), Err(CompositionError::Unregistered(_))));
    }

    #[test]
    fn unregistering_the_service_used_last_fences_it() {
        // Forgetting it would forget that its reads must be seen by all before the next service is used.
        let ran = Rc::new(Cell::new(0));
        let mut library = LibRss::new();
        for service in ["a", "b"] {
            let ran = ran.clone();
            let fence = move || {
                ran.set(ran.get() + 1);
                Ok::<(), ()>(())
            };
            library.register_service(name(service), fence).expect("registered once");
        }
        library.start_transaction(&name("a")).expect("nothing to fence");
        library.unregister_service(&name("a")).expect("the fence works");
        library.start_transaction(&name("b")).expect("nothing left to fence");
        assert_eq!(ran.get(), 1);
    }

    #[test]
    fn a_message_brings_the_senders_services() {
        // A receiver that knows only its own last service would let the pair form the cycle of section 4.1.
        let mut receiver = Composition::new();
        receiver.on_start(&name("a"));
        let context = CausalContext { last: [name("b")].into(), ..CausalContext::default() };
        receiver.on_context(&context);
        assert_eq!(receiver.fences_before(&name("a")), [name("b")]);
        assert_eq!(receiver.fences_before(&name("c")), [name("a"), name("b")]);
    }
}
