//! Partitions in one direction and hangs, in network namespaces of the test's own.

use crate::cluster::{Cluster, PATIENCE};
use crate::failover::clients;
use crate::load::Load;
use std::net::SocketAddr;
use std::process::Command;

fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// One namespace a host, all on one bridge; the test itself is on it, too. Dropping it removes everything.
struct Network {
    id: String,
    hosts: usize,
}

impl Network {
    /// None if this user or machine cannot make one.
    fn new(hosts: usize) -> Option<Self> {
        let network = Self { id: format!("o{}", std::process::id() % 100_000), hosts };
        let id = &network.id;
        let mut made = ip(&format!("link add {id}br type bridge"))
            && ip(&format!("addr add {}/24 dev {id}br", network.address(254)))
            && ip(&format!("link set {id}br up"));
        for host in 0..hosts {
            let (space, inside, outside) =
                (network.space(host), format!("{id}i{host}"), format!("{id}o{host}"));
            made = made
                && ip(&format!("netns add {space}"))
                && ip(&format!("link add {outside} type veth peer name {inside} netns {space}"))
                && ip(&format!("link set {outside} master {id}br up"))
                && ip(&format!("-n {space} addr add {}/24 dev {inside}", network.address(host + 1)))
                && ip(&format!("-n {space} link set {inside} up"))
                && ip(&format!("-n {space} link set lo up"));
        }
        made.then_some(network)
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.id)
    }

    fn address(&self, last: usize) -> String {
        format!("10.213.{}.{last}", std::process::id() % 250)
    }

    /// What `from` sends to `to` is lost without a word from now on: it goes to a station that is not there.
    fn cut(&self, from: usize, to: usize) {
        let (space, to) = (self.space(from), self.address(to + 1));
        let dev = format!("{}i{from}", self.id);
        let done =
            ip(&format!("-n {space} neigh replace {to} lladdr 02:00:00:00:00:99 dev {dev} nud permanent"));
        assert!(done, "cut {from} -> {to}");
    }

    fn heal(&self, from: usize, to: usize) {
        let (space, to) = (self.space(from), self.address(to + 1));
        assert!(ip(&format!("-n {space} neigh del {to} dev {}i{from}", self.id)), "heal {from} -> {to}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            ip(&format!("netns del {}", self.space(host)));
        }
        ip(&format!("link del {}br", self.id));
    }
}

// A leader that is heard but does not hear, or hears but is not heard, keeps others from leading without being able to lead.
#[test]
fn one_way_partitions_and_hangs_of_the_leader_are_survived() {
    crate::alone(async {
        let Some(network) = Network::new(3) else {
            println!("SKIPPED: network namespaces need root and iproute2 (scripts/test-tools.sh)");
            return;
        };
        let mut cluster = Cluster::planned(3, "", "");
        for host in 0..3 {
            let address = |port: u16| -> SocketAddr {
                format!("{}:{port}", network.address(host + 1)).parse().expect("an address")
            };
            let it = &mut cluster.hosts[host];
            (it.peer, it.native, it.admin) = (address(7072), address(7071), address(7070));
            cluster.set_wrapper(host, &["ip", "netns", "exec", &network.space(host)]);
        }
        cluster.write_file();
        cluster.launch_all();
        cluster.until_ready().await;
        let load = Load::start("partition", clients(&cluster, 6));
        load.until_acknowledged(100, PATIENCE).await;
        let mut gaps = Vec::new();
        for what in [
            "the leader is not heard",
            "the leader does not hear",
            "the leader is cut off",
            "the leader hangs",
        ] {
            let leader = cluster.leader().await;
            let others = || (0..3).filter(|&host| host != leader);
            let struck_at = load.now();
            let sends = ["the leader is not heard", "the leader is cut off"].contains(&what);
            let hears = ["the leader does not hear", "the leader is cut off"].contains(&what);
            others().filter(|_| sends).for_each(|other| network.cut(leader, other));
            others().filter(|_| hears).for_each(|other| network.cut(other, leader));
            if what == "the leader hangs" {
                cluster.signal(leader, "-STOP");
            }
            load.until_everybody_is_served(struck_at, PATIENCE).await;
            load.until_acknowledged(60, PATIENCE).await;
            gaps.push((what, load.longest_gap_after(struck_at)));
            others().filter(|_| sends).for_each(|other| network.heal(leader, other));
            others().filter(|_| hears).for_each(|other| network.heal(other, leader));
            if what == "the leader hangs" {
                cluster.signal(leader, "-CONT");
            }
            cluster.until_ready().await;
            load.until_acknowledged(100, PATIENCE).await;
        }
        let verdict = load.finish().await;
        let shown: Vec<String> =
            gaps.iter().map(|(what, gap)| format!("{what}: {:.0} ms", gap.as_secs_f64() * 1e3)).collect();
        println!(
            "partitions, longest time without an acknowledged write: {}; {} operations, linearizable; errors: {:?}",
            shown.join(", "),
            verdict.answered,
            verdict.errors
        );
    });
}
