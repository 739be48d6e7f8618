//! Values as the standard formatter writes them, read back and put into words.

use super::{Names, node_at};

/// A value of a trace.
#[derive(Clone, PartialEq, Debug)]
enum Value<'a> {
    /// A number, a node, a range.
    Plain(&'a str),
    Text(&'a str),
    /// So many.
    Bytes(usize),
    List(Vec<Value<'a>>),
    /// A variant or a struct; its fields have names or none has.
    Named(&'a str, Vec<(Option<&'a str>, Value<'a>)>),
}

/// So many items of a list are shown.
const ITEMS_MAX: usize = 6;
/// Values within values beyond this are not read.
const DEPTH_MAX: usize = 64;

/// The words for the named value that a text begins with, and the rest of the text; none if it begins with something else.
pub(super) fn named<'a>(text: &'a str, names: &Names) -> Option<(String, &'a str)> {
    if !text.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let mut reader = Reader { rest: text, depth: 0 };
    match reader.value()? {
        value @ Value::Named(_, _) => {
            let mut out = String::new();
            say(&value, "", names, &mut out);
            Some((out, reader.rest))
        }
        Value::Plain(_) | Value::Text(_) | Value::Bytes(_) | Value::List(_) => None,
    }
}

/// How many bytes a byte string has whose first quotation mark is read, and where it ends behind its second one.
pub(super) fn bytes_in(text: &str) -> (usize, usize) {
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

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn split(&mut self, at: usize) -> &'a str {
        let (head, rest) = self.rest.split_at(at);
        self.rest = rest;
        head
    }

    fn value(&mut self) -> Option<Value<'a>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let value = self.one();
        self.depth -= 1;
        value
    }

    fn one(&mut self) -> Option<Value<'a>> {
        if self.takes("b\"") {
            let (count, end) = bytes_in(self.rest);
            self.split(end);
            return Some(Value::Bytes(count));
        }
        if self.takes("\"") {
            let (_, end) = bytes_in(self.rest);
            let text = self.split(end);
            return Some(Value::Text(text.strip_suffix('"')?));
        }
        for (open, close) in [("[", "]"), ("(", ")"), ("{", "}")] {
            if self.takes(open) {
                return self.items(close).map(Value::List);
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        if self.rest.starts_with(|c: char| c.is_ascii_uppercase()) {
            let name = self.split(end);
            if self.takes("(") {
                let fields = self.items(")")?.into_iter().map(|value| (None, value));
                return Some(Value::Named(name, fields.collect()));
            }
            if self.takes(" {") {
                return self.fields().map(|fields| Value::Named(name, fields));
            }
            return Some(Value::Named(name, Vec::new()));
        }
        let end = self.rest.find([',', ' ', ')', ']', '}', ':']).unwrap_or(self.rest.len());
        (end > 0).then(|| Value::Plain(self.split(end)))
    }

    /// What stands between brackets; of a map's entries the keys and the values.
    fn items(&mut self, close: &str) -> Option<Vec<Value<'a>>> {
        let mut items = Vec::new();
        while !self.takes(close) {
            items.push(self.value()?);
            if !self.takes(": ") {
                self.takes(", ");
            }
        }
        Some(items)
    }

    fn fields(&mut self) -> Option<Vec<(Option<&'a str>, Value<'a>)>> {
        let mut fields = Vec::new();
        while !self.takes(" }") && !self.takes("}") {
            self.takes(" ");
            if self.takes("..") {
                continue;
            }
            let end = self.rest.find(": ")?;
            let name = self.split(end);
            self.takes(": ");
            fields.push((Some(name), self.value()?));
            self.takes(",");
        }
        Some(fields)
    }
}

/// `said` is what a value is called where it stands.
fn say(value: &Value<'_>, said: &str, names: &Names, out: &mut String) {
    match value {
        Value::Plain(text) => match node_at(text, names) {
            Some((node, role)) => *out += &format!("{role}({node}){}", &text[node.len()..]),
            None => *out += text,
        },
        Value::Text(text) => *out += &format!("\"{text}\""),
        Value::Bytes(count) => *out += &format!("{count} bytes"),
        Value::List(items) => {
            out.push('[');
            items.iter().take(ITEMS_MAX).enumerate().for_each(|(at, item)| {
                *out += if at > 0 { ", " } else { "" };
                say(item, "", names, out);
            });
            if items.len() > ITEMS_MAX {
                *out += &format!(" and {} more", items.len() - ITEMS_MAX);
            }
            out.push(']');
        }
        Value::Named(name, fields) => say_named(name, fields, said, names, out),
    }
}

fn say_named(name: &str, fields: &[(Option<&str>, Value<'_>)], said: &str, names: &Names, out: &mut String) {
    let words = words_of(name);
    match fields {
        [] => *out += &words,
        // What only says whose message it is, or that there is something.
        [(None, inner @ Value::Named(_, _))] => say(inner, said, names, out),
        [(None, inner)] if name == "Some" || words == said => say(inner, said, names, out),
        [(None, inner @ Value::Bytes(_))] => {
            *out += &format!("{words} of ");
            say(inner, "", names, out);
        }
        [(None, inner)] => {
            *out += &format!("{words} ");
            say(inner, "", names, out);
        }
        _ => {
            *out += &format!("{words} (");
            for (at, (field, inner)) in fields.iter().enumerate() {
                *out += if at > 0 { ", " } else { "" };
                let field = field.map(|field| field.replace('_', " ")).unwrap_or_default();
                if !field.is_empty() {
                    *out += &format!("{field} ");
                }
                if is_secret(&field) {
                    *out += "(secret)";
                } else {
                    say(inner, &field, names, out);
                }
            }
            out.push(')');
        }
    }
}

pub(super) fn is_secret(field: &str) -> bool {
    ["password", "key", "secret"].contains(&field)
}

/// `ShardDurable` is "shard durable", `Phase2a` is "phase 2a".
fn words_of(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut before = ' ';
    for c in name.chars() {
        let begins = c.is_ascii_uppercase() || c.is_ascii_digit() && before.is_ascii_alphabetic();
        if begins && !words.is_empty() && !(before.is_ascii_uppercase() && c.is_ascii_uppercase()) {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(text: &str) -> Option<String> {
        named(text, &Names::from([("h9.1".to_owned(), "replica")])).map(|(words, rest)| words + rest)
    }

    // A value that is read wrongly shows something that did not happen.
    #[test]
    fn values_are_reported_in_words() {
        let message = r#"Log(Acceptor(Phase2a { ballot: Ballot { round: 3, leader: h9.1 }, slot: Slot(4), value: Entry(b"a\x01\"") })) "#;
        let words =
            "phase 2a (ballot ballot (round 3, leader replica(h9.1)), slot 4, value entry of 3 bytes) ";
        assert_eq!(reported(message).as_deref(), Some(words));
        assert_eq!(
            reported("Reach { numbers: {1: Some(2)}, layout: None, .. }").as_deref(),
            Some("reach (numbers [1, 2], layout none)")
        );
        assert_eq!(reported("Empty {} x").as_deref(), Some("empty x"));
        let many = format!("Row {{ key: [1], of: {:?} }}", (0..9).collect::<Vec<_>>());
        assert_eq!(reported(&many).as_deref(), Some("row (key (secret), of [0, 1, 2, 3, 4, 5 and 3 more])"));
    }

    // A text that ends in the middle of a value must be shown, and read to its end.
    #[test]
    fn what_is_no_value_is_left_alone() {
        for text in ["Row { a: ", "Row(1", "lower { a: 1 }", "Row { a 1 }", &"A(".repeat(200)] {
            assert_eq!(reported(text), None, "{text}");
        }
    }
}
