//! What hosts' shards hold and have in progress, from their admin ports.

use crate::commands::admin::AdminHosts;
use crate::commands::kv::Output;
use crate::commands::{fetch, parse};
use crate::failure::Failure;
use serde_json::Value;

/// Which hosts are asked: a shard's transactions are known where it is led.
#[derive(clap::Args)]
pub struct Show {
    #[command(flatten)]
    hosts: AdminHosts,
    /// Output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// A range as an interval.
fn range(value: &Value) -> String {
    format!(
        "[{}, {})",
        text(&value["start"]),
        if value["end"].is_null() { "end".to_owned() } else { text(&value["end"]) }
    )
}

impl Show {
    /// What each host answers.
    fn ask(&self, path: &str) -> Result<Vec<(String, Value)>, Failure> {
        let ask =
            |admin: &String| Ok((admin.clone(), parse(admin, &fetch(admin, &self.hosts.token, path)?)?));
        self.hosts.admin.iter().map(ask).collect()
    }

    fn is_off(admin: &str) -> Failure {
        let fact = format!("the host at {admin} has no shards: txn.shards of its cluster file is 0");
        Failure::input("O1030", "there is no transaction service", fact, "ordinate config explain txn.shards")
    }

    /// Prints transactions in progress.
    pub(super) fn locks(&self) -> Result<(), Failure> {
        self.transactions(|_| true)
    }

    /// Prints those that are prepared.
    pub(super) fn prepared(&self) -> Result<(), Failure> {
        self.transactions(|txn| txn["stage"] == "prepared" || txn["stage"] == "ending")
    }

    fn transactions(&self, shown: impl Fn(&Value) -> bool) -> Result<(), Failure> {
        let answers = self.ask("/v1/txn/transactions")?;
        let shards = answers.iter().flat_map(|(_, answer)| answer["shards"].as_array().into_iter().flatten());
        if self.output == Output::Json {
            let all: Vec<&Value> = shards.collect();
            println!("{}", Value::from(all.into_iter().cloned().collect::<Vec<_>>()));
            return Ok(());
        }
        let mut count = 0;
        for shard in shards {
            println!(
                "shard {}: {}/{} locks",
                text(&shard["shard"]),
                text(&shard["locks"]),
                text(&shard["locks_max"])
            );
            for txn in shard["transactions"].as_array().into_iter().flatten().filter(|txn| shown(txn)) {
                count += 1;
                let ranges: Vec<String> = txn["ranges"].as_array().into_iter().flatten().map(range).collect();
                println!(
                    "  {}  {}  coordinator {}  behind {}  {} wait for it  reads {} {}  writes {}",
                    text(&txn["txn"]),
                    text(&txn["stage"]),
                    text(&txn["coordinator"]),
                    text(&txn["behind"]),
                    text(&txn["waiters"]),
                    text(&txn["reads"]),
                    ranges.join(" "),
                    text(&txn["writes"]),
                );
            }
        }
        println!("{count} transactions, where the hosts that were asked lead");
        Ok(())
    }

    /// Prints the shards.
    pub(super) fn shards(&self) -> Result<(), Failure> {
        let answers = self.ask("/v1/status")?;
        if self.output == Output::Json {
            let all = answers.iter().map(|(_, status)| (text(&status["host"]), status["txn"].clone()));
            println!("{}", Value::Object(all.collect()));
            return Ok(());
        }
        for (admin, status) in &answers {
            let Some(shards) = status["txn"]["shards"].as_object() else { return Err(Self::is_off(admin)) };
            println!("host {}", text(&status["host"]));
            let mut shards: Vec<_> = shards.iter().collect();
            shards.sort_by_key(|(number, _)| number.parse::<u16>().unwrap_or(u16::MAX));
            for (number, shard) in shards {
                println!(
                    "  shard {number}: on {}, led by {} ({} preferred){}",
                    text(&shard["replicas"]),
                    text(&shard["leader"]),
                    text(&shard["preferred"]),
                    if shard["settled"] == true { "" } else { ", moving" },
                );
                if shard["holds"] == false {
                    continue;
                }
                println!(
                    "    leads {}, {} keys, {} versions, {} bytes, {} in progress, {} prepared, readable up to {}",
                    text(&shard["leads"]),
                    text(&shard["keys"]),
                    text(&shard["versions"]),
                    text(&shard["bytes"]),
                    text(&shard["in_progress"]),
                    text(&shard["prepared"]),
                    text(&shard["safe"]),
                );
            }
        }
        Ok(())
    }
}
