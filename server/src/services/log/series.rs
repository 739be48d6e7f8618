//! Metrics of each log and of each group of readers: as many as are bounded, and how many are left out.

use crate::admin::exposition::MetricsPage;
use crate::family::HostedNode;
use mason::MasonMember;
use shared_log::{GroupState, LogView};
use std::collections::BTreeMap;

/// Logs that have series of their own: the first by name.
pub(super) const LOGS_MAX: usize = 1_000;
/// Pairs of a group and a log that it reads.
pub(super) const LAGS_MAX: usize = 1_000;

/// Adds the metrics of all logs here.
pub(super) fn add<'a>(nodes: impl Iterator<Item = &'a HostedNode>, page: &mut MetricsPage) {
    let (mut logs, mut groups): (BTreeMap<&str, LogView<'_>>, Vec<GroupState>) = Default::default();
    for node in nodes {
        if let HostedNode::Log(embedded) = node
            && let MasonMember::Shard(server) = embedded.node()
        {
            logs.extend(server.service().logs());
            groups.extend(server.service().groups());
        }
    }
    add_logs(&logs, page);
    add_lags(&logs, groups, page);
}

fn add_logs(logs: &BTreeMap<&str, LogView<'_>>, page: &mut MetricsPage) {
    for (name, log) in logs.iter().take(LOGS_MAX) {
        let of = [("log", *name)];
        let (first, next) = log.range();
        page.gauge_of("log_entries", "Entries of a log that are left", &of, (next - first) as f64);
        page.gauge_of("log_bytes", "What they cost", &of, log.bytes() as f64);
        page.counter_of("log_appended", "Entries that a log was given since it was made", &of, next);
    }
    let help = "Logs without metrics of their own, because there are too many";
    page.gauge("logs_left_out", help, logs.len().saturating_sub(LOGS_MAX) as f64);
}

/// A group's position beyond the tail, as of a log that was made anew, is no lag.
fn add_lags(logs: &BTreeMap<&str, LogView<'_>>, mut groups: Vec<GroupState>, page: &mut MetricsPage) {
    groups.sort_by(|one, other| one.group.cmp(&other.group));
    let all = groups.iter().flat_map(|group| group.progress.iter().map(|progress| (&group.group, progress)));
    let known = all.filter_map(|(group, progress)| {
        let (first, next) = logs.get(progress.log.as_str())?.range();
        Some((group, &progress.log, next.saturating_sub(progress.position.max(first))))
    });
    let mut count = 0;
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
