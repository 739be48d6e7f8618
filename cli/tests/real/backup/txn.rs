//! Transactions in a backup: one timestamp of them.

use super::{count_of, done, manifest};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use crate::txn::SETTINGS;
use ordinate_client::{Timestamp, TxnClient, TxnError, TxnLevel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ACCOUNTS: u64 = 24;
const EACH: i64 = 100;
const WRITERS: u64 = 4;
/// Transfers that are answered before the backup begins.
const BEFORE: u64 = 40;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn account(number: u64) -> String {
    // The level that is distributed comes first: accounts are on all shards.
    format!("{}/account", number % ACCOUNTS)
}

fn value_of(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).expect("a number")
}

/// What a transfer of this writer does: from, to, how much.
fn transfer(writer: u64, number: u64) -> (String, String, i64) {
    let from = writer * 7 + number * 5;
    (account(from), account(from + 1 + number % (ACCOUNTS - 1)), 1 + (number % 9) as i64)
}

/// Transfers, and counts them in a key of its own, in the same transaction.
async fn write(client: TxnClient, writer: u64, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) {
    for number in 0.. {
        let body = |t: ordinate_client::Transaction| async move {
            let (from, to, amount) = transfer(writer, number);
            let (here, there) = (t.get(from.as_str()).await?, t.get(to.as_str()).await?);
            let balance =
                |found: Option<ordinate_client::Bytes>| value_of(&found.expect("accounts are never deleted"));
            t.put(from.as_str(), (balance(here) - amount).to_string());
            t.put(to.as_str(), (balance(there) + amount).to_string());
            t.put(format!("writer-{writer}/count"), (number + 1).to_string());
            Ok::<_, TxnError>(())
        };
        client.transaction(body).await.expect("a transfer");
        answered.store(number + 1, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

async fn state(cluster: &Cluster, level: TxnLevel) -> State {
    let client = TxnClient::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let found = client.read(level).scan("", 10_000).run().await.expect("a read");
    let rows = found.scans.into_iter().flat_map(|page| page.rows);
    rows.filter_map(|row| Some((row.key.to_vec(), row.value?.to_vec()))).collect()
}

/// The same transfers, carried out here: as many of each writer as a state says that it has.
fn replayed(state: &State) -> State {
    let mut balances: BTreeMap<String, i64> = (0..ACCOUNTS).map(|number| (account(number), EACH)).collect();
    let mut expected = State::new();
    for writer in 0..WRITERS {
        let name = format!("writer-{writer}/count");
        let count = value_of(&state[name.as_bytes()]);
        for number in 0..count as u64 {
            let (from, to, amount) = transfer(writer, number);
            *balances.get_mut(&from).expect("an account") -= amount;
            *balances.get_mut(&to).expect("an account") += amount;
        }
        expected.insert(name.into_bytes(), count.to_string().into_bytes());
    }
    expected.extend(balances.into_iter().map(|(key, sum)| (key.into_bytes(), sum.to_string().into_bytes())));
    expected
}

// A backup with half of a transfer, without one that was answered, or of several moments restores money that never was.
#[test]
fn transactions_come_back_as_of_one_timestamp() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let client = TxnClient::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
        let session = client.session();
        let mut opening = session.one_shot();
        for number in 0..ACCOUNTS {
            opening = opening.put(account(number), EACH.to_string());
        }
        opening.run().await.expect("accounts are opened");
        let stop = Arc::new(AtomicBool::new(false));
        let answered: Vec<_> = (0..WRITERS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let writers: Vec<_> = (0..WRITERS)
            .zip(&answered)
            .map(|(writer, answered)| {
                let client =
                    TxnClient::connect(cluster.endpoints_from(writer as usize)).with_timeout(PATIENCE);
                tokio::spawn(write(client, writer, Arc::clone(&stop), Arc::clone(answered)))
            })
            .collect();
        let counts = || -> Vec<u64> { answered.iter().map(|it| it.load(Ordering::SeqCst)).collect() };
        cluster.until("the writers are at it", PATIENCE, |_| counts().iter().all(|it| *it >= BEFORE)).await;
        let (before, folder) = (counts(), cluster.folder.join("backups"));
        let to = folder.display().to_string();
        println!("{}", done(&cluster, &["backup", "--to", &to]).await);
        let behind = counts();
        assert!(behind > before, "nothing was written meanwhile: {before:?}, {behind:?}");
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.expect("it ends well");
        }
        let saved = manifest(&folder);
        assert_eq!(count_of(&saved, "txn"), ACCOUNTS + WRITERS);
        let at = Timestamp(saved["txn"]["at"].as_u64().expect("a timestamp"));

        let other = SETTINGS.replace("shards = 4", "shards = 2");
        let small = Cluster::start(1, &other, "").await;
        println!("{}", done(&small, &["restore", "--from", &to]).await);
        let restored = state(&small, TxnLevel::Strict).await;
        assert_eq!(restored, state(&cluster, TxnLevel::At(at)).await, "the state at {at:?}");
        assert_eq!(restored, replayed(&restored), "whole transfers alone");
        for (writer, before) in before.into_iter().enumerate() {
            let count = value_of(&restored[format!("writer-{writer}/count").as_bytes()]);
            assert!(before <= count as u64, "{before} transfers were answered, {count} are there");
        }
        // A cluster that has some is not mixed with them.
        let (well, refused) = super::run(&small, &["restore", "--from", &to]).await;
        assert!(!well && refused.contains("O1043"), "{refused}");
    });
}
