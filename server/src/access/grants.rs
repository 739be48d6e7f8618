//! What may be granted: rights, in an area, on names that a pattern describes.

use std::fmt;

/// What somebody wants to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// See what is there.
    Read,
    /// Change what is there.
    Write,
    /// Make and drop logs, and change the cluster.
    Manage,
}

/// Where. Each is a service's, but for the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// Keys of the key-value service.
    Kv,
    /// Keys of the transaction service.
    Txn,
    /// Logs, and Kafka's topics, which are logs.
    Log,
    /// Colours of the partially ordered log.
    Fuzzylog,
    /// Groups of readers.
    Group,
    /// Spaces of the sequence.
    Sequence,
    /// Znodes.
    Coordination,
    /// What operators see and do: status, metrics, members.
    Cluster,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Manage];

    /// As grants have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Manage => "manage",
        }
    }
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Kv,
        Self::Txn,
        Self::Log,
        Self::Fuzzylog,
        Self::Group,
        Self::Sequence,
        Self::Coordination,
        Self::Cluster,
    ];

    /// As grants have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Txn => "txn",
            Self::Log => "log",
            Self::Fuzzylog => "fuzzylog",
            Self::Group => "group",
            Self::Sequence => "sequence",
            Self::Coordination => "coordination",
            Self::Cluster => "cluster",
        }
    }
}

/// What is concerned: a name, or all names of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeededNames<'a> {
    /// This one: a key, a log, a group, a space, the path of a znode.
    One(&'a [u8]),
    /// Those from `start` on and below `end`; to the last one where there is no end.
    Range {
        /// The first that may be in it.
        start: &'a [u8],
        /// The first behind it.
        end: Option<&'a [u8]>,
    },
    /// All of the area: what concerns it as a whole.
    Whole,
    /// Some name of the area, whichever.
    Some,
}

/// What a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need<'a> {
    /// What is to be done.
    pub right: Right,
    /// Where.
    pub area: Area,
    /// To what.
    pub names: NeededNames<'a>,
}

impl<'a> Need<'a> {
    /// To do something to one name.
    pub const fn of(right: Right, area: Area, name: &'a [u8]) -> Self {
        Self { right, area, names: NeededNames::One(name) }
    }

    /// To do something to the area as a whole.
    pub const fn whole(right: Right, area: Area) -> Self {
        Self { right, area, names: NeededNames::Whole }
    }
}

/// Longer names are shortened where a need is shown.
const SHOWN_BYTES_MAX: usize = 100;

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |name: &[u8]| -> String {
            let text = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned();
            // A line of a log must stay one.
            text.chars().flat_map(char::escape_debug).collect()
        };
        write!(f, "{} {}", self.right.name(), self.area.name())?;
        match self.names {
            NeededNames::One(name) => write!(f, " {}", shown(name)),
            NeededNames::Range { start, end } => {
                write!(f, " from {:?} to {}", shown(start), end.map_or("the end".to_owned(), shown))
            }
            NeededNames::Whole => write!(f, " *"),
            NeededNames::Some => Ok(()),
        }
    }
}

/// Which names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    All,
    Prefix(Vec<u8>),
    Exact(Vec<u8>),
}

/// Some rights on some names of one area, or of all but the cluster's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    rights: Vec<Right>,
    area: Option<Area>,
    pattern: Pattern,
    text: String,
}

/// A grant that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is no grant: {why}")]
pub struct NoGrant {
    text: String,
    why: String,
}

impl Grant {
    /// Reads `RIGHTS AREA NAMES`, as in `read,write kv orders/*`.
    ///
    /// RIGHTS are `read`, `write`, `manage` between commas, or `all`. AREA is one of [`Area`], or `*` for all but `cluster`. NAMES is one
    /// name, or the beginning of names and `*`; of znodes, a path means what is below it as well.
    pub fn parse(text: &str) -> Result<Self, NoGrant> {
        let refused = |why: String| NoGrant { text: text.to_owned(), why };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [rights, area, names @ ..] = words.as_slice() else {
            return Err(refused("wanted: RIGHTS AREA NAMES, as in \"read,write kv orders/*\"".to_owned()));
        };
        let rights = match *rights {
            "all" => Right::ALL.to_vec(),
            some => some.split(',').map(right_of).collect::<Result<_, _>>().map_err(refused)?,
        };
        let area = match *area {
            "*" => None,
            name => Some(Area::ALL.into_iter().find(|area| area.name() == name).ok_or_else(|| {
                let known = Area::ALL.map(Area::name).join(", ");
                refused(format!("no area {name}; there are: {known}, and * for all but cluster"))
            })?),
        };
        let pattern = match (names, area) {
            ([], Some(Area::Cluster)) => Pattern::All,
            ([names], _) => Pattern::of(names),
            ([], _) => return Err(refused("it names nothing; * names all".to_owned())),
            _ => {
                return Err(refused(
                    "names with blanks are granted by what stands before the blank and *".to_owned(),
                ));
            }
        };
        let text = words.join(" ");
        Ok(Self { rights, area, pattern, text })
    }

    /// Whether it covers what is needed.
    pub fn covers(&self, need: &Need<'_>) -> bool {
        let in_area = match self.area {
            Some(area) => area == need.area,
            None => need.area != Area::Cluster,
        };
        let is_tree = need.area == Area::Coordination;
        in_area && self.rights.contains(&need.right) && self.pattern.covers(&need.names, is_tree)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn right_of(name: &str) -> Result<Right, String> {
    let found = Right::ALL.into_iter().find(|right| right.name() == name);
    found.ok_or_else(|| format!("no right {name:?}; there are: read, write, manage, all"))
}

impl Pattern {
    fn of(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::All,
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Exact(text.into()),
        }
    }

    fn covers(&self, names: &NeededNames<'_>, is_tree: bool) -> bool {
        match (self, names) {
            (Self::All, _) | (_, NeededNames::Some) => true,
            (Self::Prefix(prefix), NeededNames::One(name)) => name.starts_with(prefix),
            (Self::Prefix(prefix), NeededNames::Range { start, end: Some(end) }) => {
                start.starts_with(prefix) && after(prefix).is_none_or(|after| *end <= &after[..])
            }
            (Self::Exact(exact), NeededNames::One(name)) if is_tree => {
                let below = name.strip_prefix(&exact[..]);
                below.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || exact == b"/")
            }
            (Self::Exact(exact), NeededNames::One(name)) => name == exact,
            (Self::Exact(exact), NeededNames::Range { start, end: Some(end) }) => {
                start == exact && end.strip_suffix(&[0]) == Some(exact)
            }
            (Self::Prefix(_) | Self::Exact(_), NeededNames::Range { end: None, .. } | NeededNames::Whole) => {
                false
            }
        }
    }
}

/// The first name behind all that begin so; none if there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(grant: &str, right: Right, area: Area, names: NeededNames<'_>) -> bool {
        Grant::parse(grant).expect("it is one").covers(&Need { right, area, names })
    }

    // A pattern that covers one name too many gives somebody what is another's.
    #[test]
    fn a_grant_covers_its_names_and_no_other() {
        let kv =
            |grant: &str, name: &str| covers(grant, Right::Read, Area::Kv, NeededNames::One(name.as_bytes()));
        assert!(kv("read kv orders/*", "orders/7") && kv("all kv *", "x") && kv("read * x", "x"));
        assert!(!kv("read kv orders/*", "orders") && !kv("read kv orders", "orders/7"));
        assert!(!kv("write kv *", "x") && !kv("read txn *", "x") && !kv("read,write log *", "x"));
        let tree = |grant: &str, path: &str| {
            covers(grant, Right::Read, Area::Coordination, NeededNames::One(path.as_bytes()))
        };
        assert!(tree("read coordination /app", "/app") && tree("read coordination /app", "/app/a/b"));
        assert!(tree("read coordination /", "/app") && tree("read coordination *", "/"));
        assert!(!tree("read coordination /app", "/apple") && !tree("read coordination /app", "/"));
    }

    // All areas are those of data: an application that is given everything must not change the members.
    #[test]
    fn the_cluster_is_granted_by_name_only() {
        for right in Right::ALL {
            assert!(!covers("all * *", right, Area::Cluster, NeededNames::Whole));
            assert!(covers("all cluster", right, Area::Cluster, NeededNames::Whole));
        }
        assert!(!covers("read cluster *", Right::Manage, Area::Cluster, NeededNames::Whole));
    }

    // A scan that goes past the last key of a prefix shows the next tenant's first.
    #[test]
    fn a_range_stays_within_what_is_granted() {
        let scan = |grant: &str, start: &str, end: Option<&str>| {
            let names = NeededNames::Range { start: start.as_bytes(), end: end.map(str::as_bytes) };
            covers(grant, Right::Read, Area::Kv, names)
        };
        assert!(scan("read kv a/*", "a/", Some("a0")) && scan("read kv a/*", "a/3", Some("a/9")));
        assert!(!scan("read kv a/*", "a/", Some("a1")) && !scan("read kv a/*", "a/", None));
        assert!(!scan("read kv a/*", "a", Some("a/9")) && scan("read kv *", "", None));
        assert!(scan("read kv a", "a", Some("a\0")) && !scan("read kv a", "a", Some("b")));
        assert_eq!(after(&[7, 255]), Some(vec![8]));
        assert_eq!(after(&[255]), None);
    }

    // A grant with a typing error that is taken for another one is found when it is too late.
    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in
            ["", "read", "read kv", "see kv *", "read keys *", "read kv a b", "read,  kv *", "read, kv *"]
        {
            assert!(Grant::parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Grant::parse(" read   kv  x ").expect("it is one").to_string(), "read kv x");
    }
}
