//! `ordinate serve`: one host of a cluster, until it is asked to stop.

use crate::commands::backup;
use crate::commands::files::Files;
use crate::failure::Failure;
use runtime::{ClockSource, DataError, EventSink, HostError, HostHandle, JournalError, ServerTls, Shortage};
use server::access::{Access, PolicyError};
use server::admin::{self, Admin, HttpPort};
use server::cluster::file::Overrides;
use server::cluster::removed::RegionsError;
use server::cluster::{ClusterFile, Durability, key_table, keys};
use server::events::{EventLog, LogFormat, LogPart, write_to_stderr};
use server::family::HostedNode;
use server::gate::Gate;
use server::health::HealthWatch;
use server::host::{self, Sockets};
use server::latency::Latencies;
use server::members;
use server::secure::HostTls;
use server::services::{CannotJoin, StartError};
use server::trace::{TraceError, Traces};
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a start frees goes back to the system this soon: a million znodes took 20 to 80 MiB less so.
const FREED_AT_START_RETAINED: Duration = Duration::from_millis(10);
/// A start is over when users have been served for so long.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Run one host of a cluster.
#[derive(clap::Args)]
pub struct Serve {
    /// The cluster file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Which host of it this is
    #[arg(long, value_name = "NAME")]
    host: String,
    /// This machine joins a living cluster: it waits to be made a member
    #[arg(long)]
    join: bool,
    /// Set a key of the cluster file, for example --set listen.native=0.0.0.0:7071
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Serve {
    /// Serves until SIGINT or SIGTERM.
    pub fn run(self) -> Result<(), Failure> {
        runtime::memory::keep_freed(FREED_AT_START_RETAINED);
        self.serve()
    }

    fn serve(self) -> Result<(), Failure> {
        let started = Instant::now();
        let mut file = read_file(&self.config, &self.set)?;
        let line = file.host(&self.host).cloned().ok_or_else(|| self.no_such_host(&file))?;
        file = as_data_have_it(file.seen_from(&self.host), &self.host)?;
        let refused = file.services().iter().find_map(|service| service.admits_joining().err());
        if let Some(CannotJoin { what, fact, remedy }) = refused.filter(|_| self.join) {
            return Err(Failure::input("O2005", what, fact, remedy));
        }
        let sockets = sockets(&file, &line.address)?;
        let admin = bind(&file.listen.admin, "listen.admin")?;
        let bind_if = |address: &Option<String>, key| address.as_ref().map(|at| bind(at, key)).transpose();
        let http = bind_if(&file.listen.http, "listen.http")?;
        let http_secure = bind_if(&file.listen.http_secure, "listen.http_secure")?;
        let files = Files::fit(&mut file)?;
        let log = self.begin_log(&file);
        let (gate, latencies) = (Gate::default(), Latencies::default());
        latencies.note_slower_than(file.slow_call());
        let events: EventSink = Box::new({
            let log = log.clone();
            move |event| log.take(event)
        });
        let tls = file.tls.as_ref().map(HostTls::load).transpose();
        let tls = tls.map_err(|error| explain(&StartError::Tls(error), &file, &self.host))?;
        let access = Access::open(file.access.as_deref(), &log).map_err(|error| no_access(&error, &file))?;
        let (traces, observer) = Traces::begin(&file, &self.host, &log).map_err(no_traces)?;
        let host = host::start(
            &file,
            &self.host,
            self.join,
            sockets,
            gate.clone(),
            &latencies,
            Some(events),
            files.clients.clone(),
            tls.clone(),
            &access,
            observer,
        )
        .map_err(|error| explain(&error, &file, &self.host))?;
        let handle = host.handle();
        let health = watch_health(&handle, &file, &self.host, started, &log)?;
        access.follow(log.clone()).map_err(not_watched)?;
        tls.as_ref().map(|tls| tls.follow(log.clone())).transpose().map_err(not_watched)?;
        let users_tls = tls.as_ref().map(|tls| tls.users.clone());
        let shared = Arc::new(Admin::new(
            handle.clone(),
            file.clone(),
            &self.host,
            started,
            latencies,
            health,
            access,
            tls,
            traces,
        ));
        let stop_admin = admin::serve(admin, &shared, files.admin).map_err(not_served)?;
        let ports = http_ports(users_tls, http, http_secure);
        let has_http = !ports.is_empty();
        let applications = || admin::serve_applications(ports, &shared, files.clients);
        let stop_http = has_http.then(applications).transpose().map_err(not_served)?;
        self.banner(&file, started);
        stop_on_signal(handle.clone(), log.clone())?;
        self.watch(handle, &file, gate, log, &shared)?;
        let ended = host.join();
        drop((stop_admin, stop_http));
        ended.map_err(|error| explain(&StartError::Host(error), &file, &self.host))
    }

    fn no_such_host(&self, file: &ClusterFile) -> Failure {
        let known: Vec<&str> = file.hosts.iter().map(|host| host.name.as_str()).collect();
        let near = keys::nearest(&self.host, known.iter().copied()).unwrap_or(known[0]);
        Failure::input(
            "O2002",
            format!("no host {} in {}", self.host, self.config.display()),
            format!("its hosts are: {}", known.join(", ")),
            format!("ordinate serve --config {} --host {near}", self.config.display()),
        )
    }

    fn begin_log(&self, file: &ClusterFile) -> EventLog {
        let is_json = file.value("log_output.format").is_some_and(|(format, _)| format == "json");
        write_to_stderr(if is_json { LogFormat::Json } else { LogFormat::Text }, &self.host);
        EventLog::default()
    }

    /// What goes on beside the host until it ends.
    fn watch(
        &self,
        handle: HostHandle<HostedNode>,
        file: &ClusterFile,
        gate: Gate,
        log: EventLog,
        admin: &Admin,
    ) -> Result<(), Failure> {
        let latencies = admin.latencies.clone();
        members::watch(handle.clone(), file.clone(), self.host.clone(), gate, log.clone(), latencies);
        backup::schedule::watch(handle, file.clone(), self.host.clone(), log);
        retain_memory_later(admin.health.clone()).map_err(not_watched)
    }

    fn banner(&self, file: &ClusterFile, started: Instant) {
        eprintln!("ordinate {}  host {} of cluster {}", env!("CARGO_PKG_VERSION"), self.host, file.cluster);
        match &file.region {
            None => eprintln!("  engine      paxos, {} hosts", file.hosts.len()),
            Some(region) => eprintln!(
                "  engine      paxos, {} hosts in region {region}, {} elsewhere",
                file.hosts.len(),
                file.elsewhere.len()
            ),
        }
        if file.clock_config().required {
            match file.clock.source {
                ClockSource::Fixed { epsilon } => {
                    eprintln!("  clock       fixed, {epsilon:?} off at most: you vouch for it")
                }
                measured => eprintln!(
                    "  clock       {measured}, of no use while it may be off by more than {:?}",
                    file.clock.error_max
                ),
            }
        }
        match file.durability {
            Durability::MajorityFsync => {
                eprintln!("  durability  majority-fsync   data in {}", file.data.join(&self.host).display())
            }
            Durability::Memory => {
                eprintln!("  durability  memory   WARNING: a power failure loses acknowledged writes")
            }
        }
        eprintln!("  native      {}{}", file.listen.native, if file.tls.is_some() { "   (TLS)" } else { "" });
        for (name, text) in file.services().iter().flat_map(|service| service.banner(file)) {
            eprintln!("  {name:<12}{text}");
        }
        let tls = |is: bool| if is { "   (TLS)" } else { "" };
        let listen = &file.listen;
        if let Some(address) = &listen.http {
            let is_secure = file.tls.is_some() && listen.http_secure.is_none();
            eprintln!("  http        {address}{}", tls(is_secure));
        }
        if let Some(address) = &listen.http_secure {
            eprintln!("  {:<12}{address}{}", if listen.http.is_none() { "http" } else { "" }, tls(true));
        }
        let exposed = match (listen.is_admin_exposed(), &file.access) {
            (false, _) => "",
            (true, None) => "   WARNING: it has no password, and is reached from other machines",
            (true, Some(_)) => "   WARNING: it has no TLS, and is reached from other machines",
        };
        eprintln!("  web page    http://{}{exposed}", listen.admin);
        if std::io::stderr().is_terminal() {
            eprintln!("  try         ordinate kv put greeting hello --endpoints {}", file.listen.native);
        }
        eprintln!("  listening after {:.2} s", started.elapsed().as_secs_f64());
    }
}

/// Listens where hosts and users connect.
fn sockets(file: &ClusterFile, peer: &str) -> Result<Sockets, Failure> {
    let ports = file.services().iter().flat_map(|service| service.ports());
    let users = ports.map(|port| Ok((port.key, bind(&port.address, port.key)?)));
    Ok(Sockets {
        peer: bind(peer, "[hosts]")?,
        native: bind(&file.listen.native, "listen.native")?,
        users: users.collect::<Result<_, _>>()?,
    })
}

fn watch_health(
    handle: &HostHandle<HostedNode>,
    file: &ClusterFile,
    host: &str,
    started: Instant,
    log: &EventLog,
) -> Result<HealthWatch, Failure> {
    let (handle, file, host) = (handle.clone(), file.clone(), host.to_owned());
    HealthWatch::start(handle, file, host, started, Some(log.clone())).map_err(not_watched)
}

/// Keeps freed memory from the time on when the host is as under load. A start frees in large pieces what it does not ask for again.
fn retain_memory_later(health: HealthWatch) -> std::io::Result<()> {
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let wait = move || {
        clock.block_on(health.settled(SETTLED_AFTER));
        runtime::memory::keep_freed(crate::FREED_MEMORY_RETAINED);
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(wait).map(drop)
}

fn not_watched(error: std::io::Error) -> Failure {
    let remedy = "ordinate serve ... again";
    Failure::failed("O2100", "the host cannot be watched", error.to_string(), remedy)
}

fn no_access(error: &PolicyError, file: &ClusterFile) -> Failure {
    let path = file.access.as_deref().unwrap_or(Path::new("access.toml")).display();
    let remedy = format!("ordinate access list --file {path}  (`ordinate access init` makes one)");
    Failure::input("O2116", format!("the access file {path} cannot be used"), error.to_string(), remedy)
}

fn no_traces(error: TraceError) -> Failure {
    let remedy = "ordinate config explain trace.endpoint";
    Failure::input("O2118", "requests cannot be followed", error.to_string(), remedy)
}

fn not_served(error: std::io::Error) -> Failure {
    let remedy = "ordinate serve ... again";
    Failure::failed("O2003", "a port for HTTP cannot be served", error.to_string(), remedy)
}

/// The ports of applications' HTTP. With TLS set and one port, that one has it; of two, the second.
fn http_ports(
    tls: Option<ServerTls>,
    http: Option<TcpListener>,
    secure: Option<TcpListener>,
) -> Vec<HttpPort> {
    let is_first_plain = secure.is_some();
    let first = http.map(|listener| HttpPort { listener, tls: tls.clone().filter(|_| !is_first_plain) });
    first.into_iter().chain(secure.map(|listener| HttpPort { listener, tls })).collect()
}

/// Reads and checks a cluster file with what the environment and `--set` say.
pub fn read_file(path: &Path, sets: &[String]) -> Result<ClusterFile, Failure> {
    let mut overrides = Overrides::from_environment();
    for set in sets {
        let Some((name, value)) = set.split_once('=') else {
            return Err(Failure::input(
                "O2004",
                format!("--set {set} sets nothing"),
                "",
                "--set durability.ack=memory",
            ));
        };
        let Some(key) = key_table::find(name) else {
            let near = keys::nearest(name, key_table::all().into_iter().map(|key| key.name));
            let fact = near.map_or_else(String::new, |near| format!("did you mean {near}?"));
            return Err(Failure::input(
                "O2004",
                format!("unknown key {name}"),
                fact,
                "ordinate config explain",
            ));
        };
        overrides.set(key, value.to_owned());
    }
    ClusterFile::read(path, &overrides).map_err(|error| {
        let location = error
            .line
            .map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()));
        // A file that cannot be read is named already.
        let location = if error.what.contains(&location) { String::new() } else { location };
        Failure::input("O2001", error.what, location, error.help)
    })
}

/// Listens, or says who is in the way.
pub fn bind(address: &str, key: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        // [hosts] is no key: all hosts have it alike.
        let remedy = match key.starts_with('[') {
            true => format!(
                "find who listens there: ss -ltnp; or change it in {key} of every host's cluster file"
            ),
            false => format!("choose another with --set {key}=ADDRESS, or find who listens there: ss -ltnp"),
        };
        let what = format!("cannot listen at {address} ({key})");
        Failure::input("O2003", what, error.to_string(), remedy)
    })
}

/// The file as its host sees it, whose data may know of regions that it has no more.
fn as_data_have_it(file: ClusterFile, host: &str) -> Result<ClusterFile, Failure> {
    let folder = file.data.join(host);
    if file.durability == Durability::Memory {
        return Ok(file);
    }
    // What cannot be read is explained when the host is started.
    let Ok(Some(owner)) = runtime::owner_of(&folder) else { return Ok(file) };
    file.with_data_of(folder, &owner.cluster, &owner.made_with).map_err(|error| {
        let (code, remedy) = match &error {
            RegionsError::Removed { .. } => {
                ("O2119", "give the new region another name: nodes of the one before are still in logs")
            }
            RegionsError::MadeWithout(_) => (
                "O2120",
                "start it without [regions]; or begin a cluster with [regions] on empty folders, and append what the colours have \
                 to it: ordinate fuzzylog sync COLOUR",
            ),
            RegionsError::MadeWith(_) => ("O2120", "start it with its [regions]: one region may be left"),
        };
        Failure::input(code, "the data do not go with the regions of the cluster file", error.to_string(), remedy)
    })
}

fn explain(error: &StartError, file: &ClusterFile, host: &str) -> Failure {
    let data = file.data.join(host);
    let (code, remedy) = match error {
        StartError::Tls(_) => ("O2105", "ordinate tls init --out tls HOST...".to_owned()),
        StartError::Host(HostError::Data(DataError::InUse { .. })) => {
            ("O2106", "another process serves this host: stop it first".to_owned())
        }
        StartError::Host(HostError::Data(DataError::OtherSettings { .. })) => (
            "O2112",
            "give the cluster file the values that the data have; ordinate config explain KEY says how each can be changed"
                .to_owned(),
        ),
        error if shortage_of(error).is_some() => (
            "O2113",
            "nothing is damaged: raise the limit (ulimit -n, or LimitNOFILE of the service; fs.file-max of the system), or free \
             memory, and start it again"
                .to_owned(),
        ),
        StartError::Host(HostError::Data(_)) => (
            "O2107",
            format!(
                "start it with the cluster file it belongs to, or give another folder: --set data=FOLDER (now {})",
                data.display()
            ),
        ),
        StartError::Host(HostError::Journal(JournalError::Io { .. }) | HostError::Blob { .. }) => (
            "O2114",
            format!(
                "look at the disk below {} (dmesg), and start the host again: nothing that it acknowledged depends on what failed",
                data.display()
            ),
        ),
        StartError::Host(HostError::Journal(_) | HostError::JournalBehind { .. }) => (
            "O2108",
            format!(
                "keep {} for inspection, and replace the host: ordinate cluster members replace {host} NEW=ADDRESS",
                data.display()
            ),
        ),
        StartError::Host(HostError::Clock(_)) => ("O2115", super::clock::REMEDY.to_owned()),
        StartError::Archive(_) => ("O2111", "ordinate config explain log.archive".to_owned()),
        StartError::Host(_) => {
            ("O2100", "ordinate serve ... again; if it repeats, report it with this text".to_owned())
        }
    };
    Failure::failed(code, format!("host {host} cannot serve"), error.to_string(), remedy)
}

/// What the system was short of, if that is all.
fn shortage_of(error: &StartError) -> Option<Shortage> {
    let source = match error {
        StartError::Host(HostError::Journal(JournalError::Io { source, .. }))
        | StartError::Host(HostError::Data(DataError::Io { source, .. }))
        | StartError::Host(HostError::Blob { source, .. } | HostError::Io { source, .. }) => source,
        _ => return None,
    };
    Shortage::of(source).filter(|it| *it != Shortage::Space)
}

fn stop_on_signal(handle: HostHandle<HostedNode>, log: EventLog) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::failed("O2100", "cannot wait for signals", error.to_string(), ""))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
            let received = tokio::select! {
                _ = tokio::signal::ctrl_c() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            };
            log.say(LogPart::Host, &format!("{received} received: this host stops"));
            handle.stop();
        });
    });
    Ok(())
}
