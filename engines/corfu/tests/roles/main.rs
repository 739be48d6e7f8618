//! One input, exact effects.

mod decisions;
mod table;
