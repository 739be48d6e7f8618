//! SaslHandshake and SaslAuthenticate: decided when they come, so that what follows them is asked of who they prove.

use super::{Fault, Job, JobCx, ResponseBody, Wanted};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::permits::{LoginStep, Permitted};
use crate::wire::PutKafka as _;
use kernel::Bytes;
use shared_log::Answer;

/// How long a login holds: as long as the file of identities says so, which nobody knows.
const NO_LIFETIME: i64 = 0;

/// SaslHandshake.
pub(super) struct Handshake {
    code: Code,
    mechanisms: &'static [&'static str],
}

impl Handshake {
    pub(super) fn new(mechanism: &str, version: i16, permitted: &Permitted) -> Self {
        let mechanisms = permitted.mechanisms();
        let code = if version == 0 {
            // What follows it has no head, and clients of version 1 do not send it.
            Code::UNSUPPORTED_VERSION
        } else if mechanisms.contains(&mechanism) {
            permitted.begin(mechanism);
            Code::NONE
        } else {
            Code::UNSUPPORTED_SASL_MECHANISM
        };
        Self { code, mechanisms }
    }
}

impl Job for Handshake {
    fn slots(&self) -> usize {
        0
    }

    fn ask(&mut self, _slot: usize, _cx: &mut JobCx) {}

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, _version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        out.put_code(self.code);
        out.put_array(self.mechanisms.iter(), |out, mechanism| out.put_text(Some(mechanism)));
        Ok(Wanted::Yes)
    }
}

/// SaslAuthenticate.
pub(super) struct Authenticate {
    step: LoginStep,
}

impl Authenticate {
    pub(super) fn new(message: &Bytes, permitted: &Permitted) -> Self {
        Self { step: permitted.step(message) }
    }
}

impl Job for Authenticate {
    fn slots(&self) -> usize {
        0
    }

    fn ask(&mut self, _slot: usize, _cx: &mut JobCx) {}

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn ends_connection(&self) -> bool {
        matches!(self.step, LoginStep::Refused(_))
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let (code, why, answer) = match &self.step {
            LoginStep::Answer(answer) => (Code::NONE, None, answer.as_slice()),
            LoginStep::Refused(why) => (Code::SASL_AUTHENTICATION_FAILED, Some(*why), [].as_slice()),
        };
        out.put_code(code);
        out.put_text(why);
        out.put_bytes(answer);
        if version >= 1 {
            out.put(&NO_LIFETIME.to_be_bytes());
        }
        Ok(Wanted::Yes)
    }
}
