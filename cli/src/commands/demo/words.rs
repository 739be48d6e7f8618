//! The words of the demo's prompt: its commands, how a line is divided into words, and what may stand at the cursor.

use server::cluster::keys::nearest;

/// What a command takes first, as far as that can be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    /// Nothing that is known beforehand.
    Free,
    /// A key.
    Key,
    /// A host.
    Host,
    /// A level of transactions, or an option.
    Level,
    /// A region.
    Region,
    /// A region, or one of its hosts.
    Place,
}

/// A command of the prompt.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// What it takes, as the help shows it.
    pub(super) takes: &'static str,
    pub(super) does: &'static str,
    operand: Operand,
}

const fn command(name: &'static str, takes: &'static str, does: &'static str, operand: Operand) -> Command {
    Command { name, takes, does, operand }
}

/// Those of a demo of one cluster, in the order of the help.
pub(super) const COMMANDS: [Command; 16] = [
    command("put", "KEY VALUE", "write a key; quote what has blanks", Operand::Key),
    command("get", "KEY", "read it", Operand::Key),
    command("del", "KEY", "delete it", Operand::Key),
    command("incr", "KEY [BY]", "add to a number", Operand::Key),
    command("scan", "[PREFIX]", "list keys", Operand::Key),
    command("status", "", "which host leads, how far each is", Operand::Free),
    command("kill", "HOST|all", "stop as a crash does", Operand::Host),
    command("restart", "HOST|all", "start it again", Operand::Host),
    command("pause", "HOST|all", "as a process that hangs", Operand::Host),
    command("resume", "HOST|all", "go on", Operand::Host),
    command("partition", "HOST", "no link to the others", Operand::Host),
    command("heal", "", "all links are sound again", Operand::Free),
    command(
        "photos",
        "[LEVEL...] [--no-fence]",
        "what each level shows of a commit half-way",
        Operand::Level,
    ),
    command("help", "", "this list", Operand::Free),
    command("quit", "", "end the demo, and drop its data", Operand::Free),
    command("exit", "", "the same", Operand::Free),
];

/// Those of a demo of several regions.
pub(super) const REGION_COMMANDS: [Command; 12] = [
    command("append", "REGION COLOUR TEXT", "a node of a colour, in a region", Operand::Region),
    command("sync", "REGION COLOUR", "the colour as the region shows it", Operand::Region),
    command("regions", "", "who hears whom, and what the others lack", Operand::Free),
    command("cut", "[REGION]", "no link between regions, or none of one", Operand::Region),
    command("heal", "", "all links are sound again", Operand::Free),
    command("kill", "REGION|HOST", "stop as a crash does", Operand::Place),
    command("restart", "REGION|HOST", "start it again", Operand::Place),
    command("wait", "TIME", "let the writers go on", Operand::Free),
    command("verdict", "", "judge all that the writers did so far", Operand::Free),
    command("help", "", "this list", Operand::Free),
    command("quit", "", "end the demo, and drop its data", Operand::Free),
    command("exit", "", "the same", Operand::Free),
];

/// Levels of transactions, and the option of `photos`.
pub(super) const LEVELS: [&str; 4] = ["strict", "rss", "process-ordered", "--no-fence"];

/// Words as a shell divides a line into them.
///
/// # Errors
/// If a quote is not closed.
pub(super) fn words_of(line: &str) -> Result<Vec<String>, String> {
    shlex::split(line).ok_or_else(|| "a quote is not closed".to_owned())
}

/// Why a line is no command: an unknown word, or operands that do not fit.
pub(super) fn misunderstood(commands: &[Command], words: &[&str]) -> String {
    let Some(first) = words.first() else { return "nothing was asked for".to_owned() };
    if let Some(known) = commands.iter().find(|command| command.name == *first) {
        return match known.takes {
            "" => format!("{first} takes nothing"),
            takes => format!("wanted: {first} {takes}"),
        };
    }
    match nearest(first, commands.iter().map(|command| command.name)) {
        Some(meant) => format!("no such command: {first}; did you mean {meant}?"),
        None => format!("no such command: {first}; try help"),
    }
}

/// The help.
pub(super) fn help(commands: &[Command]) -> String {
    let lines = commands.iter().map(|command| {
        let call = format!("{} {}", command.name, command.takes);
        format!("  {call:<34}{}\n", command.does)
    });
    lines.collect()
}

/// What may stand at the end of a line that is being typed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Where the word begins, in bytes of the line.
    pub(super) begins: usize,
    /// What it has so far, without quotes.
    pub(super) typed: String,
    /// None: a command.
    pub(super) operand: Option<Operand>,
}

/// What the last word of `line` may become.
pub(super) fn wanted(commands: &[Command], line: &str) -> Wanted {
    let (mut begins, mut quote, mut escaped) = (0, None, false);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, _) if letter.is_whitespace() => begins = at + letter.len_utf8(),
            _ => {}
        }
    }
    let closed =
        quote.map_or_else(|| line[begins..].to_owned(), |quote| format!("{}{quote}", &line[begins..]));
    let typed = shlex::split(&closed).and_then(|words| words.into_iter().next()).unwrap_or_default();
    let before = shlex::split(&line[..begins]).unwrap_or_default();
    let operand = before.first().map(|first| {
        let known = commands.iter().find(|command| command.name == first);
        let operand = known.map_or(Operand::Free, |command| command.operand);
        if before.len() > 1 && operand != Operand::Level { Operand::Free } else { operand }
    });
    Wanted { begins, typed, operand }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A completion that replaces the wrong part of a line destroys what was typed.
    #[test]
    fn the_word_at_the_cursor_is_found() {
        let at = |line| {
            let wanted = wanted(&COMMANDS, line);
            (wanted.begins, wanted.typed, wanted.operand)
        };
        assert_eq!(at(""), (0, String::new(), None));
        assert_eq!(at("ki"), (0, "ki".to_owned(), None));
        assert_eq!(at("kill "), (5, String::new(), Some(Operand::Host)));
        assert_eq!(at("get bank/0"), (4, "bank/0".to_owned(), Some(Operand::Key)));
        assert_eq!(at("get \"a b"), (4, "a b".to_owned(), Some(Operand::Key)));
        assert_eq!(at("get a\\ b"), (4, "a b".to_owned(), Some(Operand::Key)));
        assert_eq!(at("put \"a b\" c"), (10, "c".to_owned(), Some(Operand::Free)));
        assert_eq!(at("photos rss st"), (11, "st".to_owned(), Some(Operand::Level)));
        assert_eq!(at("frobnicate x"), (11, "x".to_owned(), Some(Operand::Free)));
    }

    // A user who mistypes must learn which word was wrong, and not that the whole line is unknown.
    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        assert_eq!(misunderstood(&COMMANDS, &["get"]), "wanted: get KEY");
        assert_eq!(misunderstood(&COMMANDS, &["heal", "a"]), "heal takes nothing");
        assert_eq!(misunderstood(&COMMANDS, &["kil", "a"]), "no such command: kil; did you mean kill?");
        assert_eq!(misunderstood(&COMMANDS, &["frobnicate"]), "no such command: frobnicate; try help");
        assert_eq!(words_of("put 'a b' \"c d\"").expect("closed"), ["put", "a b", "c d"]);
        assert_eq!(words_of("put 'a").expect_err("open"), "a quote is not closed");
    }

    // A command that the help does not list is not found.
    #[test]
    fn the_help_lists_all() {
        for commands in [&COMMANDS[..], &REGION_COMMANDS] {
            let help = help(commands);
            assert!(commands.iter().all(|command| help.contains(&format!("  {} ", command.name))), "{help}");
        }
    }
}
