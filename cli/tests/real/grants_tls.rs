//! Identities by certificates, at each port with TLS; and passwords that TLS hides.

use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::kafka::{Client as KafkaClient, record};
use crate::support::raw::Raw;
use crate::support::side_by_side;
use crate::support::tls;
use crate::support::zookeeper::{create_body, read_body};
use coordination::wire::{JuteOutput as _, op};
use ordinate_client::{AccessToken, CallError, Client, Credentials, Log, Tls, TlsFiles};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ALL: &str = "[coordination]\nengine = \"mason\"\nshards = 1\n[log]\nspaces = 1\n";
/// The codes of Kafka's protocol.
const NOT_AUTHORIZED: i16 = 29;
const UNSUPPORTED_MECHANISM: i16 = 33;
const AUTHENTICATION_FAILED: i16 = 58;
const NO_AUTH: i32 = -102;
const PASSWORD: &str = "correct horse";

fn ordinate(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(ORDINATE);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary under test runs");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn tls_of(folder: &Path, name: &str) -> Tls {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    Tls::load(&TlsFiles { ca: folder.join("ca.pem"), cert: file("pem"), key: file("key") })
        .expect("ordinate tls made them")
}

struct Stage {
    cluster: Cluster,
    folder: PathBuf,
    http: SocketAddr,
    zookeeper: SocketAddr,
    kafka: SocketAddr,
    /// Of an identity that has no certificate.
    token: String,
}

/// A host with TLS and access control. billing has a certificate, orders a password and a token, and `client` a certificate that nobody
/// was given a right by.
async fn start() -> Stage {
    let mut cluster = Cluster::planned(1, ALL, "");
    let folder = cluster.use_tls(&[]);
    let out = folder.display().to_string();
    ordinate(&["tls", "add-client", "billing", "--out", &out], "");
    let file = cluster.folder.join("access.toml").display().to_string();
    let access = |arguments: &[&str], input: &str| {
        ordinate(&[&["access", "--file", &file], arguments].concat(), input)
    };
    let root = access(&["init", "root"], "");
    let rights = ["all kv billing/*", "all log billing*", "all coordination /billing"];
    let grants: Vec<&str> = rights.iter().flat_map(|right| ["--grant", right]).collect();
    access(&[&["add", "billing", "--certificate", "CN=billing"], &grants[..]].concat(), "");
    let token = access(&["add", "orders", "--with-token", "--grant", "all log orders*"], "");
    access(&["password", "orders", "--stdin"], &format!("{PASSWORD}\n"));
    cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file);
    let (http, zookeeper) = (cluster.listen(0, "HTTP"), cluster.listen(0, "ZOOKEEPER"));
    let kafka = cluster.listen(0, "KAFKA");
    cluster.launch_all();
    cluster.until_ready().await;
    let credentials =
        Credentials { tls: Some(tls_of(&folder, "client")), token: Some(AccessToken::new(&root)) };
    let log = Log::connect_as(cluster.endpoints_from(0), credentials).with_timeout(PATIENCE);
    for name in ["billing", "orders"] {
        log.create(name, 1 << 20, None).await.expect("root may do everything");
    }
    let mut raw = Raw::connect_tls(zookeeper, &folder, &Default::default()).expect("it serves");
    let mut body = Vec::new();
    body.put_i32(0);
    body.put_text("digest");
    body.put_buffer(Some(format!("root:{root}").as_bytes()));
    assert_eq!(raw.call(op::AUTH, &body).expect("it serves").error, 0);
    for path in ["/billing", "/orders"] {
        assert_eq!(raw.call(op::CREATE, &create_body(path, b"", 0)).expect("it serves").error, 0);
    }
    Stage { cluster, folder, http, zookeeper, kafka, token }
}

impl Stage {
    /// Whether the owner of this certificate may write there, at each port: native, HTTP, ZooKeeper's, Kafka's.
    async fn may_write(&self, certificate: &str, at: &str) -> [bool; 4] {
        let credentials = Credentials { tls: Some(tls_of(&self.folder, certificate)), token: None };
        let client = Client::connect_as(self.cluster.endpoints_from(0), credentials).with_timeout(PATIENCE);
        let native = match client.put(format!("{at}/1"), "x").await {
            Ok(_) => true,
            Err(CallError::NotGranted) => false,
            Err(error) => panic!("{certificate} {at}: {error}"),
        };
        let code = self.put(certificate, &format!("/v1/kv/{at}/2"));
        assert!([200, 401, 403].contains(&code), "{certificate} {at}: {code}");
        let mut raw = Raw::connect_tls_as(self.zookeeper, &self.folder, certificate).expect("it serves");
        let path = format!("/{at}/{certificate}");
        let made = raw.call(op::CREATE, &create_body(&path, b"x", 0)).expect("it is answered").error;
        assert!([0, NO_AUTH].contains(&made), "{certificate} {at}: {made}");
        let read =
            raw.call(op::GET_DATA, &read_body(&format!("/{at}"), false)).expect("it is answered").error;
        assert_eq!(read, made, "the right to read is the same");
        let (produced, _) =
            self.kafka(certificate).produce(at, &[record(b"x".to_vec())]).expect("it is answered");
        assert!([0, NOT_AUTHORIZED].contains(&produced), "{certificate} {at}: {produced}");
        [native, code == 200, made == 0, produced == 0]
    }

    fn put(&self, certificate: &str, path: &str) -> u16 {
        let mut stream = tls::connect_as(self.http, &self.folder, certificate).expect("it listens");
        let host = self.http;
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
        )
        .expect("it reads");
        let mut text = Vec::new();
        // The end may come without the words that TLS has for it.
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{path}: {text}"))
    }

    fn kafka(&self, certificate: &str) -> KafkaClient<tls::Secured> {
        KafkaClient(tls::connect_as(self.kafka, &self.folder, certificate).expect("it listens"))
    }
}

// A certificate that opens everything, or opens at one port what it does not at another.
#[test]
fn a_certificate_is_an_identity_at_each_port() {
    side_by_side(async {
        let stage = start().await;
        assert_eq!(stage.may_write("billing", "billing").await, [true; 4]);
        assert_eq!(stage.may_write("billing", "orders").await, [false; 4]);
        // Of the authority, and nobody's.
        assert_eq!(stage.may_write("client", "billing").await, [false; 4]);
        let log = stage.cluster.log(0);
        assert!(log.contains("access refused") && log.contains("billing"), "{log}");
    });
}

// A password in the clear can be read on the way; and one that is wrong must not be let in because a certificate is right.
#[test]
fn plain_passwords_are_taken_where_tls_hides_them() {
    side_by_side(async {
        let stage = start().await;
        let entry = [record(b"x".to_vec())];
        for secret in [PASSWORD, &stage.token] {
            let mut client = stage.kafka("client");
            assert_eq!(client.log_in_plain("orders", secret), 0);
            assert_eq!(client.produce("orders", &entry).map(|(code, _)| code), Some(0));
            assert_eq!(client.produce("billing", &entry).map(|(code, _)| code), Some(NOT_AUTHORIZED));
        }
        for (user, secret) in [("orders", "wrong"), ("nobody", PASSWORD), ("orders", "")] {
            assert_eq!(stage.kafka("client").log_in_plain(user, secret), AUTHENTICATION_FAILED, "{user}");
        }
        // Both proofs count: who has the certificate of one identity and logs in as another is both.
        let mut client = stage.kafka("billing");
        assert_eq!(client.produce("orders", &entry).map(|(code, _)| code), Some(NOT_AUTHORIZED));
        let mut client = stage.kafka("billing");
        assert_eq!(client.log_in_plain("orders", PASSWORD), 0);
        assert_eq!(client.produce("orders", &entry).map(|(code, _)| code), Some(0));
        assert_eq!(client.produce("billing", &entry).map(|(code, _)| code), Some(0));

        let mut plain = Cluster::planned(1, ALL, "");
        let file = stage.cluster.folder.join("access.toml").display().to_string();
        plain.set_environment(0, "ORDINATE_ACCESS__FILE", &file);
        let kafka = plain.listen(0, "KAFKA");
        plain.launch_all();
        plain.until_ready().await;
        assert_eq!(KafkaClient::connect(kafka).log_in_plain("orders", PASSWORD), UNSUPPORTED_MECHANISM);
        assert!(KafkaClient::connect(kafka).log_in("orders", PASSWORD), "SCRAM is taken there");
    });
}
