//! Traces in words: roles instead of places, lengths instead of bytes, and no secret.

use crate::plan::{Fate, Fault};
use std::collections::BTreeMap;

/// A fault as a sentence.
pub(crate) fn of_fault(fault: &Fault) -> String {
    match fault {
        Fault::Message { from, to, nth, fate } => {
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
            format!("at {:.6} s, for {:.3} s: {blow:?}", *at as f64 / 1e9, *lasts as f64 / 1e9)
        }
        Fault::Freeze { host, way } => format!("host {host} stays {way:?} after the heal"),
    }
}

/// A line of a trace as somebody reads it: bytes become their number, secrets nothing, and nodes are named by their roles.
pub fn plain(line: &str, names: &BTreeMap<String, &'static str>) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(next) = rest.chars().next() {
        let before = out.chars().next_back();
        let begins = before.is_none_or(|before| !before.is_alphanumeric() && before != '_');
        if begins && let Some(text) = rest.strip_prefix("b\"") {
            let (count, end) = bytes_in(text);
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
        } else if begins && let Some(inner) = doubled(rest) {
            // `Chosen(Chosen { .. })` says everything twice.
            rest = inner;
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// How many bytes a byte string has, and where it ends behind its quotation mark.
fn bytes_in(text: &str) -> (usize, usize) {
    let (bytes, mut count, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() && bytes[at] != b'"' {
        at += match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'x')) => 4,
            (b'\\', Some(_)) => 2,
            _ => 1,
        };
        count += 1;
    }
    (count, (at + 1).min(bytes.len()))
}

fn secret_at(text: &str) -> Option<&'static str> {
    ["password", "key", "secret"].into_iter().find(|name| {
        text.strip_prefix(name).is_some_and(|rest| rest.starts_with(": [") || rest.starts_with(": b\""))
    })
}

/// What follows a list or a byte string.
fn after_value(text: &str) -> &str {
    if let Some(list) = text.strip_prefix('[') {
        return list.find(']').map_or("", |end| &list[end + 1..]);
    }
    let bytes = text.strip_prefix("b\"").unwrap_or(text);
    &bytes[bytes_in(bytes).1..]
}

fn node_at<'a>(text: &'a str, names: &BTreeMap<String, &'static str>) -> Option<(&'a str, &'static str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let node = text[..end].trim_end_matches('.');
    names.get(node).map(|role| (node, *role))
}

/// `Name(Name` without the first, if a value's name is that of its message.
fn doubled(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric())?;
    let (name, rest) = text.split_at(end);
    let inner = rest.strip_prefix('(')?;
    let again = inner.strip_prefix(name)?;
    (!name.is_empty() && again.starts_with([' ', '(', ')'])).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A report that shows raw batches is not read, and one that shows passwords must not be kept.
    #[test]
    fn traces_are_told_in_words() {
        let names = BTreeMap::from([("h9.4100".to_owned(), "replica")]);
        let line =
            r#"h9.4100 -> h8.1 Log(Voted(Voted { slot: 3, value: Entry(b"\x02\"\0a)"), password: [1, 2] }))"#;
        assert_eq!(
            plain(line, &names),
            "replica(h9.4100) -> h8.1 Log(Voted { slot: 3, value: Entry((5 bytes)), password: (secret) }))"
        );
        assert_eq!(
            plain("Attach { password: b\"ab\", timeout: 3 }", &names),
            "Attach { password: (secret), timeout: 3 }"
        );
    }
}
