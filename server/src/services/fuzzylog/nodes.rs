//! The roles of the partially ordered log on one host, and whose their records are.

use super::{FuzzyService, LISTED};
use crate::cluster::ClusterFile;
use crate::cluster::regions::Region;
use crate::family::HostedNode;
use crate::services::records::{self, DescribedRecord, RecordOwner, apart};
use crate::services::{Follower, Slots, mason as over_mason, slots};
use colours::{ColourGateway, ColourGatewayNode, RegionNames};
use fuzzylog::chain_server::ChainRecord;
use fuzzylog::partition::segments::nodes_in;
use fuzzylog::{FuzzyDeployment, FuzzyMember, FuzzyParameters, FuzzySlot, OtherRegion, RegionId};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _, HostId, HostSlot, NodeId};
use parts::SnapshotRecord;
use std::time::Duration;

/// A partition stands still for so long when one of its hosts dies, and for a moment when one is taken for dead whose disk has only
/// stalled. Directors that were wrong wait for longer.
const SUSPECT_AFTER: Duration = Duration::from_millis(200);
/// Who answers is waited for so long until it is sealed, which takes its disk; who is silent is not.
const SEAL_FOR: Duration = Duration::from_millis(200);
/// When the cluster starts, everybody is heard within this who is there. A host that is started later joins a chain that goes on.
const START_FOR: Duration = Duration::from_millis(800);

/// So many partitions may be added to those of the cluster file: each host has a role for each of them, which does nothing before.
const MORE_PARTITIONS: usize = 16;

/// What chains of a real cluster wait for.
pub(crate) fn chain_parameters() -> FuzzyParameters {
    FuzzyParameters {
        suspect_after: SUSPECT_AFTER,
        seal_for: SEAL_FOR,
        start_for: START_FOR,
        ..FuzzyParameters::default()
    }
}

/// Which role of which host is where.
pub(super) fn deployment(file: &ClusterFile, fuzzy: &FuzzyService) -> FuzzyDeployment {
    let parameters = FuzzyParameters {
        order: fuzzy.order,
        clock_error_max: file.clock.error_max,
        replicas_min: fuzzy.replicas_min,
        live_bytes_max: fuzzy.partition_bytes,
        snapshot_every_bytes: fuzzy.snapshot_bytes,
        segment_bytes: fuzzy.segment_bytes,
        ..chain_parameters()
    };
    let deployment = FuzzyDeployment::new(
        slots::FUZZYLOG.first,
        &over_mason::hosts(file),
        fuzzy.partitions,
        (fuzzy.replicas, file.hosts.len()),
        parameters,
        file.parameters.clone(),
    );
    // Regions copy partition by partition, by the number that there is in the file.
    let Some((own, others)) = file.own_and_other_regions() else {
        return deployment.with_room(usize::from(fuzzy.partitions) + MORE_PARTITIONS);
    };
    let other = |region: &Region| OtherRegion {
        region: RegionId(region.number),
        partitions: fuzzy.partitions,
        hosts: region.hosts.iter().map(|host| HostId::named(&host.name)).collect(),
    };
    let mut others: Vec<OtherRegion> = others.map(other).collect();
    others.sort_by_key(|it| it.region);
    let removed = file.removed.iter().map(|region| RegionId(region.number)).collect();
    deployment.among(RegionId(own.number), others, removed)
}

/// The regions, as the gateway of a host names them; none if there is one alone.
fn region_names(file: &ClusterFile) -> Option<RegionNames> {
    let (own, _) = file.own_and_other_regions()?;
    let all = file.regions.iter().map(|region| (RegionId(region.number), region.name.clone()));
    // Their nodes are still here.
    let removed = file.removed.iter().map(|region| (RegionId(region.number), region.name.clone()));
    Some(RegionNames::new(&file.identity(), RegionId(own.number), all.chain(removed)))
}

/// The gateway of the host `name`.
pub(super) fn gateway(file: &ClusterFile, fuzzy: &FuzzyService, name: &str) -> NodeId {
    deployment(file, fuzzy).client_of(HostId::named(name))
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub(super) fn nodes(
    file: &ClusterFile,
    fuzzy: &FuzzyService,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let deployment = deployment(file, fuzzy);
    let deployment = if joins { deployment.joining(&over_mason::hosts(file)) } else { deployment };
    let nodes = deployment.build(HostId::named(name));
    let regions = region_names(file);
    nodes.into_iter().map(|(host_slot, member)| (host_slot, hosted(member, regions.clone()))).collect()
}

/// The director of the host `name`, directing or not: it follows the members.
pub(super) fn follower(file: &ClusterFile, fuzzy: &FuzzyService, name: &str) -> Follower {
    let director = deployment(file, fuzzy).director_of(HostId::named(name));
    Follower { host_slot: director.host_slot(), call: |members| members.encoded().into() }
}

/// The engine's client has its users' gateway around it.
fn hosted(member: FuzzyMember, regions: Option<RegionNames>) -> HostedNode {
    match member {
        FuzzyMember::Client(client) => {
            let gateway = ColourGateway::new(*client);
            let gateway = match regions {
                Some(regions) => gateway.among(regions),
                None => gateway,
            };
            ColourGatewayNode::Gateway(Box::new(gateway)).into()
        }
        member @ (FuzzyMember::ChainServer(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_)) => {
            member.into()
        }
    }
}

/// The role at a slot.
pub(super) fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    slot_owner(slots::FUZZYLOG, LISTED.name, "fuzzylog gateway", host_slot)
}

/// The role at a slot of a service's own chains; `client`: the one with the engine's client in it.
pub(crate) fn slot_owner(
    of_service: Slots,
    service: &str,
    client: &str,
    host_slot: HostSlot,
) -> Option<RecordOwner> {
    let offset = host_slot.0.checked_sub(of_service.first)?;
    let slot = FuzzySlot::at(offset).filter(|_| of_service.contains(host_slot))?;
    Some(match slot {
        FuzzySlot::Client => RecordOwner::new(client, records::none),
        FuzzySlot::Director => RecordOwner::new(format!("{service} director"), records::none),
        FuzzySlot::Log(role) => records::log_owner(&format!("{service} directors'"), role),
        FuzzySlot::ChainServer(partition) => {
            RecordOwner::new(format!("{service} partition {}", partition.0), chain_record)
                .with_nodes(nodes_in)
        }
    })
}

fn chain_record(record: &Bytes) -> Result<DescribedRecord, DecodeError> {
    let line = match ChainRecord::decoded(record)? {
        ChainRecord::Ordered(it) => format!("command {} of {:?}", it.index.0, it.entry.origin),
        ChainRecord::SealedFor(it) => format!("sealed below epoch {}", it.epoch.0),
        ChainRecord::Serves(it) => format!("serves epoch {}", it.epoch.0),
        ChainRecord::JournalName(it) => format!("incarnation {:x}", it.journal.0),
        ChainRecord::CutBack(it) => format!("row cut back to {} commands", it.length.0),
        ChainRecord::SnapshotPart(it) => match it.part {
            SnapshotRecord::Begin { below } => format!("snapshot of {} commands begins", below.0),
            SnapshotRecord::Chunk { bytes } => format!("chunk of a snapshot, {} bytes", bytes.len()),
            SnapshotRecord::End => "snapshot is complete".to_owned(),
        },
        ChainRecord::Applied(it) => format!("applied {} commands", it.through.0),
        ChainRecord::Copies(it) => format!("copies the row of epoch {}", it.epoch.0),
        ChainRecord::Forgets(_) => "a segment was lost: what is before is of no use".to_owned(),
    };
    Ok(apart(line))
}
