//! The order of crates: kernel <- parts <- wire <- engines/paxos <- other engines <- services <- server; drivers know only the
//! kernel. The command line is above all of them: a host knows no flags, load generators or simulators. What tests depend on is free, and
//! there is one crate that only tests may depend on.

use crate::manifests::{folder, manifests};
use crate::{File, Finding};
use std::collections::BTreeMap;

/// What only tests need.
const OF_TESTS: &str = "drivers/table";
/// Libraries that the command line needs, and a host does not.
const OF_THE_COMMAND_LINE: [&str; 3] = ["clap", "indicatif", "reedline"];

/// True if the crate in `from` may depend on the one in `to`.
fn allowed(from: &str, to: &str) -> bool {
    let kind = |folder: &str| folder.split('/').next().unwrap_or("").to_owned();
    let (from_kind, to_kind) = (kind(from), kind(to));
    match from_kind.as_str() {
        _ if to == OF_TESTS => false,
        "kernel" | "consistency" => false,
        // A client needs this and no engine.
        "wire" => matches!(to, "kernel" | "parts"),
        "parts" | "drivers" => to == "kernel",
        "engines" if from == "engines/paxos" => matches!(to, "kernel" | "parts" | "wire"),
        "engines" => matches!(to, "kernel" | "parts" | "wire" | "engines/paxos" | "consistency"),
        // The store is a state machine for any engine: it needs none.
        "services" if from == "services/kv" => matches!(to, "kernel" | "wire"),
        // A foreign protocol over a service that has one of its own.
        "services" if from == "services/kafka" && to == "services/log" => true,
        "services" => matches!(to_kind.as_str(), "kernel" | "wire" | "parts" | "engines" | "consistency"),
        // No client compiles an engine or a service.
        "clients" => matches!(to, "kernel" | "parts" | "wire"),
        // What they show is an engine or a service.
        "examples" => to == "kernel",
        // These, and tests, know engines and drivers alike.
        "scenarios" | "bench" => !matches!(to_kind.as_str(), "server" | "cli"),
        "server" => {
            to != "drivers/sim" && !matches!(to_kind.as_str(), "scenarios" | "bench" | "consistency" | "cli")
        }
        "cli" => true,
        _ => false,
    }
}

/// Crates depend on lower ones only.
pub fn layers(files: &[File]) -> Vec<Finding> {
    let crates: Vec<_> = manifests(files).collect();
    let name_of = |manifest: &toml::Table| manifest["package"].get("name")?.as_str().map(str::to_owned);
    let folders: BTreeMap<String, &str> =
        crates.iter().filter_map(|(file, manifest)| Some((name_of(manifest)?, folder(file)))).collect();
    let mut findings = Vec::new();
    for (file, manifest) in &crates {
        for section in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            let ours = dependencies.keys().filter_map(|name| Some((name, *folders.get(name)?)));
            let theirs = OF_THE_COMMAND_LINE.iter().filter(|name| dependencies.contains_key(**name));
            let not_allowed = ours.filter(|(_, to)| !allowed(folder(file), to));
            let names = not_allowed.map(|(name, to)| (name.as_str(), to));
            let names = names.chain(theirs.filter(|_| folder(file) == "server").map(|name| (*name, *name)));
            for (name, to) in names {
                let line = line_of(file, section, name);
                findings.push(file.finding(line, format!("{} may not depend on {to}", folder(file))));
            }
        }
    }
    findings
}

fn line_of(file: &File, section: &str, name: &str) -> usize {
    let mut inside = false;
    for (number, line) in file.lines() {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        }
        let begins = line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
        if inside && begins {
            return number;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crooked, positions};

    fn package(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    // An engine that knows a driver, or a kernel that knows an engine, ends the simulator's truth.
    #[test]
    fn a_dependency_upwards_is_found() {
        let files = crooked(&[
            (
                "kernel/Cargo.toml",
                &package("kernel", "[dependencies]\nbytes = \"1\"\npaxos.workspace = true\n"),
            ),
            ("engines/paxos/Cargo.toml", &package("paxos", "[dependencies]\nkernel.workspace = true\n")),
            ("drivers/sim/Cargo.toml", &package("sim", "[dependencies]\nkernel = \"1\"\npaxos = \"1\"\n")),
            ("services/kv/Cargo.toml", &package("kv", "[dependencies]\npaxos = \"1\"\n")),
            // A host that carries a simulator, or parses flags, is no library.
            (
                "server/Cargo.toml",
                &package("server", "[dependencies]\nsim = \"1\"\npaxos = \"1\"\nclap = \"4\"\n"),
            ),
            (
                "cli/Cargo.toml",
                &package("ordinate", "[dependencies]\nsim = \"1\"\nserver = \"1\"\nclap = \"4\"\n"),
            ),
            (
                "engines/mason/Cargo.toml",
                &package(
                    "mason",
                    "[dependencies]\npaxos = \"1\"\n[dev-dependencies]\nsim = \"1\"\ntable = \"1\"\n",
                ),
            ),
            ("drivers/table/Cargo.toml", &package("table", "[dependencies]\nkernel.workspace = true\n")),
            ("bench/Cargo.toml", &package("bench", "[dependencies]\nsim = \"1\"\ntable = \"1\"\n")),
        ]);
        let found = [
            "kernel/Cargo.toml:5",
            "drivers/sim/Cargo.toml:5",
            "services/kv/Cargo.toml:4",
            "server/Cargo.toml:4",
            "server/Cargo.toml:6",
            "bench/Cargo.toml:5",
        ];
        assert_eq!(positions(&layers(&files)), found);
    }
}
