//! One input, exact effects.

mod cast;
mod decisions;
mod healing;
