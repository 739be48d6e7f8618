//! The demo at a terminal: a pseudo-terminal stands for it, and answers what the editor asks it.

use super::{PATIENCE, at_free_ports};
use crate::Folder;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const TAB: &str = "\t";
const ENTER: &str = "\r";
const UP: &str = "\u{1b}[A";
const LEFT: &str = "\u{1b}[D";
const BACKSPACE: &str = "\u{7f}";
const END_OF_INPUT: &str = "\u{4}";
const INTERRUPT: &str = "\u{3}";
/// The editor asks where the cursor is.
const ASKED: &[u8] = b"\x1b[6n";
const GREEN: &str = "\u{1b}[32m";

/// A demo at a terminal; killed if the test fails.
struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// What was shown up to here has been looked at.
    seen: usize,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn start(folder: &Folder, environment: &[(&str, &str)]) -> Self {
        let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&own).and_then(|()| unlockpt(&own)).expect("it is ours");
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own, size).expect("it has a size");
        let name = ptsname(&own, Vec::new()).expect("it has a name");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let end = options.open(OsStr::from_bytes(name.to_bytes())).expect("it opens");
        let mut command = at_free_ports();
        command.args(["--durability", "memory"]);
        command.env("XDG_STATE_HOME", &folder.0).env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR").envs(environment.iter().copied());
        let same = || end.try_clone().expect("a descriptor");
        command.stdin(same()).stdout(same()).stderr(same());
        let child = command.spawn().expect("the binary was built");
        let keys = File::from(own);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, mut answers) =
            (keys.try_clone().expect("a descriptor"), keys.try_clone().expect("a descriptor"));
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let (mut bytes, mut answered) = ([0; 4096], 0);
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend(&bytes[..read]);
                let asked = all.windows(ASKED.len()).filter(|part| *part == ASKED).count();
                drop(all);
                while answered < asked {
                    answered += 1;
                    if answers.write_all(b"\x1b[1;1R").is_err() {
                        return;
                    }
                }
            }
        });
        Self { child, keys, shown, seen: 0 }
    }

    fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until `text` is shown behind what was waited for before.
    fn until(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            if let Some(at) = shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(Instant::now() < deadline, "no {text:?} in {:?}", &shown[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.keys.write_all(key.as_bytes()).expect("the terminal takes keys");
        }
    }

    /// Waits for the prompt, types and looks for the answer.
    fn ask(&mut self, keys: &[&str], answer: &str) {
        self.until("ordinate> ");
        self.press(keys);
        self.until(answer);
    }

    fn end(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it goes on: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

// An editor that loses keys, completes nothing or forgets what was typed is worse than none.
#[test]
fn lines_are_edited_completed_and_remembered() {
    let folder = Folder::new("terminal");
    let mut demo = Terminal::start(&folder, &[]);
    demo.until("Try:");
    demo.ask(&["put solo/key edite", BACKSPACE, "Xd", LEFT, BACKSPACE, "e", ENTER], "version ");
    demo.ask(&["get sol", TAB, ENTER], "edited   (version ");
    demo.ask(&["stat", TAB, ENTER], "  a  leader ");
    demo.ask(&["half a line", INTERRUPT], "");
    demo.ask(&["frobnicate", ENTER], "  no such command: frobnicate");
    assert!(demo.shown().contains(GREEN), "no colours: {:?}", demo.shown());
    demo.ask(&[END_OF_INPUT], "");
    assert_eq!(demo.end(), Some(0));

    let mut demo = Terminal::start(&folder, &[("NO_COLOR", "1")]);
    demo.until("Try:");
    demo.ask(&[UP, UP, ENTER], "  a  leader ");
    demo.ask(&["put a", ENTER], "  wanted: put KEY VALUE");
    let shown = demo.shown();
    let coloured = (30..=37).chain(90..=97).any(|colour| shown.contains(&format!("\u{1b}[{colour}m")));
    assert!(!coloured && !shown.contains("\u{1b}[38;"), "{shown:?}");
    demo.ask(&["quit", ENTER], "");
    assert_eq!(demo.end(), Some(0));
}

// A demo that is terminated while somebody types must not leave the terminal unusable, nor its data behind.
#[test]
fn a_signal_gives_the_terminal_back() {
    let folder = Folder::new("terminated");
    let mut demo = Terminal::start(&folder, &[]);
    demo.ask(&["half a li"], " a li");
    let raw = rustix::termios::tcgetattr(&demo.keys).expect("a terminal");
    assert!(!raw.local_modes.contains(rustix::termios::LocalModes::ECHO), "the editor echoes by itself");
    let process = rustix::process::Pid::from_child(&demo.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    let keys = demo.keys.try_clone().expect("a descriptor");
    assert_eq!(demo.end(), Some(0));
    let given_back = rustix::termios::tcgetattr(&keys).expect("a terminal");
    assert!(given_back.local_modes.contains(rustix::termios::LocalModes::ECHO), "the terminal is raw");
}
