//! The whole service in memory: raw ZooKeeper bytes in, raw bytes out, with one shard and with four.

mod client;
mod driver;
mod quotas;
mod requests;
mod room;
mod sessions;
mod storm;
mod subtrees;
mod watches;
mod words;
