//! `ordinate serve`: one host of a cluster, until it is told to stop.

use crate::cluster::ClusterFile;
use crate::cluster::file::Overrides;
use crate::host::{self, Sockets};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run one host of a cluster.
#[derive(clap::Args)]
pub struct Serve {
    /// The cluster file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Which host of it this is
    #[arg(long, value_name = "NAME")]
    host: String,
    /// This machine joins a living cluster
    #[arg(long)]
    join: bool,
}

impl Serve {
    /// Serves until SIGINT or SIGTERM.
    pub fn run(self) -> ExitCode {
        let file = match ClusterFile::read(&self.config, &Overrides::from_environment()) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("{error:?}");
                return ExitCode::from(2);
            }
        };
        let Some(line) = file.host(&self.host) else { return ExitCode::from(2) };
        let sockets = Sockets {
            peer: TcpListener::bind(&line.address).expect("bind"),
            native: TcpListener::bind(&file.listen.native).expect("bind"),
        };
        let events: runtime::EventSink = Box::new(|event| eprintln!("{event}"));
        match host::start(&file, &self.host, self.join, sockets, Some(events)) {
            Ok(host) => {
                eprintln!("serving");
                match host.join() {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => {
                        eprintln!("{error}");
                        ExitCode::FAILURE
                    }
                }
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}
