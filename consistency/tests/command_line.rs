//! The command: exit codes, bad input, formats there and back, pictures.

use consistency::Model;
use consistency::format::{
    LoadOptions, Loaded, load, write_edn, write_intervals, write_jepsen_json, write_porcupine,
};
use consistency::history::{Draft, History, Timestamp};
use consistency::{Level, Process, Time, Version};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the build's folder is writable");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the build's folder is writable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordinate-check"));
    command.args(arguments).arg(file).output().expect("the binary was built for this test")
}

#[track_caller]
fn expect(arguments: &[&str], file: &Path, code: i32, words: &[&str]) {
    let output = check(arguments, file);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

const STALE: &str = r#"{:index 0, :time 0, :type :invoke, :process 0, :f :txn, :value [[:w :x 1]]}
{:index 1, :time 10, :type :ok, :process 0, :f :txn, :value [[:w :x 1]]}
{:index 2, :time 12, :type :info, :process :nemesis, :f :kill, :value {:n1 "gone"}}
{:index 3, :time 20, :type :invoke, :process 1, :f :txn, :value [[:r :x nil]]}
{:index 4, :time 30, :type :ok, :process 1, :f :txn, :value [[:r :x nil]]}
"#;

#[test]
fn exit_codes() {
    // Scripts look at nothing else.
    let folder = Folder::new("exit_codes");
    let stale = folder.file("stale.edn", STALE);
    expect(&["--model", "sequential"], &stale, 0, &["sequential: holds", "strongest that holds: osc-u"]);
    expect(
        &["--model", "rss"],
        &stale,
        5,
        &["rss: VIOLATED", "answered at 10, 10 before T1 was invoked at 20"],
    );
    expect(
        &["--model", "sequential,strict"],
        &stale,
        5,
        &["sequential: holds", "strict-serializable: VIOLATED"],
    );
    expect(&["--model", "no-such"], &stale, 2, &["no model no-such"]);
    expect(&[], &folder.0.join("nowhere"), 2, &["cannot be opened"]);
    // Nobody read after the writes, so convergence cannot be checked.
    let quiet = folder.file("quiet.edn", &STALE.lines().take(2).collect::<Vec<_>>().join("\n"));
    expect(&["--model", "eventual"], &quiet, 3, &["undecided"]);
    expect(&["--model", "rss", "-o", "json"], &stale, 5, &["\"verdict\":\"violated\"", "\"strongest\":["]);
}

#[test]
fn an_empty_history_is_refused_unless_asked_for() {
    // A recorder that recorded nothing would pass every check.
    let folder = Folder::new("empty");
    let none = folder.file("none.jsonl", "");
    let no_operations =
        folder.file("no-operations.jsonl", "{\"ordinate\":\"history\",\"format\":1}\n{\"end\":0}\n");
    for file in [&none, &no_operations] {
        expect(&[], file, 2, &["empty"]);
        expect(&["--allow-empty"], file, 0, &["0 ok", "a yes means nothing"]);
    }
}

#[test]
fn help_lists_every_model() {
    // A user who has to guess a name reads the source.
    let command = Command::new(env!("CARGO_BIN_EXE_ordinate-check")).arg("--help").output();
    let text = String::from_utf8(command.expect("the binary was built for this test").stdout).expect("text");
    for model in Model::ALL {
        assert!(text.contains(&format!("  {} ", model.name())), "{model} is missing: {text}");
    }
}

#[test]
fn steps_end_a_search_only_when_they_are_limited() {
    // "Undecided" with most of the time left makes a checker unusable for long histories.
    let folder = Folder::new("steps");
    let file = folder.file("sums.jsonl", &unreachable_sum());
    expect(&["--search-steps", "1000"], &file, 3, &["undecided", "--search-steps"]);
    expect(&["--time-limit", "0.2"], &file, 3, &["no answer within 0.2 s"]);
}

/// Forty overlapping increments without an answer, and a sum that only a look at all their subsets can rule out.
fn unreachable_sum() -> String {
    let increments = (0..40).map(|client| {
        let by = 2u64 << client;
        format!("{{\"client\":{client},\"f\":\"increment\",\"key\":\"x\",\"value\":{by},\"call\":1}}\n")
    });
    let odd = "{\"client\":99,\"f\":\"get\",\"key\":\"x\",\"output\":1,\"call\":2,\"return\":3}\n";
    increments.chain([odd.to_owned()]).collect()
}

#[test]
fn bad_input_is_refused_with_line_and_reason() {
    // A checker that guesses at a broken file says yes to anything.
    let folder = Folder::new("bad_input");
    let cases: &[(&str, &str, &[&str])] = &[
        ("truncated.edn", &STALE[..STALE.len() - 30], &["line 5", "truncated"]),
        (
            "field.jsonl",
            r#"{"client":1,"f":"write","key":"x","valu":1,"call":1,"return":2}"#,
            &["line 1", "unknown field \"valu\"", "\"value\""],
        ),
        (
            "back.jsonl",
            r#"{"client":1,"f":"write","key":"x","value":1,"call":9,"return":2}"#,
            &["line 1", "before it is called"],
        ),
        (
            "overlap.jsonl",
            "{\"client\":1,\"f\":\"write\",\"key\":\"x\",\"value\":1,\"call\":1,\"return\":9}\n{\"client\":1,\"f\":\"write\",\"key\":\"x\",\"value\":2,\"call\":5,\"return\":12}",
            &["line 2", "is open until 9"],
        ),
        (
            "twice.jsonl",
            "{\"client\":1,\"f\":\"write\",\"key\":\"x\",\"value\":1,\"call\":1,\"return\":2}\n{\"client\":2,\"f\":\"write\",\"key\":\"x\",\"value\":1,\"call\":1,\"return\":2}\n{\"client\":3,\"f\":\"read\",\"key\":\"x\",\"value\":1,\"call\":5,\"return\":6}",
            &["line 3", "written on lines 1 and 2", "unique"],
        ),
        (
            "trailer.jsonl",
            "{\"ordinate\":\"history\",\"format\":1}\n{\"client\":1,\"f\":\"write\",\"key\":\"x\",\"value\":1,\"call\":1,\"return\":2}\n",
            &["trailer is missing", "was truncated"],
        ),
        (
            "count.jsonl",
            "{\"ordinate\":\"history\",\"format\":1}\n{\"end\":3}\n",
            &["line 2", "3 operations, 0 are here"],
        ),
        ("orphan.edn", "{:process 1, :type :ok, :f :read, :value 3, :time 1}", &["line 1", "never invoked"]),
        (
            "double.edn",
            "{:process 1, :type :invoke, :f :read, :time 1}\n{:process 1, :type :invoke, :f :read, :time 2}",
            &["line 2", "is open"],
        ),
        ("message.jsonl", "{\"recv\":\"m\",\"client\":1,\"time\":4}", &["line 1", "never sent"]),
        (
            "big.jsonl",
            r#"{"client":1,"f":"write","key":"x","value":1,"call":1e30,"return":2}"#,
            &["line 1", "whole number"],
        ),
        ("words.txt", "hello", &["line 1", "neither JSON lines"]),
        ("empty.edn", "", &["line 1", "empty"]),
    ];
    for (name, text, words) in cases {
        let file = folder.file(name, text);
        expect(&["--model", "rss"], &file, 2, words);
    }
    // What may be wished away, can be.
    expect(&["--lenient"], &folder.0.join("trailer.jsonl"), 0, &["holds"]);
}

fn sample() -> History {
    let mut history = History::new();
    let at = |process, invoke, complete| Draft::new(Process(process), Time(invoke), Time(complete));
    history.add(
        at(1, 0, 10).append("list", 1).write("x", 5).timestamped(Timestamp::version(3)).at_service("kv"),
    );
    history.add(
        at(2, 5, 15).read_list("list", [1]).read("x", 5).timestamped(Timestamp::version(3)).at_service("kv"),
    );
    history.add(at(1, 12, 14).at_service("kv").fence());
    history.add(at(3, 20, 20).append("list", "a \"b\"\n").unknown().at_service("kv"));
    history.add(at(4, 22, 25).write("x", 6).failed().at_service("kv"));
    history.send(Process(2), Time(16), "m");
    history.receive(Process(5), Time(18), "m");
    let levelled = at(5, 30, 31).at_level(Level::At).as_of(Version(3));
    history.add(levelled.read_list("list", [1]).at_service("kv"));
    history
}

fn reload(text: &[u8]) -> History {
    match load(text, &LoadOptions::default(), &mut |_| true) {
        Ok(Loaded::Transactions(history)) => *history,
        other => panic!("{other:?}"),
    }
}

#[test]
fn formats_keep_the_history() {
    // A field lost on the way changes verdicts.
    let history = sample();
    let (mut ours, mut edn, mut json) = (Vec::new(), Vec::new(), Vec::new());
    write_intervals(&history, &mut ours).expect("to memory");
    write_edn(&history, &mut edn).expect("to memory");
    write_jepsen_json(&history, &mut json).expect("to memory");
    for text in [&ours, &edn, &json] {
        let again = reload(text);
        let mut twice = Vec::new();
        write_edn(&again, &mut twice).expect("to memory");
        assert_eq!(
            String::from_utf8_lossy(&twice),
            String::from_utf8_lossy(&edn),
            "{}",
            String::from_utf8_lossy(text)
        );
        assert_eq!(again.messages().len(), 2);
        assert_eq!(again.operations().iter().filter(|op| op.fence).count(), 1);
        let levelled: Vec<_> =
            again.operations().iter().filter(|op| !op.fence && op.level != Level::Strict).collect();
        assert!(matches!(levelled[..], [op] if op.level == Level::At && op.as_of == Some(Version(3))));
        assert!(consistency::check(&again, Model::Rss).expect("valid").holds());
    }
    assert!(!write_porcupine(&history, &mut Vec::new()).expect("to memory"));
}

#[test]
fn other_peoples_files() {
    // Formats are facts: these are the shapes that Jepsen, Elle and Porcupine users have.
    let folder = Folder::new("other_files");
    let independent = folder.file(
        "independent.edn",
        "{:process 0, :type :invoke, :f :write, :value [7 1], :time 1}\n{:process 0, :type :ok, :f :write, :value [7 1], :time 5}\n\
         {:process 1, :type :invoke, :f :cas, :value [7 [1 2]], :time 6}\n{:process 1, :type :ok, :f :cas, :value [7 [1 2]], :time 9}\n\
         {:process 0, :type :invoke, :f :read, :value [7 nil], :time 10}\n{:process 0, :type :ok, :f :read, :value [7 1], :time 12}\n",
    );
    expect(&["--model", "linearizable"], &independent, 5, &["key 7"]);
    expect(
        &["--model", "linearizable"],
        &folder.file(
            "fixed.edn",
            &std::fs::read_to_string(&independent)
                .expect("just written")
                .replace(":value [7 1], :time 12", ":value [7 2], :time 12"),
        ),
        0,
        &["holds"],
    );
    let vector = folder.file("vector.edn", &format!("[{STALE}]"));
    expect(&["--model", "rss"], &vector, 5, &["VIOLATED"]);
    let porcupine = folder.file(
        "porcupine.json",
        "[{\"ClientId\":0,\"Input\":{\"op\":\"put\",\"key\":\"x\",\"value\":\"1\"},\"Call\":0,\"Output\":null,\"Return\":10},\n\
         {\"ClientId\":1,\"Input\":{\"op\":\"get\",\"key\":\"x\",\"value\":null},\"Call\":20,\"Output\":\"1\",\"Return\":30}]",
    );
    expect(&[], &porcupine, 0, &["linearizable: holds"]);
    let queue = folder.file(
        "queue.edn",
        "{:process 0, :type :invoke, :f :enqueue, :value 1}\n{:process 0, :type :ok, :f :enqueue, :value 1}\n\
         {:process 1, :type :invoke, :f :dequeue}\n{:process 1, :type :ok, :f :dequeue, :value 2}\n",
    );
    expect(&[], &queue, 5, &["linearizable: VIOLATED"]);
    expect(&["--model", "rss"], &queue, 2, &["only linearizable"]);
    let nodes = folder.file(
        "nodes.jsonl",
        "{\"client\":1,\"f\":\"zk-multi\",\"value\":[{\"f\":\"zk-create\",\"key\":\"/a\",\"value\":1},{\"f\":\"zk-create\",\"key\":\"/b/c\"}],\"answer\":\"refused\",\"call\":1,\"return\":2}\n\
         {\"client\":1,\"f\":\"zk-get\",\"key\":\"/a\",\"output\":1,\"version\":0,\"call\":3,\"return\":4}\n",
    );
    expect(&[], &nodes, 5, &["VIOLATED"]);
    let log = folder.file(
        "log.jsonl",
        "{\"client\":1,\"f\":\"log-append\",\"key\":\"l\",\"value\":1,\"pos\":5,\"call\":1,\"return\":2}\n\
         {\"client\":1,\"f\":\"log-append\",\"key\":\"l\",\"value\":2,\"pos\":4,\"call\":3,\"return\":4}\n",
    );
    expect(&[], &log, 5, &["VIOLATED"]);
}

#[test]
fn a_recorded_kv_history_is_read_back() {
    // The simulator writes these; the command must say of them what the library says.
    use consistency::Value;
    use consistency::kv::{Expected, KvCall, KvHistory, KvReply};
    let folder = Folder::new("kv");
    let mut history = KvHistory::new();
    let mut step = |call, reply: KvReply, at: u64| {
        let op = history.invoke(Process(at), "k\"ey", call, Time(at * 10));
        history.complete(op, reply, Time(at * 10 + 5));
        let mut text = Vec::new();
        history.write_jsonl(&mut text).expect("to memory");
        let file = folder.file("kv.jsonl", &String::from_utf8(text).expect("JSON is UTF-8"));
        let code = if history.check_linearizable().holds() { 0 } else { 5 };
        expect(&["--model", "linearizable"], &file, code, &["linearizable"]);
        code
    };
    let cas = |version, value: &str| KvCall::CompareAndSet {
        expected: Expected::Version(Version(version)),
        value: Value::from(value),
    };
    assert_eq!(step(KvCall::Put(Value::from("a")), KvReply::written(Version(1)), 1), 0);
    assert_eq!(step(cas(1, "b"), KvReply::written(Version(2)), 2), 0);
    assert_eq!(step(cas(1, "c"), KvReply::refused(Version(2)), 3), 0);
    assert_eq!(step(KvCall::Delete, KvReply::written(Version(3)), 4), 0);
    assert_eq!(step(KvCall::Increment(4), KvReply::incremented(4, Version(4)), 5), 0);
    assert_eq!(step(KvCall::Get, KvReply::found("b", Version(2)), 6), 5);
}

#[test]
fn pictures_stand_alone() {
    // A page that fetches anything is blank on a machine without a network.
    let folder = Folder::new("pictures");
    let stale = folder.file("stale.edn", STALE);
    let (html, dot) = (folder.0.join("page.html"), folder.0.join("witness.dot"));
    let (html_text, dot_text) = (html.display().to_string(), dot.display().to_string());
    expect(&["--model", "rss", "--html", &html_text, "--dot", &dot_text], &stale, 5, &["VIOLATED"]);
    let page = std::fs::read_to_string(html).expect("was written");
    assert!(
        page.contains("<svg") && page.contains("class=\"op hot\"") && page.contains("T0 &lt; T1"),
        "{page}"
    );
    assert!(!page.contains("http") && !page.contains("<script") && !page.contains("src="), "{page}");
    let graph = std::fs::read_to_string(dot).expect("was written");
    assert!(graph.contains("T0 -> T1") && graph.contains("T1 -> T0"), "{graph}");
}

#[test]
fn budgets_end_in_undecided() {
    // A checker that passes when it runs out of time passes everything.
    let folder = Folder::new("budgets");
    let file = folder.file("hard.jsonl", &unreachable_sum());
    expect(&["--model", "linearizable", "--time-limit", "0.01"], &file, 3, &["undecided"]);
}

#[test]
fn whatever_a_file_holds_is_answered() {
    // Histories come from crashed tests and half-copied files; a panic is no reason that anybody can act on.
    let (mut ours, mut edn) = (Vec::new(), Vec::new());
    write_intervals(&sample(), &mut ours).expect("to memory");
    write_edn(&sample(), &mut edn).expect("to memory");
    let kv = b"{\"client\":1,\"f\":\"cas\",\"key\":\"x\",\"value\":2,\"expected\":1,\"version\":2,\"call\":1,\"return\":2}\n\
               {\"client\":2,\"f\":\"get\",\"key\":\"x\",\"output\":2,\"version\":2,\"call\":1,\"return\":7}\n";
    let mut word = 7u64;
    let mut below = |bound: usize| {
        word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (word >> 33) as usize % bound
    };
    let (mut refused, mut answered) = (0, 0);
    for round in 0..30_000 {
        let mut text = [&ours[..], &edn[..], &kv[..]][round % 3].to_vec();
        for _ in 0..1 + below(3) {
            let at = below(text.len());
            match below(12) {
                // Mostly other digits: those files are read, and mean something else.
                0..=8 => {
                    if text[at].is_ascii_digit() {
                        text[at] = b'0' + below(10) as u8;
                    }
                }
                9 => text[at] = b"0123456789-[]{}\",:xnr \n\\"[below(24)],
                10 => text.truncate(at.max(1)),
                11 if round % 5 == 0 => {
                    text.remove(at);
                }
                _ => {
                    let again = text[at..(at + 20).min(text.len())].to_vec();
                    text.splice(at..at, again);
                }
            }
            if text.is_empty() {
                text.push(b'{');
            }
        }
        let options = LoadOptions { lenient: round % 2 == 0, ..LoadOptions::default() };
        match load(&text[..], &options, &mut |_| true) {
            Err(_) => refused += 1,
            Ok(Loaded::Transactions(history)) => {
                answered += 1;
                let _ = consistency::check(&history, Model::Rss);
                let _ = consistency::check(&history, Model::ByLevel);
                let _ = consistency::check(&history, Model::CausalPlus);
            }
            Ok(Loaded::Kv(history)) => {
                answered += 1;
                let _ = history.check_linearizable();
            }
            Ok(Loaded::Queues(_) | Loaded::Logs(_) | Loaded::Znodes(_)) => answered += 1,
        }
    }
    assert!(refused > 5_000 && answered > 5_000, "{refused} {answered}");
}
