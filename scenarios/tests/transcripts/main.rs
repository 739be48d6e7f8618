//! What every role says to every other while something happens, as text to read: a write, an election, a lost sequencer, and so on.
//!
//! Each flow is a calm cluster of the simulator (no faults but those of the script, every message in flight for the same time) and a script of
//! steps. The transcript is in the text file beside. `ORDINATE_BLESS=1 cargo test -p scenarios --test transcripts` writes the files
//! again; read the difference before you commit it.

mod mason;
mod paxos;
mod script;

use script::Flow;
use std::path::PathBuf;

/// Compares a flow with its file, or writes the file if that is asked for.
fn compare<N: kernel::Node>(name: &str, flow: Flow<N>) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(format!("{name}.txt"));
    let found = flow.transcript();
    if std::env::var_os("ORDINATE_BLESS").is_some() {
        std::fs::write(&path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = known.lines().zip(found.lines()).position(|(known, found)| known != found);
    let at = differs.unwrap_or_else(|| known.lines().count().min(found.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    assert!(
        known == found,
        "{name}.txt is not what happens, from line {} on:\n  file  {}\n  now   {}\n\
         `ORDINATE_BLESS=1 cargo test -p scenarios --test transcripts` writes it again",
        at + 1,
        line(&known),
        line(&found)
    );
}

/// Each flow is a test: a protocol that says more, less or something else than its transcript was changed, and somebody should know.
macro_rules! flows {
    ($($module:ident::$name:ident),+ $(,)?) => { $(
        #[test]
        fn $name() {
            compare(stringify!($name), $module::$name());
        }
    )+ };
}

flows!(
    paxos::a_write,
    paxos::a_read,
    paxos::an_election,
    paxos::a_host_comes_back,
    paxos::a_host_is_replaced,
    mason::an_operation,
    mason::an_operation_of_two_shards,
    mason::a_lost_sequencer,
    mason::a_lost_proxy_leader,
    mason::a_shard_is_added,
);
