//! `ordinate inspect` on the directory of a host that serves, that has stopped, and on a copy with a flipped bit.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

fn files_of(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("the directory is there") {
        let entry = entry.expect("the directory can be read");
        if entry.path().is_file() {
            let name = entry.file_name().into_string().expect("our names are text");
            files.insert(name, std::fs::read(entry.path()).expect("the file can be read"));
        }
    }
    files
}

// Damage that is not seen, or not said where, leaves an operator guessing; a look that changes a byte destroys evidence.
#[test]
fn a_stopped_hosts_directory_is_read_and_a_flipped_bit_is_found() {
    side_by_side(async {
        // Every kind of role that writes something.
        let services = "[coordination]\nengine = \"mason\"\nshards = 2\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1\n";
        let mut cluster = Cluster::start(1, services, "").await;
        for key in 0..20 {
            let put = cluster.ordinate(&["kv", "put", &format!("key-{key}"), "value"]).await;
            assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        }
        let data = cluster.data_of(0);
        let path = data.display().to_string();
        let busy = cluster.ordinate(&["inspect", &path]).await;
        let said = String::from_utf8_lossy(&busy.stderr).into_owned();
        assert!(busy.status.code() == Some(1) && said.starts_with("error[O2106]"), "{said}");

        cluster.signal(0, "-TERM");
        let asked = Instant::now();
        while cluster.is_alive(0) {
            assert!(asked.elapsed() < PATIENCE, "the host does not stop\n{}", cluster.logs());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let journal = data.join("journal");
        let before = (files_of(&data), files_of(&journal));
        let whole = cluster.ordinate(&["inspect", &path, "-o", "json"]).await;
        assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
        let page: serde_json::Value = serde_json::from_slice(&whole.stdout).expect("JSON");
        assert_eq!((&page["host"], &page["damage"]), (&"a".into(), &serde_json::Value::Null), "{page}");
        let records = cluster.ordinate(&["inspect", &path, "--records", "--slot", "4"]).await;
        let lines = String::from_utf8_lossy(&records.stdout).into_owned();
        let votes = lines.lines().filter(|line| line.starts_with("0x4 kv acceptor   ")).count();
        assert!(votes > 20 && lines.contains("   vote "), "{lines}");
        assert!(before == (files_of(&data), files_of(&journal)), "the look changed a file");

        let copy = cluster.folder.join("copy");
        std::fs::create_dir_all(copy.join("journal")).expect("the folder is writable");
        for (folder, files) in [(copy.clone(), before.0), (copy.join("journal"), before.1)] {
            for (name, bytes) in files {
                std::fs::write(folder.join(name), bytes).expect("the folder is writable");
            }
        }
        let name = "segment-0000000000000001";
        let mut bytes = std::fs::read(copy.join("journal").join(name)).expect("the first segment");
        bytes[2 * 4096 + 70] ^= 1;
        std::fs::write(copy.join("journal").join(name), bytes).expect("the folder is writable");
        let damaged = cluster.ordinate(&["inspect", &copy.display().to_string()]).await;
        let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
        assert!(damaged.status.code() == Some(1) && said.starts_with("error[O2108]"), "{said}");
        assert!(said.contains(&format!("{name} is damaged at byte 8192")), "{said}");
    });
}

// A sound journal that is called unreadable has its operator replace a host that lacks nothing.
#[test]
fn every_record_of_a_host_of_each_engine_is_read() {
    for (engine, written) in [
        ("mason", ["log group 0 leader ", "log group 0 acceptor ", "log gateway "]),
        ("paxos", ["log group 0 leader ", "log group 0 acceptor ", "log gateway "]),
        ("corfu", ["log storage 0 ", "log auxiliary ", "log sequencer "]),
    ] {
        side_by_side(async {
            let shard_map = "[coordination]\nengine = \"paxos\"\n";
            let settings = format!("{shard_map}[log]\nengine = \"{engine}\"\nspaces = 1\n");
            let mut cluster = Cluster::start(1, &settings, "").await;
            let log = ordinate_client::Log::connect([cluster.hosts[0].native.to_string()]);
            if engine != "corfu" {
                log.create("log", 1 << 20, None).await.expect("it is made");
            }
            for number in 0..20 {
                let mut rows = ordinate_client::Rows::default();
                rows.push(format!("entry {number}").as_bytes());
                log.append("log", rows).await.expect("it is appended");
            }
            stop(&mut cluster, 0);
            let path = cluster.data_of(0).display().to_string();
            let looked = cluster.ordinate(&["inspect", &path]).await;
            let (page, said) =
                (String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
            assert!(looked.status.success(), "{engine}: {said}\n{page}");
            for role in written {
                assert!(page.contains(role), "{engine}: no {role}in\n{page}");
            }
            assert!(!page.contains("unknown"), "{engine}: a slot without a role\n{page}");
            let records = cluster.ordinate(&["inspect", &path, "--records"]).await;
            let lines = String::from_utf8_lossy(&records.stdout).into_owned();
            assert!(records.status.success() && !lines.contains("UNREADABLE"), "{engine}: {lines}");
            if engine == "corfu" {
                let entries =
                    lines.lines().filter(|line| line.contains(" storage 0 ") && line.ends_with(" bytes"));
                assert_eq!(entries.count(), 20, "{lines}");
                assert!(lines.contains("serves epoch ") && lines.contains("promised "), "{lines}");
            }
        });
    }
}

fn stop(cluster: &mut Cluster, host: usize) {
    cluster.signal(host, "-TERM");
    let asked = Instant::now();
    while cluster.is_alive(host) {
        assert!(asked.elapsed() < PATIENCE, "the host does not stop\n{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn copy_of(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("the folder is writable");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_of(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("it can be copied");
        }
    }
}

// A host that votes without what it has acknowledged makes acknowledged writes read as "not found".
#[test]
fn a_host_without_its_newest_segment_or_of_an_old_copy_is_refused() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        let put = |cluster: &Cluster, key: String| {
            let answer =
                crate::support::http::ask(cluster.hosts[0].admin, "PUT", &format!("/v1/kv/{key}"), b"value");
            assert_eq!(answer.expect("an answer").code, 200, "{key}");
        };
        (0..20).for_each(|key| put(&cluster, format!("old{key}")));
        let (data, old) = (cluster.data_of(2), cluster.folder.join("old"));
        stop(&mut cluster, 2);
        copy_of(&data, &old);
        cluster.launch(2);
        cluster.until_ready().await;
        (0..20).for_each(|key| put(&cluster, format!("new{key}")));
        stop(&mut cluster, 2);

        // Each of its newest segments, and all of them.
        let whole = cluster.folder.join("whole");
        copy_of(&data, &whole);
        let segments: Vec<String> =
            files_of(&data.join("journal")).into_keys().filter(|name| name.starts_with("segment-")).collect();
        assert!(segments.len() >= 2, "{segments:?}");
        for gone in 1..=segments.len() {
            copy_of(&whole, &data);
            for name in segments.iter().rev().take(gone) {
                std::fs::remove_file(data.join("journal").join(name)).expect("it is there");
            }
            let looked = cluster.ordinate(&["inspect", &data.display().to_string()]).await;
            let said = String::from_utf8_lossy(&looked.stderr).into_owned();
            assert!(
                looked.status.code() == Some(1) && said.starts_with("error[O2108]"),
                "{gone} gone: {said}"
            );
            let refused = cluster.refusal(2);
            assert!(refused.said.contains("error[O2108]"), "{gone} gone: {}", refused.said);
        }
        copy_of(&whole, &data);
        std::fs::remove_dir_all(data.join("journal")).expect("it is there");
        let refused = cluster.refusal(2);
        assert!(refused.said.contains("error[O2108]"), "no journal: {}", refused.said);

        // Sound in itself: only the others know.
        copy_of(&old, &data);
        let refused = cluster.refusal(2);
        assert!(refused.said.contains("error[O2108]"), "an old copy: {}", refused.said);
        assert!(refused.said.contains("old copy"), "{}", refused.said);

        copy_of(&whole, &data);
        cluster.launch(2);
        cluster.until_ready().await;
        for key in (0..20).map(|key| format!("new{key}")) {
            let answer =
                crate::support::http::ask(cluster.hosts[2].admin, "GET", &format!("/v1/kv/{key}"), b"");
            assert_eq!(answer.expect("an answer").code, 200, "{key}");
        }
    });
}
