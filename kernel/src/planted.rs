//! Known protocol mistakes that the simulator switches on, one at a time, to show that it would notice them.
//!
//! Each crate lists its own in a module `planted`, by [`planted_bugs!`](crate::planted_bugs). Only builds with the feature
//! `planted` contain them; in every other build [`planted!`](crate::planted) is the constant `false`.

/// One planted bug.
#[derive(Debug)]
pub struct PlantedBug {
    /// Its id in the table of `docs/reliability.md`.
    pub id: &'static str,
    /// Its crate, and what is wrong: `mason::seal_answered_early`. The words before it are what a release binary is searched for.
    marked_name: &'static str,
}

/// Every name of a planted bug begins with these words, so that a binary can be searched for them.
const MARKER: &str = "planted bug ";

impl PlantedBug {
    /// For [`planted_bugs!`](crate::planted_bugs) alone: `marked_name` begins with "planted bug ".
    pub const fn new(id: &'static str, marked_name: &'static str) -> Self {
        Self { id, marked_name }
    }

    /// Its crate, and what is wrong: `mason::seal_answered_early`.
    pub fn name(&self) -> &'static str {
        self.marked_name.strip_prefix(MARKER).unwrap_or(self.marked_name)
    }
}

/// Lists a crate's planted bugs: what is wrong, in a name, and the id of the reliability table.
///
/// ```
/// pub mod planted {
///     kernel::planted_bugs! {
///         /// An acceptor votes without persisting the vote.
///         vote_not_persisted = "P01",
///     }
/// }
/// assert!(planted::vote_not_persisted.name().ends_with("::vote_not_persisted"));
/// assert_eq!(planted::ALL.len(), 1);
/// ```
#[macro_export]
macro_rules! planted_bugs {
    ($( $(#[$doc:meta])+ $name:ident = $id:literal ),* $(,)?) => {
        $(
            $(#[$doc])+
            #[allow(non_upper_case_globals, reason = "a name is written as where the bug is planted")]
            pub static $name: $crate::PlantedBug = $crate::PlantedBug::new(
                $id,
                concat!("planted bug ", env!("CARGO_CRATE_NAME"), "::", stringify!($name)),
            );
        )*

        /// The crate's planted bugs.
        pub static ALL: &[&$crate::PlantedBug] = &[ $( &$name ),* ];
    };
}

#[cfg(feature = "planted")]
mod switch {
    use super::PlantedBug;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<&'static PlantedBug>> = const { Cell::new(None) };
    }

    /// Whether this thread's simulation runs with `bug`.
    pub fn active(bug: &'static PlantedBug) -> bool {
        ACTIVE.get().is_some_and(|active| std::ptr::eq(active, bug))
    }

    /// Switches one bug on for this thread, or all off.
    pub fn activate(bug: Option<&'static PlantedBug>) {
        ACTIVE.set(bug);
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    use super::PlantedBug;

    /// Nothing to switch on in this build.
    pub fn activate(_bug: Option<&'static PlantedBug>) {}
}

pub use switch::activate;
#[cfg(feature = "planted")]
pub use switch::active;

/// True while the simulator runs with this planted bug of the crate's own list.
///
/// ```
/// # pub mod planted {
/// #     kernel::planted_bugs! {
/// #         /// An acceptor votes without persisting the vote.
/// #         vote_not_persisted = "P01",
/// #     }
/// # }
/// # fn main() {
/// if kernel::planted!(vote_not_persisted) { /* the mistake */ }
/// # }
/// ```
#[cfg(feature = "planted")]
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the list is the calling crate's")]
macro_rules! planted {
    ($name:ident) => {
        $crate::__private::active(&crate::planted::$name)
    };
}

/// True while the simulator runs with this planted bug of the crate's own list: never, in this build.
#[cfg(not(feature = "planted"))]
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the list is the calling crate's")]
macro_rules! planted {
    ($name:ident) => {{
        // The name is checked in every build, and nothing of it is left.
        let _ = || &crate::planted::$name;
        false
    }};
}
