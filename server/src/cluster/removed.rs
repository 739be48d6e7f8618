//! What the data of a host say of regions: those that were in its cluster file before, and are not any more.
//!
//! The data folder has the region of each host that was ever in the file (`region.HOST`), and each region that was removed
//! (`removed_region.NAME`). Whether a partition has removed it is in its row.

use super::description::ClusterFile;
use super::regions::{Region, RemovedRegion, number_of};
use super::values::HostLine;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Before a host's name: the setting that says of which region it is.
pub(super) const REGION_OF: &str = "region.";
const REMOVED_REGION: &str = "removed_region.";
/// What is said of a region that was removed.
pub(super) const REMOVED: &str = "yes";

/// The setting that says that a region was removed.
pub(super) fn removed_setting(region: &str) -> String {
    format!("{REMOVED_REGION}{region}")
}

/// Why data do not go with the regions of a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionsError {
    /// The data were made without regions.
    #[error("{} was made without [regions]", .0.display())]
    MadeWithout(PathBuf),
    /// The data were made with regions, and the file has none.
    #[error("{} was made with [regions], and the file has none", .0.display())]
    MadeWith(PathBuf),
    /// A region of the file, of other hosts, has the name or the number of one that was removed.
    #[error("region {name} has the number {number}, as {removed} has, another region that was removed")]
    Removed {
        /// The region of the file.
        name: String,
        /// Its number.
        number: u32,
        /// The one that was removed.
        removed: String,
    },
}

impl ClusterFile {
    /// The file as a host sees it whose data folder is of this cluster, and was made with these settings.
    pub fn with_data_of(
        mut self,
        folder: PathBuf,
        cluster: &str,
        made_with: &BTreeMap<String, String>,
    ) -> Result<Self, RegionsError> {
        let has_regions = !self.regions.is_empty();
        if has_regions && cluster == self.cluster {
            return Err(RegionsError::MadeWithout(folder));
        }
        if !has_regions && cluster == self.identity_with_regions() {
            return Err(RegionsError::MadeWith(folder));
        }
        let of_file = |name: &str| self.regions.iter().any(|it| it.name == name);
        let known = made_with.iter().filter(|(setting, _)| setting.starts_with(REGION_OF));
        let known = known.map(|(_, name)| name.as_str()).filter(|name| !of_file(name));
        let removed = made_with.keys().filter_map(|setting| setting.strip_prefix(REMOVED_REGION));
        let mut names: Vec<&str> = known.chain(removed).collect();
        names.sort_unstable();
        names.dedup();
        // A file that lacks a region by mistake is mended: it is the same region that has a host of before.
        let is_same = |region: &Region| {
            let of = |host: &HostLine| made_with.get(&format!("{REGION_OF}{}", host.name));
            region.hosts.iter().any(|host| of(host) == Some(&region.name))
        };
        names.retain(|name| !self.regions.iter().any(|it| it.name == *name && is_same(it)));
        let region = |name: &str| RemovedRegion { name: name.to_owned(), number: number_of(name) };
        let removed: Vec<RemovedRegion> = names.into_iter().map(region).collect();
        for region in &self.regions {
            if let Some(other) = removed.iter().find(|it| it.number == region.number) {
                let (name, number, removed) = (region.name.clone(), region.number, other.name.clone());
                return Err(RegionsError::Removed { name, number, removed });
            }
        }
        self.removed = removed;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn file(regions: &str) -> ClusterFile {
        let text = format!(
            "cluster = \"c\"\n[fuzzylog]\npartitions = 1\n[hosts]\na = \"a:1\"\nb = \"b:1\"\n{regions}"
        );
        ClusterFile::parse(&text, Path::new("."), &Overrides::default()).expect("it is sound")
    }

    fn seen(
        file: ClusterFile,
        cluster: &str,
        settings: &[(&str, &str)],
    ) -> Result<ClusterFile, RegionsError> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        file.with_data_of(PathBuf::from("d"), cluster, &settings.collect())
    }

    const BOTH: &str = "[regions]\nohio = \"a\"\ntokyo = \"b\"\n";

    // Who forgets that there was a region waits for it for good, or takes another one for it.
    #[test]
    fn what_the_data_know_and_the_file_does_not_is_removed() {
        let data =
            [("region.a", "ohio"), ("region.b", "tokyo"), ("region.z", "paris"), ("paxos.window", "9")];
        let now = seen(file(BOTH).seen_from("a"), "c of regions", &data).expect("it is sound");
        let paris = RemovedRegion { name: "paris".to_owned(), number: number_of("paris") };
        assert_eq!(now.removed, std::slice::from_ref(&paris));
        // It is in the data from then on, even if they are asked for it by nothing else.
        let later =
            seen(file(BOTH), "c of regions", &[("removed_region.paris", "yes")]).expect("it is sound");
        assert_eq!(later.removed, [paris]);
        assert_eq!(seen(file(BOTH), "c of regions", &data[..2]).expect("it is sound").removed, []);
    }

    // A log that begins anew under a name of before is mixed with the other one's.
    #[test]
    fn a_region_that_was_removed_does_not_come_back() {
        let removed = seen(file(BOTH), "c of regions", &[("removed_region.tokyo", "yes")]);
        let (name, number) = ("tokyo".to_owned(), number_of("tokyo"));
        assert_eq!(removed.err(), Some(RegionsError::Removed { removed: name.clone(), name, number }));
        // A file in which it was missing by mistake is mended.
        let mended = [("removed_region.tokyo", "yes"), ("region.b", "tokyo")];
        assert_eq!(seen(file(BOTH), "c of regions", &mended).expect("it is the same").removed, []);
        // Another name with the same number.
        let twin = (0..).map(|it| format!("r{it}")).find(|it| number_of(it) == number).expect("one of many");
        let setting = removed_setting(&twin);
        let removed = seen(file(BOTH), "c of regions", &[(&setting, "yes")]);
        assert_eq!(
            removed.err(),
            Some(RegionsError::Removed { name: "tokyo".to_owned(), number, removed: twin })
        );
    }

    // Data of a cluster whose chains and members span what are two regions now are mixed with theirs.
    #[test]
    fn data_with_and_without_regions_do_not_mix() {
        let folder = || PathBuf::from("d");
        assert_eq!(seen(file(BOTH), "c", &[]).err(), Some(RegionsError::MadeWithout(folder())));
        assert_eq!(seen(file(""), "c of regions", &[]).err(), Some(RegionsError::MadeWith(folder())));
        assert!(seen(file(""), "c", &[]).is_ok());
        assert!(seen(file(BOTH), "another", &[]).is_ok(), "that is said of the whole folder");
    }
}
