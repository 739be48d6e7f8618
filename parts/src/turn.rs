//! Turns: what clients ask for together is bounded in requests and bytes between two looks at the clock, so that nobody waits long
//! behind what all of them ask for at once.

use kernel::Instant;

/// What may be done in one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnBounds {
    /// Requests.
    pub requests_max: usize,
    /// Answers that are asked for, in bytes; the last may be of any size.
    pub bytes_max: usize,
}

/// What may still be done in the turn at hand.
#[derive(Clone, Debug)]
pub struct Turn {
    bounds: TurnBounds,
    at: Instant,
    requests: usize,
    bytes: usize,
}

impl Turn {
    /// The first turn begins when the clock has gone on.
    pub fn new(bounds: TurnBounds) -> Self {
        Self { bounds, at: Instant::default(), requests: 0, bytes: 0 }
    }

    /// A turn begins whenever the clock has gone on.
    fn begin(&mut self, now: Instant) {
        if self.at != now {
            (self.at, self.requests, self.bytes) = (now, self.bounds.requests_max, self.bounds.bytes_max);
        }
    }

    /// Whether another request may be taken.
    pub fn has_requests(&mut self, now: Instant) -> bool {
        self.begin(now);
        self.requests > 0
    }

    /// Whether more may be asked for.
    pub fn has_bytes(&mut self, now: Instant) -> bool {
        self.begin(now);
        self.bytes > 0
    }

    /// A request is taken.
    pub fn spend_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// So much is asked for.
    pub fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A turn without end serves one client's thousand requests before the other's first; one that never begins anew serves nobody.
    #[test]
    fn a_turn_is_bounded_in_requests_and_bytes() {
        let mut turn = Turn::new(TurnBounds { requests_max: 2, bytes_max: 100 });
        for now in [1, 2].map(Instant) {
            for _ in 0..2 {
                assert!(turn.has_requests(now));
                turn.spend_request();
            }
            assert!(!turn.has_requests(now) && turn.has_bytes(now));
            turn.spend(60);
            assert!(turn.has_bytes(now));
            turn.spend(60);
            assert!(!turn.has_bytes(now));
        }
    }
}
