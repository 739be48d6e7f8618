//! The command line as its users meet it: help, exit codes, the text of the errors that matter.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod demo;
mod figures;
mod messages;
mod transcripts;
mod verbs;

/// What a run came to.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The program without what the tester's environment would add.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordinate"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("ORDINATE_")) {
        command.env_remove(name);
    }
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command
}

fn run_in(folder: &Path, arguments: &[&str]) -> Run {
    let output = program().current_dir(folder).args(arguments).output().expect("the binary was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn run(arguments: &[&str]) -> Run {
    run_in(Path::new("."), arguments)
}

/// A folder of one test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the build's folder is writable");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("the build's folder is writable");
    }

    fn run(&self, arguments: &[&str]) -> Run {
        run_in(&self.0, arguments)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed goes with the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// A user who names the wrong folder must learn so, and which kind is wanted.
#[test]
fn inspect_says_what_is_no_data_directory() {
    let folder = Folder::new("inspect");
    let refused = folder.run(&["inspect", "."]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(
        refused.err,
        "error[O2107]: . cannot be inspected\n  . is no data directory of a host: it has no file ordinate.meta\n  -> ordinate inspect DATA/HOST\n"
    );
    assert!(folder.run(&["inspect", "nowhere"]).err.starts_with("error[O2107]"));
    assert_eq!(folder.run(&["inspect", ".", "--slot", "x"]).code, Some(2));
}

// An archive that does not answer must end the command, and say why; one that is named wrongly must not be taken for another.
#[test]
fn an_archive_that_is_not_there_is_reported() {
    let folder = Folder::new("archive");
    let missing = format!("file://{}/none", folder.0.display());
    let reported = folder.run(&["log", "archive", "list", "--archive", &missing]);
    assert_eq!(reported.code, Some(1), "{reported:?}");
    assert!(
        reported.err.starts_with("error[O1020]") && reported.err.contains("is it mounted?"),
        "{reported:?}"
    );
    let empty = format!("file://{}", folder.0.display());
    let reported = folder.run(&["log", "archive", "list", "--archive", &empty]);
    assert_eq!((reported.code, reported.out.as_str()), (Some(0), ""), "{reported:?}");
    let reported = folder.run(&["log", "archive", "read", "jobs", "--archive", &empty]);
    assert!(reported.code == Some(2) && reported.err.starts_with("error[O1023]"), "{reported:?}");
    assert_eq!(folder.run(&["log", "archive", "list", "--archive", "gs://bucket"]).code, Some(2));
    // Nobody listens there.
    let began = Instant::now();
    let output = program()
        .args(["log", "archive", "list", "--archive", "s3://bucket/logs"])
        .envs([
            ("AWS_ENDPOINT", "http://127.0.0.1:9"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ])
        .output()
        .expect("the binary was built");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error[O1020]") && said.contains("s3://bucket/logs") && said.contains("127.0.0.1:9"),
        "{said}"
    );
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let explained = folder.run(&["config", "explain", "log.archive"]);
    assert!(explained.out.contains("AWS_ACCESS_KEY_ID"), "{explained:?}");
    folder.write(
        "bad.toml",
        "cluster = \"x\"\n[hosts]\na = \"127.0.0.1:1\"\n[log]\nspaces = 1\narchive = \"/mnt\"\n",
    );
    let refused = folder.run(&["config", "check", "bad.toml"]);
    assert!(refused.code == Some(2) && refused.err.contains("file:///DIRECTORY"), "{refused:?}");
}

// A verb whose help fails, or says nothing of its arguments, is found by its users.
#[test]
fn every_verb_has_help() {
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    let mut seen = 0;
    while let Some(verb) = waiting.pop() {
        let mut arguments: Vec<&str> = verb.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = run(&arguments);
        assert_eq!(help.code, Some(0), "{verb:?}: {help:?}");
        assert!(help.out.contains("Usage: ordinate"), "{verb:?}: {}", help.out);
        assert!(!help.out.starts_with("Usage"), "{verb:?} does not say what it does");
        seen += 1;
        let listed = help.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        let below = listed
            .take_while(|line| line.starts_with("  "))
            .filter_map(|line| line.split_whitespace().next());
        waiting.extend(
            below.filter(|name| *name != "help").map(|name| [verb.clone(), vec![name.to_owned()]].concat()),
        );
    }
    assert!(seen > 25, "only {seen} verbs were found");
    assert!(run(&["--version"]).out.starts_with("ordinate "));
}

// A typo must not run anything, and scripts must see it.
#[test]
fn unknown_verbs_and_flags_are_bad_input() {
    for arguments in [&["nosuch"][..], &["kv", "nosuch"], &["status", "--nosuch"], &[]] {
        assert_eq!(run(arguments).code, Some(2), "{arguments:?}");
    }
    for value in ["nan", "0", "1e300", "soon"] {
        let refused = run(&["kv", "get", "x", "--timeout", value]);
        assert_eq!(refused.code, Some(2), "--timeout {value}: {refused:?}");
    }
}

#[track_caller]
fn expect_failure(run: &Run, code: i32, text: &str) {
    assert_eq!((run.code, run.err.trim_end()), (Some(code), text));
}

const SOUND: &str =
    "cluster = \"x\"\n[hosts]\na = \"127.0.0.1:1\"\nb = \"127.0.0.1:2\"\nc = \"127.0.0.1:3\"\n";

// A wrong cluster file must be refused before it runs anything, with the line, the fact and the nearest right thing.
#[test]
fn wrong_cluster_files_are_explained() {
    let folder = Folder::new("config");
    let refused = |text: &str, wanted: &str| {
        folder.write("x.toml", text);
        expect_failure(&folder.run(&["config", "check", "x.toml"]), 2, wanted);
    };
    refused(
        &format!("{SOUND}[durability]\nakc = \"memory\"\n"),
        "error[O2001]: unknown key durability.akc\n  x.toml:7\n  -> did you mean durability.ack?",
    );
    refused(
        &format!("{SOUND}[durability]\nack = \"disk\"\n"),
        "error[O2001]: durability.ack: \"disk\" is not one of: majority-fsync, memory (from line 7 of the cluster file)\n  x.toml:7\n  -> ordinate config explain durability.ack",
    );
    refused(
        "cluster = \"x\"\n",
        "error[O2001]: the cluster has no hosts\n  x.toml\n  -> add a section [hosts] with lines like  a = \"a.example.net:7072\"",
    );
    refused(
        "[hosts]\na = \"127.0.0.1:1\"\n",
        "error[O2001]: the cluster has no name\n  x.toml\n  -> add a line like  cluster = \"prod-eu\"  at the top",
    );
    refused(
        &format!("{SOUND}[[place]]\nrole = \"paxos.acceptr\"\non = [\"a\"]\n"),
        "error[O2001]: unknown role paxos.acceptr\n  x.toml:7\n  -> did you mean paxos.acceptor?",
    );
    refused(
        &format!("{SOUND}[[place]]\nrole = \"paxos.acceptor\"\non = [\"a\", \"bb\"]\n"),
        "error[O2001]: paxos.acceptor is placed on unknown host bb\n  x.toml:6\n  -> did you mean b?",
    );
    refused(
        &format!("{SOUND}[paxos]\nfaults = 2\n"),
        "error[O2001]: paxos with faults = 2 needs 5 acceptors, found 3\n  x.toml\n  -> add hosts, or lower paxos.faults",
    );
    refused(
        "cluster = \"x\"\n[hosts]\n\"../a\" = \"127.0.0.1:1\"\n",
        "error[O2001]: \"../a\" is no name for a host\n  x.toml:3\n  -> a host's name has 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first",
    );
    refused(
        &format!("{SOUND}[tls]\nca = \"ca.pem\"\n"),
        "error[O2001]: TLS is configured by halves\n  x.toml\n  -> give tls.ca, tls.cert and tls.key together; `ordinate tls init` makes them",
    );
    expect_failure(
        &folder.run(&["config", "check", "nowhere.toml"]),
        2,
        "error[O2001]: cannot read nowhere.toml: No such file or directory (os error 2)\n  -> give the file with --config FILE; `ordinate config example` prints one to start from",
    );
}

// The file that new users start from must pass the check, and what a key is worth must be shown with its origin.
#[test]
fn the_example_is_checked_and_explained() {
    let folder = Folder::new("example");
    let example = run(&["config", "example"]);
    assert_eq!(example.code, Some(0));
    folder.write("x.toml", &example.out);
    let check = folder.run(&["config", "check", "x.toml"]);
    let wanted =
        "x.toml is sound: cluster prod-eu, 3 hosts\n  durability majority-fsync; survives 1 failed hosts\n";
    assert_eq!((check.code, check.out.as_str()), (Some(0), wanted));
    let explain = folder.run(&["config", "explain", "durability.ack", "--config", "x.toml"]);
    assert!(
        explain.out.contains("  value     majority-fsync   (line 17 of the cluster file)\n"),
        "{}",
        explain.out
    );
    let ours = program()
        .current_dir(&folder.0)
        .env("ORDINATE_DURABILITY__ACK", "memory")
        .args(["config", "explain", "durability.ack", "--config", "x.toml"])
        .output()
        .expect("the binary was built");
    let ours = String::from_utf8_lossy(&ours.stdout).into_owned();
    assert!(ours.contains("memory   (environment variable ORDINATE_DURABILITY__ACK)"), "{ours}");
    let all = run(&["config", "explain"]);
    assert!(all.out.matches("if wrong").count() > 15, "some keys are not explained");
    expect_failure(
        &run(&["config", "explain", "durability.akc"]),
        2,
        "error[O2004]: unknown key durability.akc\n  did you mean durability.ack?\n  -> ordinate config explain",
    );
}

// A host that starts under a wrong name or address would serve the wrong data, or nobody.
#[test]
fn serve_refuses_what_does_not_fit() {
    let folder = Folder::new("serve");
    folder.write("x.toml", SOUND);
    let serve = |rest: &[&str]| folder.run(&[&["serve", "--config", "x.toml"], rest].concat());
    expect_failure(
        &serve(&["--host", "d"]),
        2,
        "error[O2002]: no host d in x.toml\n  its hosts are: a, b, c\n  -> ordinate serve --config x.toml --host a",
    );
    expect_failure(
        &serve(&["--host", "a", "--set", "listen.natve=127.0.0.1:0"]),
        2,
        "error[O2004]: unknown key listen.natve\n  did you mean listen.native?\n  -> ordinate config explain",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    folder.write("x.toml", &format!("cluster = \"x\"\n[hosts]\na = \"{address}\"\n"));
    let refused = serve(&["--host", "a"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.err.starts_with(&format!("error[O2003]: cannot listen at {address} ([hosts])\n")),
        "{refused:?}"
    );
    assert!(!refused.err.contains("--set"), "[hosts] is no key: {refused:?}");
}

// A call to nobody must end within its time limit and differ from a refusal.
#[test]
fn nobody_answers() {
    let begun = Instant::now();
    let get = run(&["kv", "get", "x", "--endpoints", "127.0.0.1:1", "--timeout", "0.5"]);
    assert!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
    assert_eq!(get.code, Some(4));
    let lines: Vec<&str> = get.err.lines().collect();
    assert_eq!(lines[0], "error[O4001]: no host answers at 127.0.0.1:1");
    assert!(lines[1].starts_with("  no answer within 500ms") && lines[2].starts_with("  -> "), "{}", get.err);
    for verb in [&["status"][..], &["cluster", "members", "list"]] {
        let status = run(&[verb, &["--admin", "127.0.0.1:1"]].concat());
        assert_eq!(status.code, Some(4), "{status:?}");
        assert!(status.err.starts_with("error[O4001]: no host answers at 127.0.0.1:1\n"), "{status:?}");
    }
    let change = run(&["cluster", "members", "remove", "c", "--admin", "127.0.0.1:1"]);
    assert_eq!(change.code, Some(4), "{change:?}");
}

// A key that others can read, or an authority that is overwritten, ends the trust between the hosts.
#[test]
fn certificates_are_made_once_and_retained_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("tls");
    let made = folder.run(&["tls", "init", "--out", "t", "a", "b"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(
        made.out.starts_with("wrote t: ca.pem, and a .pem and .key for a, b and client\n"),
        "{}",
        made.out
    );
    for name in ["ca", "a", "b", "client"] {
        for (end, mode, begin) in
            [("pem", 0o644, "-----BEGIN CERTIFICATE-----"), ("key", 0o600, "-----BEGIN PRIVATE KEY-----")]
        {
            let path = folder.0.join(format!("t/{name}.{end}"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}.{end}: {error}"));
            assert!(text.starts_with(begin), "{name}.{end}: {text}");
            let found = std::fs::metadata(&path).expect("it was read").permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name}.{end} has mode {found:o}");
        }
    }
    assert!(made.out.contains("\n  a.pem is good for a, localhost, 127.0.0.1\n"), "{}", made.out);
    folder.write("x.toml", "cluster = \"x\"\n[hosts]\na = \"a.example.net:1\"\nb = \"[fd00::2]:2\"\n");
    let made = folder.run(&[
        "tls",
        "init",
        "--out",
        "v",
        "--config",
        "x.toml",
        "--san",
        "a=10.0.0.7",
        "--san",
        "db",
    ]);
    let (a, b) =
        ("a, localhost, 127.0.0.1, a.example.net, 10.0.0.7, db", "b, localhost, 127.0.0.1, fd00::2, db");
    let wanted = format!("\n  a.pem is good for {a}\n  b.pem is good for {b}\n");
    assert!(made.code == Some(0) && made.out.contains(&wanted), "{made:?}");
    let nobody = folder.run(&["tls", "init", "--out", "w", "--san", "c=10.0.0.7", "a"]);
    assert!(nobody.code == Some(2) && nobody.err.starts_with("error[O2105]: --san c=10.0.0.7 names no host"));
    let authority = || std::fs::read(folder.0.join("t/ca.key")).expect("it was made");
    let before = authority();
    expect_failure(
        &folder.run(&["tls", "init", "--out", "t", "a"]),
        2,
        "error[O2105]: there is an authority already\n  t/ca.key exists; new certificates would not fit the old ones\n  -> ordinate tls init --out ANOTHER-FOLDER ...",
    );
    assert_eq!(authority(), before);
    for hosts in [&["../a"][..], &["client"], &["ca"], &["a", "a"], &[""]] {
        let refused = folder.run(&[&["tls", "init", "--out", "u"], hosts].concat());
        assert_eq!(refused.code, Some(2), "{hosts:?}: {refused:?}");
        assert!(refused.err.starts_with("error[O2105]: no certificate can be made"), "{refused:?}");
        assert!(!folder.0.join("u").exists(), "{hosts:?} left something behind");
    }
}

// The simulator is where people look first for trust: it must run, name its families and repeat a plan exactly.
#[test]
fn the_simulator_runs_and_repeats() {
    let folder = Folder::new("sim");
    let list = run(&["sim", "list"]);
    let families: String =
        scenarios::families().iter().map(|family| format!("{}\n", family.family())).collect();
    assert_eq!((list.code, list.out.as_str()), (Some(0), families.as_str()));
    assert!(families.starts_with("paxos\nmason\n"), "{families}");
    let sweep = folder.run(&["sim", "run", "paxos", "--seeds", "20", "--json", "report.json"]);
    // Whether the engine is right is for the scenarios to say; here, that nothing is hidden from the caller.
    let reported =
        sweep.out.strip_prefix("paxos: 20 seeds, ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let violations: u64 = reported.unwrap_or_else(|| panic!("{sweep:?}"));
    assert_eq!(sweep.code, Some(if violations == 0 { 0 } else { 5 }), "{sweep:?}");
    assert_eq!(sweep.out.matches("\nVIOLATION paxos/").count() as u64, violations.min(5), "{}", sweep.out);
    let report = std::fs::read_to_string(folder.0.join("report.json")).expect("it was asked for");
    assert!(serde_json::from_str::<serde_json::Value>(&report).is_ok(), "{report}");

    let family = scenarios::families().into_iter().find(|family| family.family() == "paxos");
    let outcome = family.expect("it was listed").run(7, &sim::Options::default());
    assert!(!outcome.plan.faults.is_empty(), "a plan without faults repeats nothing");
    folder.write("seven.plan", &outcome.plan.to_text());
    let replay = folder.run(&["sim", "replay", "paxos", "seven.plan"]);
    assert_eq!(replay.code, Some(0), "{replay:?}");
    let again = folder.run(&["sim", "run", "paxos", "--seed", "7"]);
    assert!(replay.out.starts_with("paxos seed 7: holds; "), "{}", replay.out);
    assert_eq!(replay.out, again.out, "the plan and its seed are two different runs");

    expect_failure(
        &run(&["sim", "run", "nosuch"]),
        2,
        &format!(
            "error[O6001]: no family nosuch; there are: {}\n  -> ordinate sim list, or ordinate sim run --help",
            families.trim_end().replace('\n', ", ")
        ),
    );
    folder.write("broken.plan", "this is no plan\n");
    let broken = folder.run(&["sim", "replay", "paxos", "broken.plan"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.starts_with("error[O6001]: broken.plan: "), "{broken:?}");
}

/// A write of 1, then a read that finds nothing.
const STALE: &str = "{:index 0, :time 0, :type :invoke, :process 0, :f :txn, :value [[:w :x 1]]}
{:index 1, :time 10, :type :ok, :process 0, :f :txn, :value [[:w :x 1]]}
{:index 2, :time 20, :type :invoke, :process 1, :f :txn, :value [[:r :x nil]]}
{:index 3, :time 30, :type :ok, :process 1, :f :txn, :value [[:r :x nil]]}
";

// A checker that says "holds" by its exit code when it does not hold is worse than none.
#[test]
fn histories_are_decided() {
    let folder = Folder::new("check");
    folder.write("stale.edn", STALE);
    folder.write("noise.edn", "this is no history\n");
    let holds = folder.run(&["check", "--model", "sequential", "stale.edn"]);
    assert!(holds.code == Some(0) && holds.out.contains("sequential: holds"), "{holds:?}");
    let violated = folder.run(&["check", "--model", "strict", "stale.edn"]);
    assert!(violated.code == Some(5) && violated.out.contains("VIOLATED"), "{violated:?}");
    let noise = folder.run(&["check", "noise.edn"]);
    assert_eq!(noise.code, Some(2), "{noise:?}");
    let nowhere = folder.run(&["check", "nowhere.json"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(
        nowhere
            .err
            .starts_with("error[O9001]: nowhere.json is no history\n  it cannot be opened: No such file"),
        "{nowhere:?}"
    );
    assert_eq!(folder.run(&["check", "--model", "nosuch", "stale.edn"]).code, Some(2));
}

// `ordinate config explain | head` must not end in a report of a panic.
#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = program()
        .args(["config", "explain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends by itself");
    // It may have written everything before the pipe was closed.
    assert!(matches!(output.status.code(), Some(0 | 141)), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

// TLS that is asked for and cannot be had must not become a port without it.
#[test]
fn a_secure_port_for_http_needs_certificates() {
    let folder = Folder::new("http-secure");
    folder.write("x.toml", &format!("{SOUND}[listen]\nhttp_secure = \"127.0.0.1:7443\"\n"));
    let refused = folder.run(&["config", "check", "x.toml"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("listen.http_secure is set without [tls]"), "{refused:?}");
}
