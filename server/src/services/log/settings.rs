//! The shared log's part of a cluster file.

use super::ENGINES;
use crate::cluster::keys::parse_size;
use crate::cluster::values::{FileError, Values, addresses_of};
use crate::services::{Engine, Service};
use shared_log::RETAIN_BYTES_MIN;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The shared log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLog {
    /// What orders it.
    pub engine: Engine,
    /// Among how many spaces the logs are spread.
    pub spaces: u16,
    /// How many proxies.
    pub proxies: u16,
    /// What the logs of one space with limits of their own may be created to hold together, in bytes.
    pub space_bytes: u64,
    /// What the entries of all logs may take of a host's disk, in bytes; none: what it works out.
    pub disk_bytes: Option<u64>,
    /// What the entries of one space may take of a host's memory, in bytes.
    pub memory_bytes: u64,
    /// Where trimmed segments go, if they are retained.
    pub archive: Option<ArchiveLocation>,
    /// What of a space's may wait for it before appends are refused, in bytes.
    pub archive_backlog_bytes: u64,
    /// Kafka's protocol over them, if it is on.
    pub kafka: Option<Kafka>,
}

/// Kafka's protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kafka {
    /// Where a host listens.
    pub listen: String,
    /// Where clients reach hosts, by name, if not there.
    pub brokers: BTreeMap<String, String>,
    /// Whether topics are made when clients ask for them.
    pub creates_topics: bool,
    /// What a topic may hold unless its maker says, in bytes; 0: no limit but the disk budget.
    pub retain_bytes: u64,
    /// How long records are retained unless a topic's maker says.
    pub retain: Duration,
}

/// Where trimmed segments go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArchiveLocation {
    /// A directory that all hosts share.
    Directory(PathBuf),
    /// Objects of a bucket, below a prefix.
    Bucket {
        /// Its name.
        bucket: String,
        /// What the objects' names begin with; may be empty.
        prefix: String,
    },
}

impl ArchiveLocation {
    /// Reads `file:///DIRECTORY` or `s3://BUCKET/PREFIX`; says what is wrong with anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("file://") {
            let path = PathBuf::from(path);
            let sound = path.is_absolute() && path.components().count() > 1;
            return if sound { Ok(Self::Directory(path)) } else { Err(format!("{text} names no directory")) };
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(format!("{text} begins neither with file:/// nor with s3://"));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(sound) {
            return Err(format!("{text} names no bucket"));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && prefix.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            return Err(format!("{text} has a prefix that names no location"));
        }
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for ArchiveLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "file://{}", path.display()),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// Reads it; none if the service is off.
pub(super) fn read(values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    let spaces = values.number("log.spaces").unwrap_or(0) as u16;
    let kafka = kafka(values)?;
    if spaces == 0 && kafka.is_some() {
        let help = "give log.spaces, for example 4; or leave listen.kafka out";
        return Err(FileError::new(None, "listen.kafka is set, but there is no shared log", help));
    }
    let engine = values.engine("log.engine", ENGINES).unwrap_or(Engine::Mason);
    if engine == Engine::Corfu && kafka.is_some() {
        let help = "leave listen.kafka out, or give log.engine = \"mason\" or \"paxos\"";
        return Err(FileError::new(None, "log.engine = \"corfu\" does not serve Kafka's clients", help));
    }
    let archive = values.text("log.archive").and_then(|text| ArchiveLocation::parse(&text).ok());
    if archive.is_some() && engine == Engine::Corfu {
        let help = "leave log.archive out, or give log.engine = \"mason\" or \"paxos\"";
        return Err(FileError::new(None, "log.engine = \"corfu\" does not archive", help));
    }
    if archive.is_some() && spaces == 0 {
        let help = "give log.spaces, for example 4; or leave log.archive out";
        return Err(FileError::new(None, "log.archive is set, but there is no shared log", help));
    }
    let one = !matches!(engine, Engine::Mason | Engine::FuzzyLog);
    let proxies = if one { 1 } else { values.number("log.proxies").unwrap_or(1) as u16 };
    let [space_bytes, memory_bytes, archive_backlog_bytes] =
        ["log.space_bytes", "log.memory_bytes", "log.archive_backlog_bytes"]
            .map(|name| values.size(name) as u64);
    let spaces = if one { spaces.min(1) } else { spaces };
    if spaces == 0 {
        return Ok(None);
    }
    Ok(Some(Arc::new(SharedLog {
        engine,
        spaces,
        proxies,
        space_bytes,
        disk_bytes: values.text("log.disk_bytes").and_then(|text| parse_size(&text)),
        memory_bytes,
        archive,
        archive_backlog_bytes,
        kafka,
    })))
}

fn kafka(values: &Values<'_>) -> Result<Option<Kafka>, FileError> {
    let Some(listen) = values.text("listen.kafka") else { return Ok(None) };
    let retain_bytes = values.size("kafka.retain_bytes") as u64;
    if (1..RETAIN_BYTES_MIN).contains(&retain_bytes) {
        let help = "give 0, for no limit, or 1MiB or more";
        return Err(FileError::new(None, "kafka.retain_bytes is less than a log may be limited to", help));
    }
    Ok(Some(Kafka {
        listen,
        brokers: values.text("kafka.brokers").and_then(|text| addresses_of(&text)).unwrap_or_default(),
        creates_topics: values.is_on("kafka.create_topics"),
        retain_bytes,
        retain: values.duration("kafka.retain"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A location that is understood otherwise than it was meant gets what nobody looks for there.
    #[test]
    fn locations_read_back_and_others_are_refused() {
        for text in ["file:///mnt/archive", "s3://bucket", "s3://my.bucket-1/a/b"] {
            assert_eq!(
                ArchiveLocation::parse(text).map(|location| location.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!(
            ArchiveLocation::parse("s3://b/a/"),
            Ok(ArchiveLocation::Bucket { bucket: "b".to_owned(), prefix: "a".to_owned() })
        );
        for text in
            ["", "/mnt", "file://mnt/x", "file:///", "s3://", "s3:///x", "s3://b/../x", "gs://b", "s3://b//x"]
        {
            assert!(ArchiveLocation::parse(text).is_err(), "{text}");
        }
    }
}
