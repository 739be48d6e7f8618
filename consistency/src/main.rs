//! `ordinate-check`: the checker as a program of its own.
#![forbid(unsafe_code)]

fn main() {}
