//! One input, exact effects.

mod decisions;
mod healing;
mod table;
