//! A page of metrics, written as OpenMetrics or as the text that Prometheus had before.

use std::fmt::Write as _;

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// What only grows.
    Counter,
    /// What is of the moment.
    Gauge,
    /// How often something took so long.
    Histogram,
    /// Texts, in labels.
    Info,
    /// What somebody else has named, and means by its name.
    Unknown,
}

/// How the page is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// The one that a client who accepts this wants.
    pub fn wanted(accept: &str) -> Self {
        if accept.contains("text/plain") && !accept.contains("openmetrics") {
            Self::Text
        } else {
            Self::OpenMetrics
        }
    }

    /// Its name over HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Labels of a sample, by their names.
pub type SampleLabels<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug)]
struct Metric {
    name: String,
    kind: MetricKind,
    help: String,
    /// What follows the name, with labels and value.
    samples: Vec<(&'static str, String)>,
}

/// The page that is written. A metric may be given piece by piece: its samples come together.
#[derive(Default, Debug)]
pub struct MetricsPage(Vec<Metric>);

/// What all our names begin with.
const PREFIX: &str = "ordinate_";

impl MetricsPage {
    /// Texts, in labels; of the program itself without a name.
    pub fn info(&mut self, name: &str, help: &str, labels: SampleLabels<'_>) {
        let name = format!("{PREFIX}{name}");
        self.add(name.trim_end_matches('_'), MetricKind::Info, help, "_info", labels, 1);
    }

    /// What only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter_of(name, help, &[], value);
    }

    /// The same, one of several.
    pub fn counter_of(&mut self, name: &str, help: &str, labels: SampleLabels<'_>, value: u64) {
        self.add(&format!("{PREFIX}{name}"), MetricKind::Counter, help, "_total", labels, value);
    }

    /// What is of the moment.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge_of(name, help, &[], value);
    }

    /// The same, one of several.
    pub fn gauge_of(&mut self, name: &str, help: &str, labels: SampleLabels<'_>, value: f64) {
        self.add(&format!("{PREFIX}{name}"), MetricKind::Gauge, help, "", labels, value);
    }

    /// How often something took how long: for each bound in seconds, how often it took at most that; how often in all; and the sum.
    pub fn histogram_of(
        &mut self,
        name: &str,
        help: &str,
        labels: SampleLabels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        (count, seconds): (u64, f64),
    ) {
        let name = format!("{PREFIX}{name}");
        for (bound, at_most) in buckets {
            let bound = bound.to_string();
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.add(&name, MetricKind::Histogram, help, "_bucket", &labels, at_most);
        }
        let all = [labels, &[("le", "+Inf")]].concat();
        self.add(&name, MetricKind::Histogram, help, "_bucket", &all, count);
        self.add(&name, MetricKind::Histogram, help, "_sum", labels, seconds);
        self.add(&name, MetricKind::Histogram, help, "_count", labels, count);
    }

    /// Under the name that others have given it, for dashboards that know it.
    pub fn named_by_others(&mut self, name: &str, kind: MetricKind, help: &str, value: f64) {
        let end = if kind == MetricKind::Counter { "_total" } else { "" };
        self.add(name, kind, help, end, &[], value);
    }

    fn add(
        &mut self,
        name: &str,
        kind: MetricKind,
        help: &str,
        end: &'static str,
        labels: SampleLabels<'_>,
        value: impl std::fmt::Display,
    ) {
        let labels: Vec<String> =
            labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let sample = (end, format!("{labels} {value}"));
        match self.0.iter_mut().rev().find(|metric| metric.name == name) {
            Some(metric) => metric.samples.push(sample),
            None => self.0.push(Metric {
                name: name.to_owned(),
                kind,
                help: help.to_owned(),
                samples: vec![sample],
            }),
        }
    }

    /// The page.
    pub fn written(&self, format: Format) -> String {
        let mut page = String::new();
        for metric in &self.0 {
            metric.write(format, &mut page);
        }
        if format == Format::OpenMetrics {
            page.push_str("# EOF\n");
        }
        page
    }
}

impl Metric {
    // Writing to a string cannot fail, so the results are dropped.
    fn write(&self, format: Format, page: &mut String) {
        let Self { name, kind, help, samples } = self;
        // The older format knows a counter by its whole name, and has no texts.
        let (end, kind) = match (format, kind) {
            (Format::OpenMetrics, MetricKind::Counter) => ("", "counter"),
            (Format::Text, MetricKind::Counter) => ("_total", "counter"),
            (Format::OpenMetrics, MetricKind::Info) => ("", "info"),
            (Format::Text, MetricKind::Info) => ("_info", "gauge"),
            (_, MetricKind::Gauge) => ("", "gauge"),
            (_, MetricKind::Histogram) => ("", "histogram"),
            (Format::OpenMetrics, MetricKind::Unknown) => ("", "unknown"),
            (Format::Text, MetricKind::Unknown) => ("", "untyped"),
        };
        let _ = writeln!(page, "# HELP {name}{end} {help}\n# TYPE {name}{end} {kind}");
        for (end, sample) in samples {
            let _ = writeln!(page, "{name}{end}{sample}");
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    // A page that one line spoils is not scraped at all.
    #[test]
    fn both_formats_are_written() {
        let mut page = MetricsPage::default();
        page.counter_of("drops", "Messages dropped", &[("reason", "a \"b\"")], 3);
        page.gauge("keys", "Keys", 7.0);
        page.counter_of("drops", "Messages dropped", &[("reason", "c")], 4);
        page.histogram_of("took_seconds", "Time", &[("of", "x")], [(0.5, 1)].into_iter(), (2, 1.5));
        page.info("", "The program", &[("version", "1")]);
        let text = page.written(Format::Text);
        let drops = "# HELP ordinate_drops_total Messages dropped\n# TYPE ordinate_drops_total counter\n\
                     ordinate_drops_total{reason=\"a \\\"b\\\"\"} 3\nordinate_drops_total{reason=\"c\"} 4\n";
        assert!(text.starts_with(drops), "{text}");
        assert!(text.contains("ordinate_took_seconds_bucket{of=\"x\",le=\"0.5\"} 1\n"), "{text}");
        assert!(text.contains("ordinate_took_seconds_bucket{of=\"x\",le=\"+Inf\"} 2\n"), "{text}");
        assert!(
            !text.contains("EOF") && text.contains("# TYPE ordinate_keys gauge\nordinate_keys 7\n"),
            "{text}"
        );
        let open = page.written(Format::OpenMetrics);
        assert!(open.contains("# TYPE ordinate_drops counter\nordinate_drops_total{"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }
}
