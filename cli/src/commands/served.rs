//! What `ordinate status` prints of transactions and of the partially ordered log.

use serde_json::Value;

fn names(hosts: &Value, between: &str) -> String {
    let names = hosts.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(between)
}

/// Shards, by who leads them.
pub fn print_transactions(txn: &Value) {
    let Some(shards) = txn["shards"].as_object() else { return };
    let sum = |name: &str| shards.values().filter_map(|shard| shard[name].as_u64()).sum::<u64>();
    let leads = shards.values().filter(|shard| shard["leads"] == true).count();
    println!(
        "txn         leads {leads} of {} shards   calls {}   in progress {}   prepared {}",
        shards.len(),
        txn["calls_in_progress"],
        sum("in_progress"),
        sum("prepared"),
    );
    for (number, shard) in shards {
        let leader =
            shard["leader"].as_str().map_or("NOT LED".to_owned(), |leader| format!("{leader} leads"));
        let moves = if shard["settled"] == true { "" } else { ", moves" };
        println!(
            "  shard {number:<4}on {}: {leader}{moves}; {} keys, {} versions, {} bytes",
            names(&shard["replicas"], " "),
            shard["keys"],
            shard["versions"],
            shard["bytes"],
        );
    }
}

/// Partitions, by who serves them.
pub fn print_colours(fuzzylog: &Value) {
    let Some(chains) = fuzzylog["chains"].as_array() else { return };
    let directs = if fuzzylog["directs"] == true { "   directs" } else { "" };
    println!("fuzzylog    {} partitions   calls {}{directs}", chains.len(), fuzzylog["calls_in_progress"]);
    for chain in chains {
        let partition = &chain["partition"];
        let held = &fuzzylog["partitions"][partition.to_string()];
        let serves = if chain["serves"] == true { "" } else { "   NOT SERVED" };
        println!(
            "  partition {partition}: {}; {} colours, {} bytes{serves}",
            names(&chain["chain"], " -> "),
            held["colours"].as_u64().unwrap_or(0),
            held["bytes"].as_u64().unwrap_or(0),
        );
    }
}
