//! `ordinate recover`: a cluster of another identity from the data directory of a host that is left, when a majority is lost for good.
//!
//! Every host of the new cluster begins with a copy of one survivor's data: all acceptors have voted for what that one has voted for, so
//! each of its votes is chosen, and whatever it never received never was. The old data directories stay as they are.

use super::inspect;
use super::output::{GivenOutput, Output};
use crate::failure::Failure;
use kernel::{Bytes, Decode as _, HostSlot};
use paxos::multipaxos::acceptor::AcceptorRecord;
use runtime::IdleDirectory;
use serde_json::{Value, json};
use server::services::owner_of;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Makes a cluster of what is left when a majority of its hosts is lost for good. Says what may be missing, and asks.
#[derive(clap::Args)]
pub struct Recover {
    /// The data directories of the hosts that are left, stopped: the ones with ordinate.meta in them
    #[arg(long, value_name = "DATA/HOST", required = true, num_args = 1..)]
    from_survivors: Vec<PathBuf>,
    /// The name of the new cluster: another than the old one's, so that hosts of the old one are refused
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// The members of the old cluster, as `ordinate cluster members list` showed them last; the new cluster has the same names
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// Where a data directory for each host is written: DIR/HOST
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: GivenOutput,
}

/// How far a survivor knows one log, in slots.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Extent {
    /// Below this one it knows what is chosen.
    chosen: u64,
    /// Below this one it has voted or learned.
    accepted: u64,
}

impl Extent {
    fn add(&mut self, record: AcceptorRecord) {
        match record {
            AcceptorRecord::Vote { slot, .. } => self.accepted = self.accepted.max(slot.0 + 1),
            AcceptorRecord::Learned { slot, .. } => self.accepted = self.accepted.max(slot.0 + 1),
            AcceptorRecord::Executed { below, .. } => self.chosen = self.chosen.max(below.0),
            AcceptorRecord::Summary(summary) => {
                self.chosen = self.chosen.max(summary.truncated_below.0);
                self.accepted = self.accepted.max(summary.voted_through.0);
            }
            AcceptorRecord::Blank { .. }
            | AcceptorRecord::Active { .. }
            | AcceptorRecord::Promise { .. }
            | AcceptorRecord::Sealed { .. } => {}
        }
        self.accepted = self.accepted.max(self.chosen);
    }
}

/// A data directory that is left.
struct Survivor {
    path: PathBuf,
    directory: IdleDirectory,
    logs: BTreeMap<HostSlot, Extent>,
    /// Seconds since its journal was written last.
    silent_for: Option<u64>,
}

impl Survivor {
    fn read(path: &Path) -> Result<Self, Failure> {
        let directory = IdleDirectory::open(path).map_err(|error| inspect::unusable(path, &error))?;
        let survey = directory.survey();
        survey.outcome.as_ref().map_err(|error| inspect::damaged(path, error))?;
        let (mut logs, mut on_chains) = (BTreeMap::<HostSlot, Extent>::new(), None);
        let replayed = survey.replay(|slot, _, record| {
            let owner = owner_of(slot).name;
            let engines = [("log storage", "corfu"), ("log partition", "fuzzylog")];
            let engine = engines.into_iter().find(|(role, _)| owner.starts_with(role));
            on_chains = on_chains.or(engine.map(|(_, engine)| engine));
            if owner.ends_with("acceptor") {
                let record =
                    AcceptorRecord::decoded(&Bytes::copy_from_slice(record)).map_err(|why| (owner, why))?;
                logs.entry(slot).or_default().add(record);
            }
            Ok(())
        });
        let replayed = replayed.map_err(|error| inspect::damaged(path, &error))?;
        replayed.map_err(|(owner, why)| {
            let what = format!("a record of {owner} in {} cannot be read", path.display());
            Failure::failed("O2109", what, why.to_string(), "ordinate --version")
        })?;
        if let Some(engine) = on_chains {
            let what = format!("{} holds a log over {engine}, which cannot be recovered", path.display());
            let remedy = "ordinate inspect DATA/HOST; the other services' data are in it as well";
            return Err(Failure::input("O1046", what, "its chains name the hosts that are lost", remedy));
        }
        let written = std::fs::read_dir(path.join("journal")).into_iter().flatten().flatten();
        let written = written.filter_map(|entry| entry.metadata().ok()?.modified().ok()).max();
        let silent_for =
            written.and_then(|at| SystemTime::now().duration_since(at).ok()).map(|it| it.as_secs());
        Ok(Self { path: path.to_owned(), directory, logs, silent_for })
    }

    /// It has all that the other has.
    fn covers(&self, other: &Self) -> bool {
        other.logs.iter().all(|(slot, theirs)| {
            let mine = self.logs.get(slot).copied().unwrap_or_default();
            mine.accepted >= theirs.accepted && mine.chosen >= theirs.chosen
        })
    }

    fn json(&self) -> Value {
        let owner = &self.directory.owner;
        let log = |(slot, extent): (&HostSlot, &Extent)| {
            let name = owner_of(*slot).name;
            let name = name.trim_end_matches(" acceptor");
            json!({ "log": name, "chosen_below": extent.chosen, "accepted_below": extent.accepted })
        };
        json!({ "host": owner.host, "cluster": owner.cluster, "data": self.path.display().to_string(),
            "logs": self.logs.iter().map(log).collect::<Vec<_>>(), "silent_for_seconds": self.silent_for })
    }

    fn print(&self) {
        let owner = &self.directory.owner;
        println!("host {} of cluster {}, in {}", owner.host, owner.cluster, self.path.display());
        for (slot, Extent { chosen, accepted }) in &self.logs {
            let log = owner_of(*slot).name;
            let log = log.trim_end_matches(" acceptor");
            let unsure = match accepted - chosen {
                0 => "nothing is unsure".to_owned(),
                count => format!(
                    "{count} slots from {chosen} on were accepted here, and this host does not know whether they were chosen: they are \
                     retained"
                ),
            };
            println!(
                "  {log}: chosen below slot {chosen}; {unsure}. From slot {accepted} on: lost, if there was more"
            );
        }
        if let Some(seconds) = self.silent_for {
            println!(
                "  It wrote last {seconds} s ago. What other hosts acknowledged without it is lost, and it cannot know how much: of \
                 services whose logs go on for long without it, all of that time"
            );
        }
    }
}

impl Recover {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let survivors: Vec<Survivor> =
            self.from_survivors.iter().map(|path| Survivor::read(path)).collect::<Result<_, Failure>>()?;
        let GivenOutput(output) = self.output;
        match output {
            Output::Table => survivors.iter().for_each(Survivor::print),
            Output::Json => survivors.iter().for_each(|survivor| println!("{}", survivor.json())),
        }
        let refuse =
            |what: &str, fact: String, remedy: &str| Err(Failure::input("O1046", what, fact, remedy));
        let Some(best) = survivors.iter().find(|one| survivors.iter().all(|other| one.covers(other))) else {
            let fact =
                "each has something of one log that the other lacks; all hosts begin with the data of one"
                    .to_owned();
            return refuse(
                "no survivor has all that the others have",
                fact,
                "give the one whose data shall count, alone",
            );
        };
        let owner = &best.directory.owner;
        if survivors.iter().any(|one| one.directory.owner.cluster != owner.cluster) {
            let names: BTreeSet<&str> =
                survivors.iter().map(|one| one.directory.owner.cluster.as_str()).collect();
            let fact = names.into_iter().collect::<Vec<_>>().join(", ");
            return refuse("the survivors are of different clusters", fact, "ordinate inspect DATA/HOST");
        }
        if owner.cluster == self.cluster {
            let fact = format!(
                "{} is the old one's: its lost hosts could come back among the new ones",
                self.cluster
            );
            return refuse(
                "the new cluster needs another name",
                fact,
                "ordinate recover ... --cluster NAME2",
            );
        }
        let names: BTreeSet<&String> = self.hosts.iter().collect();
        if names.len() != self.hosts.len() || !self.hosts.contains(&owner.host) {
            let fact = format!("--hosts has each member of the old cluster once, {} among them", owner.host);
            return refuse("these are not the old cluster's members", fact, "--hosts a,b,c");
        }
        eprintln!(
            "All hosts of the new cluster {} begin with the data of {}. The old directories stay as they are; hosts that are started on \
             them are refused by the new cluster.",
            self.cluster, owner.host
        );
        if !self.yes && !self.is_confirmed()? {
            return refuse("nothing was written", "it was not confirmed".to_owned(), "the same with --yes");
        }
        for host in &self.hosts {
            let into = self.into.join(host);
            best.directory.copy_for(&best.path, &into, &self.cluster, host).map_err(|error| {
                let what = format!("{} cannot be written", into.display());
                Failure::failed(
                    "O1046",
                    what,
                    error.to_string(),
                    "an empty --into, with room for a copy for each host",
                )
            })?;
            let into = into.display();
            output.print(|| json!({ "written": into.to_string() }), || format!("wrote {into}"));
        }
        output.print(|| json!({ "cluster": self.cluster, "of": owner.host }), || self.next());
        Ok(())
    }

    fn next(&self) -> String {
        format!(
            "Next: give each machine its directory as data/HOST, set cluster = {:?} in every cluster file and new machines' addresses in \
             [hosts], and start all of them.",
            self.cluster
        )
    }

    fn is_confirmed(&self) -> Result<bool, Failure> {
        let unasked =
            |fact: String| Failure::input("O1046", "nobody can be asked: nothing was written", fact, "--yes");
        if !std::io::stdin().is_terminal() {
            return Err(unasked("the standard input is no terminal".to_owned()));
        }
        eprint!("Go on, and give up what is missing? Type the new cluster's name: ");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(|error| unasked(error.to_string()))?;
        Ok(line.trim() == self.cluster)
    }
}
