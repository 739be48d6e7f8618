//! Pictures of a history and of what is wrong with it: DOT, and a page that needs nothing but itself.

mod arrows;
mod dot;
mod html;
mod layout;

pub use dot::write_dot;
pub use html::write_html;
