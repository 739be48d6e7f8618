//! Maps over a partially ordered log (the paper's section 4): each process has a view in memory, which nodes of colours make; a change is
//! a node.
//!
//! | map | colours | consistency |
//! | --- | --- | --- |
//! | [`ShardedMap::log_map`] (LogMap) | one | linearizable |
//! | [`ShardedMap`] | one a shard | linearizable |
//! | [`AtomicMap`] | one a shard; a change in several | serializable |
//! | [`TxMap`] | one a shard; transactions in several | strictly serializable |
//! | [`CrdtMap`] | one | causal, convergent |
//! | [`TxCrdtMap`] | one a shard; a change in several | the same, and a change is seen as a whole |
//! | [`RedBlueMap`] | one, in several regions | causal; takings are in one order, and no balance is below 0 |
//! | [`CapMap`] | one, in several regions | linearizable; causal where the primary region does not answer |
//! | [`CopsMap`] | one a shard, in several regions | causal over all keys, convergent, for contexts that users carry |
//!
//! Each has scans of its keys ([`MapScan`]), and [`MapCatalogue`] says which maps hosts serve, makes them and removes them.
//!
//! A view of all of a log needs all of it. So `store_views`, which each map has, stores views in the log and trims behind them; who finds
//! nodes trimmed goes on from the last view. The view of the colour `m` is in the colour `m.view`, which must be nobody else's.

mod atomic_map;
mod cap_map;
mod cap_view;
mod catalogue;
mod cops_map;
mod cops_view;
mod crdt_map;
mod log;
mod log_map;
mod memory;
mod named;
mod red_blue_map;
mod regions;
mod scan;
mod shard;
mod stored;
mod tx_crdt_map;
mod tx_map;
mod tx_view;

pub use atomic_map::AtomicMap;
pub use cap_map::{CapMap, CapOrder, CapStatus};
pub use cap_view::{CapJoin, CapNode, CapPut, CapView};
pub use catalogue::{
    MAPS_MAX, MapCatalogue, MapEntry, MapMade, MapNames, NotCreated, NotRemoved, check_map_name,
};
pub use cops_map::CopsMap;
pub use cops_view::{CopsChange, CopsContext, CopsView, ShardPast};
pub use crdt_map::{CrdtMap, KeyChange, NamedChange, ObservedKeys, ObservedPuts, PutTag};
pub use log::{MapLog, MapPage};
pub use log_map::{LatestValues, MapChange, ShardedMap};
pub use memory::MapMemory;
pub use named::{ChangeName, ChangeNames, NamePast, StoredNames};
pub use red_blue_map::{AddAmount, BalanceNode, Balances, RedBlueMap, TakeAmount};
pub use regions::{PrimaryRegion, RegionLog};
pub use scan::{MapKeys, MapScan, MapScanPoint};
pub use shard::{MapShard, MapView, ShardPlayed};
pub use stored::{StoreError, StoredView, ViewBegun, ViewChunk, ViewLimits, ViewNode, ViewStored};
pub use tx_crdt_map::{NamedShardChange, ObservedChanges, ShardChange, TxCrdtMap};
pub use tx_map::{MapTransaction, TxMap};
pub use tx_view::{Decision, Intention, MapTxn, TxNode, TxView};

use kernel::Bytes;

/// Where a key is: the same in every process, and for good (FNV-1a).
fn key_hash(key: &str) -> u32 {
    key.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Distinguishes what is not the same (FNV-1a, 64 bits).
fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What an entry takes in memory, about: with its part of a tree, and what two pieces of memory take beside their bytes.
pub fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    ENTRY_BYTES + key.len() + value.len()
}

const ENTRY_BYTES: usize = 128;

/// A copy that does not hold the page in memory that it came with.
fn detached(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
