//! Who may write over HTTP: programs, and no page that happens to be open in a browser on the same machine.

use crate::support::cluster::{Cluster, PATIENCE, free_address};
use crate::support::{browser, http, side_by_side};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const ALL: &str =
    "[coordination]\nengine = \"mason\"\nshards = 2\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1";

/// A request as it is, and the code of its answer.
fn raw(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, text)
}

fn request(method: &str, path: &str, host: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Every route that changes something.
const WRITES: &[(&str, &str)] = &[
    ("PUT", "/v1/kv/a"),
    ("POST", "/v1/kv/a"),
    ("DELETE", "/v1/kv/a"),
    ("POST", "/v1/kv"),
    ("PUT", "/v1/log/a"),
    ("POST", "/v1/log/a/append"),
    ("POST", "/v1/sequence/next"),
    ("POST", "/v1/txn"),
    ("POST", "/v1/txn/begin"),
    ("PUT", "/v1/zookeeper/proxies"),
    ("PUT", "/v1/zookeeper/shards"),
];

// A page of another origin writes by a form or by `fetch` without being asked; one whose name is made to point here reads as well.
#[test]
fn pages_of_other_origins_and_rebound_names_change_nothing() {
    side_by_side(async {
        let cluster = Cluster::start(1, ALL, "").await;
        let admin = cluster.hosts[0].admin;
        let own = admin.to_string();
        let rebound = format!("evil.example:{}", admin.port());
        for (method, path) in WRITES {
            for (more, code) in [
                ("Origin: http://evil.example\r\n", 403),
                ("Origin: null\r\n", 403),
                ("Sec-Fetch-Site: cross-site\r\n", 403),
                ("Sec-Fetch-Site: same-site\r\n", 403),
                ("Origin: http://127.0.0.1:1\r\nSec-Fetch-Site: same-site\r\n", 403),
                ("Referer: http://evil.example/\r\nContent-Type: text/plain\r\n", 415),
            ] {
                let answer = raw(admin, &request(method, path, &own, more, "x"));
                assert_eq!(answer.0, code, "{method} {path} {more}: {}", answer.1);
            }
            let answer = raw(admin, &request(method, path, &rebound, "", "x"));
            assert_eq!(answer.0, 421, "{method} {path}: {}", answer.1);
        }
        for path in ["/", "/v1/kv/a", "/v1/kv?limit=10", "/v1/status", "/metrics", "/commands/monitor"] {
            let answer = raw(admin, &request("GET", path, &rebound, "", ""));
            assert_eq!(answer.0, 421, "{path}: {}", answer.1);
            assert!(!answer.1.contains("ordinate_") && !answer.1.contains("real-"), "{}", answer.1);
        }
        assert_eq!(raw(admin, &request("GET", "/livez", &rebound, "", "")).0, 200, "a load balancer's name");
        let missing = cluster.page(0, "/v1/kv/a", 404).await.text();
        assert!(missing.contains("no such key"), "nothing was written: {missing}");
        // Programs, and this host's own page, go on as before.
        for more in ["", "Content-Type: application/x-www-form-urlencoded\r\n"] {
            assert_eq!(raw(admin, &request("PUT", "/v1/kv/b", &own, more, "x")).0, 200, "{more}");
        }
        let page = format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n");
        assert_eq!(raw(admin, &request("PUT", "/v1/kv/b", &own, &page, "x")).0, 200);
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        let counted = |reason: &str| {
            let name = format!("ordinate_admin_closes_total{{reason=\"{reason}\"}} ");
            metrics.lines().any(|line| line.starts_with(&name))
        };
        assert!(counted("a page of another origin") && counted("called by a foreign name"), "{metrics}");
    });
}

// What an operator calls must not be reached where applications are, and applications' data not where it was moved from.
#[test]
fn applications_have_a_port_of_their_own() {
    side_by_side(async {
        let mut cluster = Cluster::planned(1, ALL, "");
        let (http, admin) = (cluster.listen(0, "HTTP"), cluster.hosts[0].admin);
        cluster.launch_all();
        cluster.until_ready().await;
        let code = |address, method, path| http::ask(address, method, path, b"x").map(|answer| answer.code);
        assert_eq!(code(http, "PUT", "/v1/kv/a"), Some(200));
        assert_eq!(code(http, "GET", "/v1/kv/a"), Some(200));
        assert_eq!(code(http, "PUT", "/v1/log/l"), Some(201));
        let moved = http::ask(admin, "PUT", "/v1/kv/a", b"y").expect("an answer");
        assert!(moved.code == 404 && moved.text().contains(&http.to_string()), "{}", moved.text());
        for path in ["/v1/log/l", "/v1/sequence/next", "/v1/txn"] {
            assert_eq!(code(admin, "GET", path), Some(404), "{path}");
        }
        for path in ["/", "/v1/status", "/metrics", "/readyz", "/v1/zookeeper/shards", "/commands/monitor"] {
            assert_eq!(code(http, "GET", path), Some(404), "{path}");
            assert_eq!(code(admin, "GET", path), Some(200), "{path}");
        }
        let foreign = request("PUT", "/v1/kv/a", &http.to_string(), "Origin: http://evil.example\r\n", "z");
        assert_eq!(raw(http, &foreign).0, 403);
        assert!(cluster.log(0).contains(&format!("http        {http}")), "{}", cluster.log(0));
    });
}

// A port that is said to speak TLS and does not, or takes anybody's certificate, protects nothing.
#[test]
fn applications_are_served_with_tls() {
    side_by_side(async {
        let mut cluster = Cluster::planned(1, "", "");
        let folder = cluster.use_tls(&["--san", "127.0.0.1"]);
        let secure = cluster.listen(0, "HTTP_SECURE");
        cluster.launch_all();
        cluster.until_ready().await;
        let plain = raw(secure, &request("PUT", "/v1/kv/a", &secure.to_string(), "", "x"));
        assert!(plain.0 == 400 && plain.1.contains("TLS"), "{}", plain.1);
        let curl = |arguments: &[&str]| {
            let url = format!("https://{secure}/v1/kv/a");
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--output", "-", "--write-out", " %{http_code}"]);
            let file = |name: &str| folder.join(name).display().to_string();
            curl.args(["--cacert", &file("ca.pem")]).args(arguments).arg(url);
            curl.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let Some(refused) = curl(&["-X", "PUT", "-d", "x"]) else {
            return println!("SKIPPED: there is no curl");
        };
        assert!(refused.ends_with(" 000"), "without a certificate: {refused}");
        let (cert, key) = (folder.join("client.pem"), folder.join("client.key"));
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        let served = curl(&["-X", "PUT", "-d", "x", "--cert", &cert, "--key", &key]).expect("curl is there");
        assert!(served.ends_with(" 200"), "{served}");
    });
}

/// Serves a page to everybody who asks, for as long as the test runs.
fn serve_page(page: String) -> SocketAddr {
    let listener = TcpListener::bind(free_address()).expect("a free address");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let length = page.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

// Only a browser knows what browsers send.
#[test]
fn a_browser_writes_nothing_for_a_page_of_another_origin() {
    side_by_side(async {
        let cluster = Cluster::start(1, ALL, "").await;
        let admin = cluster.hosts[0].admin;
        // A form, a simple `fetch`, and one that has to ask before.
        let page = format!(
            "<form id=f method=post enctype=text/plain action=\"http://{admin}/v1/kv/form\" target=i>\
             <input name=a value=b></form><iframe name=i></iframe><script>\
             const send = (path, how) => fetch('http://{admin}' + path, how).catch(() => 0);\
             f.submit();\
             Promise.all([send('/v1/kv/simple', {{method: 'POST', mode: 'no-cors', body: '1'}}),\
             send('/v1/kv/asks', {{method: 'PUT', body: '1'}}),\
             send('/v1/txn', {{method: 'POST', mode: 'no-cors', body: '{{\"put\": {{\"a\": \"1\"}}}}'}})])\
             .then(() => document.title = 'done');</script>"
        );
        let address = serve_page(page);
        let profile = cluster.folder.join("browser");
        let Some(dom) = browser::dom(&format!("http://{address}/"), &profile) else { return };
        assert!(dom.contains("<title>done</title>"), "the page did its worst: {dom}");
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            for path in ["/v1/kv/form", "/v1/kv/simple", "/v1/kv/asks"] {
                assert_eq!(http::get(admin, path).map(|answer| answer.code), Some(404), "{path}");
            }
        }
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        assert!(metrics.contains("reason=\"a page of another origin\""), "it was asked at all");
    });
}
