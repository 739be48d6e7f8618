//! A process of an application that uses several services (libRSS, the RSS paper, section 4).

use crate::{CallError, Client, Level, Log, TxnClient, TxnError, Versioned};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::Mutex;
use wire::rss::{CausalContext, Composition, ServiceName, Token, extract, inject};
use wire::txn::Timestamp;

/// The services that a process can have; each is called as it is in baggage and in the cluster file.
const TXN: &str = "txn";
const LOG: &str = "log";
const KV: &str = "kv";

/// Why a process may not turn to a service, or take in a message. Nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProcessError {
    /// The service used last could not be fenced. Safe to retry.
    #[error("the fence of {service} has not passed, so nothing was sent: {source}")]
    Fence {
        /// Whose fence.
        service: ServiceName,
        /// Why.
        source: TxnError,
    },
    /// The process was made without this service.
    #[error("the process has no service {0}")]
    NoSuchService(ServiceName),
    /// The header has no room for what the process knows.
    #[error("the baggage has no room for what the process knows: do not send the message without it")]
    Full,
    /// A header that is not ours, or was truncated.
    #[error("the baggage cannot be read, so nothing of it was taken in")]
    Malformed,
}

/// A process that uses several services of a cluster, one call after the other. It runs the fence of the service that it used last
/// before it turns to another one, and carries what it knows to other processes: services that are RSS each stay RSS together.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ordinate_client::{Log, Process, TxnClient, TxnLevel};
/// let hosts = ["127.0.0.1:7071"];
/// let process = Process::new().with_txn(TxnClient::connect(hosts)).with_log(Log::connect(hosts));
/// let found = process.txn().await?.read(TxnLevel::Rss).keys(["photo/1"]).run().await?;
/// // The fence of `txn` runs here: a reader of the log finds the photo.
/// process.log().await?.append("thumbnails", ["photo/1"].into_iter().collect()).await?;
/// let header = process.carry().await;
/// # let _ = (found, header);
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same process. The log, the key-value store and the coordination service are linearizable, so their fences are empty;
/// reads of the key-value store that are weaker cannot be asked for here.
#[derive(Clone, Debug, Default)]
pub struct Process {
    txn: Option<TxnClient>,
    log: Option<Log>,
    kv: Option<Client>,
    /// Linearizable services that are called by other means.
    others: Vec<ServiceName>,
    knows: Arc<Mutex<Composition>>,
}

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).expect("the services' names are short and not empty")
}

impl Process {
    /// A process without services, which has used nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with the transaction service, in this session.
    #[must_use]
    pub fn with_txn(mut self, client: TxnClient) -> Self {
        self.txn = Some(client);
        self
    }

    /// The same with the shared log.
    #[must_use]
    pub fn with_log(mut self, client: Log) -> Self {
        self.log = Some(client);
        self
    }

    /// The same with the key-value store.
    #[must_use]
    pub fn with_kv(mut self, client: Client) -> Self {
        self.kv = Some(client);
        self
    }

    /// The same with a linearizable service that is called by other means, as "coordination" is by clients of ZooKeeper. Before each
    /// of its calls [`Process::turn_to`] has to be awaited.
    #[must_use]
    pub fn with_linearizable(mut self, service: ServiceName) -> Self {
        self.others.push(service);
        self
    }

    fn has(&self, service: &ServiceName) -> bool {
        match service.as_str() {
            TXN => self.txn.is_some(),
            LOG => self.log.is_some(),
            KV => self.kv.is_some(),
            _ => self.others.contains(service),
        }
    }

    /// Runs the fences that have to run before a call of this service.
    ///
    /// # Errors
    /// If one does not pass: the call must not be made.
    pub async fn turn_to(&self, service: &ServiceName) -> Result<(), ProcessError> {
        if !self.has(service) {
            return Err(ProcessError::NoSuchService(service.clone()));
        }
        let mut knows = self.knows.lock().await;
        for last in knows.fences_before(service) {
            if last.as_str() == TXN {
                let client = self.txn.as_ref().ok_or_else(|| ProcessError::NoSuchService(last.clone()))?;
                let fenced = client.fence().await;
                fenced.map_err(|source| ProcessError::Fence { service: last.clone(), source })?;
            }
            knows.on_fenced(&last);
        }
        knows.on_start(service);
        Ok(())
    }

    /// The transaction service, to be called now.
    ///
    /// # Errors
    /// If a fence does not pass, or the process has no such service.
    pub async fn txn(&self) -> Result<&TxnClient, ProcessError> {
        self.turn_to(&name(TXN)).await?;
        self.txn.as_ref().ok_or_else(|| ProcessError::NoSuchService(name(TXN)))
    }

    /// The shared log, to be called now.
    ///
    /// # Errors
    /// As for [`Process::txn`].
    pub async fn log(&self) -> Result<&Log, ProcessError> {
        self.turn_to(&name(LOG)).await?;
        self.log.as_ref().ok_or_else(|| ProcessError::NoSuchService(name(LOG)))
    }

    /// The key-value store, to be called now.
    ///
    /// # Errors
    /// As for [`Process::txn`].
    pub async fn kv(&self) -> Result<LinearizableKv<'_>, ProcessError> {
        self.turn_to(&name(KV)).await?;
        self.kv.as_ref().map(LinearizableKv).ok_or_else(|| ProcessError::NoSuchService(name(KV)))
    }

    /// What the process knows, as a header `baggage` (W3C) for a message to another process.
    pub async fn carry(&self) -> String {
        self.carry_beside("").await.expect("an empty header has room for a token of eight bytes")
    }

    /// The same beside the entries that a header has already.
    ///
    /// # Errors
    /// If it has no room: the message must not go without.
    pub async fn carry_beside(&self, header: &str) -> Result<String, ProcessError> {
        let mut context =
            CausalContext { last: self.knows.lock().await.last().clone(), ..CausalContext::default() };
        let seen = self.txn.as_ref().map(TxnClient::token).filter(|token| *token > Timestamp(0));
        if let Some(token) = seen {
            context.tokens.insert(name(TXN), Token::Inline(token.0.to_le_bytes().to_vec()));
        }
        let injected = inject(&mut context, header, |_| Ok::<u64, Infallible>(0));
        injected.map(|injected| injected.header).map_err(|_| ProcessError::Full)
    }

    /// Takes in the header `baggage` of a message from another process; one without our entry changes nothing.
    ///
    /// # Errors
    /// If it cannot be read, or names a service that the process does not have and could not fence.
    pub async fn receive(&self, header: &str) -> Result<(), ProcessError> {
        let Some(context) = extract(header).map_err(|_| ProcessError::Malformed)? else { return Ok(()) };
        if let Some(unknown) = context.last.iter().find(|service| !self.has(service)) {
            return Err(ProcessError::NoSuchService(unknown.clone()));
        }
        if let Some(Token::Inline(bytes)) = context.tokens.get(&name(TXN)) {
            let bytes = bytes[..].try_into().map_err(|_| ProcessError::Malformed)?;
            let client = self.txn.as_ref().ok_or_else(|| ProcessError::NoSuchService(name(TXN)))?;
            client.absorb(Timestamp(u64::from_le_bytes(bytes)));
        }
        self.knows.lock().await.on_context(&context);
        Ok(())
    }
}

/// The key-value store without its weaker reads, which would not compose.
#[derive(Clone, Copy, Debug)]
pub struct LinearizableKv<'a>(&'a Client);

impl LinearizableKv<'_> {
    /// As [`Client::get`], linearizable.
    ///
    /// # Errors
    /// As there.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Versioned>, CallError> {
        self.0.get(key, Level::Linearizable).await
    }

    /// As [`Client::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, CallError> {
        self.0.put(key, value).await
    }

    /// As [`Client::delete`].
    ///
    /// # Errors
    /// As there.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, CallError> {
        self.0.delete(key).await
    }

    /// As [`Client::increment`].
    ///
    /// # Errors
    /// As there.
    pub async fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, CallError> {
        self.0.increment(key, by).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        // Nothing answers there; fences fail after the time limit.
        let txn = TxnClient::connect(["127.0.0.1:1"]).with_timeout(std::time::Duration::from_millis(50));
        Process::new().with_txn(txn).with_log(Log::connect(["127.0.0.1:1"]))
    }

    // A process that goes on after a fence that did not pass lets others miss what it has seen.
    #[tokio::test]
    async fn a_fence_that_does_not_pass_keeps_the_process_from_another_service() {
        let process = process();
        process.txn().await.expect("nothing was used before");
        assert!(matches!(process.log().await, Err(ProcessError::Fence { .. })));
        assert!(matches!(process.log().await, Err(ProcessError::Fence { .. })), "it is not forgotten");
        process.txn().await.expect("the same service needs no fence");
        assert!(matches!(process.kv().await, Err(ProcessError::NoSuchService(_))));
    }

    // What is lost on the way to another process is lost for all that follows there.
    #[tokio::test]
    async fn what_a_process_knows_arrives_with_its_message() {
        let (sender, receiver) = (process(), process());
        sender.txn().await.expect("nothing was used before");
        sender.txn.as_ref().expect("it has one").absorb(Timestamp(77));
        receiver.receive(&sender.carry().await).await.expect("it has the same services");
        assert_eq!(receiver.txn.as_ref().map(TxnClient::token), Some(Timestamp(77)));
        assert!(matches!(receiver.log().await, Err(ProcessError::Fence { .. })), "the sender used txn last");
        receiver.receive("other=1").await.expect("nothing of ours");
        assert_eq!(receiver.receive("ordinate=v1.!!").await, Err(ProcessError::Malformed));
        let poor = Process::new().with_log(Log::connect(["127.0.0.1:1"]));
        assert!(matches!(poor.receive(&sender.carry().await).await, Err(ProcessError::NoSuchService(_))));
    }

    // A linearizable service needs no fence: waiting for one would only cost time.
    #[tokio::test]
    async fn linearizable_services_are_left_at_once() {
        let coordination = name("coordination");
        let process = process().with_linearizable(coordination.clone());
        process.log().await.expect("nothing was used before");
        process.turn_to(&coordination).await.expect("the log's fence is empty");
        process.txn().await.expect("so is this one's");
    }
}
