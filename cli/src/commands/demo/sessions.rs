//! What somebody has played of a colour.

use ordinate_client::FuzzyNode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The last number of each writer.
pub(super) type Plays = BTreeMap<Arc<str>, u64>;

/// A colour that is played from its beginning.
#[derive(Clone, Default)]
pub(super) struct ReadBack {
    pub(super) plays: Plays,
    /// The first node that came twice, or before one that its writer appended earlier.
    pub(super) disorder: Option<String>,
}

/// Which writer's node a body is, and which of its nodes; none of what somebody else appended.
pub(super) fn number_of(body: &str) -> Option<(&str, u64)> {
    let (writer, number) = body.split_once(' ')?;
    let is_a_writer = writer.contains('.');
    Some((writer, number.parse().ok()?)).filter(|_| is_a_writer)
}

impl ReadBack {
    pub(super) fn take(&mut self, node: &FuzzyNode) {
        let body = String::from_utf8_lossy(&node.body);
        let Some((writer, number)) = number_of(&body) else { return };
        let last = match self.plays.get_mut(writer) {
            Some(last) => last,
            None => self.plays.entry(Arc::from(writer)).or_insert(0),
        };
        if number <= *last {
            let why = format!("{body} at {} of a colour is behind {writer} {last}", node.position);
            self.disorder.get_or_insert(why);
        }
        *last = number;
    }
}
