//! The commit that the program is built from, for `ordinate version`: from `ORDINATE_COMMIT`, or from git where there is one.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ORDINATE_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let given = std::env::var("ORDINATE_COMMIT").ok();
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ORDINATE_BUILT_FROM={commit}");
}

fn from_git() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}
