//! Headless Chromium, where there is one.

use std::path::Path;
use std::process::Command;

/// The page as it is after five seconds of the browser's clock; none where there is no browser.
pub fn dom(address: &str, profile: &Path) -> Option<String> {
    let named = std::env::var("ORDINATE_CHROMIUM").ok().into_iter();
    let known = ["chromium", "chromium-browser", "google-chrome", "chrome"].map(str::to_owned);
    let is_there = |name: &String| {
        Command::new(name).arg("--version").output().is_ok_and(|version| version.status.success())
    };
    let Some(chromium) = named.chain(known).find(is_there) else {
        println!("SKIPPED: there is no Chromium (scripts/test-tools.sh)");
        return None;
    };
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]);
    browser.args(["--virtual-time-budget=5000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.display())).arg(address);
    let said = browser.output().expect("it ran before");
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}
