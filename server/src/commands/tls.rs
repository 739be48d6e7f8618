//! `ordinate tls`: an authority for the cluster, and a certificate for each host and for clients.

use super::serve::read_file;
use crate::failure::Failure;
use clap::Subcommand;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use server::cluster::file::{HOST_NAME_RULE, HostLine, is_host_name};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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
        /// The hosts, by the names of the cluster file
        #[arg(required_unless_present = "config")]
        hosts: Vec<String>,
    },
}

impl Tls {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let Self::Init { out, config, san, mut hosts } = self;
        let file = config.map(|path| read_file(&path, &[])).transpose()?;
        let listed = file.map_or_else(Vec::new, |file| file.hosts);
        if hosts.is_empty() {
            hosts = listed.iter().map(|host| host.name.clone()).collect();
        }
        init(&out, &hosts, &names_of(&hosts, &listed, &san)?)
    }
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

fn init(out: &Path, hosts: &[String], names: &[Vec<String>]) -> Result<(), Failure> {
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
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = authority.self_signed(&authority_key).map_err(failed)?;
    write(&out.join("ca.pem"), &certificate.pem(), 0o644)?;
    write(&out.join("ca.key"), &authority_key.serialize_pem(), 0o600)?;
    let issuer = Issuer::new(authority, authority_key);
    let client = ("client", vec!["client".to_owned()]);
    let hosts_names = hosts.iter().map(String::as_str).zip(names.iter().cloned());
    for (name, names) in hosts_names.chain([client]) {
        let key = KeyPair::generate().map_err(failed)?;
        let mut leaf = CertificateParams::new(names).map_err(failed)?;
        leaf.distinguished_name.push(DnType::CommonName, name);
        leaf.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = leaf.signed_by(&key, &issuer).map_err(failed)?;
        write(&out.join(format!("{name}.pem")), &certificate.pem(), 0o644)?;
        write(&out.join(format!("{name}.key")), &key.serialize_pem(), 0o600)?;
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
        if ["ca", "client"].contains(&name.as_str()) {
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
