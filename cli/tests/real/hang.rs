//! Users of a host that hangs: its connections stay open, and nothing comes back.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use ordinate_client::{CallError, Log, LogError, Sequence, TxnClient, TxnLevel};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = 2\n\
                        [log]\nspaces = 1\n[sequence]\nspaces = [\"ids\"]";

/// What a call has from a client that stays; less than that shows that it turned to another host.
const TIMEOUT: Duration = Duration::from_secs(20);
/// What we claim: 1.5 s until a host is known to hang, and what the other hosts take to go on without it.
const LEFT_WITHIN: Duration = Duration::from_secs(6);

// A client that stays with a host that hangs has each call time out, for as long as the host hangs.
#[test]
fn users_of_a_host_that_hangs_turn_to_another() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts = || cluster.endpoints_from(0);
        let txn = TxnClient::connect(hosts()).with_timeout(TIMEOUT);
        let log = Log::connect(hosts()).with_timeout(TIMEOUT);
        let sequence = Sequence::connect(hosts()).with_timeout(TIMEOUT);
        txn.one_shot().put("key", "before").run().await.expect("all hosts are up");
        log.create("jobs", 1 << 20, None).await.expect("all hosts are up");
        log.append("jobs", ["before"].into_iter().collect()).await.expect("all hosts are up");
        sequence.next(&["ids"], b"").await.expect("all hosts are up");

        cluster.signal(0, "-STOP");
        let begun = Instant::now();
        let (read, one_shot, append, stat, number) = tokio::join!(
            txn.read(TxnLevel::Strict).keys(["key"]).run(),
            txn.one_shot().put("key", "meanwhile").run(),
            log.append("jobs", ["meanwhile"].into_iter().collect()),
            log.describe("jobs"),
            sequence.next(&["ids"], b""),
        );
        let took = begun.elapsed();
        // What may be sent again was; what may not is answered at once, and the next goes to another host.
        assert_eq!(read.expect("it was sent again").rows.len(), 1);
        one_shot.expect("it was sent again");
        stat.expect("it was sent again");
        // A client to which the host was too slow at first is at another one, and answered there.
        assert!(matches!(append, Ok(_) | Err(LogError::Call(CallError::MaybeExecuted))), "{append:?}");
        assert!(matches!(number, Ok(_) | Err(CallError::MaybeExecuted)), "{number:?}");
        assert!(took < LEFT_WITHIN, "{took:?}");
        log.append("jobs", ["after"].into_iter().collect()).await.expect("two hosts are up");
        sequence.next(&["ids"], b"").await.expect("two hosts are up");
        println!("users of a host that hangs were answered after {took:?}");
        cluster.signal(0, "-CONT");
        cluster.until("the host goes on", PATIENCE, |it| it.is_ready(0)).await;
    });
}

// A user who waits, and a log that says nothing of it: the operator hears of it from the user.
#[test]
fn slow_calls_are_named_in_the_log() {
    side_by_side(async {
        let cluster = Cluster::start(3, "", "").await;
        let admin = cluster.hosts[0].admin;
        let put = move || http::ask(admin, "PUT", "/v1/kv/key", b"value").map(|answer| answer.code);
        assert_eq!(put(), Some(200));
        [1, 2].into_iter().for_each(|host| cluster.signal(host, "-STOP"));
        // A thread that runs stops a little later.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let slow = tokio::task::spawn_blocking(put);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        [1, 2].into_iter().for_each(|host| cluster.signal(host, "-CONT"));
        assert_eq!(slow.await.expect("it does not panic"), Some(200));
        let names = |it: &Cluster| it.log(0).contains("calls were slow: 1 of kv ");
        cluster.until("the log names it", PATIENCE, names).await;
    });
}
