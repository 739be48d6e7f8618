//! Calls one by one at chosen moments: what happens beside a commit, step by step.

use super::deployment::RunningTxns;
use kernel::client::Response;
use kernel::{Bytes, Decode, Encode, Rng};
use sim::cost::{Class, Load, LoadSession, Pace};
use spanner::Spanner;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::txn::{TxnCall, TxnReply};

/// A call of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptedCall {
    number: u64,
    at: Duration,
}

/// The call that is made next, and the answers so far.
#[derive(Default)]
struct Scripted {
    next: Bytes,
    answers: BTreeMap<u64, (Duration, TxnReply)>,
}

impl Load<Spanner> for Scripted {
    fn ask(&mut self, _session: LoadSession, _rng: &mut Rng) -> (Bytes, Class) {
        (std::mem::take(&mut self.next), Class(0))
    }

    fn answered(&mut self, session: LoadSession, _: Class, response: &Response, now: Duration) -> bool {
        let Ok(reply) = TxnReply::decoded(&response.0) else { return false };
        self.answers.insert(session.number, (now, reply));
        true
    }
}

/// A deployment whose clients make the calls of a script.
pub struct Script {
    running: RunningTxns,
    load: Scripted,
}

impl Script {
    /// Nothing was asked yet.
    pub fn new(mut running: RunningTxns) -> Self {
        running.testbed.begin_load(&running.gateways, Pace::OnDemand);
        Self { running, load: Scripted::default() }
    }

    /// The time that has passed.
    pub fn now(&self) -> Duration {
        self.running.testbed.now()
    }

    /// Lets time pass until this moment.
    pub fn wait_until(&mut self, at: Duration) {
        let span = at.saturating_sub(self.now());
        self.running.testbed.run_load_for(span, &mut self.load);
    }

    /// Has a gateway, by its number, make a call.
    pub fn ask(&mut self, gateway: usize, call: impl Into<TxnCall>) -> ScriptedCall {
        let call: TxnCall = call.into();
        self.load.next = call.encoded().into();
        let at = self.now();
        ScriptedCall { number: self.running.testbed.ask_once(gateway, &mut self.load).number, at }
    }

    /// When a call was made.
    pub fn asked_at(&self, asked: ScriptedCall) -> Duration {
        asked.at
    }

    /// When a call was answered, and what with; none while it was not.
    pub fn answer(&self, asked: ScriptedCall) -> Option<&(Duration, TxnReply)> {
        self.load.answers.get(&asked.number)
    }

    /// Lets time pass until a call is answered.
    ///
    /// # Errors
    /// If it is not within a minute.
    pub fn await_answer(&mut self, asked: ScriptedCall) -> Result<(Duration, TxnReply), String> {
        let until = self.now() + Duration::from_secs(60);
        while self.now() < until {
            if let Some(answer) = self.answer(asked) {
                return Ok(answer.clone());
            }
            self.wait_until(self.now() + Duration::from_micros(100));
        }
        Err(format!("a call of {:?} is not answered by {:?}", asked.at, self.now()))
    }
}
