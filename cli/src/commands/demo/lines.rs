//! What the demo is asked, line by line: from an editor at a terminal, or from a pipe. A thread reads one line when it is asked for one.

use super::editor::{self, Known};
use super::given::Given;
use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// A key and a value at their bounds, in quotes.
const LINE_BYTES_MAX: u64 = 3 << 20;
/// How long the editor may take to give the terminal back.
const STOPPED_WITHIN: Duration = Duration::from_secs(1);
const PROMPT: &str = "ordinate> ";

/// Where lines come from.
pub(super) struct Lines {
    asks: std::sync::mpsc::Sender<()>,
    given: mpsc::Receiver<Given>,
    stop: Arc<AtomicBool>,
    /// Whether somebody sits there.
    pub(super) interactive: bool,
}

impl Lines {
    /// From standard input; with an editor where it and standard output are a terminal.
    pub(super) fn start(known: Known) -> Self {
        let interactive = std::io::stdin().is_terminal();
        let terminal = interactive && std::io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let (asks, asked) = std::sync::mpsc::channel();
        let (give, given) = mpsc::channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, runtime) = (Arc::clone(&stop), Handle::current());
        std::thread::spawn(move || {
            if terminal && !dumb && !edited(&asked, &give, known, runtime, stopped) {
                return;
            }
            plain(&asked, &give, interactive);
        });
        Self { asks, given, stop, interactive }
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> Given {
        // A reader that ended has said so.
        let _ = self.asks.send(());
        self.given.recv().await.unwrap_or(Given::End)
    }

    /// Has the editor give the terminal back.
    pub(super) async fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(STOPPED_WITHIN, self.given.recv()).await;
    }
}

/// Reads with the editor. True if the terminal does not carry one, and a line that was asked for is still to be read.
fn edited(
    asked: &std::sync::mpsc::Receiver<()>,
    give: &mpsc::Sender<Given>,
    known: Known,
    runtime: Handle,
    stop: Arc<AtomicBool>,
) -> bool {
    let mut editor = editor::Editor::new(PROMPT, known, runtime, stop);
    while asked.recv().is_ok() {
        match editor.read() {
            Ok(given) => {
                if give.blocking_send(given).is_err() {
                    return false;
                }
            }
            Err(_) => return read_plain_to(give, true),
        }
    }
    false
}

fn plain(asked: &std::sync::mpsc::Receiver<()>, give: &mpsc::Sender<Given>, interactive: bool) {
    while asked.recv().is_ok() && read_plain_to(give, interactive) {}
}

/// Gives one line. False if there will be no other.
fn read_plain_to(give: &mpsc::Sender<Given>, interactive: bool) -> bool {
    if interactive {
        print!("{PROMPT}");
        // A prompt that cannot be shown is no reason to stop.
        let _ = std::io::stdout().flush();
    }
    let given = read_plain(&mut std::io::stdin().lock());
    let more = given != Given::End;
    give.blocking_send(given).is_ok() && more
}

/// A line of at most [`LINE_BYTES_MAX`] bytes.
fn read_plain(input: &mut impl BufRead) -> Given {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
    match read {
        Err(_) | Ok(0) => return Given::End,
        Ok(_) => {}
    }
    if bytes.len() as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") {
        return match input.skip_until(b'\n') {
            Ok(_) => Given::Unusable(format!("the line has more than {LINE_BYTES_MAX} bytes")),
            Err(_) => Given::End,
        };
    }
    match String::from_utf8(bytes) {
        Ok(line) => Given::Line(line.trim_end_matches(['\n', '\r']).to_owned()),
        Err(_) => Given::Unusable("the line is not UTF-8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A line without an end would fill the memory; one that is not text would end the script without a word.
    #[test]
    fn lines_are_bounded_and_text() {
        let long = vec![b'x'; LINE_BYTES_MAX as usize + 10];
        let input = [long.as_slice(), b"\n\xff\xfe\nget a\r\nlast"].concat();
        let mut input = input.as_slice();
        let Given::Unusable(why) = read_plain(&mut input) else { panic!("too long") };
        assert!(why.contains("more than 3145728 bytes"), "{why}");
        assert_eq!(read_plain(&mut input), Given::Unusable("the line is not UTF-8".to_owned()));
        assert_eq!(read_plain(&mut input), Given::Line("get a".to_owned()));
        assert_eq!(read_plain(&mut input), Given::Line("last".to_owned()));
        assert_eq!(read_plain(&mut input), Given::End);
    }
}
