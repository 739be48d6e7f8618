//! The shared log over CORFU': its roles on one host, what they write, and what a host knows of them.

use super::SharedLog;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::services::records::{self, DescribedRecord, RecordOwner, apart};
use crate::services::{CannotJoin, slots};
use ::corfu::auxiliary::AuxiliaryRecord;
use ::corfu::sequencer::Began;
use ::corfu::storage::StorageRecord;
use ::corfu::{Auxiliary, Client, Entry, Learner, Member, Parameters, Projection, Sequencer, StorageServer};
use kernel::{Bytes, Decode as _, DecodeError, HostId, HostSlot, NodeId};
use serde::Serialize;
use shared_log::corfu::{Gateway, GatewayNode};
use std::time::Duration;

const FIRST: u32 = slots::LOG_OVER_CORFU.first;
const GATEWAY: HostSlot = HostSlot(FIRST + 1);
const SEQUENCER: HostSlot = HostSlot(FIRST + 2);
const AUXILIARY: HostSlot = HostSlot(FIRST + 3);
/// The server of chain `c` is at the slot `STORAGE + c`.
const STORAGE: u32 = FIRST + 0x100;

fn at(host: &str, host_slot: HostSlot) -> NodeId {
    NodeId::new(HostId::named(host), host_slot)
}

/// The roles of CORFU' on the host `name`: as many chains as hosts, each over all of them and with another head.
pub(super) fn nodes(file: &ClusterFile, logs: &SharedLog, name: &str) -> Vec<(HostSlot, HostedNode)> {
    let hosts: Vec<&str> = file.hosts.iter().map(|host| host.name.as_str()).collect();
    let on_all = |host_slot: HostSlot| hosts.iter().map(|host| at(host, host_slot)).collect::<Vec<_>>();
    let chain = |number: usize| {
        let mut servers = on_all(HostSlot(STORAGE + number as u32));
        servers.rotate_left(number);
        servers
    };
    let (auxiliaries, sequencers) = (on_all(AUXILIARY), on_all(SEQUENCER));
    let initial = Projection::initial(sequencers[0], (0..hosts.len()).map(chain).collect());
    let parameters = parameters();
    let client = Client::new(auxiliaries.clone(), initial.clone(), parameters.clone());
    let gateway = Gateway::new(client, logs.space_bytes);
    let auxiliary = Auxiliary::new(auxiliaries, sequencers, initial.clone(), parameters);
    let mut nodes: Vec<(HostSlot, HostedNode)> = vec![
        (GATEWAY, GatewayNode::Gateway(gateway).into()),
        (SEQUENCER, Member::Sequencer(Sequencer::new()).into()),
        (AUXILIARY, Member::Auxiliary(auxiliary).into()),
    ];
    let retain_bytes = logs.space_bytes / hosts.len() as u64;
    for server in initial.servers().filter(|server| server.host() == HostId::named(name)) {
        nodes.push((server.host_slot(), Member::Storage(StorageServer::new(retain_bytes)).into()));
    }
    nodes
}

/// Disks stall for longer than a leader's heartbeats are waited for, and each change stops all appends for a moment.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// What becomes of it where hosts are taken for failed again and again.
const SUSPECT_MAX: Duration = Duration::from_secs(8);
/// Hosts that are started one by one, by hand, find one another within this.
const START_FOR: Duration = Duration::from_secs(5);
/// A server that was left out is back in its chain after this at the earliest.
const BACK_OFF: Duration = Duration::from_secs(1);

fn parameters() -> Parameters {
    Parameters {
        suspect_after: SUSPECT_AFTER,
        suspect_max: SUSPECT_MAX,
        start_for: START_FOR,
        back_off: BACK_OFF,
        ..Parameters::default()
    }
}

/// Why a cluster keeps the hosts that it began with.
pub(super) const CANNOT_JOIN: CannotJoin = CannotJoin {
    what: "no host joins a cluster whose log.engine is corfu",
    fact: "the servers of CORFU' are those that the cluster began with",
    remedy: "log.engine = \"mason\" or \"paxos\", in a cluster of its own",
};

/// The gateway of the host `name`.
pub(super) fn gateway(name: &str) -> NodeId {
    at(name, GATEWAY)
}

/// The role at a slot.
pub(super) fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    if !slots::LOG_OVER_CORFU.contains(host_slot) {
        return None;
    }
    Some(match host_slot {
        GATEWAY => RecordOwner::new("log gateway", records::none),
        SEQUENCER => RecordOwner::new("log sequencer", sequencer_record),
        AUXILIARY => RecordOwner::new("log auxiliary", auxiliary_record),
        HostSlot(storage) => {
            RecordOwner::new(format!("log storage {}", storage.checked_sub(STORAGE)?), storage_record)
        }
    })
}

fn journal(journal: Option<::corfu::JournalId>) -> String {
    journal.map_or_else(String::new, |journal| format!(", incarnation {:x}", journal.0))
}

fn sequencer_record(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    let Began { epoch, journal: of } = Began::decoded(record)?;
    Ok(apart(format!("serves epoch {}{}", epoch.0, journal(of))))
}

fn auxiliary_record(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    let AuxiliaryRecord { installed, promised, accepted, journal: of } = AuxiliaryRecord::decoded(record)?;
    let accepted = match accepted {
        Some(vote) => format!(", accepted epoch {} in {:?}", vote.projection.epoch.0, vote.ballot),
        None => String::new(),
    };
    let (epoch, chains) = (installed.epoch.0, installed.chains.len());
    Ok(apart(format!("epoch {epoch} with {chains} chains, promised {promised:?}{accepted}{}", journal(of))))
}

fn storage_record(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    Ok(apart(match StorageRecord::decoded(record)? {
        StorageRecord::Sealed(epoch) => format!("sealed below epoch {}", epoch.0),
        StorageRecord::Retained(position, Entry::Junk) => format!("position {}: junk", position.0),
        StorageRecord::Retained(position, Entry::Data(data)) => {
            format!("position {}: entry of {} bytes", position.0, data.body.len())
        }
        StorageRecord::Trimmed(before) => format!("trimmed below position {}", before.0),
        StorageRecord::JournalId(journal) => format!("incarnation {:x}", journal.0),
        StorageRecord::Serves(epoch) => format!("serves epoch {}", epoch.0),
        StorageRecord::Dropped(position) => format!("position {} dropped", position.0),
    }))
}

/// A projection of CORFU' as the auxiliary of this host knows it.
#[derive(Clone, Debug, Serialize)]
pub struct ProjectionStatus {
    /// Its epoch.
    pub epoch: u64,
    /// The sequencer's host.
    pub sequencer: String,
    /// The hosts of each chain, its head first.
    pub chains: Vec<Vec<String>>,
    /// Those that copy each chain, to be let in.
    pub catching_up: Vec<Vec<CatchingUp>>,
}

/// A host whose storage server is not in its chain yet.
#[derive(Clone, Debug, Serialize)]
pub struct CatchingUp {
    /// The host.
    pub host: String,
    /// Records that it lacked when it asked last; none while what it had before is compared.
    pub behind: Option<u64>,
}

impl ProjectionStatus {
    /// As an auxiliary knows it; hosts have names.
    pub(super) fn of(auxiliary: &Auxiliary, file: &ClusterFile) -> Self {
        let name_of = |id: NodeId| file.hosts.iter().find(|it| HostId::named(&it.name) == id.host());
        let name = |id| name_of(id).map_or_else(|| format!("{:?}", id.host()), |host| host.name.clone());
        let installed = auxiliary.installed();
        let chain = |chain: &Vec<NodeId>| chain.iter().copied().map(name).collect();
        let copies = |it: Learner| CatchingUp { host: name(it.server), behind: it.behind };
        let chains = 0..installed.chains.len();
        Self {
            epoch: installed.epoch.0,
            sequencer: name(installed.sequencer),
            chains: installed.chains.iter().map(chain).collect(),
            catching_up: chains.map(|number| auxiliary.learners(number).map(copies).collect()).collect(),
        }
    }
}
