//! Assertions that carry the name of the invariant they guard, so that a failing run says which one broke.

/// Asserts what only our own bugs can break. The first word is the invariant's id (AGREE, PREFIX, DUR, ...).
///
/// ```
/// kernel::invariant!(AGREE, 1 + 1 == 2, "slot {} has two values", 7);
/// ```
#[macro_export]
macro_rules! invariant {
    ($id:ident, $holds:expr, $($text:tt)+) => {
        assert!($holds, "{}: {}", stringify!($id), format_args!($($text)+))
    };
}
