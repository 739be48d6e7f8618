//! `docs/openapi.json` says what a host answers: every route of the source is in it, and every call in it is made here, as its examples
//! say, and answered as it says.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http::{Answer, ask};
use crate::support::side_by_side;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];
const SETTINGS: &str = "[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = 2\n[log]\nspaces = 1\n[fuzzylog]\npartitions = 2\n\
                        [sequence]\nspaces = [\"orders\"]\n[coordination]\nengine = \"mason\"\n";

struct Page(Value);

/// A call of the page.
#[derive(Clone)]
struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    of: &'a Value,
}

impl Page {
    fn read() -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
        let text = std::fs::read_to_string(path).expect("the page is there");
        Self(serde_json::from_str(&text).expect("it is JSON"))
    }

    fn operations(&self) -> BTreeMap<&str, Operation<'_>> {
        let paths = self.0["paths"].as_object().expect("paths");
        let all = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.iter().map(move |(method, of)| Operation { path, method, of })
        });
        all.map(|operation| (operation.of["operationId"].as_str().expect("a name"), operation)).collect()
    }

    /// What of `value` is not as the schema says.
    fn differences(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            return self.differences(self.0.pointer(pointer).expect("it is there"), value, at);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let all: Vec<_> = choices.iter().map(|choice| self.differences(choice, value, at)).collect();
            return if all.iter().any(Vec::is_empty) { Vec::new() } else { all.concat() };
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let wanted = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(some) => some.iter().filter_map(Value::as_str).collect(),
            _ => vec![kind],
        };
        if !wanted.contains(&kind) {
            return vec![format!("{at} is {kind}, and not {wanted:?}")];
        }
        let mut found = Vec::new();
        if let Some(items) = value.as_array() {
            for (index, item) in items.iter().enumerate() {
                found.extend(self.differences(&schema["items"], item, &format!("{at}[{index}]")));
            }
        }
        let Some(fields) = value.as_object() else { return found };
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(required) {
                found.push(format!("{at} has no {required}"));
            }
        }
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => found.push(format!("{at} is not described")),
                (Value::Null, more @ Value::Object(_)) => found.extend(self.differences(more, field, &at)),
                (Value::Null, _) => {}
                (described, _) => found.extend(self.differences(described, field, &at)),
            }
        }
        found
    }

    /// Whether the answer is one that the page has for this call, and its body as described.
    fn check(&self, operation: &Operation<'_>, answer: &Answer) {
        let (path, method) = (operation.path, operation.method);
        let described = &operation.of["responses"][answer.code.to_string()];
        assert!(
            described.is_object(),
            "{method} {path}: {} is not described: {}",
            answer.code,
            answer.text()
        );
        let Some(content) = described["content"].as_object() else { return };
        let kind = answer.header("content-type").unwrap_or("").split(';').next().unwrap_or("").to_owned();
        let Some(body) = content.get(&kind) else {
            // An answer of bytes says no more of itself than it must.
            assert!(kind.is_empty() || kind == "application/octet-stream", "{method} {path}: {kind}");
            return;
        };
        if kind == "application/json" {
            let found = self.differences(&body["schema"], &answer.json(), "the answer");
            assert!(found.is_empty(), "{method} {path}: {found:#?}\n{}", answer.text());
        }
    }
}

impl Operation<'_> {
    /// The call as its examples have it; `put` has what is known by now of the path.
    fn request(&self, known: &BTreeMap<&str, String>) -> (String, String) {
        let (mut path, mut query) = (self.path.to_owned(), Vec::new());
        for parameter in self.of["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().expect("a name");
            let example = match &parameter["example"] {
                Value::String(text) => text.clone(),
                Value::Null => continue,
                other => other.to_string(),
            };
            let value = known.get(name).cloned().unwrap_or(example);
            match parameter["in"].as_str() {
                Some("path") => path = path.replace(&format!("{{{name}}}"), &value),
                _ => query.push(format!("{name}={value}")),
            }
        }
        if !query.is_empty() {
            path += &format!("?{}", query.join("&"));
        }
        let content = self.of["requestBody"]["content"].as_object();
        let example = content.and_then(|content| content.values().next()).map(|body| &body["example"]);
        let body = match example {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        (path, body)
    }
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("it is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(std::fs::read_to_string(&path).expect("it is text"));
        }
    }
}

/// The routes that the source of the server makes, as the page writes them.
fn routes() -> BTreeSet<(String, String)> {
    let mut texts = Vec::new();
    sources(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/src"), &mut texts);
    let mut routes = BTreeSet::new();
    for text in texts {
        for call in text.split(".route(").skip(1) {
            let (path, rest) = call.split_once(',').expect("a path and what it does");
            let path = match path.trim().trim_matches('"') {
                "CUT_PATH" => "/v1/cut".to_owned(),
                path => path.replace("{*", "{"),
            };
            assert!(path.starts_with('/'), "the path of a route is written out: {path}");
            // The methods stand up to the bracket that closes the call.
            let mut depth = 1;
            let end = rest.char_indices().find(|(_, letter)| {
                depth += i32::from(*letter == '(') - i32::from(*letter == ')');
                depth == 0
            });
            let methods = &rest[..end.expect("a call ends").0];
            let before = routes.len();
            for method in METHODS.into_iter().filter(|method| methods.contains(&format!("{method}("))) {
                routes.insert((path.clone(), method.to_owned()));
            }
            assert!(routes.len() > before, "{path} has no method: {methods}");
        }
    }
    routes
}

// A route that the page does not have is found by nobody; one that is gone sends people to a 404.
#[test]
fn the_page_has_every_route_and_no_other() {
    let page = Page::read();
    let described: BTreeSet<(String, String)> = page
        .operations()
        .values()
        .map(|operation| (operation.path.to_owned(), operation.method.to_owned()))
        .collect();
    let routes = routes();
    assert!(routes.len() > 25, "{routes:?}");
    assert_eq!(routes, described);
}

/// The calls in an order in which each finds what it needs; `begin` and what commits give names that later ones use.
const CALLS: [&str; 58] = [
    "putKey",
    "getKey",
    "incrementKey",
    "batchKeys",
    "scanKeys",
    "deleteKey",
    "createLog",
    "appendToLog",
    "readLog",
    "followLog",
    "nextNumbers",
    "appendToColours",
    "snapshotOfColours",
    "syncColour",
    "followColour",
    "trimColour",
    "listColours",
    "awaitSnapshot",
    "addPartition",
    "moveColour",
    "fuzzylogPartitions",
    "removePartition",
    "fuzzylogRegions",
    "fuzzylogStuck",
    "createMap",
    "putMapKeys",
    "readMapKeys",
    "putMapKey",
    "readMapKey",
    "transactOnMap",
    "scanMap",
    "mapStatus",
    "listMaps",
    "deleteMapKey",
    "removeMap",
    "transact",
    "commitStatus",
    "beginTransaction",
    "readInTransaction",
    "transactionsInProgress",
    "commitTransaction",
    "beginTransaction",
    "abortTransaction",
    "fence",
    "webPage",
    "livez",
    "healthz",
    "readyz",
    "metrics",
    "status",
    "cut",
    "zooKeeperCommands",
    "zooKeeperCommand",
    "sessions",
    "getProxies",
    "getShards",
    "setProxies",
    "setShards",
];

/// What is refused: the call, its path and body, and how it is answered.
const REFUSED: [(&str, &str, &str, u16); 27] = [
    ("getKey", "/v1/kv/nowhere", "", 404),
    ("getKey", "/v1/kv/a?consistency=wishful", "", 400),
    ("putKey", "/v1/kv/a?if_version=999999", "1", 409),
    ("deleteKey", "/v1/kv/a?if_version=999999", "", 409),
    ("incrementKey", "/v1/kv/a", "", 400),
    ("batchKeys", "/v1/kv", "no batch", 400),
    ("createLog", "/v1/log/jobs", "", 409),
    ("readLog", "/v1/log/nowhere", "", 404),
    ("appendToLog", "/v1/log/jobs/append?expect=77", "x", 409),
    ("readLog", "/v1/log/jobs?from=77", "", 416),
    ("nextNumbers", "/v1/sequence/next", "{\"spaces\":[\"other\"]}", 400),
    ("appendToColours", "/v1/fuzzylog/append", "{\"colours\":[\"red\"]}", 400),
    ("syncColour", "/v1/fuzzylog/colours/red", "", 410),
    ("syncColour", "/v1/fuzzylog/colours/red?from=77", "", 416),
    ("listColours", "/v1/fuzzylog/colours?partition=7", "", 400),
    ("listColours", "/v1/fuzzylog/colours?partition=0&from=red", "", 400),
    ("moveColour", "/v1/fuzzylog/move", "{\"colour\":\"red\",\"partition\":77}", 400),
    ("removePartition", "/v1/fuzzylog/partitions/0", "", 409),
    ("awaitSnapshot", "/v1/fuzzylog/await", "{\"snapshot\":\"nonsense\"}", 400),
    ("createMap", "/v1/map/cities", "{\"kind\":\"log\"}", 409),
    ("readMapKey", "/v1/map/nowhere/keys/a", "", 404),
    ("readMapKey", "/v1/map/cities/keys/nowhere", "", 404),
    ("transactOnMap", "/v1/map/cities/transaction", "{\"reads\":{\"bern\":99},\"puts\":{\"a\":\"1\"}}", 409),
    ("transact", "/v1/txn", "{\"level\":\"wishful\"}", 400),
    ("transact", "/v1/txn", "{\"if\":[{\"key\":\"bank/1\",\"version\":1}],\"put\":{\"x\":\"1\"}}", 409),
    ("zooKeeperCommand", "/commands/nothing", "", 404),
    ("sessions", "/v1/zookeeper/sessions?after=7", "", 400),
];

/// The first event of a stream that does not end.
fn first_event(address: SocketAddr, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it reads");
    let (mut text, mut bytes) = (String::new(), [0; 1024]);
    while !text.contains("data:") {
        let read = stream.read(&mut bytes).expect("an event comes");
        assert!(read > 0, "the stream ended: {text}");
        text += &String::from_utf8_lossy(&bytes[..read]);
    }
    let (head, body) = text.split_once("\r\n\r\n").expect("a head ends");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    Answer { code, head: head.to_owned(), body: body.as_bytes().to_vec() }
}

// A reference that is wrong in a field or a code is believed until a program breaks on it.
#[test]
fn every_call_of_the_page_answers_as_it_says() {
    side_by_side(async {
        let page = Page::read();
        let operations = page.operations();
        let called: BTreeSet<&str> = CALLS.into_iter().collect();
        assert_eq!(called, operations.keys().copied().collect(), "every call is made");
        let (cluster, _) = Cluster::serving("ZOOKEEPER", 3, SETTINGS).await;
        let admin = cluster.hosts[0].admin;
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        for name in CALLS {
            let operation = &operations[name];
            let (path, body) = operation.request(&known);
            let answer = match name {
                "followLog" | "followColour" => first_event(admin, &path),
                _ => ask(admin, &operation.method.to_uppercase(), &path, body.as_bytes()).expect("an answer"),
            };
            assert!((200..300).contains(&answer.code), "{name}: {} {}", answer.code, answer.text());
            page.check(operation, &answer);
            match name {
                "beginTransaction" => {
                    known.insert("txn", answer.json()["txn"].as_str().expect("a name").to_owned())
                }
                "transact" => {
                    known.insert("commit", answer.json()["id"].as_str().expect("a name").to_owned())
                }
                _ => None,
            };
        }
        // It was removed, the last of its calls.
        let (path, body) = operations["createMap"].request(&known);
        assert_eq!(ask(admin, "PUT", &path, body.as_bytes()).map(|answer| answer.code), Some(200));
        for (name, path, body, code) in REFUSED {
            let operation = &operations[name];
            let answer =
                ask(admin, &operation.method.to_uppercase(), path, body.as_bytes()).expect("an answer");
            assert_eq!(answer.code, code, "{name} {path}: {}", answer.text());
            page.check(operation, &answer);
        }
        // A field that is not described is noticed, and one that is missing.
        let item = json!({"key": "a", "value": "1", "version": 1});
        let schema = json!({"$ref": "#/components/schemas/Item"});
        assert!(page.differences(&schema, &item, "it").is_empty());
        for wrong in [
            json!({"key": "a", "version": "1"}),
            json!({"key": "a"}),
            json!({"key": "a", "version": 1, "x": 1}),
        ] {
            assert_eq!(page.differences(&schema, &wrong, "it").len(), 1, "{wrong}");
        }
    });
}
