//! Four-letter words, and what they say.

use crate::client::{Client, create, read};
use crate::driver::{Cluster, Shape};
use coordination::Settings;
use coordination::gateway::{HostCall, HostFacts};
use coordination::wire::op;

/// What a four-letter word is answered.
fn say(c: &mut Cluster, word: &[u8]) -> String {
    let node = c.connect(0);
    c.input(node, word.to_vec());
    c.settle();
    assert!(c.closed.contains_key(&node));
    String::from_utf8(c.output(node)).expect("text")
}

// Operators look for leaders, ports and owners in these words; exporters fail on fields that are missing.
#[test]
fn words_report_what_the_host_says_and_who_owns_what() {
    let shape = Shape { hosts: 1, groups: 1, shards: 4, seed: 43 };
    let mut cluster = Cluster::with(shape, |settings| settings.words = Settings::words_of("*"));
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    for path in ["/e1", "/e2"] {
        assert_eq!(client.ask(c, op::CREATE, &create(path, b"", 1)).error, 0);
    }
    let row = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let facts = HostFacts {
        mode: "leader".to_owned(),
        monitor: row("open_file_descriptor_count", "12"),
        settings: row("clientPort", "2181"),
        environment: row("os.name", "Linux"),
    };
    c.host_call(0, HostCall { advertises: None, facts: Some(facts), probes: false });
    assert!(say(c, b"srvr").contains("Mode: leader\n"));
    assert!(say(c, b"mntr").contains("zk_server_state\tleader\n"));
    assert!(say(c, b"mntr").contains("zk_open_file_descriptor_count\t12\n"));
    assert!(say(c, b"conf").contains("clientPort=2181\n"));
    assert!(say(c, b"envi").contains("os.name=Linux\n"));
    assert!(say(c, b"cons").contains(" /10.1.2.3:40000[1]("), "{}", say(c, b"cons"));
    let session = format!("0x{:x}", client.session);
    let dump = say(c, b"dump");
    assert!(dump.contains(&format!("Sessions with Ephemerals (1):\n{session}:\n\t/e1\n\t/e2\n")), "{dump}");
    assert_eq!(say(c, b"gtmk"), "306");
    // The mask may come in pieces.
    let node = c.connect(0);
    c.input(node, b"stmk\0\0\0".to_vec());
    c.settle();
    assert!(!c.closed.contains_key(&node));
    c.input(node, b"\0\0\0\x01\x02".to_vec());
    c.settle();
    assert_eq!((c.output(node), say(c, b"gtmk")), (b"258".to_vec(), "258".to_owned()));
    assert_eq!(say(c, b"srst"), "Server stats reset.\n");
}

// Probes and exporters speak before any frame, and take every other text for a dead server.
#[test]
fn four_letter_words_are_answered() {
    let mut cluster = Cluster::new(1, 1, 4, 37);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    client.ask(c, op::CREATE, &create("/e", b"", 1));
    client.ask(c, op::GET_DATA, &read("/e", true));
    c.pass(2000);
    let mut say = |word: &str| say(c, word.as_bytes());
    assert_eq!((say("ruok"), say("isro")), ("imok".to_owned(), "rw".to_owned()));
    let server = say("srvr\n");
    for line in
        ["Zookeeper version: 3.9", "Latency min/avg/max: ", "Mode: standalone", "Node count: 6", "Zxid: 0x"]
    {
        assert!(server.contains(line), "{line} in {server}");
    }
    let numbers = say("mntr");
    for line in ["zk_znode_count\t5\n", "zk_ephemerals_count\t1\n", "zk_watch_count\t1\n", "zk_version\t3.9"]
    {
        assert!(numbers.contains(line), "{line} in {numbers}");
    }
    assert!(say("wchp").starts_with("/e\n\t0x1"));
    assert!(say("stat").contains("Clients:\n /10.1.2.3"));
    for word in ["cons", "conf", "dump", "envi", "wchs", "wchc", "dirs"] {
        assert!(!say(word).is_empty(), "{word}");
    }
    assert_eq!(say("srst"), "srst is not executed because it is not in the whitelist.\n");
}
