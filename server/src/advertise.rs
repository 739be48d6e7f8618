//! Tells the coordination service where this host's gateway is to be reached: users read it from `/zookeeper/config`.

use crate::family::{Node, Request};
use coordination::wire::Body;
use kernel::HostId;
use mason::Deployment;
use runtime::HostHandle;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// It is said again so often: a superuser may have written something else.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What one host says.
pub struct Advertised {
    host: String,
    listen: SocketAddr,
    said: Option<(Instant, Vec<u8>)>,
}

impl Advertised {
    /// For the gateway that listens there.
    pub fn new(host: &str, listen: SocketAddr) -> Self {
        Self { host: host.to_owned(), listen, said: None }
    }

    /// Says it if it is another than before, or was said long ago; `members` are the addresses at which hosts are reached by others.
    pub fn say(&mut self, handle: &HostHandle<Node>, members: &BTreeMap<String, String>, now: Instant) {
        let Some(line) = members.get(&self.host).and_then(|peer| line(peer, self.listen)) else { return };
        let id = HostId::named(&self.host).0;
        let members = members.keys().map(|name| HostId::named(name).0).collect();
        let said = Body::Advertise { host: id, line: &line, members }.written();
        let again = |(at, before): &(Instant, Vec<u8>)| *before != said || now - *at >= AGAIN_AFTER;
        if self.said.as_ref().is_none_or(again) {
            let gateway = Deployment::gateway(HostId::named(&self.host)).place();
            drop(handle.request(gateway, Request::Advertise(said.clone().into())));
            self.said = Some((now, said));
        }
    }
}

/// What ZooKeeper writes behind `server.1=`: where peers find the host, twice, and where clients do.
fn line(peer: &str, listen: SocketAddr) -> Option<String> {
    let (host, port) = peer.rsplit_once(':')?;
    let client = if listen.ip().is_unspecified() { host.to_owned() } else { bracketed(listen) };
    Some(format!("{host}:{port}:{port}:participant;{client}:{}", listen.port()))
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

    // Clients that are told 0.0.0.0 connect to themselves.
    #[test]
    fn an_unspecified_address_is_the_hosts() {
        let at = |listen: &str| line("zk1.example:7072", listen.parse().expect("an address"));
        assert_eq!(at("0.0.0.0:2181").as_deref(), Some("zk1.example:7072:7072:participant;zk1.example:2181"));
        assert_eq!(at("[::1]:2182").as_deref(), Some("zk1.example:7072:7072:participant;[::1]:2182"));
    }
}
