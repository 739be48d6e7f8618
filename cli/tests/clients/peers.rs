//! The other side: what `scripts/clients.sh` installs, and a ZooKeeper that runs for a test.

use crate::support::cluster::{Cluster, PATIENCE, free_address};
use crate::support::raw;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the repository")
}

/// The folder of peers, with `what` (`python`, `java`, `go`, `kafka`) in it; `None`, with the reason printed, if they cannot be had.
pub fn installed(what: &'static str) -> Option<PathBuf> {
    // What cannot be had takes its whole time limit: that is tried once.
    static TRIED: Mutex<BTreeMap<&str, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    tried.entry(what).or_insert_with(|| install(what)).clone()
}

fn install(what: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("ORDINATE_PEERS").map_or_else(|| root().join("target/clients"), PathBuf::from);
    let script = root().join("scripts/clients.sh");
    let output = Command::new(script).arg(what).env("ORDINATE_PEERS", &folder).stdin(Stdio::null()).output();
    let why = match output {
        Ok(output) if output.status.success() => return Some(folder),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(std::env::var_os("ORDINATE_PEERS_REQUIRED").is_none(), "no {what} peers: {why}");
    println!("SKIPPED: the {what} peers cannot be installed: {why}");
    None
}

/// Three hosts that serve ZooKeeper's protocol, and where.
pub async fn ordinate(coordination: &str) -> (Cluster, Vec<SocketAddr>) {
    Cluster::serving("ZOOKEEPER", 3, coordination).await
}

/// One server of Apache ZooKeeper, without an ensemble.
pub struct ZooKeeper {
    /// Where it serves.
    pub address: SocketAddr,
    folder: PathBuf,
    child: Child,
}

impl ZooKeeper {
    /// Starts it and waits until it serves. `superuser`: the digest of who may do everything.
    pub fn start(peers: &Path, superuser: &str) -> Self {
        Self::start_with(peers, superuser, &[])
    }

    /// The same with more words for Java.
    pub fn start_with(peers: &Path, superuser: &str, more: &[&str]) -> Self {
        let address = free_address();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("zookeeper-{}", address.port()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let config = format!(
            "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\nforceSync=no\nextendedTypesEnabled=true\n",
            folder.join("data").display(),
            address.port()
        );
        std::fs::write(folder.join("zoo.cfg"), config).expect("the target folder is writable");
        let child = Command::new("java")
            .arg(format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={superuser}"))
            // Empty containers stay, as they do on the other side.
            .arg("-Dznode.container.checkIntervalMs=36000000")
            .arg("-Dzookeeper.extendedTypesEnabled=true")
            .args(more)
            .args(["-Xmx512m", "-cp"])
            .arg(peers.join("jars/*"))
            .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
            .arg(folder.join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java runs, or its peers would not be there");
        let it = Self { address, folder, child };
        let deadline = Instant::now() + PATIENCE;
        while !raw::word(address, "srvr").is_ok_and(|said| said.contains("Mode:")) {
            assert!(Instant::now() < deadline, "ZooKeeper does not start");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        it
    }

    /// Its `dataDir`.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// `kill -9`; its files stay until it is dropped.
    pub fn stop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
