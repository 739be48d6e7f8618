//! Panics of simulated code become violations, and do not fill the terminal.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// A panic that was caught.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panic {
    text: String,
    location: String,
}

impl Panic {
    /// The word before the first colon if it is one in capitals, PANIC otherwise.
    pub(crate) fn invariant(&self) -> String {
        let word = self.text.split(':').next().unwrap_or_default();
        let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !word.is_empty() && word.chars().all(capital) { word.to_owned() } else { "PANIC".to_owned() }
    }

    pub(crate) fn what(&self) -> String {
        let id = self.invariant();
        let text = self.text.strip_prefix(&id).and_then(|text| text.strip_prefix(':')).unwrap_or(&self.text);
        format!("{} (at {})", text.trim(), self.location)
    }
}

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Panic> = RefCell::default();
}

/// Calls simulated code. What it leaves behind after a panic is only read for the report.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CATCHES.get() {
                return previous(info);
            }
            let text = info.payload_as_str().unwrap_or("a panic without a text").to_owned();
            let location = info.location().map_or(String::new(), ToString::to_string);
            CAUGHT.set(Panic { text, location });
        }));
    });
    let outer = CATCHES.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    CATCHES.set(outer);
    result.map_err(|_| CAUGHT.take())
}
