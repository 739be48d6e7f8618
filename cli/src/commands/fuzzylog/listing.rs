//! The partitions, and what is in them: colours, and appends that are not finished.

use super::client::Hosts;
use crate::commands::kv::Output;
use crate::failure::Failure;
use serde_json::{Map, Value, json};

/// Colours of one answer.
const PAGE: usize = 1_000;

/// Prints the partitions and their chains.
pub(super) fn partitions(hosts: &Hosts, output: Output) -> Result<(), Failure> {
    let answer = hosts.read("/v1/fuzzylog/partitions")?;
    if output == Output::Json {
        println!("{answer}");
        return Ok(());
    }
    for chain in answer["partitions"].as_array().into_iter().flatten() {
        let names = |of: &str| -> Vec<&str> {
            chain[of].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let leaving = names("leaving").join(", ");
        let state = match (chain["serves"] == true, leaving.is_empty()) {
            (false, _) => "  not serving yet".to_owned(),
            (true, true) => String::new(),
            (true, false) => format!("  leaving: {leaving}"),
        };
        println!(
            "partition {}  epoch {}  {}{state}",
            chain["partition"],
            chain["epoch"],
            names("chain").join(" -> ")
        );
    }
    Ok(())
}

/// Prints the colours of all partitions, or of one, up to a limit.
pub(super) fn colours(
    hosts: &Hosts,
    partition: Option<u16>,
    limit: usize,
    output: Output,
) -> Result<(), Failure> {
    let partitions: Vec<u64> = match partition {
        Some(partition) => vec![u64::from(partition)],
        None => {
            let answer = hosts.read("/v1/fuzzylog/partitions")?;
            let each = answer["partitions"].as_array().into_iter().flatten();
            each.filter_map(|chain| chain["partition"].as_u64()).collect()
        }
    };
    let (mut left, mut from) = (limit, None::<String>);
    for partition in partitions {
        loop {
            if left == 0 {
                // Not in the output, which programs read.
                eprintln!("there may be more: --limit was reached");
                return Ok(());
            }
            let after = from.take().map_or_else(String::new, |from| format!("&from={from}"));
            let asked = left.min(PAGE);
            let path = format!("/v1/fuzzylog/colours?partition={partition}&limit={asked}{after}");
            let page = hosts.read(&path)?;
            let listed = page["colours"].as_array().map_or(&[][..], Vec::as_slice);
            match output {
                Output::Json => println!("{page}"),
                Output::Table => listed.iter().for_each(|colour| println!("{}", line(partition, colour))),
            }
            left = left.saturating_sub(listed.len());
            from = page["next"].as_str().map(str::to_owned);
            if from.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn line(partition: u64, colour: &Value) -> String {
    // A colour all of whose nodes were trimmed has a digest alone.
    let name = colour["colour"].as_str();
    let name = name.map_or_else(
        || format!("(trimmed) {}", colour["digest"].as_str().unwrap_or_default()),
        str::to_owned,
    );
    format!("{name}  partition {partition}  {} to {}", colour["first"], colour["tail"])
}

/// Prints what is not finished, of all partitions that the hosts have which are asked.
pub(super) fn stuck(hosts: &Hosts, output: Output) -> Result<(), Failure> {
    let mut partitions = Map::new();
    for answer in hosts.read_each("/v1/fuzzylog/stuck")? {
        for (partition, seen) in answer["partitions"].as_object().into_iter().flatten() {
            // A head knows more than others.
            if seen["head"] == true || !partitions.contains_key(partition) {
                partitions.insert(partition.clone(), seen.clone());
            }
        }
    }
    if output == Output::Json {
        println!("{}", json!({ "partitions": partitions }));
        return Ok(());
    }
    let mut any = false;
    for (partition, seen) in &partitions {
        let appends = seen["appends"].as_array().map_or(&[][..], Vec::as_slice);
        for append in appends {
            println!("partition {partition}  {}", unfinished(append));
            any = true;
        }
        // A host lists so many of a partition.
        if let Some(more @ 1..) =
            seen["unfinished"].as_u64().map(|all| all.saturating_sub(appends.len() as u64))
        {
            println!("partition {partition}  {more} more");
        }
    }
    if !any {
        println!("nothing is unfinished in the {} partitions of the hosts that were asked", partitions.len());
    }
    Ok(())
}

fn unfinished(append: &Value) -> String {
    let colours: Vec<&str> =
        append["colours"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let since = append["unchanged_ms"].as_u64();
    let since = since.map_or_else(String::new, |ms| format!("  for {:.1} s", ms as f64 / 1_000.0));
    let taken_over = match append["taken_over"].as_u64() {
        Some(times @ 1..) => format!("  taken over {times} times"),
        Some(0) | None => String::new(),
    };
    let stage = append["stage"].as_str().unwrap_or_default();
    let (client, number) = (append["client"].as_str().unwrap_or_default(), &append["number"]);
    format!("{}  {stage}{since}{taken_over}  client {client} number {number}", colours.join(","))
}
