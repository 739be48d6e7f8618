//! The first frame each way on a link between hosts: who calls whom, in which cluster, with which disk.

use crate::agreement::difference;
use crate::data::Incarnation;
use crate::marks::RunStart;
use bytes::BytesMut;
use kernel::{Bytes, Decode, DecodeError, Encode, FRAME_HEADER_BYTES, FrameReader, FrameWriter, Reader};
use std::collections::BTreeMap;

/// "ORDP", and the version of everything before the first message.
const MAGIC: u32 = u32::from_le_bytes(*b"ORDP");
pub(crate) const PROTOCOL: u16 = 1;
/// Longer greetings are garbage.
pub(crate) const GREETING_BYTES_MAX: usize = 16 << 10;

/// What the caller says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) protocol: u16,
    pub(crate) cluster: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) incarnation: Incarnation,
    /// The highest version of the messages that the caller understands.
    pub(crate) message_version: u32,
    /// The lowest that it still talks to. Absent in the greetings of version 1, which talks to itself.
    pub(crate) message_version_min: u32,
    /// What all hosts must have alike, as the caller has it. Absent in the greetings of hosts that did not compare yet.
    pub(crate) agreement: BTreeMap<String, String>,
    /// What its journal had when its run began. Absent in the greetings of hosts without one, and of those that did not say.
    pub(crate) run_start: Option<RunStart>,
}

impl Hello {
    /// Why the host `name` with these versions cannot be talked to.
    pub(crate) fn check_versions(&self, name: &str, highest: u32, lowest: u32) -> Result<(), String> {
        let me = &self.from;
        let (ours, ours_min) = (self.message_version, self.message_version_min);
        if highest < ours_min {
            return Err(format!(
                "host {name} understands messages up to version {highest}, host {me} needs {ours_min} at least: \
                 upgrade {name}"
            ));
        }
        if ours < lowest {
            return Err(format!(
                "host {name} needs messages of version {lowest} at least, host {me} understands them up to {ours}: \
                 upgrade {me}"
            ));
        }
        Ok(())
    }

    /// Why a host that is set up so cannot take part in the same cluster.
    pub(crate) fn check_agreement(&self, caller: &Self) -> Result<(), String> {
        let at = |hello: &Self| format!("at host {}", hello.from);
        match difference((&at(self), &self.agreement), (&at(caller), &caller.agreement)) {
            None => Ok(()),
            Some(difference) => Err(format!("all hosts must agree: {difference}")),
        }
    }
}

/// What the called host answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Welcome {
        incarnation: Incarnation,
        message_version: u32,
        run_start: Option<RunStart>,
    },
    Refused {
        reason: String,
    },
    /// Refused: the caller has found fewer batches in its journal than it had reported.
    Behind {
        reported: u64,
    },
}

impl Encode for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        self.protocol.encode(out);
        self.cluster.encode(out);
        self.from.encode(out);
        self.to.encode(out);
        self.incarnation.0.encode(out);
        self.message_version.encode(out);
        self.message_version_min.encode(out);
        self.agreement.clone().into_iter().collect::<Vec<_>>().encode(out);
        encode_run_start(self.run_start, out);
    }
}

impl Decode for Hello {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        if u32::decode(input)? != MAGIC {
            return Err(DecodeError::Invalid("greeting"));
        }
        Ok(Self {
            protocol: u16::decode(input)?,
            cluster: String::decode(input)?,
            from: String::decode(input)?,
            to: String::decode(input)?,
            incarnation: Incarnation(u128::decode(input)?),
            message_version: u32::decode(input)?,
            message_version_min: if input.remaining() > 0 { u32::decode(input)? } else { 1 },
            agreement: if input.remaining() > 0 {
                Vec::decode(input)?.into_iter().collect()
            } else {
                BTreeMap::new()
            },
            run_start: decode_run_start(input)?,
        })
    }
}

impl Encode for Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        match self {
            Self::Welcome { incarnation, message_version, run_start } => {
                out.push(0);
                incarnation.0.encode(out);
                message_version.encode(out);
                encode_run_start(*run_start, out);
            }
            Self::Refused { reason } => {
                out.push(1);
                reason.encode(out);
            }
            Self::Behind { reported } => {
                out.push(2);
                reported.encode(out);
            }
        }
    }
}

impl Decode for Reply {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        if u32::decode(input)? != MAGIC {
            return Err(DecodeError::Invalid("greeting"));
        }
        match u8::decode(input)? {
            0 => Ok(Self::Welcome {
                incarnation: Incarnation(u128::decode(input)?),
                message_version: u32::decode(input)?,
                run_start: decode_run_start(input)?,
            }),
            2 => Ok(Self::Behind { reported: u64::decode(input)? }),
            1 => Ok(Self::Refused { reason: String::decode(input)? }),
            tag => Err(DecodeError::UnknownTag("Reply", tag)),
        }
    }
}

/// Bytes of a run's start.
const RUN_START_BYTES: usize = 24;

fn encode_run_start(run_start: Option<RunStart>, out: &mut Vec<u8>) {
    if let Some(RunStart { run, found }) = run_start {
        run.encode(out);
        found.encode(out);
    }
}

fn decode_run_start(input: &mut Reader) -> Result<Option<RunStart>, DecodeError> {
    if input.remaining() < RUN_START_BYTES {
        return Ok(None);
    }
    Ok(Some(RunStart { run: u128::decode(input)?, found: u64::decode(input)? }))
}

/// A greeting as it goes over the wire.
pub(crate) fn framed(greeting: &impl Encode) -> Vec<u8> {
    let mut writer = FrameWriter::default();
    greeting.encode(writer.body());
    std::mem::take(writer.bytes())
}

/// The greeting at the head of `input`, removed from it; `None` until it is whole.
pub(crate) fn take_greeting<T: Decode>(input: &mut BytesMut) -> Result<Option<T>, String> {
    // A caller that speaks another protocol is recognized by the second word of the body.
    if let Some(magic) = input.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 4)
        && magic != MAGIC.to_le_bytes()
    {
        return Err("not a host of Ordinate: the greeting is garbage, or one side uses TLS alone".to_owned());
    }
    let reader = FrameReader { body_max: GREETING_BYTES_MAX };
    match reader.next(input) {
        Ok(None) => Ok(None),
        Ok(Some(body)) => decoded(&body).map(Some),
        Err(error) => Err(format!("not a host of Ordinate: {error}")),
    }
}

fn decoded<T: Decode>(body: &Bytes) -> Result<T, String> {
    T::decoded(body).map_err(|error| format!("not a host of Ordinate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            protocol: PROTOCOL,
            cluster: "prod".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            incarnation: Incarnation(5),
            message_version: 3,
            message_version_min: 2,
            agreement: [("levels".to_owned(), "2".to_owned())].into(),
            run_start: None,
        }
    }

    // Greetings are read by hosts of other versions: their bytes must never change.
    #[test]
    fn greetings_round_trip_and_keep_their_bytes() {
        for length in 0..framed(&hello()).len() {
            let mut input = BytesMut::from(&framed(&hello())[..length]);
            assert_eq!(take_greeting::<Hello>(&mut input), Ok(None), "after {length} bytes");
        }
        let mut input = BytesMut::from(&framed(&hello())[..]);
        assert_eq!(take_greeting(&mut input), Ok(Some(hello())));
        let reply = Reply::Refused { reason: "no".to_owned() };
        assert_eq!(take_greeting(&mut BytesMut::from(&framed(&reply)[..])), Ok(Some(reply)));
        assert_eq!(&hello().encoded()[..10], b"ORDP\x01\0\x04\0\0\0");
        // The first hosts ended their greeting with the highest version; later ones may say more than we know.
        let (mut first, later) = (hello().encoded(), [&hello().encoded()[..], b"more"].concat());
        let silent = Hello { agreement: BTreeMap::new(), ..hello() };
        first.truncate(silent.encoded().len() - 4 - 4);
        let mut second = silent.encoded();
        second.truncate(second.len() - 4);
        let decoded = |bytes: Vec<u8>| Hello::decode(&mut Reader::new(Bytes::from(bytes)));
        assert_eq!(decoded(first), Ok(Hello { message_version_min: 1, ..silent.clone() }));
        assert_eq!(decoded(second), Ok(silent));
        assert_eq!(decoded(later), Ok(hello()));
        let run_start = Hello { run_start: Some(RunStart { run: 8, found: 9 }), ..hello() };
        assert_eq!(decoded(run_start.encoded()), Ok(run_start));
        for reply in [
            Reply::Behind { reported: 3 },
            Reply::Welcome { incarnation: Incarnation(1), message_version: 2, run_start: None },
            Reply::Welcome {
                incarnation: Incarnation(1),
                message_version: 2,
                run_start: Some(RunStart { run: 4, found: 5 }),
            },
        ] {
            assert_eq!(Reply::decode(&mut Reader::new(reply.encoded().into())), Ok(reply));
        }
    }

    // An HTTP client, a TLS client or noise on the port must be turned away at its first bytes, not waited for.
    #[test]
    fn garbage_is_refused_at_once() {
        for garbage in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0], &[0xff; 64]]
        {
            assert!(take_greeting::<Hello>(&mut BytesMut::from(garbage)).is_err(), "{garbage:?}");
        }
    }
}
