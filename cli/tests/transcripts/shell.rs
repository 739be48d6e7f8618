//! A shell in which all commands of a page are run, one after the other.

use super::Step;
use crate::{Folder, program};
use std::fmt::Write as _;
use std::process::{Command, Stdio};

/// Ends what a command has printed; the number of the step follows.
const ENDED: &str = "--- step ended: ";
/// Typed behind each line that is typed into the demo, which does not know it and says so: what it printed before ends there.
const UNKNOWN: &str = "transcript-line-ended";
const ALONE: [&str; 3] = ["unshare", "--map-root-user", "--net"];

/// Whether this user may have a network in which all ports are free.
pub fn has_own_network() -> bool {
    let mut probe = Command::new(ALONE[0]);
    let probed = probe.args(&ALONE[1..]).args(["ip", "link", "set", "lo", "up"]).output();
    probed.is_ok_and(|it| it.status.success())
}

/// A session in a folder of its own.
pub struct Session {
    folder: Folder,
    /// What the shell does before the first step, and no page shows.
    before: &'static str,
}

impl Session {
    /// For the page of this name.
    pub fn new(page: &str) -> Self {
        let folder = Folder::new(&format!("transcript-{}", page.replace(['/', '.'], "-")));
        Self { folder, before: "" }
    }

    /// Of several pages, in whose folder a cluster file and such are made beforehand.
    pub fn prepared(name: &str, before: &'static str) -> Self {
        Self { before, ..Self::new(name) }
    }

    /// Runs the steps of all blocks in one shell; the steps with what they print now.
    pub fn run(&mut self, blocks: &[Vec<Step>]) -> Vec<Vec<Step>> {
        let steps: Vec<&Step> = blocks.iter().flatten().collect();
        let output = self.output_of(&steps);
        let mut rest = output.as_str();
        let mut ran = steps.iter().enumerate().map(|(number, step)| {
            let ends = format!("{ENDED}{number}\n");
            let (shown, behind) =
                rest.split_once(&ends).unwrap_or_else(|| panic!("{} did not end: {rest}", step.command));
            rest = behind;
            with_output(step, shown)
        });
        blocks.iter().map(|steps| ran.by_ref().take(steps.len()).collect()).collect()
    }

    fn output_of(&self, steps: &[&Step]) -> String {
        let mut script = format!("ip link set lo up\n{}\nexec 2>&1\n", self.before);
        for (number, step) in steps.iter().enumerate() {
            let typed = step.typed.iter().map(|(line, _)| format!("{UNKNOWN}\n{line}\n"));
            let input: String = typed.collect();
            let input = if input.is_empty() {
                " < /dev/null".to_owned()
            } else {
                format!(" << 'TYPED'\n{input}TYPED")
            };
            // One that goes on beside the others has an output of its own.
            let command = match step.command.strip_suffix('&') {
                Some(beside) => format!("{beside} < /dev/null &\nbeside=\"$beside $!\""),
                None => format!("{{ {}\n}}{input}", step.command),
            };
            let _ = write!(script, "{command}\nprintf '%s\\n' '{ENDED}{number}'\n");
        }
        // Those that a step has ended are no reason to leave the others.
        script += "kill $beside 2> /dev/null\nwait\n";
        let ordinate = program();
        let folder = std::path::Path::new(ordinate.get_program()).parent().expect("a folder").to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new(ALONE[0]);
        shell.args(&ALONE[1..]).args(["sh", "-c", &script]).current_dir(&self.folder.0).stdin(Stdio::null());
        for name in std::env::vars_os().map(|(name, _)| name) {
            if name.to_string_lossy().starts_with("ORDINATE_") {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", format!("{}:{path}", folder.display())).env("HOME", &self.folder.0);
        let output = shell.output().expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The step with this output, of which each line typed has its part.
fn with_output(step: &Step, shown: &str) -> Step {
    let said = format!("  no such command: {UNKNOWN}; try help\n");
    let mut parts = shown.split(said.as_str()).map(str::to_owned);
    let first = parts.next().unwrap_or_default();
    let mut typed: Vec<(String, String)> =
        step.typed.iter().map(|(line, _)| (line.clone(), parts.next().unwrap_or_default())).collect();
    // The unknown lines are failures, which the demo counts at its end.
    if let Some((_, last)) = typed.last_mut()
        && let Some(at) = last.find("error[O5002]")
    {
        last.truncate(at);
    }
    Step { command: step.command.clone(), shown: first, typed }
}
