//! What of a transcript differs from run to run.

/// Units behind numbers that are measured.
const UNITS: [&str; 9] = ["s", "ms", "us", "operations)", "bytes", "B", "KiB", "MiB", "ops/s"];
/// Words before numbers that count on.
const COUNTS: [&str; 6] = ["executed", "version", "gsn", "(version", "appends", "nodes"];

/// The text without that: measured numbers and the hosts that lead are dots, and blanks are one.
pub fn stable(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = without_drawn(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = |(index, word): (usize, &&str)| {
            let before = index.checked_sub(1).map_or("", |before| words[before]);
            let after = words.get(index + 1).copied().unwrap_or("");
            if is_number(word)
                && (UNITS.contains(&after.trim_end_matches([',', ';', '.'])) || COUNTS.contains(&before))
            {
                return "...".to_owned();
            }
            // "a leads", "leader a", "b leads as before", "c leads now".
            if after == "leads" || before == "leader" || (before == "leads" && ["as", "now"].contains(word)) {
                return "...".to_owned();
            }
            if *word == "before" && before == "as" { String::new() } else { (*word).to_owned() }
        };
        let words = words.iter().enumerate().map(of).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The line without what is made of the time or drawn at random: timestamps, identifiers.
fn without_drawn(line: &str) -> String {
    let is_drawn =
        |run: &str| run.len() >= 15 || (run.len() >= 13 && run.bytes().all(|digit| digit.is_ascii_digit()));
    let pieces = line.split_inclusive(|letter: char| !letter.is_ascii_hexdigit());
    let shown = pieces.map(|piece| {
        let run = piece.trim_end_matches(|letter: char| !letter.is_ascii_hexdigit());
        if is_drawn(run) { format!("...{}", &piece[run.len()..]) } else { piece.to_owned() }
    });
    shown.collect()
}

fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches('(').trim_end_matches([')', ',', ';']);
    !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit() || ".,".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::stable;

    // What is taken for volatile and is not lets a page show what was never printed.
    #[test]
    fn what_is_measured_is_volatile_and_nothing_else() {
        let same = |one: &str, other: &str| stable(one) == stable(other);
        assert!(same("  a leads      0.18 s   durability", "  b leads  1.2 s   durability"));
        assert!(same("  kill a: c leads now", "  kill a: b leads as before"));
        assert!(same("(checked: 892 operations)", "(checked: 1021 operations)"));
        assert!(same("  100   (version 101)", "  100   (version 7)"));
        assert!(!same("  100   (version 101)", "  99   (version 101)"));
        assert!(!same("acknowledged writes lost: 0", "acknowledged writes lost: 1"));
        assert!(!same("127.0.0.1:7070", "127.0.0.1:7071"));
        assert!(same(
            "backup 1795647255631-8e213457e9218118: 1 keys",
            "backup 1795647255632-0e213457e9218118: 1 keys"
        ));
        assert!(same("committed at 1795647258191005", "committed at 1795647258191006"));
        assert!(same("ohio appends 79, median 3.1 ms", "ohio appends 80, median 3.0 ms"));
        assert!(!same("200000 writes", "200001 writes"));
        assert!(!same("linearizable (checked: 5 operations)", "NOT LINEARIZABLE (checked: 5 operations)"));
    }
}
