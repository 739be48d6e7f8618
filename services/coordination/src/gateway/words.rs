//! Four-letter words: plain text before any frame, answered at once, then the connection is closed.

use crate::gateway::Gateway;
use crate::gateway::connection::{Connection, Stage};
use kernel::{Cx, NodeId};
use std::fmt::Write;

/// What `gtmk` answers first: ZooKeeper's default.
pub(super) const TRACE_MASK: u64 = 0o462;

/// Four letters at the beginning of a connection. As a frame's length they would be far too many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Word([u8; 4]);

/// The word that the input begins with.
pub(crate) fn word(input: &[u8]) -> Option<Word> {
    let letters = input.first_chunk::<4>().copied();
    letters.filter(|word| word.iter().all(u8::is_ascii_lowercase)).map(Word)
}

/// A word with what follows it.
pub(crate) struct Asked {
    word: String,
    /// The mask of `stmk`.
    mask: u64,
}

impl Word {
    /// All of it, if all has arrived.
    pub(crate) fn whole(self, input: &[u8]) -> Option<Asked> {
        let mask = match &self.0 {
            b"stmk" => u64::from_be_bytes(*input.get(4..)?.first_chunk::<8>()?),
            _ => 0,
        };
        Some(Asked { word: String::from_utf8_lossy(&self.0).into_owned(), mask })
    }
}

impl Gateway {
    pub(crate) fn on_word(&mut self, node: NodeId, asked: Asked, cx: &mut Cx<'_, Self>) {
        let mut text = String::new();
        let word = &asked.word;
        if !self.settings.words.contains(word) {
            text = format!("{word} is not executed because it is not in the whitelist.\n");
        } else if word == "dump" {
            return self.begin_dump(node, cx);
        } else if self.say(&asked, &mut text).is_err() {
            text.push('\n');
        }
        if let Some(connection) = self.connections.get_mut(&node) {
            connection.output.extend_from_slice(text.as_bytes());
        }
        self.close(node, "a four-letter word was answered", cx);
    }

    fn say(&mut self, Asked { word, mask }: &Asked, out: &mut String) -> std::fmt::Result {
        let metrics = self.metrics();
        match word.as_str() {
            "ruok" => write!(out, "imok"),
            "isro" => write!(out, "rw"),
            "srvr" => self.say_server(out),
            "stat" => {
                writeln!(out, "{}", self.version_line())?;
                writeln!(out, "Clients:")?;
                self.say_connections(out, false)?;
                writeln!(out)?;
                self.say_numbers(out)
            }
            "cons" => self.say_connections(out, true),
            "mntr" => {
                writeln!(out, "zk_version\t{}", self.version())?;
                writeln!(out, "zk_server_state\t{}", self.facts.mode)?;
                let mut rows = metrics.rows().into_iter().chain(self.facts.monitor.iter().cloned());
                rows.try_for_each(|(name, value)| writeln!(out, "zk_{name}\t{value}"))
            }
            "envi" => {
                writeln!(out, "Environment:")?;
                writeln!(out, "zookeeper.version={}", self.version())?;
                writeln!(out, "ordinate.shards={}", self.settings.placement.shards())?;
                self.facts.environment.iter().try_for_each(|(name, value)| writeln!(out, "{name}={value}"))
            }
            "conf" => self.say_settings(out),
            "dirs" => {
                writeln!(out, "datadir_size: {}", metrics.total().data_bytes)?;
                writeln!(out, "logdir_size: 0")
            }
            "gtmk" => write!(out, "{}", self.trace_mask),
            "stmk" => {
                self.trace_mask = *mask;
                write!(out, "{mask}")
            }
            "wchs" => {
                let watching = self.connections.values().filter(|found| !found.watched.is_empty()).count();
                let paths = self.watchers.paths().count();
                writeln!(out, "{watching} connections watching {paths} paths")?;
                writeln!(out, "Total watches:{}", metrics.watches)
            }
            "wchc" => {
                self.connections.values().filter(|found| !found.watched.is_empty()).try_for_each(|found| {
                    writeln!(out, "0x{:x}", found.session.0)?;
                    found.watched.iter().try_for_each(|path| writeln!(out, "\t{path}"))
                })
            }
            "wchp" => self.watchers.paths().try_for_each(|(path, nodes)| {
                writeln!(out, "{path}")?;
                let sessions = nodes.iter().filter_map(|node| self.connections.get(node));
                sessions.into_iter().try_for_each(|found| writeln!(out, "\t0x{:x}", found.session.0))
            }),
            "crst" => {
                for connection in self.connections.values_mut() {
                    (connection.received, connection.sent) = (0, 0);
                }
                writeln!(out, "Connection stats reset.")
            }
            "srst" => {
                self.metrics.reset();
                writeln!(out, "Server stats reset.")
            }
            _ => writeln!(out, "{word} is not executed because it is not known."),
        }
    }

    fn version(&self) -> String {
        format!("{}, built on 01/01/2026 00:00 GMT", self.settings.version)
    }

    fn version_line(&self) -> String {
        format!("Zookeeper version: {}", self.version())
    }

    fn say_server(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.version_line())?;
        self.say_numbers(out)
    }

    fn say_numbers(&self, out: &mut String) -> std::fmt::Result {
        let metrics = self.metrics();
        let (min, mean, max) = metrics.latency();
        writeln!(out, "Latency min/avg/max: {min}/{mean:.1}/{max}")?;
        writeln!(out, "Received: {}", metrics.packets_received)?;
        writeln!(out, "Sent: {}", metrics.packets_sent + metrics.notifications)?;
        writeln!(out, "Connections: {}", metrics.connections)?;
        writeln!(out, "Outstanding: {}", metrics.outstanding)?;
        writeln!(out, "Zxid: 0x{:x}", metrics.highest_zxid)?;
        writeln!(out, "Mode: {}", self.facts.mode)?;
        // ZooKeeper counts the root twice, and its tests know that.
        writeln!(out, "Node count: {}", metrics.total().nodes + 1)
    }

    fn say_connections(&self, out: &mut String, all: bool) -> std::fmt::Result {
        self.connections.values().try_for_each(|found| {
            let Connection { address, port, received, sent, queue, .. } = found;
            let address = if address.contains(':') { format!("[{address}]") } else { address.clone() };
            let open = u8::from(found.stage == Stage::Open);
            write!(out, " /{address}:{port}[{open}](queued={},recved={received},sent={sent}", queue.len())?;
            if all && found.stage == Stage::Open {
                write!(out, ",sid=0x{:x},to={},lzxid=0x{:x}", found.session.0, found.timeout, found.seen)?;
            }
            writeln!(out, ")")
        })
    }

    fn say_settings(&self, out: &mut String) -> std::fmt::Result {
        let settings = &self.settings;
        let (timeout_min, timeout_max) = settings.session_timeouts;
        writeln!(out, "tickTime=2000")?;
        writeln!(out, "minSessionTimeout={timeout_min}")?;
        writeln!(out, "maxSessionTimeout={timeout_max}")?;
        writeln!(out, "maxClientCnxns={}", settings.connections_per_address_max)?;
        writeln!(out, "jute.maxbuffer={}", settings.frame_bytes_max)?;
        writeln!(out, "shards={}", settings.placement.shards())?;
        writeln!(out, "groups={}", settings.routes.proxies.len())?;
        writeln!(out, "consistency={:?}", settings.consistency)?;
        writeln!(out, "extendedTypesEnabled={}", settings.ttl_allowed)?;
        self.facts.settings.iter().try_for_each(|(name, value)| writeln!(out, "{name}={value}"))
    }
}
