//! Traces in words: roles instead of slots, messages and values without their brackets, lengths instead of bytes, and no secret.

mod values;

use crate::plan::{Aim, Blow, Fate, Fault, Frozen, HostMask, Loss, NetworkPartition};
use crate::spec::StrikeKind;
use std::collections::BTreeMap;

/// The roles of nodes, by the nodes' names.
pub(crate) type Names = BTreeMap<String, &'static str>;

/// A fault as a sentence.
pub(crate) fn of_fault(fault: &Fault, strikes: &[StrikeKind]) -> String {
    match fault {
        Fault::Message { from, to, nth, fate, .. } => {
            let ms = |nanoseconds: &u64| *nanoseconds as f64 / 1e6;
            let fate = match fate {
                Fate::Lost => "is lost".to_owned(),
                Fate::Twice { later } => format!("arrives again {:.3} ms later", ms(later)),
                Fate::Overtaken { by } => format!("is overtaken by what follows within {:.3} ms", ms(by)),
                Fate::Late { by } => format!("arrives {:.3} ms late", ms(by)),
            };
            format!("message {nth} from host {from} to host {to} {fate}")
        }
        Fault::Timed { at, lasts, blow } => {
            let (at, lasts) = (*at as f64 / 1e9, *lasts as f64 / 1e9);
            format!("at {at:.6} s, for {lasts:.3} s: {}", of_blow(blow, strikes))
        }
        Fault::Freeze { host, way } => {
            let way = match way {
                Frozen::Down => "stays down",
                Frozen::Isolated => "stays partitioned",
                Frozen::Deaf => "hears nobody of the core",
                Frozen::Mute => "is not heard by the core",
                Frozen::Paused => "stands still",
            };
            format!("host {host} {way} after the heal")
        }
    }
}

fn of_hosts(hosts: HostMask) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
    match &hosts[..] {
        [] => "no host".to_owned(),
        [one] => format!("host {one}"),
        [before @ .., last] => format!("hosts {} and {last}", before.join(", ")),
    }
}

fn of_crash(hosts: HostMask, aim: Aim, loss: Loss, output_lost: bool) -> String {
    let when = match aim {
        Aim::Now => "at once",
        Aim::Unsynced => "before the next sync",
        Aim::Synced => "right after the next sync",
    };
    let loss = match loss {
        Loss::None => "no write is lost",
        Loss::All => "writes that are not synced are lost",
        Loss::Torn => "writes that are not synced are torn",
        Loss::Reordered => "some writes that are not synced are lost, and later ones are not",
    };
    let sent = if output_lost { ", and what is on its way from there is lost" } else { "" };
    format!("a crash of {}, {when}; {loss}{sent}", of_hosts(hosts))
}

fn of_partition(links: NetworkPartition) -> String {
    match links {
        NetworkPartition::Both { side } => {
            format!("{} and the others do not hear each other", of_hosts(side))
        }
        NetworkPartition::OneWay { side } => format!("the others do not hear {}", of_hosts(side)),
        NetworkPartition::Bridge { side, bridge } => {
            format!("{} and the others do not hear each other, but for host {bridge}", of_hosts(side))
        }
        NetworkPartition::Ring { hosts } => {
            format!("of {} each hears its two neighbours only", of_hosts(hosts))
        }
    }
}

fn of_blow(blow: &Blow, strikes: &[StrikeKind]) -> String {
    let share = |millionths: i32| f64::from(millionths) / 1e6;
    match *blow {
        Blow::Crash { hosts, aim, loss, output_lost, .. } => of_crash(hosts, aim, loss, output_lost),
        Blow::Partition { links } => of_partition(links),
        Blow::Clog { from, to } => format!("the link from host {from} to host {to} holds all back"),
        Blow::Pause { host } => format!("host {host} stands still"),
        Blow::SlowNode { host, factor } => format!("host {host} computes {factor} times slower"),
        Blow::SlowDisk { host, factor } => format!("the disk of host {host} syncs {factor} times slower"),
        Blow::DiskFull { host } => format!("the disk of host {host} is full"),
        Blow::WriteError { host, .. } => format!("the next write of host {host} fails"),
        Blow::BitRot { host, .. } => format!("a durable bit of host {host} flips"),
        Blow::MisdirectedWrite { host, .. } => format!("a synced write of host {host} goes astray"),
        Blow::DiskLost { host } => format!("host {host} loses its disk"),
        Blow::ClockSkew { host, millionths } => {
            format!("the wall clock of host {host} is off by {} of its error", share(millionths))
        }
        Blow::ClockJump { host, millionths } => {
            format!("the wall clock of host {host} jumps to {} of its error", share(millionths))
        }
        Blow::ClockDrift { host, per_billion } => {
            format!("the clocks of host {host} gain {per_billion} ns a second")
        }
        Blow::ClockLie { host, nanoseconds } => {
            format!("the wall clock of host {host} is off by {nanoseconds} ns and does not say so")
        }
        Blow::ClockLoss { host } => format!("nobody keeps the wall clock of host {host}"),
        Blow::ClockStep { host, nanoseconds } => {
            format!("the wall clock of host {host} is set by {nanoseconds} ns")
        }
        Blow::Strike { which, .. } => match strikes.get(usize::from(which)) {
            Some(strike) => strike.name.to_owned(),
            None => format!("strike {which}"),
        },
    }
}

/// A line of a trace as somebody reads it: bytes become their number, secrets nothing, nodes are named by their roles, and messages
/// are put into words.
pub fn plain(line: &str, names: &Names) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(next) = rest.chars().next() {
        let before = out.chars().next_back();
        let begins = before.is_none_or(|before| !before.is_alphanumeric() && before != '_');
        if begins && let Some(text) = rest.strip_prefix("b\"") {
            let (count, end) = values::bytes_in(text);
            out += &format!("({count} bytes)");
            rest = &text[end..];
        } else if begins && let Some(secret) = secret_at(rest) {
            out += secret;
            out += ": (secret)";
            rest = after_value(&rest[secret.len() + 2..]);
        } else if begins
            && next == 'h'
            && let Some((node, role)) = node_at(rest, names)
        {
            out += &format!("{role}({node})");
            rest = &rest[node.len()..];
        } else if let Some(after) = rest.strip_prefix(" -> ") {
            out += " sends ";
            rest = after;
        } else if begins
            && has_fields(rest)
            && let Some((words, after)) = values::named(rest, names)
        {
            out += &words;
            rest = after;
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// A name and what its brackets hold: a single word may be one of a sentence.
fn has_fields(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    text[end..].starts_with('(') || text[end..].starts_with(" {")
}

fn secret_at(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(": ")?;
    (values::is_secret(name) && (rest.starts_with('[') || rest.starts_with("b\""))).then_some(name)
}

/// What follows a list or a byte string.
fn after_value(text: &str) -> &str {
    if let Some(list) = text.strip_prefix('[') {
        return list.find(']').map_or("", |end| &list[end + 1..]);
    }
    let bytes = text.strip_prefix("b\"").unwrap_or(text);
    &bytes[values::bytes_in(bytes).1..]
}

fn node_at<'a>(text: &'a str, names: &Names) -> Option<(&'a str, &'static str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let node = text[..end].trim_end_matches('.');
    names.get(node).map(|role| (node, *role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    // A report that shows raw batches is not read, and one that shows passwords must not be saved.
    #[test]
    fn traces_are_reported_in_words() {
        let names = BTreeMap::from([("h9.4100".to_owned(), "replica")]);
        let line = r#"h9.4100 -> h8.1 Log(Voted(Voted { slot: Slot(3), value: Entry(b"\x02\"\0a)"), password: [1, 2] }))"#;
        assert_eq!(
            plain(line, &names),
            "replica(h9.4100) sends h8.1 voted (slot 3, value entry of 5 bytes, password (secret))"
        );
        assert_eq!(
            plain("Attach { password: b\"ab\", timeout: 3 } was refused (once)", &names),
            "attach (password (secret), timeout 3) was refused (once)"
        );
        assert_eq!(
            plain("Nobody has password: [1, 2] or b\"x\"", &names),
            "Nobody has password: (secret) or (1 bytes)"
        );
    }

    // Somebody who is to repeat a run by hand reads what befell it.
    #[test]
    fn faults_are_sentences() {
        let strikes = [StrikeKind { name: "kill the sequencer", class: Class::Strike }];
        let hosts = HostMask(0b101);
        let crash = Blow::Crash { hosts, aim: Aim::Unsynced, loss: Loss::All, output_lost: false, draw: 0 };
        let of = |blow| of_fault(&Fault::Timed { at: 1_500_000_000, lasts: 20_000_000, blow }, &strikes);
        assert_eq!(
            of(crash),
            "at 1.500000 s, for 0.020 s: a crash of hosts 0 and 2, before the next sync; writes that are not synced are lost"
        );
        assert_eq!(of(Blow::Strike { which: 0, draw: 9 }), "at 1.500000 s, for 0.020 s: kill the sequencer");
    }
}
