//! The mistakes of maps that the simulator switches on, one at a time. The ids are those of `docs/reliability.md`.

kernel::planted_bugs! {
    /// A transaction of a map is applied as soon as one colour has decided.
    one_colour_decides = "F18",
    /// A read of several keys goes from colour to colour, without a point of the order.
    read_goes_colour_by_colour = "F60",
    /// A delete of an observed-remove map takes away puts that it has not seen.
    delete_takes_all = "F61",
    /// A view is stored as one that covers more than it has.
    view_covers_too_much = "F62",
    /// A change of an observed-remove map that is sent again is executed again.
    names_not_remembered = "F63",
}
