//! `ordinate demo`, driven by its standard input: what it prints must be true, and runnable.

mod regions;
mod terminal;

use super::{Folder, program, run};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything the demo waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demo in flight; killed if the test fails.
struct Demo {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    said: String,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The demo at ports of its own, so that demos side by side do not race for them: between those that other tests claim and those that
/// the system gives to clients. If one is taken, the demo takes the next one.
fn at_free_ports() -> Command {
    static NEXT: AtomicU16 = AtomicU16::new(30_000);
    let free = || {
        // Three regions take 27.
        let first = NEXT.fetch_add(30, Ordering::Relaxed);
        assert!(first < 32_700, "too many demos");
        first.to_string()
    };
    let mut command = program();
    command.args(["demo", "--port", &free()]);
    command.args(["--zookeeper", &free(), "--kafka", &free()]);
    command
}

impl Demo {
    fn start() -> Self {
        Self::start_with(&["--durability", "memory"])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let mut command = at_free_ports();
        command.args(arguments);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the binary was built");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines, said: String::new() }
    }

    /// Waits for a line that holds `text` and returns it.
    fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let Ok(line) = line else { panic!("no line with {text:?} in:\n{}", self.said) };
            self.said += &format!("{line}\n");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All lines up to one that holds `last`; none if the demo ends before.
    fn lines_until(&mut self, last: &str) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            lines.push(line);
            if lines.last().is_some_and(|line| line.contains(last)) {
                return Some(lines);
            }
        }
        None
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open until the end");
        writeln!(input, "{line}").expect("the demo reads its input");
    }

    /// Ends the input and waits for the end: the exit code, and what went to standard error.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said += &format!("{line}\n");
        }
        let mut trouble = String::new();
        let errors = self.child.stderr.as_mut().expect("it is piped");
        errors.read_to_string(&mut trouble).expect("errors are text");
        (self.child.wait().expect("it can be waited for").code(), trouble)
    }
}

/// What is at an address, once it is there: a busy host says so first.
fn fetch(address: &str, path: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = TcpStream::connect(address).expect("the demo printed the address");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        if answer.starts_with("HTTP/1.1 200") {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path}: {answer}");
    }
}

/// The page shows "undefined" for a field that the status does not have, and nobody notices but its readers.
fn page_fits_its_data(page: &str, status: &str) {
    assert!(page.contains("<title>Ordinate</title>") && !page.contains("src="), "{page}");
    let (_, json) = status.split_once("\r\n\r\n").expect("an answer has a head");
    let status: serde_json::Value = serde_json::from_str(json).expect("the status is JSON");
    assert!(status["links"]["b"]["up"].is_boolean() && status["links"]["a"].is_null(), "{status}");
    let script = page.split("<script>").nth(1).expect("the page has a script");
    for (name, object) in [("s", &status), ("a", &status["activity"])] {
        let fields = used_fields(script, name);
        assert!(fields.len() >= 7, "{fields:?}");
        for field in fields {
            assert!(
                object.get(field).is_some(),
                "the page uses {name}.{field}, which the status does not have"
            );
        }
    }
}

/// What stands behind `object.` wherever that is a whole word.
fn used_fields<'a>(script: &'a str, object: &str) -> std::collections::BTreeSet<&'a str> {
    let access = format!("{object}.");
    let begins = script.match_indices(access.as_str()).filter(|(at, _)| {
        !script[..*at].ends_with(|before: char| before.is_alphanumeric() || "_.$".contains(before))
    });
    begins
        .map(|(at, begin)| {
            let rest = &script[at + begin.len()..];
            rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or("")
        })
        .collect()
}

// A demo that loses a write, or prints commands that do not run, is the first thing that people see of us.
#[test]
fn a_killed_host_loses_nothing() {
    let mut demo = Demo::start();
    let page = demo.until("Web page").split("http://").nth(1).expect("an address").to_owned();
    page_fits_its_data(&fetch(&page, "/"), &fetch(&page, "/v1/status"));
    let kafka = demo.until("Kafka").split_whitespace().nth(1).expect("addresses").to_owned();
    assert_eq!(
        kafka.split(',').map(|address| TcpStream::connect(address).is_ok()).collect::<Vec<_>>(),
        [true; 3]
    );
    let http = demo.until("HTTP").split("curl ").nth(1).expect("a command").to_owned();
    let (address, path) = http.split_at(http.find('/').expect("a path"));
    assert!(fetch(address, path).contains("\"value\":\"100\""), "{http}");
    for name in ["Key-value", "Txn", "Log", "Sequence", "Znodes", "Status"] {
        let line = demo.until(&format!("  {name} "));
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let printed = run(&words);
        assert_eq!(printed.code, Some(0), "{line}: {printed:?}");
    }
    demo.until("Try:");
    demo.say("put greeting 'hello,  you'");
    demo.until("  version ");
    demo.say("get \"greeting\"");
    assert!(demo.until("hello").starts_with("  hello,  you   (version "));
    demo.say("incr visits 5");
    demo.until("  5");
    demo.say("scan greet");
    demo.until("  greeting  hello,  you");
    demo.say("del greeting");
    demo.until("  deleted");
    for (line, reported) in [("kill a", "  kill a: "), ("restart a", "  restart a: ")] {
        demo.say(line);
        assert!(demo.until(reported).contains(" leads "));
        demo.until("longest time without an acknowledged write: ");
        let verdict = demo.until("acknowledged writes lost: ");
        let checked = verdict.strip_prefix("  acknowledged writes lost: 0; history linearizable (checked: ");
        let count = checked.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 10), "{verdict}");
    }
    demo.say("status");
    for host in ["  a  leader ", "  b  leader ", "  c  leader "] {
        demo.until(host);
    }
    let (code, trouble) = demo.end();
    assert_eq!((code, trouble.as_str()), (Some(0), ""));
}

// A script that stops at its first mistake leaves the rest undone; one that ends as if all had been well hides it.
#[test]
fn a_wrong_line_of_a_script_is_reported_and_the_rest_is_done() {
    let mut demo = Demo::start();
    demo.until("Try:");
    for line in ["frobnicate", "", "put 'a", "put after the-mistake", "get after", "kil a", "get"] {
        demo.say(line);
    }
    demo.until("  no such command: frobnicate; try help");
    demo.until("  a quote is not closed");
    demo.until("  the-mistake   (version ");
    demo.until("  no such command: kil; did you mean kill?");
    demo.until("  wanted: get KEY");
    let (code, trouble) = demo.end();
    assert_eq!(code, Some(1), "{trouble}");
    let first = "the first is \"frobnicate\": no such command: frobnicate; try help";
    assert_eq!(trouble, format!("error[O5002]: 4 of 6 lines failed\n  {first}\n  -> ordinate demo\n"));
}

/// A commit is caught half-way only if the machine is not too busy, and the shards have two leaders.
const ATTEMPTS: usize = 5;

// A table that shows what the levels promise to prevent, or never shows what they allow, teaches people the wrong level.
#[test]
fn photos_show_what_each_level_shows() {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut demo = Demo::start();
        demo.until("Try:");
        demo.say("photos");
        let Some(lines) = demo.lines_until("  A1: Alice misses") else { continue };
        let row = |name: &str| {
            let found = lines.iter().find(|line| line.starts_with(&format!("  {name} ")));
            found.unwrap_or_else(|| panic!("no row {name}: {lines:?}")).clone()
        };
        let (strict, rss) = (row("strict"), row("rss "));
        let (unfenced, process_ordered) = (row("rss, no fence"), row("process-ordered"));
        for row in [&strict, &rss, &unfenced, &process_ordered] {
            assert!(row.contains("I1 holds") && row.contains("by-level: holds ("), "{row}");
        }
        for row in [&strict, &rss] {
            assert!(row.contains("I2 holds   A1 never  A2 never"), "{row}");
        }
        assert!(strict.contains("A3 never"), "{strict}");
        assert!(unfenced.contains("A1 never  A2 never"), "{unfenced}");
        if rss.contains("A3 temporarily")
            && unfenced.contains("I2 BREAKS")
            && process_ordered.contains("I2 BREAKS  A1 never  A2 seen")
        {
            return;
        }
        seen.push(lines);
    }
    panic!("what the weaker levels allow was not shown in {ATTEMPTS} attempts: {seen:#?}");
}

/// With a network of its own, the demo finds its usual ports free whatever else this machine runs.
const WITHOUT_FLAGS: &str = r#"
set -e
ip link set lo up
mkfifo in
"$0" demo --durability memory < in > out 2>&1 &
exec 3> in
until grep -q Try: out; do sleep 0.1; kill -0 $!; done
cat out
"$0" kv get bank/001
"$0" txn put from/alice 5 to/bob 5
"$0" log create jobs
"$0" sequence next --spaces orders,payments
"$0" fuzzylog append red,blue hello
"$0" zk ls /
"$0" status
echo quit >&3
wait $!
"#;

// A demo whose commands need flags is not what a user sees who types the verb alone.
#[test]
fn verbs_find_the_demo_without_flags() {
    let alone = ["unshare", "--map-root-user", "--net"];
    let mut probe = Command::new(alone[0]);
    let probed = probe.args(&alone[1..]).args(["ip", "link", "set", "lo", "up"]).output();
    if !probed.is_ok_and(|it| it.status.success()) {
        println!("SKIPPED: the system lets this user have no network of its own");
        return;
    }
    let folder = Folder::new("without-flags");
    let mut command = program();
    let program = command.get_program().to_owned();
    let mut script = Command::new(alone[0]);
    script.args(&alone[1..]).args(["sh", "-c", WITHOUT_FLAGS]).arg(&program).current_dir(&folder.0);
    for (name, value) in command.env_remove("NO_COLOR").get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let output = script.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(!out.contains("--endpoints") && !out.contains("is taken"), "{out}");
    assert!(out.contains("orders 1   payments 1") && out.contains("serving     yes"), "{out}");
}
