//! JSON, one value from one text; whole numbers keep 64 bits.

use super::tree::{Cursor, DEPTH_MAX, Tree};

/// Parses one JSON value that fills `text`.
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
    while cursor.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
        cursor.at += 1;
    }
}

fn value<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Result<Tree<'a>, String> {
    space(cursor);
    if depth > DEPTH_MAX {
        return Err(format!("column {}: nested deeper than {DEPTH_MAX}", cursor.at + 1));
    }
    match cursor.peek() {
        None => Err("the value is missing: truncated?".to_owned()),
        Some(b'"') => cursor.string().map(Tree::Text),
        Some(b'[') => {
            cursor.at += 1;
            let mut items = Vec::new();
            while !closes(cursor, b']', items.is_empty())? {
                items.push(value(cursor, depth + 1)?);
            }
            Ok(Tree::Seq(items))
        }
        Some(b'{') => {
            cursor.at += 1;
            let mut entries: Vec<(Tree<'a>, Tree<'a>)> = Vec::new();
            while !closes(cursor, b'}', entries.is_empty())? {
                space(cursor);
                if cursor.peek() != Some(b'"') {
                    return Err(format!("column {}: a name in double quotes is wanted", cursor.at + 1));
                }
                let name = Tree::Text(cursor.string()?);
                space(cursor);
                if cursor.peek() != Some(b':') {
                    return Err(format!("column {}: a colon is wanted", cursor.at + 1));
                }
                cursor.at += 1;
                if entries.iter().any(|(known, _)| *known == name) {
                    return Err(format!(
                        "column {}: field {:?} stands twice",
                        cursor.at,
                        name.word().unwrap_or("")
                    ));
                }
                entries.push((name, value(cursor, depth + 1)?));
            }
            Ok(Tree::Map(entries))
        }
        Some(b'-' | b'0'..=b'9') => cursor.number(),
        Some(_) => {
            let rest = &cursor.text[cursor.at..];
            let words = [("null", Tree::Nil), ("true", Tree::Bool(true)), ("false", Tree::Bool(false))];
            for (word, tree) in words {
                if rest.starts_with(word) {
                    cursor.at += word.len();
                    return Ok(tree);
                }
            }
            Err(format!("column {}: not JSON", cursor.at + 1))
        }
    }
}

/// Steps over a comma, or over the closing bracket and says so.
fn closes(cursor: &mut Cursor<'_>, bracket: u8, first: bool) -> Result<bool, String> {
    space(cursor);
    match cursor.peek() {
        Some(byte) if byte == bracket => {
            cursor.at += 1;
            Ok(true)
        }
        Some(b',') if !first => {
            cursor.at += 1;
            Ok(false)
        }
        Some(_) if first => Ok(false),
        Some(_) => Err(format!("column {}: a comma or {} is wanted", cursor.at + 1, bracket as char)),
        None => Err(format!("the line ends before {}: truncated?", bracket as char)),
    }
}
