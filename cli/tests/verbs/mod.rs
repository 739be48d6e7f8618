//! What all verbs have in common: JSON, exit codes, profiles.

use crate::{Folder, Run, program, run};
use std::io::{Read as _, Write as _};

// A verb without JSON ends a script; a flag that is added to some of them is missed at the others.
#[test]
fn every_verb_that_prints_results_takes_output() {
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    let mut without = Vec::new();
    while let Some(verb) = waiting.pop() {
        let words: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
        let help = run(&words).out;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let below = listed
            .take_while(|line| line.starts_with("  "))
            .filter_map(|line| line.split_whitespace().next());
        let below: Vec<String> = below.filter(|name| *name != "help").map(str::to_owned).collect();
        if below.is_empty() && !help.contains("-o, --output") {
            without.push(verb.join(" "));
        }
        waiting.extend(below.into_iter().map(|name| [verb.clone(), vec![name]].concat()));
    }
    without.sort();
    assert_eq!(without, ["completions", "demo", "serve"]);
}

// A script that asks a cluster that is down must see that by the exit code, and not take it for a refusal.
#[test]
fn verbs_that_reach_nobody_end_with_4() {
    let folder = Folder::new("nobody");
    folder.write("x.txn", "get a\n");
    let native = ["--endpoints", "127.0.0.1:9", "--timeout", "0.3"];
    for verb in [
        &["kv", "get", "k"][..],
        &["kv", "put", "k", "v"],
        &["kv", "del", "k"],
        &["kv", "incr", "k"],
        &["kv", "scan"],
        &["txn", "get", "k"],
        &["txn", "put", "k", "v"],
        &["txn", "del", "k"],
        &["txn", "scan"],
        &["txn", "run", "x.txn"],
        &["txn", "status", "0123456789abcdef-1"],
        &["sequence", "next", "--spaces", "s"],
        &["log", "create", "l"],
        &["log", "list"],
        &["log", "multi-append", "a=1", "b=2"],
        &["log", "read", "l"],
        &["log", "tail", "l"],
        &["log", "trim", "l", "--before", "1"],
        &["log", "seal", "l"],
        &["log", "delete", "l"],
        &["log", "stat", "l"],
        &["log", "dump", "l", "--out", "l.dump"],
    ] {
        let refused = folder.run(&[verb, &native].concat());
        assert_eq!(refused.code, Some(4), "{verb:?}: {refused:?}");
        assert!(refused.err.starts_with("error[O"), "{verb:?}: {refused:?}");
        // Who reads must not be sent to look for what a write may have done.
        let reads = ["get", "scan", "list", "read", "tail", "stat", "dump", "status"].contains(&verb[1]);
        assert!(!reads || refused.err.contains("nothing was executed"), "{verb:?}: {refused:?}");
    }
    for verb in [
        &["status"][..],
        &["cluster", "members", "list"],
        &["cluster", "proxies"],
        &["cluster", "shards"],
        &["txn", "locks"],
        &["txn", "shards"],
        &["zk", "ls", "/"],
        &["zk", "create", "/a"],
    ] {
        let refused = folder.run(&[verb, &["--endpoints", "127.0.0.1:9"]].concat());
        assert_eq!(refused.code, Some(4), "{verb:?}: {refused:?}");
    }
    let sessions = folder.run(&["zk", "sessions", "--admin", "127.0.0.1:9"]);
    assert_eq!(sessions.code, Some(4), "{sessions:?}");
    let backup = folder.run(&["backup", "--to", "backups", "--admin", "127.0.0.1:9"]);
    assert_eq!(backup.code, Some(4), "{backup:?}");
}

// Who has mixed up two ports, or a name, looks for what is broken, and nothing is.
#[test]
fn wrong_ports_and_names_are_said() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let answer = std::thread::spawn(move || {
        for said in [wire::native::refusal("no ORDINATE"), Vec::new()] {
            let (mut stream, _) = listener.accept().expect("the command connects");
            let mut read = [0; 1_024];
            let _ = stream.read(&mut read);
            let _ = stream.write_all(&said);
        }
    });
    for _ in 0..2 {
        let refused = run(&["status", "--admin", &address]);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("what listens there does not speak HTTP"), "{refused:?}");
    }
    answer.join().expect("it does not panic");
    for verb in [&["log", "create", "bad name"][..], &["log", "read", "bad/name"]] {
        let refused = run(&[verb, &["--endpoints", "127.0.0.1:9"]].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("letters, digits, '.', '_' and '-', at most 128"), "{refused:?}");
    }
}

// A profile that is misread aims a write at another cluster.
#[test]
fn profiles_say_where_a_cluster_is() {
    let folder = Folder::new("profiles");
    std::fs::create_dir_all(folder.0.join("ordinate")).expect("the build's folder is writable");
    let run = |arguments: &[&str], more: &[(&str, &str)]| {
        let mut command = program();
        command.current_dir(&folder.0).env("XDG_CONFIG_HOME", &folder.0).envs(more.iter().copied());
        let output = command.args(arguments).output().expect("the binary was built");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    };
    let get = ["kv", "get", "k", "--timeout", "0.3"];
    let asked = |run: &Run, address: &str| {
        assert!(run.err.starts_with(&format!("error[O4001]: no host answers at {address}\n")), "{run:?}");
    };
    let none = run(&[&get[..], &["--profile", "prod"]].concat(), &[]);
    assert!(
        none.code == Some(2) && none.err.starts_with("error[O1007]: there is no profile prod\n"),
        "{none:?}"
    );
    let text = "[profile.default]\nendpoints = [\"127.0.0.1:8\"]\n[profile.prod]\nendpoints = [\"127.0.0.1:7\"]\n\
                token_file = \"token\"\n";
    folder.write("ordinate/profiles.toml", text);
    folder.write("ordinate/token", "secret\n");
    asked(&run(&get, &[]), "127.0.0.1:8");
    asked(&run(&[&get[..], &["--profile", "prod"]].concat(), &[]), "127.0.0.1:7");
    asked(&run(&get, &[("ORDINATE_PROFILE", "prod")]), "127.0.0.1:7");
    asked(&run(&get, &[("ORDINATE_PROFILE", "prod"), ("ORDINATE_ENDPOINTS", "127.0.0.1:6")]), "127.0.0.1:6");
    asked(&run(&[&get[..], &["--endpoints", "127.0.0.1:5"]].concat(), &[]), "127.0.0.1:5");
    let listed = run(&["config", "profiles"], &[]);
    assert!(listed.code == Some(0) && listed.out.contains("prod            127.0.0.1:7"), "{listed:?}");
    let help = run(&["--profile", "prod", "kv", "get", "--help"], &[]);
    assert!(!help.out.contains("secret"), "a token is no help: {help:?}");
    folder.write("ordinate/profiles.toml", "[profile.default]\nendpoint = [\"127.0.0.1:8\"]\n");
    let refused = run(&get, &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("unknown field `endpoint`"), "{refused:?}");
}
