//! Data directories that were put back from an old copy, or have lost their end: sound in themselves, and others know better.

use super::support::*;
use runtime::{Host, HostConfig, HostError, JournalOptions, Storage};
use std::path::{Path, PathBuf};

/// A folder that is gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the target folder is writable");
        Self(path)
    }

    fn of(&self, host: &str) -> PathBuf {
        self.0.join(host)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("the folder is writable");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => _ = std::fs::copy(entry.path(), target).expect("it can be copied"),
        }
    }
}

fn again(config: &HostConfig, path: PathBuf) -> HostConfig {
    let listen = config.listen.as_ref().expect("it listens").try_clone().expect("a listener can be cloned");
    HostConfig {
        listen: Some(listen),
        peers: config.peers.clone(),
        storage: Storage::Directory { path, journal: JournalOptions::default() },
        ..HostConfig::new("test", &config.name)
    }
}

// A host that was put back to yesterday votes against what it has acknowledged since; it must stop before it harms anybody.
#[test]
fn a_directory_put_back_from_an_old_copy_is_refused() {
    let folder = Folder::new("old-copy");
    let mut configs = cluster(&["a", "b"]).into_iter();
    let (a, b) = (configs.next().expect("a"), configs.next().expect("b"));
    let start_a = || Host::start(again(&a, folder.of("a")), both, vec![]).expect("a starts");
    let b = Host::start(again(&b, folder.of("b")), both, vec![]).expect("b starts");
    let ask = |count| b.handle().request(ASKER, question("a", count)).wait(LIMIT);

    let first = start_a();
    assert_eq!(ask(20), Ok(20));
    first.stop().expect("stopped in peace");
    copy(&folder.of("a"), &folder.of("copy"));

    // A host that comes back with all that it had is let in, however often.
    for kill in [false, true] {
        let run = start_a();
        assert_eq!(ask(20), Ok(20));
        if kill { run.kill() } else { run.stop() }.expect("it ends");
    }

    copy(&folder.of("copy"), &folder.of("a"));
    match start_a().join() {
        Err(HostError::JournalBehind { peer, reported, found }) => {
            assert!(peer == "b" && reported > found, "{peer} reported {reported}, found {found}");
        }
        other => panic!("an old copy is served: {other:?}"),
    }
}
