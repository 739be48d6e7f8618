//! Disks that lose, tear and reorder whatever was not synced when a process is killed.

use super::cluster::Cluster;
use std::process::Command;

/// From their next start on, hosts run with a library that keeps what they write from the disk until they sync it.
///
/// # Errors
/// If there is no C compiler.
pub fn lose_what_is_not_synced(cluster: &mut Cluster) -> Result<(), String> {
    let shim = cluster.folder.join("shim.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/shim.c");
    let compiled = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([shim.as_os_str(), source.as_ref(), "-ldl".as_ref(), "-lpthread".as_ref()])
        .status();
    if !compiled.as_ref().is_ok_and(|status| status.success()) {
        return Err(format!("no C compiler ({compiled:?}): scripts/test-tools.sh installs one"));
    }
    let data = cluster.folder.join("ordinate-data");
    for host in 0..cluster.hosts.len() {
        cluster.set_environment(host, "LD_PRELOAD", &shim.display().to_string());
        cluster.set_environment(host, "SHIM_ROOT", &data.display().to_string());
    }
    Ok(())
}
