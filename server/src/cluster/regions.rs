//! The regions of a cluster file: hosts that are far from those of the others, and serve when they are cut from them.
//!
//! A host sees its own region as its cluster: its hosts decide on members, and have chains and directors. What it has of the others is
//! where they are, and what their partitions hand out.

use super::keys;
use super::placement::{BootstrapPlacement, PlacedRole};
use super::values::{FileError, HOST_NAME_RULE, HostLine, Values, is_host_name};
use kernel::HostId;

/// The most regions of a cluster.
pub const REGIONS_MAX: usize = 16;
/// Numbers of regions are from 1 to here: so many fit beside a partition's number in a time that users have.
const NUMBER_MAX: u32 = 1_023;

/// A line of `[regions]`.
#[derive(Clone, Debug)]
pub(super) struct RegionLine {
    name: String,
    hosts: Vec<String>,
    line: usize,
}

/// A region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Its number, which follows from the name: the same on all hosts, and as long as the cluster exists.
    pub number: u32,
    /// Its hosts, in the order of their names.
    pub hosts: Vec<HostLine>,
    /// Who plays which role of its members' log at the bootstrap.
    pub(super) placement: BootstrapPlacement,
}

/// A region that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedRegion {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
}

impl RegionLine {
    pub(super) fn read(
        table: &toml::de::DeTable<'_>,
        line_of: &impl Fn(usize) -> usize,
    ) -> Result<Vec<Self>, FileError> {
        let mut lines = Vec::new();
        for (name, hosts) in table {
            let line = line_of(name.span().start);
            let name = name.get_ref().to_string();
            if !is_host_name(&name) {
                let what = format!("\"{name}\" is no name for a region");
                return Err(FileError::new(line, what, HOST_NAME_RULE.replace("host", "region")));
            }
            let toml::de::DeValue::String(hosts) = hosts.get_ref() else {
                let help = format!("write  {name} = \"a,b,c\", with names of [hosts]");
                return Err(FileError::new(line, format!("region {name} has no hosts"), help));
            };
            let hosts = hosts.split(',').map(|host| host.trim().to_owned()).collect();
            lines.push(Self { name, hosts, line });
        }
        lines.sort_by_key(|it| it.line);
        Ok(lines)
    }
}

/// A number that follows from a name.
pub(super) fn number_of(name: &str) -> u32 {
    let HostId(bits) = HostId::named(name);
    1 + bits % NUMBER_MAX
}

/// The regions of a file, in the order of their names; none without the section. Every host is in one of them.
pub(super) fn checked(
    lines: &[RegionLine],
    hosts: &[HostLine],
    placed: &[PlacedRole],
    faults: Option<u64>,
) -> Result<Vec<Region>, FileError> {
    let Some(first) = lines.first() else { return Ok(Vec::new()) };
    if lines.len() > REGIONS_MAX {
        let what = format!("{} regions", lines.len());
        return Err(FileError::new(first.line, what, format!("{REGIONS_MAX} are the most")));
    }
    if !placed.is_empty() {
        let help = "without [[place]] every host of a region plays every role";
        return Err(FileError::new(first.line, "[[place]] does not go with [regions]", help));
    }
    let mut regions: Vec<Region> = Vec::new();
    for line in lines {
        let number = number_of(&line.name);
        if let Some(other) = regions.iter().find(|it| it.number == number) {
            let what = format!("regions {} and {} have the same number", other.name, line.name);
            return Err(FileError::new(line.line, what, "rename one of them"));
        }
        let hosts = hosts_of(line, hosts, &regions)?;
        let at_line = |error: FileError| FileError { line: Some(line.line), ..error };
        let placement = BootstrapPlacement::new(&hosts, &[], faults).map_err(at_line)?;
        regions.push(Region { name: line.name.clone(), number, hosts, placement });
    }
    let is_in_one =
        |host: &&HostLine| regions.iter().any(|it| it.hosts.iter().any(|one| one.name == host.name));
    if let Some(host) = hosts.iter().find(|host| !is_in_one(host)) {
        let what = format!("host {} is in no region", host.name);
        return Err(FileError::new(first.line, what, "add it to a line of [regions]"));
    }
    regions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(regions)
}

fn hosts_of(line: &RegionLine, hosts: &[HostLine], before: &[Region]) -> Result<Vec<HostLine>, FileError> {
    let mut own: Vec<HostLine> = Vec::new();
    for name in &line.hosts {
        let Some(host) = hosts.iter().find(|host| host.name == *name) else {
            let near = keys::nearest(name, hosts.iter().map(|host| host.name.as_str()));
            let help =
                near.map_or_else(|| "add it to [hosts]".to_owned(), |near| format!("did you mean {near}?"));
            let what = if name.is_empty() {
                format!("region {} has a host without a name", line.name)
            } else {
                format!("region {} has the unknown host {name}", line.name)
            };
            return Err(FileError::new(line.line, what, help));
        };
        let other = before.iter().find(|it| it.hosts.contains(host)).map(|it| it.name.as_str());
        if let Some(other) = other.or_else(|| own.contains(host).then_some(line.name.as_str())) {
            let what = if other == line.name {
                format!("host {name} is in region {other} twice")
            } else {
                format!("host {name} is in regions {other} and {}", line.name)
            };
            return Err(FileError::new(line.line, what, "each host is in one region"));
        }
        own.push(host.clone());
    }
    own.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(own)
}

/// Calls `check` with the values as each region has them; without regions, as the file has them.
pub(super) fn each_region<T>(
    regions: &[Region],
    values: &mut Values<'_>,
    mut check: impl FnMut(&Values<'_>) -> Result<T, FileError>,
) -> Result<T, FileError> {
    let all = values.hosts;
    for region in regions {
        values.hosts = region.hosts.len();
        let of_region =
            |error: FileError| FileError { what: format!("region {}: {}", region.name, error.what), ..error };
        check(values).map_err(of_region)?;
    }
    values.hosts = all;
    check(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterFile;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn parsed(regions: &str, more: &str) -> Result<ClusterFile, FileError> {
        let hosts: String = ["a", "b", "c", "d", "e", "f"].map(|it| format!("{it} = \"{it}:1\"\n")).concat();
        let text = format!("cluster = \"c\"\n{more}\n[hosts]\n{hosts}[regions]\n{regions}");
        ClusterFile::parse(&text, Path::new("."), &Overrides::default())
    }

    const TWO: &str = "tokyo = \"d, f,e\"\nohio = \"a,b,c\"\n";
    const COLOURS: &str = "[fuzzylog]\npartitions = 2\n";

    // A host that counts another region's hosts waits for them when it is cut from them.
    #[test]
    fn a_host_sees_its_own_region_as_its_cluster() {
        let file = parsed(TWO, COLOURS).expect("it is sound");
        assert_eq!(file.hosts.len(), 6);
        let names = |hosts: &[HostLine]| hosts.iter().map(|it| it.name.clone()).collect::<String>();
        let seen = file.clone().seen_from("e");
        assert_eq!((names(&seen.hosts), names(&seen.elsewhere)), ("def".to_owned(), "abc".to_owned()));
        assert_eq!(seen.placement.configuration().acceptors.faults(), 1);
        assert_eq!(seen.placement.configuration().hosts.len(), 3);
        let (own, others) = seen.own_and_other_regions().expect("there are two");
        assert_eq!((own.name.as_str(), others.map(|it| it.name.as_str()).collect()), ("tokyo", vec!["ohio"]));
        assert_eq!(seen.identity(), "c of regions");
        assert_eq!(seen.identity(), file.seen_from("a").identity());
    }

    // A cluster that may get regions later has to begin with one; one whose second region was removed has one left.
    #[test]
    fn one_region_is_enough() {
        let seen = parsed("ohio = \"a,b,c,d,e,f\"\n", COLOURS).expect("it is sound").seen_from("a");
        let (own, others) = seen.own_and_other_regions().expect("it has a name");
        assert_eq!((own.name.as_str(), others.count(), seen.hosts.len()), ("ohio", 0, 6));
        assert_eq!(seen.identity(), "c of regions");
    }

    // Numbers that change make what other regions have copied a stranger's.
    #[test]
    fn numbers_follow_from_names() {
        let file = parsed(TWO, COLOURS).expect("it is sound");
        let numbers: Vec<u32> = file.regions.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [number_of("ohio"), number_of("tokyo")]);
        assert!(numbers.iter().all(|it| (1..=NUMBER_MAX).contains(it)), "{numbers:?}");
    }

    // What is taken for something else runs with chains that span regions, or with a host that is in none.
    #[test]
    fn what_makes_no_sense_is_named() {
        let on = |regions: &str| parsed(regions, COLOURS).expect_err("it makes no sense");
        let unknown = on("ohio = \"a,bb,c\"\ntokyo = \"d,e,f\"\n");
        assert_eq!(
            (unknown.what.as_str(), unknown.help.as_str()),
            ("region ohio has the unknown host bb", "did you mean b?")
        );
        assert_eq!(unknown.line, Some(13));
        for (regions, what) in [
            ("ohio = \"a,b,c\"\ntokyo = \"c,d,e,f\"\n", "host c is in regions ohio and tokyo"),
            ("ohio = \"a,b,b,c\"\ntokyo = \"d,e,f\"\n", "host b is in region ohio twice"),
            ("ohio = \"a,b\"\ntokyo = \"d,e,f\"\n", "host c is in no region"),
            ("ohio = \"\"\ntokyo = \"d,e,f\"\n", "region ohio has a host without a name"),
            ("\"o hio\" = \"a,b,c\"\ntokyo = \"d,e,f\"\n", "\"o hio\" is no name for a region"),
            ("ohio = 3\ntokyo = \"d,e,f\"\n", "region ohio has no hosts"),
        ] {
            assert_eq!(on(regions).what, what);
        }
        let few =
            parsed("ohio = \"a,b,c,d,e\"\ntokyo = \"f\"\n", "[fuzzylog]\npartitions = 2\nreplicas_min = 2\n");
        let few = few.expect_err("one host is fewer than two");
        assert!(few.what.starts_with("region tokyo: fuzzylog.replicas_min is 2"), "{}", few.what);
        let with_log = parsed(TWO, "[fuzzylog]\npartitions = 2\n[log]\nspaces = 2\n").expect_err("it is on");
        assert!(with_log.what.contains("log"), "{}", with_log.what);
        let without = parsed(TWO, "").expect_err("nothing is on");
        assert!(without.what.contains("fuzzylog"), "{}", without.what);
        let placed = format!("{TWO}[[place]]\nrole = \"paxos.acceptor\"\non = [\"a\"]\n");
        assert_eq!(
            parsed(&placed, COLOURS).expect_err("placed").what,
            "[[place]] does not go with [regions]"
        );
    }
}
