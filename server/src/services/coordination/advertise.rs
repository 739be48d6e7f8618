//! Gives the coordination service the address where this host's gateway is to be reached: users read it from `/zookeeper/config`.

use coordination::wire::Body;
use kernel::HostId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What one host says.
pub struct Advertised {
    host: String,
    listen: SocketAddr,
    /// Where clients reach it, where that is not where it listens.
    outside: Option<String>,
}

impl Advertised {
    /// For the gateway that listens there.
    pub fn new(host: &str, listen: SocketAddr, outside: Option<String>) -> Self {
        Self { host: host.to_owned(), listen, outside }
    }

    /// A `Body::Advertise` for the gateway; `members` are the addresses at which hosts are reached by others.
    pub fn operation(&self, members: &BTreeMap<String, String>) -> Option<Vec<u8>> {
        let line = self.line(members.get(&self.host)?)?;
        let id = HostId::named(&self.host).0;
        let members = members.keys().map(|name| HostId::named(name).0).collect();
        Some(Body::Advertise { host: id, line: &line, members }.written())
    }

    /// What ZooKeeper writes behind `server.1=`: where peers find the host, the port of its elections, and where clients
    /// find it. There are no elections; clients refuse a line whose first two ports are one, so the next one stands there.
    fn line(&self, peer: &str) -> Option<String> {
        let (host, port) = peer.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let election = if port == u16::MAX { port - 1 } else { port + 1 };
        let listen = self.listen;
        let client = match &self.outside {
            Some(address) => address.clone(),
            None if listen.ip().is_unspecified() => format!("{host}:{}", listen.port()),
            None => format!("{}:{}", bracketed(listen), listen.port()),
        };
        Some(format!("{host}:{port}:{election}:participant;{client}"))
    }
}

fn bracketed(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(listen: &str, outside: Option<&str>, peer: &str) -> Option<String> {
        let listen = listen.parse().expect("an address");
        Advertised::new("a", listen, outside.map(str::to_owned)).line(peer)
    }

    // Clients that receive 0.0.0.0 connect to themselves.
    #[test]
    fn an_unspecified_address_is_the_hosts() {
        let at = |listen| line(listen, None, "zk1.example:7072");
        assert_eq!(at("0.0.0.0:2181").as_deref(), Some("zk1.example:7072:7073:participant;zk1.example:2181"));
        assert_eq!(at("[::1]:2182").as_deref(), Some("zk1.example:7072:7073:participant;[::1]:2182"));
    }

    // Java's clients refuse a line with one port for both, and behind a gateway they need the outer address.
    #[test]
    fn the_ports_differ_and_the_outer_address_wins() {
        let last = line("0.0.0.0:2181", None, "zk1.example:65535");
        assert_eq!(last.as_deref(), Some("zk1.example:65535:65534:participant;zk1.example:2181"));
        let outer = line("10.0.0.7:2181", Some("zk.example.com:12181"), "zk1.example:7072");
        assert_eq!(outer.as_deref(), Some("zk1.example:7072:7073:participant;zk.example.com:12181"));
    }
}
