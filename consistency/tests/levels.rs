//! A level per operation: what each level may show, and what it may not.
//!
//! An answer that changes here means that a level was redefined (docs/checking.md, "Levels").

use consistency::history::{Draft, History, Timestamp};
use consistency::{Level, Model, Process, Time, Verdict, Version, check};
use std::path::Path;
use std::process::Command;

fn at(process: u64, invoke: u64, complete: u64) -> Draft {
    Draft::new(Process(process), Time(invoke), Time(complete))
}

fn verdict(operations: Vec<Draft>) -> Verdict {
    let mut history = History::new().with_initial(0);
    operations.into_iter().for_each(|operation| {
        history.add(operation);
    });
    check(&history, Model::ByLevel).expect("litmus histories are well formed")
}

/// The levels at which `reader` may read, of all five.
#[track_caller]
fn allowed(others: &[Draft], reader: &Draft) -> Vec<Level> {
    let mut allowed = Level::ALL.to_vec();
    allowed.retain(|level| {
        let operations = others.iter().cloned().chain([reader.clone().at_level(*level)]).collect();
        let verdict = verdict(operations);
        assert!(verdict.holds() || verdict.is_violated(), "{level}: {verdict:?}");
        verdict.holds()
    });
    allowed
}

#[test]
fn an_old_read_after_an_answered_write_is_for_weak_levels() {
    // The write had answered: strict and rss alike must show it.
    let write = at(1, 0, 10).write("x", 1);
    let weak = [Level::ProcessOrdered, Level::At, Level::Stale];
    assert_eq!(allowed(&[write], &at(2, 20, 30).read("x", 0)), weak);
}

#[test]
fn a_read_after_a_read_of_an_open_write_is_where_strict_and_rss_part() {
    // Figure 10: the write is in flight, one reader saw it, a later one does not.
    let write = at(1, 0, 100).write("x", 1);
    let seen = |level| at(2, 10, 20).read("x", 1).at_level(level);
    let missed = at(3, 30, 40).read("x", 0);
    let below_strict = [Level::Rss, Level::ProcessOrdered, Level::At, Level::Stale];
    assert_eq!(allowed(&[write.clone(), seen(Level::Strict)], &missed), below_strict);
    // The weaker of two levels decides: nothing forces even a strict read behind an rss one.
    assert_eq!(allowed(&[write, seen(Level::Rss)], &missed), Level::ALL);
}

#[test]
fn a_session_goes_back_in_time_only_at_levels_that_say_so() {
    // The same process saw the new state and reads the old one.
    let write = at(1, 0, 100).write("x", 1);
    let seen = at(2, 10, 20).read("x", 1).at_level(Level::ProcessOrdered);
    assert_eq!(allowed(&[write, seen], &at(2, 30, 40).read("x", 0)), [Level::At, Level::Stale]);
}

#[test]
fn what_keeps_no_order_is_passed_by() {
    // A stale read between two ordinary ones neither hides the first from the second, nor orders anything itself.
    let write = at(1, 0, 100).write("x", 1);
    let seen = at(2, 10, 20).read("x", 1).at_level(Level::ProcessOrdered);
    let stale = at(2, 30, 40).read("x", 0).at_level(Level::Stale);
    let later = at(2, 50, 60).read("x", 0);
    assert_eq!(allowed(&[write.clone(), seen, stale], &later), [Level::At, Level::Stale]);
    let stale = at(2, 10, 20).read("x", 1).at_level(Level::Stale);
    assert_eq!(allowed(&[write, stale], &later), Level::ALL);
}

#[test]
fn messages_reach_every_level_that_keeps_causality() {
    // Charlie saw Alice's photo and calls Bob, who does not see it.
    let mut history = History::new().with_initial(0);
    history.add(at(1, 0, 100).write("x", 1));
    history.add(at(2, 10, 20).read("x", 1).at_level(Level::Rss));
    history.send(Process(2), Time(22), "call");
    history.receive(Process(3), Time(24), "call");
    for level in Level::ALL {
        let mut heard = history.clone();
        heard.add(at(3, 30, 40).read("x", 0).at_level(level));
        let holds = check(&heard, Model::ByLevel).expect("well formed").holds();
        assert_eq!(holds, matches!(level, Level::At | Level::Stale), "{level}");
    }
}

#[test]
fn fences_hold_back_rss_and_strict() {
    // Who read something before the fence wants everybody to see it after it.
    let write = at(1, 0, 100).write("x", 1).at_service("txn");
    let seen = at(2, 10, 20).read("x", 1).at_level(Level::Rss).at_service("txn");
    let fence = at(2, 21, 25).fence().at_service("txn");
    let missed = at(3, 30, 40).read("x", 0).at_service("txn");
    let weak = [Level::ProcessOrdered, Level::At, Level::Stale];
    assert_eq!(allowed(&[write, seen, fence], &missed), weak);
}

#[test]
fn no_level_shows_half_a_transaction() {
    // One half new, the other old: no prefix of any serialization.
    let write = at(1, 0, 10).write("x", 1).write("y", 1);
    assert_eq!(allowed(&[write], &at(2, 20, 30).read("x", 1).read("y", 0)), []);
}

#[test]
fn a_read_as_of_a_timestamp_is_the_state_then() {
    // A dump that misses a write of its past, or shows one of its future, restores something that never was.
    let write = |process, invoke, value: i64, ts| {
        at(process, invoke, invoke + 5).write("x", value).committed_at(Timestamp::version(ts))
    };
    let writes = [write(1, 0, 1, 100), write(1, 10, 2, 200), write(1, 20, 3, 300)];
    let read = |value: i64, version, as_of| {
        at(2, 30, 40).read("x", value).timestamped(Timestamp::version(version)).as_of(Version(as_of))
    };
    let weak = [Level::ProcessOrdered, Level::At, Level::Stale];
    assert_eq!(allowed(&writes, &read(2, 200, 200)), weak);
    assert_eq!(allowed(&writes, &read(2, 200, 299)), weak);
    assert_eq!(allowed(&writes, &read(3, 300, 300)), Level::ALL);
    assert_eq!(allowed(&writes, &read(1, 100, 299)), []);
    assert_eq!(allowed(&writes, &read(3, 300, 299)), []);
    let missing = verdict(writes.into_iter().chain([read(1, 100, 299).at_level(Level::At)]).collect());
    let Verdict::Violated(witness) = missing else { panic!("{missing:?}") };
    let sentences = witness.sentences.join("; ");
    assert!(
        sentences.contains("T3 read as of 299, and T1 wrote x = 2 at 200, which it must see"),
        "{sentences}"
    );
    assert!(witness.summary.contains("timestamps that reads are as of"), "{}", witness.summary);
}

#[test]
fn levels_come_from_files_and_from_the_command_line() {
    // A level that is dropped on the way turns weak reads into violations, or strict ones into anything.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("levels.jsonl");
    let header = |level| format!("{{\"ordinate\":\"history\",\"format\":1,\"initial\":0{level}}}");
    let lines = |level, own| {
        let write = "{\"client\":1,\"f\":\"write\",\"key\":\"x\",\"value\":1,\"call\":0,\"return\":10}";
        let read = format!(
            "{{\"client\":2,\"f\":\"read\",\"key\":\"x\",\"value\":0,\"call\":20,\"return\":30{own}}}"
        );
        format!("{}\n{write}\n{read}\n{{\"end\":2}}\n", header(level))
    };
    let run = |text: String, arguments: &[&str]| {
        std::fs::write(&file, text).expect("the build's folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordinate-check"));
        let output = command.args(arguments).arg(&file).output().expect("the binary was built for this test");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let by_level = ["--model", "by-level"];
    let (code, text) = run(lines("", ""), &by_level);
    assert!(code == Some(5) && text.contains("no levels recorded"), "{text}");
    let (code, text) = run(lines("", ",\"level\":\"rss\""), &by_level);
    assert!(code == Some(5) && text.contains("read x = 0 [rss]"), "{text}");
    for (level, own, arguments) in [
        ("", ",\"level\":\"stale\"", &by_level[..]),
        // Without a model named, the levels say which.
        ("", ",\"level\":\"stale\"", &[]),
        (",\"level\":\"stale\"", "", &by_level),
        ("", "", &["--model", "by-level", "--level", "process-ordered"]),
    ] {
        let (code, text) = run(lines(level, own), arguments);
        assert!(code == Some(0) && text.contains("by-level: holds"), "{level} {own}: {text}");
    }
    std::fs::remove_file(&file).expect("was written");
}

#[test]
fn levels_that_mean_nothing_are_refused() {
    // A level that no model looks at, or that nobody knows, would silently weaken or strengthen the check.
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "level.jsonl",
            r#"{"client":1,"f":"read","key":"x","value":1,"level":"strong","call":1,"return":2}"#,
            &["line 1", "level \"strong\" is not known", "process-ordered"],
        ),
        (
            "as_of.jsonl",
            r#"{"client":1,"f":"write","key":"x","value":1,"at":7,"call":1,"return":2}"#,
            &["line 1", "writes", "as of 7"],
        ),
        (
            "levels_of_kv.jsonl",
            "{\"client\":1,\"f\":\"cas\",\"key\":\"x\",\"value\":1,\"expected\":0,\"level\":\"rss\",\"call\":1,\"return\":2}",
            &["line 1", "levels are for reads", "cas"],
        ),
        (
            "levels_beside_kv.jsonl",
            "{\"client\":1,\"f\":\"get\",\"key\":\"x\",\"output\":1,\"level\":\"rss\",\"call\":1,\"return\":2}\n\
             {\"client\":2,\"f\":\"delete\",\"key\":\"x\",\"call\":1,\"return\":2}",
            &["line 1", "levels are for reads", "compare-and-sets"],
        ),
    ];
    for (name, text, words) in cases {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, text).expect("the build's folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordinate-check"));
        let output = command.arg(&file).output().expect("the binary was built for this test");
        std::fs::remove_file(&file).expect("was written");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        for word in *words {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
    }
}
