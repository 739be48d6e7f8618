//! Quotas as ZooKeeper's command line writes them: two nodes below `/zookeeper/quota` and the path they are for.

/// Where they are.
const FOLDER: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";

/// Whether the node says what a quota allows.
pub fn is_limits(path: &str) -> bool {
    quota_of(path, LIMITS).is_some()
}

/// The path that a node with limits is for.
pub fn limited_by(path: &str) -> Option<&str> {
    quota_of(path, LIMITS)
}

/// The path whose usage a node shows.
pub fn shown_by(path: &str) -> Option<&str> {
    quota_of(path, STATS)
}

fn quota_of<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let of = path.strip_prefix(FOLDER)?.strip_suffix(name)?;
    (of.starts_with('/') || of.is_empty()).then_some(if of.is_empty() { "/" } else { of })
}

/// What a quota allows below its path, the path included; none where it does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Nodes; more are reported.
    pub count: Option<u64>,
    /// Bytes of data; more are reported.
    pub bytes: Option<u64>,
    /// Nodes; more are refused, if that is switched on.
    pub count_hard: Option<u64>,
    /// Bytes of data; more are refused, if that is switched on.
    pub bytes_hard: Option<u64>,
}

impl QuotaLimits {
    /// Reads `count=10,bytes=-1=;byteHardLimit=1000;countHardLimit=20`; what is not understood is no limit.
    pub fn read(data: &[u8]) -> Self {
        let mut limits = Self::default();
        let text = String::from_utf8_lossy(data);
        for part in text.split([',', ';']) {
            let mut words = part.split('=').map(str::trim);
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            // -1 stands for none.
            let value = value.parse::<u64>().ok();
            match name {
                "count" => limits.count = value,
                "bytes" => limits.bytes = value,
                "countHardLimit" => limits.count_hard = value,
                "byteHardLimit" => limits.bytes_hard = value,
                _ => {}
            }
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A quota that is read as another one refuses what is allowed.
    #[test]
    fn quotas_are_zookeepers() {
        assert_eq!(limited_by("/zookeeper/quota/a/b/zookeeper_limits"), Some("/a/b"));
        assert_eq!(limited_by("/zookeeper/quota/zookeeper_limits"), Some("/"));
        assert_eq!(shown_by("/zookeeper/quota/a/zookeeper_stats"), Some("/a"));
        for other in ["/zookeeper/quota/a", "/zookeeper/quotas/a/zookeeper_limits", "/a/zookeeper_limits"] {
            assert_eq!(limited_by(other), None, "{other}");
        }
        let read = QuotaLimits::read(b"count=10,bytes=-1=;byteHardLimit=1000;countHardLimit=20");
        let wanted =
            QuotaLimits { count: Some(10), bytes: None, count_hard: Some(20), bytes_hard: Some(1000) };
        assert_eq!(read, wanted);
        assert_eq!(QuotaLimits::read(b"count=5,bytes=7").bytes, Some(7));
        assert_eq!(QuotaLimits::read(&[0xff, b'=', b',']), QuotaLimits::default());
    }
}
