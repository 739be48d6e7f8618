//! A replicated map over one colour (the paper's LogMap):
//! `cargo run --example log_map -- 127.0.0.1:7071 city Zürich`.

use ordinate_client::{FuzzyError, FuzzyInstance, FuzzyLog, FuzzyNode};
use std::collections::BTreeMap;

/// In each process a copy of the map, which the colour's nodes make.
struct LogMap {
    colour: FuzzyInstance,
    view: BTreeMap<String, String>,
}

impl LogMap {
    fn open(log: &FuzzyLog, name: &str) -> Result<Self, FuzzyError> {
        Ok(Self { colour: log.new_instance(name, None)?, view: BTreeMap::new() })
    }

    async fn put(&self, key: &str, value: &str) -> Result<(), FuzzyError> {
        self.colour.append(format!("{key}={value}")).await.map(|_| ())
    }

    async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.colour.append(key.to_owned()).await.map(|_| ())
    }

    /// Linearizable: everything that was acknowledged before is played first.
    async fn get(&mut self, key: &str) -> Result<Option<&str>, FuzzyError> {
        let view = &mut self.view;
        self.colour.sync(|node| apply(view, node)).await?;
        Ok(self.view.get(key).map(String::as_str))
    }
}

fn apply(view: &mut BTreeMap<String, String>, node: &FuzzyNode) {
    let change = String::from_utf8_lossy(&node.body);
    match change.split_once('=') {
        Some((key, value)) => view.insert(key.to_owned(), value.to_owned()),
        None => view.remove(&*change),
    };
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), FuzzyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, key, value] = &arguments[..] else {
        panic!("wanted: HOST:PORT KEY VALUE; an empty value deletes")
    };
    let mut map = LogMap::open(&FuzzyLog::connect([host]), "cities")?;
    println!("{key} was {:?}", map.get(key).await?);
    if value.is_empty() {
        map.delete(key).await?
    } else {
        map.put(key, value).await?
    }
    println!("{key} is {:?}", map.get(key).await?);
    Ok(())
}
