//! The Python client of this repository, against hosts that live, die, and speak TLS.

use crate::peers;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// The client's own tests. What waits for ever says where, and fails.
const OWN_TESTS: &str = "import faulthandler, unittest; faulthandler.dump_traceback_later(300, exit=True); \
                         unittest.main(module=None, argv=['unittest', 'discover', 'tests'])";

const SETTINGS: &str = "[log]\nspaces = 3\n[sequence]\nspaces = [\"orders\", \"payments\"]\n\
                        [clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = 3\n\
                        [fuzzylog]\npartitions = 2";

/// The interpreter with these arguments, in the client's folder; none if there is none.
fn python(arguments: &[&str]) -> Option<Command> {
    let works =
        Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).status();
    if !works.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("ORDINATE_PEERS_REQUIRED").is_none(), "no python3 of 3.11 or later");
        println!("SKIPPED: there is no python3 of 3.11 or later");
        return None;
    }
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(peers::root().join("clients/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    Some(command)
}

fn passes(mut command: Command, cluster: &Cluster) {
    command.env("ORDINATE_ENDPOINTS", cluster.endpoints_from(0).join(","));
    let output = command.output().expect("it was there a moment ago");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("OK\n") && !said.contains("skipped"), "{said}");
}

// A client that was written after the specification and is never held against it, or against a host.
#[test]
fn the_python_clients_own_tests_pass() {
    side_by_side(async {
        let Some(command) = python(&["-c", OWN_TESTS]) else { return };
        let cluster = Cluster::start(3, SETTINGS, "").await;
        passes(command, &cluster);
    });
}

// A client that does not check whom it talks to, or cannot say who it is.
#[test]
fn the_python_client_speaks_tls() {
    side_by_side(async {
        let Some(mut command) = python(&["tests/test_cluster.py"]) else { return };
        let mut cluster = Cluster::planned(3, SETTINGS, "");
        let folder = cluster.use_tls(&[]);
        cluster.launch_all();
        cluster.until_ready().await;
        command.env("ORDINATE_TLS", &folder);
        passes(command, &cluster);
    });
}

// An acknowledged write that is gone, or one that was sent again and executed twice.
#[test]
fn what_the_python_client_was_reported_survives_killed_hosts() {
    side_by_side(async {
        let mut cluster = Cluster::planned(3, SETTINGS, "");
        let endpoints = cluster.endpoints_from(0).join(",");
        let Some(mut command) = python(&["tests/failover.py", &endpoints]) else { return };
        cluster.launch_all();
        cluster.until_ready().await;
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("it was there a moment ago");
        let mut lines =
            BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut acknowledged = |more: u64| {
            let count = |line: String| line.strip_prefix("acknowledged ")?.parse::<u64>().ok();
            let mut counts = lines.by_ref().filter_map(count);
            let first = counts.next().expect("it goes on");
            assert!(counts.any(|count| count >= first + more), "it goes on");
        };
        acknowledged(100);
        for host in 0..3 {
            cluster.kill(host);
            acknowledged(100);
            cluster.launch(host);
            cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(host)).await;
            acknowledged(100);
        }
        drop(child.stdin.take());
        let verdict = lines.last().unwrap_or_default();
        assert!(child.wait().expect("it can be waited for").success(), "{verdict}");
        println!("Python: {verdict}");
    });
}
