//! `ordinate cluster proxies`: adds and removes proxies of the coordination service while it runs.

use super::admin::{call, parse};
use crate::failure::Failure;
use serde_json::Value;
use std::time::{Duration, Instant};

const ASK_EVERY: Duration = Duration::from_millis(200);
/// What a host that restarts in the middle may take.
const UNREACHABLE_FOR: Duration = Duration::from_secs(10);

/// How many proxies order the coordination service's operations
#[derive(clap::Args)]
pub struct Proxies {
    /// How many there are to be; without it, how many there are
    proxies: Option<u16>,
    /// The admin address of a host
    #[arg(long, env = "ORDINATE_ADMIN", default_value = "127.0.0.1:7070")]
    admin: String,
    /// Give up waiting after so many seconds; the change goes on
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

/// Why a host did not answer with how many there are.
enum Refused {
    Unreachable(std::io::Error),
    /// It says why.
    Because(String),
}

impl Proxies {
    /// Does it, and waits until it is done.
    pub fn run(self) -> Result<(), Failure> {
        let (begun, patience) = (Instant::now(), Duration::from_secs(self.timeout));
        let (mut said, mut heard_at) = (String::new(), Instant::now());
        loop {
            match self.ask() {
                Ok(now) => {
                    heard_at = Instant::now();
                    let words = words(&now);
                    if words != said {
                        println!("{:>5.1} s  {words}", begun.elapsed().as_secs_f64());
                        said = words;
                    }
                    let done = now["settled"] == true && self.proxies.is_none_or(|it| now["serving"] == it);
                    if done || self.proxies.is_none() {
                        return Ok(());
                    }
                }
                Err(Refused::Because(why)) => {
                    let what = "the number of proxies cannot be changed so";
                    return Err(Failure::failed("O3101", what, why, "ordinate cluster proxies"));
                }
                Err(Refused::Unreachable(error))
                    if said.is_empty() || heard_at.elapsed() > UNREACHABLE_FOR =>
                {
                    return Err(Failure::unreachable(&self.admin, error.to_string()));
                }
                Err(Refused::Unreachable(_)) => {}
            }
            if begun.elapsed() > patience {
                let what = format!("the change is not done after {} s, and goes on", self.timeout);
                return Err(Failure::failed("O3102", what, said, "ordinate cluster proxies"));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn ask(&self) -> Result<Value, Refused> {
        const PATH: &str = "/v1/zookeeper/proxies";
        let called = match self.proxies {
            Some(proxies) => call(&self.admin, "PUT", PATH, &format!("{{\"proxies\": {proxies}}}")),
            None => call(&self.admin, "GET", PATH, ""),
        };
        let (status, answer) = called.map_err(Refused::Unreachable)?;
        let answer = parse(&self.admin, &answer)
            .map_err(|failure| Refused::Unreachable(std::io::Error::other(failure.fact)))?;
        match (status, answer["error"].as_str()) {
            (200, _) => Ok(answer),
            (503, why) => {
                Err(Refused::Unreachable(std::io::Error::other(why.unwrap_or_default().to_owned())))
            }
            (_, why) => Err(Refused::Because(why.unwrap_or_default().to_owned())),
        }
    }
}

/// One line on how far it is.
pub fn words(proxies: &Value) -> String {
    let (serving, spanning) = (&proxies["serving"], &proxies["spanning"]);
    match (proxies["settled"] == true, serving == spanning) {
        (true, _) => format!("{serving} proxies of at most {}", proxies["room"]),
        (false, true) => format!("{serving} proxies, which come into use"),
        (false, false) => {
            let drained = spanning.as_u64().unwrap_or(0).saturating_sub(serving.as_u64().unwrap_or(0));
            format!("{serving} proxies, and {drained} that are drained")
        }
    }
}
