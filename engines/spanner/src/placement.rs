//! Which hosts hold which shard: alike wherever it is asked, and a host that comes or goes moves few shards.

use crate::txn::ShardId;
use kernel::HostId;
use paxos::Members;

/// The hosts that are to hold a shard, the one that is to lead it first. Each host draws by its own name and the shard's, and the highest
/// draws hold it (rendezvous). Who of them leads goes by the shard's number, so that the leaders are spread evenly.
pub fn placed(shard: ShardId, members: &Members, replicas: usize) -> Vec<HostId> {
    let mut drawn: Vec<(u64, HostId)> = members.ids().map(|host| (draw(shard, host), host)).collect();
    drawn.sort_unstable_by(|one, other| other.cmp(one));
    drawn.truncate(replicas.max(1));
    // In an order in which the list of members does not matter.
    let mut hosts: Vec<HostId> = drawn.into_iter().map(|(_, host)| host).collect();
    hosts.sort_unstable();
    let first = usize::from(shard.0) % hosts.len().max(1);
    hosts.rotate_left(first);
    hosts
}

/// What a host draws for a shard.
fn draw(shard: ShardId, host: HostId) -> u64 {
    let mut bytes = host.0.to_le_bytes().to_vec();
    bytes.extend(shard.0.to_le_bytes());
    let mixed = parts::digest(&bytes);
    // Neighbouring numbers must not draw alike.
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxos::HostEntry;
    use std::collections::BTreeMap;

    fn members(count: usize) -> Members {
        let entry = |at| HostEntry { name: format!("h{at}"), address: format!("h{at}:1") };
        Members { version: 1, hosts: (0..count).map(entry).collect() }
    }

    // A host that comes and takes half of all shards, or one that holds twice what others do, is no placement.
    #[test]
    fn shards_are_spread_and_few_move() {
        let (six, seven) = (members(6), members(7));
        let mut held: BTreeMap<HostId, usize> = BTreeMap::new();
        let mut led: BTreeMap<HostId, usize> = BTreeMap::new();
        let mut moved = 0;
        for shard in (0..256).map(ShardId) {
            let (before, after) = (placed(shard, &six, 3), placed(shard, &seven, 3));
            before.iter().for_each(|host| *held.entry(*host).or_default() += 1);
            *led.entry(before[0]).or_default() += 1;
            moved += after.iter().filter(|host| !before.contains(host)).count();
            assert!(before.len() == 3 && after.iter().filter(|host| before.contains(host)).count() >= 2);
        }
        // 256 shards, three replicas on six hosts: 128 each; the seventh takes 768 / 7 = 110 of them.
        assert!(held.len() == 6 && held.values().all(|count| (96..=160).contains(count)), "{held:?}");
        assert!(led.len() == 6 && led.values().all(|count| (26..=60).contains(count)), "{led:?}");
        assert!((80..=140).contains(&moved), "{moved}");
        assert_eq!(placed(ShardId(1), &members(3), 3).len(), 3);
        assert_eq!(placed(ShardId(1), &members(2), 3).len(), 2, "as many as there are");
    }

    // On three hosts each leads as many shards as the others.
    #[test]
    fn leaders_are_spread_evenly_where_all_hosts_hold_all() {
        let three = members(3);
        let first: Vec<HostId> = (0..3).map(|shard| placed(ShardId(shard), &three, 3)[0]).collect();
        assert!(three.ids().all(|host| first.contains(&host)), "{first:?}");
        let other_way = Members { hosts: three.hosts.iter().rev().cloned().collect(), ..three.clone() };
        assert_eq!(placed(ShardId(1), &three, 3), placed(ShardId(1), &other_way, 3));
    }
}
