//! The HTTP API as a stranger with a socket sees it.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http::{Answer, ask};
use crate::support::{browser, side_by_side};
use serde_json::json;
use std::net::SocketAddr;

/// What this call is answered, which has this code.
fn expect_of(admin: SocketAddr, method: &str, path: &str, body: &str, code: u16) -> Answer {
    let answer =
        ask(admin, method, path, body.as_bytes()).unwrap_or_else(|| panic!("{method} {path}: no answer"));
    assert_eq!(answer.code, code, "{method} {path}: {}", answer.text());
    answer
}

fn batches_and_scans(admin: SocketAddr) {
    let expect = |method: &str, path: &str, body: &str, code| expect_of(admin, method, path, body, code);
    // Batches are executed whole or not at all.
    let batch = r#"[{"op":"put","key":"s/a","value":"1"},{"op":"increment","key":"s/b","by":2}]"#;
    assert_eq!(expect("POST", "/v1/kv", batch, 200).json()["executed"], 2);
    let broken =
        r#"[{"op":"put","key":"s/c","value":"1"},{"op":"check","key":"s/a","version":999999,"value":"2"}]"#;
    assert_eq!(expect("POST", "/v1/kv", broken, 409).json()["index"], 1);
    expect("GET", "/v1/kv/s/c", "", 404);
    expect("POST", "/v1/kv", "not json", 400);
    expect("POST", "/v1/kv", r#"[{"op":"push","key":"x"}]"#, 400);

    // Scans.
    let page = expect("GET", "/v1/kv?start=s/&end=s0&limit=1", "", 200).json();
    assert_eq!((page["items"].as_array().map(Vec::len), page["next"].is_null()), (Some(1), false), "{page}");
    let rest = expect("GET", "/v1/kv?start=s/&end=s0", "", 200).json();
    assert_eq!(rest["items"][1]["value"], "2", "{rest}");
    assert!(rest["next"].is_null(), "{rest}");
    expect("GET", "/v1/kv?limit=many", "", 400);
    expect("GET", "/v1/kv/n?consistency=wishful", "", 400);
    let binary = ask(admin, "PUT", "/v1/kv/binary", &[0xff, 0xfe]).expect("an answer");
    assert_eq!(binary.code, 200);
    assert_eq!(expect("GET", "/v1/kv/binary", "", 200).json()["value_base64"], "//4=");
}

// A status code that says "not executed" of a write that was, or JSON that a client library cannot read.
#[test]
fn the_http_api_answers_as_documented() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        let admin = cluster.hosts[0].admin;
        let expect = |method: &str, path: &str, body: &str, code| expect_of(admin, method, path, body, code);
        let missing = expect("GET", "/v1/kv/city", "", 404).json();
        assert_eq!(missing["error"], "no such key");
        let version =
            expect("PUT", "/v1/kv/city", "Bern", 200).json()["version"].as_u64().expect("a version");
        assert_eq!(
            expect("GET", "/v1/kv/city", "", 200).json(),
            json!({"key": "city", "value": "Bern", "version": version})
        );
        let raw = expect("GET", "/v1/kv/city?raw", "", 200);
        assert_eq!(raw.text(), "Bern");
        assert!(raw.head.to_lowercase().contains(&format!("etag: {version}")), "{}", raw.head);

        // Compare-and-set.
        let conflict = expect("PUT", &format!("/v1/kv/city?if_version={}", version + 7), "Basel", 409).json();
        assert_eq!(conflict["found"]["value"], "Bern");
        expect("PUT", "/v1/kv/city?if_absent", "Basel", 409);
        expect("PUT", &format!("/v1/kv/city?if_version={version}"), "Basel", 200);
        expect("DELETE", &format!("/v1/kv/city?if_version={version}"), "", 409);
        expect("DELETE", "/v1/kv/city", "", 200);
        expect("GET", "/v1/kv/city?consistency=sequential", "", 404);

        // Numbers.
        assert_eq!(expect("POST", "/v1/kv/n?increment=5", "", 200).json()["number"], 5);
        assert_eq!(expect("POST", "/v1/kv/n?increment=-2", "", 200).json()["number"], 3);
        expect("PUT", "/v1/kv/word", "three", 200);
        expect("POST", "/v1/kv/word?increment=1", "", 400);
        expect("POST", "/v1/kv/n", "", 400);
        expect("POST", "/v1/kv/n?increment=lots", "", 400);

        batches_and_scans(admin);

        // Too large for a batch, and too large for HTTP.
        expect("PUT", "/v1/kv/large", &"x".repeat(300 << 10), 413);
        expect("GET", "/v1/kv/large", "", 404);
        expect("PUT", "/v1/kv/large", &"x".repeat(3 << 20), 413);
        let nowhere = expect("GET", "/nowhere", "", 404).json();
        assert_eq!(
            (&nowhere["error"], &nowhere["executed"]),
            (&json!("there is no /nowhere"), &json!(false))
        );
        let refused = expect("PATCH", "/v1/kv/n", "", 405);
        assert!(refused.head.to_lowercase().contains("\r\nallow: "), "{}", refused.head);
        assert_eq!(refused.json()["error"], "/v1/kv/n does not take PATCH");

        assert_eq!(expect("GET", "/healthz", "", 200).text(), "ok\n");
        assert_eq!(expect("GET", "/readyz", "", 200).text(), "ready\n");
        let status = expect("GET", "/v1/status", "", 200).json();
        assert_eq!((&status["host"], &status["acceptor"]), (&json!("a"), &json!("votes")), "{status}");
        assert_open_metrics(&expect("GET", "/metrics", "", 200));

        // Without a majority nothing is acknowledged; with it again, the host serves as before.
        cluster.kill(1);
        cluster.kill(2);
        let waits = ask(admin, "PUT", "/v1/kv/n", b"9").expect("an answer");
        assert_eq!(waits.code, 504, "{}", waits.text());
        cluster.launch(1);
        cluster.until("a is ready", PATIENCE, |it| it.is_ready(0)).await;
        cluster.page(0, "/healthz", 200).await;
        let served =
            |_: &Cluster| ask(admin, "PUT", "/v1/kv/n", b"10").is_some_and(|answer| answer.code == 200);
        cluster.until("a serves", PATIENCE, served).await;
    });
}

// A page that leaves a service out, or that says "does not answer" because a field has another name.
#[test]
fn the_page_shows_every_service() {
    side_by_side(async {
        let settings = "[coordination]\nengine = \"mason\"\nshards = 2\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1\n\
                        [txn]\nshards = 2\n[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[fuzzylog]\npartitions = 2";
        let cluster = Cluster::start(3, settings, "").await;
        let admin = cluster.hosts[0].admin;
        let put = ask(admin, "PUT", "/v1/kv/one", b"1").expect("an answer");
        assert_eq!(put.code, 200);
        let Some(dom) = browser::dom(&format!("http://{admin}/"), &cluster.folder.join("browser")) else {
            return;
        };
        assert!(dom.contains("✓ serving"), "{dom}");
        for service in ["coordination", "fuzzylog", "kv", "log", "sequence", "txn"] {
            let row =
                dom.split("<tr>").find(|row| row.starts_with(&format!("<th scope=\"row\">{service}</th>")));
            let row = row.unwrap_or_else(|| panic!("{service} is not there: {dom}"));
            assert!(row.contains("✓ served"), "{row}");
            assert!(!row.contains("NaN") && !row.contains("undefined"), "{row}");
        }
        assert!(dom.contains("1 key, "), "{dom}");
    });
}

/// Each line of the OpenMetrics text format: a comment of a known kind, or a sample with a number; `# EOF` at the end.
fn assert_open_metrics(answer: &Answer) {
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "no # EOF at the end");
    let mut samples = 0;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let kind = comment.split(' ').next().unwrap_or("");
            assert!(["TYPE", "HELP", "UNIT", "EOF"].contains(&kind), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let ours = name.starts_with("ordinate_") || name.starts_with("process_");
        assert!(ours && value.parse::<f64>().is_ok(), "{line}");
        assert_eq!(name.matches('{').count(), name.matches('}').count(), "{line}");
        samples += 1;
    }
    assert!(samples > 10, "{text}");
}
