//! Paths: what is one, whose child it is, and which names a sequential create makes.

use crate::wire::Code;

/// The path of the node above; the root's is the root itself, and a text without a slash has none.
pub fn parent_of(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 => Some("/"),
        at => Some(&path[..at]),
    }
}

/// The last component.
pub fn name_of(path: &str) -> &str {
    path.rfind('/').map_or(path, |at| &path[at + 1..])
}

/// Checks ZooKeeper's rules: absolute, no empty, `.` or `..` component, no trailing slash, none of the characters that it
/// forbids.
pub fn validate(path: &str) -> Result<(), Code> {
    if path == "/" {
        return Ok(());
    }
    let Some(rest) = path.strip_prefix('/') else { return Err(Code::BadArguments) };
    let component_fits = |name: &str| !matches!(name, "" | "." | "..");
    let clean = if path.is_ascii() {
        !path.bytes().any(|byte| byte < b' ' || byte == 0x7f)
    } else {
        !path.chars().any(forbidden)
    };
    if clean && rest.split('/').all(component_fits) { Ok(()) } else { Err(Code::BadArguments) }
}

fn forbidden(letter: char) -> bool {
    matches!(letter, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
        // Java sees letters beyond the basic plane as two surrogates, and forbids these.
        || letter > '\u{ffff}'
}

/// The name that a sequential create makes: the counter as ten digits, as `%010d` prints it.
pub fn sequential_name(path: &str, counter: i32) -> String {
    format!("{path}{counter:010}")
}

/// True if the last component ends as a sequential create's does. Such nodes live with their parent.
pub fn is_sequential(path: &str) -> bool {
    let name = name_of(path).as_bytes();
    let Some(suffix) = name.last_chunk::<10>() else { return false };
    let digits = suffix.strip_prefix(b"-").unwrap_or(suffix);
    digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A path that one implementation takes and another refuses cannot be moved between them.
    #[test]
    fn the_rules_are_zookeepers() {
        for path in ["/", "/a", "/a/b.c", "/größe", "/a..b", "/zookeeper/x", "/-"] {
            assert_eq!(validate(path), Ok(()), "{path}");
        }
        for path in [
            "",
            "a",
            "a/b",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/a/..",
            "/a\u{0}",
            "/\u{7f}",
            "/\u{e000}",
            "/\u{1f600}",
        ] {
            assert_eq!(validate(path), Err(Code::BadArguments), "{path:?}");
        }
    }

    // A name that is made by a sequential create and not known as such is looked for on the wrong shard.
    #[test]
    fn every_counter_makes_a_sequential_name() {
        for counter in [0, 1, -1, 9_999_999, i32::MAX, i32::MIN, -123_456] {
            for prefix in ["/", "/a/", "/a/lock-", "/a/9"] {
                let path = sequential_name(prefix, counter);
                assert!(is_sequential(&path), "{path}");
            }
        }
        assert_eq!(sequential_name("/a-", -1), "/a--000000001");
        for path in ["/", "/a", "/a/123456789", "/1234567890/b", "/x123456789"] {
            assert!(!is_sequential(path), "{path}");
        }
    }

    // A parent that is taken for another makes a create look at the wrong node.
    #[test]
    fn parents_and_names() {
        assert_eq!((parent_of("/a"), name_of("/a")), (Some("/"), "a"));
        assert_eq!((parent_of("/a/b"), name_of("/a/b")), (Some("/a"), "b"));
        assert_eq!((parent_of("/"), parent_of("a")), (Some("/"), None));
    }
}
