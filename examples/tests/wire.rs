//! The wire and journal formats: golden bytes of every message and record, and hostile input.

use examples::primary_backup::{Answer, Copy, Entry, Message, Stored, Submit};
use kernel::{Bytes, HostId, HostSlot, NodeId};
use table::formats::{Format, Golden, withstand};

fn entry() -> Entry {
    Entry { client: NodeId::new(HostId(9), HostSlot(3)), tag: 5, command: Bytes::from_static(b"yes") }
}

/// One of every message, in the order of their tags.
fn messages() -> Vec<Message> {
    let (command, response) = (Bytes::from_static(b"yes"), Bytes::from_static(b"12345678"));
    vec![
        Submit { tag: 5, command }.into(),
        Stored { below: 7 }.into(),
        Copy { index: 6, entry: entry() }.into(),
        Answer { tag: 5, response }.into(),
    ]
}

// Another version's host reads what it was never sent.
#[test]
fn formats_stay_as_they_are() {
    let mut golden = Golden::default();
    golden.values("message ", &messages());
    golden.values("record ", &[entry()]);
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

// A byte that is wrong, missing or too many panics, or is read as something that nobody wrote.
#[test]
fn hostile_bytes_are_refused() {
    withstand(&[Format::of(&messages()), Format::of(&[entry()])]);
}
