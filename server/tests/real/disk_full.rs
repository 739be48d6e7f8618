//! Disks that fill up, and have room again.

use crate::cluster::{Cluster, PATIENCE};
use crate::failover::clients;
use crate::load::Load;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A small file system that is gone when this is dropped.
pub struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).ok()?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=72m", "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a host that is being killed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Three hosts, each with a small file system of its own; none where such cannot be mounted.
pub async fn start_on_small_disks(settings: &str) -> Option<(Cluster, Vec<Small>)> {
    let mut cluster = Cluster::planned(3, settings, "");
    let mounted: Option<Vec<Small>> = (0..3).map(|host| Small::mount(cluster.data_of(host))).collect();
    let Some(mounted) = mounted else {
        println!("SKIPPED: a small file system needs root and mount");
        return None;
    };
    cluster.launch_all();
    cluster.until_ready().await;
    Some((cluster, mounted))
}

/// All the room that is left in a folder's file system goes to a file, which is returned.
pub fn fill(folder: &Path) -> PathBuf {
    let filler = folder.join("filler");
    // Ends with an error when the disk is full.
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "status=none"])
        .arg(format!("of={}", filler.display()))
        .stderr(std::process::Stdio::null())
        .status();
    filler
}

// A host that acknowledges what it could not write, stops for good, or loses what it had when the disk is full.
#[test]
fn full_disks_make_clients_wait_and_nothing_else() {
    crate::alone(async {
        let Some((mut cluster, mounted)) = start_on_small_disks("").await else { return };
        let load = Load::start("full", clients(&cluster, 3));
        load.until_acknowledged(50, PATIENCE).await;
        // On two hosts of three.
        let fillers: Vec<PathBuf> = (0..2).map(|host| fill(&cluster.data_of(host))).collect();
        let client = clients(&cluster, 1)[0].clone().with_timeout(Duration::from_secs(1));
        let mut written = 0u32;
        let waited = loop {
            assert!(written < 2_000, "no disk is full after {written} writes of 64 KiB\n{}", cluster.logs());
            let answer = client.put(format!("fill/{}", written % 16), vec![b'x'; 64 << 10]).await;
            written += 1;
            if answer.is_err() && (0..2).all(|host| cluster.log(host).contains("the disk is full")) {
                break answer;
            }
        };
        let ready = cluster.page(0, "/readyz", 503).await.text();
        let full_at = load.now();
        for filler in fillers {
            std::fs::remove_file(filler).expect("it was written");
        }
        load.until_everybody_is_served(full_at, PATIENCE).await;
        let resumed = load.last_client_served_after(full_at).expect("it was waited for");
        cluster.until_ready().await;
        let verdict = load.finish().await;
        println!(
            "disk full on two of three hosts after {written} writes of 64 KiB: a write then: {waited:?}, readyz \
             {ready:?}; served again {resumed:?} after there was room; {} operations, linearizable",
            verdict.answered
        );
        assert_eq!(ready, "the disk is full\n");
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        drop(cluster);
        drop(mounted);
    });
}
