//! A client that speaks ZooKeeper's bytes.

use crate::driver::Cluster;
use coordination::wire::{Acl, Identity, JuteInput, JuteOutput, Stat, op, write_acls};
use kernel::NodeId;

/// What arrived.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Heard {
    Reply(Reply),
    Event { kind: i32, path: String, zxid: i64 },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reply {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        JuteInput(&self.body).text().expect("a reply that begins with a text").to_owned()
    }

    /// The last 68 bytes.
    pub(crate) fn stat(&self) -> Stat {
        Stat::read(&mut JuteInput(&self.body[self.body.len() - 68..])).expect("a reply that ends with a stat")
    }

    pub(crate) fn data(&self) -> Vec<u8> {
        JuteInput(&self.body).buffer().expect("a reply that begins with data").unwrap_or_default().to_vec()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = JuteInput(&self.body).texts().expect("a reply that begins with names");
        names.into_iter().map(str::to_owned).collect()
    }

    /// Kind and code of each step of a multi.
    pub(crate) fn steps(&self) -> Vec<(i32, i32)> {
        let (mut input, mut steps) = (JuteInput(&self.body), Vec::new());
        loop {
            let kind = input.i32().expect("a header");
            let done = input.bool().expect("a header");
            let error = input.i32().expect("a header");
            match kind {
                _ if done => {
                    assert!(input.0.is_empty() && (kind, error) == (-1, -1));
                    return steps;
                }
                op::ERROR => assert_eq!(input.i32(), Ok(error)),
                op::CREATE => drop(input.text().expect("a path")),
                op::CREATE2 => {
                    input.text().expect("a path");
                    Stat::read(&mut input).expect("a stat");
                }
                op::SET_DATA => drop(Stat::read(&mut input).expect("a stat")),
                op::DELETE | op::CHECK => assert_eq!(error, 0),
                other => panic!("a step of kind {other}"),
            }
            steps.push((kind, error));
        }
    }
}

pub(crate) fn open_acl() -> Vec<Acl> {
    vec![acl(31, "world", "anyone")]
}

pub(crate) fn acl(permissions: i32, scheme: &str, id: &str) -> Acl {
    Acl { permissions, who: Identity::new(scheme, id) }
}

pub(crate) fn auth(scheme: &str, token: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.put_text(scheme);
    out.put_buffer(Some(token));
    out
}

pub(crate) fn rename(from: &str, to: &str, limit: i32) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(from);
    out.put_text(to);
    out.put_i32(limit);
    out
}

pub(crate) fn create(path: &str, data: &[u8], flags: i32) -> Vec<u8> {
    create_with(path, data, flags, &open_acl())
}

pub(crate) fn create_with(path: &str, data: &[u8], flags: i32, acl: &[Acl]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(path);
    out.put_buffer(Some(data));
    write_acls(acl, &mut out);
    out.put_i32(flags);
    out
}

pub(crate) fn delete(path: &str, version: i32) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(path);
    out.put_i32(version);
    out
}

pub(crate) fn set(path: &str, data: &[u8], version: i32) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(path);
    out.put_buffer(Some(data));
    out.put_i32(version);
    out
}

/// exists, getData, getChildren.
pub(crate) fn read(path: &str, watch: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(path);
    out.push(u8::from(watch));
    out
}

pub(crate) fn path_and_int(path: &str, int: i32) -> Vec<u8> {
    delete(path, int)
}

pub(crate) fn multi(steps: &[(i32, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, body) in steps {
        out.put_i32(*kind);
        out.push(0);
        out.put_i32(-1);
        out.extend_from_slice(body);
    }
    out.put_i32(-1);
    out.push(1);
    out.put_i32(-1);
    out
}

pub(crate) fn set_watches(relative_zxid: i64, lists: [&[&str]; 3], lasting: Option<[&[&str]; 2]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_i64(relative_zxid);
    for list in lists.iter().chain(lasting.iter().flatten()) {
        out.put_count(list.len());
        list.iter().for_each(|path| out.put_text(path));
    }
    out
}

pub(crate) fn connect_frame(
    last_zxid: i64,
    timeout: i32,
    session: i64,
    password: &[u8],
    read_only: bool,
) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_i32(0);
    body.put_i64(last_zxid);
    body.put_i32(timeout);
    body.put_i64(session);
    body.put_buffer(Some(password));
    if read_only {
        body.push(0);
    }
    framed(&body)
}

pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_buffer(Some(body));
    out
}

pub(crate) struct Client {
    pub(crate) node: NodeId,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout: i32,
    pub(crate) last_zxid: i64,
    xid: i32,
}

impl Client {
    pub(crate) fn connect(cluster: &mut Cluster, host: usize) -> Self {
        Self::resume(cluster, host, 0, &[0; 16], 0, 10_000).expect("a new session is granted")
    }

    /// `None` if the session is refused.
    pub(crate) fn resume(
        cluster: &mut Cluster,
        host: usize,
        session: i64,
        password: &[u8],
        last_zxid: i64,
        timeout: i32,
    ) -> Option<Self> {
        let node = cluster.connect(host);
        cluster.input(node, connect_frame(last_zxid, timeout, session, password, true));
        cluster.settle();
        let output = cluster.output(node);
        let mut input = JuteInput(&output);
        let body = input.buffer().ok()??;
        assert_eq!(body.len(), 37, "with the byte that says whether it is read-only");
        let mut body = JuteInput(body);
        assert_eq!(body.i32(), Ok(0));
        let timeout = body.i32().ok()?;
        let session = body.i64().ok()?;
        let password = body.buffer().ok()??.to_vec();
        (timeout > 0).then_some(Self { node, session, password, timeout, last_zxid, xid: 0 })
    }

    /// Sends a request and returns its xid.
    pub(crate) fn send(&mut self, cluster: &mut Cluster, opcode: i32, body: &[u8]) -> i32 {
        self.xid += 1;
        let xid = self.xid;
        self.send_as(cluster, xid, opcode, body);
        xid
    }

    pub(crate) fn send_as(&self, cluster: &mut Cluster, xid: i32, opcode: i32, body: &[u8]) {
        let mut request = Vec::new();
        request.put_i32(xid);
        request.put_i32(opcode);
        request.extend_from_slice(body);
        cluster.input(self.node, framed(&request));
    }

    /// What has arrived since.
    pub(crate) fn hear(&mut self, cluster: &mut Cluster) -> Vec<Heard> {
        let output = cluster.output(self.node);
        let (mut input, mut heard) = (JuteInput(&output), Vec::new());
        while !input.0.is_empty() {
            let mut body = JuteInput(input.buffer().expect("whole frames").expect("frames are not null"));
            let (xid, zxid, error) =
                (body.i32().expect("header"), body.i64().expect("header"), body.i32().expect("header"));
            if xid == -1 {
                let (kind, state) = (body.i32().expect("event"), body.i32().expect("event"));
                assert_eq!(state, 3);
                let path = body.text().expect("event").to_owned();
                heard.push(Heard::Event { kind, path, zxid });
            } else {
                assert!(error == 0 || body.0.is_empty(), "an error with a body");
                if zxid > 0 {
                    assert!(zxid >= self.last_zxid, "zxid went back from {} to {zxid}", self.last_zxid);
                    self.last_zxid = zxid;
                }
                heard.push(Heard::Reply(Reply { xid, zxid, error, body: body.0.to_vec() }));
            }
        }
        heard
    }

    /// Asks and waits; events are returned before the reply.
    pub(crate) fn ask_heard(
        &mut self,
        cluster: &mut Cluster,
        opcode: i32,
        body: &[u8],
    ) -> (Vec<Heard>, Reply) {
        let xid = self.send(cluster, opcode, body);
        cluster.settle();
        let mut heard = self.hear(cluster);
        match heard.pop() {
            Some(Heard::Reply(reply)) if reply.xid == xid => (heard, reply),
            other => panic!("instead of the reply {xid} to {opcode}: {other:?} after {heard:?}"),
        }
    }

    /// Asks and waits; nothing else may arrive.
    pub(crate) fn ask(&mut self, cluster: &mut Cluster, opcode: i32, body: &[u8]) -> Reply {
        let (heard, reply) = self.ask_heard(cluster, opcode, body);
        assert_eq!(heard, [], "unexpected before the reply to {opcode}");
        reply
    }

    pub(crate) fn events(&mut self, cluster: &mut Cluster) -> Vec<(i32, String)> {
        let event = |heard| match heard {
            Heard::Event { kind, path, .. } => (kind, path),
            Heard::Reply(reply) => panic!("a reply that nobody waits for: {reply:?}"),
        };
        self.hear(cluster).into_iter().map(event).collect()
    }
}
