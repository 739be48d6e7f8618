//! What the editor, or the pipe, gives the demo when it is asked for a line.

/// What was given.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Given {
    Line(String),
    /// A line that cannot be used, and why.
    Unusable(String),
    End,
}
