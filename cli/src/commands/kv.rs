//! `ordinate kv`: the key-value service from the command line.

use super::admin::{GRANT_REMEDY, GivenToken};
use super::output::GivenOutput;
pub use super::output::Output;
use super::reached::{is_another_port, listening};
use crate::failure::{Exit, Failure};
use clap::Subcommand;
use ordinate_client::{
    AccessToken, CallError, Client, Credentials, Expect, FuzzyLog, Level, Log, Sequence, Swap, Tls, TlsFiles,
    TxnClient, Versioned,
};
use serde_json::json;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// How long the host of this process may take for an answer.
const OWN_HOST_WITHIN: Duration = Duration::from_secs(30);

/// Where and how to ask.
#[derive(clap::Args, Clone)]
pub struct Endpoint {
    /// Native addresses of the cluster, separated by commas
    #[arg(
        long,
        env = "ORDINATE_ENDPOINTS",
        default_value = "127.0.0.1:7071",
        value_delimiter = ',',
        value_parser = super::admin::native_address,
        global = true
    )]
    endpoints: Vec<String>,
    /// How long to wait for an answer, in seconds
    #[arg(long, default_value = "10", value_parser = super::seconds, global = true)]
    timeout: Duration,
    #[command(flatten)]
    certificates: Certificates,
    #[command(flatten)]
    token: GivenToken,
    #[command(flatten)]
    output: GivenOutput,
}

/// TLS of a client.
#[derive(clap::Args, Clone)]
pub struct Certificates {
    /// The authority that signed the hosts' certificates; switches TLS on
    #[arg(long, env = "ORDINATE_TLS_CA", value_name = "FILE", requires = "tls_cert", global = true)]
    tls_ca: Option<PathBuf>,
    /// This client's certificate
    #[arg(long, env = "ORDINATE_TLS_CERT", value_name = "FILE", requires = "tls_key", global = true)]
    tls_cert: Option<PathBuf>,
    /// This client's private key
    #[arg(long, env = "ORDINATE_TLS_KEY", value_name = "FILE", requires = "tls_ca", global = true)]
    tls_key: Option<PathBuf>,
}

impl Certificates {
    /// Reads the files, if TLS is on.
    pub fn load(&self) -> Result<Option<Tls>, Failure> {
        load_tls([&self.tls_ca, &self.tls_cert, &self.tls_key])
    }
}

/// TLS by authority, certificate and key, if they are given.
pub fn load_tls(files: [&Option<PathBuf>; 3]) -> Result<Option<Tls>, Failure> {
    let [Some(ca), Some(cert), Some(key)] = files else { return Ok(None) };
    let files = TlsFiles { ca: ca.clone(), cert: cert.clone(), key: key.clone() };
    Tls::load(&files).map(Some).map_err(|error| {
        let remedy = "give --tls-ca, --tls-cert and --tls-key; `ordinate tls init` makes them";
        Failure::input("O1006", "the TLS files cannot be used", error.to_string(), remedy)
    })
}

impl Endpoint {
    /// Of the host that this process serves, with its own certificate.
    pub fn of_host(file: &server::cluster::ClusterFile, token: GivenToken) -> Self {
        let tls = file.tls.as_ref();
        let certificates = Certificates {
            tls_ca: tls.map(|tls| tls.ca.clone()),
            tls_cert: tls.map(|tls| tls.cert.clone()),
            tls_key: tls.map(|tls| tls.key.clone()),
        };
        let (endpoints, output) = (vec![file.listen.native.clone()], GivenOutput::default());
        Self { endpoints, timeout: OWN_HOST_WITHIN, certificates, token, output }
    }

    /// The TLS that clients use, if it is on.
    pub fn tls(&self) -> Result<Option<Tls>, Failure> {
        self.certificates.load()
    }

    /// Runs what is asked of these addresses, with what shows who asks.
    fn run<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(Vec<String>, Credentials) -> F,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::failed("O1000", "cannot start", error.to_string(), ""))?;
        let GivenToken(token) = &self.token;
        let token = token.as_ref().map(AccessToken::new);
        let credentials = Credentials { tls: self.certificates.load()?, token };
        // Clients are made inside of the runtime.
        runtime.block_on(async { ask(self.endpoints.clone(), credentials).await })
    }

    /// Runs `ask` with a client.
    pub fn with_client<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure> {
        self.run(|endpoints, credentials| {
            ask(Client::connect_as(endpoints, credentials).with_timeout(self.timeout))
        })
    }

    /// Runs `ask` with a client of the sequence.
    pub fn with_sequence<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(Sequence) -> F,
    ) -> Result<T, Failure> {
        self.run(|endpoints, credentials| {
            ask(Sequence::connect_as(endpoints, credentials).with_timeout(self.timeout))
        })
    }

    /// Runs `ask` with a client of the transaction service.
    pub fn with_transactions<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(TxnClient) -> F,
    ) -> Result<T, Failure> {
        self.run(|endpoints, credentials| {
            ask(TxnClient::connect_as(endpoints, credentials).with_timeout(self.timeout))
        })
    }

    /// Runs `ask` with a client of the shared log.
    pub fn with_log<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(Log) -> F,
    ) -> Result<T, Failure> {
        self.run(|endpoints, credentials| {
            ask(Log::connect_as(endpoints, credentials).with_timeout(self.timeout))
        })
    }

    /// Runs `ask` with a client of the partially ordered log.
    pub fn with_fuzzylog<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl FnOnce(FuzzyLog) -> F,
    ) -> Result<T, Failure> {
        self.run(|endpoints, credentials| {
            ask(FuzzyLog::connect_as(endpoints, credentials).with_timeout(self.timeout))
        })
    }

    /// How results are printed.
    pub fn output(&self) -> Output {
        self.output.0
    }

    /// The token that was given.
    pub fn token(&self) -> &GivenToken {
        &self.token
    }

    /// A failed call that surely changed nothing, in the user's terms.
    pub fn explain_unexecuted(&self, error: &CallError) -> Failure {
        match error {
            CallError::TimedOut(after) => {
                self.unanswered(format!("no answer within {after:?}; nothing was executed"))
            }
            CallError::TurnedAway { after, why } => {
                let fact = format!("no answer within {after:?}; {why}; nothing was executed");
                Failure { fact, ..self.explain(error) }
            }
            CallError::NotSent(_)
            | CallError::MaybeExecuted
            | CallError::Refused
            | CallError::Invalid(_)
            | CallError::Conflict
            | CallError::DiskFull
            | CallError::NotGranted
            | CallError::Busy
            | CallError::Unreadable(_)
            | CallError::Off(_)
            | CallError::Closed => self.explain(error),
        }
    }

    /// How a command ends whose calls may have been executed.
    pub fn exit_unknown(&self) -> Exit {
        if listening(&self.endpoints).is_empty() { Exit::Unreachable } else { Exit::Failed }
    }

    /// No answer came: because no host is there, or because those that are do not hear enough of the others.
    fn unanswered(&self, fact: String) -> Failure {
        let there = listening(&self.endpoints);
        if there.is_empty() {
            return Failure::unreachable(&self.endpoints.join(","), fact);
        }
        if self.certificates.tls_ca.is_none() && there.iter().all(|endpoint| is_another_port(endpoint)) {
            let fact =
                format!("{fact}; {} closes connections of clients: it is no native port", there.join(","));
            let remedy = "ordinate config explain listen.native  (with TLS: --tls-ca, --tls-cert, --tls-key)";
            return Failure {
                remedy: remedy.into(),
                ..Failure::unreachable(&self.endpoints.join(","), fact)
            };
        }
        let what = format!("hosts listen at {}, and the cluster does not answer", there.join(","));
        let remedy = "ordinate status --admin ADDRESS  (it says whether a majority is heard)";
        Failure { exit: Exit::Unreachable, ..Failure::input("O4003", what, fact, remedy) }
    }

    /// A failed call in the user's terms.
    pub fn explain(&self, error: &CallError) -> Failure {
        match error {
            CallError::TimedOut(_) | CallError::NotSent(_) => self.unanswered(error.to_string()),
            CallError::TurnedAway { .. } => Failure {
                exit: Exit::Unreachable,
                ..Failure::input(
                    "O4002",
                    format!("no host at {} serves this client", self.endpoints.join(",")),
                    error.to_string(),
                    "--endpoints with the native addresses of hosts that serve (ordinate cluster members list)",
                )
            },
            CallError::Off(_) => service_off(error.to_string()),
            CallError::Refused | CallError::Invalid(_) => Failure::input(
                "O1002",
                "the request was refused and not executed",
                error.to_string(),
                "ordinate kv --help",
            ),
            CallError::MaybeExecuted => Failure::failed(
                "O1003",
                "the write may have been executed",
                error.to_string(),
                "ordinate kv get KEY",
            ),
            CallError::NotGranted => {
                let what = "the cluster refuses this: it was not granted";
                Failure::failed("O1050", what, error.to_string(), GRANT_REMEDY)
            }
            CallError::DiskFull => Failure::failed(
                "O1025",
                "the disk is full: the request was not executed",
                error.to_string(),
                "make room; ordinate status shows which host's disk is full",
            ),
            CallError::Busy => Failure::failed(
                "O1024",
                "the service is busy: the request was not executed",
                error.to_string(),
                "the same again later",
            ),
            CallError::Conflict | CallError::Unreadable(_) | CallError::Closed => {
                Failure::failed("O1001", "the call failed", error.to_string(), "ordinate status")
            }
        }
    }
}

/// The cluster's file does not have the service that was called.
pub fn service_off(fact: String) -> Failure {
    let remedy = "ordinate status --admin ADDRESS  (it says which services a cluster has)";
    Failure::input("O1066", "the service is off at this cluster: nothing was executed", fact, remedy)
}

/// How fresh a read must be.
#[derive(clap::ValueEnum, Clone, Copy)]
pub enum Consistency {
    /// Sees every write that was answered before
    Linearizable,
    /// Sees what this command has seen
    Sequential,
    /// Sees some earlier state
    Eventual,
}

/// The key-value service
#[derive(Subcommand)]
pub enum Kv {
    /// Print what a key holds
    Get {
        /// The key
        key: String,
        /// How fresh
        #[arg(long, value_enum, default_value = "linearizable")]
        consistency: Consistency,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Set a key
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        /// Only if it was last written at this version
        #[arg(long)]
        if_version: Option<u64>,
        /// Only if it does not exist
        #[arg(long, conflicts_with = "if_version")]
        if_absent: bool,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Remove a key
    Del {
        /// The key
        key: String,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Add to a number
    Incr {
        /// The key
        key: String,
        /// What to add
        #[arg(default_value_t = 1, allow_hyphen_values = true)]
        by: i64,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// List keys in order
    Scan {
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// How fresh
        #[arg(long, value_enum, default_value = "linearizable")]
        consistency: Consistency,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
}

impl From<Consistency> for Level {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Level::Linearizable,
            Consistency::Sequential => Level::Sequential,
            Consistency::Eventual => Level::Eventual,
        }
    }
}

/// The first key after all that begin with `prefix`; none if there is no such key.
pub fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

impl Kv {
    /// Asks and prints.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Get { key, consistency, output, endpoint } => {
                get(&key, consistency.into(), output, &endpoint)
            }
            Self::Put { key, value, if_version, if_absent, endpoint } => {
                let expect = if_version.map(Expect::Version).or(if_absent.then_some(Expect::Absent));
                put(&key, &value, expect, &endpoint)
            }
            Self::Del { key, endpoint } => {
                let (key, endpoint) = (&key, &endpoint);
                let done = |client: Client| async move {
                    client.delete(key).await.map_err(|error| endpoint.explain(&error))
                };
                let deleted = endpoint.with_client(done)?;
                endpoint.output().print(
                    || json!({ "key": key, "deleted": deleted }),
                    || if deleted { "deleted" } else { "there was no such key" }.to_owned(),
                );
                Ok(())
            }
            Self::Incr { key, by, endpoint } => {
                let (key, endpoint) = (&key, &endpoint);
                let done = |client: Client| async move {
                    client.increment(key, by).await.map_err(|error| endpoint.explain(&error))
                };
                let number = endpoint.with_client(done)?;
                let output = endpoint.output();
                output.print(|| json!({ "key": key, "number": number }), || number.to_string());
                Ok(())
            }
            Self::Scan { prefix, limit, consistency, output, endpoint } => {
                scan(&prefix, limit, consistency.into(), output, &endpoint)
            }
        }
    }
}

fn get(key: &str, level: Level, output: Output, endpoint: &Endpoint) -> Result<(), Failure> {
    let ask = |client: Client| async move {
        client.get(key, level).await.map_err(|error| endpoint.explain_unexecuted(&error))
    };
    let Some(found) = endpoint.with_client(ask)? else {
        return Err(Failure::failed(
            "O1004",
            format!("no key {key}"),
            "",
            format!("ordinate kv put {key} VALUE"),
        ));
    };
    let value = String::from_utf8_lossy(&found.value);
    match output {
        Output::Table => println!("{value}"),
        Output::Json => {
            println!("{}", json!({ "key": key, "value": value, "version": found.version }))
        }
    }
    Ok(())
}

fn put(key: &str, value: &str, expect: Option<Expect<'static>>, endpoint: &Endpoint) -> Result<(), Failure> {
    let ask = |client: Client| async move {
        let swap = match expect {
            Some(expect) => client.compare_and_set(key, expect, Some(value.as_bytes())).await,
            None => client.put(key, value).await.map(|version| Swap::Done { version }),
        };
        swap.map_err(|error| endpoint.explain(&error))
    };
    match endpoint.with_client(ask)? {
        Swap::Done { version } => {
            let output = endpoint.output();
            output.print(|| json!({ "key": key, "version": version }), || format!("version {version}"));
            Ok(())
        }
        Swap::Mismatch { found } => {
            let holds = |found: Versioned| {
                let value = String::from_utf8_lossy(&found.value).into_owned();
                format!("it holds \"{value}\" at version {}", found.version)
            };
            Err(not_as_expected(key, found.map_or_else(|| "it does not exist".to_owned(), holds)))
        }
        Swap::MismatchAt { version } => Err(not_as_expected(key, format!("it is at version {version}"))),
    }
}

fn not_as_expected(key: &str, fact: String) -> Failure {
    Failure::failed(
        "O1005",
        format!("{key} is not as expected; nothing was changed"),
        fact,
        format!("ordinate kv get {key} -o json"),
    )
}

fn scan(prefix: &str, limit: u32, level: Level, output: Output, endpoint: &Endpoint) -> Result<(), Failure> {
    let end = end_of_prefix(prefix);
    let ask = |client: Client| async move {
        let (mut items, mut start) = (Vec::new(), prefix.as_bytes().to_vec());
        loop {
            let wanted = limit - items.len() as u32;
            let page = client
                .scan(&start, end.as_deref(), wanted, level)
                .await
                .map_err(|error| endpoint.explain_unexecuted(&error))?;
            items.extend(page.items);
            match page.next {
                Some(next) if (items.len() as u32) < limit => start = next,
                next => return Ok((items, next)),
            }
        }
    };
    let (items, next) = endpoint.with_client(ask)?;
    for item in items {
        let (key, value) =
            (String::from_utf8_lossy(&item.key), String::from_utf8_lossy(&item.versioned.value));
        match output {
            Output::Table => println!("{key}\t{value}"),
            Output::Json => {
                println!("{}", json!({ "key": key, "value": value, "version": item.versioned.version }))
            }
        }
    }
    if next.is_some() {
        eprintln!("there are more; raise --limit {limit}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    // A wrong bound would leave keys out of a listing, or list foreign ones.
    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(super::end_of_prefix("ab"), Some(b"ac".to_vec()));
        assert_eq!(super::end_of_prefix("a\u{7f}"), Some(vec![b'a', 0x80]));
        assert_eq!(super::end_of_prefix(""), None);
    }
}
