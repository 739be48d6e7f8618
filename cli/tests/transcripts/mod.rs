//! What the documentation shows of the command line is what it prints. A block of a page that is shown by a shell begins with
//! `<!-- transcript -->`; all blocks of a page are one session, in an empty folder and with a network of its own. What differs from run to
//! run (times, counts of a load, who leads) is left as it stands. `ORDINATE_BLESS=1` writes the pages.
//!
//! In a block `$ ` begins a command, a line that ends with `\` goes on, and `ordinate> ` is what is typed at the demo's prompt.

mod shell;
mod volatile;

use shell::{Session, has_own_network};
use std::path::PathBuf;
use volatile::stable;

/// Pages with such blocks.
const PAGES: [&str; 3] = ["README.md", "docs/quickstart.md", "docs/fuzzylog.md"];
/// Those that share a folder and a cluster, which [`BEFORE`] makes: their blocks are one session, in this order.
const SHARED: [&str; 8] = [
    "docs/from-zookeeper.md",
    "docs/backup.md",
    "docs/hardening.md",
    "docs/capacity.md",
    "docs/kafka.md",
    "docs/transactions.md",
    "docs/http.md",
    "docs/troubleshooting.md",
];
/// Clusters of one host with every service: one that the pages use, one that plays the part of an old ZooKeeper, and an empty one.
const BEFORE: &str = r#"
begin() {
  printf '%s\n' "cluster = \"$1\"" "data = \"data-$1\"" '[listen]' "native = \"$2:7071\"" \
    "admin = \"$2:7070\"" "zookeeper = \"$2:2181\"" "kafka = \"$2:9092\"" \
    '[coordination]' 'engine = "mason"' '[log]' 'spaces = 2' '[sequence]' 'spaces = ["orders"]' \
    '[txn]' 'shards = 2' '[clock]' 'source = "fixed"' 'epsilon = "1ms"' \
    '[hosts]' "a = \"$2:7072\"" > "$1.toml"
  ordinate serve --config "$1.toml" --host a > "$1.log" 2>&1 &
  beside="$beside $!"
}
begin ordinate 127.0.0.1; begin old 127.0.0.2; begin new 127.0.0.3
for address in 127.0.0.1 127.0.0.2 127.0.0.3; do
  until ordinate status --admin $address:7070 2>&1 | grep -q 'serving     yes'; do sleep 0.1; done
done
for node in /app /app/config /app/jobs; do
  ordinate zk --servers 127.0.0.2:2181 create $node "of the old one" > /dev/null
done
ordinate tls init --config ordinate.toml --out tls > /dev/null 2>&1
ordinate access init --file access.toml > /dev/null 2>&1
"#;
const MARK: &str = "<!-- transcript -->";
const FENCE: &str = "```";

/// A command, what is typed into it, and what is shown: before the first line typed, and behind each.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Step {
    /// As it stands, with all of its lines.
    command: String,
    shown: String,
    typed: Vec<(String, String)>,
}

impl Step {
    /// As a block shows it.
    fn text(&self) -> String {
        let typed = self.typed.iter().map(|(line, shown)| format!("ordinate> {line}\n{shown}"));
        format!("$ {}\n{}{}", self.command.replace('\n', "\n  "), self.shown, typed.collect::<String>())
    }
}

/// The steps of a block's text.
fn steps_of(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        let last = steps.last_mut();
        match (line.strip_prefix("$ "), line.strip_prefix("ordinate> "), last) {
            (_, _, Some(step)) if goes_on => {
                step.command += &format!("\n{}", line.trim_start());
                goes_on = line.ends_with('\\');
            }
            (Some(command), _, _) => {
                steps.push(Step { command: command.to_owned(), ..Step::default() });
                goes_on = command.ends_with('\\');
            }
            (None, Some(typed), Some(step)) => step.typed.push((typed.to_owned(), String::new())),
            (None, None, Some(step)) => {
                let shown = step.typed.last_mut().map_or(&mut step.shown, |(_, shown)| shown);
                *shown += &format!("{line}\n");
            }
            (None, _, None) => panic!("a block begins with a command: {line}"),
        }
    }
    steps
}

/// A page in parts: text, and blocks that are sessions, in turn.
fn parts_of(page: &str) -> Vec<(bool, String)> {
    let (mut parts, mut rest) = (Vec::new(), page);
    while let Some(at) = rest.find(MARK) {
        let opened = rest[at..].find(FENCE).expect("a fence follows the mark") + at;
        let begin = opened + rest[opened..].find('\n').expect("a fence has a line") + 1;
        let end = begin + rest[begin..].find(FENCE).expect("a block ends");
        parts.push((false, rest[..begin].to_owned()));
        parts.push((true, rest[begin..end].to_owned()));
        rest = &rest[end..];
    }
    parts.push((false, rest.to_owned()));
    parts
}

/// The pages as they are to be: the same where nothing but volatile words differ.
fn renewed(pages: &[String], session: &mut Session) -> Vec<String> {
    let parts: Vec<Vec<(bool, String)>> = pages.iter().map(|page| parts_of(page)).collect();
    let blocks = parts.iter().flatten().filter(|(is_block, _)| *is_block).map(|(_, text)| steps_of(text));
    let blocks: Vec<Vec<Step>> = blocks.collect();
    let mut ran = session.run(&blocks).into_iter();
    let mut part = |(is_block, text): (bool, String)| {
        if !is_block {
            return text;
        }
        let now: String = ran.next().expect("as many as there were").iter().map(Step::text).collect();
        if stable(&now) == stable(&text) { text } else { now }
    };
    parts.into_iter().map(|parts| parts.into_iter().map(&mut part).collect()).collect()
}

/// Compares pages with what their commands print, or writes them.
fn look_at(names: &[&str], mut session: Session) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let blesses = std::env::var_os("ORDINATE_BLESS").is_some();
    let read =
        |name: &&str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|it| panic!("{name}: {it}"));
    let pages: Vec<String> = names.iter().map(read).collect();
    let now = renewed(&pages, &mut session);
    for ((name, page), now) in names.iter().zip(&pages).zip(&now) {
        assert!(page.contains(MARK), "{name} has no transcript");
        if blesses {
            std::fs::write(root.join(name), now).expect("the page can be written");
        }
        assert!(
            now == page || blesses,
            "{name} shows something else than is printed (ORDINATE_BLESS=1 writes it):\n{now}"
        );
    }
}

// A page whose commands fail, or print something else than it shows, is the first thing that a new user meets.
#[test]
fn pages_show_what_commands_print() {
    if !has_own_network() {
        println!("SKIPPED: the system lets this user have no network of its own");
        return;
    }
    PAGES.iter().for_each(|name| look_at(&[*name], Session::new(name)));
}

// A page for operators that shows what no longer works is found when something is on fire.
#[test]
fn pages_of_one_cluster_show_what_commands_print() {
    if !has_own_network() {
        println!("SKIPPED: the system lets this user have no network of its own");
        return;
    }
    let has_curl = std::process::Command::new("curl").arg("--version").output().is_ok();
    if !has_curl {
        println!("SKIPPED: docs/http.md needs curl");
    }
    let pages: Vec<&str> = SHARED.into_iter().filter(|name| has_curl || *name != "docs/http.md").collect();
    look_at(&pages, Session::prepared("shared", BEFORE));
}

// A page that is left out of the list above is never looked at.
#[test]
fn all_pages_with_transcripts_are_looked_at() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs").flatten().map(|entry| entry.path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    for path in pages {
        let name = format!("docs/{}", path.file_name().expect("a name").to_string_lossy());
        let has = std::fs::read_to_string(&path).expect("text").contains(MARK);
        assert_eq!(has, PAGES.iter().chain(&SHARED).any(|page| *page == name), "{name}");
    }
}

// A block that is read otherwise than it is written changes each time that it is blessed.
#[test]
fn blocks_are_read_as_they_are_written() {
    let block =
        "$ one \\\n  two\nsaid\n$ ordinate demo\nhello\nordinate> put a 1\n  version 1\nordinate> quit\n";
    let steps = steps_of(block);
    assert_eq!(steps[0].command, "one \\\ntwo");
    assert_eq!(
        steps[1].typed,
        [("put a 1".to_owned(), "  version 1\n".to_owned()), ("quit".to_owned(), String::new())]
    );
    assert_eq!(steps.iter().map(Step::text).collect::<String>(), block);
    let page = format!("text\n{MARK}\n```console\n{block}```\nmore\n");
    let parts = parts_of(&page);
    assert_eq!(parts.len(), 3);
    assert_eq!((parts[1].0, parts[1].1.as_str()), (true, block));
    assert_eq!(parts.into_iter().map(|(_, text)| text).collect::<String>(), page);
}
