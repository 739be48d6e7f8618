//! Transactions as lines of text: a file that is one transaction, and a prompt.

use super::{explain, print_row};
use crate::commands::kv::{Endpoint, Output};
use crate::failure::Failure;
use ordinate_client::{Transaction, TxnClient, TxnError};
use serde_json::json;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Line {
    Get(String),
    Put(String, String),
    Del(String),
    Scan(String),
}

const ROWS: u32 = 1_000;

impl Line {
    fn parse(text: &str) -> Result<Self, String> {
        let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let one = || match rest.is_empty() || rest.contains(char::is_whitespace) {
            true => Err(format!("{verb} wants one key")),
            false => Ok(rest.to_owned()),
        };
        match verb {
            "get" => one().map(Self::Get),
            "del" => one().map(Self::Del),
            "scan" => Ok(Self::Scan(rest.to_owned())),
            // The value is the rest of the line, as it is.
            "put" => match rest.split_once(char::is_whitespace) {
                Some((key, value)) => Ok(Self::Put(key.to_owned(), value.trim_start().to_owned())),
                None => Err("put wants a key and a value".to_owned()),
            },
            other => Err(format!("unknown line {other:?}; known: get, put, del, scan")),
        }
    }

    /// Does it within a transaction; what is found is printed.
    async fn run(&self, txn: &Transaction, output: Output) -> Result<(), TxnError> {
        match self {
            Self::Get(key) => {
                let found = txn.get(key.as_str()).await?;
                let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
                output.print(
                    || json!({ "key": key, "value": found }),
                    || format!("{key}  {}", found.as_deref().unwrap_or("(no such key)")),
                );
            }
            Self::Put(key, value) => txn.put(key.as_str(), value.as_str()),
            Self::Del(key) => txn.delete(key.as_str()),
            Self::Scan(prefix) => {
                let found = txn.scan(prefix.as_str(), ROWS).await?;
                found.rows.iter().for_each(|row| print_row(row, output));
            }
        }
        Ok(())
    }
}

fn lines_of(text: &str) -> Result<Vec<Line>, Failure> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    said.map(|(number, line)| {
        Line::parse(line).map_err(|why| {
            let what = format!("line {number} cannot be read: nothing was done");
            Failure::input("O1030", what, why, "ordinate txn run --help")
        })
    })
    .collect()
}

/// Runs a file as one transaction. An attempt that is aborted is made again, and prints again what it reads.
pub(super) fn run(file: &Path, endpoint: &Endpoint) -> Result<(), Failure> {
    let read = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(file),
    };
    let unreadable = |error: std::io::Error| {
        let what = format!("{} cannot be read", file.display());
        Failure::input("O1030", what, error.to_string(), "ordinate txn run FILE")
    };
    let lines = lines_of(&read.map_err(unreadable)?)?;
    let output = endpoint.output();
    endpoint.with_transactions(|client| async move {
        let lines = &lines;
        let done = client.transaction(|txn| async move {
            for line in lines {
                line.run(&txn, output).await?;
            }
            Ok::<(), TxnError>(())
        });
        done.await.map_err(|error| explain(&error, endpoint))?;
        let seen = client.token();
        let words = || format!("committed; the session has seen {seen}");
        output.print(|| json!({ "committed": true, "seen": seen.0 }), words);
        Ok(())
    })
}

/// A prompt. Outside of begin and commit, a line is a transaction.
pub(super) fn shell(endpoint: &Endpoint) -> Result<(), Failure> {
    let interactive = std::io::stdin().is_terminal();
    endpoint.with_transactions(|client| async move {
        let mut open: Option<Transaction> = None;
        let mut failed = None;
        loop {
            if interactive {
                print!("{}", if open.is_some() { "txn*> " } else { "txn> " });
                // A prompt that cannot be shown is no reason to stop.
                let _ = std::io::stdout().flush();
            }
            let mut text = String::new();
            if std::io::stdin().lock().read_line(&mut text).unwrap_or(0) == 0 {
                break;
            }
            match obey(&client, &mut open, text.trim(), endpoint.output()).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(Trouble::Words(why)) => {
                    eprintln!("{why}");
                    failed = Some(Failure::input("O1030", "a line could not be read", why, "help"));
                }
                Err(Trouble::Transaction(error)) => {
                    let failure = explain(&error, endpoint);
                    eprintln!("{failure}");
                    failed = Some(failure);
                }
            }
        }
        if let Some(txn) = open {
            txn.abort();
            eprintln!("the open transaction was given up");
        }
        // A script learns that one of its lines failed; a person has seen it.
        failed.filter(|_| !interactive).map_or(Ok(()), Err)
    })
}

enum Trouble {
    Words(String),
    Transaction(TxnError),
}

impl From<TxnError> for Trouble {
    fn from(error: TxnError) -> Self {
        Self::Transaction(error)
    }
}

/// Does what a line says; false at the end.
async fn obey(
    client: &TxnClient,
    open: &mut Option<Transaction>,
    text: &str,
    output: Output,
) -> Result<bool, Trouble> {
    match text {
        "" => {}
        "quit" | "exit" => return Ok(false),
        "help" => eprintln!("begin, commit, abort, get KEY, put KEY VALUE, del KEY, scan PREFIX, quit"),
        "begin" if open.is_some() => return Err(Trouble::Words("a transaction is open already".to_owned())),
        "begin" => *open = Some(client.begin_transaction().await?),
        "commit" | "abort" if open.is_none() => {
            return Err(Trouble::Words("no transaction is open".to_owned()));
        }
        "abort" => {
            open.take().iter().for_each(Transaction::abort);
            output.print(|| json!({ "aborted": true }), || "aborted".to_owned());
        }
        "commit" => {
            if let Some(txn) = open.take() {
                let at = txn.commit().await?;
                output.print(|| json!({ "committed_at": at.0 }), || format!("committed at {at}"));
            }
        }
        line => {
            let line = Line::parse(line).map_err(Trouble::Words)?;
            match open {
                Some(txn) => line.run(txn, output).await?,
                None => {
                    let line = &line;
                    client.transaction(|txn| async move { line.run(&txn, output).await }).await?;
                }
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A line that is read as another one writes what nobody asked for.
    #[test]
    fn lines_mean_what_they_say() {
        let text = "# pay\n\nget bank/1\nput bank/1  90 euros \ndel x\nscan\nscan bank/\n";
        let lines = lines_of(text).expect("they are sound");
        let own = str::to_owned;
        assert_eq!(
            lines,
            [
                Line::Get(own("bank/1")),
                Line::Put(own("bank/1"), own("90 euros")),
                Line::Del(own("x")),
                Line::Scan(String::new()),
                Line::Scan(own("bank/")),
            ]
        );
        for unsound in ["get", "get a b", "put a", "PUT a b", "incr a"] {
            let refused = lines_of(&format!("get a\n{unsound}\n")).expect_err(unsound);
            assert!(refused.what.starts_with("line 2"), "{refused}");
        }
    }
}
