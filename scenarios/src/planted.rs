//! The mistakes of users that the simulator switches on, one at a time. The ids are those of `docs/reliability.md`.

kernel::planted_bugs! {
    /// A session goes on to another service without the fence of the one that it used.
    fence_between_services_left_out = "L01",
}
