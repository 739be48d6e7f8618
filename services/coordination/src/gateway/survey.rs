//! A survey of a subtree: what is to be read next, what was read, and the multi that follows from it.

use crate::wire::{
    Acl, Code, JuteInput, JuteOutput, Malformed, Stat, is_open, op, read_acls, validate, write_acls,
};
use kernel::Bytes;
use std::sync::Arc;

/// A node as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    path: Arc<str>,
    stat: Stat,
    data: Option<Bytes>,
    acl: Vec<Acl>,
}

/// What is known so far.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    from: Arc<str>,
    /// `None` for a removal.
    pub(crate) to: Option<Arc<str>>,
    limit: usize,
    pub(crate) found: Vec<Found>,
    /// What is read now.
    pub(crate) ahead: Vec<(i32, Arc<str>)>,
    pub(crate) surveys: u32,
}

impl Survey {
    pub(crate) fn removal(path: &str, limit: usize) -> Result<Self, Code> {
        validate(path)?;
        Self::begin(path, None, limit)
    }

    pub(crate) fn rename(from: &str, to: &str, limit: usize) -> Result<Self, Code> {
        validate(from)?;
        validate(to)?;
        let inside = to.strip_prefix(from).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if inside { Err(Code::BadArguments) } else { Self::begin(from, Some(to.into()), limit) }
    }

    fn begin(from: &str, to: Option<Arc<str>>, limit: usize) -> Result<Self, Code> {
        if from == "/" || from == "/zookeeper" || from.starts_with("/zookeeper/") {
            return Err(Code::BadArguments);
        }
        let mut survey =
            Self { from: from.into(), to, limit, found: Vec::new(), ahead: Vec::new(), surveys: 0 };
        survey.again();
        Ok(survey)
    }

    pub(crate) fn again(&mut self) {
        self.surveys += 1;
        self.found.clear();
        self.ahead = self.questions([self.from.clone()]);
    }

    /// A removal needs the children only.
    fn questions(&self, paths: impl IntoIterator<Item = Arc<str>>) -> Vec<(i32, Arc<str>)> {
        let opcodes: &[i32] = match self.to {
            None => &[op::GET_CHILDREN2],
            Some(_) => &[op::GET_CHILDREN2, op::GET_DATA, op::GET_ACL],
        };
        paths.into_iter().flat_map(|path| opcodes.iter().map(move |&opcode| (opcode, path.clone()))).collect()
    }

    /// Takes the answers to what was ahead.
    pub(crate) fn take<'a>(&mut self, answers: impl Iterator<Item = (i32, &'a Bytes)>) -> Result<(), Code> {
        let (mut below, ahead) = (Vec::new(), std::mem::take(&mut self.ahead));
        for ((opcode, path), (error, body)) in ahead.into_iter().zip(answers) {
            match error {
                0 => {}
                error if error == Code::NoAuth.number() => return Err(Code::NoAuth),
                // Gone since its parent was read: the multi would find that out.
                _ if path != self.from => return Err(Code::BadVersion),
                _ => return Err(Code::NoNode),
            }
            let taken = self.take_one(opcode, path, body, &mut below);
            taken.map_err(|Malformed| Code::MarshallingError)?;
            if self.found.len() + below.len() > self.limit {
                return Err(Code::BadArguments);
            }
        }
        self.ahead = self.questions(below);
        Ok(())
    }

    fn take_one(
        &mut self,
        opcode: i32,
        path: Arc<str>,
        body: &Bytes,
        below: &mut Vec<Arc<str>>,
    ) -> Result<(), Malformed> {
        let mut input = JuteInput(body);
        match opcode {
            op::GET_CHILDREN2 => {
                let names = input.texts()?;
                below.extend(names.into_iter().map(|name| format!("{path}/{name}").into()));
                let stat = Stat::read(&mut input)?;
                self.found.push(Found { path, stat, data: None, acl: Vec::new() });
            }
            op::GET_DATA => {
                let data = input.buffer()?.map(Bytes::copy_from_slice);
                let stat = Stat::read(&mut input)?;
                let found = self.found.last_mut().ok_or(Malformed)?;
                // Children and data may have been read at two moments: the multi checks this one.
                (found.data, found.stat) = (data, stat);
            }
            _ => {
                let acl = read_acls(&mut input)?;
                let stat = Stat::read(&mut input)?;
                let found = self.found.last_mut().ok_or(Malformed)?;
                found.acl = acl;
                found.stat.aversion = stat.aversion;
            }
        }
        Ok(())
    }

    /// The multi that does it if nothing has changed.
    pub(crate) fn multi(&self) -> Result<Vec<u8>, Code> {
        let mut out = Vec::new();
        let header = |out: &mut Vec<u8>, kind: i32| {
            out.put_i32(kind);
            out.push(0);
            out.put_i32(-1);
        };
        for found in self.found.iter().filter(|_| self.to.is_some()) {
            header(&mut out, op::CHECK_SAME);
            out.put_text(&found.path);
            out.put_i64(found.stat.czxid);
            out.put_i64(found.stat.mzxid);
            out.put_i32(found.stat.aversion);
        }
        for found in &self.found {
            let Some(to) = &self.to else { break };
            if found.stat.ephemeral_owner != 0 {
                return Err(Code::BadArguments);
            }
            let hidden = |acl: &Acl| &*acl.who.scheme == "digest" && acl.who.id.ends_with(":x");
            if found.acl.iter().any(hidden) {
                return Err(Code::NoAuth);
            }
            header(&mut out, op::CREATE);
            let rest = found.path.strip_prefix(&*self.from).unwrap_or_default();
            out.put_text(&format!("{to}{rest}"));
            out.put_buffer(found.data.as_deref());
            let open =
                || Acl { permissions: crate::wire::OPEN, who: crate::wire::Identity::new("world", "anyone") };
            if is_open(&found.acl) {
                write_acls(&[open()], &mut out)
            } else {
                write_acls(&found.acl, &mut out)
            }
            out.put_i32(0);
        }
        for found in self.found.iter().rev() {
            header(&mut out, op::DELETE);
            out.put_text(&found.path);
            out.put_i32(-1);
        }
        out.put_i32(-1);
        out.push(1);
        out.put_i32(-1);
        Ok(out)
    }

    /// The code of a multi's answer: of the step that failed.
    pub(crate) fn verdict(body: &[u8]) -> i32 {
        let mut input = JuteInput(body);
        loop {
            let (Ok(kind), Ok(done), Ok(error)) = (input.i32(), input.bool(), input.i32()) else { return 0 };
            // Successful steps of a multi that succeeded come first, and then all of them did.
            if done || kind != op::ERROR {
                return 0;
            }
            if error != 0 {
                return error;
            }
            let _same = input.i32();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A subtree that is moved into itself would vanish.
    #[test]
    fn targets_are_checked() {
        assert!(Survey::rename("/a", "/a/b", 10).is_err());
        assert!(Survey::rename("/a", "/a", 10).is_err());
        assert!(Survey::rename("/a", "/ab", 10).is_ok());
        assert!(Survey::removal("/", 10).is_err());
        assert!(Survey::removal("/zookeeper/quota", 10).is_err());
    }
}
