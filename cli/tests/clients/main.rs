//! Compatibility. Of ZooKeeper's protocol: the official clients, kazoo's own suite, and a differential test against Apache
//! ZooKeeper. Of Kafka's: librdkafka and the official Java client; `ORDINATE_RECORDS` sets how many records they send.
//!
//! `scripts/clients.sh` installs what they need. A test whose peers are missing and cannot be installed says so and passes;
//! with `ORDINATE_PEERS_REQUIRED` set it fails. `ORDINATE_OPERATIONS` sets the length of the differential test,
//! `ORDINATE_SEED` its seed, `ORDINATE_DIFFERENCES` how many differences it looks for, each from an empty start, `ORDINATE_KAZOO_ONLY` which of kazoo's tests run (`.` for all).
#![forbid(unsafe_code)]

mod bring;
mod differential;
mod generate;
mod kafka;
mod peers;
mod python;
mod suites;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod tokens;
