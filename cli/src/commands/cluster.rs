//! `ordinate status` and `ordinate cluster`: what hosts know, and who is a member.

use super::admin::{GivenToken, fetch, parse};
use super::kv::Endpoint;
use super::served::{print_colours, print_transactions};
use crate::failure::Failure;
use clap::Subcommand;
use kernel::{HostId, NodeId};
use ordinate_client::CallError;
use parts::{AcceptorGroup, Acceptors, Slot};
use paxos::{Configuration, HostEntry};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ASK_EVERY: Duration = Duration::from_millis(200);
/// That the services have followed a change goes from the hosts that decide it to the others, which hear of it within so long.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// What a host knows of itself and its cluster
#[derive(clap::Args)]
pub struct ShowStatus {
    /// The admin address of a host
    #[arg(long, visible_alias = "endpoints", env = "ORDINATE_ADMIN", default_value = "127.0.0.1:7070", value_parser = super::admin::address)]
    admin: String,
    #[command(flatten)]
    token: GivenToken,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// The cluster's members
#[derive(Subcommand)]
pub enum Cluster {
    /// Who is a member, in which roles
    #[command(subcommand)]
    Members(Members),
    /// Add or remove proxies of the coordination service, without stopping it
    Proxies(super::arrangement::Proxies),
    /// Spread the coordination service's znodes over more or fewer shards, without stopping it
    Shards(super::arrangement::Shards),
}

/// Changes of membership; each takes effect without stopping the cluster
#[derive(Subcommand)]
pub enum Members {
    /// Print the members
    List(ShowStatus),
    /// Add a host in every role; start it first with: ordinate serve --host NAME --join
    Add {
        /// NAME=ADDRESS of the new host's peers' port
        host: String,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a host
    Remove {
        /// Its name
        host: String,
        #[command(flatten)]
        change: Change,
    },
    /// Put a new host in all roles of an old one; start it first with: ordinate serve --host NAME --join
    Replace {
        /// The name of the host that leaves
        old: String,
        /// NAME=ADDRESS of the one that comes
        new: String,
        #[command(flatten)]
        change: Change,
    },
}

/// How to change the membership.
#[derive(clap::Args)]
pub struct Change {
    /// The admin address of a host that stays, to learn the present members and whether all have followed
    #[arg(long, env = "ORDINATE_ADMIN", default_value = "127.0.0.1:7070", value_parser = super::admin::address)]
    admin: String,
    /// Make it although the services have not followed the last change: where they wait for a host that is lost for good
    #[arg(long)]
    unsettled: bool,
    /// How long the services may take to follow, in seconds; they go on afterwards
    #[arg(long, default_value = "120", value_parser = super::seconds)]
    settle_within: Duration,
    #[command(flatten)]
    endpoint: Endpoint,
}

impl ShowStatus {
    /// Prints it.
    pub fn run(self) -> Result<(), Failure> {
        let text = fetch(&self.admin, &self.token, "/v1/status")?;
        if self.output == "json" {
            println!("{text}");
            return Ok(());
        }
        let status = parse(&self.admin, &text)?;
        let text = |name: &str| status[name].as_str().unwrap_or("none").to_owned();
        println!(
            "host        {} of cluster {}   (ordinate {})",
            text("host"),
            text("cluster"),
            text("version")
        );
        match status["not_serving"].as_str() {
            Some(why) => println!("serving     NO: {why}"),
            None => println!("serving     yes"),
        }
        let unserved =
            status["serves"].as_object().into_iter().flatten().filter(|(_, serves)| **serves == false);
        let unserved: Vec<&str> = unserved.map(|(service, _)| service.as_str()).collect();
        if !unserved.is_empty() {
            println!("  not served: {}", unserved.join(", "));
        }
        println!(
            "leader      {}   round {}",
            status["leader"].as_str().unwrap_or("none heard"),
            status["round"]
        );
        println!("durability  {}", text("durability"));
        println!("acceptor    {}", text("acceptor"));
        println!("executed    {}   snapshot through {}", status["executed"], status["snapshot"]);
        println!(
            "keys        {}   sessions {}   clients {}",
            status["keys"], status["sessions"], status["clients"]
        );
        println!(
            "disk        {}",
            if status["disk_full"] == Value::Bool(true) { "FULL: clients wait" } else { "ok" }
        );
        println!("clock       {}", words_of_clock(&status["clock"]));
        let coordination = &status["coordination"];
        if coordination.is_object() {
            println!(
                "zookeeper   {}   sessions {}   znodes {}   watches {}",
                groups(coordination),
                coordination["sessions"],
                coordination["monitor"]["znode_count"],
                coordination["monitor"]["watch_count"],
            );
            println!("  proxies   {}", super::arrangement::words_of_proxies(&coordination["proxies"]));
            println!("  shards    {}", super::arrangement::words_of_shards(&coordination["shard_map"]));
            for (space, shard) in coordination["shards"].as_object().into_iter().flatten() {
                println!("  shard {space:<4}{}", words_of_shard(space, shard));
            }
        }
        if status["sequence_groups"].is_object() {
            println!("sequence    {}", groups(&status["sequence_groups"]));
        }
        for (space, given) in status["sequence"].as_object().into_iter().flatten() {
            println!("  {space}: {given} positions given");
        }
        print_log(&status["log"]);
        print_transactions(&status["txn"]);
        print_colours(&status["fuzzylog"]);
        print_members(&status);
        Ok(())
    }
}

/// `chrony, at most 412 us off`, or why it is not usable.
fn words_of_clock(clock: &Value) -> String {
    let text = |name: &str| clock[name].as_str().unwrap_or("none").to_owned();
    let by = clock["contradicted_by"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let by = by.collect::<Vec<_>>().join(", ");
    let mut words = match clock["usable"] == Value::Bool(true) {
        true => format!("{}, at most {} us off", text("source"), clock["bound_us"]),
        false => format!("not usable: {}", text("trouble")),
    };
    if !by.is_empty() {
        words += &format!("   contradicted by {by}");
    }
    words
}

/// How far a shard's server is.
fn words_of_shard(space: &str, shard: &Value) -> String {
    let waits = match shard["state"].as_str() {
        Some("lacks_number") => format!("lacks its next number, {} is assigned", shard["assigned"]),
        Some("lacks_inputs") => format!("lacks {} inputs of other shards", shard["inputs_missing"]),
        Some(_) | None => "idle".to_owned(),
    };
    let installs = if shard["installs_snapshot"] == true { ", takes a snapshot" } else { "" };
    let missing = shard["blobs_missing"].as_u64().unwrap_or(0);
    let lacks = if missing > 0 { format!(", lacks {missing} blobs") } else { String::new() };
    format!("space {space} next {}: {waits}; {} behind it{installs}{lacks}", shard["next"], shard["behind"])
}

/// What a host does for a service over Mason.
fn groups(service: &Value) -> String {
    let leads = service["leads"].as_object().map_or(0, serde_json::Map::len);
    let sequencer = service["sequencer"].as_u64();
    let sequencer = sequencer.map_or_else(String::new, |epoch| format!("   is sequencer {epoch}"));
    format!("leads {leads} proxies{sequencer}")
}

fn print_log(log: &Value) {
    if !log.is_object() {
        return;
    }
    let holds = format!("logs {}   entries {}   bytes {}", log["logs"], log["entries"], log["bytes"]);
    let projection = &log["projection"];
    if !projection.is_object() {
        println!("log         {}   {}   {holds}", log["engine"].as_str().unwrap_or(""), groups(log));
        for (space, shard) in log["shards"].as_object().into_iter().flatten() {
            let storage = &log["storage"][space];
            let mebibytes = |name: &str| storage[name].as_u64().unwrap_or(0) >> 20;
            println!(
                "  {}   segments {} ({} MiB)   in memory {} MiB",
                words_of_shard(space, shard),
                storage["segments"],
                mebibytes("stored_bytes"),
                mebibytes("memory_bytes") + mebibytes("cached_bytes"),
            );
        }
        for chain in log["chains"]["chains"].as_array().into_iter().flatten() {
            println!(
                "  chain {}   epoch {}   {}",
                chain["partition"],
                chain["epoch"],
                hosts_of(&chain["chain"])
            );
        }
        print_archive(&log["archive"]);
        return;
    }
    let sequencer = projection["sequencer"].as_str().unwrap_or("");
    println!(
        "log         {}   epoch {}   sequencer {sequencer}   {holds}",
        log["engine"].as_str().unwrap_or(""),
        projection["epoch"]
    );
    for (number, chain) in projection["chains"].as_array().into_iter().flatten().enumerate() {
        let hosts = hosts_of(chain);
        let learners = projection["catching_up"][number].as_array().into_iter().flatten();
        let catching_up: Vec<String> = learners
            .map(|learner| {
                let behind = learner["behind"].as_u64();
                let behind = behind.map_or("compares".to_owned(), |behind| format!("{behind} behind"));
                format!("{} ({behind})", learner["host"].as_str().unwrap_or(""))
            })
            .collect();
        let catching_up = match catching_up.is_empty() {
            true => String::new(),
            false => format!("   catching up: {}", catching_up.join(", ")),
        };
        println!("  chain {number:<4}{hosts}{catching_up}");
    }
}

fn hosts_of(chain: &Value) -> String {
    let hosts: Vec<&str> = chain.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    hosts.join(" ")
}

fn print_archive(archive: &Value) {
    if !archive.is_object() {
        return;
    }
    let url = archive["url"].as_str().unwrap_or("");
    let (waiting, bytes) = (&archive["waiting"], &archive["waiting_bytes"]);
    println!(
        "archive     {url}   archived here {}   {waiting} segments wait ({bytes} bytes)",
        archive["objects"]
    );
    if let Some(error) = archive["error"].as_str() {
        println!("  WARNING   the archive does not take them: {error}");
    }
    if archive["refuses"].as_bool() == Some(true) {
        let most = &archive["waiting_bytes_max"];
        println!(
            "  WARNING   appends are refused: more than {most} bytes of a space wait (log.archive_backlog_bytes)"
        );
    }
}

fn print_members(status: &Value) {
    let membership = &status["membership"];
    let followed = match membership["settled"] == membership["version"] {
        true => String::new(),
        false => format!("   settled {}: hosts that left are still needed", membership["settled"]),
    };
    println!("membership  version {}{followed}", membership["version"]);
    for (name, address) in status["membership"]["hosts"].as_object().into_iter().flatten() {
        let plays = |(role, hosts): (&String, &Value)| {
            let here = hosts.as_array().is_some_and(|hosts| hosts.iter().any(|host| host == name));
            here.then(|| role.trim_start_matches("paxos.").to_owned())
        };
        let roles: Vec<String> =
            status["membership"]["roles"].as_object().into_iter().flatten().filter_map(plays).collect();
        let is_unheard =
            status["unheard"].as_array().is_some_and(|hosts| hosts.iter().any(|host| host == name));
        let unheard = if is_unheard { "   NOT HEARD" } else { "" };
        println!("  {name:<12} {:<24} {}{unheard}", address.as_str().unwrap_or(""), roles.join(" "));
    }
}

impl Cluster {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let members = match self {
            Self::Members(members) => members,
            Self::Proxies(proxies) => return proxies.run(),
            Self::Shards(shards) => return shards.run(),
        };
        match members {
            Members::List(status) => {
                let found = parse(&status.admin, &fetch(&status.admin, &status.token, "/v1/status")?)?;
                match status.output.as_str() {
                    "json" => println!("{}", found["membership"]),
                    _ => print_members(&found),
                }
                Ok(())
            }
            Members::Add { host, change } => change.carry_out(|present| add(present, &host)),
            Members::Remove { host, change } => change.carry_out(|present| remove(present, &host)),
            Members::Replace { old, new, change } => change.carry_out(|present| replace(present, &old, &new)),
        }
    }
}

/// The members by role, as names.
#[derive(Clone)]
struct Present {
    version: u64,
    settled: u64,
    columns: Option<usize>,
    roles: BTreeMap<String, Vec<String>>,
    hosts: BTreeMap<String, String>,
}

impl Change {
    fn carry_out(&self, change: impl FnOnce(&Present) -> Result<Present, Failure>) -> Result<(), Failure> {
        let begun = Instant::now();
        let (status, present) = loop {
            let status = parse(&self.admin, &fetch(&self.admin, self.endpoint.token(), "/v1/status")?)?;
            let present = Present::read(&status)?;
            let has_followed = present.settled >= present.version || self.unsettled;
            if has_followed || begun.elapsed() >= HEARD_WITHIN {
                break (status, present);
            }
            std::thread::sleep(ASK_EVERY);
        };
        if present.settled < present.version && !self.unsettled {
            return Err(Failure::failed(
                "O3009",
                format!("the services have not followed membership version {} yet", present.version),
                "a host that has left may have what nobody else has; if they wait for one that is lost for good: --unsettled",
                "ordinate cluster members list",
            ));
        }
        let wanted = change(&present)?;
        let stays = status["host"].as_str().is_some_and(|host| wanted.hosts.contains_key(host));
        let wanted = wanted.configuration()?;
        let version = wanted.version;
        self.endpoint.with_client(|client| async move {
            client.reconfigure(wanted).await.map_err(|error| match error {
                CallError::Conflict => Failure::failed("O3002", "another change came first", "", "ordinate cluster members list"),
                CallError::TimedOut(_) => Failure::failed(
                    "O3003",
                    "the change is not in force yet",
                    "a host that comes must be running (ordinate serve --join) and reach a member that may lead, which its [hosts] must list, before it is made a member",
                    "ordinate cluster members list, then the same command again",
                ),
                other => self.endpoint.explain(&other),
            })
        })?;
        let output = self.endpoint.output();
        let words = || format!("membership version {version} is in force");
        output.print(|| json!({ "version": version, "in_force": true }), words);
        match stays {
            true => self.until_settled(version),
            false => {
                output.print(
                    || json!({ "leaves": self.admin, "settled_from": version }),
                    || {
                        let admin = &self.admin;
                        format!("the host at {admin} leaves: ask another when `settled` is {version}, then stop it")
                    },
                );
                Ok(())
            }
        }
    }

    /// Until then a host that left may be the only one that has what an acknowledgement promised.
    fn until_settled(&self, version: u64) -> Result<(), Failure> {
        let begun = Instant::now();
        let deadline = begun + self.settle_within;
        loop {
            let heard = fetch(&self.admin, self.endpoint.token(), "/v1/status")
                .and_then(|text| parse(&self.admin, &text));
            let membership = heard.as_ref().ok().map(|status| &status["membership"]);
            if membership.and_then(|it| it["settled"].as_u64()) >= Some(version) {
                let seconds = begun.elapsed().as_secs_f64();
                self.endpoint.output().print(
                    || json!({ "settled": version, "after_seconds": seconds }),
                    || {
                        format!(
                            "all services have followed after {seconds:.1} s: hosts that left may be stopped"
                        )
                    },
                );
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::failed(
                    "O3010",
                    format!(
                        "the change is in force, and the services have not followed it after {} s",
                        begun.elapsed().as_secs()
                    ),
                    "they go on; hosts that left must run until `settled` below is the version",
                    "ordinate cluster members list",
                ));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

impl Present {
    fn read(status: &Value) -> Result<Self, Failure> {
        let membership = &status["membership"];
        let names = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect()
        };
        let roles = membership["roles"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(role, hosts)| (role.clone(), names(hosts)));
        let hosts = membership["hosts"].as_object().into_iter().flatten();
        let hosts = hosts.map(|(name, address)| (name.clone(), address.as_str().unwrap_or("").to_owned()));
        let version = membership["version"].as_u64().ok_or_else(|| {
            Failure::failed("O3001", "the host does not report its membership", "", "ordinate status -o json")
        })?;
        let columns =
            membership["columns"].as_u64().map(|columns| columns as usize).filter(|&columns| columns > 0);
        // A host of a version before says nothing of it.
        let settled = membership["settled"].as_u64().unwrap_or(version);
        Ok(Self { version, settled, columns, roles: roles.collect(), hosts: hosts.collect() })
    }

    fn nodes(&self, role: server::cluster::RoleName) -> Vec<NodeId> {
        let hosts = self.roles.get(role.name()).into_iter().flatten();
        hosts.map(|host| role.on(host)).collect()
    }

    fn configuration(self) -> Result<Configuration, Failure> {
        use server::cluster::RoleName;
        let acceptors = self.nodes(RoleName::Acceptor);
        let group = match self.columns {
            Some(columns) => AcceptorGroup::grid(acceptors, columns),
            None => AcceptorGroup::majority(acceptors),
        };
        let acceptors = group.and_then(|group| Acceptors::new(vec![group])).ok_or_else(|| {
            Failure::input(
                "O3004",
                "the acceptors would form no quorum system",
                "a grid stays a rectangle",
                "ordinate cluster members replace OLD NEW=ADDRESS",
            )
        })?;
        Ok(Configuration {
            version: self.version + 1,
            first_slot: Slot(0),
            acceptors,
            leaders: self.nodes(RoleName::Leader),
            proxy_leaders: self.nodes(RoleName::ProxyLeader),
            replicas: self.nodes(RoleName::Replica),
            batchers: self.nodes(RoleName::Batcher),
            unbatchers: self.nodes(RoleName::Unbatcher),
            hosts: self.hosts.into_iter().map(|(name, address)| HostEntry { name, address }).collect(),
            joined: Vec::new(),
        })
    }
}

fn named(host: &str) -> Result<(String, String), Failure> {
    host.split_once('=').filter(|(name, address)| !name.is_empty() && address.contains(':')).map_or_else(
        || {
            Err(Failure::input(
                "O3005",
                format!("{host} names no host"),
                "",
                "write NAME=ADDRESS, for example d=d.example.net:7072",
            ))
        },
        |(name, address)| Ok((name.to_owned(), address.to_owned())),
    )
}

fn add(present: &Present, host: &str) -> Result<Present, Failure> {
    let (name, address) = named(host)?;
    let mut wanted = present.clone();
    let same = wanted.hosts.keys().find(|known| HostId::named(known) == HostId::named(&name));
    if let Some(same) = same {
        return Err(Failure::input(
            "O3006",
            format!("{same} is a member already"),
            "",
            "ordinate cluster members list",
        ));
    }
    wanted.roles.values_mut().for_each(|hosts| hosts.push(name.clone()));
    wanted.hosts.insert(name, address);
    Ok(wanted)
}

fn known(present: &Present, name: &str) -> Result<(), Failure> {
    if present.hosts.contains_key(name) {
        return Ok(());
    }
    let members: Vec<&str> = present.hosts.keys().map(String::as_str).collect();
    Err(Failure::input(
        "O3007",
        format!("{name} is no member"),
        format!("members: {}", members.join(", ")),
        "ordinate cluster members list",
    ))
}

fn remove(present: &Present, name: &str) -> Result<Present, Failure> {
    known(present, name)?;
    let mut wanted = present.clone();
    wanted.roles.values_mut().for_each(|hosts| hosts.retain(|host| host != name));
    wanted.hosts.remove(name);
    if wanted.hosts.is_empty() {
        return Err(Failure::input("O3008", format!("{name} is the last member"), "", "stop it instead"));
    }
    Ok(wanted)
}

fn replace(present: &Present, old: &str, new: &str) -> Result<Present, Failure> {
    known(present, old)?;
    let (name, address) = named(new)?;
    let mut wanted = present.clone();
    for hosts in wanted.roles.values_mut() {
        hosts.iter_mut().filter(|host| *host == old).for_each(|host| host.clone_from(&name));
    }
    wanted.hosts.remove(old);
    wanted.hosts.insert(name, address);
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> Present {
        let hosts = ["a", "b", "c"].map(|name| (name.to_owned(), format!("{name}:1")));
        let roles = server::cluster::RoleName::ALL
            .map(|role| (role.name().to_owned(), ["a", "b", "c"].map(str::to_owned).to_vec()));
        Present { version: 4, settled: 4, columns: None, roles: roles.into(), hosts: hosts.into() }
    }

    // A replacement that forgets a role would leave the cluster without it when the old host goes.
    #[test]
    fn a_replacement_takes_every_role() {
        let wanted = replace(&present(), "b", "d=d:9").expect("b is a member");
        assert!(wanted.roles.values().all(|hosts| hosts == &["a", "d", "c"]));
        let configuration = wanted.configuration().expect("three hosts are a group");
        assert_eq!((configuration.version, configuration.hosts.len()), (5, 3));
        assert!(replace(&present(), "x", "d=d:9").is_err() && add(&present(), "a=a:2").is_err());
        assert!(add(&present(), "d").is_err());
    }
}
