//! Certificates of a host: loaded once for all ports, loaded again when the files change, and watched for their end.

use crate::access::names;
use crate::admin::exposition::MetricsPage;
use crate::cluster::values::TlsPaths;
use crate::events::{EventLog, LogPart};
use runtime::{ClientCertificates, PeerTls, ServerTls, TlsError, TlsFiles};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The files are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Before a certificate ends, the log says so for so long, each day.
const WARN_BEFORE: Duration = Duration::from_secs(30 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// TLS of a host. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct HostTls {
    /// Between hosts.
    pub peers: PeerTls,
    /// At the ports of users, who show a certificate of the authority.
    pub users: ServerTls,
    files: TlsFiles,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// When the host's certificate and the first of its authorities end, in seconds since 1970; 0: not known.
    ends: [AtomicI64; 2],
    is_sound: AtomicBool,
    seen: Mutex<Vec<Option<Vec<u8>>>>,
}

/// Which certificates end when.
const ENDING: [&str; 2] = ["host", "authority"];

impl HostTls {
    /// Reads the files of a host.
    pub fn load(paths: &TlsPaths) -> Result<Self, TlsError> {
        let files = paths.files();
        let peers = PeerTls::load(&files)?;
        let users = ServerTls::load(&files, ClientCertificates::Required)?;
        let state = Arc::new(State::default());
        let tls = Self { peers, users, files, state };
        tls.note_ends();
        tls.state.is_sound.store(true, Ordering::Relaxed);
        *tls.state.seen.lock().unwrap_or_else(PoisonError::into_inner) = tls.bytes();
        Ok(tls)
    }

    fn paths(&self) -> [&Path; 3] {
        [&self.files.certificates, &self.files.key, &self.files.authorities]
    }

    fn bytes(&self) -> Vec<Option<Vec<u8>>> {
        self.paths().iter().map(|path| std::fs::read(path).ok()).collect()
    }

    fn note_ends(&self) {
        let files = [&self.files.certificates, &self.files.authorities];
        for (ends, path) in self.state.ends.iter().zip(files) {
            ends.store(ends_at(path).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Takes over what the files have now, if that is something else; what is to be logged of it. Certificate and key come one after the
    /// other: as long as they do not fit, those before hold.
    fn look(&self) -> Option<String> {
        let found = self.bytes();
        let mut seen = self.state.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return None;
        }
        *seen = found;
        let reloaded = self
            .peers
            .reload(&self.files)
            .and_then(|()| self.users.reload(&self.files, ClientCertificates::Required));
        self.state.is_sound.store(reloaded.is_ok(), Ordering::Relaxed);
        Some(match reloaded {
            Ok(()) => {
                self.note_ends();
                let left = self
                    .left()
                    .map_or_else(String::new, |(_, left)| format!(", good for {} days", left / DAY as i64));
                format!("{} is in use as it is now{left}", self.files.certificates.display())
            }
            Err(error) => {
                format!("the files have changed and cannot be used; those before hold: {error}")
            }
        })
    }

    /// The certificate that ends first, and the seconds until then; below zero: it has ended.
    fn left(&self) -> Option<(&'static str, i64)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        let ends = self.state.ends.iter().map(|ends| ends.load(Ordering::Relaxed));
        let ends = ENDING.into_iter().zip(ends).filter(|(_, ends)| *ends > 0);
        ends.map(|(whose, ends)| (whose, ends - now)).min_by_key(|(_, left)| *left)
    }

    fn warning(&self) -> Option<String> {
        let (whose, left) = self.left().filter(|(_, left)| *left < WARN_BEFORE.as_secs() as i64)?;
        let remedy = "ordinate tls renew makes another, and hosts take it over without a restart";
        Some(match left {
            ..=0 => format!("the certificate of the {whose} HAS ENDED; {remedy}"),
            _ => format!("the certificate of the {whose} ends in {} days; {remedy}", left / DAY as i64),
        })
    }

    /// Follows the files on a thread of its own, until the process ends.
    pub fn follow(&self, log: EventLog) -> std::io::Result<()> {
        let tls = self.clone();
        std::thread::Builder::new().name("tls".to_owned()).spawn(move || {
            let mut warn_at = std::time::Instant::now();
            loop {
                if let Some(line) = tls.look() {
                    log.say(LogPart::Tls, &line);
                    warn_at = std::time::Instant::now();
                }
                if warn_at <= std::time::Instant::now() {
                    warn_at += Duration::from_secs(DAY);
                    tls.warning().iter().for_each(|line| log.warn(LogPart::Tls, line));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(())
    }

    /// As metrics.
    pub fn metrics(&self, page: &mut MetricsPage) {
        let help = "When the certificate ends, in seconds since 1970";
        for (whose, ends) in ENDING.into_iter().zip(&self.state.ends) {
            let ends = ends.load(Ordering::Relaxed) as f64;
            page.gauge_of("certificate_ends_seconds", help, &[("of", whose)], ends);
        }
        let is_sound = f64::from(u8::from(self.state.is_sound.load(Ordering::Relaxed)));
        page.gauge(
            "certificate_files_sound",
            "1 while the TLS files that were last seen are in use",
            is_sound,
        );
    }
}

/// When the first certificate of a PEM file ends, in seconds since 1970.
pub fn ends_at(path: &Path) -> Option<i64> {
    names::ends_at(&CertificateDer::from_pem_file(path).ok()?)
}
