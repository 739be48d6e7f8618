//! Hosts and clients under TLS.

use super::support::*;
use bytes::BytesMut;
use kernel::NodeId;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use runtime::{
    ClientCertificates, ClientLimits, CloseReason, FrontEnd, FrontEndConfig, Host, HostConfig, HostEvent,
    PeerTls, ServerTls, Session, SessionCx, TlsError, TlsFiles,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).expect("no names are fine names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("the system has randomness");
    CertifiedIssuer::self_signed(params, key).expect("an authority signs itself")
}

/// The files of the host `name`, signed by `signer`, trusting `trusted`.
fn files(directory: &Path, name: &str, signer: &Authority, trusted: &Authority) -> TlsFiles {
    files_for(directory, name, vec![], signer, trusted)
}

/// The same, good for these purposes alone; for all, if there is none.
fn files_for(
    directory: &Path,
    name: &str,
    purposes: Vec<ExtendedKeyUsagePurpose>,
    signer: &Authority,
    trusted: &Authority,
) -> TlsFiles {
    let key = KeyPair::generate().expect("the system has randomness");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a sound name");
    params.extended_key_usages = purposes;
    let certificate = params.signed_by(&key, signer).expect("the authority signs");
    let write = |kind: &str, text: String| {
        let path = directory.join(format!("{name}.{kind}.pem"));
        std::fs::write(&path, text).expect("the directory can be written");
        path
    };
    TlsFiles {
        certificates: write("certificate", certificate.pem()),
        key: write("key", key.serialize_pem()),
        authorities: write("authorities", trusted.pem()),
    }
}

fn events_of(config: &mut HostConfig) -> Receiver<HostEvent> {
    let (outbox, events) = channel();
    // The receiver may be gone when the host stops.
    config.events = Some(Box::new(move |event| _ = outbox.send(event.clone())));
    events
}

fn pair() -> (HostConfig, HostConfig) {
    let mut configs = cluster(&["a", "b"]).into_iter();
    (configs.next().expect("a"), configs.next().expect("b"))
}

// Under TLS hosts must work as in the clear, for messages that span many TLS records too.
#[test]
fn hosts_talk_under_tls() {
    let (directory, authority) = (Scratch::new("tls-hosts"), authority());
    let (mut a, mut b) = pair();
    for (name, config) in [("a", &mut a), ("b", &mut b)] {
        let files = files(directory.path(), name, &authority, &authority);
        config.tls = Some(PeerTls::load(&files).expect("the files are sound"));
    }
    let a = Host::start(a, both, vec![]).expect("a starts");
    let _b = Host::start(b, both, vec![]).expect("b starts");
    assert_eq!(a.handle().request(ASKER, question("b", 2000)).wait(LIMIT), Ok(2000));
    let large = Question { payload: vec![3; 300_000].into(), ..question("b", 40) };
    assert_eq!(a.handle().request(ASKER, large).wait(LIMIT), Ok(40));
}

// A host in the clear, one of another authority, and one with another's name must all stay out; and so must a client of the authority
// that says that it is a host, also when it has a host's name.
#[test]
fn hosts_without_the_right_certificate_stay_out() {
    let directory = Scratch::new("tls-refused");
    let (ours, theirs) = (authority(), authority());
    let good = files(directory.path(), "b", &ours, &ours);
    let no_host = "the caller shows no certificate of host a";
    for (case, expected) in [
        ("plain", "closed"),
        ("other authority", "certificate"),
        ("other name", "certificate"),
        ("a client", no_host),
        ("a client of that name", no_host),
    ] {
        let (mut a, mut b) = pair();
        b.tls = Some(PeerTls::load(&good).expect("the files are sound"));
        a.tls = match case {
            "plain" => None,
            "other authority" => Some(files(directory.path(), "a", &theirs, &ours)),
            "a client" => Some(files(directory.path(), "client", &ours, &ours)),
            "a client of that name" => {
                let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
                Some(files_for(directory.path(), "a", purposes, &ours, &ours))
            }
            _ => {
                // The called host shows the name "c".
                let wrong = files(directory.path(), "c", &ours, &ours);
                b.tls = Some(PeerTls::load(&wrong).expect("the files are sound"));
                Some(files(directory.path(), "a", &ours, &ours))
            }
        }
        .map(|files| PeerTls::load(&files).expect("the files are sound"));
        let (events, refusals) = (events_of(&mut a), events_of(&mut b));
        let a = Host::start(a, both, vec![]).expect("a starts");
        let b = Host::start(b, both, vec![]).expect("b starts");
        let lost = a.handle().request(ASKER, question("b", 1));
        let (mut reported, begun) = (String::new(), Instant::now());
        // Whichever side says it first; a slow machine may run into the greeting's time limit before.
        while !reported.contains(expected) {
            assert!(begun.elapsed() < LIMIT, "{case}: {reported}");
            for event in events.try_iter().chain(refusals.try_iter()) {
                reported += &format!("{event}\n").to_lowercase();
            }
            std::thread::yield_now();
        }
        let metrics = b.handle().metrics().wait(LIMIT).expect("b runs");
        assert_eq!(metrics.messages_in, 0, "{case}");
        drop((lost, a, b));
    }
}

// A host under TLS that calls one in the clear must not fall back.
#[test]
fn a_host_under_tls_does_not_talk_in_the_clear() {
    let (directory, authority) = (Scratch::new("tls-clear"), authority());
    let (mut a, mut b) = pair();
    let files = files(directory.path(), "a", &authority, &authority);
    a.tls = Some(PeerTls::load(&files).expect("the files are sound"));
    let refusals = events_of(&mut b);
    let _a = Host::start(a, both, vec![]).expect("a starts");
    let b = Host::start(b, both, vec![]).expect("b starts");
    loop {
        if let HostEvent::PeerRefused { reason, .. } = refusals.recv_timeout(LIMIT).expect("b turns a away")
            && reason.contains("one side uses TLS alone")
        {
            break;
        }
    }
    assert_eq!(b.handle().metrics().wait(LIMIT).expect("b runs").messages_in, 0);
}

struct Parrot;

impl FrontEnd<Talk> for Parrot {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Talk>> {
        Box::new(Parrot)
    }
}

impl Session<Talk> for Parrot {
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        cx.established();
        cx.output().extend_from_slice(&input.split());
        Ok(())
    }

    fn on_message(&mut self, _: NodeId, _: Message, _: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        Ok(())
    }
}

/// A blocking TLS client of `address`, which shows `shown` if given.
fn client(address: SocketAddr, trusted: &Authority, shown: Option<&TlsFiles>) -> impl Read + Write + use<> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der().clone()).expect("a sound authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots);
    let config = match shown {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = rustls::pki_types::CertificateDer::from_pem_file(&files.certificates).expect("sound");
            let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).expect("sound");
            builder.with_client_auth_cert(vec![chain], key).expect("they fit")
        }
    };
    let name = "front".try_into().expect("a sound name");
    let connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a sound configuration");
    let stream = TcpStream::connect(address).expect("the port listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    rustls::StreamOwned::new(connection, stream)
}

// A client port under TLS must serve those with the right certificate, with data larger than any buffer between, and nobody
// else.
#[test]
fn clients_are_served_under_tls_alone() {
    let directory = Scratch::new("tls-clients");
    let (ours, theirs) = (authority(), authority());
    let server = files(directory.path(), "front", &ours, &ours);
    let listen = listener();
    let address = listen.local_addr().expect("it is bound");
    let tls = Some(ServerTls::load(&server, ClientCertificates::Required).expect("the files are sound"));
    let front_end = FrontEndConfig { tls, ..FrontEndConfig::new(listen, || Box::new(Parrot)) };
    let _host = Host::start(HostConfig::new("test", "a"), both, vec![front_end]).expect("the host starts");

    let mine = files(directory.path(), "client", &ours, &ours);
    let mut good = client(address, &ours, Some(&mine));
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut echoed = vec![0; 100_000];
    for piece in sent.chunks_exact(100_000) {
        good.write_all(piece).expect("written");
        good.flush().expect("written");
        good.read_exact(&mut echoed).expect("echoed");
        assert!(echoed == piece, "what comes back is what was sent");
    }
    let stranger = files(directory.path(), "stranger", &theirs, &ours);
    for shown in [None, Some(&stranger)] {
        let mut bad = client(address, &ours, shown);
        // The refusal may come at the first write or after it.
        let _ = bad.write_all(b"let me in").and_then(|()| bad.flush());
        assert!(bad.read(&mut [0; 16]).is_err(), "served without a certificate of ours");
    }
    let mut plain = TcpStream::connect(address).expect("the port listens");
    plain.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    plain.write_all(b"no TLS at all, but long enough to be looked at").expect("written");
    let mut rest = Vec::new();
    // The end may come as a reset.
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.windows(6).any(|window| window == b"no TLS"), "served in the clear");
}

// Two ports of one protocol that each admit as many clients, and hold as much for them, as both may together.
#[test]
fn the_bounds_of_a_protocol_hold_for_both_its_ports() {
    let (directory, ours) = (Scratch::new("tls-both"), authority());
    let server = files(directory.path(), "front", &ours, &ours);
    let mine = files(directory.path(), "client", &ours, &ours);
    let tls = ServerTls::load(&server, ClientCertificates::Required).expect("the files are sound");
    let (plain, secure) = (listener(), listener());
    let of = |listener: &TcpListener| listener.local_addr().expect("it is bound");
    let (plain_at, secure_at) = (of(&plain), of(&secure));
    let limits =
        ClientLimits { connections_max: 3, connections_per_address_max: 3, ..ClientLimits::default() };
    let front_end = FrontEndConfig {
        secure: Some((secure, tls)),
        limits,
        ..FrontEndConfig::new(plain, || Box::new(Parrot))
    };
    let host = Host::start(HostConfig::new("test", "a"), both, vec![front_end]).expect("the host starts");
    let echoes = |stream: &mut dyn Talks| {
        let mut echoed = [0; 5];
        let said = stream.write_all(b"hello").and_then(|()| stream.flush());
        said.is_ok() && stream.read_exact(&mut echoed).is_ok() && echoed == *b"hello"
    };
    let open = || -> Box<dyn Talks> {
        let stream = TcpStream::connect(plain_at).expect("the port listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
        Box::new(stream)
    };
    let open_secure = || -> Box<dyn Talks> { Box::new(client(secure_at, &ours, Some(&mine))) };
    let mut admitted = [open(), open_secure(), open()];
    assert!(admitted.iter_mut().all(|stream| echoes(&mut **stream)), "each port serves by its own protocol");
    for mut refused in [open(), open_secure()] {
        assert!(!echoes(&mut *refused), "a fourth client is served where three may be");
    }
    let metrics = host.handle().metrics().wait(LIMIT).expect("the host runs");
    assert_eq!((metrics.clients, metrics.clients_max), (3, 3));
    assert_eq!(metrics.closes.get("too many connections"), Some(&2));
    drop(admitted);
    eventually("room for another", || echoes(&mut *open_secure()));
}

/// A connection, in the clear or not.
trait Talks: Read + Write {}

impl<T: Read + Write> Talks for T {}

// A missing or mixed-up file must be named when it is loaded, not when the first peer calls.
#[test]
fn bad_files_are_named() {
    let (directory, authority) = (Scratch::new("tls-files"), authority());
    let good = files(directory.path(), "a", &authority, &authority);
    let missing = TlsFiles { key: directory.path().join("nowhere.pem"), ..good.clone() };
    let swapped = TlsFiles { certificates: good.key.clone(), ..good.clone() };
    for (bad, named) in [(missing, "nowhere.pem"), (swapped, "a.key.pem")] {
        match PeerTls::load(&bad) {
            Err(error @ TlsError::File { .. }) => assert!(error.to_string().contains(named), "{error}"),
            other => panic!("{:?}", other.err()),
        }
    }
}
