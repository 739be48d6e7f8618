//! Random requests: every opcode, over so few paths that they meet.

use crate::tokens::Matching;
use coordination::wire::{JuteOutput, op};
use kernel::Rng;

/// What a request leaves of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// All.
    Connection,
    /// The session: the server closes the connection.
    Session,
    /// Nothing: it closes the session.
    Nothing,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What.
    pub opcode: i32,
    /// Its bytes for the reference, ...
    pub reference: Vec<u8>,
    /// ... and for us: global sequence numbers differ.
    pub ours: Vec<u8>,
    /// For people.
    pub text: String,
    /// See there.
    pub leaves: Leaves,
}

/// Who may do everything in these tests, as both servers are configured. Sessions do not use it.
pub const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// The folder of most nodes.
pub const FOLDER: &str = "/t";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Without `/zookeeper/config`, which names the servers: those of the reference, which is one alone, are none.
const ODD_PATHS: [&str; 14] = [
    "a",
    "/t/",
    "/t//a",
    "/t/./a",
    "/t/../a",
    "/t/a\u{0}b",
    "/t/\u{1}",
    "/t/\u{e000}",
    "/",
    "/zookeeper",
    "/zookeeper/quota",
    "/nowhere/a",
    "/t/größe",
    "/t/0000000001",
];

/// Makes requests.
pub struct Generator {
    /// Draws.
    pub rng: Rng,
    /// Names that sequential creates have made.
    pub made: Vec<String>,
}

impl Generator {
    fn path(&mut self) -> String {
        let draw = self.rng.below(100);
        if draw < 4 {
            return (*self.rng.pick(&ODD_PATHS).unwrap_or(&"/")).to_owned();
        }
        if draw < 16
            && let Some(made) = self.rng.pick(&self.made)
        {
            return made.clone();
        }
        let mut path = FOLDER.to_owned();
        for _ in 0..self.rng.below(4) {
            path.push('/');
            path.push_str(self.rng.pick(&NAMES).unwrap_or(&"a"));
        }
        path
    }

    fn version(&mut self) -> i32 {
        *self.rng.pick(&[-1, -1, -1, 0, 0, 1, 2, 7, -2]).unwrap_or(&-1)
    }

    fn data(&mut self) -> Option<Vec<u8>> {
        match self.rng.below(8) {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(vec![b'x'; self.rng.index(40)]),
        }
    }

    fn acls(&mut self, body: &mut Vec<u8>) -> String {
        let lists: [&[(i32, &str, &str)]; 18] = [
            &[(31, "world", "anyone")],
            &[(31, "world", "anyone")],
            &[(31, "world", "anyone")],
            &[(31, "world", "anyone")],
            &[(31, "world", "anyone"), (31, "world", "anyone")],
            &[(31, "auth", "")],
            &[(1, "world", "anyone"), (31, "auth", "alice")],
            &[(31, "digest", "one:4nLUhW3dB5h9kAFU3zy2wRSm+Bc=")],
            &[(1, "world", "anyone")],
            &[(30, "world", "anyone")],
            &[(23, "world", "anyone"), (8, "ip", "127.0.0.1")],
            &[(31, "ip", "127.0.0.0/8")],
            &[(31, "ip", "10.0.0.0/8"), (5, "world", "anyone")],
            &[(31, "foo", "bar")],
            &[(31, "world", "nobody")],
            &[(31, "digest", "nocolon")],
            &[(0, "world", "anyone")],
            &[],
        ];
        let list = self.rng.pick(&lists).copied().unwrap_or(&[]);
        body.put_count(list.len());
        for (permissions, scheme, id) in list {
            body.put_i32(*permissions);
            body.put_text(scheme);
            body.put_text(id);
        }
        format!("{list:?}")
    }

    /// A request that changes something, with its body.
    fn update(&mut self, opcode: i32, body: &mut Vec<u8>) -> String {
        let path = self.path();
        match opcode {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                let flags = match opcode {
                    op::CREATE_CONTAINER => 4,
                    op::CREATE_TTL => *self.rng.pick(&[5, 5, 6, 0]).unwrap_or(&5),
                    _ => *self.rng.pick(&[0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 9, -1]).unwrap_or(&0),
                };
                body.put_text(&path);
                let data = self.data();
                body.put_buffer(data.as_deref());
                let acls = self.acls(body);
                body.put_i32(flags);
                let mut ttl = String::new();
                if opcode == op::CREATE_TTL {
                    // ZooKeeper takes a negative one without a mode for it, and then fails to write it down.
                    let odd = if flags == 0 { 0 } else { -5 };
                    let millis =
                        *self.rng.pick(&[3_600_000, 3_600_000, 1 << 39, 0, odd, 1 << 41]).unwrap_or(&1);
                    body.put_i64(millis);
                    ttl = format!(" ttl {millis}");
                }
                format!(
                    "create({opcode}) {path:?} {} bytes {acls} flags {flags}{ttl}",
                    data.map_or(-1, |data| data.len() as i32)
                )
            }
            op::DELETE | op::CHECK => {
                let version = self.version();
                body.put_text(&path);
                body.put_i32(version);
                format!(
                    "{} {path:?} version {version}",
                    if opcode == op::DELETE { "delete" } else { "check" }
                )
            }
            op::SET_DATA => {
                let (data, version) = (self.data(), self.version());
                body.put_text(&path);
                body.put_buffer(data.as_deref());
                body.put_i32(version);
                format!(
                    "setData {path:?} {} bytes version {version}",
                    data.map_or(-1, |data| data.len() as i32)
                )
            }
            _ => {
                body.put_text(&path);
                let acls = self.acls(body);
                let version = self.version();
                body.put_i32(version);
                format!("setACL {path:?} {acls} version {version}")
            }
        }
    }

    fn multi(&mut self, kinds: &[i32], body: &mut Vec<u8>) -> String {
        let mut text = "multi [".to_owned();
        for _ in 0..self.rng.below(6) {
            let kind = *self.rng.pick(kinds).unwrap_or(&op::CHECK);
            body.put_i32(kind);
            body.push(0);
            body.put_i32(-1);
            if matches!(kind, op::GET_DATA | op::GET_CHILDREN) {
                let path = self.path();
                body.put_text(&path);
                body.push(0);
                text += &format!("read({kind}) {path:?}; ");
            } else {
                text += &self.update(kind, body);
                text += "; ";
            }
        }
        body.put_i32(-1);
        body.push(1);
        body.put_i32(-1);
        text + "]"
    }

    fn set_watches(&mut self, opcode: i32, matching: &Matching) -> Ask {
        let (theirs, ours) = matching.pair(self.rng.bits() as usize);
        let mut lists = Vec::new();
        let mut text = format!("setWatches({opcode}) since {theirs:#x}/{ours:#x}");
        for _ in 0..if opcode == op::SET_WATCHES { 3 } else { 5 } {
            let paths: Vec<String> = (0..self.rng.below(3)).map(|_| self.path()).collect();
            lists.put_count(paths.len());
            paths.iter().for_each(|path| lists.put_text(path));
            text += &format!(" {paths:?}");
        }
        let with = |gsn: i64| [&gsn.to_be_bytes()[..], &lists].concat();
        Ask { opcode, reference: with(theirs), ours: with(ours), text, leaves: Leaves::Connection }
    }

    /// A request of a kind that must stand alone: the connection ends behind it, or changes.
    pub fn last(&mut self) -> Ask {
        let mut body = Vec::new();
        let (opcode, text, leaves) = match self.rng.below(4) {
            0 | 1 => (op::CLOSE, "close", Leaves::Nothing),
            2 => {
                body.put_i32(0);
                body.put_text("unheard-of");
                body.put_buffer(Some(b"x"));
                (op::AUTH, "auth by an unknown scheme", Leaves::Session)
            }
            _ => (*self.rng.pick(&[77, 999, op::CHECK]).unwrap_or(&77), "an unknown opcode", Leaves::Session),
        };
        Ask { opcode, reference: body.clone(), ours: body, text: format!("{text} ({opcode})"), leaves }
    }

    /// A request that is answered at once, whatever is in flight before it. Who has proven much sees no refusal any more: proofs
    /// are rare, and forgotten with the connection.
    pub fn hasty(&mut self) -> Ask {
        let token = *self.rng.pick(&["one:1", "two:2", "nopassword", ""]).unwrap_or(&"one:1");
        let mut body = Vec::new();
        if token.is_empty() {
            return Ask {
                opcode: op::PING,
                reference: Vec::new(),
                ours: body,
                text: "ping".to_owned(),
                leaves: Leaves::Connection,
            };
        }
        body.put_i32(0);
        body.put_text("digest");
        body.put_buffer(Some(token.as_bytes()));
        let text = format!("auth {token}");
        Ask { opcode: op::AUTH, reference: body.clone(), ours: body, text, leaves: Leaves::Connection }
    }

    /// A request that leaves the connection as it is.
    pub fn next(&mut self, matching: &Matching) -> Ask {
        let mut body = Vec::new();
        let opcode = self.opcode();
        let text = match opcode {
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
                let (path, watch) = (self.path(), self.rng.chance(0.4));
                body.put_text(&path);
                body.push(watch.into());
                format!("read({opcode}) {path:?} watch {watch}")
            }
            op::GET_ACL | op::SYNC | op::GET_EPHEMERALS | op::GET_ALL_CHILDREN_NUMBER => {
                let path = self.path();
                body.put_text(&path);
                format!("request({opcode}) {path:?}")
            }
            op::MULTI => {
                let mut kinds = vec![op::CREATE, op::CREATE2, op::DELETE, op::SET_DATA, op::CHECK];
                kinds.extend([op::CREATE, op::SET_DATA, op::CREATE_CONTAINER, op::CREATE_TTL, op::DELETE]);
                self.multi(&kinds, &mut body)
            }
            op::MULTI_READ => self.multi(&[op::GET_DATA, op::GET_CHILDREN], &mut body),
            op::SET_WATCHES | op::SET_WATCHES2 => return self.set_watches(opcode, matching),
            op::ADD_WATCH => {
                let (path, mode) = (self.path(), *self.rng.pick(&[0, 1, 1, 2]).unwrap_or(&0));
                body.put_text(&path);
                body.put_i32(mode);
                format!("addWatch {path:?} mode {mode}")
            }
            op::CHECK_WATCHES | op::REMOVE_WATCHES => {
                let (path, kind) = (self.path(), *self.rng.pick(&[1, 2, 3, 4, 5, 9]).unwrap_or(&3));
                body.put_text(&path);
                body.put_i32(kind);
                format!("watches({opcode}) {path:?} kind {kind}")
            }
            op::WHO_AM_I => format!("request({opcode})"),
            _ => self.update(opcode, &mut body),
        };
        let text = self.damage(&mut body, text);
        Ask { opcode, reference: body.clone(), ours: body, text, leaves: Leaves::Connection }
    }

    /// Some bodies end too early.
    fn damage(&mut self, body: &mut Vec<u8>, text: String) -> String {
        if self.rng.chance(0.99) || body.is_empty() {
            return text;
        }
        body.truncate(self.rng.index(body.len()));
        format!("{text}, truncated after {} bytes", body.len())
    }

    fn opcode(&mut self) -> i32 {
        let shares = [
            (14, op::CREATE),
            (5, op::CREATE2),
            (2, op::CREATE_CONTAINER),
            (2, op::CREATE_TTL),
            (12, op::DELETE),
            (12, op::SET_DATA),
            (3, op::SET_ACL),
            (8, op::EXISTS),
            (8, op::GET_DATA),
            (4, op::GET_CHILDREN),
            (6, op::GET_CHILDREN2),
            (3, op::GET_ACL),
            (2, op::SYNC),
            (9, op::MULTI),
            (3, op::MULTI_READ),
            (1, op::SET_WATCHES),
            (1, op::SET_WATCHES2),
            (2, op::ADD_WATCH),
            (1, op::CHECK_WATCHES),
            (2, op::REMOVE_WATCHES),
            (1, op::GET_EPHEMERALS),
            (1, op::GET_ALL_CHILDREN_NUMBER),
            (1, op::WHO_AM_I),
        ];
        let all: u64 = shares.iter().map(|(share, _)| share).sum();
        let mut draw = self.rng.below(all);
        for (share, opcode) in shares {
            if draw < share {
                return opcode;
            }
            draw -= share;
        }
        op::WHO_AM_I
    }
}
