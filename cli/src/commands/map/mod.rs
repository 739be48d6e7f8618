//! `ordinate map`: maps over the partially ordered log from the command line, over HTTP.

mod scan;

use super::admin::{AdminHosts, Call, HostAnswer, Verdict, busy, in_path};
use super::fuzzylog::nobody_serves;
use super::kv::Output;
use crate::failure::Failure;
use clap::Subcommand;
use scan::ScanArguments;
use serde_json::{Map, Value, json};
use server::unique::unique_number;
use std::io::{IsTerminal as _, Write as _};
use std::str::FromStr;

/// `KEY=VALUE`, as it is given; a key has no `=` in it.
#[derive(Clone)]
pub struct Pair {
    key: String,
    value: String,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        pair.map(|(key, value)| Self { key, value }).ok_or_else(|| "wanted: KEY=VALUE".to_owned())
    }
}

/// Whom a verb asks, what it is behind, and how it prints.
#[derive(clap::Args)]
pub struct Asked {
    /// Order it behind what an earlier answer has seen, at whichever host
    #[arg(long, value_name = "SEEN")]
    seen: Option<String>,
    /// Output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    hosts: AdminHosts,
}

/// As what a change is done once. A command without these is a client of its own.
#[derive(clap::Args)]
pub struct Once {
    /// Whose change it is: 1 to 16 hexadecimal digits that no other client has. With the same client and number it is done once, however
    /// often it is sent
    #[arg(long, value_name = "ID", requires = "number")]
    client: Option<String>,
    /// The client's number for it
    #[arg(long, requires = "client")]
    number: Option<u64>,
    /// The client has the answers to all numbers below; by default, to all below this one
    #[arg(long, requires = "number")]
    below: Option<u64>,
}

/// A change's name.
struct Name {
    client: String,
    number: u64,
    below: u64,
}

impl Once {
    fn name(&self) -> Name {
        let client = self.client.clone().unwrap_or_else(|| format!("{:016x}", unique_number()));
        let number = self.number.unwrap_or(1);
        Name { client, number, below: self.below.unwrap_or(number) }
    }
}

/// Maps over the partially ordered log: of several kinds, each with a consistency of its own
#[derive(Subcommand)]
pub enum MapVerb {
    /// Make a map, once; what it is, it stays
    Create {
        /// Its name
        map: String,
        /// log, sharded, atomic, tx, crdt or tx-crdt
        #[arg(long)]
        kind: String,
        /// Among how many colours its keys are distributed; log and crdt have one
        #[arg(long)]
        shards: Option<u16>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Print what keys hold; several at one point of the order: of atomic, tx and tx-crdt
    Get {
        /// The map
        map: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Print keys and what they hold, in order, a page at a time
    Scan {
        /// The map
        map: String,
        #[command(flatten)]
        scan: ScanArguments,
        #[command(flatten)]
        asked: Asked,
    },
    /// Set keys; several at once, all or none: of atomic, tx and tx-crdt
    Put {
        /// The map
        map: String,
        /// The keys and their values
        #[arg(required = true, value_name = "KEY=VALUE")]
        pairs: Vec<Pair>,
        #[command(flatten)]
        once: Once,
        #[command(flatten)]
        asked: Asked,
    },
    /// Remove keys; several at once, all or none: of atomic, tx and tx-crdt
    Delete {
        /// The map
        map: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        once: Once,
        #[command(flatten)]
        asked: Asked,
    },
    /// Change keys of a tx map, if others still have the versions that get has printed
    Transaction {
        /// The map
        map: String,
        /// A key that was read, and its version; 0: it held nothing
        #[arg(long = "read", value_name = "KEY=VERSION")]
        reads: Vec<Pair>,
        /// A key that is set
        #[arg(long = "put", value_name = "KEY=VALUE")]
        puts: Vec<Pair>,
        /// A key that is removed
        #[arg(long = "delete", value_name = "KEY")]
        deletes: Vec<String>,
        #[command(flatten)]
        once: Once,
        #[command(flatten)]
        asked: Asked,
    },
    /// Remove a map, with all that it holds; its name may be used again
    Remove {
        /// The map
        map: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        asked: Asked,
    },
    /// The maps: what each promises, and what the host that is asked has of it
    Status {
        /// One of them
        map: Option<String>,
        #[command(flatten)]
        asked: Asked,
    },
}

impl MapVerb {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create { map, kind, shards, asked } => {
                let mut body = json!({ "kind": kind });
                if let Some(shards) = shards {
                    body["shards"] = json!(shards);
                }
                let answer = asked.write("PUT", &path_of(&map, ""), &body.to_string())?;
                asked.show(&answer, || {
                    let made = if answer["created"] == true { "made" } else { "was there" };
                    format!("{}, {made}", line_of(&answer))
                });
                Ok(())
            }
            Self::Get { map, keys, asked } => get(&map, &keys, &asked),
            Self::Scan { map, scan, asked } => scan.run(&map, &asked),
            Self::Put { map, pairs, once, asked } => match &pairs[..] {
                [Pair { key, value }] => asked.change("PUT", &map, key, value, &once),
                pairs => {
                    let puts = object(pairs.iter().map(|it| (&it.key, json!(it.value))))?;
                    asked.change_all(&map, &json!({ "puts": puts }), &once)
                }
            },
            Self::Delete { map, keys, once, asked } => match &keys[..] {
                [key] => asked.change("DELETE", &map, key, "", &once),
                keys => asked.change_all(&map, &json!({ "deletes": keys }), &once),
            },
            Self::Transaction { map, reads, puts, deletes, once, asked } => {
                let mut versions = Vec::new();
                for Pair { key, value } in &reads {
                    let version: u64 = value.parse().map_err(|_| wrong(format!("{value} is no version")))?;
                    versions.push((key, json!(version)));
                }
                let (reads, puts) = (
                    object(versions.into_iter())?,
                    object(puts.iter().map(|it| (&it.key, json!(it.value))))?,
                );
                let body = json!({ "reads": reads, "puts": puts, "deletes": deletes });
                let body = once.name().with(asked.behind(body)).to_string();
                let answer = asked.write("POST", &path_of(&map, "/transaction"), &body)?;
                asked.show(&answer, || "committed".to_owned());
                Ok(())
            }
            Self::Remove { map, yes, asked } => remove(&map, yes, &asked),
            Self::Status { map: Some(map), asked } => {
                let answer = asked.read(&asked.query(&path_of(&map, "")))?;
                asked.show(&answer, || status_of(&answer));
                Ok(())
            }
            Self::Status { map: None, asked } => {
                let answer = asked.read("/v1/map")?;
                let lines = || answer["maps"].as_array().into_iter().flatten().map(status_of);
                asked.show(&answer, || match answer["maps"].as_array().is_some_and(Vec::is_empty) {
                    true => "there are no maps".to_owned(),
                    false => lines().collect::<Vec<_>>().join("\n"),
                });
                Ok(())
            }
        }
    }
}

fn path_of(map: &str, rest: &str) -> String {
    format!("/v1/map/{}{rest}", in_path(map))
}

fn wrong(fact: String) -> Failure {
    Failure::input(
        "O1067",
        "the map's call makes no sense, and nothing was done",
        fact,
        "ordinate map --help",
    )
}

/// Fields by keys, none of which is named twice.
fn object<'a>(pairs: impl Iterator<Item = (&'a String, Value)>) -> Result<Map<String, Value>, Failure> {
    let mut fields = Map::new();
    for (key, value) in pairs {
        if fields.insert(key.clone(), value).is_some() {
            return Err(wrong(format!("{key} is named twice")));
        }
    }
    Ok(fields)
}

/// What a key holds, in a line: what is no text as it is written in JSON.
fn value_of(entry: &Value) -> String {
    let value = entry["value"].as_str().or_else(|| entry["value_base64"].as_str()).unwrap_or_default();
    match entry["version"].as_u64() {
        Some(version) => format!("{value}  version {version}"),
        None => value.to_owned(),
    }
}

/// `cities  log, linearizable, 1 shard`
fn line_of(map: &Value) -> String {
    let text = |name: &str| map[name].as_str().unwrap_or_default().to_owned();
    format!("{}  {} of {} shards: {}", text("map"), text("kind"), map["shards"], text("consistency"))
}

/// A map in lines.
fn status_of(map: &Value) -> String {
    let mut lines = vec![line_of(map)];
    if map["entries"].is_u64() {
        lines.push(format!("  entries {}  bytes {}", map["entries"], map["bytes"]));
    }
    for (colour, shard) in map["colours"].as_object().into_iter().flatten() {
        let (played, covered, bytes) = (&shard["played"], &shard["covered"], &shard["uncovered_bytes"]);
        lines.push(format!(
            "  {colour}  played to {played}  stored view to {covered}  behind it {bytes} bytes"
        ));
    }
    lines.join("\n")
}

fn get(map: &str, keys: &[String], asked: &Asked) -> Result<(), Failure> {
    if let [key] = keys {
        let answer = asked.read(&asked.query(&path_of(map, &format!("/keys/{}", in_path(key)))))?;
        asked.show(&answer, || value_of(&answer));
        return Ok(());
    }
    let body = asked.behind(json!({ "keys": keys })).to_string();
    let answer = asked.ask("POST", &path_of(map, "/get"), &body, false)?;
    asked.show(&answer, || {
        let entries = answer["entries"].as_array().into_iter().flatten();
        let line = |entry: &Value| {
            let key = entry["key"].as_str().unwrap_or_default();
            let holds = !entry["value"].is_null() || entry["value_base64"].is_string();
            if holds { format!("{key}={}", value_of(entry)) } else { format!("{key} holds nothing") }
        };
        entries.map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

fn remove(map: &str, yes: bool, asked: &Asked) -> Result<(), Failure> {
    // With its id, only this map is removed, however often that is sent. One that cannot be read any more has none to be found.
    let found = asked.read(&path_of(map, "")).ok();
    if let Some(found) = &found {
        eprintln!("{}, {} entries", line_of(found), found["entries"]);
    }
    if !yes && !is_confirmed(map)? {
        let fact = "it was not confirmed".to_owned();
        let what = "the map is not removed";
        return Err(Failure::input("O1067", what, fact, "the same with --yes"));
    }
    let id = found.as_ref().and_then(|it| it["id"].as_str());
    let query = id.map_or_else(String::new, |id| format!("?id={}", in_path(id)));
    let answer = asked.write("DELETE", &path_of(map, &query), "")?;
    asked.show(&answer, || match answer["removed"] == true {
        true => "removed".to_owned(),
        false => "was removed before".to_owned(),
    });
    Ok(())
}

/// Asks at the terminal.
fn is_confirmed(map: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        let fact = "nobody can be asked: the standard input is no terminal".to_owned();
        return Err(Failure::input("O1067", "the map is not removed", fact, "--yes"));
    }
    eprint!("All that it holds is lost. Type the map's name to remove it: ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::input("O1067", "the map is not removed", error.to_string(), "--yes"))?;
    Ok(line.trim_end_matches(['\r', '\n']) == map)
}

impl Name {
    /// In the body of a call.
    fn with(self, mut body: Value) -> Value {
        let Self { client, number, below } = self;
        body["client"] = json!({ "id": client, "number": number, "below": below });
        body
    }
}

impl Asked {
    fn show(&self, answer: &Value, line: impl FnOnce() -> String) {
        match self.output {
            Output::Table => println!("{}", line()),
            Output::Json => println!("{answer}"),
        }
    }

    /// A line each, or none.
    fn show_lines(&self, answer: &Value, lines: impl FnOnce() -> Vec<String>) {
        match self.output {
            Output::Table => lines().iter().for_each(|line| println!("{line}")),
            Output::Json => println!("{answer}"),
        }
    }

    fn query(&self, path: &str) -> String {
        match &self.seen {
            Some(seen) => format!("{path}?seen={}", in_path(seen)),
            None => path.to_owned(),
        }
    }

    fn behind(&self, mut body: Value) -> Value {
        if let Some(seen) = &self.seen {
            body["seen"] = json!(seen);
        }
        body
    }

    fn change(&self, verb: &str, map: &str, key: &str, value: &str, once: &Once) -> Result<(), Failure> {
        let Name { client, number, below } = once.name();
        let path = self.query(&path_of(map, &format!("/keys/{}", in_path(key))));
        let first = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{first}client={}&number={number}&below={below}", in_path(&client));
        let answer = self.write(verb, &path, value)?;
        self.show(&answer, || "done".to_owned());
        Ok(())
    }

    fn change_all(&self, map: &str, body: &Value, once: &Once) -> Result<(), Failure> {
        let body = once.name().with(self.behind(body.clone())).to_string();
        let answer = self.write("POST", &path_of(map, "/put"), &body)?;
        self.show(&answer, || "done".to_owned());
        Ok(())
    }

    fn read(&self, path: &str) -> Result<Value, Failure> {
        self.ask("GET", path, "", false)
    }

    /// A change has a name, and a map is made once: it may be sent again, to whichever host.
    fn write(&self, verb: &str, path: &str, body: &str) -> Result<Value, Failure> {
        self.ask(verb, path, body, true)
    }

    fn ask(&self, verb: &str, path: &str, body: &str, writes: bool) -> Result<Value, Failure> {
        let unanswered = |why| Verdict::Unknown(unknown(why));
        self.hosts
            .ask_in_turn(&Call { verb, path, body, writes }, unanswered, |answer| judged(answer, writes))
    }
}

fn judged(HostAnswer { status, answer, why }: HostAnswer, writes: bool) -> Verdict<Value> {
    // Only the map itself says what has been seen.
    let is_of_map = answer["seen"].is_string();
    match status {
        200 => Verdict::Done(answer),
        503 => Verdict::Again(busy(why)),
        500 | 504 if writes => Verdict::Unknown(unknown(why)),
        504 => Verdict::Again(nobody_serves(why)),
        404 if is_of_map => {
            Verdict::No(Failure::failed("O1068", "the key holds nothing", why, "ordinate map status MAP"))
        }
        409 if answer["executed"].is_null() => {
            let what = "the change's client has said that it has the answer to this number";
            Verdict::No(Failure::input("O1067", what, why, "another number"))
        }
        409 if is_of_map => {
            let what = "a key was written since it was read, and nothing was done";
            Verdict::No(Failure::failed("O1069", what, why, "ordinate map get MAP KEY, and again"))
        }
        507 => {
            let what = "there is no room for the map";
            let remedy = "ordinate config explain fuzzylog.map_bytes, or fuzzylog.partition_bytes";
            Verdict::No(Failure::failed("O1070", what, why, remedy))
        }
        _ => {
            let what = "the map's call was refused, and nothing was done";
            Verdict::No(Failure::input("O1067", what, why, "ordinate map status"))
        }
    }
}

fn unknown(fact: String) -> Failure {
    let remedy = "ordinate map get MAP KEY  (shows what is there)";
    Failure::failed("O1063", "it may have been done, or still be", fact, remedy)
}
