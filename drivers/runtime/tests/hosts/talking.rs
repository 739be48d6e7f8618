//! Hosts that talk, and are killed.

use super::support::*;
use runtime::{Direction, Host, JournalOptions, LinkFault, Storage};

// Without this nothing works: questions over a link, answers back, counted on both sides.
#[test]
fn two_hosts_talk() {
    let mut configs = cluster(&["a", "b"]).into_iter();
    let a = Host::start(configs.next().expect("a"), both, vec![]).expect("a starts");
    let b = Host::start(configs.next().expect("b"), both, vec![]).expect("b starts");
    let answer = a.handle().request(ASKER, question("b", 1000)).wait(LIMIT);
    assert_eq!(answer, Ok(1000));
    let metrics = b.handle().metrics().wait(LIMIT).expect("b runs");
    assert!(metrics.messages_in >= 1000 && metrics.bytes_in > 30_000, "{metrics:?}");
    a.stop().expect("a stops in peace");
    b.kill().expect("b is killed in peace");
}

// What was acknowledged must be there after a crash, at the same positions, and the positions must go on.
#[test]
fn acknowledged_records_survive_a_kill() {
    let directory = Scratch::new("kill");
    let mut expected = 0;
    for _run in 0..3 {
        let mut config = cluster(&["a"]).remove(0);
        let journal = JournalOptions { segment_bytes: 1 << 20, ..JournalOptions::default() };
        config.storage = Storage::Directory { path: directory.path().to_owned(), journal };
        let host = Host::start(config, both, vec![]).expect("the host starts");
        let restored = host
            .handle()
            .inspect(|view| match view.node(ORACLE) {
                Some(Member::Oracle(oracle)) => oracle.restored.clone(),
                Some(Member::Asker(_)) | None => vec![],
            })
            .wait(LIMIT)
            .expect("the host runs");
        assert!(restored.len() as u64 >= expected, "{} of {expected} records are back", restored.len());
        assert!(restored.iter().enumerate().all(|(index, (position, _))| position.0 == index as u64));
        assert_eq!(host.handle().request(ASKER, question("a", 500)).wait(LIMIT), Ok(500));
        expected = restored.len() as u64 + 500;
        let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
        assert!(metrics.fsyncs > 0 && metrics.journal_bytes >= 1 << 20, "{metrics:?}");
        host.kill().expect("killed in peace");
    }
}

// A fault that lets messages through, or a heal that does not, would make every partition test worthless.
#[test]
fn partitions_hold_and_heal() {
    let mut configs = cluster(&["a", "b"]).into_iter();
    let a = Host::start(configs.next().expect("a"), both, vec![]).expect("a starts");
    let b = Host::start(configs.next().expect("b"), both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 10)).wait(LIMIT), Ok(10));
    let b_id = b.handle().host();
    for (direction, healer) in [(Direction::To, Direction::To), (Direction::From, Direction::From)] {
        let dropped = || {
            let metrics = a.handle().metrics().wait(LIMIT).expect("a runs");
            metrics.drops.get("link severed on purpose").copied().unwrap_or(0)
        };
        let before = dropped();
        a.handle().fault(b_id, LinkFault::Sever(direction));
        let answer = a.handle().request(ASKER, question("b", 10));
        eventually("something is dropped", || dropped() > before);
        a.handle().fault(b_id, LinkFault::Heal(healer));
        assert_eq!(answer.wait(LIMIT), Ok(10));
    }
}
