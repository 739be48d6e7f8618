//! A line as a shell would take it apart: words between spaces, quotes that keep spaces, backslashes.

/// The words of a line; `None` if a quote is not closed or a backslash ends the line.
pub fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            space if space.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => match letters.next()? {
                            escaped @ ('"' | '\\') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        letter => word.push(letter),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next()?),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    // Data with spaces that is split in two is written wrongly, and nobody is notified.
    #[test]
    fn lines_are_split_as_by_a_shell() {
        let words = |line: &str| split(line).map(|words| words.join("|"));
        assert_eq!(words("  create /a  hello\t").as_deref(), Some("create|/a|hello"));
        assert_eq!(
            words(r#"set /a 'two words' "it's \"so\" \n""#).as_deref(),
            Some("set|/a|two words|it's \"so\" \\n")
        );
        assert_eq!(words(r"set /a\ b x\'y").as_deref(), Some("set|/a b|x'y"));
        assert_eq!(split("set /a ''").map(|words| words.len()), Some(3), "empty data is a word");
        assert_eq!(split(""), Some(Vec::new()));
        for open in ["set /a 'x", "set /a \"x", "set /a x\\"] {
            assert_eq!(split(open), None, "{open}");
        }
    }
}
