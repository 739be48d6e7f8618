//! The editor of the demo's prompt: history, completion and colours.

use super::colours;
use super::given::Given;
use super::words::{Command, Operand, wanted};
use crate::commands::kv::end_of_prefix;
use ordinate_client::{Client, Level};
use reedline::{
    Color, ColumnarMenu, Completer, CompletionResult, Emacs, FileBackedHistory, Highlighter, KeyCode,
    KeyModifiers, MenuBuilder as _, Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, Span, StyledText, Suggestion, default_emacs_keybindings,
};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::runtime::Handle;

const HISTORY_LINES_MAX: usize = 1_000;
const HISTORY_BYTES_MAX: u64 = 256 * 1024;
/// How long somebody who typed a tab waits for the names of keys.
const KEYS_WITHIN: Duration = Duration::from_millis(300);
const KEYS_MAX: u32 = 50;
const MENU: &str = "completions";

/// What may be typed.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) commands: &'static [Command],
    /// What operands of these kinds may be.
    pub(super) operands: Vec<(Operand, Vec<String>)>,
    /// Whose keys are completed.
    pub(super) client: Client,
}

/// The editor.
pub(super) struct Editor {
    line: Reedline,
    prompt: Words,
}

impl Editor {
    /// With the history of earlier demos, where there is a folder for it.
    pub(super) fn new(prompt: &'static str, known: Known, runtime: Handle, stop: Arc<AtomicBool>) -> Self {
        let mut keys = default_emacs_keybindings();
        let tab =
            ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, tab);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let menu = ColumnarMenu::default().with_name(MENU).with_marker("");
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_completer(Box::new(Completions { known: known.clone(), runtime }))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_highlighter(Box::new(Colours(known.commands)))
            .with_ansi_colors(colours())
            .with_break_signal(stop);
        let file = history_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
        // Without a file there is the history of this demo alone.
        if let Some(history) = file.and_then(|file| open_history(&file)) {
            line = line.with_history(Box::new(history));
        }
        Self { line, prompt: Words(prompt) }
    }

    /// The next line.
    ///
    /// # Errors
    /// If the terminal does not answer as one does.
    pub(super) fn read(&mut self) -> std::io::Result<Given> {
        loop {
            let signal = self.line.read_line(&self.prompt)?;
            // What cannot be written is of no consequence but to the next demo.
            let _ = self.line.sync_history();
            match signal {
                Signal::Success(line) => return Ok(Given::Line(line)),
                Signal::CtrlC => {}
                // The end of the input, or of the demo.
                _ => return Ok(Given::End),
            }
        }
    }
}

/// Where earlier lines are, by the rules for files that a program remembers on its own account.
fn history_file(state: Option<OsString>, user: Option<OsString>) -> Option<PathBuf> {
    let given = state.map(PathBuf::from).filter(|state| state.is_absolute());
    let usual =
        || user.map(PathBuf::from).filter(|user| user.is_absolute()).map(|user| user.join(".local/state"));
    given.or_else(usual).map(|state| state.join("ordinate/demo_history"))
}

/// A history of bounded size, which nobody else may read: values are typed there.
fn open_history(file: &Path) -> Option<FileBackedHistory> {
    std::fs::create_dir_all(file.parent()?).ok()?;
    OpenOptions::new().create(true).append(true).mode(0o600).open(file).ok()?;
    shorten(file).ok()?;
    FileBackedHistory::with_file(HISTORY_LINES_MAX, file.to_owned()).ok()
}

/// Leaves the newest whole lines within the bound.
fn shorten(file: &Path) -> std::io::Result<()> {
    let mut open = OpenOptions::new().read(true).open(file)?;
    let bytes = open.metadata()?.len();
    if bytes <= HISTORY_BYTES_MAX {
        return Ok(());
    }
    open.seek(SeekFrom::Start(bytes - HISTORY_BYTES_MAX))?;
    let mut newest = Vec::new();
    open.take(HISTORY_BYTES_MAX).read_to_end(&mut newest)?;
    let whole = newest.iter().position(|&byte| byte == b'\n').map_or(newest.len(), |at| at + 1);
    std::fs::write(file, &newest[whole..])
}

struct Words(&'static str);

impl Prompt for Words {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

struct Colours(&'static [Command]);

impl Highlighter for Colours {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        let name = line.split_whitespace().next().unwrap_or("");
        let ends = line.find(name).map_or(0, |at| at + name.len());
        let colour =
            if self.0.iter().any(|command| command.name == name) { Color::Green } else { Color::Red };
        let mut styled = StyledText::new();
        styled.push((colour.normal(), line[..ends].to_owned()));
        styled.push((Color::Default.normal(), line[ends..].to_owned()));
        styled
    }
}

struct Completions {
    known: Known,
    runtime: Handle,
}

impl Completions {
    /// Keys that begin so, as one host has them: none if nobody answers at once.
    fn keys(&self, prefix: &str) -> Vec<String> {
        let client = self.known.client.clone().with_timeout(KEYS_WITHIN);
        let end = end_of_prefix(prefix);
        let scan = client.scan(prefix, end.as_deref(), KEYS_MAX, Level::Eventual);
        let page = self.runtime.block_on(scan);
        let items = page.map(|page| page.items).unwrap_or_default();
        items.into_iter().filter_map(|item| String::from_utf8(item.key.to_vec()).ok()).collect()
    }
}

impl Completer for Completions {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let Some(before) = line.get(..at) else { return CompletionResult::fresh(Vec::new()) };
        let Known { commands, operands, .. } = &self.known;
        let wanted = wanted(commands, before);
        let candidates: Vec<String> = match wanted.operand {
            None => commands.iter().map(|command| command.name.to_owned()).collect(),
            Some(Operand::Key) => self.keys(&wanted.typed),
            Some(operand) => operands
                .iter()
                .filter(|(of, _)| *of == operand)
                .flat_map(|(_, words)| words.clone())
                .collect(),
        };
        let fitting = candidates.into_iter().filter(|candidate| candidate.starts_with(&wanted.typed));
        let suggestions = fitting.filter_map(|candidate| {
            // A word with a zero byte cannot be typed.
            let value = shlex::try_quote(&candidate).ok()?.into_owned();
            let does = commands.iter().find(|command| wanted.operand.is_none() && command.name == candidate);
            Some(Suggestion {
                value,
                description: does.map(|command| command.does.to_owned()),
                span: Span::new(wanted.begins, at),
                append_whitespace: true,
                ..Suggestion::default()
            })
        });
        CompletionResult::fresh(suggestions.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A history in a folder that somebody else named relatively would be strewn over working directories.
    #[test]
    fn the_history_follows_the_environment() {
        let at = |state: Option<&str>, user: Option<&str>| {
            history_file(state.map(OsString::from), user.map(OsString::from))
        };
        assert_eq!(at(Some("/s"), Some("/u")), Some(PathBuf::from("/s/ordinate/demo_history")));
        let usual = Some(PathBuf::from("/u/.local/state/ordinate/demo_history"));
        assert_eq!(at(None, Some("/u")), usual);
        assert_eq!(at(Some("s"), Some("/u")), usual);
        assert_eq!(at(Some(""), None), None);
    }

    // A history that only grows fills the disk, and one that is shortened inside of a line brings commands that nobody typed.
    #[test]
    fn the_history_is_bounded() {
        let folder = std::env::temp_dir().join(format!("ordinate-history-{}", std::process::id()));
        let file = folder.join("ordinate/demo_history");
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        let lines: String = (0..40_000).map(|number| format!("put key {number}\n")).collect();
        std::fs::write(&file, &lines).expect("written");
        open_history(&file).expect("it opens");
        let left = std::fs::read_to_string(&file).expect("text");
        assert!(left.len() as u64 <= HISTORY_BYTES_MAX && left.len() > 10_000, "{}", left.len());
        assert!(left.starts_with("put key ") && lines.ends_with(&left), "{}", &left[..40]);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
