//! Answers taken apart, so that what cannot be equal (global sequence numbers, sessions, times) is compared by what it means.

use coordination::wire::{JuteInput, Malformed, Stat, op};
use std::collections::BTreeMap;

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// A number that must be equal.
    Int(i64),
    /// A text that must be equal.
    Text(String),
    /// Texts whose order does not matter.
    Texts(Vec<String>),
    /// Bytes that must be equal.
    Data(Option<Vec<u8>>),
    /// A global sequence number: the order must be equal.
    Gsn(i64),
    /// A session: the same one must be meant.
    Session(i64),
    /// A time: not compared.
    Time,
    /// What should not be there.
    Rest(Vec<u8>),
}

/// The pieces of the body of an answer to `opcode`.
pub fn of_body(opcode: i32, body: &[u8]) -> Vec<Token> {
    let mut input = JuteInput(body);
    let mut tokens = Vec::new();
    let whole = body_tokens(opcode, &mut input, &mut tokens).is_ok();
    if !whole || !input.0.is_empty() {
        tokens.push(Token::Rest(input.0.to_vec()));
    }
    tokens
}

fn body_tokens(opcode: i32, input: &mut JuteInput<'_>, out: &mut Vec<Token>) -> Result<(), Malformed> {
    match opcode {
        op::CREATE | op::SYNC => out.push(Token::Text(input.text()?.to_owned())),
        op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            out.push(Token::Text(input.text()?.to_owned()));
            stat(input, out)?;
        }
        op::EXISTS | op::SET_DATA | op::SET_ACL => stat(input, out)?,
        op::GET_DATA => {
            out.push(Token::Data(input.buffer()?.map(<[u8]>::to_vec)));
            stat(input, out)?;
        }
        op::GET_ACL => {
            let count = input.i32()?;
            out.push(Token::Int(count.into()));
            let mut lines = Vec::new();
            for _ in 0..count {
                lines.push(format!("{} {} {}", input.i32()?, input.text()?, input.text()?));
            }
            // ZooKeeper replaces `auth` by what the caller has proven, in the order of a hash table.
            lines.sort_unstable();
            out.push(Token::Texts(lines));
            stat(input, out)?;
        }
        op::GET_CHILDREN | op::GET_EPHEMERALS => texts(input, out)?,
        op::GET_CHILDREN2 => {
            texts(input, out)?;
            stat(input, out)?;
        }
        op::MULTI | op::MULTI_READ => results(opcode, input, out)?,
        op::GET_ALL_CHILDREN_NUMBER | op::ADD_WATCH => out.push(Token::Int(input.i32()?.into())),
        op::WHO_AM_I => {
            let mut users = Vec::new();
            for _ in 0..input.i32()? {
                users.push(format!("{} {}", input.text()?, input.text()?));
            }
            users.sort_unstable();
            out.push(Token::Texts(users));
        }
        _ => {}
    }
    Ok(())
}

fn results(opcode: i32, input: &mut JuteInput<'_>, out: &mut Vec<Token>) -> Result<(), Malformed> {
    loop {
        let (kind, done, error) = (input.i32()?, input.bool()?, input.i32()?);
        out.extend([Token::Int(kind.into()), Token::Int(done.into()), Token::Int(error.into())]);
        if done {
            return Ok(());
        }
        match kind {
            op::ERROR => out.push(Token::Int(input.i32()?.into())),
            op::CHECK | op::DELETE if opcode == op::MULTI => {}
            kind => body_tokens(kind, input, out)?,
        }
    }
}

fn texts(input: &mut JuteInput<'_>, out: &mut Vec<Token>) -> Result<(), Malformed> {
    let mut texts: Vec<String> = input.texts()?.into_iter().map(str::to_owned).collect();
    texts.sort_unstable();
    out.push(Token::Texts(texts));
    Ok(())
}

fn stat(input: &mut JuteInput<'_>, out: &mut Vec<Token>) -> Result<(), Malformed> {
    let stat = Stat::read(input)?;
    out.extend([Token::Gsn(stat.czxid), Token::Gsn(stat.mzxid), Token::Time, Token::Time]);
    out.extend([stat.version, stat.cversion, stat.aversion].map(|number| Token::Int(number.into())));
    out.push(Token::Session(stat.ephemeral_owner));
    out.extend([stat.data_length, stat.num_children].map(|number| Token::Int(number.into())));
    out.push(Token::Gsn(stat.pzxid));
    Ok(())
}

/// Which global sequence numbers and sessions of one side stand for which of the other.
#[derive(Debug, Default)]
pub struct Matching {
    gsns: BTreeMap<i64, i64>,
    theirs: BTreeMap<i64, i64>,
    sessions: BTreeMap<i64, i64>,
}

impl Matching {
    /// Notes a session that both sides have just opened.
    pub fn session(&mut self, reference: i64, ours: i64) {
        self.sessions.insert(reference, ours);
    }

    /// A pair of global sequence numbers that stand for each other.
    pub fn pair(&self, choice: usize) -> (i64, i64) {
        let at = choice % self.gsns.len().max(1);
        self.gsns.iter().nth(at).map_or((0, 0), |(theirs, ours)| (*theirs, *ours))
    }

    /// Whether two global sequence numbers can stand for each other: equal ones for equal ones, in the same order.
    pub fn gsns(&mut self, reference: i64, ours: i64) -> Result<(), String> {
        let known = (self.gsns.get(&reference), self.theirs.get(&ours));
        match known {
            (Some(&known), _) if known == ours => return Ok(()),
            (None, None) => {}
            (known, back) => {
                return Err(format!("zxid {reference:#x} is {ours:#x}, before {known:x?}, back {back:x?}"));
            }
        }
        let below = self.gsns.range(..reference).next_back().is_none_or(|(_, known)| *known < ours);
        let above = self.gsns.range(reference..).next().is_none_or(|(_, known)| *known > ours);
        if !below || !above {
            return Err(format!("zxid {reference:#x} is {ours:#x}, which is out of order"));
        }
        self.gsns.insert(reference, ours);
        self.theirs.insert(ours, reference);
        Ok(())
    }

    /// Whether two answers mean the same.
    pub fn tokens(&mut self, reference: &[Token], ours: &[Token]) -> Result<(), String> {
        if reference.len() != ours.len() {
            return Err(format!("{} pieces, here {}", reference.len(), ours.len()));
        }
        for (at, pair) in reference.iter().zip(ours).enumerate() {
            let verdict = match pair {
                (Token::Gsn(theirs), Token::Gsn(ours)) => self.gsns(*theirs, *ours),
                (Token::Session(0), Token::Session(0)) => Ok(()),
                (Token::Session(theirs), Token::Session(ours)) => {
                    let same = self.sessions.get(theirs) == Some(ours);
                    if same { Ok(()) } else { Err(format!("session {theirs:#x}, here {ours:#x}")) }
                }
                (theirs, ours) if theirs == ours => Ok(()),
                (theirs, ours) => Err(format!("{theirs:?}, here {ours:?}")),
            };
            verdict.map_err(|why| format!("piece {at}: {why}"))?;
        }
        Ok(())
    }
}
