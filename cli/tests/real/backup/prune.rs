//! Old backups are removed while new ones are taken.

use super::{done, manifest, run};
use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::Client;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Longer than a process that takes backups or removes them may be silent.
const LONG: Duration = Duration::from_secs(20 * 60);

async fn write(cluster: &Cluster, round: u64) {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    for number in 0..200 {
        client
            .put(format!("key/{number:05}"), format!("{round}-{number}").repeat(200))
            .await
            .expect("a write");
    }
}

fn chunks(folder: &Path) -> usize {
    let folders = std::fs::read_dir(folder.join("chunks")).expect("chunks").flatten();
    folders.map(|it| std::fs::read_dir(it.path()).expect("a folder").count()).sum()
}

/// As if another process did this, and had said so so long ago.
fn another(folder: &Path, work: &str, ago: Duration) -> std::path::PathBuf {
    let path = folder.join("running").join(work).join("0123456789abcdef");
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("the folder is writable");
    let file = File::create(&path).expect("the folder is writable");
    file.set_modified(SystemTime::now() - ago).expect("it has a time");
    path
}

// Chunks that a backup relies on, which is being taken, have no manifest yet: removed, they leave a backup that is damaged.
#[test]
fn chunks_are_not_removed_below_a_backup_that_is_being_taken() {
    side_by_side(async {
        let cluster = Cluster::start(1, "", "").await;
        let folder = cluster.folder.join("backups");
        let to = folder.display().to_string();
        for round in 0..2 {
            write(&cluster, round).await;
            done(&cluster, &["backup", "--to", &to]).await;
        }
        let before = chunks(&folder);
        let running = another(&folder, "backup", Duration::ZERO);
        let said = done(&cluster, &["backup", "prune", "--keep", "1", "--to", &to]).await;
        assert!(said.starts_with("removed 1 backups and no chunks: a backup is being taken"), "{said}");
        assert_eq!(chunks(&folder), before);
        // One whose process has ended holds nobody up for ever.
        another(&folder, "backup", LONG);
        let said = done(&cluster, &["backup", "prune", "--keep", "1", "--to", &to]).await;
        assert!(said.starts_with("removed 0 backups and ") && !said.contains("no chunks"), "{said}");
        assert!(chunks(&folder) < before && !running.exists());
        assert!(done(&cluster, &["backup", "verify", "--to", &to]).await.contains("is sound"));

        // And a backup waits while chunks are being removed.
        let pruning = another(&folder, "prune", Duration::ZERO);
        let mut command = Command::new(ORDINATE);
        command.args(["backup", "--to", &to]).stdout(Stdio::null());
        command.env("ORDINATE_ENDPOINTS", cluster.endpoints_from(0).join(","));
        command.env("ORDINATE_ADMIN", cluster.hosts[0].admin.to_string());
        let mut waiting = command.spawn().expect("the binary under test runs");
        let running = || std::fs::read_dir(folder.join("running/backup")).is_ok_and(|it| it.count() > 0);
        cluster.until("it says that it takes one", PATIENCE, |_| running()).await;
        let count = || std::fs::read_dir(folder.join("manifests")).expect("backups").count();
        assert_eq!((count(), waiting.try_wait().expect("it runs")), (1, None));
        std::fs::remove_file(pruning).expect("it is there");
        let ended = tokio::task::spawn_blocking(move || waiting.wait()).await.expect("it does not panic");
        assert!(ended.expect("it ends").success());
        assert_eq!(count(), 2);
        assert!(!running(), "what says so goes with it");
    });
}

// Whatever the interleaving is: what is listed as a backup is one.
#[test]
fn backups_are_whole_while_old_ones_are_removed() {
    side_by_side(async {
        let cluster = Cluster::start(1, "", "").await;
        let folder = cluster.folder.join("backups");
        let to = folder.display().to_string();
        write(&cluster, 0).await;
        done(&cluster, &["backup", "--to", &to]).await;
        for round in 1..6 {
            write(&cluster, round % 2).await;
            let (backup, prune) = (["backup", "--to", &to], ["backup", "prune", "--keep", "1", "--to", &to]);
            let ((taken, said), (removed, also)) =
                tokio::join!(run(&cluster, &backup), run(&cluster, &prune));
            assert!(taken && removed, "{said} {also}");
            let sound = done(&cluster, &["backup", "verify", "--to", &to]).await;
            assert!(sound.contains("is sound: 200 keys"), "{sound}");
        }
        assert!(manifest(&folder)["kv"]["at"].as_u64().is_some_and(|at| at >= 1_200));
    });
}
