//! Who a client of Kafka's protocol is, and what it may do: SASL by SCRAM-SHA-256, and by PLAIN where TLS hides what it sends.

use crate::access::scram::ScramLogin;
use crate::access::{Area, Need, PortCaller, Right};
use ::kafka::{LoginStep, Of, Permits, Verb};

const SCRAM: &str = "SCRAM-SHA-256";
const PLAIN: &str = "PLAIN";
const UNPROVEN: LoginStep = LoginStep::Refused("the name, or the password or token, is not known here");

/// One client.
pub(super) struct Client {
    caller: PortCaller,
    is_secure: bool,
    login: Login,
}

/// How far a login is.
enum Login {
    None,
    Plain,
    Scram,
    ScramProof(ScramLogin),
    ScramDone,
}

impl Client {
    /// One that has shown this certificate, if any; `is_secure`: under TLS.
    pub(super) fn new(mut caller: PortCaller, certificate: Option<&[u8]>, is_secure: bool) -> Self {
        caller.show(certificate);
        Self { caller, is_secure, login: Login::None }
    }
}

fn need(verb: Verb, of: Of<'_>) -> Need<'_> {
    let right = match verb {
        Verb::Read => Right::Read,
        Verb::Write => Right::Write,
        Verb::Manage => Right::Manage,
    };
    match of {
        Of::Topic(name) => Need::of(right, Area::Log, name.as_bytes()),
        Of::Group(name) => Need::of(right, Area::Group, name.as_bytes()),
    }
}

impl Permits for Client {
    fn may(&mut self, verb: Verb, of: Of<'_>) -> bool {
        self.caller.may(need(verb, of))
    }

    fn sees(&mut self, of: Of<'_>) -> bool {
        [Verb::Read, Verb::Write, Verb::Manage]
            .iter()
            .any(|verb| self.caller.would_be_allowed(need(*verb, of)))
    }

    fn mechanisms(&self) -> &'static [&'static str] {
        match (self.caller.is_checked(), self.is_secure) {
            (false, _) => &[],
            (true, false) => &[SCRAM],
            (true, true) => &[SCRAM, PLAIN],
        }
    }

    fn begin(&mut self, mechanism: &str) {
        self.login = if mechanism == SCRAM { Login::Scram } else { Login::Plain };
    }

    fn step(&mut self, message: &[u8]) -> LoginStep {
        match std::mem::replace(&mut self.login, Login::None) {
            Login::None => LoginStep::Refused("SaslHandshake comes first"),
            // Some clients end SCRAM with an empty message.
            Login::ScramDone if message.is_empty() => LoginStep::Answer(Vec::new()),
            Login::ScramDone => UNPROVEN,
            Login::Scram => match self.caller.begin_scram(message) {
                Ok((login, challenge)) => {
                    self.login = Login::ScramProof(login);
                    LoginStep::Answer(challenge)
                }
                Err(_) => UNPROVEN,
            },
            Login::ScramProof(login) => match self.caller.finish_scram(login, message) {
                Ok(proven) => {
                    self.login = Login::ScramDone;
                    LoginStep::Answer(proven.answer)
                }
                Err(_) => UNPROVEN,
            },
            Login::Plain => {
                // The name under which to act, the user, and the password.
                let text = std::str::from_utf8(message).unwrap_or_default();
                let mut parts = text.splitn(3, '\0');
                let (acts_as, user, secret) = (parts.next(), parts.next(), parts.next());
                match (acts_as, user, secret) {
                    (Some(acts_as), Some(user), Some(secret))
                        if (acts_as.is_empty() || acts_as == user)
                            && self.caller.log_in(user, secret).is_ok() =>
                    {
                        LoginStep::Answer(Vec::new())
                    }
                    _ => UNPROVEN,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::secrets::{ScramKeys, TokenHash};
    use crate::access::{Access, scram};
    use crate::events::EventLog;

    fn access(name: &str) -> Access {
        let path = std::env::temp_dir().join(format!("ordinate-{name}-{}.toml", std::process::id()));
        let keys = ScramKeys::of("pencil").expect("random");
        let token = TokenHash::of("t");
        let text = format!(
            "[identity.u]\npassword = \"{keys}\"\ntokens = [\"{token}\"]\ngrants = [\"write log u*\", \"read group g\"]\n"
        );
        std::fs::write(&path, text).expect("it is writable");
        Access::open(Some(&path), &EventLog::default()).expect("it is sound")
    }

    fn client(access: &Access, is_secure: bool) -> Client {
        Client::new(PortCaller::at(access, "kafka", [127, 0, 0, 1].into()), None, is_secure)
    }

    // A login that proves nothing, or a password in the clear.
    #[test]
    fn clients_log_in_by_scram_or_under_tls_by_plain() {
        let access = access("permits");
        let mut plain = client(&access, true);
        assert_eq!(plain.mechanisms(), [SCRAM, PLAIN]);
        assert_eq!(client(&access, false).mechanisms(), [SCRAM]);
        assert!(!plain.may(Verb::Write, Of::Topic("u1")), "nobody knows it yet");
        for (message, is_known) in [
            (&b"\0u\0pencil"[..], true),
            (b"\0u\0t", true),
            (b"\0u\0crayon", false),
            (b"v\0u\0pencil", false),
            (b"", false),
        ] {
            plain.begin(PLAIN);
            assert_eq!(matches!(plain.step(message), LoginStep::Answer(_)), is_known, "{message:?}");
        }
        let mut scram_client = client(&access, false);
        scram_client.begin(SCRAM);
        let LoginStep::Answer(challenge) = scram_client.step(b"n,,n=u,r=abc") else { panic!("it begins") };
        let challenge = String::from_utf8(challenge).expect("text");
        let proof = scram::tests::proof("pencil", "n=u,r=abc", &challenge);
        assert!(matches!(scram_client.step(&proof), LoginStep::Answer(_)));
        assert!(
            scram_client.may(Verb::Write, Of::Topic("u1")) && scram_client.may(Verb::Read, Of::Group("g"))
        );
        assert!(!scram_client.may(Verb::Manage, Of::Topic("u1")) && !scram_client.sees(Of::Topic("v")));
        assert!(matches!(client(&access, false).step(&proof), LoginStep::Refused(_)));
    }
}
