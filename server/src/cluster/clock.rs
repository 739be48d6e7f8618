//! What the cluster file says of the hosts' wall clocks.

use super::values::{FileError, ValueSource, Values};
use runtime::ClockSource;
use std::time::Duration;

/// A host's wall clock, as the cluster file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockKeys {
    /// Who bounds its error.
    pub source: ClockSource,
    /// With a larger error nothing is done that rests on it.
    pub error_max: Duration,
}

impl ClockKeys {
    pub(super) fn of(values: &Values<'_>) -> Result<Self, FileError> {
        let (epsilon, error_max) = (values.duration("clock.epsilon"), values.duration("clock.error_max"));
        let source = match values.text("clock.source").as_deref() {
            Some("clockbound") => ClockSource::ClockBound,
            Some("chrony") => ClockSource::Chrony,
            Some("kernel") => ClockSource::Kernel,
            Some("fixed") => ClockSource::Fixed { epsilon },
            _ => ClockSource::Auto,
        };
        if matches!(source, ClockSource::Fixed { .. }) && epsilon > error_max {
            let line = match values.values.get("clock.epsilon") {
                Some((_, ValueSource::File { line })) => Some(*line),
                Some(_) | None => None,
            };
            let what = format!(
                "clock.epsilon is {epsilon:?}, and clock.error_max {error_max:?}: the clock would never be usable"
            );
            return Err(FileError::new(line, what, "ordinate config explain clock.error_max"));
        }
        Ok(Self { source, error_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterFile;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn parse(section: &str) -> Result<ClusterFile, String> {
        let text = format!("cluster = \"c\"\n[clock]\n{section}\n[hosts]\na = \"a:1\"\n");
        let file = ClusterFile::parse(&text, Path::new("."), &Overrides::default());
        file.map_err(|error| error.what)
    }

    // A source that is read as another one vouches for a clock that nobody keeps.
    #[test]
    fn each_source_is_the_one_that_is_written() {
        let ms = Duration::from_millis;
        for (section, source) in [
            ("", ClockSource::Auto),
            ("source = \"clockbound\"", ClockSource::ClockBound),
            ("source = \"chrony\"", ClockSource::Chrony),
            ("source = \"kernel\"", ClockSource::Kernel),
            ("source = \"fixed\"", ClockSource::Fixed { epsilon: ms(10) }),
            (
                "source = \"fixed\"\nepsilon = \"100us\"",
                ClockSource::Fixed { epsilon: Duration::from_micros(100) },
            ),
        ] {
            let config = parse(section).expect(section).clock_config();
            assert_eq!((config.source, config.error_max), (source, ms(250)), "{section}");
            assert!(!config.required, "no service of these needs a clock");
        }
        let refused = parse("source = \"ntp\"").expect_err("there is no such source");
        assert!(refused.contains("auto, clockbound, chrony, kernel, fixed"), "{refused}");
    }

    // An error that is larger than allowed would start a host that never does its duties.
    #[test]
    fn an_epsilon_beyond_the_largest_error_is_refused() {
        let refused = parse("source = \"fixed\"\nepsilon = \"1s\"").expect_err("1 s is more than 250 ms");
        assert!(refused.contains("never be usable"), "{refused}");
        assert!(parse("source = \"fixed\"\nepsilon = \"1s\"\nerror_max = \"1s\"").is_ok());
        assert!(parse("source = \"kernel\"\nepsilon = \"1s\"").is_ok(), "it is not looked at");
    }
}
