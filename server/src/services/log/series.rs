//! Metrics of each log and of each group of readers: as many as are bounded, and how many are left out.

use crate::admin::exposition::MetricsPage;
use crate::family::HostedNode;
use mason::MasonMember;
use shared_log::GroupState;
use std::collections::BTreeMap;

/// Logs that have series of their own: the first by name.
const LOGS_MAX: usize = 1_000;
/// Pairs of a group and a log that it reads.
const LAGS_MAX: usize = 1_000;

/// What there is of a log.
struct Left {
    first: u64,
    next: u64,
    bytes: u64,
}

/// Adds the metrics of all logs here.
pub(super) fn add<'a>(nodes: impl Iterator<Item = &'a HostedNode>, page: &mut MetricsPage) {
    let (mut logs, mut groups) = (BTreeMap::new(), Vec::new());
    for node in nodes {
        if let HostedNode::Log(embedded) = node
            && let MasonMember::Shard(server) = embedded.node()
        {
            logs.extend(server.service().logs().map(|(name, log)| {
                let (first, next) = log.range();
                (name, Left { first, next, bytes: log.bytes() })
            }));
            groups.extend(server.service().groups());
        }
    }
    add_logs(&logs, page);
    add_lags(&logs, groups, page);
}

fn add_logs(logs: &BTreeMap<&str, Left>, page: &mut MetricsPage) {
    for (name, Left { first, next, bytes }) in logs.iter().take(LOGS_MAX) {
        let of = [("log", *name)];
        page.gauge_of("log_entries", "Entries of a log that are left", &of, (next - first) as f64);
        page.gauge_of("log_bytes", "What they cost", &of, *bytes as f64);
        page.counter_of("log_appended", "Entries that a log was given since it was made", &of, *next);
    }
    let help = "Logs without metrics of their own, because there are too many";
    page.gauge("logs_left_out", help, logs.len().saturating_sub(LOGS_MAX) as f64);
}

/// A group's position beyond the tail, as of a log that was made anew, is no lag.
fn add_lags(logs: &BTreeMap<&str, Left>, mut groups: Vec<GroupState>, page: &mut MetricsPage) {
    groups.sort_by(|one, other| one.group.cmp(&other.group));
    let all = groups.iter().flat_map(|group| group.progress.iter().map(|progress| (&group.group, progress)));
    let known = all.filter_map(|(group, progress)| {
        let Left { first, next, .. } = logs.get(progress.log.as_str())?;
        Some((group, &progress.log, next.saturating_sub(progress.position.max(*first))))
    });
    let mut count = 0_usize;
    for (group, log, lag) in known {
        count += 1;
        if count <= LAGS_MAX {
            let of = [("group", group.as_str()), ("log", log.as_str())];
            page.gauge_of(
                "log_group_lag",
                "Entries that a group of readers has not committed",
                &of,
                lag as f64,
            );
        }
    }
    let help = "Pairs of a group and a log without a metric of their own, because there are too many";
    page.gauge("log_groups_left_out", help, count.saturating_sub(LAGS_MAX) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::exposition::Format;
    use shared_log::Progress;

    // A tool that makes a log for each of its users fills the memory of those who scrape; a lag that is wrong wakes people for nothing.
    #[test]
    fn series_are_bounded_and_lags_are_what_is_left_to_read() {
        let names: Vec<String> = (0..LOGS_MAX + 7).map(|number| format!("log{number:05}")).collect();
        let left = |name| (name, Left { first: 10, next: 30, bytes: 400 });
        let logs: BTreeMap<&str, Left> = names.iter().map(String::as_str).map(left).collect();
        let progress = |log: &str, position| Progress { log: log.to_owned(), position, note: String::new() };
        let group = |name: &str, progress| GroupState { group: name.to_owned(), generation: 1, progress };
        let all = names.iter().map(|name| progress(name, 30)).collect();
        let some = vec![progress("log00000", 25), progress("log00001", 3), progress("log00002", 99)];
        let mut page = MetricsPage::default();
        add_logs(&logs, &mut page);
        add_lags(
            &logs,
            vec![group("many", all), group("a", some), group("gone", vec![progress("x", 1)])],
            &mut page,
        );
        let text = page.written(Format::Text);
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!((count("ordinate_log_entries{"), count("ordinate_log_group_lag{")), (LOGS_MAX, LAGS_MAX));
        for line in [
            "ordinate_logs_left_out 7\n",
            "ordinate_log_groups_left_out 10\n",
            "ordinate_log_entries{log=\"log00000\"} 20\n",
            "ordinate_log_bytes{log=\"log00000\"} 400\n",
            "ordinate_log_appended_total{log=\"log00000\"} 30\n",
            "ordinate_log_group_lag{group=\"a\",log=\"log00000\"} 5\n",
            // What was trimmed unread cannot be read any more.
            "ordinate_log_group_lag{group=\"a\",log=\"log00001\"} 20\n",
            "ordinate_log_group_lag{group=\"a\",log=\"log00002\"} 0\n",
        ] {
            assert!(text.contains(line), "no {line}in {text}");
        }
    }
}
