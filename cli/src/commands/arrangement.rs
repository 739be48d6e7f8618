//! `ordinate cluster proxies` and `ordinate cluster shards`: how many of them order and hold what the coordination service has, changed
//! while it runs.

use super::admin::{GivenToken, call, parse};
use super::output::GivenOutput;
use crate::failure::Failure;
use serde_json::Value;
use std::time::{Duration, Instant};

const ASK_EVERY: Duration = Duration::from_millis(200);
/// What a host that restarts in the middle may take.
const UNREACHABLE_FOR: Duration = Duration::from_secs(10);

/// Whom to ask, and how long.
#[derive(clap::Args)]
struct How {
    /// The admin address of a host
    #[arg(long, visible_alias = "endpoints", env = "ORDINATE_ADMIN", default_value = "127.0.0.1:7070", value_parser = super::admin::address)]
    admin: String,
    #[command(flatten)]
    token: GivenToken,
    /// Give up waiting after so many seconds; the change goes on
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    #[command(flatten)]
    output: GivenOutput,
}

/// How many proxies order the coordination service's operations
#[derive(clap::Args)]
pub struct Proxies {
    /// How many there are to be; without it, how many there are
    proxies: Option<u16>,
    #[command(flatten)]
    how: How,
}

/// Over how many shards znodes are spread
#[derive(clap::Args)]
pub struct Shards {
    /// How many there are to be; without it, how many there are
    shards: Option<u16>,
    #[command(flatten)]
    how: How,
}

impl Proxies {
    /// Does it, and waits until it is done.
    pub fn run(self) -> Result<(), Failure> {
        let Self { proxies: wanted, how } = self;
        Change { of: "proxies", counted: "serving", wanted, how, words: words_of_proxies }.run()
    }
}

impl Shards {
    /// Does it, and waits until it is done.
    pub fn run(self) -> Result<(), Failure> {
        let Self { shards: wanted, how } = self;
        Change { of: "shards", counted: "shards", wanted, how, words: words_of_shards }.run()
    }
}

/// A number that is asked for or changed.
struct Change {
    of: &'static str,
    /// What counts them in a host's answer.
    counted: &'static str,
    wanted: Option<u16>,
    how: How,
    words: fn(&Value) -> String,
}

/// Why a host did not answer with how many there are.
enum Refused {
    Unreachable(std::io::Error),
    /// It says why.
    Because(String),
}

impl Change {
    fn run(self) -> Result<(), Failure> {
        let verb = format!("ordinate cluster {}", self.of);
        let (begun, patience) = (Instant::now(), Duration::from_secs(self.how.timeout));
        let (mut said, mut heard_at) = (String::new(), Instant::now());
        loop {
            match self.ask() {
                Ok(now) => {
                    heard_at = Instant::now();
                    let words = (self.words)(&now);
                    if words != said {
                        let seconds = begun.elapsed().as_secs_f64();
                        let GivenOutput(output) = self.how.output;
                        output.print(|| now.clone(), || format!("{seconds:>5.1} s  {words}"));
                        said = words;
                    }
                    let is_wanted = self.wanted.is_none_or(|it| now[self.counted] == it);
                    if (now["settled"] == true && is_wanted) || self.wanted.is_none() {
                        return Ok(());
                    }
                }
                Err(Refused::Because(why)) => {
                    let what = format!("the number of {} cannot be changed so", self.of);
                    return Err(Failure::failed("O3101", what, why, verb));
                }
                Err(Refused::Unreachable(error))
                    if said.is_empty() || heard_at.elapsed() > UNREACHABLE_FOR =>
                {
                    return Err(Failure::unreachable(&self.how.admin, error.to_string()));
                }
                Err(Refused::Unreachable(_)) => {}
            }
            if begun.elapsed() > patience {
                let what = format!("the change is not done after {} s, and goes on", self.how.timeout);
                return Err(Failure::failed("O3102", what, said, verb));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn ask(&self) -> Result<Value, Refused> {
        let path = format!("/v1/zookeeper/{}", self.of);
        let called = match self.wanted {
            Some(wanted) => call(
                &self.how.admin,
                &self.how.token,
                "PUT",
                &path,
                &format!("{{\"{}\": {wanted}}}", self.of),
            ),
            None => call(&self.how.admin, &self.how.token, "GET", &path, ""),
        };
        let (status, answer) = called.map_err(Refused::Unreachable)?;
        let answer = parse(&self.how.admin, &answer)
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
pub fn words_of_proxies(proxies: &Value) -> String {
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

/// One line on how far it is.
pub fn words_of_shards(shard_map: &Value) -> String {
    let (shards, before) = (&shard_map["shards"], &shard_map["before"]);
    match shard_map["settled"] == true {
        true => format!("{shards} shards of at most {}", shard_map["room"]),
        false => format!("{shards} shards, to which {before} hand over"),
    }
}
