//! `ordinate demo --regions`: three hosts in each region, far from those of the others by the delay of their links, which can be cut.

use super::editor::Known;
use super::prompt::Prompted;
use super::sessions::ReadBack;
use super::words::{Operand, REGION_COMMANDS, help, misunderstood};
use super::writers::{Acknowledged, COLOURS, WRITERS, Writers, is_a_writers};
use super::{Cluster, Demo, Ports, failed, flag, painted};
use crate::failure::Failure;
use ordinate_client::{FuzzyError, FuzzyLog, SnapshotId};
use reedline::Color;
use runtime::{Direction, LinkFault};
use server::cluster::keys::parse_duration;
use server::services::fuzzylog::{FuzzyStatus, OtherRegionStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Names of hosts: three for each region.
const HOSTS: [&str; 24] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
    "v", "w", "x",
];
const HOSTS_EACH: usize = 3;
/// More hosts than that are too many for one process.
const REGIONS_MAX: usize = HOSTS.len() / HOSTS_EACH;
/// From Ohio to Tokyo and back, in the paper.
const RTT: Duration = Duration::from_millis(168);
const RTT_MAX: Duration = Duration::from_secs(1);
const SERVING_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Regions that are joined agree in this time, or do not.
const JOINED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Nodes that are shown of a colour.
const SHOWN: usize = 10;

/// A time to the next region and back.
pub(super) fn rtt(text: &str) -> Result<Duration, String> {
    let rtt = parse_duration(text).ok_or_else(|| "wanted: a time as 168ms".to_owned())?;
    if rtt > RTT_MAX { Err("1s is the most".to_owned()) } else { Ok(rtt) }
}

/// One of them.
struct Region {
    name: String,
    hosts: Vec<&'static str>,
    /// The session of who sits at the prompt.
    log: FuzzyLog,
}

/// All of them.
pub(super) struct Regions {
    cluster: Cluster,
    regions: Vec<Region>,
    one_way: Duration,
    /// Regions whose links to others are cut.
    cut: BTreeSet<usize>,
    /// Other colours than those of the writers, which somebody has appended to here.
    colours: BTreeSet<String>,
    writers: Writers,
}

fn unfit(what: String) -> Failure {
    let remedy = format!("ordinate demo --regions ohio,tokyo  (two to {REGIONS_MAX} names)");
    Failure::input("O5004", "the demo cannot have these regions", what, remedy)
}

/// The names are those of a cluster file, and fit.
fn checked(names: &[String]) -> Result<(), Failure> {
    if names.len() < 2 || names.len() > REGIONS_MAX {
        return Err(unfit(format!("{} regions, and 2 to {REGIONS_MAX} are possible", names.len())));
    }
    let differ: BTreeSet<&String> = names.iter().collect();
    if differ.len() < names.len() {
        return Err(unfit("a region is named twice".to_owned()));
    }
    // What else a name must be is checked with the cluster file; this is what would make another file of it.
    match names.iter().find(|name| name.contains(['"', '\\', '\n'])) {
        Some(name) => Err(unfit(format!("{name:?} is no name for a region"))),
        None => Ok(()),
    }
}

impl Demo {
    /// The same for regions.
    pub(super) async fn serve_regions(&self, names: &[String]) -> Result<(), Failure> {
        let begun = Instant::now();
        checked(names)?;
        let _ = runtime::descriptors::raise_limit();
        let rtt = self.rtt.unwrap_or(RTT);
        println!(
            "ordinate {}  demo of {} regions, {HOSTS_EACH} hosts each, in this process, data gone on exit",
            env!("CARGO_PKG_VERSION"),
            names.len()
        );
        let mut regions = self.start_regions(names, rtt / 2)?;
        println!(
            "  hosts started          {:.2} s   {rtt:?} between regions and back",
            begun.elapsed().as_secs_f64()
        );
        let outcome = match regions.until_serving(&HOSTS[..HOSTS_EACH * names.len()]).await {
            Ok(()) => {
                println!("  all regions serve      {:.2} s", begun.elapsed().as_secs_f64());
                regions.print_addresses();
                regions.begin_to_write();
                super::prompt::prompt(&mut regions).await
            }
            Err(why) => Err(failed("a region does not serve", why)),
        };
        regions.writers.stop();
        regions.cluster.stop();
        outcome
    }

    fn start_regions(&self, names: &[String], one_way: Duration) -> Result<Regions, Failure> {
        let hosts = &HOSTS[..HOSTS_EACH * names.len()];
        let ports = Ports::free(self.port, hosts.len())?;
        let mut text = format!(
            "cluster = \"demo\"\n[durability]\nack = \"{}\"\n[fuzzylog]\npartitions = 2\n",
            self.durability
        );
        text += &ports.hosts_section(hosts);
        text += "[regions]\n";
        for (name, hosts) in names.iter().zip(hosts.chunks(HOSTS_EACH)) {
            text += &format!("\"{name}\" = \"{}\"\n", hosts.join(","));
        }
        let cluster = Cluster::begin(&text, hosts, &ports, &BTreeMap::new(), |error| {
            unfit(format!("{}; {}", error.what, error.help))
        })?;
        let region = |(name, hosts): (&String, &[&'static str])| {
            let natives = hosts.iter().map(|host| format!("127.0.0.1:{}", cluster.members[host].native));
            let log = FuzzyLog::connect(natives).with_timeout(ANSWER_WITHIN);
            Region { name: name.clone(), hosts: hosts.to_vec(), log }
        };
        let regions: Vec<Region> = names.iter().zip(hosts.chunks(HOSTS_EACH)).map(region).collect();
        let (cut, colours, writers) = (BTreeSet::new(), BTreeSet::new(), Writers::start(&[]));
        let regions = Regions { cluster, regions, one_way, cut, colours, writers };
        regions.set_links();
        Ok(regions)
    }
}

impl Regions {
    fn begin_to_write(&mut self) {
        let of = |region: &Region| (region.name.clone(), region.log.clone());
        self.writers = Writers::start(&self.regions.iter().map(of).collect::<Vec<_>>());
    }

    fn print_addresses(&self) {
        println!();
        for region in &self.regions {
            let admin = self.cluster.members[region.hosts[0]].admin;
            println!(
                "  {:<8}{}   http://127.0.0.1:{admin}   ordinate fuzzylog sync red{}",
                region.name,
                region.hosts.join(" "),
                flag("--admin", admin, super::ADMIN_PORT)
            );
        }
        let (one, other) = (&self.regions[0].name, &self.regions[1].name);
        println!();
        println!("  {WRITERS} writers in each region append to {}", COLOURS.join(", "));
        println!();
        println!(
            "  Try:  append {one} mine hello     sync {other} mine     cut     heal     verdict     help"
        );
    }

    fn region(&self, name: &str) -> Result<usize, String> {
        let names: Vec<&str> = self.regions.iter().map(|region| region.name.as_str()).collect();
        let found = names.iter().position(|known| *known == name);
        found.ok_or_else(|| format!("no region {name}; there are: {}", names.join(" ")))
    }

    /// A region's hosts, or one host.
    fn hosts_at(&self, place: &str) -> Result<Vec<&'static str>, String> {
        if let Some(host) = self.cluster.members.keys().find(|host| **host == place) {
            return Ok(vec![*host]);
        }
        self.region(place).map(|index| self.regions[index].hosts.clone())
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&one) || self.cut.contains(&other)
    }

    /// Links between regions are slow, or cut, by the ends that run.
    fn set_links(&self) {
        for (one, region) in self.regions.iter().enumerate() {
            let running = |host: &&str| self.cluster.members.get(*host).and_then(|it| it.running.as_ref());
            for host in region.hosts.iter().filter_map(running) {
                for (other, elsewhere) in self.regions.iter().enumerate().filter(|(other, _)| *other != one) {
                    for peer in elsewhere.hosts.iter().map(|name| kernel::HostId::named(name)) {
                        host.host.handle().fault(peer, LinkFault::Delay(self.one_way));
                        for direction in [Direction::To, Direction::From] {
                            let is_cut = self.is_cut(one, other);
                            let fault =
                                if is_cut { LinkFault::Sever(direction) } else { LinkFault::Heal(direction) };
                            host.host.handle().fault(peer, fault);
                        }
                    }
                }
            }
        }
        self.writers.set_cut(!self.cut.is_empty());
    }

    async fn until_serving(&self, hosts: &[&str]) -> Result<(), String> {
        let deadline = Instant::now() + SERVING_WITHIN;
        loop {
            let statuses = self.cluster.statuses().await;
            let waits =
                statuses.into_iter().filter(|(name, _)| hosts.contains(name)).find_map(|(name, status)| {
                    let why = status.map_or(Some("it does not run".to_owned()), |it| it.not_serving);
                    why.map(|why| format!("{name}: {why}"))
                });
            match waits {
                None => return Ok(()),
                Some(why) if Instant::now() >= deadline => return Err(why),
                Some(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn append(&mut self, region: &str, colour: &str, text: &str) -> Result<(), String> {
        let region = self.region(region)?;
        if is_a_writers(text) {
            return Err(format!("{text:?} is what a writer appends: another text"));
        }
        let begun = Instant::now();
        let appended = self.regions[region].log.append(&[colour], text.to_owned()).await.map_err(in_words)?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        self.colours.insert(colour.to_owned());
        for (colour, position) in appended.positions {
            println!("  node {position} of {colour}, after {took:.1} ms");
            let body = text.to_owned();
            self.writers.acknowledge(Acknowledged { region, colour, position, body });
        }
        Ok(())
    }

    /// The bodies of a colour in the order of a region, read by a session that has seen nothing.
    async fn read(&self, region: usize, colour: &str) -> Result<(Vec<String>, ReadBack), String> {
        let session = self.regions[region].log.session();
        let mut instance = session.new_instance(colour, None).map_err(in_words)?;
        let (mut bodies, mut read) = (Vec::new(), ReadBack::default());
        let play = |node: &ordinate_client::FuzzyNode| {
            bodies.push(String::from_utf8_lossy(&node.body).into_owned());
            read.take(node);
        };
        let played = instance.sync(play).await;
        played.map_err(|error| format!("{}: {}", self.regions[region].name, in_words(error)))?;
        Ok((bodies, read))
    }

    async fn show(&self, region: &str, colour: &str) -> Result<(), String> {
        let (bodies, _) = self.read(self.region(region)?, colour).await?;
        let before = bodies.len().saturating_sub(SHOWN);
        println!("  nodes {}", bodies.len());
        for (position, body) in bodies.iter().enumerate().skip(before) {
            println!("  {position:>6}  {body}");
        }
        Ok(())
    }

    async fn print_regions(&self) {
        let statuses: BTreeMap<&str, _> = self.cluster.statuses().await.into_iter().collect();
        for region in &self.regions {
            let mut others: BTreeMap<String, (Option<u64>, usize)> = BTreeMap::new();
            let (mut hosts, mut heads) = (Vec::new(), 0);
            for host in &region.hosts {
                let Some(Some(status)) = statuses.get(host) else {
                    hosts.push(format!("({host} stopped)"));
                    continue;
                };
                hosts.push((*host).to_owned());
                let fuzzy = status.services.get::<FuzzyStatus>().and_then(|it| it.regions.as_ref());
                for (name, other) in fuzzy.into_iter().flat_map(|it| &it.others) {
                    let OtherRegionStatus { copied, lacks, .. } = other;
                    heads += copied.len();
                    let entry = others.entry(name.clone()).or_default();
                    entry.0 = entry.0.max(copied.iter().filter_map(|it| it.heard_ms_ago).max());
                    entry.1 += lacks.values().sum::<usize>();
                }
            }
            println!("  {:<8}{}", region.name, hosts.join(" "));
            for (name, (heard, lacks)) in others.iter().filter(|_| heads > 0) {
                let heard = heard.map_or("never heard".to_owned(), |heard| format!("heard {heard} ms ago"));
                println!("    {name}: {heard}; it lacks nodes {lacks}");
            }
        }
    }

    fn cut(&mut self, names: &[&str]) -> Result<(), String> {
        match names {
            [] => self.cut.extend(0..self.regions.len()),
            names => {
                for name in names {
                    let region = self.region(name)?;
                    self.cut.insert(region);
                }
            }
        }
        self.set_links();
        println!("  cut: {} alone", self.names_of(self.cut.iter().copied()));
        Ok(())
    }

    fn names_of(&self, regions: impl Iterator<Item = usize>) -> String {
        regions.map(|region| self.regions[region].name.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Links are sound again; how long it takes until each region has what the others had until then.
    async fn heal(&mut self) -> Result<(), String> {
        let mut had: Vec<(usize, SnapshotId)> = Vec::new();
        for (index, region) in self.regions.iter().enumerate() {
            let session = region.log.session();
            if let Ok(snapshot) = session.snapshot(&COLOURS).await
                && let Ok(named) = session.named(&snapshot).await
            {
                had.push((index, named));
            }
        }
        self.cut.clear();
        self.set_links();
        let begun = Instant::now();
        for (index, region) in self.regions.iter().enumerate() {
            let log = region.log.session().with_timeout(JOINED_WITHIN);
            for (other, snapshot) in had.iter().filter(|(other, _)| *other != index) {
                let there = &self.regions[*other].name;
                match log.await_snapshot(snapshot, JOINED_WITHIN).await {
                    Ok(_) => {
                        let took = begun.elapsed().as_secs_f64();
                        println!("  {} has all that {there} had, after {took:.2} s", region.name);
                    }
                    Err(why) => return Err(format!("{} has not all that {there} had: {why}", region.name)),
                }
            }
        }
        for (index, region) in self.regions.iter().enumerate() {
            if had.iter().all(|(other, _)| *other != index) {
                println!("  {} did not say what it has", region.name);
            }
        }
        Ok(())
    }

    async fn fault(&mut self, fault: &str, place: &str) -> Result<(), String> {
        let hosts = self.hosts_at(place)?;
        for &host in &hosts {
            self.cluster.strike(fault, host)?;
        }
        self.set_links();
        if fault == "restart" {
            let begun = Instant::now();
            self.until_serving(&hosts).await?;
            println!("  {place} serves after {:.2} s", begun.elapsed().as_secs_f64());
        } else {
            println!("  {place} stopped");
        }
        Ok(())
    }

    /// What the writers' histories say, and what is in the regions.
    async fn verdict(&mut self) -> Result<Option<String>, String> {
        let rest = self.writers.rest().await;
        let named = COLOURS.iter().map(|colour| (*colour).to_owned());
        let colours: BTreeSet<String> = named.chain(self.colours.iter().cloned()).collect();
        let mut bodies = self.read_all(&colours).await?;
        let begun = Instant::now();
        let mut differs = differing(&bodies);
        while differs.is_some() && self.cut.is_empty() && begun.elapsed() < JOINED_WITHIN {
            tokio::time::sleep(LOOK_EVERY).await;
            bodies = self.read_all(&colours).await?;
            differs = differing(&bodies);
        }
        for read in &bodies {
            for colour in COLOURS {
                if let Some((_, read)) = read.get(colour) {
                    self.writers.has_read(colour, read);
                }
            }
        }
        let lost = self.writers.acknowledged().into_iter().find(|it| {
            let there = bodies[it.region].get(&it.colour).and_then(|(all, _)| all.get(it.position as usize));
            there != Some(&it.body)
        });
        let lost = lost.map(|it| format!("{:?} is not at {} of {}", it.body, it.position, it.colour));
        let (operations, violation) = self.writers.judge();
        drop(rest);
        for (index, region) in self.regions.iter().enumerate() {
            self.writers.print_calls(index, &region.name);
        }
        let is_joined = self.cut.is_empty();
        let unequal = differs.filter(|_| is_joined).map(|colour| format!("{colour} differs between regions"));
        let violation = lost.or(violation).or(unequal);
        match &violation {
            None => {
                let sound = "acknowledged lost: 0, none twice; each behind what its writer had seen";
                println!("  {} (checked: {operations} operations)", painted(Color::Green, sound));
                let nodes: usize = bodies.first().map_or(0, |it| it.values().map(|(all, _)| all.len()).sum());
                match is_joined {
                    true => println!("  all regions equal: nodes {nodes} of {}", colours_in_words(&colours)),
                    false => println!("  what one has of another is not compared while there is a cut"),
                }
            }
            Some(why) => println!("  {} {why}", painted(Color::Red, "NOT WHAT IT IS TO BE:")),
        }
        Ok(violation)
    }

    async fn read_all(&self, colours: &BTreeSet<String>) -> Result<Vec<Bodies>, String> {
        let mut all = Vec::new();
        for region in 0..self.regions.len() {
            let mut bodies = Bodies::new();
            for colour in colours {
                bodies.insert(colour.clone(), self.read(region, colour).await?);
            }
            all.push(bodies);
        }
        Ok(all)
    }
}

/// By colour.
type Bodies = BTreeMap<String, (Vec<String>, ReadBack)>;

/// A colour whose nodes are not the same in all regions; their order may differ.
fn differing(regions: &[Bodies]) -> Option<String> {
    let sorted = |bodies: &Bodies, colour: &str| {
        let mut all = bodies.get(colour).map(|(all, _)| all.clone()).unwrap_or_default();
        all.sort_unstable();
        all
    };
    let (first, others) = regions.split_first()?;
    let differs =
        |colour: &&String| others.iter().any(|other| sorted(other, colour) != sorted(first, colour));
    first.keys().find(differs).cloned()
}

fn colours_in_words(colours: &BTreeSet<String>) -> String {
    colours.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// How long nothing is asked; the prompt waits for it.
fn pause(text: &str) -> Result<Duration, String> {
    let pause = parse_duration(text).filter(|pause| *pause <= PAUSE_MAX);
    pause.ok_or_else(|| format!("{text} is no time up to 60s; wanted: wait 3s"))
}

fn in_words(error: FuzzyError) -> String {
    error.to_string()
}

impl Prompted for Regions {
    fn known(&self) -> Known {
        let regions: Vec<String> = self.regions.iter().map(|region| region.name.clone()).collect();
        let hosts = self.cluster.members.keys().map(|host| (*host).to_owned());
        let places = regions.iter().cloned().chain(hosts).collect();
        let operands = vec![(Operand::Region, regions), (Operand::Place, places)];
        Known { commands: &REGION_COMMANDS, operands, client: self.cluster.client.clone() }
    }

    async fn obey(&mut self, words: &[&str]) -> Result<Option<String>, String> {
        match words {
            ["help"] => print!("{}", help(&REGION_COMMANDS)),
            ["append", region, colour, text @ ..] if !text.is_empty() => {
                self.append(region, colour, &text.join(" ")).await?;
            }
            ["sync", region, colour] => self.show(region, colour).await?,
            ["regions"] => self.print_regions().await,
            ["cut", names @ ..] if names.len() < 2 => self.cut(names)?,
            ["heal"] => self.heal().await?,
            [fault @ ("kill" | "restart"), place] => self.fault(fault, place).await?,
            ["wait", time] => tokio::time::sleep(pause(time)?).await,
            ["verdict"] => return self.verdict().await,
            words => return Err(misunderstood(&REGION_COMMANDS, words)),
        }
        Ok(None)
    }
}
