//! A cluster of real processes on loopback, for benchmarks and tests: started, watched, killed, started again.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A cluster of `ordinate serve` processes. Dropping it kills them and removes their data.
pub struct LocalCluster {
    /// Native addresses, in the order of hosts.
    pub endpoints: Vec<SocketAddr>,
    folder: PathBuf,
    children: Vec<Child>,
}

impl LocalCluster {
    /// Starts `hosts` processes of this very binary and waits until each accepts clients. `settings` are lines of the cluster
    /// file between its sections.
    pub fn start(hosts: usize, durability: &str, settings: &str) -> io::Result<Self> {
        let binary = std::env::current_exe()?;
        let folder = std::env::temp_dir().join(format!("ordinate-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let ports = free_ports(3 * hosts)?;
        let names: Vec<String> = (0..hosts).map(|host| ((b'a' + host as u8) as char).to_string()).collect();
        let mut text =
            format!("cluster = \"bench\"\n[durability]\nack = \"{durability}\"\n{settings}[hosts]\n");
        for (name, port) in names.iter().zip(&ports) {
            text += &format!("{name} = \"127.0.0.1:{port}\"\n");
        }
        let config = folder.join("cluster.toml");
        std::fs::write(&config, text)?;
        let endpoints =
            ports[hosts..2 * hosts].iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let mut cluster = Self { endpoints, folder, children: Vec::new() };
        for (index, name) in names.iter().enumerate() {
            let child = serve(&binary, &config, name, cluster.endpoints[index], ports[2 * hosts + index])?;
            cluster.children.push(child);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        for endpoint in &cluster.endpoints {
            while std::net::TcpStream::connect(endpoint).is_err() {
                if Instant::now() > deadline {
                    return Err(io::Error::other(format!("no host listens at {endpoint} after 20 s")));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(cluster)
    }

    /// The processes' ids.
    pub fn processes(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }
}

/// The cluster that a load goes to.
pub struct LoadedCluster {
    /// Native addresses.
    pub endpoints: Vec<SocketAddr>,
    /// Its hosts' processes, as far as they are known.
    pub processes: Vec<u32>,
    own: Option<LocalCluster>,
}

impl LoadedCluster {
    /// The one that was named, or one of three hosts that is started with these settings, and stopped when this is dropped.
    pub fn find(
        endpoints: &[SocketAddr],
        processes: &[u32],
        durability: &str,
        settings: &str,
    ) -> io::Result<Self> {
        if !endpoints.is_empty() {
            return Ok(Self { endpoints: endpoints.to_vec(), processes: processes.to_vec(), own: None });
        }
        let own = LocalCluster::start(3, durability, settings)?;
        Ok(Self { endpoints: own.endpoints.clone(), processes: own.processes(), own: Some(own) })
    }

    /// True if the command has started it.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

fn serve(binary: &Path, config: &Path, name: &str, native: SocketAddr, admin: u16) -> io::Result<Child> {
    Command::new(binary)
        .args(["serve", "--host", name, "--config"])
        .arg(config)
        .env("ORDINATE_LISTEN__NATIVE", native.to_string())
        .env("ORDINATE_LISTEN__ADMIN", format!("127.0.0.1:{admin}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Ports that nobody listens on at this moment, below those that the system gives to outgoing connections: none of the
/// hosts' own dials takes one before its owner is up. Where to look first differs between processes.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    const FROM: u32 = 10_000;
    const PORTS: u32 = 20_000;
    let offset = std::process::id().wrapping_mul(101);
    let candidates = (0..PORTS).map(|step| (FROM + (offset.wrapping_add(step)) % PORTS) as u16);
    let free = candidates.filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    if ports.len() < count {
        Err(io::Error::other(format!("fewer than {count} free ports")))
    } else {
        Ok(ports)
    }
}
