//! What a host knows of the partially ordered log.

use super::FuzzyService;
use super::maps::MapsStatus;
use super::regions::RegionsStatus;
use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::services::ServiceStatus;
use crate::services::status::json;
use colours::ColourGatewayNode;
use fuzzylog::{ChainProjection, ChainServer, Director, FuzzyClient, FuzzyMember};
use kernel::{HostId, Instant, NodeId};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a host does for the partially ordered log.
#[derive(Clone, Default, Debug, Serialize)]
pub struct FuzzyStatus {
    /// Which order there is.
    pub order: &'static str,
    /// Its servers, by their partitions.
    pub partitions: BTreeMap<u16, ChainServerStatus>,
    /// The chains, as this host knows them: the directors' hosts know them first.
    pub chains: Vec<ChainStatus>,
    /// Where colours are, as this host knows it.
    pub map: MapStatus,
    /// The director of this host leads.
    pub directs: bool,
    /// The hosts that direct.
    pub directors: Vec<String>,
    /// Neither chains nor directors need a host but the cluster's members of this version.
    pub settled: u64,
    /// Users' calls that wait for an answer here.
    pub calls_in_progress: usize,
    /// Appends to several partitions that are taken over here.
    pub taking_over: usize,
    /// Answers that waited until their times had passed, in the strict order.
    pub passed_waits: u64,
    /// How long they waited together, in seconds.
    pub passed_wait_seconds: f64,
    /// The maps that are in use here.
    pub maps: MapsStatus,
    /// The other regions, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<RegionsStatus>,
}

/// Where colours are that are not where the number of partitions has them.
#[derive(Clone, Default, Debug, Serialize)]
pub struct MapStatus {
    /// How much was decided about it; 0: nothing was ever moved.
    pub version: u64,
    /// How many colours were moved and are not back.
    pub moved: usize,
    /// Partitions that were added.
    pub added: Vec<u16>,
    /// The one of them that is being removed.
    pub removed: Option<u16>,
    /// The move in flight.
    pub moving: Option<MoveStatus>,
}

/// A move in flight.
#[derive(Clone, Debug, Serialize)]
pub struct MoveStatus {
    /// How many colours.
    pub colours: usize,
    /// From this partition.
    pub from: u16,
    /// To this one.
    pub to: u16,
}

impl MapStatus {
    /// As the director among these roles knows it, or the client: who knows more.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a HostedNode> + Clone) -> Self {
        let (director, client) = knowing(nodes);
        let maps = director.map(Director::map).into_iter().chain(client.map(FuzzyClient::map));
        let Some(map) = maps.max_by_key(|map| map.version()) else { return Self::default() };
        let moves = map.moves();
        Self {
            version: map.version().0,
            moved: moves.moved.len(),
            added: moves.added.iter().map(|it| it.0).collect(),
            removed: map.emptied().map(|it| it.0),
            moving: map.moving().map(|it| MoveStatus {
                colours: it.colours.len(),
                from: it.from.0,
                to: it.to.0,
            }),
        }
    }

    fn metrics(&self, page: &mut MetricsPage) {
        let moving = usize::from(self.moving.is_some());
        for (name, help, value) in [
            ("fuzzylog_map_version", "Decisions about where colours are", self.version as f64),
            ("fuzzylog_moved_colours", "Colours that were moved and are not back", self.moved as f64),
            ("fuzzylog_added_partitions", "Partitions that were added", self.added.len() as f64),
            ("fuzzylog_moving", "1 while colours move", moving as f64),
        ] {
            page.gauge(name, help, value);
        }
    }
}

/// A partition's server on this host.
#[derive(Clone, Default, Debug, Serialize)]
pub struct ChainServerStatus {
    /// The epoch that it serves; none while it serves none.
    pub serves: Option<u64>,
    /// It copies the chain that it is not in.
    pub copies: bool,
    /// Commands of its row.
    pub commands: u64,
    /// Commands that it has applied.
    pub applied: u64,
    /// Bytes of those that it has in memory.
    pub command_bytes: usize,
    /// Its last snapshot is of so many commands.
    pub snapshot_commands: u64,
    /// Bytes of the snapshot and the commands that its journal has, about.
    pub journal_bytes: usize,
    /// Segments that have nodes of it, on the disk or on their way there.
    pub segments: usize,
    /// Their bytes.
    pub segment_bytes: usize,
    /// Bytes of those on their way to the disk; the snapshot that names them waits.
    pub storing_bytes: usize,
    /// Segments that are still to be read back after a restart: it does not serve before.
    pub segments_to_load: usize,
    /// A segment could not be read: it has nothing until a chain lets it copy.
    pub damaged: bool,
    /// Bytes of all that is retained: nodes, colours, users' clients, appends in progress.
    pub live_bytes: usize,
    /// Colours that have nodes.
    pub colours: usize,
    /// Bytes of nodes.
    pub bytes: usize,
    /// Appends that wait for their turn.
    pub queued: usize,
    /// Appends to several partitions that are not cleaned up.
    pub unfinished: usize,
    /// Users' clients that it remembers.
    pub clients: usize,
    /// How often a host that joined lacked more than the snapshot that it took, and began again.
    pub outrun: u64,
}

/// A partition's chain.
#[derive(Clone, Debug, Serialize)]
pub struct ChainStatus {
    /// The partition.
    pub partition: u16,
    /// Which chain it is: grows by one with every change.
    pub epoch: u64,
    /// The hosts, the head first.
    pub chain: Vec<String>,
    /// It has servers that know one another, and serves.
    pub serves: bool,
    /// Hosts of it that are no members, and leave when enough others have everything.
    pub leaving: Vec<String>,
}

impl ChainServerStatus {
    pub(crate) fn of(server: &ChainServer) -> Self {
        let state = server.state();
        Self {
            serves: server.serves().map(|epoch| epoch.0),
            copies: server.is_copying(),
            commands: server.length().0,
            applied: state.applied().0,
            command_bytes: server.row_bytes(),
            snapshot_commands: server.saved_below().0,
            journal_bytes: server.journal_bytes(),
            segments: state.segments().count(),
            segment_bytes: state.segment_bytes(),
            storing_bytes: server.storing_bytes(),
            segments_to_load: server.segments_to_load(),
            damaged: server.is_damaged(),
            live_bytes: state.live_bytes(),
            colours: state.colours().count(),
            bytes: state.bytes(),
            queued: state.queued(),
            unfinished: state.unfinished_count(),
            clients: state.clients(),
            outrun: server.outrun(),
        }
    }
}

impl ChainStatus {
    pub(crate) fn of(projection: &ChainProjection, director: &Director, file: &ClusterFile) -> Self {
        let name = |node: NodeId| name_of(node.host(), director, file);
        let leaving = projection.nodes().filter(|node| director.leaves(node.host()));
        Self {
            partition: projection.partition.0,
            epoch: projection.epoch.0,
            chain: projection.nodes().map(name).collect(),
            serves: projection.is_bootstrapped(),
            leaving: leaving.map(name).collect(),
        }
    }
}

/// A host's name by the cluster file, or by what is heard of hosts that joined.
fn name_of(host: HostId, director: &Director, file: &ClusterFile) -> String {
    let of_file = file.hosts.iter().map(|it| it.name.as_str());
    let mut names = of_file.chain(director.hosts().map(|it| it.name.as_str()));
    names.find(|name| HostId::named(name) == host).map_or_else(|| format!("{host:?}"), str::to_owned)
}

/// The chains, as the director among these roles knows them, or the client, who learns of them later.
pub(super) fn chains_in_words<'a>(
    file: &ClusterFile,
    nodes: impl Iterator<Item = &'a HostedNode> + Clone,
) -> Vec<ChainStatus> {
    let (Some(director), Some(client)) = knowing(nodes) else { return Vec::new() };
    let map = if director.map().version() > client.map().version() { director.map() } else { client.map() };
    let newest = director.projections().zip(client.projections());
    let newest = newest.map(|(one, other)| if one.epoch >= other.epoch { one } else { other });
    // Of those that may be added nothing is shown.
    let newest = newest.filter(|projection| map.has(projection.partition));
    newest.map(|projection| ChainStatus::of(projection, director, file)).collect()
}

/// The director and the client of a host.
fn knowing<'a>(
    nodes: impl Iterator<Item = &'a HostedNode> + Clone,
) -> (Option<&'a Director>, Option<&'a FuzzyClient>) {
    let director = members(nodes.clone()).find_map(|member| match member {
        FuzzyMember::Director(director) => Some(&**director),
        FuzzyMember::ChainServer(_) | FuzzyMember::Client(_) | FuzzyMember::Log(_) => None,
    });
    let mut nodes = nodes;
    let client = nodes.find_map(|node| {
        let HostedNode::ColourGateway(embedded) = node else { return None };
        let ColourGatewayNode::Gateway(gateway) = embedded.node();
        Some(gateway.client())
    });
    (director, client)
}

fn members<'a>(nodes: impl Iterator<Item = &'a HostedNode>) -> impl Iterator<Item = &'a FuzzyMember> {
    nodes.filter_map(|node| if let HostedNode::Fuzzy(embedded) = node { Some(embedded.node()) } else { None })
}

/// How many partitions the cluster file has.
fn first_partitions(file: &ClusterFile) -> u16 {
    file.service::<FuzzyService>().map_or(0, |service| service.partitions)
}

/// The chain servers of a host.
pub(super) fn servers<'a>(
    nodes: impl Iterator<Item = &'a HostedNode>,
) -> impl Iterator<Item = &'a ChainServer> {
    members(nodes).filter_map(|member| match member {
        FuzzyMember::ChainServer(server) => Some(&**server),
        FuzzyMember::Client(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_) => None,
    })
}

impl FuzzyStatus {
    /// Of a host's roles.
    pub fn of<'a>(
        file: &ClusterFile,
        nodes: impl Iterator<Item = (NodeId, &'a HostedNode)>,
        now: Instant,
    ) -> Self {
        let mut status = Self::default();
        let nodes: Vec<&HostedNode> = nodes.map(|(_, node)| node).collect();
        status.regions = RegionsStatus::of(file, servers(nodes.iter().copied()), now);
        status.chains = chains_in_words(file, nodes.iter().copied());
        status.map = MapStatus::of(nodes.iter().copied());
        let map = status.map.clone();
        let is_there = |partition: u16| partition < first_partitions(file) || map.added.contains(&partition);
        for node in &nodes {
            if let HostedNode::ColourGateway(embedded) = node {
                let ColourGatewayNode::Gateway(gateway) = embedded.node();
                status.calls_in_progress = gateway.outstanding();
                status.taking_over = gateway.client().recovering();
                let waits = gateway.client().passed_waits();
                status.passed_waits = waits.count;
                status.passed_wait_seconds = waits.sum.as_secs_f64();
            }
        }
        for member in members(nodes.into_iter()) {
            match member {
                // One that may be added has nothing to say.
                FuzzyMember::ChainServer(server) if !is_there(server.partition().0) => {}
                FuzzyMember::ChainServer(server) => {
                    status.partitions.insert(server.partition().0, ChainServerStatus::of(server));
                }
                // It is in the gateway.
                FuzzyMember::Client(_) | FuzzyMember::Log(_) => {}
                FuzzyMember::Director(director) => {
                    status.directs = director.is_leading();
                    status.settled = director.settled_on();
                    let hosts = director.directors().iter();
                    status.directors = hosts.map(|host| name_of(*host, director, file)).collect();
                }
            }
        }
        status
    }
}

impl FuzzyStatus {
    fn call_metrics(&self, page: &mut MetricsPage) {
        page.gauge("fuzzylog_calls", "Calls that wait for an answer here", self.calls_in_progress as f64);
        page.gauge(
            "fuzzylog_taking_over",
            "Appends to several partitions that this host finishes for others",
            self.taking_over as f64,
        );
        page.counter(
            "fuzzylog_time_waits",
            "Answers that waited until their times had passed, in the strict order",
            self.passed_waits,
        );
        page.seconds_counter(
            "fuzzylog_time_wait_seconds",
            "How long they waited together",
            self.passed_wait_seconds,
        );
    }
}

fn segment_gauges(status: &ChainServerStatus) -> [(&'static str, &'static str, usize); 5] {
    [
        ("fuzzylog_partition_segments", "Segments that have nodes", status.segments),
        ("fuzzylog_partition_segment_bytes", "Bytes of segments", status.segment_bytes),
        (
            "fuzzylog_partition_storing_bytes",
            "Bytes of segments on their way to the disk",
            status.storing_bytes,
        ),
        (
            "fuzzylog_partition_segments_to_load",
            "Segments that are to be read back before the host serves the partition",
            status.segments_to_load,
        ),
        (
            "fuzzylog_partition_damaged",
            "1 where a segment could not be read, until the host copies the partition",
            usize::from(status.damaged),
        ),
    ]
}

impl ServiceStatus for FuzzyStatus {
    fn fields(&self) -> Map<String, Value> {
        [("fuzzylog".to_owned(), json(self))].into_iter().collect()
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.regions.as_ref().map_or_else(Vec::new, RegionsStatus::warnings);
        let what = "is too large to be stored: its log is not trimmed, and grows until its partition is full";
        let damaged = self.partitions.iter().filter(|(_, status)| status.damaged);
        warnings.extend(damaged.map(|(partition, _)| {
            format!("a segment of partition {partition} is damaged here: the host has nothing of it until it copies it from others")
        }));
        warnings.extend(self.maps.too_large.iter().map(|name| format!("a view of the map {name} {what}")));
        warnings
    }

    fn metrics(&self, page: &mut MetricsPage) {
        self.call_metrics(page);
        self.map.metrics(page);
        self.maps.metrics(page);
        if let Some(regions) = &self.regions {
            regions.metrics(page);
        }
        page.gauge("fuzzylog_directs", "1 where the director leads", f64::from(u8::from(self.directs)));
        for (partition, status) in &self.partitions {
            let partition = partition.to_string();
            let of = [("partition", partition.as_str())];
            let serves = usize::from(status.serves.is_some());
            for (name, help, value) in [
                ("fuzzylog_partition_serves", "1 where the host is in the partition's chain", serves),
                (
                    "fuzzylog_partition_copies",
                    "1 where the host copies the partition to be let in",
                    usize::from(status.copies),
                ),
                ("fuzzylog_partition_command_bytes", "Bytes of commands in memory", status.command_bytes),
                (
                    "fuzzylog_partition_journal_bytes",
                    "Bytes of the snapshot and the commands in the journal",
                    status.journal_bytes,
                ),
                (
                    "fuzzylog_partition_live_bytes",
                    "Bytes of all that is retained, of which fuzzylog.partition_bytes are allowed",
                    status.live_bytes,
                ),
                ("fuzzylog_partition_colours", "Colours that have nodes", status.colours),
                ("fuzzylog_partition_bytes", "Bytes of nodes", status.bytes),
                ("fuzzylog_partition_queued", "Appends that wait for their turn", status.queued),
                (
                    "fuzzylog_partition_unfinished",
                    "Appends to several partitions that are not cleaned up",
                    status.unfinished,
                ),
                ("fuzzylog_partition_clients", "Users' clients that are remembered", status.clients),
            ]
            .into_iter()
            .chain(segment_gauges(status))
            {
                page.gauge_of(name, help, &of, value as f64);
            }
            for (name, help, count) in [
                ("fuzzylog_partition_applied", "Commands that the host has applied", status.applied),
                ("fuzzylog_partition_outrun", "Times that a joining host began again", status.outrun),
            ] {
                page.counter_of(name, help, &of, count);
            }
        }
        for chain in &self.chains {
            let partition = chain.partition.to_string();
            let of = [("partition", partition.as_str())];
            page.gauge_of(
                "fuzzylog_chain_servers",
                "Servers of the partition's chain, as this host knows it",
                &of,
                chain.chain.len() as f64,
            );
            page.gauge_of(
                "fuzzylog_chain_leaving",
                "Those of them whose hosts are no members, and leave when enough others have everything",
                &of,
                chain.leaving.len() as f64,
            );
        }
    }
}
