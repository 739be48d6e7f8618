//! The prompt of the demo: what is typed is done, line by line.

use super::editor::Known;
use super::given::Given;
use super::lines::Lines;
use super::verdict::Verdict;
use super::words::{COMMANDS, LEVELS, Operand, help, misunderstood, words_of};
use super::{Cluster, NAMES};
use crate::commands::kv::end_of_prefix;
use crate::failure::Failure;
use ordinate_client::{CallError, Level};
use server::services::kv::KvStatus;
use tokio::signal::unix::{Signal, SignalKind, signal};

const SCAN_MAX: u32 = 20;

/// What has been done so far.
#[derive(Default)]
struct Tally {
    lines: u64,
    failed: u64,
    /// The first line that failed, and why.
    first: Option<(String, String)>,
    violated: bool,
}

impl Tally {
    fn failure(self, interactive: bool) -> Option<Failure> {
        if self.violated {
            let remedy = "report it with the output";
            return Some(Failure::failed("O5003", "a history was not what it is to be", "see above", remedy));
        }
        // Who sits there has seen it.
        let (line, why) = self.first.filter(|_| !interactive)?;
        let what = format!("{} of {} lines failed", self.failed, self.lines);
        Some(Failure::failed("O5002", what, format!("the first is {line:?}: {why}"), "ordinate demo"))
    }
}

/// Signals that end the demo.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Ends {
    fn watch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// What is at the prompt.
pub(super) trait Prompted {
    /// What may be typed.
    fn known(&self) -> Known;

    /// Does what a line says. Returns why a history is not what it is to be, if it was judged, and is not.
    async fn obey(&mut self, words: &[&str]) -> Result<Option<String>, String>;
}

/// Does what is asked until the input ends. A line that fails is reported, and the next one is done.
pub(super) async fn prompt(cluster: &mut impl Prompted) -> Result<(), Failure> {
    let mut ends = Ends::watch().map_err(|error| super::failed("signals cannot be watched", error))?;
    let mut lines = Lines::start(cluster.known());
    let mut tally = Tally::default();
    loop {
        let given = tokio::select! {
            given = lines.next() => given,
            () = ends.next() => {
                lines.stop().await;
                break;
            }
        };
        let (line, done) = match given {
            Given::End => break,
            Given::Unusable(why) => (String::new(), Err(why)),
            Given::Line(line) => match words_of(&line) {
                Ok(words) if words.is_empty() => continue,
                Ok(words) if matches!(words[0].as_str(), "quit" | "exit") && words.len() == 1 => break,
                Ok(words) => {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    // A call that waits for a majority can be ended.
                    tokio::select! {
                        done = cluster.obey(&words) => (line, done),
                        () = ends.next() => break,
                    }
                }
                Err(why) => (line, Err(why)),
            },
        };
        tally.lines += 1;
        match done {
            Ok(violation) => tally.violated |= violation.is_some(),
            Err(why) => {
                println!("  {why}");
                tally.failed += 1;
                tally.first.get_or_insert((line, why));
            }
        }
    }
    tally.failure(lines.interactive).map_or(Ok(()), Err)
}

impl Prompted for Cluster {
    fn known(&self) -> Known {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let hosts = owned(&[NAMES.as_slice(), &["all"]].concat());
        let operands = vec![(Operand::Host, hosts), (Operand::Level, owned(&LEVELS))];
        Known { commands: &COMMANDS, operands, client: self.client.clone() }
    }

    async fn obey(&mut self, words: &[&str]) -> Result<Option<String>, String> {
        let violation = |verdict: Verdict| verdict.violation;
        let failed = |error: CallError| error.to_string();
        match words {
            ["help"] => print!("{}", help(&COMMANDS)),
            ["put", key, value @ ..] if !value.is_empty() => {
                println!("  version {}", self.client.put(key, value.join(" ")).await.map_err(failed)?);
            }
            ["get", key] => match self.client.get(key, Level::Linearizable).await.map_err(failed)? {
                Some(found) => {
                    println!("  {}   (version {})", String::from_utf8_lossy(&found.value), found.version)
                }
                None => println!("  no such key"),
            },
            ["del", key] => {
                let deleted = self.client.delete(key).await.map_err(failed)?;
                println!("  {}", if deleted { "deleted" } else { "no such key" });
            }
            ["incr", key] => println!("  {}", self.client.increment(key, 1).await.map_err(failed)?),
            ["incr", key, by] => {
                let by = by.parse().map_err(|_| format!("{by} is no number"))?;
                println!("  {}", self.client.increment(key, by).await.map_err(failed)?);
            }
            ["scan", prefix @ ..] if prefix.len() < 2 => {
                self.scan(prefix.first().copied().unwrap_or("")).await.map_err(failed)?;
            }
            ["status"] => self.print_status().await,
            [fault @ ("kill" | "restart" | "pause" | "resume" | "partition"), host] => {
                return self.judge(fault, host).await.map(violation);
            }
            ["photos", options @ ..] => return self.photos(options).await.map(|()| None),
            ["heal"] => return self.judge("heal", "all").await.map(violation),
            words => return Err(misunderstood(&COMMANDS, words)),
        }
        Ok(None)
    }
}

impl Cluster {
    async fn scan(&self, prefix: &str) -> Result<(), CallError> {
        let end = end_of_prefix(prefix);
        let page = self.client.scan(prefix, end.as_deref(), SCAN_MAX, Level::Linearizable).await?;
        for item in page.items {
            let text = String::from_utf8_lossy;
            println!("  {}  {}", text(&item.key), text(&item.versioned.value));
        }
        if page.next.is_some() {
            println!("  ...");
        }
        Ok(())
    }

    async fn print_status(&self) {
        for (name, status) in self.statuses().await {
            match status {
                Some(status) => println!(
                    "  {name}  leader {}  executed {}  keys {}  links {}{}",
                    status.leader.as_deref().unwrap_or("none heard"),
                    status.executed.unwrap_or(0),
                    status.services.get::<KvStatus>().and_then(|kv| kv.keys).unwrap_or(0),
                    status.links_up,
                    status.not_serving.map_or(String::new(), |why| format!("  NOT SERVING: {why}"))
                ),
                None if self.members[name].paused => println!("  {name}  paused"),
                None => println!("  {name}  stopped"),
            }
        }
    }
}
