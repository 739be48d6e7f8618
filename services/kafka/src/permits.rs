//! Who is at a connection, and what it may do: decided by who serves the port.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Read records, or be a member of a group.
    Read,
    /// Append records.
    Write,
    /// Make and drop topics.
    Manage,
}

/// To what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of<'a> {
    /// A topic.
    Topic(&'a str),
    /// A group.
    Group(&'a str),
}

/// What a step of a login came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoginStep {
    /// The client is sent this, and goes on; or is known now.
    Answer(Vec<u8>),
    /// It is not who it says; with words for it.
    Refused(&'static str),
}

/// Decides for one connection.
pub trait Permits {
    /// Whether the client may; a refusal is counted.
    fn may(&mut self, verb: Verb, of: Of<'_>) -> bool;

    /// The same, where what it may not see is only left out.
    fn sees(&mut self, of: Of<'_>) -> bool;

    /// By which mechanisms of SASL it may log in.
    fn mechanisms(&self) -> &'static [&'static str];

    /// It begins one of them.
    fn begin(&mut self, mechanism: &str);

    /// A message of the mechanism that it has begun.
    fn step(&mut self, message: &[u8]) -> LoginStep;
}

/// Shared by the requests of a connection. Cheap to clone.
#[derive(Clone)]
pub struct Permitted(Rc<RefCell<dyn Permits>>);

impl Permitted {
    /// What `permits` decides.
    pub fn by(permits: impl Permits + 'static) -> Self {
        Self(Rc::new(RefCell::new(permits)))
    }

    /// Everything.
    pub fn all() -> Self {
        Self::by(Everything)
    }

    pub(crate) fn may(&self, verb: Verb, of: Of<'_>) -> bool {
        self.0.borrow_mut().may(verb, of)
    }

    pub(crate) fn sees(&self, of: Of<'_>) -> bool {
        self.0.borrow_mut().sees(of)
    }

    pub(crate) fn mechanisms(&self) -> &'static [&'static str] {
        self.0.borrow().mechanisms()
    }

    pub(crate) fn begin(&self, mechanism: &str) {
        self.0.borrow_mut().begin(mechanism);
    }

    pub(crate) fn step(&self, message: &[u8]) -> LoginStep {
        self.0.borrow_mut().step(message)
    }
}

impl fmt::Debug for Permitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permitted")
    }
}

struct Everything;

impl Permits for Everything {
    fn may(&mut self, _verb: Verb, _of: Of<'_>) -> bool {
        true
    }

    fn sees(&mut self, _of: Of<'_>) -> bool {
        true
    }

    fn mechanisms(&self) -> &'static [&'static str] {
        &[]
    }

    fn begin(&mut self, _mechanism: &str) {}

    fn step(&mut self, _message: &[u8]) -> LoginStep {
        LoginStep::Refused("nobody logs in here: access control is off")
    }
}
