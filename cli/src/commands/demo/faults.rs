//! The faults of the demo's prompt, each under a load that is judged.

use super::verdict::{Verdict, Watch};
use super::{Cluster, NAMES, painted};
use reedline::Color;
use runtime::{Direction, LinkFault};
use server::status::HostStatus;
use std::time::{Duration, Instant};

const RECOVERY_WITHIN: Duration = Duration::from_secs(20);
/// The load runs this long before a fault strikes, and after service is back.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(500);
const QUORUM_KNOWN_AFTER: Duration = Duration::from_millis(1_500);

impl Cluster {
    /// Runs a load, strikes in the middle of it, waits until writes are acknowledged again, and judges.
    pub(super) async fn judge(&mut self, fault: &str, host: &str) -> Result<Verdict, String> {
        let hosts: Vec<&'static str> =
            NAMES.into_iter().filter(|name| host == "all" || host == *name).collect();
        if hosts.is_empty() {
            return Err(format!("no host {host}; there are: a b c"));
        }
        self.rounds += 1;
        let leader = self.leader().await;
        let watch = Watch::start(&self.endpoints(), self.rounds);
        tokio::time::sleep(BEFORE).await;
        for name in &hosts {
            self.strike(fault, name)?;
        }
        let (served, quorum) = self.until_served(&watch).await;
        if served {
            tokio::time::sleep(AFTER).await;
        }
        if served && matches!(fault, "restart" | "resume" | "heal") {
            self.until_known_to_serve(&hosts).await;
        }
        let verdict = watch.finish().await;
        let now = self.leader().await;
        let leads = match (leader == now, &now) {
            (true, Some(now)) => format!("{now} leads as before"),
            (false, Some(now)) => format!("{now} leads now"),
            (_, None) => "nobody leads".to_owned(),
        };
        println!("  {fault} {host}: {leads}");
        if served {
            let gap = verdict.longest_gap.as_secs_f64() * 1e3;
            println!("  longest time without an acknowledged write: {gap:.0} ms");
        } else if quorum {
            println!("  no write was acknowledged within {} s", RECOVERY_WITHIN.as_secs());
        } else {
            println!("  no host hears a majority: nothing is acknowledged until one does");
        }
        let checked = format!("(checked: {} operations)", verdict.operations);
        match &verdict.violation {
            None => {
                let sound = painted(Color::Green, "acknowledged writes lost: 0; history linearizable");
                println!("  {sound} {checked}");
            }
            Some(violation) => {
                println!("  {} {checked}\n  {violation}", painted(Color::Red, "NOT LINEARIZABLE"))
            }
        }
        Ok(verdict)
    }

    /// What hosts that are back say of themselves is true by the next line.
    async fn until_known_to_serve(&self, hosts: &[&str]) {
        let struck = Instant::now();
        while struck.elapsed() < QUORUM_KNOWN_AFTER + BEFORE {
            let waits = |(name, status): &(&str, Option<HostStatus>)| {
                hosts.contains(name) && status.as_ref().is_some_and(|it| it.not_serving.is_some())
            };
            if !self.statuses().await.iter().any(waits) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether a write is acknowledged now that something was struck, and whether some host hears a quorum.
    async fn until_served(&self, watch: &Watch) -> (bool, bool) {
        let struck = Instant::now();
        while struck.elapsed() < RECOVERY_WITHIN {
            if watch.next_acknowledgement(BEFORE).await {
                return (true, true);
            }
            // Who hears whom is known a second later.
            let hears = |(_, status): &(_, Option<HostStatus>)| status.as_ref().is_some_and(|it| it.quorum);
            if struck.elapsed() > QUORUM_KNOWN_AFTER && !self.statuses().await.iter().any(hears) {
                return (false, false);
            }
        }
        (false, true)
    }

    pub(super) fn strike(&mut self, fault: &str, name: &'static str) -> Result<(), String> {
        let Some(member) = self.members.get_mut(name) else { return Ok(()) };
        match (fault, &member.running) {
            ("restart", None) => return self.start_host(name).map_err(|failure| failure.to_string()),
            ("restart", Some(_)) if member.paused => return Err(format!("{name} is paused; resume it")),
            ("restart", Some(_)) => return Ok(()),
            ("kill", _) => {
                if let Some(running) = member.running.take() {
                    running.host.kill().map_err(|error| error.to_string())?;
                }
                return Ok(());
            }
            ("heal", _) => {
                for member in self.members.values().filter_map(|member| member.running.as_ref()) {
                    for other in NAMES {
                        for direction in [Direction::To, Direction::From] {
                            member
                                .host
                                .handle()
                                .fault(kernel::HostId::named(other), LinkFault::Heal(direction));
                        }
                    }
                }
                return Ok(());
            }
            (_, None) => return Err(format!("{name} does not run; restart it")),
            ("pause", Some(running)) => {
                running.host.handle().pause();
                member.paused = true;
            }
            ("resume", Some(running)) => {
                running.host.handle().resume();
                member.paused = false;
            }
            ("partition", Some(running)) => {
                for other in NAMES.into_iter().filter(|other| *other != name) {
                    for direction in [Direction::To, Direction::From] {
                        running
                            .host
                            .handle()
                            .fault(kernel::HostId::named(other), LinkFault::Sever(direction));
                    }
                }
            }
            (other, Some(_)) => return Err(format!("no such fault: {other}")),
        }
        Ok(())
    }
}
