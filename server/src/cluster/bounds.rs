//! Whether the sizes in a cluster file fit into each other, and into what journals and links hold.

use super::values::{FileError, ValueSource, Values};
use kernel::bounds::{OPERATION_BYTES_MAX, REQUEST_HEAD_BYTES};
use kernel::{Bounds, Misfit};

impl Values<'_> {
    /// Refuses sizes by which a record could outgrow the journal, or a message its frame: a host that finds out later stops.
    pub(super) fn check_bounds(&self) -> Result<(), FileError> {
        self.fits("paxos.batch_bytes_max", self.parameters().misfit(&Bounds::REAL))
    }

    /// Refuses a request of a service's users, as large as a key allows, that does not fit into an operation.
    pub fn check_request(&self, name: &str) -> Result<(), FileError> {
        let request = self.size(name) + REQUEST_HEAD_BYTES;
        self.fits(name, Misfit::of("an operation", request, OPERATION_BYTES_MAX))
    }

    fn fits(&self, name: &str, misfit: Option<Misfit>) -> Result<(), FileError> {
        let Some(misfit) = misfit else { return Ok(()) };
        let line = match self.values.get(name) {
            Some((_, ValueSource::File { line })) => Some(*line),
            Some(_) | None => None,
        };
        let help = format!("ordinate config explain {name}");
        Err(FileError::new(line, format!("{name} is too large: {misfit}"), help))
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::ClusterFile;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    // A file by which a batch outgrows the journal's record stops a majority at the first large write.
    #[test]
    fn sizes_that_no_record_holds_are_refused() {
        let parse = |line: &str| {
            let text = format!("cluster = \"c\"\n{line}\n[hosts]\na = \"a:1\"\n");
            ClusterFile::parse(&text, Path::new("."), &Overrides::default()).map_err(|error| error.what)
        };
        for (name, largest) in
            [("paxos.batch_bytes_max", 3_870_000), ("coordination.request_bytes_max", 3_129_344)]
        {
            let with = |bytes: usize| parse(&format!("{name} = {bytes}"));
            assert!(with(largest).is_ok(), "{name}: {:?}", with(largest).err());
            let refused = with(4 << 20).expect_err("a record holds 4 MiB with its head");
            assert!(refused.starts_with(&format!("{name} is too large")), "{refused}");
        }
    }
}
