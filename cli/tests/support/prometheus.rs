//! What Prometheus would make of scrapes: rules and queries, evaluated by promtool over the pages of real hosts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// One host's page twice, as text, with what scrapes add to it.
pub struct Scrapes {
    /// What it is called.
    pub instance: String,
    /// The page, and the same page a minute later.
    pub pages: (String, String),
}

impl Scrapes {
    /// A page that does not change.
    pub fn steady(instance: &str, page: &str) -> Self {
        Self { instance: instance.to_owned(), pages: (page.to_owned(), page.to_owned()) }
    }
}

/// A file of the folder `deploy`.
pub fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Samples of a page by name and labels.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?))))
        .collect()
}

/// promtool's clock begins in 1970: times are as far from that as they are from now.
fn moved(name: &str, value: f64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    if name.starts_with("ordinate_certificate_ends_seconds") && value > 0.0 { value - now } else { value }
}

/// The series that an hour of such scrapes makes.
fn series_of(Scrapes { instance, pages: (first, second) }: &Scrapes) -> String {
    let later = samples(second);
    let mut text = String::new();
    for (name, value) in samples(first) {
        let grown = later.get(name).map_or(0.0, |later| later - value);
        let value = moved(name, value);
        let labelled = match name.split_once('{') {
            Some((name, labels)) => format!("{name}{{instance=\"{instance}\",{labels}"),
            None => format!("{name}{{instance=\"{instance}\"}}"),
        };
        let labelled = labelled.replace('\'', "''");
        text.push_str(&format!("      - series: '{labelled}'\n        values: '{value}{grown:+}x60'\n"));
    }
    text
}

/// A question that promtool answers with yes or no.
pub struct Expected {
    /// The query.
    pub query: String,
    /// Its result: labels, as a selector writes them, and values.
    pub samples: Vec<(String, f64)>,
}

/// What promtool has against the expectations after half an hour of such scrapes; none if there is no promtool.
pub fn judge(folder: &Path, scrapes: &[Scrapes], expected: &[Expected]) -> Option<Result<(), String>> {
    let mut text = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
        deployed("alerts.yml").display()
    );
    scrapes.iter().for_each(|scrapes| text.push_str(&series_of(scrapes)));
    text.push_str("    promql_expr_test:\n");
    for Expected { query, samples } in expected {
        let query = query.replace('\'', "''");
        text.push_str(&format!("      - expr: '{query}'\n        eval_time: 30m\n        exp_samples:\n"));
        for (labels, value) in samples {
            text.push_str(&format!("          - labels: '{labels}'\n            value: {value}\n"));
        }
    }
    let path = folder.join("judged.yml");
    std::fs::write(&path, &text).expect("the folder is writable");
    run(&["test", "rules", &path.display().to_string()])
}

/// Runs promtool; none where it is not installed.
pub fn run(arguments: &[&str]) -> Option<Result<(), String>> {
    let said = Command::new("promtool").args(arguments).stdin(Stdio::null()).output();
    let Ok(said) = said else {
        println!("SKIPPED: promtool is not there (scripts/test-tools.sh)");
        return None;
    };
    let text = [said.stdout, said.stderr].concat();
    Some(if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) })
}

/// That these alerts fire, each so often, and no others. How slow this machine's disk is while others use it is no matter of a test.
pub fn firing(alerts: &[(&str, u32)]) -> Expected {
    let samples = alerts.iter().map(|(name, count)| (format!("{{alertname=\"{name}\"}}"), f64::from(*count)));
    Expected {
        query: "count by (alertname) (ALERTS{alertstate=\"firing\", alertname!=\"OrdinateDiskSlow\"})"
            .to_owned(),
        samples: samples.collect(),
    }
}
