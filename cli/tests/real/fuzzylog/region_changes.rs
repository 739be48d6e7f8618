//! A region that is added to a running cluster, and one that is removed.

use super::{nodes_of, post};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{alone, http};
use serde_json::{Value, json};

const SETTINGS: &str = "[fuzzylog]\npartitions = 1\n";
const TWO: &str = "[regions]\nohio = \"a,b\"\ntokyo = \"c\"\n";
const THREE: &str = "[regions]\nohio = \"a,b\"\ntokyo = \"c\"\nparis = \"d\"\n";
/// Another region, under the name of the first one.
const OTHER: &str = "[regions]\nohio = \"a,b\"\ntokyo = \"c\"\nparis = \"e\"\n";
const PARIS: usize = 3;
const BEFORE: &[usize] = &[0, 1, 2];
const ALL: &[usize] = &[0, 1, 2, PARIS];

/// Nodes of red, as a host shows them: where they are from, their numbers, their bodies.
fn red(cluster: &Cluster, host: usize) -> Vec<(String, u64, String)> {
    let address = cluster.hosts[host].admin;
    let first = trim(cluster, host, 0)["first"].as_u64().expect("a position");
    let text = |it: &Value| it.as_str().expect("text").to_owned();
    let nodes = nodes_of(address, "red", first);
    nodes
        .iter()
        .map(|it| (text(&it["region"]), it["number"].as_u64().expect("one"), text(&it["body"])))
        .collect()
}

fn append(cluster: &Cluster, host: usize, body: &str) {
    let answer =
        post(cluster.hosts[host].admin, "/v1/fuzzylog/append", &json!({ "colours": ["red"], "body": body }));
    let (code, answer) = answer.expect("an answer");
    assert_eq!(code, 200, "{answer}");
}

/// Drops what is before a position of a host's region.
fn trim(cluster: &Cluster, host: usize, before: u64) -> Value {
    let address = cluster.hosts[host].admin;
    let (_, snapshot) =
        post(address, "/v1/fuzzylog/snapshot", &json!({ "colours": ["red"] })).expect("an answer");
    let body = json!({ "before": before, "seen": snapshot["seen"] });
    let (code, answer) = post(address, "/v1/fuzzylog/colours/red/trim", &body).expect("an answer");
    assert_eq!(code, 200, "{answer}");
    answer
}

fn regions(cluster: &Cluster, host: usize) -> Value {
    http::ask(cluster.hosts[host].admin, "GET", "/v1/fuzzylog/regions", b"").expect("an answer").json()
}

/// What the region of a host says of all its heads, which may be at either host of Ohio.
fn in_ohio(cluster: &Cluster, what: impl Fn(&Value) -> bool) -> bool {
    [0, 1].into_iter().any(|host| what(&regions(cluster, host)))
}

/// Hosts 0 to 2 are started again one after the other, with these regions.
async fn started_again(cluster: &mut Cluster, hosts: &[usize], sections: &str) {
    for host in 0..3 {
        cluster.use_file(host, hosts, sections);
        cluster.kill(host);
        cluster.launch(host);
        let ready = |cluster: &Cluster| (0..3).all(|host| cluster.is_ready(host));
        cluster.until("the hosts are ready again", PATIENCE, ready).await;
    }
}

/// Three nodes of Ohio are in Tokyo, and the first two are trimmed.
async fn begun() -> Cluster {
    let mut cluster = Cluster::planned(5, SETTINGS, "");
    (0..3).for_each(|host| cluster.use_file(host, BEFORE, TWO));
    (0..3).for_each(|host| cluster.launch(host));
    let ready = |cluster: &Cluster| (0..3).all(|host| cluster.is_ready(host));
    cluster.until("both regions serve", PATIENCE, ready).await;
    ["one", "two", "three"].iter().for_each(|body| append(&cluster, 0, body));
    cluster.until("tokyo has them", PATIENCE, |cluster| red(cluster, 2).len() == 3).await;
    cluster.until("they are trimmed", PATIENCE, |cluster| trim(cluster, 0, 2)["first"] == 2).await;
    cluster
}

/// Paris is in the files, and begins a while later.
async fn paris_comes(cluster: &mut Cluster) {
    started_again(cluster, ALL, THREE).await;
    let lacks = |it: &Value| it["others"]["paris"]["lacks"]["0"].as_u64().is_some_and(|count| count > 0);
    cluster.until("paris lacks nodes", PATIENCE, |cluster| in_ohio(cluster, lacks)).await;
    assert_eq!(trim(cluster, 0, 3)["first"], 2, "the trim waits for paris");
    cluster.use_file(PARIS, ALL, THREE);
    cluster.launch(PARIS);
    cluster.until("paris serves", PATIENCE, |cluster| cluster.is_ready(PARIS)).await;
    let wanted = [("ohio".to_owned(), 2, "three".to_owned())];
    cluster.until("paris has what is left", PATIENCE, |cluster| red(cluster, PARIS) == wanted).await;
    cluster.until("the trim goes on", PATIENCE, |cluster| trim(cluster, 0, 3)["first"] == 3).await;
    let paris = regions(cluster, PARIS);
    assert_eq!(paris["others"]["ohio"]["trimmed_before"]["0"], 2, "{paris}");
    let said = |cluster: &Cluster| cluster.log(PARIS).contains("2 nodes of region ohio were trimmed before");
    cluster.until("the log of paris says it", PATIENCE, said).await;
    assert_eq!(paris["differing"], json!([]));
}

/// Paris has a node that all have, and leaves the files.
async fn paris_goes(cluster: &mut Cluster) {
    append(cluster, PARIS, "from paris");
    let is_paris = |it: &(String, u64, String)| *it == ("paris".to_owned(), 0, "from paris".to_owned());
    let has = |cluster: &Cluster, host| red(cluster, host).iter().any(is_paris);
    cluster.until("all have it", PATIENCE, |cluster| has(cluster, 0) && has(cluster, 2)).await;
    let is_drained = |cluster: &Cluster| {
        let others = &regions(cluster, PARIS)["others"];
        ["ohio", "tokyo"].iter().all(|other| others[other]["lacks"]["0"] == 0)
    };
    cluster.until("paris is drained", PATIENCE, is_drained).await;
    cluster.kill(PARIS);
    append(cluster, 0, "four");
    started_again(cluster, BEFORE, TWO).await;
    let removed = |it: &Value| it["removed"] == json!(["paris"]) && it["differing"] == json!([]);
    cluster.until("ohio has removed it", PATIENCE, |cluster| in_ohio(cluster, removed)).await;
    cluster.until("tokyo has removed it", PATIENCE, |cluster| removed(&regions(cluster, 2))).await;
    assert!(has(cluster, 0) && has(cluster, 2), "what they have stays, under its name");
    let tail = trim(cluster, 0, 0)["first"].as_u64().expect("one") + red(cluster, 0).len() as u64;
    cluster
        .until("trims wait for it no more", PATIENCE, |cluster| trim(cluster, 0, tail)["first"] == tail)
        .await;
}

// A region that is added lacks what others have, or they trim it; one that is removed is waited for, or its name is given to another.
#[test]
fn a_region_comes_and_goes() {
    alone(async {
        let mut cluster = begun().await;
        paris_comes(&mut cluster).await;
        paris_goes(&mut cluster).await;
        cluster.kill(0);
        cluster.use_file(0, &[0, 1, 2, 4], OTHER);
        let refused = cluster.refusal(0);
        assert!(refused.said.contains("O2119") && refused.said.contains("region paris"), "{}", refused.said);
        cluster.use_file(0, BEFORE, "");
        let refused = cluster.refusal(0);
        assert!(refused.said.contains("O2120") && refused.said.contains("was made with"), "{}", refused.said);
        // The region itself does not come back either.
        cluster.use_file(0, ALL, THREE);
        cluster.launch(0);
        let differs =
            |cluster: &Cluster| cluster.is_ready(0) && regions(cluster, 0)["differing"] == json!([0]);
        cluster.until("it has another file than its data", PATIENCE, differs).await;
        cluster.kill(0);
        cluster.use_file(0, BEFORE, TWO);
        cluster.launch(0);
        let is_same =
            |cluster: &Cluster| cluster.is_ready(0) && regions(cluster, 0)["differing"] == json!([]);
        cluster.until("it is as before", PATIENCE, is_same).await;
    });
}

// Data of a cluster without regions that are taken for a region's are mixed with what spans all its hosts.
#[test]
fn a_cluster_without_regions_gets_none() {
    alone(async {
        let mut cluster = Cluster::planned(2, SETTINGS, "");
        cluster.launch_all();
        cluster.until_ready().await;
        append(&cluster, 0, "one");
        cluster.kill_all();
        cluster.use_file(0, &[0, 1], "[regions]\nohio = \"a\"\ntokyo = \"b\"\n");
        let refused = cluster.refusal(0);
        assert!(
            refused.said.contains("O2120") && refused.said.contains("without [regions]"),
            "{}",
            refused.said
        );
        cluster.use_file(0, &[0, 1], "");
        (0..2).for_each(|host| cluster.launch(host));
        cluster.until_ready().await;
        let body = nodes_of(cluster.hosts[1].admin, "red", 0)[0]["body"].clone();
        assert_eq!(body, "one", "nothing has happened to it");
    });
}
