//! Users that use libRSS: which service a session asks next, which fence must come before, and what a message to another session carries.

use kernel::Rng;
use std::collections::BTreeMap;
use std::convert::Infallible;
use wire::rss::{CausalContext, Composition, ServiceName, Token, extract, inject};
use wire::txn::Timestamp;

/// The services, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Service {
    /// Transactions: reads are RSS, so there is a fence.
    Bank,
    /// Another deployment of transactions.
    Stock,
    /// The log: linearizable, so its fence has nothing to wait for.
    Log,
    /// Coordination, linearizable too.
    Znodes,
}

impl Service {
    pub(super) const ALL: [Self; 4] = [Self::Bank, Self::Stock, Self::Log, Self::Znodes];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bank => "bank",
            Self::Stock => "stock",
            Self::Log => "log",
            Self::Znodes => "znodes",
        }
    }

    fn name(self) -> ServiceName {
        ServiceName::new(self.word()).expect("it is short and not empty")
    }

    /// True if its reads are RSS: it has a fence.
    fn has_fence(self) -> bool {
        match self {
            Self::Bank | Self::Stock => true,
            Self::Log | Self::Znodes => false,
        }
    }

    fn of(name: &ServiceName) -> Self {
        Self::ALL.into_iter().find(|it| it.word() == name.as_str()).expect("no other name is used")
    }
}

/// What one user knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// Counts up when it does not know how an operation ended: it goes on as somebody else.
    pub(super) incarnation: u32,
    composition: Composition,
    tokens: BTreeMap<Service, Timestamp>,
    next: Option<Service>,
    /// Where it has found the end of the log.
    pub(super) log_end: u64,
}

/// What a session does now.
pub(super) enum Step {
    /// The fence of a service that it used, because it wants to go on to another one.
    Fence(Service),
    /// Its operation.
    Operation(Service),
}

impl Session {
    pub(super) fn step(&mut self, rng: &mut Rng) -> Step {
        let wanted =
            *self.next.get_or_insert_with(|| Service::ALL[rng.below(Service::ALL.len() as u64) as usize]);
        let step = self.step_to(wanted);
        if matches!(step, Step::Operation(_)) {
            self.next = None;
        }
        step
    }

    /// The operation at this service, or the fence that must come before it.
    pub(super) fn step_to(&mut self, wanted: Service) -> Step {
        let missing = self.composition.fences_before(&wanted.name());
        for service in missing {
            let is_left_out = kernel::planted!(fence_between_services_left_out);
            if Service::of(&service).has_fence() && !is_left_out {
                return Step::Fence(Service::of(&service));
            }
            self.composition.on_fenced(&service);
        }
        self.composition.on_start(&wanted.name());
        Step::Operation(wanted)
    }

    /// A service that it, or who sent it its context, has used last.
    pub(super) fn last(&self) -> Option<Service> {
        self.composition.last().first().map(Service::of)
    }

    pub(super) fn token(&self, service: Service) -> Timestamp {
        self.tokens.get(&service).copied().unwrap_or_default()
    }

    pub(super) fn saw(&mut self, service: Service, token: Timestamp) {
        let known = self.tokens.entry(service).or_default();
        *known = token.max(*known);
    }

    pub(super) fn fenced(&mut self, service: Service) {
        self.composition.on_fenced(&service.name());
    }

    /// The header of a message to another session.
    pub(super) fn header(&self) -> String {
        let token = |(service, token): (&Service, &Timestamp)| {
            (service.name(), Token::Inline(token.0.to_le_bytes().to_vec()))
        };
        let mut context = CausalContext {
            last: self.composition.last().clone(),
            tokens: self.tokens.iter().map(token).collect(),
        };
        let never = |_: &ServiceName| -> Result<u64, Infallible> { Ok(0) };
        inject(&mut context, "vendor=1", never).expect("three small tokens have room").header
    }

    /// A message has arrived with this header.
    pub(super) fn hears(&mut self, header: &str) {
        let context = extract(header).expect("it is whole").expect("the sender put its context in");
        self.composition.on_context(&context);
        for (service, token) in &context.tokens {
            if let Token::Inline(bytes) = token
                && let Ok(bytes) = bytes.as_slice().try_into()
            {
                self.saw(Service::of(service), Timestamp(u64::from_le_bytes(bytes)));
            }
        }
    }
}
