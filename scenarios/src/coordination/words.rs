//! What users say and hear, in ZooKeeper's bytes.

use coordination::wire::{JuteInput, JuteOutput, Stat, op};

/// What a watch is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Watched {
    Data,
    Children,
}

/// What a user asks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ask {
    Exists {
        path: String,
        watch: bool,
    },
    Get {
        path: String,
        watch: bool,
    },
    Children {
        path: String,
        watch: bool,
    },
    Create {
        path: String,
        value: String,
        flags: i32,
    },
    Set {
        path: String,
        value: String,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// Sets all of these to one value, or none.
    SetAll {
        paths: Vec<String>,
        value: String,
    },
    /// Sets a node if another one has this version.
    SetIf {
        checked: String,
        version: i32,
        path: String,
        value: String,
    },
    /// Makes all of these, or none.
    CreateAll {
        paths: Vec<String>,
        value: String,
    },
    /// Reads all of these at one moment.
    GetAll {
        paths: Vec<String>,
    },
    /// Watches a node and all below it for as long as the connection lasts.
    WatchBelow {
        path: String,
    },
    SetWatches {
        since: u64,
        lists: [Vec<String>; 3],
        below: Vec<String>,
    },
    /// Asks whether the connection watches a node, or watches it no longer.
    Unwatch {
        path: String,
        kind: Watched,
        removes: bool,
    },
    /// What is read behind it shows all that was done before.
    Sync {
        path: String,
    },
    Ping,
    Close,
    /// Anything else: the model of the tree looks at what becomes of it, and nobody else.
    Judged {
        opcode: i32,
        body: Vec<u8>,
        writes: bool,
    },
}

/// Flags of a create.
pub(crate) const EPHEMERAL: i32 = 1;
pub(crate) const SEQUENTIAL: i32 = 2;

/// The mode of a watch that lasts.
const RECURSIVE: i32 = 1;

pub(crate) const NO_NODE: i32 = -101;
pub(crate) const BAD_VERSION: i32 = -103;
pub(crate) const NODE_EXISTS: i32 = -110;

/// The body of an answer without error.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Body {
    Nothing,
    Stat(Stat),
    Data(String, Stat),
    Names(Vec<String>, Stat),
    Created(String, Stat),
    /// Of each step: what it showed, or its error.
    Steps(Vec<Result<Step, i32>>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Step {
    Stat(Stat),
    Data(String, Stat),
    Checked,
}

/// What arrived.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Heard {
    Event { kind: i32, path: String, zxid: i64 },
    Reply { xid: i32, zxid: i64, error: i32, body: Vec<u8> },
}

fn put_acl(out: &mut Vec<u8>) {
    out.put_count(1);
    out.put_i32(31);
    out.put_text("world");
    out.put_text("anyone");
}

impl Ask {
    pub(crate) fn opcode(&self) -> i32 {
        match self {
            Self::Exists { .. } => op::EXISTS,
            Self::Get { .. } => op::GET_DATA,
            Self::Children { .. } => op::GET_CHILDREN2,
            Self::Create { .. } => op::CREATE2,
            Self::Set { .. } => op::SET_DATA,
            Self::Delete { .. } => op::DELETE,
            Self::SetAll { .. } | Self::SetIf { .. } | Self::CreateAll { .. } => op::MULTI,
            Self::GetAll { .. } => op::MULTI_READ,
            Self::WatchBelow { .. } => op::ADD_WATCH,
            Self::SetWatches { below, .. } if below.is_empty() => op::SET_WATCHES,
            Self::SetWatches { .. } => op::SET_WATCHES2,
            Self::Unwatch { removes: true, .. } => op::REMOVE_WATCHES,
            Self::Unwatch { .. } => op::CHECK_WATCHES,
            Self::Sync { .. } => op::SYNC,
            Self::Ping => op::PING,
            Self::Close => op::CLOSE,
            Self::Judged { opcode, .. } => *opcode,
        }
    }

    /// What it writes; each is written once.
    pub(crate) fn value(&self) -> Option<&str> {
        match self {
            Self::Create { value, .. }
            | Self::Set { value, .. }
            | Self::SetAll { value, .. }
            | Self::SetIf { value, .. }
            | Self::CreateAll { value, .. } => Some(value),
            Self::Exists { .. }
            | Self::Get { .. }
            | Self::Children { .. }
            | Self::Delete { .. }
            | Self::GetAll { .. }
            | Self::WatchBelow { .. }
            | Self::SetWatches { .. }
            | Self::Unwatch { .. }
            | Self::Sync { .. }
            | Self::Ping
            | Self::Close
            | Self::Judged { .. } => None,
        }
    }

    /// True if only the session's group can have let it happen.
    pub(crate) fn writes(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Set { .. }
                | Self::Delete { .. }
                | Self::SetAll { .. }
                | Self::SetIf { .. }
                | Self::CreateAll { .. }
                | Self::Judged { writes: true, .. }
        )
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Exists { path, watch } | Self::Get { path, watch } | Self::Children { path, watch } => {
                out.put_text(path);
                out.push(u8::from(*watch));
            }
            Self::Create { path, value, flags } => {
                out.put_text(path);
                out.put_buffer(Some(value.as_bytes()));
                put_acl(out);
                out.put_i32(*flags);
            }
            Self::Set { path, value, version } => {
                out.put_text(path);
                out.put_buffer(Some(value.as_bytes()));
                out.put_i32(*version);
            }
            Self::Delete { path, version } => {
                out.put_text(path);
                out.put_i32(*version);
            }
            Self::SetAll { paths, value } => {
                put_steps(paths, out, |path| Self::Set { path, value: value.clone(), version: -1 })
            }
            Self::SetIf { checked, version, path, value } => {
                put_step_head(op::CHECK, out);
                out.put_text(checked);
                out.put_i32(*version);
                put_steps(std::slice::from_ref(path), out, |path| Self::Set {
                    path,
                    value: value.clone(),
                    version: -1,
                });
            }
            Self::CreateAll { paths, value } => {
                put_steps(paths, out, |path| Self::Create { path, value: value.clone(), flags: 0 })
            }
            Self::GetAll { paths } => put_steps(paths, out, |path| Self::Get { path, watch: false }),
            Self::WatchBelow { path } => {
                out.put_text(path);
                out.put_i32(RECURSIVE);
            }
            Self::SetWatches { since, lists, below } => {
                out.put_u64(*since);
                let mut put = |list: &[String]| {
                    out.put_count(list.len());
                    list.iter().for_each(|path| out.put_text(path));
                };
                lists.iter().for_each(|list| put(list));
                if !below.is_empty() {
                    [&[], &below[..]].into_iter().for_each(put);
                }
            }
            Self::Unwatch { path, kind, .. } => {
                out.put_text(path);
                out.put_i32(match kind {
                    Watched::Children => 1,
                    Watched::Data => 2,
                });
            }
            Self::Sync { path } => out.put_text(path),
            Self::Judged { body, .. } => out.extend_from_slice(body),
            Self::Ping | Self::Close => {}
        }
    }

    /// The whole request.
    pub(crate) fn framed(&self, xid: i32) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_i32(xid);
        body.put_i32(self.opcode());
        self.put_body(&mut body);
        framed(&body)
    }

    /// The watch that fires once which an answer leaves: what it is for, of which node, and whether that is absent.
    pub(crate) fn watch_left(&self, error: i32) -> Option<(Watched, String, bool)> {
        match self {
            Self::Exists { path, watch: true } if error == 0 || error == NO_NODE => {
                Some((Watched::Data, path.clone(), error != 0))
            }
            Self::Get { path, watch: true } if error == 0 => Some((Watched::Data, path.clone(), false)),
            Self::Children { path, watch: true } if error == 0 => {
                Some((Watched::Children, path.clone(), false))
            }
            _ => None,
        }
    }

    /// Reads the answer's body; `None` if it is not what such a request is answered.
    pub(crate) fn read_answer(&self, body: &[u8]) -> Option<Body> {
        let mut input = JuteInput(body);
        let input = &mut input;
        Some(match self {
            Self::Exists { .. } | Self::Set { .. } => Body::Stat(Stat::read(input).ok()?),
            Self::Get { .. } => Body::Data(data(input)?, Stat::read(input).ok()?),
            Self::Children { .. } => {
                let names = input.texts().ok()?.into_iter().map(str::to_owned).collect();
                Body::Names(names, Stat::read(input).ok()?)
            }
            Self::Create { .. } => {
                let path = input.text().ok()?.to_owned();
                Body::Created(path, Stat::read(input).ok()?)
            }
            Self::SetAll { .. } | Self::SetIf { .. } | Self::CreateAll { .. } | Self::GetAll { .. } => {
                Body::Steps(steps(input)?)
            }
            Self::Delete { .. }
            | Self::SetWatches { .. }
            | Self::Unwatch { .. }
            | Self::Sync { .. }
            | Self::Ping
            | Self::Close
            | Self::Judged { .. } => Body::Nothing,
            Self::WatchBelow { .. } => (input.i32() == Ok(0)).then_some(Body::Nothing)?,
        })
    }
}

fn data(input: &mut JuteInput<'_>) -> Option<String> {
    String::from_utf8(input.buffer().ok()?.unwrap_or_default().to_vec()).ok()
}

fn steps(input: &mut JuteInput<'_>) -> Option<Vec<Result<Step, i32>>> {
    let mut steps = Vec::new();
    loop {
        let (kind, done, error) = (input.i32().ok()?, input.bool().ok()?, input.i32().ok()?);
        if done {
            return Some(steps);
        }
        steps.push(match kind {
            op::ERROR => {
                input.i32().ok()?;
                Err(error)
            }
            op::CREATE2 => {
                input.text().ok()?;
                Ok(Step::Stat(Stat::read(input).ok()?))
            }
            op::SET_DATA => Ok(Step::Stat(Stat::read(input).ok()?)),
            op::CHECK => Ok(Step::Checked),
            op::GET_DATA => Ok(Step::Data(data(input)?, Stat::read(input).ok()?)),
            _ => return None,
        });
    }
}

pub(crate) fn put_step_head(opcode: i32, out: &mut Vec<u8>) {
    out.put_i32(opcode);
    out.push(0);
    out.put_i32(-1);
}

fn put_steps(paths: &[String], out: &mut Vec<u8>, step: impl Fn(String) -> Ask) {
    for path in paths {
        let step = step(path.clone());
        put_step_head(step.opcode(), out);
        step.put_body(out);
    }
    put_steps_end(out);
}

pub(crate) fn put_steps_end(out: &mut Vec<u8>) {
    out.put_i32(-1);
    out.push(1);
    out.put_i32(-1);
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_buffer(Some(body));
    out
}

/// The first frame of a connection.
pub(crate) fn greeting(last_zxid: u64, timeout: i32, session: u64, password: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_i32(0);
    body.put_u64(last_zxid);
    body.put_i32(timeout);
    body.put_u64(session);
    body.put_buffer(Some(password));
    body.push(0);
    framed(&body)
}

/// What a greeting is answered: timeout, session, password. The timeout is 0 if the session is refused.
pub(crate) fn read_greeting(frame: &[u8]) -> Option<(i32, u64, Vec<u8>)> {
    let mut input = JuteInput(frame);
    input.i32().ok()?;
    Some((input.i32().ok()?, input.u64().ok()?, input.buffer().ok()??.to_vec()))
}

/// Takes the first whole frame.
pub(crate) fn take_frame(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let head: [u8; 4] = input.get(..4)?.try_into().ok()?;
    let end = 4 + usize::try_from(i32::from_be_bytes(head)).ok()?;
    if input.len() < end {
        return None;
    }
    let rest = input.split_off(end);
    let frame = std::mem::replace(input, rest);
    Some(frame[4..].to_vec())
}

/// Reads a frame that follows the handshake.
pub(crate) fn read_frame(frame: &[u8]) -> Option<Heard> {
    let mut input = JuteInput(frame);
    let (xid, zxid, error) = (input.i32().ok()?, input.i64().ok()?, input.i32().ok()?);
    if xid != -1 {
        return Some(Heard::Reply { xid, zxid, error, body: input.0.to_vec() });
    }
    let (kind, _state) = (input.i32().ok()?, input.i32().ok()?);
    Some(Heard::Event { kind, path: input.text().ok()?.to_owned(), zxid })
}
