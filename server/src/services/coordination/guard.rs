//! What passes ZooKeeper's port while access control is on: logins are decided here, and requests for what somebody was not granted go on
//! as ones that the gateway refuses in their turn.

use crate::access::digest_md5::DigestLogin;
use crate::access::{Area, Need, PortCaller, Right};
use ::coordination::wire::{JuteInput, JuteOutput as _, Request, SetWatches, Update, op};
use kernel::client::Proven;

/// Bytes before a request that say how long it is.
const LENGTH_BYTES: usize = 4;
/// Words that say nothing of anybody.
const WORDS_FOR_ANYONE: [&[u8]; 2] = [b"ruok", b"isro"];

/// The guard of one connection.
pub(super) struct Guard {
    caller: PortCaller,
    /// The first frame opens the session, and has no head.
    greeted: bool,
    login: Option<DigestLogin>,
}

/// What is to be done with what has come.
#[derive(Default)]
pub(super) struct Passed {
    /// For the gateway, whole frames, in pieces between which logins stand.
    pub(super) pieces: Vec<Piece>,
    /// A word that was not granted: what is said of it before the end.
    pub(super) refused_word: Option<String>,
    /// What comes now is no frame.
    pub(super) is_malformed: bool,
}

/// One after the other.
pub(super) enum Piece {
    /// Frames.
    Frames(Vec<u8>),
    /// What came of a step of a login.
    Login(Proven),
}

impl Guard {
    pub(super) fn new(caller: PortCaller) -> Self {
        Self { caller, greeted: false, login: None }
    }

    /// Whether anything is to be guarded.
    pub(super) fn is_on(&self) -> bool {
        self.caller.is_checked()
    }

    pub(super) fn show(&mut self, certificate: Option<&[u8]>) {
        self.caller.show(certificate);
    }

    /// Looks through whole frames.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Passed {
        let (mut passed, mut frames) = (Passed::default(), Vec::new());
        if !self.greeted
            && bytes.first_chunk::<4>().is_some_and(|word| word.iter().all(u8::is_ascii_lowercase))
        {
            let word = &bytes[..4];
            if WORDS_FOR_ANYONE.contains(&word) || self.caller.may(Need::whole(Right::Read, Area::Cluster)) {
                frames.extend_from_slice(bytes);
            } else {
                let word = String::from_utf8_lossy(word);
                passed.refused_word =
                    Some(format!("{word} is not executed because it is not in the whitelist.\n"));
            }
            bytes = &[];
        }
        while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some((frame, rest)) = rest.split_at_checked(length) else { break };
            let whole = &bytes[..LENGTH_BYTES + length];
            bytes = rest;
            if !std::mem::replace(&mut self.greeted, true) {
                frames.extend_from_slice(whole);
                continue;
            }
            match self.decide(frame) {
                Decision::Pass => frames.extend_from_slice(whole),
                Decision::Refuse(number) => {
                    frames.put_i32(8);
                    frames.put_i32(number);
                    frames.put_i32(op::REFUSED);
                }
                Decision::Login(proven) => {
                    passed.pieces.push(Piece::Frames(std::mem::take(&mut frames)));
                    passed.pieces.push(Piece::Login(proven));
                }
            }
        }
        // What is no whole frame is longer than a request may be.
        passed.is_malformed = !bytes.is_empty();
        passed.pieces.push(Piece::Frames(frames));
        passed
    }

    fn decide(&mut self, frame: &[u8]) -> Decision {
        let mut input = JuteInput(frame);
        let (Ok(number), Ok(opcode)) = (input.i32(), input.i32()) else { return Decision::Pass };
        let body = input.0;
        if opcode == op::SASL {
            let token = input.buffer().ok().flatten().unwrap_or_default();
            return Decision::Login(self.log_in(number, token));
        }
        match Request::read(opcode, body) {
            Ok(request) if self.is_granted(&request) => Decision::Pass,
            Ok(_) => Decision::Refuse(number),
            Err(_) => Decision::Pass,
        }
    }

    /// DIGEST-MD5: the client's first message is empty, its second one is the proof.
    fn log_in(&mut self, number: i32, token: &[u8]) -> Proven {
        let step = match self.login.take() {
            None if token.is_empty() => DigestLogin::begin().map(|(login, challenge)| {
                self.login = Some(login);
                (challenge, None)
            }),
            // A proof of nothing that was asked.
            None => Err(crate::access::scram::Unproven),
            Some(login) => {
                let proven = self.caller.finish_digest(login, token);
                proven.map(|proven| (proven.answer, Some(proven.user)))
            }
        };
        let number = number as u32;
        match step {
            Ok((answer, who)) => Proven { number, answer: answer.into(), who, is_refused: false },
            Err(_) => Proven { number, answer: kernel::Bytes::new(), who: None, is_refused: true },
        }
    }

    fn is_granted(&mut self, request: &Request<'_>) -> bool {
        let mut to =
            |right, path: &str| self.caller.may(Need::of(right, Area::Coordination, path.as_bytes()));
        match request {
            Request::Write(operation) => operation.updates().iter().all(|update| match update {
                Update::Check { path, .. } | Update::CheckSame { path, .. } => to(Right::Read, path),
                Update::Create(_)
                | Update::Delete { .. }
                | Update::SetData { .. }
                | Update::SetAcl { .. }
                | Update::Restore(_) => to(Right::Write, update.path()),
            }),
            Request::Read { path, .. }
            | Request::Sync { path }
            | Request::AddWatch { path, .. }
            | Request::GetAllChildrenNumber { path } => to(Right::Read, path),
            Request::MultiRead(reads) => reads.iter().all(|(_, path)| to(Right::Read, path)),
            Request::SetWatches(watches) => {
                let SetWatches { data, exist, child, persistent, recursive, .. } = watches;
                [data, exist, child, persistent, recursive]
                    .into_iter()
                    .flatten()
                    .all(|path| to(Right::Read, path))
            }
            Request::Rename { from, to: new, .. } => to(Right::Write, from) && to(Right::Write, new),
            Request::RemoveRecursive { path, .. } => to(Right::Write, path),
            Request::Auth { scheme, token } => {
                // `NAME:TOKEN` is a way for clients that know no other; what proves nobody here is still a digest to ZooKeeper's lists.
                let pair = std::str::from_utf8(token).ok().and_then(|pair| pair.split_once(':'));
                if let ("digest", Some((name, secret))) = (*scheme, pair) {
                    self.caller.show_token(name, secret);
                }
                true
            }
            Request::Ping
            | Request::Close
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::WhoAmI
            | Request::Reconfig
            | Request::Sasl
            | Request::Refused
            | Request::GetEphemerals { .. }
            | Request::Unknown => true,
        }
    }
}

enum Decision {
    Pass,
    Refuse(i32),
    Login(Proven),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::access::secrets::TokenHash;
    use crate::events::EventLog;

    fn guard(name: &str) -> Guard {
        let path = std::env::temp_dir().join(format!("ordinate-guard-{name}-{}.toml", std::process::id()));
        let token = TokenHash::of("t");
        let text = format!(
            "[identity.u]\ntokens = [\"{token}\"]\ngrants = [\"read,write coordination /u\"]\n\
             [identity.anyone]\ngrants = [\"read coordination /open\"]\n"
        );
        std::fs::write(&path, text).expect("it is writable");
        let access = Access::open(Some(&path), &EventLog::default()).expect("it is sound");
        Guard::new(PortCaller::at(&access, "zookeeper", [127, 0, 0, 1].into()))
    }

    fn frame(number: i32, opcode: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut inside = Vec::new();
        inside.put_i32(number);
        inside.put_i32(opcode);
        body(&mut inside);
        let mut whole = Vec::new();
        whole.put_i32(inside.len() as i32);
        whole.extend(inside);
        whole
    }

    /// The opcodes that go on to the gateway.
    fn passed(guard: &mut Guard, bytes: &[u8]) -> Vec<i32> {
        let mut opcodes = Vec::new();
        for piece in guard.pass(bytes).pieces {
            let Piece::Frames(frames) = piece else { continue };
            let mut rest = &frames[..];
            while let Some((length, behind)) = rest.split_first_chunk::<4>() {
                let (inside, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
                opcodes.push(i32::from_be_bytes(inside[4..8].try_into().expect("it has a head")));
                rest = behind;
            }
        }
        opcodes
    }

    fn read(path: &'static str) -> Vec<u8> {
        frame(1, op::GET_DATA, |out| {
            out.put_text(path);
            out.push(0);
        })
    }

    // A request that slips through beside others, or one that is lost with the one that is refused before it.
    #[test]
    fn what_is_not_granted_is_refused_in_its_turn() {
        let mut guard = guard("turn");
        let hello = frame(0, 0, |out| out.extend([0; 40]));
        assert_eq!(passed(&mut guard, &hello), [0], "the first frame opens the session");
        let both = [read("/u/x"), read("/open"), read("/opened")].concat();
        assert_eq!(passed(&mut guard, &both), [op::REFUSED, op::GET_DATA, op::REFUSED]);
        let auth = frame(-4, op::AUTH, |out| {
            out.put_i32(0);
            out.put_text("digest");
            out.put_buffer(Some(b"u:t"));
        });
        let all = [auth, read("/u/x"), read("/v"), frame(2, op::PING, |_| {})].concat();
        assert_eq!(passed(&mut guard, &all), [op::AUTH, op::GET_DATA, op::REFUSED, op::PING]);
        let multi = |second: &'static str| {
            frame(3, op::MULTI, |out| {
                for path in ["/u/1", second] {
                    out.put_i32(op::DELETE);
                    out.push(0);
                    out.put_i32(-1);
                    out.put_text(path);
                    out.put_i32(-1);
                }
                out.put_i32(-1);
                out.push(1);
                out.put_i32(-1);
            })
        };
        assert_eq!(passed(&mut guard, &multi("/u/2")), [op::MULTI]);
        assert_eq!(passed(&mut guard, &multi("/v")), [op::REFUSED]);
    }

    // Words show who is connected from where.
    #[test]
    fn words_are_for_operators() {
        assert!(
            guard("words")
                .pass(b"cons")
                .refused_word
                .is_some_and(|said| said.starts_with("cons is not executed"))
        );
        assert!(guard("words").pass(b"ruok").refused_word.is_none());
    }

    // Without a challenge there is nothing to prove: what somebody has overheard would do.
    #[test]
    fn a_login_begins_with_a_challenge() {
        let sasl = |token: &'static [u8]| frame(4, op::SASL, |out| out.put_buffer(Some(token)));
        let login = |guard: &mut Guard, token| {
            let found = guard.pass(&sasl(token)).pieces.into_iter().find_map(|piece| match piece {
                Piece::Login(proven) => Some(proven),
                Piece::Frames(_) => None,
            });
            found.expect("it is a login")
        };
        let mut guard = guard("login");
        guard.greeted = true;
        assert!(login(&mut guard, b"username=\"u\"").is_refused);
        let challenge = login(&mut guard, b"");
        assert!(!challenge.is_refused && challenge.who.is_none() && challenge.answer.starts_with(b"realm="));
        assert!(login(&mut guard, b"username=\"u\"").is_refused);
    }
}
