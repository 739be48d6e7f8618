//! The demo's hosts as the stage of `photos`.

use super::photos::{self, StageHost};
use super::{Cluster, LEADER_WITHIN, TXN_SHARDS, TXN_SPREAD_LEVELS};
use ordinate_client::TxnLevel;
use runtime::LinkFault;
use server::services::txn::TxnStatus;
use std::time::{Duration, Instant};

/// A host that leads more than it is to, as after a busy start, hands the rest over within ten seconds or little more.
const LEADERS_APART_WITHIN: Duration = Duration::from_secs(30);

impl Cluster {
    /// The hosts with the shards that they lead, once each shard is led by the host that is to lead it: it stays there.
    async fn stage_hosts(&self) -> Result<Vec<StageHost>, String> {
        let asked = Instant::now();
        let mut said = false;
        loop {
            let (mut hosts, mut away) = (Vec::new(), 0);
            for (name, status) in self.statuses().await {
                let status =
                    status.ok_or_else(|| format!("{name} does not run: photos needs all three hosts"))?;
                let shards = status.services.get::<TxnStatus>().map(|txn| &txn.shards);
                let led = shards.into_iter().flatten().filter(|(_, shard)| shard.leads);
                away += led.clone().filter(|(_, shard)| shard.preferred.as_deref() != Some(name)).count();
                let leads = led.map(|(&shard, _)| shard).collect();
                let endpoint = format!("127.0.0.1:{}", self.members[name].native);
                hosts.push(StageHost { name, endpoint, leads });
            }
            let led: usize = hosts.iter().map(|host| host.leads.len()).sum();
            let leaders = hosts.iter().filter(|host| !host.leads.is_empty()).count();
            let all_led = led >= usize::from(TXN_SHARDS);
            if all_led && away == 0 {
                return Ok(hosts);
            }
            if !all_led && asked.elapsed() >= LEADER_WITHIN {
                return Err(format!("{led} of {TXN_SHARDS} shards are led: try again"));
            }
            if asked.elapsed() >= LEADERS_APART_WITHIN {
                let trouble = "one host leads all shards: kill it and restart it, then try again";
                return if leaders > 1 { Ok(hosts) } else { Err(trouble.to_owned()) };
            }
            if all_led && !said {
                println!("  waiting until each shard is led by the host that is to lead it");
                said = true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Plays the photo-sharing application at the levels asked for, or at all.
    pub(super) async fn photos(&mut self, options: &[&str]) -> Result<(), String> {
        self.rounds += 1;
        let levels = [TxnLevel::Strict, TxnLevel::Rss, TxnLevel::ProcessOrdered];
        let unknown =
            |word: &&&str| **word != "--no-fence" && !levels.iter().any(|level| level.name() == **word);
        if let Some(word) = options.iter().find(unknown) {
            return Err(format!("no such level: {word}; wanted: strict, rss or process-ordered"));
        }
        let named = |level: &TxnLevel| options.contains(&level.name());
        let any = levels.iter().any(named);
        let wanted = levels.into_iter().filter(|level| !any || named(level));
        let without = options.contains(&"--no-fence");
        let mut rows: Vec<(TxnLevel, bool)> = wanted.map(|level| (level, !without)).collect();
        if options.is_empty() {
            rows.insert(2, (TxnLevel::Rss, false));
        }
        let hosts = self.stage_hosts().await?;
        let delay = |one: &str, other: &str, by: Duration| {
            for (from, to) in [(one, other), (other, one)] {
                let sender = self.members.get(from).and_then(|member| member.running.as_ref());
                if let Some(running) = sender {
                    running.host.handle().fault(kernel::HostId::named(to), LinkFault::Delay(by));
                }
            }
        };
        let shard_of = |key: &str| spanner::shard_of(key.as_bytes(), TXN_SPREAD_LEVELS, TXN_SHARDS).0;
        match photos::show(&hosts, shard_of, delay, &rows, self.rounds).await? {
            true => Ok(()),
            false => Err("a history is not what its levels promise: report it with the output".to_owned()),
        }
    }
}
