//! The cluster that nodes are brought to: many requests in flight, an error names its node.

use super::client::{ZkClient, ZkError};
use coordination::wire::{JuteInput, JuteOutput as _, RestoredNode, Stat, op, write_acls};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Requests in flight at most, and their bytes.
const IN_FLIGHT_MAX: usize = 256;
const BYTES_IN_FLIGHT_MAX: usize = 512 << 10;

/// Nodes that every cluster has, and that are its own.
pub fn is_the_clusters_own(path: &str) -> bool {
    matches!(path, "/zookeeper" | "/zookeeper/config" | "/zookeeper/quota")
}

/// What the target understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetKind {
    /// Restored nodes, with their versions and times.
    Ordinate,
    /// What every ZooKeeper does.
    ZooKeeper,
}

/// A request that has no answer yet.
struct InFlight {
    path: String,
    length: usize,
    /// An answer that is as good as success: what was to be gone is gone, what was to be made is there.
    ignores: i32,
}

const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;

/// Sends restored nodes.
pub struct Target {
    /// The session.
    pub client: ZkClient,
    in_flight: VecDeque<InFlight>,
    bytes: usize,
}

impl Target {
    /// Over a session. Unless `merge`, the cluster must be empty.
    pub fn new(mut client: ZkClient, merge: bool) -> Result<Self, ZkError> {
        let present = super::children(&mut client, "/")?;
        if let Some(name) = present.iter().find(|name| *name != "zookeeper").filter(|_| !merge) {
            return Err(ZkError::Input(format!(
                "the target is not empty: it has /{name}; with --merge nodes that exist are made over, and others stay"
            )));
        }
        Ok(Self { client, in_flight: VecDeque::new(), bytes: 0 })
    }

    /// Makes a node, or makes it over. Parents come first.
    pub fn restore(&mut self, restore: &RestoredNode<'_>) -> Result<(), ZkError> {
        let mut body = Vec::new();
        restore.write(&mut body);
        self.push(restore.path, op::RESTORE, &body, 0)
    }

    /// Makes a node by a ZooKeeper's own calls, or makes it over if it is expected there. Parents come first.
    pub fn write(&mut self, restore: &RestoredNode<'_>, is_there: bool) -> Result<(), ZkError> {
        let (path, mut body) = (restore.path, Vec::new());
        let put_node = |body: &mut Vec<u8>| {
            body.put_text(path);
            body.put_buffer(restore.data);
        };
        if path != "/" {
            put_node(&mut body);
            write_acls(&restore.acl, &mut body);
            body.put_i32(0);
            self.push(path, op::CREATE, &body, if is_there { NODE_EXISTS } else { 0 })?;
        }
        if is_there || path == "/" {
            body.clear();
            put_node(&mut body);
            body.put_i32(-1);
            self.push(path, op::SET_DATA, &body, 0)?;
            body.clear();
            body.put_text(path);
            write_acls(&restore.acl, &mut body);
            body.put_i32(-1);
            self.push(path, op::SET_ACL, &body, 0)?;
        }
        Ok(())
    }

    /// The same of one whose request is there already.
    pub fn restore_as_written(&mut self, path: &str, body: &[u8]) -> Result<(), ZkError> {
        self.push(path, op::RESTORE, body, 0)
    }

    /// Deletes a node.
    pub fn delete(&mut self, path: &str) -> Result<(), ZkError> {
        let mut body = Vec::new();
        body.put_text(path);
        body.put_i32(-1);
        self.push(path, op::DELETE, &body, NO_NODE)
    }

    fn push(&mut self, path: &str, opcode: i32, body: &[u8], ignores: i32) -> Result<(), ZkError> {
        while self.in_flight.len() >= IN_FLIGHT_MAX
            || (self.bytes + body.len() > BYTES_IN_FLIGHT_MAX && !self.in_flight.is_empty())
        {
            self.collect()?;
        }
        self.in_flight.push_back(InFlight { path: path.to_owned(), length: body.len(), ignores });
        self.bytes += body.len();
        let sent = self.client.push(opcode, body);
        sent.map(drop).map_err(|error| self.explain(error))
    }

    fn collect(&mut self) -> Result<(), ZkError> {
        let answer = self.client.reply();
        let (_, error, _) = answer.map_err(|error| self.explain(error))?;
        let Some(InFlight { path, length, ignores }) = self.in_flight.pop_front() else { return Ok(()) };
        self.bytes -= length;
        match error {
            0 => Ok(()),
            code if code == ignores => Ok(()),
            code => Err(ZkError::Node { path, code }),
        }
    }

    /// A server closes the connection upon a request that is too long.
    fn explain(&self, error: ZkError) -> ZkError {
        let largest = self.in_flight.iter().max_by_key(|request| request.length);
        match (error, largest) {
            (ZkError::Broken(cause), Some(InFlight { path, length, .. })) if *length > 1_000_000 => {
                ZkError::Input(format!(
                    "the target closed the connection ({cause}) while {path} with {length} bytes was on its way; is its \
                 coordination.request_bytes_max smaller?"
                ))
            }
            (error, _) => error,
        }
    }

    /// Waits until everything is answered.
    pub fn finish(&mut self) -> Result<(), ZkError> {
        while !self.in_flight.is_empty() {
            self.collect()?;
        }
        Ok(())
    }
}

/// A node as a client sees it.
pub struct Seen {
    /// Where.
    pub path: String,
    /// What is known of it.
    pub stat: Stat,
}

/// Walks all nodes, parents first, with many requests in flight; nodes that vanish meanwhile are left out.
pub fn walk(
    client: &mut ZkClient,
    mut visit: impl FnMut(&mut ZkClient, Seen, &mut VecDeque<Ask>) -> Result<(), ZkError>,
    mut answered: impl FnMut(Ask, i32, &[u8]) -> Result<(), ZkError>,
) -> Result<(), ZkError> {
    let mut waiting: VecDeque<Ask> = VecDeque::from([Ask::Children("/".to_owned())]);
    let mut in_flight: VecDeque<Ask> = VecDeque::new();
    loop {
        while in_flight.len() < IN_FLIGHT_MAX
            && let Some(ask) = waiting.pop_front()
        {
            ask.send(client)?;
            in_flight.push_back(ask);
        }
        let Some(ask) = in_flight.pop_front() else { return Ok(()) };
        let (_, error, body) = client.reply()?;
        let Ask::Children(path) = ask else {
            answered(ask, error, &body)?;
            continue;
        };
        match error {
            0 => {}
            -101 => continue,
            code => return Err(ZkError::Node { path, code }),
        }
        let mut input = JuteInput(&body);
        let names: Vec<String> = input.texts()?.into_iter().map(str::to_owned).collect();
        let stat = Stat::read(&mut input)?;
        let prefix = if path == "/" { String::new() } else { path.clone() };
        // What is asked of this node goes out before what is asked of its children, so that it is answered first.
        visit(client, Seen { path, stat }, &mut waiting)?;
        waiting.extend(names.into_iter().map(|name| Ask::Children(format!("{prefix}/{name}"))));
    }
}

/// A question of a walk.
pub enum Ask {
    /// Its children's names and its `Stat`.
    Children(String),
    /// Its data and `Stat`.
    Data(String),
    /// Its list.
    Acl(String),
}

impl Ask {
    fn send(&self, client: &mut ZkClient) -> Result<(), ZkError> {
        let (opcode, path) = match self {
            Self::Children(path) => (op::GET_CHILDREN2, path),
            Self::Data(path) => (op::GET_DATA, path),
            Self::Acl(path) => (op::GET_ACL, path),
        };
        let mut body = Vec::new();
        body.put_text(path);
        if opcode != op::GET_ACL {
            body.push(0);
        }
        client.push(opcode, &body).map(drop)
    }
}

/// A bar towards `length`, or a count without an end; nothing where nobody looks.
pub fn progress(length: Option<u64>, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{msg:<22} [{bar:32}] {human_pos}/{human_len}  {per_sec}  eta {eta}")
        }
        None => (ProgressBar::no_length(), "{msg:<22} {spinner} {human_pos}  {per_sec}"),
    };
    // The template is ours; were it wrong, the default one would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_message(what.to_owned())
}
