//! What the program says: of what it finds, and not of something else.

use crate::{Folder, run};
use std::time::{Duration, Instant};

// A message that names another trouble than the one at hand has its reader look for that.
#[test]
fn failures_to_reach_a_cluster_name_what_was_found() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let deaf = listener.local_addr().expect("it is bound").to_string();
    let nobody = "127.0.0.1:9";
    let read = |endpoint: &str| run(&["kv", "get", "k", "--timeout", "0.5", "--endpoints", endpoint]);
    let write = |endpoint: &str| run(&["kv", "put", "k", "v", "--timeout", "0.5", "--endpoints", endpoint]);
    // Where nobody listens, and where somebody does and no answer comes; a read executes nothing.
    let refused = read(nobody);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.starts_with("error[O4001]: no host answers at 127.0.0.1:9"), "{refused:?}");
    assert!(!refused.err.contains("may have been executed"), "a read: {refused:?}");
    let refused = write(nobody);
    assert!(refused.err.starts_with("error[O4001]"), "{refused:?}");
    // Nor does what no host was sent.
    for call in [&["kv", "put", "k", "v"][..], &["txn", "put", "k", "v"], &["log", "create", "events"]] {
        let refused = run(&[call, &["--timeout", "0.5", "--endpoints", nobody]].concat());
        assert_eq!(refused.code, Some(4), "{call:?}: {refused:?}");
        assert!(refused.err.contains("so nothing was executed"), "{call:?}: {refused:?}");
        assert!(!refused.err.contains("may have been"), "{call:?}: {refused:?}");
    }
    let refused = read(&deaf);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.starts_with("error[O4003]: hosts listen at"), "{refused:?}");
    assert!(refused.err.contains("ordinate status"), "{refused:?}");
    // Another port of a host ends the connection: there is nothing to be looked for in the cluster.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let other = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for refused in [read(&other), write(&other)] {
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.starts_with("error[O4001]: no host answers at 127.0.0.1:"), "{refused:?}");
        assert!(
            refused.err.contains("no native port") && refused.err.contains("listen.native"),
            "{refused:?}"
        );
    }
    // What is no address is refused before anybody waits.
    let began = Instant::now();
    for wrong in ["127.0.0.1", "localhost", "http://127.0.0.1:7071", "a:b", ":7071"] {
        let refused = run(&["kv", "get", "k", "--endpoints", wrong]);
        assert_eq!(refused.code, Some(2), "{wrong}: {refused:?}");
        assert!(refused.err.contains("wanted: an address with a port"), "{wrong}: {refused:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

// The admin port's address is copied from a browser's bar as often as from a file.
#[test]
fn the_admin_port_is_found_by_its_url_too() {
    for given in ["http://127.0.0.1:9", "http://127.0.0.1:9/", "127.0.0.1:9"] {
        let refused = run(&["status", "--admin", given]);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.starts_with("error[O4001]: no host answers at 127.0.0.1:9\n"), "{refused:?}");
    }
    let refused = run(&["status", "--admin", "https://127.0.0.1:9"]);
    assert!(refused.code == Some(2) && refused.err.contains("without TLS"), "{refused:?}");
}

// A port that is not ZooKeeper's must be called so, and not have its user look for a broken network.
#[test]
fn zk_says_that_a_port_is_not_zookeepers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let refused = run(&["zk", "--servers", &server, "ls", "/"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.err.starts_with("error[O4102]") && refused.err.contains("ZooKeeper's port"),
        "{refused:?}"
    );
    assert!(!refused.err.contains("whole buffer") && !refused.err.contains("may have been"), "{refused:?}");
    let refused = run(&["zk", "--servers", "127.0.0.1:9", "ls", "/"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
}

// Who plans an upgrade by the page stops the cluster for nothing, or does not expect that it stops.
#[test]
fn the_page_of_versions_names_those_of_messages() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is in the repository");
    let source = read("../server/src/host.rs");
    let version = |name: &str| -> String {
        let line = source.lines().find_map(|line| line.strip_prefix(&format!("const {name}: u32 = ")));
        line.expect("host.rs has it").trim_end_matches(';').to_owned()
    };
    let words = format!(
        "Messages have version {}; {} and later are understood",
        version("MESSAGE_VERSION"),
        version("MESSAGE_VERSION_MIN")
    );
    let page = read("../docs/versions.md");
    assert!(page.contains(&words), "docs/versions.md: {words:?}");
}

// What is allowed and not meant is met in production, where it is dear.
#[test]
fn a_sound_file_may_be_warned_of() {
    let folder = Folder::new("warnings");
    let hosts = |count: u8| -> String {
        (b'a'..b'a' + count).map(|name| format!("{0} = \"h{0}:7072\"\n", char::from(name))).collect()
    };
    let check = |count: u8, more: &str| {
        folder.write("x.toml", &format!("cluster = \"c\"\n{more}\n[hosts]\n{}", hosts(count)));
        let checked = folder.run(&["config", "check", "x.toml"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        checked.out
    };
    let exposed = "[listen]\nadmin = \"0.0.0.0:7070\"";
    assert!(!check(3, "").contains("WARNING"), "{}", check(3, ""));
    assert!(check(2, "").contains("two hosts survive no failure"), "{}", check(2, ""));
    assert!(check(4, "").contains("4 hosts that vote survive no more failures than 3"), "{}", check(4, ""));
    assert!(
        check(3, exposed).contains("0.0.0.0:7070) is reached from other machines"),
        "{}",
        check(3, exposed)
    );
}
