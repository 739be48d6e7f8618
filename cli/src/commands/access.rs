//! `ordinate access`: the access file, written and looked at. Hosts take a changed file over by themselves.

use super::output::Output;
use crate::failure::Failure;
use clap::Subcommand;
use serde_json::{Value, json};
use server::access::grants::Grant;
use server::access::policy::{ANYONE, IdentityLines, check_identity_name};
use server::access::secrets::{DigestSecret, ScramKeys, TokenHash, new_password, new_token};
use server::access::{AccessFile, Area, Need, NeededNames, PolicyError, Right};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Who may do what
#[derive(clap::Args)]
pub struct Access {
    /// The access file, as access.file of the cluster file names it
    #[arg(
        long,
        env = "ORDINATE_ACCESS__FILE",
        default_value = "access.toml",
        value_name = "FILE",
        global = true
    )]
    file: PathBuf,
    /// Output
    #[arg(short, long, value_enum, default_value = "table", global = true)]
    output: Output,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make the file, with one identity that may do everything
    Init {
        /// Its name
        #[arg(default_value = "admin")]
        name: String,
    },
    /// Add an identity
    Add {
        /// Its name
        name: String,
        /// What it may do, as in 'read,write kv orders/*'; may be given again
        #[arg(long = "grant", value_name = "GRANT")]
        grants: Vec<String>,
        /// A role that it has; may be given again
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// A name in its certificate: the subject, its CN, or an alternative name; may be given again
        #[arg(long = "certificate", value_name = "NAME")]
        certificates: Vec<String>,
        /// Make a token for it
        #[arg(long = "with-token")]
        with_token: bool,
    },
    /// Remove an identity, with everything by which it is known
    Remove {
        /// Its name
        name: String,
    },
    /// Make another token for an identity, and print it, once. Earlier ones stay good, so that one can follow the other
    Token {
        /// Whose
        name: String,
        /// Earlier tokens are good no more
        #[arg(long)]
        replace: bool,
    },
    /// Set the password of an identity for SCRAM and PLAIN: the first line of standard input, or one that is made and printed
    Password {
        /// Whose
        name: String,
        /// Read it from standard input
        #[arg(long)]
        stdin: bool,
        /// For DIGEST-MD5, too, which ZooKeeper's clients speak: what is stored for it opens the door by itself
        #[arg(long)]
        digest_md5: bool,
    },
    /// Take an identity's tokens and passwords away
    Revoke {
        /// Whose
        name: String,
    },
    /// Grant something
    Grant {
        /// To whom
        name: String,
        /// What, as in 'read,write kv orders/*'
        #[arg(required = true)]
        grants: Vec<String>,
        /// The name is a role's
        #[arg(long)]
        role: bool,
    },
    /// Take a grant back, written as `list` shows it
    Ungrant {
        /// From whom
        name: String,
        /// What
        #[arg(required = true)]
        grants: Vec<String>,
        /// The name is a role's
        #[arg(long)]
        role: bool,
    },
    /// Print who there is, how each is known, and what it may do
    List,
    /// Say whether an identity may do something, and by which grant; ends with 1 if not
    Check {
        /// Who; `anyone` for those who are not known
        name: String,
        /// read, write or manage
        right: String,
        /// kv, txn, log, group, sequence, coordination or cluster
        area: String,
        /// The key, log, group, space or path; without it, the area as a whole
        of: Option<String>,
    },
}

impl Access {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let (path, output) = (&self.file, self.output);
        match self.verb {
            Verb::Init { name } => init(path, &name, output),
            Verb::List => list(path, output.is_json()),
            Verb::Check { name, right, area, of } => check(path, &name, &right, &area, of.as_deref(), output),
            Verb::Add { name, grants, roles, certificates, with_token } => edit(path, output, |file| {
                if let Err(why) = check_identity_name(&name) {
                    return Err(refused(format!("no identity can be called {name:?}"), why));
                }
                if file.identity.contains_key(&name) {
                    return Err(refused(format!("there is an identity {name} already"), ""));
                }
                let lines = IdentityLines { grants, roles, certificates, ..IdentityLines::default() };
                let lines = file.identity.entry(name).or_insert(lines);
                if with_token { add_token(lines).map(Some) } else { Ok(None) }
            }),
            Verb::Remove { name } => edit(path, output, |file| {
                identity(file, &name)?;
                file.identity.remove(&name);
                Ok(None)
            }),
            Verb::Token { name, replace } => edit(path, output, |file| {
                let lines = identity(file, &name)?;
                if replace {
                    lines.tokens.clear();
                }
                add_token(lines).map(Some)
            }),
            Verb::Password { name, stdin, digest_md5 } => edit(path, output, |file| {
                let lines = identity(file, &name)?;
                let (password, is_new) =
                    if stdin { (line_of_stdin()?, false) } else { (made(new_password())?, true) };
                lines.password = Some(made(ScramKeys::of(&password))?.to_string());
                lines.digest = digest_md5.then(|| DigestSecret::of(&name, &password).to_string());
                Ok(is_new.then_some(password))
            }),
            Verb::Revoke { name } => edit(path, output, |file| {
                let lines = identity(file, &name)?;
                (lines.tokens, lines.password, lines.digest) = (Vec::new(), None, None);
                Ok(None)
            }),
            Verb::Grant { name, grants, role } => edit(path, output, |file| {
                let lines = grants_of(file, &name, role)?;
                let fresh: Vec<String> = grants.into_iter().filter(|it| !lines.contains(it)).collect();
                lines.extend(fresh);
                Ok(None)
            }),
            Verb::Ungrant { name, grants, role } => edit(path, output, |file| {
                let lines = grants_of(file, &name, role)?;
                if let Some(unknown) = grants.iter().find(|it| !lines.contains(it)) {
                    return Err(refused(format!("{name} has no grant {unknown:?}"), &lines.join("; ")));
                }
                lines.retain(|line| !grants.contains(line));
                Ok(None)
            }),
        }
    }
}

fn refused(what: String, fact: &str) -> Failure {
    Failure::input("O2117", what, fact, "ordinate access list")
}

fn unusable(path: &Path, error: &PolicyError) -> Failure {
    let what = format!("the access file {} cannot be used", path.display());
    Failure::input("O2116", what, error.to_string(), "ordinate access init --file FILE makes one")
}

fn made<T>(outcome: Result<T, String>) -> Result<T, Failure> {
    outcome.map_err(|why| Failure::failed("O1000", "no secret can be made", why, "the same again"))
}

fn add_token(lines: &mut IdentityLines) -> Result<String, Failure> {
    let token = made(new_token())?;
    lines.tokens.push(TokenHash::of(&token).to_string());
    Ok(token)
}

fn line_of_stdin() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    match line.trim_end_matches(['\r', '\n']) {
        password if read.is_ok() && !password.is_empty() => Ok(password.to_owned()),
        _ => Err(refused("standard input has no password".to_owned(), "its first line is the password")),
    }
}

fn identity<'a>(file: &'a mut AccessFile, name: &str) -> Result<&'a mut IdentityLines, Failure> {
    let known = file.identity.keys().cloned().collect::<Vec<_>>().join(", ");
    let missing = || refused(format!("there is no identity {name}"), &format!("there are: {known}"));
    file.identity.get_mut(name).ok_or_else(missing)
}

/// The grants of an identity or a role; a role, and `anyone`, come into being with their first.
fn grants_of<'a>(file: &'a mut AccessFile, name: &str, role: bool) -> Result<&'a mut Vec<String>, Failure> {
    if role {
        return Ok(&mut file.role.entry(name.to_owned()).or_default().grants);
    }
    if name == ANYONE {
        file.identity.entry(name.to_owned()).or_default();
    }
    identity(file, name).map(|lines| &mut lines.grants)
}

fn init(path: &Path, name: &str, output: Output) -> Result<(), Failure> {
    if path.exists() {
        let what = format!("{} exists already", path.display());
        return Err(Failure::input("O2117", what, "it was not changed", "ordinate access add NAME"));
    }
    let grants = vec!["all * *".to_owned(), "all cluster".to_owned()];
    let mut lines = IdentityLines { grants, ..IdentityLines::default() };
    let token = add_token(&mut lines)?;
    let mut file = AccessFile::default();
    file.identity.insert(name.to_owned(), lines);
    write(path, &file)?;
    output.print(|| json!({ "identity": name, "secret": token }), || token.clone());
    eprintln!("wrote {}; above is the token of {name}, which is shown this once", path.display());
    eprintln!("in the cluster file of every host:\n  [access]\n  file = \"{}\"", path.display());
    Ok(())
}

/// Changes the file; a secret that was made is printed.
fn edit(
    path: &Path,
    output: Output,
    change: impl FnOnce(&mut AccessFile) -> Result<Option<String>, Failure>,
) -> Result<(), Failure> {
    let mut file = AccessFile::read(path).map_err(|error| unusable(path, &error))?;
    let secret = change(&mut file)?;
    write(path, &file)?;
    if let Some(secret) = secret {
        output.print(|| json!({ "secret": secret }), || secret.clone());
        eprintln!("it is shown this once");
    }
    eprintln!("{} is written; hosts that have it take it over within a second", path.display());
    Ok(())
}

/// Puts the file where it is in one step, so that no host reads half of it, with the owner and permissions that it had.
fn write(path: &Path, file: &AccessFile) -> Result<(), Failure> {
    file.policy().map_err(|error| refused(error.to_string(), "nothing was written"))?;
    let text = file.text().map_err(|error| unusable(path, &error))?;
    let before = std::fs::metadata(path).ok();
    let mode = before.as_ref().map_or(0o600, |it| it.permissions().mode() & 0o777);
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside);
    let written = written.and_then(|mut new| {
        if let Some(before) = &before {
            // Who may not give files away keeps it.
            let _ = std::os::unix::fs::fchown(&new, Some(before.uid()), Some(before.gid()));
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        unusable(path, &error.into())
    })
}

fn list(path: &Path, as_json: bool) -> Result<(), Failure> {
    let file = AccessFile::read(path).map_err(|error| unusable(path, &error))?;
    file.policy().map_err(|error| unusable(path, &error))?;
    if as_json {
        let of = |lines: &IdentityLines| {
            json!({
                "roles": lines.roles, "grants": lines.grants, "certificates": lines.certificates,
                "tokens": lines.tokens.len(), "password": lines.password.is_some(), "digest_md5": lines.digest.is_some(),
            })
        };
        let identities: serde_json::Map<String, Value> =
            file.identity.iter().map(|(name, lines)| (name.clone(), of(lines))).collect();
        let roles: serde_json::Map<String, Value> =
            file.role.iter().map(|(name, role)| (name.clone(), json!(role.grants))).collect();
        println!("{}", json!({ "identities": identities, "roles": roles }));
        return Ok(());
    }
    for (name, lines) in &file.identity {
        println!("{name}");
        let proofs = [
            (lines.tokens.len() == 1).then(|| "1 token".to_owned()),
            (lines.tokens.len() > 1).then(|| format!("{} tokens", lines.tokens.len())),
            lines.password.as_ref().map(|_| "a password".to_owned()),
            lines.digest.as_ref().map(|_| "a password by DIGEST-MD5".to_owned()),
        ];
        let certificates = lines.certificates.iter().map(|it| format!("certificate {it}"));
        let proofs: Vec<String> = proofs.into_iter().flatten().chain(certificates).collect();
        if name != ANYONE {
            let proofs = if proofs.is_empty() { "nothing".to_owned() } else { proofs.join(", ") };
            println!("  known by  {proofs}");
        }
        lines.roles.iter().for_each(|role| println!("  role      {role}"));
        lines.grants.iter().for_each(|grant| println!("  grant     {grant}"));
    }
    for (name, role) in &file.role {
        println!("role {name}");
        role.grants.iter().for_each(|grant| println!("  grant     {grant}"));
    }
    Ok(())
}

fn check(
    path: &Path,
    name: &str,
    right: &str,
    area: &str,
    of: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
    let policy =
        AccessFile::read(path).and_then(|file| file.policy()).map_err(|error| unusable(path, &error))?;
    let unknown = |what: &str, word: &str, known: String| {
        Err(refused(format!("there is no {what} {word}"), &format!("there are: {known}")))
    };
    let Some(right) = Right::ALL.into_iter().find(|it| it.name() == right) else {
        return unknown("right", right, Right::ALL.map(Right::name).join(", "));
    };
    let Some(area) = Area::ALL.into_iter().find(|it| it.name() == area) else {
        return unknown("area", area, Area::ALL.map(Area::name).join(", "));
    };
    let names = of.map_or(NeededNames::Whole, |of| NeededNames::One(of.as_bytes()));
    let need = Need { right, area, names };
    let own = policy.identity(name);
    if own.is_none() && name != ANYONE {
        return Err(refused(format!("there is no identity {name}"), ""));
    }
    let granted = own.into_iter().chain(policy.identity(ANYONE)).flat_map(|it| &it.grants);
    match granted.into_iter().find(|grant: &&Grant| grant.covers(&need)) {
        Some(grant) => {
            let grant = grant.to_string();
            let words = || format!("yes: {name} may {need}, by the grant {grant:?}");
            output.print(|| json!({ "identity": name, "granted": true, "grant": grant }), words);
            Ok(())
        }
        None => {
            let remedy = format!(
                "ordinate access grant {name} '{} {} {}'",
                right.name(),
                area.name(),
                of.unwrap_or("*")
            );
            Err(Failure::failed("O1050", format!("{name} may not {need}"), "no grant covers it", remedy))
        }
    }
}
