//! `ordinate zk multi`: several changes, all or none.

use super::client::{ZkClient, ZkError};
use super::words;
use clap::{Parser, Subcommand};
use coordination::wire::{Acl, Identity, JuteInput, JuteOutput as _, Stat, op, write_acls};
use serde_json::{Value, json};

/// One change of a multi; the words are those of the verb of the same name.
#[derive(Parser)]
#[command(name = "multi", no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Create a node
    Create {
        path: String,
        #[arg(default_value = "")]
        data: String,
        #[arg(long)]
        sequential: bool,
        #[arg(long)]
        container: bool,
    },
    /// Set a node's data
    Set {
        path: String,
        data: String,
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        if_version: i32,
    },
    /// Delete a node
    Rm {
        path: String,
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        if_version: i32,
    },
    /// Fail unless the node is there, in this version
    Check {
        path: String,
        #[arg(default_value_t = -1, allow_negative_numbers = true)]
        version: i32,
    },
}

/// Changes that were read and not sent yet.
pub struct Multi {
    texts: Vec<String>,
    body: Vec<u8>,
}

impl Multi {
    /// Reads one change a line; empty ones and those that begin with `#` are none.
    pub fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, ZkError> {
        let mut multi = Self { texts: Vec::new(), body: Vec::new() };
        for line in lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words = words::split(line)
                .ok_or_else(|| ZkError::Input(format!("a quote is not closed in: {line}")))?;
            let parsed = Line::try_parse_from(words).map_err(|error| {
                let said = error.to_string();
                let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
                ZkError::Input(format!("{said} in: {line}   (operations: create, set, rm, check)"))
            })?;
            multi.texts.push(line.to_owned());
            parsed.step.write(&mut multi.body);
        }
        if multi.texts.is_empty() {
            return Err(ZkError::Input("no operation is given".to_owned()));
        }
        header(-1, true, &mut multi.body);
        Ok(multi)
    }

    /// Sends them and prints what came of each.
    pub fn execute(&self, session: &mut ZkClient, json: bool) -> Result<(), ZkError> {
        let reply = session.ask(op::MULTI, &self.body)?;
        let results = self.results(&reply)?;
        if json {
            println!("{}", Value::Array(results.into_iter().map(|result| result.json).collect()));
        } else {
            results.iter().for_each(|result| println!("{}", result.text));
        }
        Ok(())
    }

    fn results(&self, reply: &[u8]) -> Result<Vec<Done>, ZkError> {
        let mut input = JuteInput(reply);
        let mut results = Vec::new();
        for (at, text) in self.texts.iter().enumerate() {
            let (kind, _done, _error) = (input.i32()?, input.bool()?, input.i32()?);
            let path = || words::split(text).and_then(|words| words.into_iter().nth(1)).unwrap_or_default();
            results.push(match kind {
                op::ERROR => match input.i32()? {
                    // Those before and behind the one that failed say only that they were not done.
                    0 | -2 => continue,
                    code => return Err(ZkError::Step { at: at + 1, text: text.clone(), code }),
                },
                op::CREATE | op::CREATE2 => {
                    let made = input.text()?.to_owned();
                    if kind == op::CREATE2 {
                        Stat::read(&mut input)?;
                    }
                    Done::new(format!("created {made}"), json!({ "created": made }))
                }
                op::DELETE => Done::new(format!("deleted {}", path()), json!({ "deleted": path() })),
                op::SET_DATA => {
                    let version = Stat::read(&mut input)?.version;
                    let text = format!("set {} version {version}", path());
                    Done::new(text, json!({ "set": path(), "version": version }))
                }
                op::CHECK => Done::new(format!("checked {}", path()), json!({ "checked": path() })),
                _ => return Err(ZkError::Strange),
            });
        }
        if results.len() == self.texts.len() { Ok(results) } else { Err(ZkError::Strange) }
    }
}

struct Done {
    text: String,
    json: Value,
}

impl Done {
    fn new(text: String, json: Value) -> Self {
        Self { text, json }
    }
}

fn header(kind: i32, done: bool, out: &mut Vec<u8>) {
    out.put_i32(kind);
    out.push(done.into());
    out.put_i32(-1);
}

impl Step {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Create { path, data, sequential, container } => {
                header(if *container { op::CREATE_CONTAINER } else { op::CREATE }, false, out);
                out.put_text(path);
                out.put_buffer(Some(data.as_bytes()));
                write_acls(&[Acl { permissions: 31, who: Identity::new("world", "anyone") }], out);
                out.put_i32(if *container { 4 } else { 2 * i32::from(*sequential) });
            }
            Self::Set { path, data, if_version } => {
                header(op::SET_DATA, false, out);
                out.put_text(path);
                out.put_buffer(Some(data.as_bytes()));
                out.put_i32(*if_version);
            }
            Self::Rm { path, if_version } => {
                header(op::DELETE, false, out);
                out.put_text(path);
                out.put_i32(*if_version);
            }
            Self::Check { path, version } => {
                header(op::CHECK, false, out);
                out.put_text(path);
                out.put_i32(*version);
            }
        }
    }
}
