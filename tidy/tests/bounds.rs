//! The Python client's bounds are those of the hosts: it has no compiler that would compare them.

use kernel::bounds::CLIENT_FRAME_BYTES_MAX;
use ordinate_client::protocol;
use std::path::Path;

/// The number that a module of the Python client gives a name: a product or a shift of literals.
fn constant(module: &str, name: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository");
    let path = root.join("clients/python/ordinate").join(module);
    let text = std::fs::read_to_string(&path).expect("the module is there");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
    let value = value.unwrap_or_else(|| panic!("{module} has no {name}"));
    let number = |text: &str| text.trim().replace('_', "").parse::<usize>().expect("a number");
    match value.split_once("<<") {
        Some((number_of, shift)) => number(number_of) << number(shift),
        None => number(value),
    }
}

// A client that closes the connection on a frame that hosts send, or sends what they refuse, fails under load and nowhere else.
#[test]
fn the_python_client_takes_and_asks_as_much_as_hosts_do() {
    assert_eq!(constant("wire.py", "FRAME_BYTES_MAX"), CLIENT_FRAME_BYTES_MAX);
    assert_eq!(protocol::BODY_BYTES_MAX, CLIENT_FRAME_BYTES_MAX);
    assert_eq!(constant("wire.py", "FRAME_HEADER_BYTES"), kernel::FRAME_HEADER_BYTES);
    assert_eq!(constant("wire.py", "PREFACE_BYTES"), protocol::PREFACE_BYTES);
    assert_eq!(constant("wire.py", "REFUSAL_BYTES_MAX"), protocol::REFUSAL_BYTES_MAX);
    assert_eq!(constant("log.py", "READ_BYTES_MAX"), shared_log::READ_BYTES_MAX as usize);
    let window = constant("kv.py", "COMMANDS_MAX");
    assert!(
        (1..=paxos::Parameters::DEFAULT.outstanding_max).contains(&window),
        "{window} commands in flight"
    );
}
