//! Backups in a bucket of a server that speaks S3's protocol.

use crate::support::bucket::Bucket;
use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::{Client, Level};
use std::process::Command;

const TO: &str = "s3://bucket/prod/backups";

/// Runs `ordinate` with the bucket's credentials, and other variables.
async fn ordinate(
    cluster: &Cluster,
    bucket: &Bucket,
    more: &[(&str, &str)],
    words: &[&str],
) -> (bool, String) {
    let mut command = Command::new(ORDINATE);
    command.args(words).envs(bucket.environment()).envs(more.iter().copied());
    command.env("ORDINATE_ENDPOINTS", cluster.endpoints_from(0).join(","));
    command.env("ORDINATE_ADMIN", cluster.hosts[0].admin.to_string());
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let ended = ended.expect("it does not panic").expect("the binary under test runs");
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn done(cluster: &Cluster, bucket: &Bucket, words: &[&str]) -> String {
    let (well, said) = ordinate(cluster, bucket, &[], words).await;
    assert!(well, "ordinate {words:?}: {said}\n{}", cluster.logs());
    said
}

async fn write(cluster: &Cluster, from: u64, to: u64) {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    for number in from..to {
        client
            .put(format!("key/{number:05}"), vec![b'0' + (number % 10) as u8; 1_000])
            .await
            .expect("a write");
    }
}

// A bucket is where most backups go: one that writes what it cannot list, read or remove there is found out on the worst day.
#[test]
fn a_backup_goes_to_a_bucket_and_comes_back() {
    side_by_side(async {
        let bucket = Bucket::start().await;
        let cluster = Cluster::start(1, "", "").await;
        write(&cluster, 0, 600).await;
        done(&cluster, &bucket, &["backup", "--to", TO]).await;
        let first = bucket.names().len();
        assert!(
            first > 5 && bucket.names().iter().all(|name| name.starts_with("prod/backups/")),
            "{:?}",
            bucket.names()
        );
        write(&cluster, 600, 620).await;
        let second = done(&cluster, &bucket, &["backup", "--to", TO]).await;
        assert!(bucket.names().len() < first + 5, "what was there is not written again: {second}");
        assert_eq!(done(&cluster, &bucket, &["backup", "list", "--to", TO]).await.lines().count(), 2);
        assert!(
            done(&cluster, &bucket, &["backup", "verify", "--to", TO]).await.contains("is sound: 620 keys")
        );
        let said = done(&cluster, &bucket, &["backup", "prune", "--keep", "1", "--to", TO]).await;
        assert!(said.starts_with("removed 1 backups and "), "{said}");
        let left = bucket.names();
        assert!(
            left.iter().all(|name| name.contains("/chunks/") || name.contains("/manifests/")),
            "{left:?}"
        );

        let other = Cluster::start(1, "", "").await;
        done(&other, &bucket, &["restore", "--from", TO]).await;
        let client = Client::connect(other.endpoints_from(0)).with_timeout(PATIENCE);
        let page = client.scan("", None, 10_000, Level::Linearizable).await.expect("a scan");
        let restored = page.items.iter().enumerate().all(|(number, item)| {
            item.key.to_vec() == format!("key/{number:05}").into_bytes()
                && item.versioned.value.to_vec() == vec![b'0' + (number % 10) as u8; 1_000]
        });
        assert!(restored && page.items.len() == 620, "{}", page.items.len());

        // What is wrong is said: credentials, a bucket that fails, damage.
        let (well, said) =
            ordinate(&cluster, &bucket, &[("AWS_ACCESS_KEY_ID", "other")], &["backup", "--to", TO]).await;
        assert!(!well && said.contains("error[O1040]") && said.contains("InvalidAccessKeyId"), "{said}");
        assert!(bucket.refused() > 0);
        let chunk = left.iter().find(|name| name.contains("/chunks/")).expect("a chunk");
        bucket.damage(chunk);
        let (well, said) = ordinate(&other, &bucket, &[], &["backup", "verify", "--to", TO]).await;
        let digest = chunk.rsplit('/').next().expect("a name");
        assert!(!well && said.contains("error[O1041]") && said.contains(digest), "{said}");
        bucket.set_failing(true);
        let (well, said) = ordinate(&cluster, &bucket, &[], &["backup", "--to", TO]).await;
        assert!(!well && said.contains("error[O1040]"), "{said}");
    });
}

// A schedule whose backups fail for a while must say so, and take them again by itself.
#[test]
fn a_schedule_writes_to_a_bucket() {
    side_by_side(async {
        let bucket = Bucket::start().await;
        let mut cluster =
            Cluster::named("bucket", 3, |_| format!("[backup]\nto = \"{TO}\"\nevery = \"2s\"\nkeep = 2\n"));
        for host in 0..3 {
            for (name, value) in bucket.environment() {
                cluster.set_environment(host, &name, &value);
            }
        }
        cluster.launch_all();
        cluster.until_ready().await;
        write(&cluster, 0, 20).await;
        let taken = |it: &Cluster| -> usize {
            (0..3).map(|host| it.log(host).matches(" backup: backup ").count()).sum()
        };
        cluster.until("some are taken", PATIENCE, |it| taken(it) >= 4).await;
        let manifests = bucket.names().iter().filter(|name| name.contains("/manifests/")).count();
        assert!((1..=3).contains(&manifests), "{manifests} are retained");
        let listed = done(&cluster, &bucket, &["backup", "list", "--to", TO]).await;
        assert!(listed.contains("20 keys"), "{listed}");
        bucket.set_failing(true);
        cluster
            .until("the failure is said", PATIENCE, |it| {
                (0..3).any(|host| it.log(host).contains("no backup was taken"))
            })
            .await;
    });
}
