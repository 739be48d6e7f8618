//! One value of JSON or EDN, borrowed from its text.

use crate::terms::Value;
use std::borrow::Cow;

/// A parsed value. Keywords are EDN's; JSON has none.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Tree<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    /// A number that is no 64-bit whole number, by its text.
    Number(&'a str),
    Text(Cow<'a, str>),
    Keyword(&'a str),
    Seq(Vec<Tree<'a>>),
    Map(Vec<(Tree<'a>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// The text of a string or keyword.
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            Tree::Keyword(word) => Some(word),
            _ => None,
        }
    }

    /// Under a string or keyword of a map.
    pub(super) fn get(&self, name: &str) -> Option<&Tree<'a>> {
        match self {
            Tree::Map(entries) => {
                entries.iter().find(|(key, _)| key.word() == Some(name)).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Tree::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn seq(&self) -> Option<&[Tree<'a>]> {
        match self {
            Tree::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// As a value of a history: numbers stay numbers, anything compound becomes its text.
    pub(super) fn value(&self) -> Value {
        match self {
            Tree::Nil => Value::Nil,
            Tree::Int(number) => Value::Int(*number),
            Tree::Text(text) => Value::from(&**text),
            Tree::Keyword(word) => Value::from(format!(":{word}")),
            other => Value::from(other.text()),
        }
    }

    fn text(&self) -> String {
        let join = |items: &[Tree<'_>]| items.iter().map(Tree::text).collect::<Vec<_>>().join(" ");
        match self {
            Tree::Nil => "nil".to_owned(),
            Tree::Bool(truth) => truth.to_string(),
            Tree::Int(number) => number.to_string(),
            Tree::Number(text) => (*text).to_owned(),
            Tree::Text(text) => text.to_string(),
            Tree::Keyword(word) => format!(":{word}"),
            Tree::Seq(items) => format!("[{}]", join(items)),
            Tree::Map(entries) => {
                let parts: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{} {}", key.text(), value.text())).collect();
                format!("{{{}}}", parts.join(", "))
            }
        }
    }
}

/// Nested deeper than this is no history.
pub(super) const DEPTH_MAX: usize = 64;

/// A cursor over text that both parsers share.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The rest of a number's characters.
    pub(super) fn number(&mut self) -> Result<Tree<'a>, String> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-./".contains(&byte)) {
            self.at += 1;
        }
        let text = &self.text[from..self.at];
        let digits = text.strip_suffix('N').unwrap_or(text);
        match digits.parse::<i64>() {
            Ok(number) => Ok(Tree::Int(number)),
            Err(_) if digits.parse::<f64>().is_ok() => Ok(Tree::Number(text)),
            Err(_) => Err(format!("column {}: {text} is not a number", from + 1)),
        }
    }

    /// A string in double quotes, with JSON's escapes (EDN's are among them).
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, String> {
        let begin = self.at + 1;
        self.at = begin;
        let mut owned: Option<String> = None;
        let mut copied = begin;
        loop {
            match self.peek() {
                None => return Err(format!("column {begin}: the string does not end: truncated?")),
                Some(b'"') => {
                    let tail = &self.text[copied..self.at];
                    self.at += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(tail),
                        Some(text) => Cow::Owned(text + tail),
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_with(String::new);
                    text.push_str(&self.text[copied..self.at]);
                    self.at += 1;
                    let letter = self.escape()?;
                    owned.get_or_insert_with(String::new).push(letter);
                    copied = self.at;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(plain @ (b'"' | b'\\' | b'/')) => plain as char,
            Some(b'u') => {
                let unit = self.unit()?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.unit()?;
                    let joined = 0x10000 + ((unit - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
                    return Ok(char::from_u32(joined).unwrap_or('\u{fffd}'));
                }
                char::from_u32(unit).unwrap_or('\u{fffd}')
            }
            _ => return Err(format!("column {}: an unknown escape in a string", self.at)),
        })
    }

    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4);
        self.at += 4;
        digits
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| format!("column {}: \\u wants four hexadecimal digits", self.at))
    }
}
