//! `/zookeeper/config`: where the gateways are to be reached, as ZooKeeper writes it. Clients may take their list of servers from it.

use crate::tree::Znodes;
use crate::tree::meta::Meta;
use crate::tree::transaction::{Change, following};
use crate::tree::watches::Notices;
use crate::wire::EventKind;
use mason::Order;
use std::collections::BTreeMap;

/// Where it is.
pub(crate) const CONFIG: &str = "/zookeeper/config";

/// The gateways' lines, by their hosts' numbers.
fn lines_of(data: &[u8]) -> BTreeMap<u32, &str> {
    let text = std::str::from_utf8(data).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.strip_prefix("server.")?.split_once('=')?;
            Some((number.parse().ok()?, rest))
        })
        .collect()
}

/// True if these data have a host's line, and no lines of hosts that are no members.
pub(crate) fn lists(data: &[u8], (host, line): (u32, &str), members: &[u32]) -> bool {
    let lines = lines_of(data);
    lines.get(&host) == Some(&line) && lines.keys().all(|number| *number == host || members.contains(number))
}

impl Znodes {
    /// Puts a gateway's line among the others, and drops those of hosts that are no members. Changes nothing where nothing is new.
    pub(crate) fn advertise(
        &mut self,
        (host, line): (u32, &str),
        members: &[u32],
        order: &Order,
        notices: &mut Notices,
    ) {
        let Some((index, _)) = self.table.find(CONFIG) else { return };
        let (Some(node), Some(before)) = (self.table.at(index), self.table.meta(CONFIG)) else { return };
        let data = node.data().unwrap_or_default();
        if lists(data, (host, line), members) {
            return;
        }
        let mut lines = lines_of(data);
        lines.retain(|number, _| members.contains(number));
        lines.insert(host, line);
        let mut text: String =
            lines.iter().map(|(number, line)| format!("server.{number}={line}\n")).collect();
        text.push_str(&format!("version={:x}", order.gsn.0));
        let after = Meta {
            version: following(before.version),
            mzxid: order.gsn.0,
            mtime: order.time,
            data_len: text.len() as u32,
            ..before.clone()
        };
        let change = Change {
            path: CONFIG.into(),
            event: Some(EventKind::DataChanged),
            before: Some(before),
            after: Some(after),
            data: Some(Some(text.as_bytes())),
            parent: None,
        };
        self.apply(&change, true, 0, notices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A line that is not understood must not take the others with it.
    #[test]
    fn lines_are_read_back() {
        let data = b"server.7=a:1:1:participant;a:2181\nserver.x=b\nversion=1f";
        assert_eq!(lines_of(data), [(7, "a:1:1:participant;a:2181")].into());
        assert!(lines_of(&[0xff]).is_empty());
    }
}
