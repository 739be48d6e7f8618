//! Hosts in network namespaces of the test's own, which can be partitioned from each other in either direction.

use crate::support::cluster::Cluster;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a host is partitioned from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Partition {
    /// It is not heard.
    Mute,
    /// It does not hear.
    Deaf,
    /// Neither.
    Off,
}

fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// One namespace a host, all on one bridge; the test itself is on it, too. Dropping it removes everything.
pub struct Network {
    id: String,
    subnet: u32,
    hosts: usize,
}

impl Network {
    /// None if this user or machine cannot make one.
    fn new(hosts: usize) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let id = format!("o{}{}", process % 10_000, char::from(b'a' + (number % 26) as u8));
        // Networks of one process, and of processes that were started together, have subnets of their own.
        let network = Self { id, subnet: (process % 25 * 10 + number) % 250, hosts };
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

    /// None, and a word to the reader of the output, where there can be none.
    pub fn or_skipped(hosts: usize) -> Option<Self> {
        let network = Self::new(hosts);
        if network.is_none() {
            println!("SKIPPED: network namespaces need root and iproute2 (scripts/test-tools.sh)");
        }
        network
    }

    /// Where a host serves `port`.
    pub fn address_of(&self, host: usize, port: u16) -> SocketAddr {
        format!("{}:{port}", self.address(host + 1)).parse().expect("an address")
    }

    /// Has every host of the cluster run in its namespace, with the addresses that it has there.
    pub fn take_in(&self, cluster: &mut Cluster) {
        for host in 0..self.hosts {
            let it = &mut cluster.hosts[host];
            (it.peer, it.native, it.admin) =
                (self.address_of(host, 7072), self.address_of(host, 7071), self.address_of(host, 7070));
            cluster.set_wrapper(host, &["ip", "netns", "exec", &self.space(host)]);
        }
        cluster.write_file();
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.id)
    }

    fn address(&self, last: usize) -> String {
        format!("10.213.{}.{last}", self.subnet)
    }

    /// What `from` sends to `to` is lost without a word from now on: it goes to a station that is not there.
    fn sever(&self, from: usize, to: usize) {
        let (space, to) = (self.space(from), self.address(to + 1));
        let dev = format!("{}i{from}", self.id);
        let done =
            ip(&format!("-n {space} neigh replace {to} lladdr 02:00:00:00:00:99 dev {dev} nud permanent"));
        assert!(done, "sever {from} -> {to}");
    }

    /// Every host loses so many of a hundred packets that other hosts send it, from now on; 0: none. False if nothing here can do that.
    pub fn lose(&self, percent: u32) -> bool {
        (0..self.hosts).all(|host| {
            let space = self.space(host);
            let nft = |rule: &str| {
                let arguments = ["netns", "exec", &space, "nft", rule];
                Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
            };
            let made = nft("add table inet loss; flush table inet loss")
                && nft("add chain inet loss input { type filter hook input priority 0; }");
            let drops = |port: &str| {
                nft(&format!(
                    "add rule inet loss input tcp {port} 7072 numgen random mod 100 < {percent} drop"
                ))
            };
            made && (percent == 0 || drops("sport") && drops("dport"))
        })
    }

    fn heal(&self, from: usize, to: usize) {
        let (space, to) = (self.space(from), self.address(to + 1));
        // Both ends of a way may have been struck: what is healed already is as good.
        let flushed = ip(&format!("-n {space} neigh flush to {to} dev {}i{from} nud permanent", self.id));
        assert!(flushed, "heal {from} -> {to}");
    }

    /// Partitions a host from the other hosts; its clients reach it all the same.
    pub fn strike(&self, host: usize, how: Partition) {
        self.each(host, how, Self::sever);
    }

    pub fn mend(&self, host: usize, how: Partition) {
        self.each(host, how, Self::heal);
    }

    fn each(&self, host: usize, how: Partition, act: impl Fn(&Self, usize, usize)) {
        for other in (0..self.hosts).filter(|&other| other != host) {
            if how != Partition::Deaf {
                act(self, host, other);
            }
            if how != Partition::Mute {
                act(self, other, host);
            }
        }
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
