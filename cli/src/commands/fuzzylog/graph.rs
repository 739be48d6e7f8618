//! Colours as a graph: an edge for each node and the one behind it in a colour.

use super::client::{Hosts, Named, number, page_path};
use crate::commands::kv::Output;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Nodes of one graph: more are no picture.
const NODES_MAX: usize = 10_000;
/// Characters of a body that are shown.
const SHOWN: usize = 24;

/// Prints it. All colours are cut at one point of their order.
pub(super) fn print(hosts: &Hosts, colours: &[String], output: Output) -> Result<(), Failure> {
    let cut = hosts.write("/v1/fuzzylog/snapshot", &Named::drawn().next(json!({ "colours": colours })))?;
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    // Of several regions, the nodes of each.
    let mut regions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut edges = Vec::new();
    for colour in colours {
        let (tail, mut before): (u64, Option<String>) = (number(&cut["tails"][colour])?, None);
        let mut from = hosts.first(colour)?;
        while from < tail {
            let page = hosts.read(&page_path(colour, from, Some(tail)))?;
            let nodes = page["nodes"].as_array().into_iter().flatten();
            for node in nodes {
                let name = node["at"].as_str().unwrap_or_default().to_owned();
                let is_new = labels.insert(name.clone(), label(node)).is_none();
                if let Some(region) = node["region"].as_str().filter(|_| is_new) {
                    regions.entry(region.to_owned()).or_default().push(name.clone());
                }
                if let Some(before) = before.replace(name.clone()) {
                    edges.push((before, name, colour));
                }
            }
            let next = number(&page["next"])?;
            if next <= from {
                break;
            }
            from = next;
            if labels.len() > NODES_MAX {
                let fact = format!("the colours have more than {NODES_MAX} nodes");
                return Err(Failure::input(
                    "O1062",
                    "the graph is too large",
                    fact,
                    "ordinate fuzzylog trim, or other colours",
                ));
            }
        }
    }
    if output == Output::Json {
        let edges: Vec<Value> = edges
            .iter()
            .map(|(before, after, colour)| json!({ "before": before, "after": after, "colour": colour }))
            .collect();
        let mut graph = json!({ "nodes": labels, "edges": edges });
        if !regions.is_empty() {
            graph["regions"] = json!(regions);
        }
        println!("{graph}");
        return Ok(());
    }
    println!("digraph fuzzylog {{");
    for (name, label) in &labels {
        println!("  {} [label={}];", json!(name), json!(label));
    }
    for (region, names) in &regions {
        let names: Vec<String> = names.iter().map(|name| json!(name).to_string()).collect();
        let (cluster, label) = (json!(format!("cluster {region}")), json!(region));
        println!("  subgraph {cluster} {{ label={label}; {}; }}", names.join("; "));
    }
    for (before, after, colour) in &edges {
        println!("  {} -> {} [label={}];", json!(before), json!(after), json!(colour));
    }
    println!("}}");
    Ok(())
}

fn label(node: &Value) -> String {
    let body = node["body"].as_str().or_else(|| node["body_base64"].as_str()).unwrap_or_default();
    let short: String = body.chars().take(SHOWN).collect();
    let more = if short.len() < body.len() { "..." } else { "" };
    format!("{short}{more}")
}
