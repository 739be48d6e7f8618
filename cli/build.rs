//! The commit that the program is built from, for `ordinate version`: from `ORDINATE_COMMIT`, or from git where there is one.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ORDINATE_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    // What is installed names the commit that it has. A build for development does not wait for this crate after each commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let Some(moves) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| is_release && Path::new(log).exists())
    {
        println!("cargo:rerun-if-changed={moves}");
    }
    let given = std::env::var("ORDINATE_COMMIT").ok();
    let later = if is_release { "" } else { " or later" };
    let found = || Some(git(&["rev-parse", "--short=12", "HEAD"])? + later);
    let commit = given.or_else(found).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ORDINATE_BUILT_FROM={commit}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}
