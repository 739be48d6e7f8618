//! `ordinate config example --laptop 3`: the files run side by side as they are, and every verb can be asked for JSON over them.

use crate::support::cluster::{ORDINATE, PATIENCE, free_addresses};
use crate::support::http;
use crate::support::side_by_side;
use serde_json::Value;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Hosts on this machine by the example's files. Dropping it leaves nothing behind.
struct Laptop {
    folder: PathBuf,
    first: u16,
    hosts: Vec<Child>,
}

const HOSTS: u16 = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn program(folder: &Path) -> Command {
    let mut command = Command::new(ORDINATE);
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("ORDINATE_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).env("XDG_CONFIG_HOME", folder);
    command
}

impl Laptop {
    fn start() -> Self {
        let first = free_addresses(10 * HOSTS).port();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("laptop-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let mut laptop = Self { folder, first, hosts: Vec::new() };
        let (count, port) = (HOSTS.to_string(), first.to_string());
        let example = ["config", "example", "--laptop", &count, "--first-port", &port];
        let (code, out, err) = laptop.run(&example, "");
        assert_eq!((code, out.lines().count()), (Some(0), 3), "{out}{err}");
        let (code, _, err) = laptop.run(&example, "");
        assert!(code == Some(2) && err.contains("it exists already"), "files are not overwritten: {err}");
        for name in NAMES {
            let file = format!("{name}.toml");
            let log = std::fs::File::create(laptop.folder.join(format!("{name}.log"))).expect("writable");
            let mut host = program(&laptop.folder);
            host.args(["serve", "--config", &file, "--host", name]);
            host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            laptop.hosts.push(host.spawn().expect("the binary under test runs"));
        }
        let begun = Instant::now();
        while !(0..HOSTS).all(|host| laptop.is_ready(host)) {
            assert!(begun.elapsed() < PATIENCE, "not ready\n{}", laptop.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
        laptop
    }

    fn address(&self, host: u16, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.first + 10 * host + port))
    }

    fn is_ready(&self, host: u16) -> bool {
        http::get(self.address(host, 0), "/readyz").is_some_and(|answer| answer.code == 200)
    }

    fn logs(&self) -> String {
        let log = |name| std::fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        NAMES.map(log).join("---\n")
    }

    /// Runs a verb: its exit code, and what it wrote.
    fn run(&self, words: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut command = program(&self.folder);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.args(words).spawn().expect("the binary under test runs");
        // Who reads no input may be gone.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let done = child.wait_with_output().expect("it ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    }

    fn stop(&mut self) {
        for mut host in self.hosts.drain(..) {
            let _ = Command::new("kill").arg(host.id().to_string()).status();
            let _ = host.wait();
        }
    }
}

impl Drop for Laptop {
    fn drop(&mut self) {
        self.hosts.iter_mut().for_each(|host| _ = host.kill());
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A verb as it is typed; `<`: what follows is its input. Hosts listen where the profile says.
const WHILE_THEY_RUN: &[&str] = &[
    "kv put k v",
    "kv get k",
    "kv incr n 2",
    "kv scan",
    "kv del k",
    "txn put t v",
    "txn get t",
    "txn scan",
    "txn run - <get t\nput t 2",
    "txn shell <begin\nput t 3\nget t\ncommit\nscan t",
    "txn status 0123456789abcdef-1",
    "txn locks",
    "txn prepared",
    "txn shards",
    "txn dump --out t.dump",
    "txn load --in t.dump --check",
    "txn del t",
    "sequence next --spaces ids --count 2",
    "log list",
    "log append jobs <one\ntwo",
    "log multi-append jobs=three more=1",
    "log read jobs",
    "log tail jobs",
    "log stat jobs",
    "log dump jobs --out jobs.dump",
    "log load jobs --in jobs.dump --check",
    "fuzzylog append red,blue one two",
    "fuzzylog append red <three",
    "fuzzylog sync red --from 1",
    "fuzzylog snapshot red,blue",
    "fuzzylog graph red,blue",
    "fuzzylog trim blue --before 1",
    "fuzzylog partitions",
    "zk create /a x",
    "zk ls /",
    "zk get /a",
    "zk set /a y",
    "zk stat /a",
    "zk acl /a",
    "zk whoami",
    "zk multi <create /b 1",
    "zk shell <ls /",
    "zk sessions",
    "status",
    "cluster members list",
    "cluster proxies",
    "cluster shards",
    "backup --to backups",
    "backup list --to backups",
    "backup verify --to backups",
    "backup prune --to backups --keep 1",
];

/// The same of verbs that need no host, or none that runs.
const WHEN_THEY_ARE_STOPPED: &[&str] = &[
    "inspect ordinate-data/a",
    "recover --from-survivors ordinate-data/a --cluster anew --hosts a,b,c --into recovered --yes",
    "config check a.toml",
    "config explain durability.ack",
    "config example",
    "config example --laptop 2 --out two",
    "config profiles",
    "tls init --out tls x",
    "tls add-host --out tls y",
    "tls add-client --out tls z",
    "tls renew --out tls x",
    "tls show tls",
    "access init",
    "access add reader --grant 'read kv *' --with-token",
    "access token reader",
    "access password reader",
    "access check reader read kv k",
    "access list",
    "figures list",
    "sim list",
    "sim run paxos --seeds 2",
    "sim run paxos --seed 1",
    "sim determinism paxos --seeds 2",
    "plan --writes 1k/s",
    "man pages",
    "version",
];

/// Words, with quotes as a shell has them.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('\'').enumerate().flat_map(|(part, text)| match part % 2 {
        1 => vec![text.to_owned()],
        _ => text.split_whitespace().map(str::to_owned).collect(),
    });
    quoted.collect()
}

/// What a line is, if it is an object or a list.
fn composite(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok().filter(|value: &Value| value.is_object() || value.is_array())
}

// A verb that prints a table where JSON was asked for breaks the script that asked.
#[test]
fn the_example_runs_and_every_verb_prints_json() {
    side_by_side(async {
        let mut laptop = Laptop::start();
        let profiles = laptop.folder.join("ordinate");
        std::fs::create_dir_all(&profiles).expect("writable");
        // Not the first host: what is written at one is read at another.
        let text = format!(
            "[profile.default]\nendpoints = [\"{}\", \"{}\"]\nadmin = [\"{}\"]\nzookeeper = [\"{}\"]\n",
            laptop.address(1, 1),
            laptop.address(2, 1),
            laptop.address(0, 0),
            laptop.address(2, 3)
        );
        std::fs::write(profiles.join("profiles.toml"), text).expect("writable");
        for name in ["jobs", "more"] {
            let (code, out, err) = laptop.run(&["log", "create", name], "");
            assert_eq!((code, out.as_str()), (Some(0), ""), "{err}\n{}", laptop.logs());
        }
        for line in WHILE_THEY_RUN {
            prints_both(&laptop, line);
        }
        laptop.stop();
        for line in WHEN_THEY_ARE_STOPPED {
            prints_both(&laptop, line);
        }
    });
}

/// Runs a verb twice, as people and as programs do. What can be done once is made possible again between.
fn prints_both(laptop: &Laptop, line: &str) {
    let (typed, input) = line.split_once(" <").unwrap_or((line, ""));
    let typed = words(typed);
    for json in [false, true] {
        let mut typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        if json {
            typed.extend(["-o", "json"]);
        }
        let (code, out, err) = laptop.run(&typed, input);
        assert_eq!(code, Some(0), "{line}: {out}{err}\n{}", laptop.logs());
        // People learn on standard error of what goes to a file. Sessions of the calls before have ended.
        let says = !out.is_empty() || (!json && !err.is_empty()) || *line == *"zk sessions";
        assert!(says, "{line}, JSON {json}, says nothing: {err}");
        for printed in out.lines() {
            let parsed = composite(printed);
            let whole = || serde_json::from_str::<Value>(&out).is_ok();
            let sound = parsed.is_some() || serde_json::from_str::<Value>(printed).is_ok() || whole();
            assert!(!json || sound, "{line} -o json prints {printed:?}");
            assert!(json || parsed.is_none(), "{line} prints JSON to people: {printed}");
        }
        if !json {
            undo(laptop, line);
        }
    }
}

/// What was made is made again, as JSON.
fn undo(laptop: &Laptop, line: &str) {
    let remove = |name: &str| {
        let path = laptop.folder.join(name);
        let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    };
    match line.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["zk", "create"] => _ = laptop.run(&["zk", "rm", "/a"], ""),
        ["zk", "multi"] => _ = laptop.run(&["zk", "rm", "/b"], ""),
        ["config", "example"] => remove("two"),
        ["recover", ..] => remove("recovered"),
        ["tls", "init"] => remove("tls"),
        ["tls", "add-host"] => ["tls/y.pem", "tls/y.key"].iter().for_each(|file| remove(file)),
        ["tls", "add-client"] => ["tls/z.pem", "tls/z.key"].iter().for_each(|file| remove(file)),
        ["access", "init"] => remove("access.toml"),
        ["access", "add"] => _ = laptop.run(&["access", "remove", "reader"], ""),
        _ => {}
    }
}
