//! A page of metrics: what a scrape is answered, in OpenMetrics as `prometheus-client` encodes it, or in the text that Prometheus had
//! before.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;

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

type OwnLabels = Vec<(String, String)>;

/// What was measured.
#[derive(Clone, Debug)]
enum Sample {
    /// What only grows.
    Count(f64),
    /// What is of the moment.
    Level(f64),
    /// How often something took so long.
    Histogram { sum: f64, count: u64, buckets: Vec<(f64, u64)> },
    /// Texts, in the labels.
    Info,
}

impl Sample {
    fn kind(&self) -> MetricType {
        match self {
            Self::Count(_) => MetricType::Counter,
            Self::Level(_) => MetricType::Gauge,
            Self::Histogram { .. } => MetricType::Histogram,
            Self::Info => MetricType::Info,
        }
    }
}

#[derive(Clone, Debug)]
struct Metric {
    name: String,
    kind: MetricType,
    help: String,
    samples: Vec<(OwnLabels, Sample)>,
}

/// The page that is written. A metric may be given piece by piece: its samples come together.
#[derive(Clone, Default, Debug)]
pub struct MetricsPage(Vec<Metric>);

/// What all our names begin with.
const PREFIX: &str = "ordinate_";

impl MetricsPage {
    /// Texts, in labels; of the program itself without a name.
    pub fn info(&mut self, name: &str, help: &str, labels: SampleLabels<'_>) {
        let name = format!("{PREFIX}{name}");
        self.add(name.trim_end_matches('_'), help, labels, Sample::Info);
    }

    /// What only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter_of(name, help, &[], value);
    }

    /// The same, one of several.
    pub fn counter_of(&mut self, name: &str, help: &str, labels: SampleLabels<'_>, value: u64) {
        self.add(&format!("{PREFIX}{name}"), help, labels, Sample::Count(value as f64));
    }

    /// Seconds that only become more; the name ends with `_seconds`.
    pub fn seconds_counter(&mut self, name: &str, help: &str, value: f64) {
        self.add(&format!("{PREFIX}{name}"), help, &[], Sample::Count(value));
    }

    /// What is of the moment.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge_of(name, help, &[], value);
    }

    /// The same, one of several.
    pub fn gauge_of(&mut self, name: &str, help: &str, labels: SampleLabels<'_>, value: f64) {
        self.add(&format!("{PREFIX}{name}"), help, labels, Sample::Level(value));
    }

    /// How often something took how long: for each bound in seconds, how often it took at most that and more than the one before; how
    /// often in all; and the sum.
    pub fn histogram_of(
        &mut self,
        name: &str,
        help: &str,
        labels: SampleLabels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        (count, sum): (u64, f64),
    ) {
        let mut buckets: Vec<(f64, u64)> = buckets.collect();
        let within: u64 = buckets.iter().map(|(_, count)| count).sum();
        buckets.push((f64::INFINITY, count.saturating_sub(within)));
        let sample = Sample::Histogram { sum, count: count.max(within), buckets };
        self.add(&format!("{PREFIX}{name}"), help, labels, sample);
    }

    /// Processor seconds of the process, under the name that all exporters have for it.
    pub fn process_cpu(&mut self, seconds: f64) {
        let help = "Processor time that the process has used";
        self.add("process_cpu_seconds", help, &[], Sample::Count(seconds));
    }

    /// Memory of the process, under the name that all exporters have for it.
    pub fn process_memory(&mut self, bytes: u64) {
        let help = "Memory that the process has in use";
        self.add("process_resident_memory_bytes", help, &[], Sample::Level(bytes as f64));
    }

    fn add(&mut self, name: &str, help: &str, labels: SampleLabels<'_>, sample: Sample) {
        let labels = labels.iter().map(|(label, text)| ((*label).to_owned(), (*text).to_owned())).collect();
        match self.0.iter_mut().rev().find(|metric| metric.name == name) {
            Some(metric) => metric.samples.push((labels, sample)),
            None => self.0.push(Metric {
                name: name.to_owned(),
                kind: sample.kind(),
                help: help.to_owned(),
                samples: vec![(labels, sample)],
            }),
        }
    }

    /// Adds what another page has.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The page.
    pub fn written(&self, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut page = String::new();
        // Writing to a string cannot fail, so the result is dropped.
        let _ = prometheus_client::encoding::text::encode(&mut page, &registry);
        match format {
            Format::OpenMetrics => page,
            Format::Text => as_older_text(&page),
        }
    }
}

impl Collector for MetricsPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Metric { name, kind, help, samples } in &self.0 {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, sample) in samples {
                sample.encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

impl Sample {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
        match self {
            Self::Count(count) => match whole(*count) {
                Some(count) => encoder.encode_counter(&(count as u64), NO_EXEMPLAR),
                None => encoder.encode_counter(count, NO_EXEMPLAR),
            },
            Self::Level(level) => match whole(*level) {
                Some(level) => encoder.encode_gauge(&level),
                None => encoder.encode_gauge(level),
            },
            Self::Histogram { sum, count, buckets } => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
            Self::Info => encoder.encode_info(&[] as &[(&str, &str); 0]),
        }
    }
}

/// A number without a fraction, as far as a double is exact.
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64).then_some(number as i64)
}

/// A page of OpenMetrics in the format before it, which knows a counter by its whole name, and no texts.
fn as_older_text(page: &str) -> String {
    let mut older = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let described = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '));
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) = described {
            let (end, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(older, "# HELP {name}{end} {help}");
            }
            let _ = writeln!(older, "# TYPE {name}{end} {kind}");
        } else if !line.starts_with('#') {
            let _ = writeln!(older, "{line}");
        }
    }
    older
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
        page.gauge("share", "A share", 0.25);
        page.counter_of("drops", "Messages dropped", &[("reason", "c")], 4);
        page.seconds_counter("waits_seconds", "Waits", 1.5);
        page.histogram_of("took_seconds", "Time", &[("of", "x")], [(0.5, 1), (1.0, 0)].into_iter(), (2, 1.5));
        page.info("", "The program", &[("version", "1")]);
        let text = page.written(Format::Text);
        let drops = "# HELP ordinate_drops_total Messages dropped\n# TYPE ordinate_drops_total counter\n\
                     ordinate_drops_total{reason=\"a \\\"b\\\"\"} 3\nordinate_drops_total{reason=\"c\"} 4\n";
        assert!(text.starts_with(drops), "{text}");
        for line in [
            "# TYPE ordinate_keys gauge\nordinate_keys 7\n",
            "ordinate_share 0.25\n",
            "# TYPE ordinate_waits_seconds_total counter\nordinate_waits_seconds_total 1.5\n",
            "# TYPE ordinate_took_seconds histogram\n",
            "ordinate_took_seconds_bucket{le=\"0.5\",of=\"x\"} 1\n",
            "ordinate_took_seconds_bucket{le=\"1.0\",of=\"x\"} 1\n",
            "ordinate_took_seconds_bucket{le=\"+Inf\",of=\"x\"} 2\n",
            "ordinate_took_seconds_count{of=\"x\"} 2\n",
            "# TYPE ordinate_info gauge\nordinate_info{version=\"1\"} 1\n",
        ] {
            assert!(text.contains(line), "no {line}in {text}");
        }
        assert!(!text.contains("EOF"), "{text}");
        let open = page.written(Format::OpenMetrics);
        assert!(open.contains("# TYPE ordinate_drops counter\nordinate_drops_total{"), "{open}");
        assert!(open.contains("# TYPE ordinate info\nordinate_info{"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }
}
