//! `ordinate tls`: an authority for the cluster, and a certificate for each host and for clients.

use super::output::{GivenOutput, Output};
use super::serve::read_file;
use crate::failure::Failure;
use clap::Subcommand;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use server::access::names;
use server::cluster::values::{HOST_NAME_RULE, HostLine, is_host_name};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// How long a certificate is good unless somebody says.
const DAYS: i64 = 365;
/// In seconds.
const DAY: i64 = 24 * 60 * 60;
/// The client whose certificate comes with an authority.
const CLIENT: &str = "client";
/// How long an authority is good: all certificates end with it.
const AUTHORITY_DAYS: i64 = 3650;
/// `renew` renews what ends within so many days unless somebody says.
const RENEW_WITHIN_DAYS: i64 = 60;

/// Certificates
#[derive(Subcommand)]
pub enum Tls {
    /// Make an authority, and certificates for hosts and one for clients
    Init {
        /// The folder for the files
        #[arg(long, default_value = "tls")]
        out: PathBuf,
        /// The cluster file: certificates are then good for the addresses of its hosts, too, and without HOSTS made for all
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Another name or IP address that clients dial, of one host (a=db1.example.net) or of all (10.0.0.7)
        #[arg(long, value_name = "[HOST=]NAME")]
        san: Vec<String>,
        /// For how many days certificates are good; the authority is for ten years
        #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
        /// The hosts, by the names of the cluster file
        #[arg(required_unless_present = "config")]
        hosts: Vec<String>,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Make a certificate for another host
    AddHost {
        /// Its name
        host: String,
        #[command(flatten)]
        more: More,
    },
    /// Make a certificate for another client; its name is the common name, by which `ordinate access add --certificate` knows it
    AddClient {
        /// Its name
        client: String,
        #[command(flatten)]
        more: More,
    },
    /// Make certificates anew, for the same names and keys; hosts take them over without a restart when they are in place
    Renew {
        /// Which, as `show` names them; without any, all that end soon
        names: Vec<String>,
        /// What soon is, in days
        #[arg(long, default_value_t = RENEW_WITHIN_DAYS)]
        within: i64,
        /// The folder with the authority
        #[arg(long, default_value = "tls")]
        out: PathBuf,
        /// For how many days they are good
        #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Print the certificates of a folder: for which names each is good, and until when
    Show {
        /// The folder, or one file
        #[arg(default_value = "tls")]
        path: PathBuf,
        /// Output
        #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
        output: String,
    },
}

/// How to make one certificate.
#[derive(clap::Args)]
pub struct More {
    /// The folder with the authority
    #[arg(long, default_value = "tls")]
    out: PathBuf,
    /// Another name or IP address; may be given again
    #[arg(long, value_name = "NAME")]
    san: Vec<String>,
    /// For how many days it is good
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(i64).range(1..=3650))]
    days: i64,
    #[command(flatten)]
    output: GivenOutput,
}

impl Tls {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init { out, config, san, days, mut hosts, output: GivenOutput(output) } => {
                let file = config.map(|path| read_file(&path, &[])).transpose()?;
                let listed = file.map_or_else(Vec::new, |file| file.hosts);
                if hosts.is_empty() {
                    hosts = listed.iter().map(|host| host.name.clone()).collect();
                }
                init(&out, &hosts, &names_of(&hosts, &listed, &san)?, days, output)
            }
            Self::AddHost { host, more } => {
                check_names(std::slice::from_ref(&host))?;
                let own = [host.clone(), "localhost".to_owned(), "127.0.0.1".to_owned()];
                add(Holder::Host, &host, own.into_iter().chain(more.san.clone()).collect(), &more)
            }
            Self::AddClient { client, more } => {
                if client != CLIENT {
                    check_names(std::slice::from_ref(&client))?;
                }
                let names = std::iter::once(client.clone()).chain(more.san.clone()).collect();
                add(Holder::Client, &client, names, &more)
            }
            Self::Renew { names, within, out, days, output: GivenOutput(output) } => {
                renew(&names, within, &out, days, output)
            }
            Self::Show { path, output } => show(&path, output == "json"),
        }
    }
}

/// The authority of a folder.
fn issuer_of(out: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let read = |name: &str| {
        std::fs::read_to_string(out.join(name)).map_err(|error| {
            let what = format!("there is no authority in {}", out.display());
            let fact = format!("{}: {error}", out.join(name).display());
            Failure::input(
                "O2105",
                what,
                fact,
                "--out FOLDER with ca.pem and ca.key, as ordinate tls init made it",
            )
        })
    };
    let (certificate, key) = (read("ca.pem")?, read("ca.key")?);
    let key = KeyPair::from_pem(&key).map_err(failed)?;
    Issuer::from_ca_cert_pem(&certificate, key).map_err(failed)
}

/// Whose a certificate is. Hosts are called and call; clients call, and are no host to anybody, whatever their name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Host,
    Client,
}

impl Holder {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Client => "client",
        }
    }

    fn purposes(self) -> Vec<ExtendedKeyUsagePurpose> {
        match self {
            Self::Host => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Self::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
    }
}

/// Makes one certificate for a key.
fn issue(
    holder: Holder,
    name: &str,
    good_for: Vec<String>,
    key: &KeyPair,
    issuer: &Issuer<'_, KeyPair>,
    days: i64,
) -> Result<String, Failure> {
    let mut leaf = CertificateParams::new(good_for).map_err(failed)?;
    leaf.distinguished_name = rcgen::DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, name);
    leaf.extended_key_usages = holder.purposes();
    // Clocks differ: it is good from an hour ago on.
    (leaf.not_before, leaf.not_after) = (from_now(-1, 0), from_now(0, days));
    Ok(leaf.signed_by(key, issuer).map_err(failed)?.pem())
}

fn from_now(hours: i64, days: i64) -> OffsetDateTime {
    OffsetDateTime::now_utc() + Duration::hours(hours) + Duration::days(days)
}

fn add(holder: Holder, name: &str, mut good_for: Vec<String>, more: &More) -> Result<(), Failure> {
    let More { out, days, output: GivenOutput(output), .. } = more;
    let mut seen = BTreeSet::new();
    good_for.retain(|name| seen.insert(name.clone()));
    let path = out.join(format!("{name}.pem"));
    if path.exists() {
        let what = format!("{} exists already", path.display());
        return Err(Failure::input(
            "O2105",
            what,
            "it was not changed",
            format!("ordinate tls renew {name}"),
        ));
    }
    let issuer = issuer_of(out)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = issue(holder, name, good_for.clone(), &key, &issuer, *days)?;
    write(&out.join(format!("{name}.key")), &key.serialize_pem(), 0o600)?;
    write(&path, &certificate, 0o644)?;
    let file = path.display();
    output.print(
        || json!({ "name": name, "file": file.to_string(), "good_for": good_for, "days": days }),
        || format!("wrote {file}, good for {} for {days} days, and its key", good_for.join(", ")),
    );
    Ok(())
}

/// A certificate of a folder.
struct Found {
    name: String,
    path: PathBuf,
    alternatives: Vec<String>,
    holder: Holder,
    /// Days until it ends, the last one whole; below one: it has ended.
    days: i64,
}

fn found_in(path: &Path) -> Result<Vec<Found>, Failure> {
    let mut files: Vec<PathBuf> = match path.is_dir() {
        false => vec![path.to_owned()],
        true => {
            std::fs::read_dir(path).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path())).collect()
        }
    };
    files.retain(|file| !path.is_dir() || file.extension().is_some_and(|end| end == "pem"));
    files.sort();
    let read = |file: PathBuf| {
        let certificate = CertificateDer::from_pem_file(&file)
            .map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let ends = names::ends_at(&certificate)
            .ok_or_else(|| failed(format!("{}: no certificate", file.display())))?;
        // The last one counts whole: what is sound has a day left.
        let days = (ends - OffsetDateTime::now_utc().unix_timestamp() + DAY - 1).div_euclid(DAY);
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Those of clients were made for hosts' purposes, too, before there was a difference; one of them is known by its name.
        let is_host = names::is_for_servers(&certificate) && name != CLIENT;
        let holder = if is_host { Holder::Host } else { Holder::Client };
        Ok(Found { name, alternatives: names::alternatives(&certificate), holder, path: file, days })
    };
    files.into_iter().map(read).collect()
}

fn renew(wanted: &[String], within: i64, out: &Path, days: i64, output: Output) -> Result<(), Failure> {
    let issuer = issuer_of(out)?;
    let found: Vec<Found> = found_in(out)?.into_iter().filter(|it| it.name != "ca").collect();
    if let Some(unknown) = wanted.iter().find(|name| found.iter().all(|it| it.name != **name)) {
        let known: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
        let what = format!("there is no certificate {unknown} in {}", out.display());
        return Err(Failure::input(
            "O2105",
            what,
            format!("there are: {}", known.join(", ")),
            "ordinate tls show",
        ));
    }
    let is_wanted =
        |it: &&Found| if wanted.is_empty() { it.days <= within } else { wanted.contains(&it.name) };
    let mut count = 0;
    for it in found.iter().filter(is_wanted) {
        let key = std::fs::read_to_string(out.join(format!("{}.key", it.name)));
        let key = key.map_err(|error| failed(format!("{}.key: {error}", it.name)))?;
        let key = KeyPair::from_pem(&key).map_err(failed)?;
        let certificate = issue(it.holder, &it.name, it.alternatives.clone(), &key, &issuer, days)?;
        // In one step: a host that reads it meanwhile has the one or the other.
        let beside = it.path.with_extension("new");
        write(&beside, &certificate, 0o644)?;
        std::fs::rename(&beside, &it.path).map_err(failed)?;
        let file = it.path.display();
        output.print(
            || json!({ "name": it.name, "file": file.to_string(), "good_for": it.alternatives, "days": days }),
            || format!("{file} is good for {days} days, for the same key and names"),
        );
        count += 1;
    }
    if count == 0 && !output.is_json() {
        println!("no certificate in {} ends within {within} days", out.display());
    }
    Ok(())
}

fn show(path: &Path, as_json: bool) -> Result<(), Failure> {
    let found = found_in(path)?;
    if as_json {
        let of = |it: &Found| json!({ "name": it.name, "of": it.holder.name(), "file": it.path.display().to_string(), "days_left": it.days, "good_for": it.alternatives });
        println!("{}", serde_json::Value::from(found.iter().map(of).collect::<Vec<_>>()));
        return Ok(());
    }
    println!("{:<16}{:>10}  {:<8}GOOD FOR", "CERTIFICATE", "DAYS LEFT", "OF A");
    for it in &found {
        let good_for = if it.name == "ca" { "the authority".to_owned() } else { it.alternatives.join(", ") };
        let days = if it.days <= 0 { "ENDED".to_owned() } else { it.days.to_string() };
        let holder = if it.name == "ca" { "" } else { it.holder.name() };
        println!("{:<16}{days:>10}  {holder:<8}{good_for}", it.name);
    }
    Ok(())
}

/// What the certificate of each host is good for: its name, what a test on one machine needs, its address in the cluster
/// file, and what was asked for.
fn names_of(hosts: &[String], listed: &[HostLine], asked: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let mut names: Vec<Vec<String>> =
        hosts.iter().map(|host| vec![host.clone(), "localhost".to_owned(), "127.0.0.1".to_owned()]).collect();
    for (host, names) in hosts.iter().zip(&mut names) {
        names.extend(listed.iter().filter(|line| line.name == *host).map(|line| dialled(&line.address)));
    }
    for san in asked {
        match san.split_once('=') {
            None => names.iter_mut().for_each(|names| names.push(san.clone())),
            Some((host, name)) => match hosts.iter().position(|it| it == host) {
                Some(index) => names[index].push(name.to_owned()),
                None => {
                    return Err(Failure::input(
                        "O2105",
                        format!("--san {san} names no host"),
                        format!("certificates are made for: {}", hosts.join(", ")),
                        "ordinate tls init --san a=db1.example.net a b c",
                    ));
                }
            },
        }
    }
    for names in &mut names {
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
    }
    Ok(names)
}

/// The name or IP address in `host:port`.
fn dialled(address: &str) -> String {
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    name.trim_start_matches('[').trim_end_matches(']').to_owned()
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(
        "O2105",
        "the certificates cannot be made",
        error.to_string(),
        "ordinate tls init --out FOLDER HOST...",
    )
}

fn init(
    out: &Path,
    hosts: &[String],
    names: &[Vec<String>],
    days: i64,
    output: Output,
) -> Result<(), Failure> {
    check_names(hosts)?;
    if out.join("ca.key").exists() {
        let fact =
            format!("{} exists; new certificates would not fit the old ones", out.join("ca.key").display());
        return Err(Failure::input(
            "O2105",
            "there is an authority already",
            fact,
            "ordinate tls init --out ANOTHER-FOLDER ...",
        ));
    }
    std::fs::create_dir_all(out).map_err(failed)?;
    let authority_key = KeyPair::generate().map_err(failed)?;
    let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
    authority.distinguished_name.push(DnType::CommonName, "ordinate cluster authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (authority.not_before, authority.not_after) = (from_now(-1, 0), from_now(0, AUTHORITY_DAYS));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = authority.self_signed(&authority_key).map_err(failed)?;
    write(&out.join("ca.pem"), &certificate.pem(), 0o644)?;
    write(&out.join("ca.key"), &authority_key.serialize_pem(), 0o600)?;
    let issuer = Issuer::new(authority, authority_key);
    let client = (Holder::Client, CLIENT, vec![CLIENT.to_owned()]);
    let of_hosts = hosts.iter().zip(names).map(|(host, names)| (Holder::Host, host.as_str(), names.clone()));
    for (holder, name, names) in of_hosts.chain([client]) {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = issue(holder, name, names, &key, &issuer, days)?;
        write(&out.join(format!("{name}.pem")), &certificate, 0o644)?;
        write(&out.join(format!("{name}.key")), &key.serialize_pem(), 0o600)?;
    }
    if output.is_json() {
        let of = |(host, names): (&String, &Vec<String>)| json!({ "name": host, "good_for": names });
        let all: Vec<_> = hosts.iter().zip(names).map(of).collect();
        println!("{}", json!({ "folder": out.display().to_string(), "hosts": all, "days": days }));
        return Ok(());
    }
    println!("wrote {}: ca.pem, and a .pem and .key for {} and client", out.display(), hosts.join(", "));
    for (host, names) in hosts.iter().zip(names) {
        println!("  {host}.pem is good for {}", names.join(", "));
    }
    println!("in the cluster file of host {}:", hosts[0]);
    let folder = out.display();
    println!(
        "  [tls]\n  ca = \"{folder}/ca.pem\"\n  cert = \"{folder}/{0}.pem\"\n  key = \"{folder}/{0}.key\"",
        hosts[0]
    );
    println!("they are good for {days} days; ordinate tls renew makes them anew");
    println!("keep {folder}/ca.key off the hosts");
    Ok(())
}

/// Before anything is written: half a set of certificates would stand in the way of the next try.
fn check_names(hosts: &[String]) -> Result<(), Failure> {
    let refused = |name: &str, fact: &str| {
        Err(Failure::input(
            "O2105",
            format!("no certificate can be made for a host called {name:?}"),
            fact,
            "ordinate tls init --out FOLDER HOST...",
        ))
    };
    for (index, name) in hosts.iter().enumerate() {
        if !is_host_name(name) {
            return refused(name, HOST_NAME_RULE);
        }
        if ["ca", CLIENT].contains(&name.as_str()) {
            return refused(name, "the authority and the clients have files of that name");
        }
        if hosts[..index].contains(name) {
            return refused(name, "it is given twice");
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| failed(format!("{}: {error}", path.display())))
}
