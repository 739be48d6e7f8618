//! What happened, as a hash that two equal runs share, and as text when somebody wants to read it.

use crate::Options;
use crate::draw::{mix, mix_bytes};
use kernel::HostId;
use std::collections::VecDeque;

/// How many lines a trace keeps.
const LINES_MAX: usize = 20_000;

/// One line of a trace.
#[derive(Clone, Debug)]
pub struct TraceLine {
    /// How many events had been handled.
    pub step: u64,
    /// When, in nanoseconds of the run.
    pub at: u64,
    /// The host it happened on; `None` for what concerns all.
    pub host: Option<HostId>,
    /// What happened.
    pub text: String,
}

/// The trace of one run.
pub(crate) struct Trace {
    hash: u64,
    pub(crate) step: u64,
    lines: Option<VecDeque<TraceLine>>,
    /// Lines contain one of these, if there are any.
    only: Vec<String>,
}

impl Trace {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let lines = options.trace.then(VecDeque::new);
        Self { hash: mix(0, seed), step: 0, lines, only: options.trace_only.clone() }
    }

    /// Mixes numbers into the hash.
    #[inline]
    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = mix(self.hash, number);
    }

    /// Mixes bytes into the hash.
    #[inline]
    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        self.hash = mix_bytes(self.hash, bytes);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether lines are retained.
    pub(crate) fn is_read(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a line; `text` is built only if lines are retained.
    #[inline]
    pub(crate) fn line(&mut self, at: u64, host: Option<HostId>, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let text = text();
            if !self.only.is_empty() && !self.only.iter().any(|wanted| text.contains(wanted)) {
                return;
            }
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(TraceLine { step: self.step, at, host, text });
        }
    }

    /// The last `count` lines of `host`, or of everybody.
    pub(crate) fn last(&self, count: usize, host: Option<HostId>) -> Vec<TraceLine> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let concerns = |line: &&TraceLine| host.is_none() || line.host.is_none() || line.host == host;
        let mut last: Vec<_> = lines.iter().rev().filter(concerns).take(count).cloned().collect();
        last.reverse();
        last
    }
}
