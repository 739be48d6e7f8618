//! `ordinate zk import`: the nodes of a ZooKeeper from its files.

use super::client::{ZkClient, ZkError};
use super::files;
use super::target::{Target, is_the_clusters_own, progress};
use coordination::wire::RestoredNode;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to import, and how.
#[derive(clap::Args)]
pub struct Import {
    /// ZooKeeper's dataDir, of a server that is stopped (or a copy): the newest sound snapshot in it is used
    data: PathBuf,
    /// ZooKeeper's dataLogDir, if it is another one
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Into a cluster that has nodes already: those that are imported are made over, others stay. Resumes an import
    #[arg(long)]
    merge: bool,
    /// Only read and check the files
    #[arg(long)]
    dry_run: bool,
}

#[derive(Default)]
struct Counts {
    nodes: u64,
    containers: u64,
    ttl: u64,
    ephemerals: u64,
    bytes: u64,
}

impl Import {
    /// Reads, and then restores over a session that `connect` opens.
    pub fn run(
        &self,
        connect: impl FnOnce() -> Result<ZkClient, ZkError>,
        json: bool,
    ) -> Result<(), ZkError> {
        let began = Instant::now();
        let bar = progress(Some(0), "reading");
        let logs: &Path = self.logs.as_deref().unwrap_or(&self.data);
        let loaded = files::load(&self.data, logs, |read, all| {
            bar.set_length(all);
            bar.set_position(read);
        })?;
        bar.finish_and_clear();
        for skipped in &loaded.skipped {
            eprintln!("a newer snapshot is damaged, an older one is used: {skipped}");
        }
        for torn in &loaded.torn {
            eprintln!(
                "{} ends in the middle of a transaction, which a crash leaves: what is whole is used",
                torn.display()
            );
        }
        let mut counts = Counts::default();
        for (path, node) in &loaded.tree.nodes {
            match node.kind() {
                _ if is_the_clusters_own(path) => continue,
                None => {
                    counts.ephemerals += 1;
                    continue;
                }
                Some((4, _)) => counts.containers += 1,
                Some((5, _)) => counts.ttl += 1,
                Some(_) => {}
            }
            counts.nodes += 1;
            counts.bytes += node.data.as_ref().map_or(0, |data| data.len() as u64);
        }
        if !self.dry_run {
            let bar = progress(Some(counts.nodes), "restoring");
            let mut target = Target::new(connect()?, self.merge)?;
            for (path, node) in loaded.tree.nodes.iter().filter(|(path, _)| !is_the_clusters_own(path)) {
                let Some((flags, ttl)) = node.kind() else { continue };
                target.restore(&RestoredNode {
                    path,
                    data: node.data.as_deref(),
                    acl: node.acl.to_vec(),
                    flags,
                    ttl,
                    version: node.version,
                    creates: node.creates,
                    aversion: node.aversion,
                    ctime: node.ctime.max(0),
                    mtime: node.mtime.max(0),
                })?;
                bar.inc(1);
            }
            target.finish()?;
            bar.finish_and_clear();
            target.client.close();
        }
        self.report(&loaded, &counts, began.elapsed().as_secs_f64(), json);
        Ok(())
    }

    fn report(&self, loaded: &files::Loaded, counts: &Counts, seconds: f64, json: bool) {
        let snapshot = loaded.snapshot.as_ref().map(|path| path.display().to_string());
        if json {
            let report = json!({
                "imported": !self.dry_run,
                "snapshot": snapshot,
                "transactions": loaded.transactions,
                "nodes": counts.nodes,
                "containers": counts.containers,
                "ttl_nodes": counts.ttl,
                "data_bytes": counts.bytes,
                "ephemerals_dropped": counts.ephemerals,
                "sessions_dropped": loaded.tree.sessions.len(),
                "seconds": seconds,
            });
            println!("{report}");
            return;
        }
        println!("snapshot      {}", snapshot.as_deref().unwrap_or("none: the logs are the whole history"));
        println!("transactions  {} behind it", loaded.transactions);
        println!(
            "nodes         {} with {} bytes of data; {} containers and {} with a time to live among them",
            counts.nodes, counts.bytes, counts.containers, counts.ttl
        );
        println!(
            "dropped       {} ephemeral nodes of {} sessions: their clients make them again",
            counts.ephemerals,
            loaded.tree.sessions.len()
        );
        println!(
            "{} in {seconds:.1} s",
            if self.dry_run { "sound; nothing was written" } else { "imported" }
        );
    }
}
