//! Access control: identities by operations by ports, each with the protocol's own error; and a file that changes beneath them.

use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::raw::{Raw, word};
use crate::support::zookeeper::{create_body, read_body, session, set_body};
use crate::support::{http, kafka as kafka_client, side_by_side};
use coordination::wire::{JuteOutput as _, op};
use ordinate_client::{AccessToken, CallError, Client, Credentials, Level, Log, LogError, Rows};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ALL: &str = "[coordination]\nengine = \"mason\"\nshards = 2\n[log]\nspaces = 1\n[sequence]\n\
                   spaces = [\"s\", \"t\"]\n[txn]\nshards = 1\n[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"";
/// Every identity of the matrix, with what it is granted. The first has no proof.
const IDENTITIES: &[(&str, &[&str])] = &[
    ("nobody", &[]),
    ("reader", &["read kv a/*", "read txn a/*", "read log a-*", "read coordination /a", "read group g"]),
    (
        "writer",
        &[
            "read,write kv a/*",
            "read,write txn a/*",
            "read,write log a-*",
            "read,write coordination /a",
            "write sequence s",
        ],
    ),
    ("data", &["all * *"]),
    ("operator", &["all cluster"]),
];
/// What is tried, and which identities may.
const OPERATIONS: &[(Operation, &[&str])] = &[
    (Operation::Read("a"), &["reader", "writer", "data"]),
    (Operation::Write("a"), &["writer", "data"]),
    (Operation::Read("b"), &["data"]),
    (Operation::Write("b"), &["data"]),
    (Operation::Number("s"), &["writer", "data"]),
    (Operation::Number("t"), &["data"]),
    (Operation::Operate, &["operator"]),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Read(&'static str),
    Write(&'static str),
    Number(&'static str),
    Operate,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Served,
    /// By the port's own error.
    Refused,
}

struct Stage {
    cluster: Cluster,
    file: PathBuf,
    zookeeper: SocketAddr,
    kafka: SocketAddr,
    tokens: Vec<Option<String>>,
}

pub(super) fn access(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new(ORDINATE).arg("access").args(arguments).arg("--file").arg(file).output();
    let output = output.expect("the binary under test runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A host with access control, whose logs, keys and nodes a root has made.
async fn start() -> Stage {
    let mut cluster = Cluster::planned(1, ALL, "");
    let file = cluster.folder.join("access.toml");
    let root = access(&file, &["init", "root"]);
    let mut tokens = Vec::new();
    for (name, grants) in IDENTITIES {
        if *name == "nobody" {
            tokens.push(None);
            continue;
        }
        let grants: Vec<&str> = grants.iter().flat_map(|grant| ["--grant", grant]).collect();
        tokens.push(Some(access(&file, &[&["add", name, "--with-token"], &grants[..]].concat())));
    }
    cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file.display().to_string());
    let (zookeeper, kafka) = (cluster.listen(0, "ZOOKEEPER"), cluster.listen(0, "KAFKA"));
    cluster.launch_all();
    cluster.until_ready().await;
    let stage = Stage { cluster, file, zookeeper, kafka, tokens };
    let log = Log::connect_as(stage.cluster.endpoints_from(0), credentials(Some(&root)));
    for name in ["a-1", "b-1"] {
        log.create(name, 1 << 20, None).await.expect("root may do everything");
    }
    let mut raw = stage.session(Some(("root", &root)));
    for path in ["/a", "/b"] {
        let made = raw.call(op::CREATE, &create_body(path, b"", 0)).expect("it is served");
        assert_eq!(made.error, 0, "{path}");
    }
    stage
}

pub(super) fn credentials(token: Option<&String>) -> Credentials {
    Credentials { tls: None, token: token.map(AccessToken::new) }
}

impl Stage {
    fn session(&self, who: Option<(&str, &str)>) -> Raw {
        let mut raw = session(self.zookeeper);
        if let Some((name, token)) = who {
            let mut body = Vec::new();
            body.put_i32(0);
            body.put_text("digest");
            body.put_buffer(Some(format!("{name}:{token}").as_bytes()));
            let reply = raw.call(op::AUTH, &body).expect("it is served");
            assert_eq!(reply.error, 0);
        }
        raw
    }

    async fn native(&self, who: usize, operation: Operation) -> Option<Outcome> {
        let client =
            Client::connect_as(self.cluster.endpoints_from(0), credentials(self.tokens[who].as_ref()));
        let client = client.with_timeout(PATIENCE);
        Some(match operation {
            Operation::Read(at) => of_call(client.get(format!("{at}/1"), Level::Linearizable).await),
            Operation::Write(at) => of_call(client.put(format!("{at}/1"), "x").await),
            Operation::Number(_) | Operation::Operate => return None,
        })
    }

    async fn native_log(&self, who: usize, operation: Operation) -> Option<Outcome> {
        let log = Log::connect_as(self.cluster.endpoints_from(0), credentials(self.tokens[who].as_ref()));
        let outcome = match operation {
            Operation::Read(at) => log.read(&format!("{at}-1"), 0, 1, Duration::ZERO).await.map(|_| ()),
            Operation::Write(at) => log.append(&format!("{at}-1"), rows()).await.map(|_| ()),
            Operation::Number(_) | Operation::Operate => return None,
        };
        Some(match outcome {
            Ok(()) => Outcome::Served,
            Err(LogError::Call(CallError::NotGranted)) => Outcome::Refused,
            Err(error) => panic!("{who} {operation:?}: {error}"),
        })
    }

    fn http(&self, who: usize, operation: Operation) -> Vec<Outcome> {
        let more = self.tokens[who].as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let more = more.unwrap_or_default();
        let numbers = |space: &str| json!({ "spaces": [space] }).to_string();
        let calls: Vec<(&str, String, String)> = match operation {
            Operation::Read(at) => vec![
                ("GET", format!("/v1/kv/{at}/1"), String::new()),
                ("GET", format!("/v1/kv?start={at}/&end={at}0"), String::new()),
                ("GET", format!("/v1/log/{at}-1"), String::new()),
                ("POST", "/v1/txn".to_owned(), json!({ "read": [format!("{at}/1")] }).to_string()),
                (
                    "POST",
                    "/v1/txn".to_owned(),
                    json!({ "scan": [{ "prefix": format!("{at}/") }] }).to_string(),
                ),
            ],
            Operation::Write(at) => vec![
                ("PUT", format!("/v1/kv/{at}/1"), "x".to_owned()),
                (
                    "POST",
                    "/v1/kv".to_owned(),
                    json!([{ "op": "delete", "key": format!("{at}/2") }]).to_string(),
                ),
                ("POST", format!("/v1/log/{at}-1/append"), "x".to_owned()),
                ("POST", "/v1/txn".to_owned(), json!({ "put": { format!("{at}/1"): "x" } }).to_string()),
            ],
            Operation::Number(space) => vec![("POST", "/v1/sequence/next".to_owned(), numbers(space))],
            Operation::Operate => vec![
                ("GET", "/v1/status".to_owned(), String::new()),
                ("GET", "/metrics".to_owned(), String::new()),
                ("GET", "/".to_owned(), String::new()),
                ("GET", "/commands/stats".to_owned(), String::new()),
                ("GET", "/v1/txn/transactions".to_owned(), String::new()),
                ("PUT", "/v1/zookeeper/shards".to_owned(), json!({ "shards": 2 }).to_string()),
            ],
        };
        let admin = self.cluster.hosts[0].admin;
        let outcome = |(method, path, body): (&str, String, String)| {
            let answer = http::ask_with(admin, method, &path, &more, body.as_bytes()).expect("it answers");
            let refused = if who == 0 { 401 } else { 403 };
            match answer.code {
                // A log or key that is not there was asked for all the same.
                200 | 404 => Outcome::Served,
                code if code == refused => {
                    assert!(answer.json()["error"].is_string(), "{}", answer.text());
                    Outcome::Refused
                }
                code => panic!("{who} {method} {path}: {code} {}", answer.text()),
            }
        };
        calls.into_iter().map(outcome).collect()
    }

    fn zookeeper(&self, who: usize, operation: Operation) -> Option<Outcome> {
        let mut raw =
            self.session(self.tokens[who].as_ref().map(|token| (IDENTITIES[who].0, token.as_str())));
        let reply = match operation {
            Operation::Read(at) => raw.call(op::GET_DATA, &read_body(&format!("/{at}"), false)),
            Operation::Write(at) => raw.call(op::SET_DATA, &set_body(&format!("/{at}"), b"x")),
            Operation::Number(_) | Operation::Operate => return None,
        };
        Some(match reply.expect("it is answered").error {
            0 => Outcome::Served,
            -102 => Outcome::Refused,
            code => panic!("{who} {operation:?}: {code}"),
        })
    }

    fn kafka(&self, who: usize, operation: Operation) -> Option<Outcome> {
        let mut client = kafka_client::Client::connect(self.kafka);
        if let Some(password) = PASSWORDS.get(who).filter(|_| who > 0) {
            assert!(client.log_in(IDENTITIES[who].0, password), "the password is right");
        }
        let code = match operation {
            Operation::Read(at) => client.fetch(&format!("{at}-1"))?.0,
            Operation::Write(at) => {
                client.produce(&format!("{at}-1"), &[kafka_client::record(b"x".to_vec())])?.0
            }
            Operation::Number(_) | Operation::Operate => return None,
        };
        Some(match code {
            0 => Outcome::Served,
            29 => Outcome::Refused,
            code => panic!("{who} {operation:?}: {code}"),
        })
    }
}

fn rows() -> Rows {
    let mut rows = Rows::default();
    rows.push(b"x");
    rows
}

/// By the index of the identity.
const PASSWORDS: &[&str] = &["", "read", "write", "data", "operate"];

fn of_call<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> Outcome {
    match outcome {
        Ok(_) => Outcome::Served,
        Err(CallError::NotGranted) => Outcome::Refused,
        Err(error) => panic!("{error}"),
    }
}

// An identity that gets at another's data at one port of five, or an error that its client does not know.
#[test]
fn each_identity_does_what_it_was_granted_at_each_port_and_nothing_else() {
    side_by_side(async {
        let stage = start().await;
        for (who, (name, _)) in IDENTITIES.iter().enumerate().skip(1) {
            let mut child = Command::new(ORDINATE);
            child.args(["access", "password", name, "--stdin", "--file"]).arg(&stage.file);
            let mut child = child.stdin(std::process::Stdio::piped()).spawn().expect("it runs");
            let mut stdin = child.stdin.take().expect("it is piped");
            std::io::Write::write_all(&mut stdin, PASSWORDS[who].as_bytes()).expect("it reads");
            drop(stdin);
            assert!(child.wait().is_ok_and(|status| status.success()));
        }
        let in_use = |cluster: &Cluster| cluster.log(0).matches("is in use as it is now").count() >= 1;
        stage.cluster.until("the passwords are taken over", PATIENCE, in_use).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut checked = 0;
        for (who, (name, _)) in IDENTITIES.iter().enumerate() {
            for (operation, may) in OPERATIONS {
                let wanted = if may.contains(name) { Outcome::Served } else { Outcome::Refused };
                let mut outcomes = vec![
                    ("native", stage.native(who, *operation).await),
                    ("native log", stage.native_log(who, *operation).await),
                    ("zookeeper", stage.zookeeper(who, *operation)),
                    ("kafka", stage.kafka(who, *operation)),
                ];
                outcomes.extend(stage.http(who, *operation).into_iter().map(|it| ("http", Some(it))));
                for (port, outcome) in outcomes {
                    let Some(outcome) = outcome else { continue };
                    assert_eq!(outcome, wanted, "{name} {operation:?} at {port}\n{}", stage.cluster.logs());
                    checked += 1;
                }
            }
        }
        assert!(checked > 150, "only {checked} were tried");
        // Health is for load balancers, words for operators, and neither lists nor scans go round what is granted.
        let admin = stage.cluster.hosts[0].admin;
        for (path, code) in [("/livez", 200), ("/readyz", 200), ("/v1/kv", 401), ("/v1/kv?start=a/", 401)] {
            assert_eq!(http::get(admin, path).map(|answer| answer.code), Some(code), "{path}");
        }
        assert_eq!(word(stage.zookeeper, "ruok").expect("it serves"), "imok");
        assert!(word(stage.zookeeper, "cons").expect("it serves").contains("not executed"));
        let said = stage.cluster.log(0);
        assert!(
            said.contains("access refused at native: somebody unknown of 127.0.0.1 may not read kv a/1"),
            "{said}"
        );
        assert!(
            said.contains("access refused at kafka: reader of 127.0.0.1 may not write log a-1"),
            "{said}"
        );
        let token = stage.tokens[4].as_ref().expect("the operator has one");
        let more = format!("Authorization: Bearer {token}\r\n");
        let metrics = http::ask_with(admin, "GET", "/metrics", &more, b"").expect("it answers").text();
        let counted = "ordinate_access_refused_total{port=\"kafka\",area=\"log\",right=\"write\",reason=\"not_granted\"}";
        assert!(metrics.contains(counted), "{metrics}");
        println!("{checked} combinations of identity, operation and port");
    });
}

// A token that is taken away opens doors where it is in use; or a wrong one waits for ever.
#[test]
fn tokens_are_rotated_and_revoked_without_a_restart() {
    side_by_side(async {
        let stage = start().await;
        let old = stage.tokens[2].clone().expect("the writer has one");
        let client = |token: &String| {
            let endpoints = stage.cluster.endpoints_from(0);
            Client::connect_as(endpoints, credentials(Some(token))).with_timeout(Duration::from_secs(3))
        };
        let before = client(&old);
        before.put("a/1", "x").await.expect("it was granted");
        let new = access(&stage.file, &["token", "writer"]);
        let deadline = Instant::now() + PATIENCE;
        while client(&new).put("a/1", "y").await.is_err() {
            assert!(Instant::now() < deadline, "the new token is not taken over\n{}", stage.cluster.logs());
        }
        before.put("a/1", "z").await.expect("the old one is good beside the new one");
        access(&stage.file, &["revoke", "writer"]);
        while before.put("a/1", "w").await != Err(CallError::NotGranted) {
            assert!(Instant::now() < deadline, "an open connection goes on\n{}", stage.cluster.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        match client(&new).get("a/1", Level::Linearizable).await {
            Err(CallError::TurnedAway { why, .. }) => assert!(why.contains("not known here"), "{why}"),
            other => panic!("{other:?}"),
        }
        // A broken file changes nothing, and says so.
        std::fs::write(&stage.file, "[identity.reader]\ngrants = [\"nonsense\"]\n").expect("it is writable");
        let said = |cluster: &Cluster| cluster.log(0).contains("cannot be used, and the one before holds");
        stage.cluster.until("the broken file is noticed", PATIENCE, said).await;
        let reader = client(stage.tokens[1].as_ref().expect("the reader has one"));
        reader.get("a/1", Level::Linearizable).await.expect("what was granted holds");
        // The command line.
        let token = stage.tokens[1].as_ref().expect("the reader has one");
        let refused = stage.cluster.ordinate(&["kv", "put", "a/1", "v", "--token", token]).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && text.contains("error[O1050]"), "{text}");
        let refused = stage.cluster.ordinate(&["status", "--token", token]).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("error[O1050]") && text.contains("reader was not granted this"), "{text}");
        let served = stage.cluster.ordinate(&["--token", token, "kv", "get", "a/1"]).await;
        assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    });
}
