//! `ordinate zk`: the coordination service from the command line. Works with Apache ZooKeeper as well.

mod acl;
mod client;
mod files;
mod import;
mod migrate;
mod multi;
mod sessions;
mod target;
mod words;

use crate::commands::kv::Certificates;
use crate::commands::output::Output;
use crate::failure::{Exit, Failure};
use clap::Subcommand;
use client::{ZkClient, ZkError};
use coordination::wire::{Acl, Identity, JuteInput, JuteOutput as _, Stat, op, write_acls};
use ordinate_client::Tls;
use serde_json::json;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
pub(super) use target::Target;

/// Where the coordination service is, for what writes into it beside other services.
#[derive(clap::Args)]
pub(super) struct Connecting {
    /// Servers of ZooKeeper's protocol, comma-separated; the first that answers is used
    #[arg(
        long = "zookeeper",
        value_name = "SERVERS",
        default_value = "127.0.0.1:2181",
        env = "ORDINATE_ZOOKEEPER"
    )]
    servers: String,
    /// Who to be there, for access lists: SCHEME:TOKEN, for example digest:user:password
    #[arg(long, value_name = "SCHEME:TOKEN", env = "ORDINATE_ZOOKEEPER_AUTH", hide_env_values = true)]
    auth: Option<String>,
}

impl Connecting {
    /// A session; over TLS as the other services' clients are.
    pub(super) fn connect(&self, tls: Option<&Tls>) -> Result<ZkClient, Failure> {
        let connected = ZkClient::connect(&self.servers, tls).and_then(|mut session| {
            self.auth.iter().try_for_each(|auth| session.authenticate(auth))?;
            Ok(session)
        });
        connected.map_err(|error| self.explain(&error))
    }

    /// What went wrong, in the user's terms.
    pub(super) fn explain(&self, error: &ZkError) -> Failure {
        explain(error, &self.servers)
    }
}

/// The coordination service.
#[derive(clap::Args)]
pub struct Zk {
    /// Servers of ZooKeeper's protocol, comma-separated; the first that answers is used
    #[arg(
        long,
        short,
        visible_alias = "endpoints",
        global = true,
        default_value = "127.0.0.1:2181",
        env = "ORDINATE_ZOOKEEPER"
    )]
    servers: String,
    /// How results are printed
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    output: Output,
    /// Who to be, for access lists: SCHEME:TOKEN, for example digest:user:password
    #[arg(
        long,
        global = true,
        value_name = "SCHEME:TOKEN",
        env = "ORDINATE_ZOOKEEPER_AUTH",
        hide_env_values = true
    )]
    auth: Option<String>,
    #[command(flatten)]
    certificates: Certificates,
    #[command(flatten)]
    token: super::GivenToken,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List a node's children
    Ls {
        /// The node
        #[arg(default_value = "/")]
        path: String,
        /// All descendants
        #[arg(long, short)]
        recursive: bool,
    },
    /// Print a node's data
    Get {
        /// The node
        path: String,
    },
    /// Print what is known of a node
    Stat {
        /// The node
        path: String,
    },
    /// Set a node's data
    Set {
        /// The node
        path: String,
        /// The data; `-` reads standard input
        data: String,
        /// Only if the node has this version
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        if_version: i32,
    },
    /// Create a node
    Create {
        /// The node
        path: String,
        /// The data; `-` reads standard input
        #[arg(default_value = "")]
        data: String,
        /// Append a number that grows
        #[arg(long)]
        sequential: bool,
        /// Delete it when it has lost its last child
        #[arg(long)]
        container: bool,
        /// Create missing parents
        #[arg(long, short)]
        parents: bool,
    },
    /// Delete a node
    Rm {
        /// The node
        path: String,
        /// And all below it, at once or not at all
        #[arg(long, short)]
        recursive: bool,
        /// Only if the node has this version
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        if_version: i32,
    },
    /// Rename a node and all below it, at once or not at all
    Rename {
        /// The node
        from: String,
        /// Its new path
        to: String,
    },
    /// Print changes below a node as they happen, until interrupted or `--count` have come
    Watch {
        /// The node
        path: String,
        /// Stop after so many
        #[arg(long)]
        count: Option<u64>,
    },
    /// Print a node's access list, or set it
    Acl {
        /// The node
        path: String,
        /// The new list: SCHEME:ID:PERMISSIONS, separated by spaces or given again; permissions are letters of cdrwa
        #[arg(long, value_name = "ENTRY", value_delimiter = ' ')]
        set: Vec<String>,
    },
    /// Print who the server takes this client for
    Whoami,
    /// Make several changes, all or none
    ///
    /// An operation is `create PATH [DATA] [--sequential] [--container]`, `set PATH DATA [--if-version N]`,
    /// `rm PATH [--if-version N]` or `check PATH [VERSION]`; quotes keep spaces together.
    Multi {
        /// Operations, each one argument: 'create /a hello' 'set /b 2 --if-version 5'. With none, one a line from standard input
        operations: Vec<String>,
    },
    /// List the sessions of all clients: timeout, when each expires unless it is heard from, ephemeral nodes, where it is connected
    Sessions {
        /// The admin address of a host
        #[arg(long, env = "ORDINATE_ADMIN", default_value = "127.0.0.1:7070", value_parser = super::admin::address)]
        admin: String,
    },
    /// Bring the nodes of a ZooKeeper 3.5 to 3.9 from its snapshots and logs
    Import(import::Import),
    /// Bring the nodes of a living ZooKeeper, and follow it until its clients move
    Migrate(migrate::Migrate),
    /// Read commands from standard input: ls, get, set, create, rm, stat, rename, multi
    Shell,
}

/// Nodes that a recursive request may concern.
const SUBTREE_MAX: i32 = 1000;

impl Zk {
    /// Runs one verb.
    pub fn run(self) -> Result<(), Failure> {
        let json = self.output.is_json();
        if let Verb::Sessions { admin } = &self.verb {
            return sessions::list(admin, &self.token, json);
        }
        let tls = self.certificates.load()?;
        let connect = || {
            let mut session = ZkClient::connect(&self.servers, tls.as_ref())?;
            self.auth.iter().try_for_each(|auth| session.authenticate(auth))?;
            Ok(session)
        };
        let brought = match &self.verb {
            Verb::Import(import) => Some(import.run(connect, json)),
            Verb::Migrate(migrate) => {
                let from_tls = migrate.source_tls()?;
                Some(connect().and_then(|session| migrate.run(session, from_tls.as_ref(), json)))
            }
            _ => None,
        };
        if let Some(brought) = brought {
            return brought.map_err(|error| explain(&error, &self.servers));
        }
        let mut session = connect().map_err(|error| explain(&error, &self.servers))?;
        let outcome = match self.verb {
            Verb::Shell => shell(&mut session, &self.token, json),
            verb => execute(&mut session, verb, json),
        };
        // A session that is closed leaves nothing behind; one that is not expires.
        let _ = session.ask(op::CLOSE, &[]);
        outcome.map_err(|error| explain(&error, &self.servers))
    }
}

/// There is no session with anybody.
fn nobody(what: &str, error: &ZkError, remedy: &str) -> Failure {
    Failure { exit: Exit::Unreachable, ..Failure::input("O4102", what, error.to_string(), remedy) }
}

fn explain(error: &ZkError, servers: &str) -> Failure {
    match error {
        ZkError::Refused(-101) => Failure::failed(
            "O4101",
            "the request was refused",
            error.to_string(),
            "ordinate zk create -p PATH  makes missing parents; ordinate zk stat PATH shows a node",
        ),
        ZkError::Refused(_) => {
            Failure::failed("O4101", "the request was refused", error.to_string(), "ordinate zk stat PATH")
        }
        ZkError::Step { .. } => {
            let what = "the multi was refused, nothing was changed";
            Failure::failed("O4101", what, error.to_string(), "ordinate zk stat PATH")
        }
        ZkError::Node { code: -102, .. } => Failure::failed(
            "O4101",
            "an access list keeps this command out; what came before is done",
            error.to_string(),
            "set coordination.super_digest on the hosts, and give --auth digest:super:PASSWORD",
        ),
        ZkError::Node { .. } => Failure::failed(
            "O4101",
            "a node was refused; what came before is done",
            error.to_string(),
            "ordinate zk stat PATH, then the same with --merge",
        ),
        ZkError::Files(_) => Failure::input(
            "O4105",
            "ZooKeeper's files cannot be used",
            error.to_string(),
            "ordinate zk import --dry-run DIR, with the folders of another server of the ensemble",
        ),
        ZkError::Input(_) => {
            Failure::input("O4104", "the input cannot be used", error.to_string(), "ordinate zk --help")
        }
        ZkError::Unreachable(..) => {
            nobody("no server can be reached", error, "ordinate demo, or give --servers HOST:PORT")
        }
        ZkError::NoSession(_) => nobody(
            "the ZooKeeper server opens no session",
            error,
            "ordinate status --admin ADDRESS  (it says whether a majority is heard)",
        ),
        ZkError::NotGreeted(_) => nobody(
            "no ZooKeeper server answers",
            error,
            "ordinate config explain listen.zookeeper  (with TLS: --tls-ca, --tls-cert, --tls-key)",
        ),
        ZkError::Broken(_) | ZkError::Strange => Failure::failed(
            "O4103",
            "the conversation failed",
            format!("{error} ({servers})"),
            "ordinate zk ... again",
        ),
    }
}

fn execute(session: &mut ZkClient, verb: Verb, json: bool) -> Result<(), ZkError> {
    match verb {
        Verb::Ls { path, recursive } => list(session, path, recursive, json)?,
        Verb::Get { path } => show(session, &path, json)?,
        Verb::Stat { path } => print_stat(&path, &get(session, &path)?.1, json),
        Verb::Set { path, data, if_version } => {
            let mut body = Vec::new();
            body.put_text(&path);
            body.put_buffer(Some(&input(data)?));
            body.put_i32(if_version);
            let reply = session.ask(op::SET_DATA, &body)?;
            let stat = Stat::read(&mut JuteInput(&reply))?;
            if json { print_stat(&path, &stat, true) } else { println!("version {}", stat.version) }
        }
        Verb::Create { path, data, sequential, container, parents } => {
            if !path.starts_with('/') {
                return Err(ZkError::Input(format!("{path} is no path: a path begins with /, like /{path}")));
            }
            if parents {
                make_parents(session, &path)?;
            }
            let flags = if container { 4 } else { 2 * i32::from(sequential) };
            let made = create(session, &path, &input(data)?, flags)?;
            if json { println!("{}", json!(made)) } else { println!("{made}") }
        }
        Verb::Rm { path, recursive, if_version } => {
            let mut body = Vec::new();
            body.put_text(&path);
            body.put_i32(if recursive { SUBTREE_MAX } else { if_version });
            session.ask(if recursive { op::REMOVE_RECURSIVE } else { op::DELETE }, &body)?;
        }
        Verb::Rename { from, to } => {
            let mut body = Vec::new();
            body.put_text(&from);
            body.put_text(&to);
            body.put_i32(SUBTREE_MAX);
            session.ask(op::RENAME, &body)?;
        }
        Verb::Watch { path, count } => watch(session, &path, count, json)?,
        Verb::Acl { path, set } if set.is_empty() => acl::print(session, &path, json)?,
        Verb::Acl { path, set } => acl::set(session, &path, &set)?,
        Verb::Whoami => acl::whoami(session, json)?,
        Verb::Multi { operations } => {
            let multi = if operations.is_empty() {
                let text = String::from_utf8(input("-".to_owned())?)
                    .map_err(|_| ZkError::Input("standard input is no text".to_owned()))?;
                multi::Multi::read(text.lines())?
            } else {
                multi::Multi::read(operations.iter().map(String::as_str))?
            };
            multi.execute(session, json)?;
        }
        Verb::Shell | Verb::Sessions { .. } | Verb::Import(_) | Verb::Migrate(_) => {}
    }
    Ok(())
}

fn list(session: &mut ZkClient, path: String, recursive: bool, json: bool) -> Result<(), ZkError> {
    let mut pending = vec![path];
    while let Some(path) = pending.pop() {
        let children = children(session, &path)?;
        for child in &children {
            let whole = if path == "/" { format!("/{child}") } else { format!("{path}/{child}") };
            let shown = if recursive { &whole } else { child };
            if json {
                println!("{}", json!(shown))
            } else {
                println!("{shown}")
            }
            if recursive {
                pending.push(whole);
            }
        }
    }
    Ok(())
}

fn show(session: &mut ZkClient, path: &str, json: bool) -> Result<(), ZkError> {
    let (data, stat) = get(session, path)?;
    if json {
        let text = String::from_utf8_lossy(&data);
        println!("{}", json!({ "path": path, "data": text, "version": stat.version, "mzxid": stat.mzxid }));
    } else {
        let mut out = std::io::stdout();
        let _ = out.write_all(&data);
        if out.is_terminal() {
            println!();
        }
    }
    Ok(())
}

fn watch(session: &mut ZkClient, path: &str, count: Option<u64>, json: bool) -> Result<(), ZkError> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_i32(1);
    session.ask(op::ADD_WATCH, &body)?;
    for _ in 0..count.unwrap_or(u64::MAX) {
        let event = session.wait_for_event()?;
        if json {
            println!("{}", json!({ "path": event.path, "what": event.what }));
        } else {
            println!("{:<18}{}", event.what, event.path);
        }
    }
    Ok(())
}

fn children(session: &mut ZkClient, path: &str) -> Result<Vec<String>, ZkError> {
    let mut body = Vec::new();
    body.put_text(path);
    body.push(0);
    let reply = session.ask(op::GET_CHILDREN, &body)?;
    let mut names: Vec<String> = JuteInput(&reply).texts()?.into_iter().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

fn get(session: &mut ZkClient, path: &str) -> Result<(Vec<u8>, Stat), ZkError> {
    let mut body = Vec::new();
    body.put_text(path);
    body.push(0);
    let reply = session.ask(op::GET_DATA, &body)?;
    let mut reply = JuteInput(&reply);
    let data = reply.buffer()?.unwrap_or_default().to_vec();
    Ok((data, Stat::read(&mut reply)?))
}

fn create(session: &mut ZkClient, path: &str, data: &[u8], flags: i32) -> Result<String, ZkError> {
    let mut body = Vec::new();
    body.put_text(path);
    body.put_buffer(Some(data));
    write_acls(&[Acl { permissions: 31, who: Identity::new("world", "anyone") }], &mut body);
    body.put_i32(flags);
    let opcode = if flags == 4 { op::CREATE_CONTAINER } else { op::CREATE };
    let reply = session.ask(opcode, &body)?;
    Ok(JuteInput(&reply).text()?.to_owned())
}

fn make_parents(session: &mut ZkClient, path: &str) -> Result<(), ZkError> {
    for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
        match create(session, &path[..at], &[], 0) {
            Ok(_) | Err(ZkError::Refused(-110)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn input(data: String) -> Result<Vec<u8>, ZkError> {
    if data != "-" {
        return Ok(data.into_bytes());
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes)?;
    Ok(bytes)
}

fn print_stat(path: &str, stat: &Stat, json: bool) {
    let fields = [
        ("czxid", stat.czxid),
        ("mzxid", stat.mzxid),
        ("pzxid", stat.pzxid),
        ("ctime", stat.ctime),
        ("mtime", stat.mtime),
        ("version", i64::from(stat.version)),
        ("cversion", i64::from(stat.cversion)),
        ("aversion", i64::from(stat.aversion)),
        ("ephemeralOwner", stat.ephemeral_owner),
        ("dataLength", i64::from(stat.data_length)),
        ("numChildren", i64::from(stat.num_children)),
    ];
    if json {
        let fields: serde_json::Map<String, serde_json::Value> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        println!("{}", json!({ "path": path, "stat": fields }));
        return;
    }
    for (name, value) in fields {
        println!("{name:<16}{value}");
    }
}

/// One command a line, as on the command line; an error is printed and the next line goes on.
fn shell(session: &mut ZkClient, token: &super::GivenToken, json: bool) -> Result<(), ZkError> {
    let interactive = std::io::stdin().is_terminal();
    let prompt = || {
        if interactive {
            print!("zk> ");
            let _ = std::io::stdout().flush();
        }
    };
    prompt();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some(words) = words::split(&line) else {
            println!("a quote is not closed");
            prompt();
            continue;
        };
        if words == ["quit"] {
            break;
        }
        if !words.is_empty() {
            let parsed =
                <Line as clap::Parser>::try_parse_from(std::iter::once("zk".to_owned()).chain(words));
            match parsed {
                Ok(Line { verb: Verb::Shell | Verb::Import(_) | Verb::Migrate(_) }) => {
                    println!("not in the shell");
                }
                Ok(Line { verb: Verb::Multi { operations } }) if operations.is_empty() => {
                    println!("multi 'OPERATION' 'OPERATION' ...");
                }
                Ok(Line { verb: Verb::Sessions { admin } }) => {
                    if let Err(failure) = sessions::list(&admin, token, json) {
                        println!("{failure}");
                    }
                }
                Ok(Line { verb }) => match execute(session, verb, json) {
                    Ok(()) => {}
                    Err(error @ (ZkError::Refused(_) | ZkError::Step { .. } | ZkError::Input(_))) => {
                        println!("{error}");
                    }
                    Err(error) => return Err(error),
                },
                Err(error) => println!("{error}"),
            }
        }
        prompt();
    }
    Ok(())
}

#[derive(clap::Parser)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}
