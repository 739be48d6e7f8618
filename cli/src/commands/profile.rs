//! Profiles: what all calls of one cluster have in common, in a file of the user's. What a flag or the environment says comes first.

use crate::failure::Failure;
use clap::Command;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The profile that is used when none is named, if the file has it.
const DEFAULT: &str = "default";
/// Names it.
const VARIABLE: &str = "ORDINATE_PROFILE";
const FLAG: &str = "--profile";
/// These start hosts of their own unless they are given a cluster: a profile must not aim a load at one that is in use.
const WITHOUT: [&str; 3] = ["bench", "demo", "serve"];

/// The file: a table for each profile.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    #[serde(default)]
    profile: BTreeMap<String, Profile>,
}

/// What a profile may say.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    /// Native addresses of the cluster.
    #[serde(default)]
    endpoints: Vec<String>,
    /// Admin addresses of hosts; the first where a verb asks one.
    #[serde(default)]
    admin: Vec<String>,
    /// Addresses of ZooKeeper's protocol.
    #[serde(default)]
    zookeeper: Vec<String>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    /// A file whose first line is a token.
    token_file: Option<PathBuf>,
}

/// Where the file is: `ordinate/profiles.toml` below `$XDG_CONFIG_HOME`, or else below `~/.config`.
pub fn path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("ordinate/profiles.toml"))
}

/// The profile that the command line or the environment names.
fn named(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let mut arguments = arguments.map(|it| it.to_string_lossy().into_owned()).take_while(|it| it != "--");
    let mut given = None;
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(FLAG) {
            Some("") => given = arguments.next(),
            Some(rest) => given = rest.strip_prefix('=').map(str::to_owned).or(given),
            None => {}
        }
    }
    given.or_else(|| std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()))
}

fn unusable(path: &Path, what: String, fact: impl Into<String>) -> Failure {
    let remedy = format!("ordinate config profiles  (they are in {})", path.display());
    Failure::input("O1007", what, fact, remedy)
}

fn read(path: &Path) -> Result<Profiles, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Profiles::default()),
        Err(error) => {
            return Err(unusable(path, format!("{} cannot be read", path.display()), error.to_string()));
        }
    };
    toml::from_str(&text).map_err(|error| {
        let fact = error.to_string();
        unusable(path, format!("{} is wrong", path.display()), fact.trim_end().to_owned())
    })
}

/// The verbs, with the values of the profile that is in use where neither a flag nor the environment says otherwise.
pub fn applied(command: Command) -> Result<Command, Failure> {
    let name = named(std::env::args_os().skip(1));
    let Some(path) = path() else { return Ok(command) };
    let mut profiles = read(&path)?;
    let wanted = name.as_deref().unwrap_or(DEFAULT);
    let Some(profile) = profiles.profile.remove(wanted) else {
        let Some(name) = name else { return Ok(command) };
        let known: Vec<String> = profiles.profile.into_keys().collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        return Err(unusable(&path, format!("there is no profile {name}"), format!("there are: {known}")));
    };
    Ok(with(command, &profile.defaults(&path)?))
}

/// Values of flags, by the flags' names.
type Defaults = BTreeMap<&'static str, Vec<String>>;

impl Profile {
    fn defaults(self, path: &Path) -> Result<Defaults, Failure> {
        for address in self.endpoints.iter().chain(&self.admin) {
            super::admin::address(address)
                .map_err(|why| unusable(path, format!("{address} is no address"), why))?;
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let file = |file: Option<PathBuf>| {
            file.map(|file| folder.join(file).display().to_string()).into_iter().collect::<Vec<_>>()
        };
        let token = self.token_file.map(|file| token_of(&folder.join(file), path)).transpose()?;
        let zookeeper = if self.zookeeper.is_empty() { Vec::new() } else { vec![self.zookeeper.join(",")] };
        let all = [
            ("endpoints", self.endpoints),
            ("admin", self.admin),
            ("servers", zookeeper),
            ("tls_ca", file(self.tls_ca)),
            ("tls_cert", file(self.tls_cert)),
            ("tls_key", file(self.tls_key)),
            (super::admin::TOKEN_FLAG, token.into_iter().collect()),
        ];
        Ok(all.into_iter().filter(|(_, values)| !values.is_empty()).collect())
    }
}

fn token_of(file: &Path, path: &Path) -> Result<String, Failure> {
    let broken =
        |fact: String| unusable(path, format!("the token in {} cannot be used", file.display()), fact);
    let text = std::fs::read_to_string(file).map_err(|error| broken(error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() { Err(broken("its first line is empty".to_owned())) } else { Ok(token.to_owned()) }
}

fn with(command: Command, defaults: &Defaults) -> Command {
    if WITHOUT.contains(&command.get_name()) {
        return command;
    }
    let command = command.mut_args(|arg| {
        let Some(values) = defaults.get(arg.get_id().as_str()) else { return arg };
        let takes_all = arg.get_value_delimiter().is_some();
        let values = if takes_all { &values[..] } else { &values[..1] };
        // A command keeps its texts for as long as the process goes on: they are read once, and given up.
        let values: Vec<&'static str> = values.iter().map(|value| &*value.clone().leak()).collect();
        arg.default_values(values).hide_default_value(true)
    });
    command.mut_subcommands(|verb| with(verb, defaults))
}

/// `ordinate config profiles`: the names, and what each is for.
pub fn list(output: super::output::Output) -> Result<(), Failure> {
    let Some(path) = path() else { return Ok(()) };
    let profiles = read(&path)?;
    if profiles.profile.is_empty() {
        eprintln!("there is no profile; {} would have them", path.display());
    }
    for (name, Profile { endpoints, admin, zookeeper, .. }) in profiles.profile {
        let json = || serde_json::json!({ "profile": name, "endpoints": endpoints, "admin": admin, "zookeeper": zookeeper });
        output.print(json, || format!("{name:<16}{}", endpoints.join(",")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // A profile that is not the one that was named aims a write at another cluster.
    #[test]
    fn the_last_name_on_the_command_line_counts() {
        let of = |words: &[&str]| named(words.iter().map(OsString::from));
        assert_eq!(of(&["kv", "get", "--profile", "prod", "x"]).as_deref(), Some("prod"));
        assert_eq!(of(&["--profile=prod", "kv", "get", "x"]).as_deref(), Some("prod"));
        assert_eq!(of(&["--profile=prod", "kv", "--profile", "test"]).as_deref(), Some("test"));
        let none = of(&["kv", "put", "k", "--", "--profile", "x"]);
        assert_eq!(none, std::env::var(VARIABLE).ok());
    }

    // Flags that are not there, or take one value, must not end the program.
    #[test]
    fn a_profile_reaches_every_verb_and_no_load() {
        let profile = Profile {
            endpoints: vec!["a:1".to_owned(), "b:2".to_owned()],
            admin: vec!["a:3".to_owned(), "b:4".to_owned()],
            zookeeper: vec!["a:5".to_owned(), "b:6".to_owned()],
            ..Profile::default()
        };
        let defaults = profile.defaults(Path::new("/x/profiles.toml")).expect("they are addresses");
        let command = || with(crate::commands::command(), &defaults);
        command().debug_assert();
        let found = |words: &[&str], id: &str| {
            let mut matches = command().try_get_matches_from(words).expect("it is sound");
            while let Some((_, below)) = matches.remove_subcommand() {
                matches = below;
            }
            let values = matches.get_raw(id).expect("it has the flag");
            values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&["ordinate", "kv", "get", "x"], "endpoints"), ["a:1", "b:2"]);
        assert_eq!(found(&["ordinate", "kv", "get", "x", "--endpoints", "c:9"], "endpoints"), ["c:9"]);
        assert_eq!(found(&["ordinate", "status"], "admin"), ["a:3"]);
        assert_eq!(found(&["ordinate", "txn", "locks"], "admin"), ["a:3", "b:4"]);
        assert_eq!(found(&["ordinate", "zk", "ls"], "servers"), ["a:5,b:6"]);
        let bench = command().try_get_matches_from(["ordinate", "bench", "kv"]).expect("it is sound");
        let (_, bench) = bench.subcommand().and_then(|(_, kv)| kv.subcommand()).expect("kv");
        assert!(bench.get_raw("endpoints").is_none_or(|mut all| all.next().is_none()));
    }
}
