//! `ordinate map scan`: keys of a map in order, page by page.

use super::{Asked, Output, path_of, value_of};
use crate::commands::admin::in_path;
use crate::failure::Failure;
use serde_json::Value;

/// Which keys are wanted.
#[derive(clap::Args)]
pub struct ScanArguments {
    /// Keys that begin like this
    #[arg(long, default_value = "")]
    prefix: String,
    /// Keys that are not before this one
    #[arg(long, default_value = "", value_name = "KEY")]
    from: String,
    /// Keys that are before this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// How many at most: 1 to 1,000
    #[arg(long, default_value = "100")]
    limit: usize,
    /// Print all pages, one after the other, and not the first alone
    #[arg(long, conflicts_with = "next")]
    all: bool,
    /// Keys alone
    #[arg(long)]
    keys_only: bool,
    /// Go on where a page has ended: what it has printed, with the same prefix, from and to
    #[arg(long, value_name = "POINT")]
    next: Option<String>,
}

impl ScanArguments {
    fn path(&self, map: &str, next: Option<&str>) -> String {
        let (prefix, from) = (in_path(&self.prefix), in_path(&self.from));
        let mut path = path_of(map, &format!("/keys?prefix={prefix}&from={from}&limit={}", self.limit));
        for (name, value) in [("to", self.to.as_deref()), ("next", next)] {
            path += &value.map_or_else(String::new, |value| format!("&{name}={}", in_path(value)));
        }
        if self.keys_only { path + "&values=false" } else { path }
    }

    /// Does it.
    pub(super) fn run(&self, map: &str, asked: &Asked) -> Result<(), Failure> {
        let (mut next, mut seen) = (self.next.clone(), asked.seen.clone());
        loop {
            let path = self.path(map, next.as_deref());
            let path = seen.map_or(path.clone(), |seen| format!("{path}&seen={}", in_path(&seen)));
            let page = asked.read(&path)?;
            asked.show_lines(&page, || self.lines(&page));
            next = page["next"].as_str().map(str::to_owned);
            // Another host may answer the next page.
            seen = page["seen"].as_str().map(str::to_owned);
            match &next {
                None => return Ok(()),
                Some(_) if self.all => {}
                Some(next) => {
                    if matches!(asked.output, Output::Table) {
                        eprintln!("there are more: --next {next}");
                    }
                    return Ok(());
                }
            }
        }
    }

    fn lines(&self, page: &Value) -> Vec<String> {
        let line = |entry: &Value| {
            let key = entry["key"].as_str().or_else(|| entry["key_base64"].as_str()).unwrap_or_default();
            if self.keys_only { key.to_owned() } else { format!("{key}={}", value_of(entry)) }
        };
        page["entries"].as_array().into_iter().flatten().map(line).collect()
    }
}
