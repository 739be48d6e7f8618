//! EDN as Jepsen writes it: maps, vectors, lists, sets, keywords, tagged values (the tag is dropped).

use super::tree::{Cursor, DEPTH_MAX, Tree};

/// Parses one EDN value that fills `text`.
pub(super) fn parse(text: &str) -> Result<Tree<'_>, String> {
    let mut cursor = Cursor { text, at: 0 };
    let tree = value(&mut cursor, 0)?;
    space(&mut cursor);
    match cursor.peek() {
        None => Ok(tree),
        Some(_) => Err(format!("column {}: something follows the value", cursor.at + 1)),
    }
}

fn space(cursor: &mut Cursor<'_>) {
    loop {
        match cursor.peek() {
            Some(byte) if byte.is_ascii_whitespace() || byte == b',' => cursor.at += 1,
            Some(b';') => {
                while cursor.peek().is_some_and(|byte| byte != b'\n') {
                    cursor.at += 1;
                }
            }
            _ => return,
        }
    }
}

fn value<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Result<Tree<'a>, String> {
    space(cursor);
    if depth > DEPTH_MAX {
        return Err(format!("column {}: nested deeper than {DEPTH_MAX}", cursor.at + 1));
    }
    let Some(byte) = cursor.peek() else { return Err("the value is missing: truncated?".to_owned()) };
    match byte {
        b'"' => cursor.string().map(Tree::Text),
        b'[' => items(cursor, b']', depth).map(Tree::Seq),
        b'(' => items(cursor, b')', depth).map(Tree::Seq),
        b'{' => {
            let flat = items(cursor, b'}', depth)?;
            if flat.len() % 2 == 1 {
                return Err(format!("column {}: a map with a name but no value", cursor.at));
            }
            let mut entries: Vec<(Tree<'a>, Tree<'a>)> = Vec::with_capacity(flat.len() / 2);
            let mut flat = flat.into_iter();
            while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
                if entries.iter().any(|(known, _)| *known == name) {
                    return Err(format!(
                        "column {}: field {:?} stands twice",
                        cursor.at,
                        name.word().unwrap_or("")
                    ));
                }
                entries.push((name, value));
            }
            Ok(Tree::Map(entries))
        }
        b'#' => {
            cursor.at += 1;
            match cursor.peek() {
                Some(b'{') => items(cursor, b'}', depth).map(Tree::Seq),
                Some(b'_') => {
                    cursor.at += 1;
                    value(cursor, depth + 1)?;
                    value(cursor, depth + 1)
                }
                _ => {
                    word(cursor);
                    value(cursor, depth + 1)
                }
            }
        }
        b':' => {
            cursor.at += 1;
            let word = word(cursor);
            if word.is_empty() {
                Err(format!("column {}: an empty keyword: truncated?", cursor.at))
            } else {
                Ok(Tree::Keyword(word))
            }
        }
        b'-' | b'+' | b'0'..=b'9' => {
            let digit = cursor.text.as_bytes().get(cursor.at + 1).is_some_and(u8::is_ascii_digit);
            if byte.is_ascii_digit() || digit { cursor.number() } else { Ok(Tree::Text(word(cursor).into())) }
        }
        b'\\' => {
            cursor.at += 1;
            Ok(Tree::Text(word(cursor).into()))
        }
        _ => match word(cursor) {
            "" => Err(format!("column {}: not EDN", cursor.at + 1)),
            "nil" => Ok(Tree::Nil),
            "true" => Ok(Tree::Bool(true)),
            "false" => Ok(Tree::Bool(false)),
            symbol => Ok(Tree::Text(symbol.into())),
        },
    }
}

fn items<'a>(cursor: &mut Cursor<'a>, bracket: u8, depth: usize) -> Result<Vec<Tree<'a>>, String> {
    cursor.at += 1;
    let mut items = Vec::new();
    loop {
        space(cursor);
        match cursor.peek() {
            None => return Err(format!("the text ends before {}: truncated?", bracket as char)),
            Some(byte) if byte == bracket => {
                cursor.at += 1;
                return Ok(items);
            }
            Some(_) => items.push(value(cursor, depth + 1)?),
        }
    }
}

fn word<'a>(cursor: &mut Cursor<'a>) -> &'a str {
    let from = cursor.at;
    let ends = |byte: u8| byte.is_ascii_whitespace() || b",;\"[](){}".contains(&byte);
    while cursor.peek().is_some_and(|byte| !ends(byte)) {
        cursor.at += 1;
    }
    &cursor.text[from..cursor.at]
}
