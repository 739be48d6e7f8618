//! `ordinate fuzzylog`: the partially ordered log from the command line, over HTTP.

mod client;
mod graph;
mod listing;

pub(super) use client::nobody_serves;

use super::admin::in_path;
use super::kv::Output;
use crate::failure::Failure;
use clap::Subcommand;
use client::Hosts;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::BufRead as _;
use std::str::FromStr;

/// Colours, as they are given: separated by commas.
#[derive(Clone)]
pub struct Colours(Vec<String>);

impl FromStr for Colours {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.split(',').map(str::to_owned).collect()))
    }
}

/// How long a host waits for the next node of a colour that is followed, until it answers that there is none.
const WAIT_MS: u64 = 2_000;

/// The partially ordered log: colours that scale apart, and appends to several of them at once
#[derive(Subcommand)]
pub enum Fuzzylog {
    /// Append nodes to colours, each to all of them or to none
    Append {
        /// The colours, separated by commas
        #[arg(value_name = "COLOUR,...")]
        colours: Colours,
        /// What the nodes hold; without it each line of the standard input is a node
        texts: Vec<String>,
        /// Order them behind what an earlier answer has seen, or a snapshot of whichever region has
        #[arg(long, value_name = "SEEN|SNAPSHOT")]
        after: Option<String>,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Print the nodes of a colour, as far as it goes now
    Sync {
        /// The colour
        colour: String,
        /// The position of the first node
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Go on with what comes
        #[arg(long)]
        follow: bool,
        /// Wait until all is there that an earlier answer, or a snapshot of whichever region, has seen
        #[arg(long, value_name = "SEEN|SNAPSHOT")]
        after: Option<String>,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// How far several colours go, at one point of the order of all
    Snapshot {
        /// The colours, separated by commas
        #[arg(value_name = "COLOUR,...")]
        colours: Colours,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Drop the nodes of a colour below a position; they stay in their other colours
    Trim {
        /// The colour
        colour: String,
        /// The position of the first node that stays
        #[arg(long)]
        before: u64,
        /// Among several regions: what an answer of the one has seen whose position it is
        #[arg(long, value_name = "SEEN")]
        seen: Option<String>,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Move a colour to another partition, while users append to it and to others
    Move {
        /// The colour
        colour: String,
        /// The partition
        partition: u16,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// The partitions, and which hosts serve them; add one, or remove one that was added
    Partitions {
        #[command(subcommand)]
        change: Option<PartitionChange>,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// The colours: each with its partition, its first node that is left, and its end
    Colours {
        /// Those of this partition alone
        #[arg(long)]
        partition: Option<u16>,
        /// How many at most
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
        /// Output: in JSON a partition's page is a line
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Appends to several partitions that are not finished: how far they are, and for how long
    Stuck {
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Wait until a region has all that a snapshot of another one has, and print the same snapshot of this region
    Await {
        /// The snapshot's id
        snapshot: String,
        /// How long to wait, in milliseconds; 30,000 at most
        #[arg(long, default_value_t = 5_000)]
        timeout_ms: u32,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// The other regions, as far as a host's heads know: what is copied of them, and what they have not copied
    Regions {
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Print what is ordered before what among the nodes of colours, as a graph for Graphviz
    Graph {
        /// The colours, separated by commas
        #[arg(value_name = "COLOUR,...")]
        colours: Colours,
        /// Output: the table is the graph in Graphviz' language
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
}

/// What is to become of the partitions
#[derive(Subcommand)]
pub enum PartitionChange {
    /// Add a partition; colours come to it by `ordinate fuzzylog move`
    Add {
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Remove a partition that was added: its colours go back to where they were before
    Remove {
        /// The partition
        partition: u16,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        hosts: Hosts,
    },
}

impl PartitionChange {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Add { output, hosts } => {
                // By its number it is the same one wherever it is asked for again.
                let known = hosts.read("/v1/fuzzylog/partitions")?;
                let of = known["partitions"].as_array().into_iter().flatten();
                let used: Vec<u64> = of.filter_map(|chain| chain["partition"].as_u64()).collect();
                let next = (0..).find(|it| !used.contains(it)).unwrap_or_default();
                let answer = hosts.write("/v1/fuzzylog/partitions", &json!({ "partition": next }))?;
                show(output, &answer, || format!("partition {} is added", answer["partition"]));
            }
            Self::Remove { partition, output, hosts } => {
                let answer = hosts.delete(&format!("/v1/fuzzylog/partitions/{partition}"))?;
                show(output, &answer, || format!("partition {} is removed", answer["partition"]));
            }
        }
        Ok(())
    }
}

/// A table's line, or the answer itself.
fn show(output: Output, answer: &Value, line: impl FnOnce() -> String) {
    match output {
        Output::Table => println!("{}", line()),
        Output::Json => println!("{answer}"),
    }
}

/// `red 5  blue 7`
fn positions(of: &Value) -> String {
    let fields = of.as_object().into_iter().flatten();
    fields.map(|(colour, position)| format!("{colour} {position}")).collect::<Vec<_>>().join("  ")
}

/// One line of a node: what is no text is shown as it is written in JSON.
fn node_line(node: &Value) -> String {
    let colours = node["colours"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let body = node["body"].as_str().or_else(|| node["body_base64"].as_str()).unwrap_or_default();
    format!("{}  {}  {body}", node["position"], colours.collect::<Vec<_>>().join(","))
}

impl Fuzzylog {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Append { colours, texts, after, output, hosts } => {
                append(&hosts, &colours.0, texts, after, output)
            }
            Self::Sync { colour, from, follow, after, output, hosts } => {
                sync(&hosts, &colour, from, follow, after, output)
            }
            Self::Snapshot { colours, output, hosts } => {
                let mut named = client::Named::drawn();
                let answer =
                    hosts.write("/v1/fuzzylog/snapshot", &named.next(json!({ "colours": colours.0 })))?;
                show(output, &answer, || {
                    let snapshot = answer["snapshot"].as_str().map(|id| format!("\nsnapshot {id}"));
                    positions(&answer["tails"]) + &snapshot.unwrap_or_default()
                });
                Ok(())
            }
            Self::Await { snapshot, timeout_ms, output, hosts } => {
                let body = json!({ "snapshot": snapshot, "timeout_ms": timeout_ms });
                let answer = hosts.write("/v1/fuzzylog/await", &body)?;
                show(output, &answer, || {
                    let id = answer["snapshot"].as_str().unwrap_or_default();
                    format!("{}\nsnapshot {id}", positions(&answer["tails"]))
                });
                Ok(())
            }
            Self::Regions { output, hosts } => {
                let answer = hosts.read("/v1/fuzzylog/regions")?;
                show(output, &answer, || regions(&answer));
                Ok(())
            }
            Self::Trim { colour, before, seen, output, hosts } => {
                let path = format!("/v1/fuzzylog/colours/{}/trim", in_path(&colour));
                let mut body = json!({ "before": before });
                if let Some(seen) = seen {
                    body["seen"] = json!(seen);
                }
                let answer = hosts.write(&path, &body)?;
                show(output, &answer, || format!("{colour} begins at {}", answer["first"]));
                Ok(())
            }
            Self::Move { colour, partition, output, hosts } => {
                let body = json!({ "colour": colour, "partition": partition });
                let answer = hosts.write("/v1/fuzzylog/move", &body)?;
                show(output, &answer, || format!("{colour} is in partition {}", answer["partition"]));
                Ok(())
            }
            Self::Partitions { change: None, output, hosts } => listing::partitions(&hosts, output),
            Self::Partitions { change: Some(change), .. } => change.run(),
            Self::Colours { partition, limit, output, hosts } => {
                listing::colours(&hosts, partition, limit, output)
            }
            Self::Stuck { output, hosts } => listing::stuck(&hosts, output),
            Self::Graph { colours, output, hosts } => graph::print(&hosts, &colours.0, output),
        }
    }
}

/// What a host knows of other regions, a line each.
fn regions(answer: &Value) -> String {
    let Some(own) = answer["own"].as_str() else { return "there is one region alone".to_owned() };
    let mut lines = vec![format!("{own}  here")];
    for (name, other) in answer["others"].as_object().into_iter().flatten() {
        let copied: Vec<&Value> = other["copied"].as_array().into_iter().flatten().collect();
        let heard = copied.iter().map(|it| it["heard_ms_ago"].as_u64()).collect::<Option<Vec<u64>>>();
        let heard = match heard.map(|all| all.into_iter().max()) {
            Some(Some(ms)) => format!("heard {ms} ms ago"),
            Some(None) => "no head here".to_owned(),
            None => "not heard".to_owned(),
        };
        let lacks = other["lacks"].as_object().into_iter().flatten().filter_map(|(_, it)| it.as_u64());
        lines.push(format!("{name}  {heard}  lacks {} nodes of here", lacks.sum::<u64>()));
        let gone =
            other["trimmed_before"].as_object().into_iter().flatten().filter_map(|(_, it)| it.as_u64());
        if let gone @ 1.. = gone.sum::<u64>() {
            lines.push(format!("  {gone} nodes were trimmed before this region came"));
        }
        for it in copied {
            let (from, into, clock) = (&it["from"], &it["into"], &it["clock"]);
            lines.push(format!("  partition {from} is copied into {into} up to its clock's {clock}"));
        }
    }
    let waiting = [("waiting_nodes", "nodes wait"), ("waiting_trims", "colours' trims wait")];
    for (name, what) in waiting.into_iter().filter(|(name, _)| answer[*name].as_u64().unwrap_or(0) > 0) {
        lines.push(format!("{} {what} for other regions", answer[name]));
    }
    for partition in answer["differing"].as_array().into_iter().flatten() {
        lines.push(format!("partition {partition} has data of other regions than the cluster file"));
    }
    for region in answer["removed"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        lines.push(format!("{region}  removed"));
    }
    lines.join("\n")
}

/// What `--after` gives: a snapshot has a slash in it.
fn is_snapshot(after: &str) -> bool {
    after.contains('/')
}

fn append(
    hosts: &Hosts,
    colours: &[String],
    texts: Vec<String>,
    after: Option<String>,
    output: Output,
) -> Result<(), Failure> {
    let mut snapshot = after.clone().filter(|after| is_snapshot(after));
    let (mut named, mut seen) = (client::Named::drawn(), after.filter(|after| !is_snapshot(after)));
    let mut one = |text: String| -> Result<(), Failure> {
        let mut body = named.next(json!({ "colours": colours, "body": text }));
        if let Some(seen) = &seen {
            body["seen"] = json!(seen);
        }
        if let Some(snapshot) = &snapshot {
            body["after"] = json!(snapshot);
        }
        let answer = hosts.write("/v1/fuzzylog/append", &body)?;
        seen = answer["seen"].as_str().map(str::to_owned);
        // Nodes of one command follow each other already.
        snapshot = None;
        show(output, &answer, || positions(&answer["positions"]));
        Ok(())
    };
    if !texts.is_empty() {
        return texts.into_iter().try_for_each(one);
    }
    for line in std::io::stdin().lock().lines() {
        let unreadable = |error: std::io::Error| {
            Failure::input("O1016", "the input cannot be read", error.to_string(), "text, one node a line")
        };
        one(line.map_err(unreadable)?)?;
    }
    Ok(())
}

fn sync(
    hosts: &Hosts,
    colour: &str,
    from: u64,
    follow: bool,
    after: Option<String>,
    output: Output,
) -> Result<(), Failure> {
    let mut from = from;
    let mut past = match after {
        Some(after) if is_snapshot(&after) => format!("&after={}", in_path(&after)),
        Some(seen) => format!("&seen={}", in_path(&seen)),
        None => String::new(),
    };
    // What is there is printed first; then the host is to wait.
    let mut wait_ms = 0;
    loop {
        let path = client::page_path(colour, from, None);
        let page = hosts.read(&format!("{path}&wait_ms={wait_ms}{past}"))?;
        past.clear();
        for node in page["nodes"].as_array().into_iter().flatten() {
            show(output, node, || node_line(node));
        }
        from = client::number(&page["next"])?;
        if from < client::number(&page["tail"])? {
            continue;
        }
        if !follow {
            return Ok(());
        }
        wait_ms = WAIT_MS;
    }
}
