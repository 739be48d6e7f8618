//! A cluster of real processes: started, watched, killed, paused, started again. Dropping it leaves nothing behind.

use super::http;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The binary under test.
pub const ORDINATE: &str = env!("CARGO_BIN_EXE_ordinate");
/// The program that hosts run: the one under test, or for measurements the one that `ORDINATE_BINARY` names.
fn program() -> OsString {
    std::env::var_os("ORDINATE_BINARY").unwrap_or_else(|| ORDINATE.into())
}

/// How long anything may take that has to happen at all: debug builds on busy machines are slow, and what never happens is
/// found after a minute as well.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One host: its addresses, and its process while it runs.
pub struct Host {
    /// Its name.
    pub name: String,
    /// Where its peers connect.
    pub peer: SocketAddr,
    /// Where clients connect.
    pub native: SocketAddr,
    /// HTTP.
    pub admin: SocketAddr,
    joins: bool,
    /// A cluster file of its own.
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    wrapper: Vec<String>,
    child: Option<Child>,
}

/// Hosts with one cluster file, in a folder of their own.
pub struct Cluster {
    /// The hosts, in the order of their names.
    pub hosts: Vec<Host>,
    /// Everything the cluster writes.
    pub folder: PathBuf,
    name: String,
    settings: String,
    placement: String,
    members: usize,
}

/// Tests of the log that name no engine run over this one, if it is set: `ORDINATE_LOG_ENGINE=fuzzylog`.
fn over_engine(settings: String) -> String {
    const SECTION: &str = "[log]\n";
    let (Ok(engine), Some(at)) = (std::env::var("ORDINATE_LOG_ENGINE"), settings.find(SECTION)) else {
        return settings;
    };
    let (before, section) = settings.split_at(at + SECTION.len());
    let keys = section.split("\n[").next().unwrap_or(section);
    if keys.lines().any(|line| line.trim_start().starts_with("engine")) {
        return settings;
    }
    format!("{before}engine = \"{engine}\"\n{section}")
}

/// Tests of the coordination service over Mason run over this engine, if it is set: `ORDINATE_COORDINATION_ENGINE=fuzzylog`.
fn coordination_over(settings: String) -> String {
    const OVER_MASON: &str = "[coordination]\nengine = \"mason\"";
    match std::env::var("ORDINATE_COORDINATION_ENGINE") {
        Ok(engine) => settings.replace(OVER_MASON, &format!("[coordination]\nengine = \"{engine}\"")),
        Err(_) => settings,
    }
}

impl Cluster {
    /// `hosts` hosts that are not started yet. `settings` are lines of the cluster file before its sections end,
    /// `placement` are `[[place]]` sections.
    pub fn planned(hosts: usize, settings: &str, placement: &str) -> Self {
        let (number, folder) = new_folder();
        Self::planned_in(folder, format!("real-{number}"), hosts, settings.to_owned(), placement.to_owned())
    }

    /// The same with a name of its own, as its data has it, and settings that may name its folder.
    pub fn named(name: &str, hosts: usize, settings: impl FnOnce(&Path) -> String) -> Self {
        let (_, folder) = new_folder();
        let settings = settings(&folder);
        Self::planned_in(folder, name.to_owned(), hosts, settings, String::new())
    }

    fn planned_in(
        folder: PathBuf,
        name: String,
        members: usize,
        settings: String,
        placement: String,
    ) -> Self {
        let settings = coordination_over(over_engine(settings));
        let mut cluster = Self { hosts: Vec::new(), folder, name, settings, placement, members };
        for _ in 0..members {
            cluster.plan_host(false);
        }
        cluster.write_file();
        cluster
    }

    /// A cluster that is up.
    pub async fn start(hosts: usize, settings: &str, placement: &str) -> Self {
        let mut cluster = Self::planned(hosts, settings, placement);
        cluster.launch_all();
        cluster.until_ready().await;
        cluster
    }

    /// A cluster that is up, and where its hosts listen by this key of `[listen]`, such as `ZOOKEEPER`.
    pub async fn serving(key: &str, hosts: usize, settings: &str) -> (Self, Vec<SocketAddr>) {
        let mut cluster = Self::planned(hosts, settings, "");
        let addresses = (0..hosts).map(|host| cluster.listen(host, key)).collect();
        cluster.launch_all();
        cluster.until_ready().await;
        (cluster, addresses)
    }

    /// From its next start on, a host listens at a free address by this key of `[listen]`.
    pub fn listen(&mut self, host: usize, key: &str) -> SocketAddr {
        let address = free_address();
        self.set_environment(host, &format!("ORDINATE_LISTEN__{key}"), &address.to_string());
        address
    }

    /// Makes certificates for the hosts and their clients, which every host shows from its next start on; the folder with them.
    pub fn use_tls(&mut self, more: &[&str]) -> PathBuf {
        let folder = self.make_certificates("tls", more);
        for host in 0..self.hosts.len() {
            let name = self.hosts[host].name.clone();
            let files = [
                ("CA", "ca.pem".to_owned()),
                ("CERT", format!("{name}.pem")),
                ("KEY", format!("{name}.key")),
            ];
            for (key, file) in files {
                let path = folder.join(file).display().to_string();
                self.set_environment(host, &format!("ORDINATE_TLS__{key}"), &path);
            }
        }
        folder
    }

    /// Makes certificates in a folder of this name; nobody uses them yet.
    pub fn make_certificates(&self, name: &str, more: &[&str]) -> PathBuf {
        let folder = self.folder.join(name);
        let mut made = Command::new(ORDINATE);
        made.args(["tls", "init"]).args(more).arg("--out").arg(&folder).arg("--config").arg(self.file_of(0));
        assert!(made.output().is_ok_and(|output| output.status.success()), "ordinate tls init");
        folder
    }

    /// Another host; `joins`: one that is no member yet.
    pub fn plan_host(&mut self, joins: bool) -> usize {
        let name = char::from(b'a' + self.hosts.len() as u8).to_string();
        let [peer, native, admin] = [free_address(), free_address(), free_address()];
        let (file, environment, wrapper) = (None, Vec::new(), Vec::new());
        self.hosts.push(Host { name, peer, native, admin, joins, file, environment, wrapper, child: None });
        if self.settings.contains("[coordination]") {
            // The default port is one for all tests.
            self.listen(self.hosts.len() - 1, "ZOOKEEPER");
        }
        if joins {
            self.write_file();
        }
        self.hosts.len() - 1
    }

    /// From its next start on, a host is started without --join.
    pub fn forget_join(&mut self, host: usize) {
        self.hosts[host].joins = false;
    }

    /// Writes the file that members share, and one with itself in it for each host that joins.
    pub fn write_file(&self) {
        let lines = |hosts: &mut dyn Iterator<Item = &Host>| -> String {
            hosts.map(|host| format!("{} = \"{}\"\n", host.name, host.peer)).collect()
        };
        let text = |hosts: String| {
            let Self { name, settings, placement, .. } = self;
            format!("cluster = \"{name}\"\n{settings}\n[hosts]\n{hosts}{placement}")
        };
        let write = |path: PathBuf, text: String| std::fs::write(path, text).expect("the folder is writable");
        write(self.folder.join("cluster.toml"), text(lines(&mut self.hosts.iter().take(self.members))));
        // A host that joins must reach the leader, which may have joined before.
        for (index, host) in self.hosts.iter().enumerate().skip(self.members) {
            let mut known = self.hosts.iter().take(index + 1);
            write(self.folder.join(format!("{}.toml", host.name)), text(lines(&mut known)));
        }
    }

    /// Has a host read a file in which it reaches some hosts elsewhere: at these addresses, by their numbers.
    pub fn reach_elsewhere(&mut self, host: usize, addresses: &BTreeMap<usize, SocketAddr>) {
        let line = |(number, it): (usize, &Host)| {
            format!("{} = \"{}\"\n", it.name, addresses.get(&number).unwrap_or(&it.peer))
        };
        let hosts: String = self.hosts.iter().enumerate().map(line).collect();
        let Self { name, settings, placement, .. } = self;
        let text = format!("cluster = \"{name}\"\n{settings}\n[hosts]\n{hosts}{placement}");
        let path = self.folder.join(format!("{}.toml", self.hosts[host].name));
        std::fs::write(&path, text).expect("the folder is writable");
        self.hosts[host].file = Some(path);
    }

    /// From its next start on, a host reads a file of its own, with these hosts and sections.
    pub fn use_file(&mut self, host: usize, hosts: &[usize], sections: &str) {
        let hosts = hosts.iter().map(|host| &self.hosts[*host]);
        let lines = hosts.map(|it| format!("{} = \"{}\"\n", it.name, it.peer));
        let hosts: String = lines.collect();
        let Self { name, settings, .. } = self;
        let text = format!("cluster = \"{name}\"\n{settings}\n[hosts]\n{hosts}{sections}");
        let path = self.folder.join(format!("{}.toml", self.hosts[host].name));
        std::fs::write(&path, text).expect("the folder is writable");
        self.hosts[host].file = Some(path);
    }

    /// The cluster file of a host.
    pub fn file_of(&self, host: usize) -> PathBuf {
        if let Some(file) = &self.hosts[host].file {
            return file.clone();
        }
        let own = self.folder.join(format!("{}.toml", self.hosts[host].name));
        if host < self.members { self.folder.join("cluster.toml") } else { own }
    }

    /// The data folder of a host.
    pub fn data_of(&self, host: usize) -> PathBuf {
        self.folder.join("ordinate-data").join(&self.hosts[host].name)
    }

    /// Sets an environment variable for the next start of a host.
    pub fn set_environment(&mut self, host: usize, name: &str, value: &str) {
        let environment = &mut self.hosts[host].environment;
        environment.retain(|(known, _)| known != name);
        environment.push((name.to_owned(), value.to_owned()));
    }

    /// From its next start on, a host has the environment of another, too.
    pub fn take_environment(&mut self, host: usize, of: usize) {
        for (name, value) in self.hosts[of].environment.clone() {
            self.set_environment(host, &name, &value);
        }
    }

    /// A command that the next start of a host runs inside of, such as `ip netns exec NAME`.
    pub fn set_wrapper(&mut self, host: usize, wrapper: &[&str]) {
        self.hosts[host].wrapper = wrapper.iter().map(|&word| word.to_owned()).collect();
    }

    /// The command that serves a host.
    pub fn command(&self, host: usize) -> Command {
        let it = &self.hosts[host];
        let mut words = it.wrapper.iter().map(OsString::from).chain([program()]);
        let mut command = Command::new(words.next().unwrap_or_else(program));
        command.args(words).args(["serve", "--host", &it.name, "--config"]).arg(self.file_of(host));
        command
            .env("ORDINATE_LISTEN__NATIVE", it.native.to_string())
            .env("ORDINATE_LISTEN__ADMIN", it.admin.to_string())
            .envs(it.environment.iter().cloned());
        if it.joins {
            command.arg("--join");
        }
        command
    }

    /// Starts a host.
    pub fn launch(&mut self, host: usize) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_of(host));
        let log = log.expect("the folder is writable");
        let mut command = self.command(host);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.hosts[host].child = Some(child.expect("the binary under test runs"));
    }

    /// Starts every host.
    pub fn launch_all(&mut self) {
        for host in 0..self.hosts.len() {
            self.launch(host);
        }
    }

    /// Starts a host that must refuse to serve, and returns what it said.
    pub fn refusal(&self, host: usize) -> Refused {
        let mut command = self.command(host);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary under test runs");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("our own child") {
                Some(status) => break Some(status),
                None if Instant::now() > deadline => {
                    let _ = child.kill();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut said = String::new();
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        let _ = child.wait();
        Refused { status, said }
    }

    fn log_of(&self, host: usize) -> PathBuf {
        self.folder.join(format!("{}.log", self.hosts[host].name))
    }

    /// What a host has said so far.
    pub fn log(&self, host: usize) -> String {
        std::fs::read_to_string(self.log_of(host)).unwrap_or_default()
    }

    /// The process of a host that runs.
    pub fn process(&self, host: usize) -> Option<u32> {
        self.hosts[host].child.as_ref().map(Child::id)
    }

    /// `kill -9`. Returns when the process is gone.
    pub fn kill(&mut self, host: usize) {
        if let Some(mut child) = self.hosts[host].child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
    }

    /// `kill -9` of all hosts at one moment.
    pub fn kill_all(&mut self) {
        let mut children: Vec<Child> = self.hosts.iter_mut().filter_map(|host| host.child.take()).collect();
        children.iter_mut().for_each(|child| child.kill().expect("our own child"));
        for mut child in children {
            child.wait().expect("our own child");
        }
    }

    /// Removes what a stopped host has written.
    pub fn wipe(&mut self, host: usize) {
        assert!(self.hosts[host].child.is_none(), "a running host cannot be wiped");
        std::fs::remove_dir_all(self.data_of(host)).expect("it has run before");
    }

    /// Sends a signal by name to a host that runs. Behind `-STOP` none of its threads runs.
    pub fn signal(&self, host: usize, signal: &str) {
        let process = self.process(host).expect("the host runs");
        let sent = Command::new("kill").args([signal, &process.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} {process}");
        // On a busy machine threads run on for a while behind the signal.
        let deadline = Instant::now() + Duration::from_secs(10);
        while signal == "-STOP" && !is_stopped(process) {
            assert!(Instant::now() < deadline, "process {process} runs on");
            std::thread::yield_now();
        }
    }

    /// True while the process of a host runs.
    pub fn is_alive(&mut self, host: usize) -> bool {
        self.hosts[host].child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// What a host's process has taken of the processors so far.
    pub fn processor_time(&self, host: usize) -> Duration {
        let process = self.process(host).expect("the host runs");
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("our own child");
        // Behind the name, which may hold anything: state, ..., user time and system time in hundredths of a second.
        let behind = stat.rsplit_once(')').expect("Linux says so").1;
        let fields = behind.split_whitespace().skip(11).take(2);
        let hundredths: u64 = fields.map(|field| field.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(10 * hundredths)
    }

    /// Memory that a host's process has in use, in bytes.
    pub fn resident_bytes(&self, host: usize) -> u64 {
        self.memory(host, "VmRSS:")
    }

    /// The most memory that a host's process has ever had in use, in bytes.
    pub fn peak_resident_bytes(&self, host: usize) -> u64 {
        self.memory(host, "VmHWM:")
    }

    fn memory(&self, host: usize, field: &str) -> u64 {
        let process = self.process(host).expect("the host runs");
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("our own child");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("Linux says so");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// What a host says of itself; none if it does not answer.
    pub fn status(&self, host: usize) -> Option<Value> {
        let answer = http::get(self.hosts[host].admin, "/v1/status")?;
        if answer.code == 200 { serde_json::from_slice(&answer.body).ok() } else { None }
    }

    /// What a running host says of itself, however long it takes.
    pub async fn status_of(&self, host: usize) -> Value {
        self.page(host, "/v1/status", 200).await.json()
    }

    /// What a running host answers on its admin port, once it does so with this code.
    pub async fn page(&self, host: usize, path: &str, code: u16) -> http::Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = http::get(self.hosts[host].admin, path);
            if let Some(answer) = answer.filter(|answer| answer.code == code) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no {code} for {path} from host {host}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a condition on the hosts' states holds.
    pub async fn until(&self, what: &str, within: Duration, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + within;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within {within:?}: {what}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// True if a host can serve.
    pub fn is_ready(&self, host: usize) -> bool {
        http::get(self.hosts[host].admin, "/readyz").is_some_and(|answer| answer.code == 200)
    }

    /// Waits until every running host is ready.
    pub async fn until_ready(&self) {
        let running = |cluster: &Self| {
            (0..cluster.hosts.len()).filter(|&host| cluster.hosts[host].child.is_some()).collect::<Vec<_>>()
        };
        let all = |cluster: &Self| running(cluster).into_iter().all(|host| cluster.is_ready(host));
        self.until("all hosts are ready", PATIENCE, all).await;
    }

    /// The host that leads in the highest round, as the running hosts say, itself among them: one that has just resigned
    /// or was just elected is not the one to strike.
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reported = (0..self.hosts.len()).filter(|&host| self.hosts[host].child.is_some());
            let reported = reported.filter_map(|host| self.status(host));
            let newest = reported
                .filter_map(|status| Some((status["round"].as_u64()?, status["leader"].as_str()?.to_owned())))
                .max();
            let known = newest.and_then(|(_, name)| self.hosts.iter().position(|host| host.name == name));
            let agrees = |leader: &usize| {
                let status = self.status(*leader);
                status.is_some_and(|status| status["leader"].as_str() == Some(&self.hosts[*leader].name))
            };
            if let Some(leader) = known.filter(agrees) {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Native addresses of all hosts, `first` in front.
    pub fn endpoints_from(&self, first: usize) -> Vec<String> {
        let mut endpoints: Vec<String> = self.hosts.iter().map(|host| host.native.to_string()).collect();
        let turn = first % endpoints.len();
        endpoints.rotate_left(turn);
        endpoints
    }

    /// Runs `ordinate` with arguments against this cluster and waits for its end.
    pub async fn ordinate(&self, arguments: &[&str]) -> Output {
        let mut command = tokio_command(arguments);
        command
            .env("ORDINATE_ENDPOINTS", self.endpoints_from(0).join(","))
            .env("ORDINATE_ADMIN", self.hosts[0].admin.to_string());
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        ended.expect("it does not panic").expect("the binary under test runs")
    }

    /// The last lines of every host's log.
    pub fn logs(&self) -> String {
        let tail = |host: usize| {
            let log = self.log(host);
            let lines: Vec<&str> = log.lines().collect();
            format!("--- {}\n{}\n", self.hosts[host].name, lines[lines.len().saturating_sub(25)..].join("\n"))
        };
        (0..self.hosts.len()).map(tail).collect()
    }
}

/// True if all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("our own child");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may hold anything.
        stat.rsplit_once(") ").is_none_or(|(_, behind)| behind.starts_with('T'))
    })
}

/// A folder that no other cluster has, and its number in this process.
fn new_folder() -> (u64, PathBuf) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("real-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    (number, folder)
}

fn tokio_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(ORDINATE);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// How a host refused to serve.
pub struct Refused {
    /// None if it had to be killed.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard error.
    pub said: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The output of a test that fails is held apart from stderr's lock order.
            let _ = writeln!(std::io::stderr(), "{}", self.logs());
        }
        for host in &mut self.hosts {
            if let Some(mut child) = host.child.take() {
                // Already gone is as good.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::env::var_os("ORDINATE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// An address on loopback that nobody listens at, below the ports that the system gives to outgoing connections, so that a
/// host that is started again finds it free. No other test is given it, in this process or another.
pub fn free_address() -> SocketAddr {
    free_addresses(1)
}

/// The first of so many addresses whose ports follow each other.
pub fn free_addresses(count: u16) -> SocketAddr {
    static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if blocks.last().is_none_or(|block| block.end - block.next < count) {
            blocks.push(Block::claim());
        }
        let block = blocks.last_mut().expect("one was claimed");
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let ports = block.next..block.next + count;
        block.next = ports.end;
        if ports.clone().all(|port| TcpListener::bind(address(port)).is_ok()) {
            return address(ports.start);
        }
    }
}

/// Ports that belong to this process while it listens at the first of them.
struct Block {
    next: u16,
    end: u16,
    _claim: TcpListener,
}

impl Block {
    const PORTS: u16 = 600;

    fn claim() -> Self {
        let blocks = (12_000..30_000).step_by(usize::from(Self::PORTS));
        let mut claimed =
            blocks.filter_map(|first| Some((first, TcpListener::bind(("127.0.0.1", first)).ok()?)));
        let (first, claim) = claimed.next().expect("fewer than 30 test processes run at once");
        Self { next: first + 1, end: first + Self::PORTS, _claim: claim }
    }
}
