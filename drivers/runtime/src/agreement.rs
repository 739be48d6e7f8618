//! Settings that all hosts of a cluster must have alike. A host that is started with others would decide differently from
//! the rest, and nobody would notice before their data differ; so hosts compare when they greet each other, and a host
//! compares with what its data were made with.

use std::collections::BTreeMap;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    value: String,
    fixed: bool,
}

/// What a host has, by name. A setting that one side has not, of a service that it does not offer, is no difference.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Agreement(BTreeMap<String, Setting>);

impl Agreement {
    /// Adds a setting. `fixed`: its data cannot be used with another value. Names and values are short, of one line.
    pub fn add(&mut self, name: &str, value: &str, fixed: bool) {
        let value = value.escape_default().to_string();
        self.0.insert(name.to_owned(), Setting { value, fixed });
    }

    /// Names and values, as they are sent.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
    }

    /// Names and values of those that are for run.
    pub(crate) fn fixed(&self) -> BTreeMap<String, String> {
        let mut values = self.values();
        values.retain(|name, _| self.0[name].fixed);
        values
    }
}

/// Every setting that two sides have and not alike, in words; `None` if they agree.
pub(crate) fn difference(
    (mine, ours): (&str, &BTreeMap<String, String>),
    (other, theirs): (&str, &BTreeMap<String, String>),
) -> Option<String> {
    let reported: Vec<String> = ours
        .iter()
        .filter_map(|(name, value)| Some((name, value, theirs.get(name)?)))
        .filter(|(_, value, their)| value != their)
        .map(|(name, value, their)| format!("{name} is \"{value}\" {mine} and \"{their}\" {other}"))
        .collect();
    (!reported.is_empty()).then(|| reported.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_and_absence_is_none() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let ours = map(&[("levels", "2"), ("shards", "4"), ("ours", "1")]);
        let notify = |theirs: &[(&str, &str)]| difference(("at a", &ours), ("at b", &map(theirs)));
        assert_eq!(notify(&[("levels", "2"), ("theirs", "1")]), None);
        assert_eq!(
            notify(&[("levels", "3"), ("shards", "4")]).as_deref(),
            Some("levels is \"2\" at a and \"3\" at b")
        );
        let both = "levels is \"2\" at a and \"\" at b; shards is \"4\" at a and \"8\" at b";
        assert_eq!(notify(&[("levels", ""), ("shards", "8")]).as_deref(), Some(both));
    }
}
