//! Backups: a cut of all partitions, scans of what they had then, and nodes that are restored.
//!
//! ```text
//! backup        gateway                         restore          gateway
//!   | CutColours   | a snapshot of a colour       | RestoreNodes     | a command of the colour's partition, out of view
//!   |------------->| of each partition            |----------------->|
//!   | ScanNodes    | any server that has          | OpenRestored     | ordered as a snapshot of all partitions is
//!   |------------->| applied the cut              |----------------->|
//! ```

use super::{Caller, ColourGateway, Work};
use fuzzylog::{
    AppendTime, Colour, ColourNode, CutCall, FuzzyRequest, FuzzyResponse, NodePosition, OpenCall,
    PartitionId, RestoreCall, RestoreId, ScanCall, ScanPage, ScanPoint,
};
use kernel::{Bytes, Cx, Decode as _, Encode as _};
use std::time::Duration;
use wire::fuzzylog::{
    ColoursCut, CutColours, FuzzyFailure, NodeAt, NodePoint, NodesRestored, NodesScanned, OpenRestored,
    RestoreNodes, ScanNodes,
};

fn point_of(point: NodePoint) -> ScanPoint {
    ScanPoint { colour: Colour(point.colour), position: NodePosition(point.position) }
}

fn shown(point: ScanPoint) -> NodePoint {
    NodePoint { colour: point.colour.0, position: point.position.0 }
}

impl ColourGateway {
    fn begin_part(&mut self, caller: Caller, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        let opens = matches!(request, FuzzyRequest::Open(_));
        let call = self.begin(caller, AppendTime::ZERO, Work::Backup { opens }, Duration::ZERO, cx);
        self.ask(call, 0, request, cx);
    }

    pub(super) fn on_cut(&mut self, caller: Caller, call: &CutColours, cx: &mut Cx<'_, Self>) {
        let (client, number, below) = (call.by.client, call.by.number, call.by.below);
        self.begin_part(caller, FuzzyRequest::Cut(CutCall { client, number, below }), cx);
    }

    pub(super) fn on_scan(&mut self, caller: Caller, call: &ScanNodes, cx: &mut Cx<'_, Self>) {
        let ScanNodes { partition, below, from, to, digests, .. } = *call;
        let Some(below) = self.time_seen(below, caller, cx) else { return };
        let (partition, from, to) = (PartitionId(partition), point_of(from), to.map(point_of));
        self.begin_part(caller, FuzzyRequest::Scan(ScanCall { partition, below, from, to, digests }), cx);
    }

    pub(super) fn on_restore(&mut self, caller: Caller, call: &RestoreNodes, cx: &mut Cx<'_, Self>) {
        if self.regions.is_some() {
            return caller.fail(FuzzyFailure::OtherRegion, cx);
        }
        if cx.is_disk_full() {
            return caller.fail(FuzzyFailure::DiskFull, cx);
        }
        let nodes: Result<Vec<ColourNode>, _> = call.nodes.iter().map(ColourNode::decoded).collect();
        let Ok(nodes) = nodes else { return caller.fail(FuzzyFailure::Malformed, cx) };
        // Where it was appended, and behind what of other regions, is nothing here.
        let nodes: Vec<ColourNode> =
            nodes.into_iter().map(|node| ColourNode { across: None, ..node }).collect();
        let is_reached = |node: &ColourNode| self.times.time_of(self.times.seen_of(node.at)).is_ok();
        if !nodes.iter().all(is_reached) {
            return caller.fail(FuzzyFailure::Malformed, cx);
        }
        let ScanPoint { colour, position: at } = point_of(call.at);
        let (restore, begins) = (RestoreId(call.restore), call.begins);
        self.begin_part(
            caller,
            FuzzyRequest::Restore(RestoreCall { restore, colour, at, begins, nodes }),
            cx,
        );
    }

    pub(super) fn on_open(&mut self, caller: Caller, call: &OpenRestored, cx: &mut Cx<'_, Self>) {
        let (client, number, below) = (call.by.client, call.by.number, call.by.below);
        let restore = RestoreId(call.restore);
        self.begin_part(caller, FuzzyRequest::Open(OpenCall { client, number, below, restore }), cx);
    }

    pub(super) fn on_part_done(
        &mut self,
        call: u64,
        opens: bool,
        response: FuzzyResponse,
        cx: &mut Cx<'_, Self>,
    ) {
        let times = self.times;
        match response {
            FuzzyResponse::Snapshotted { at, tails } => {
                let Some(pending) = self.leave(call) else { return };
                let id = pending.caller.id();
                // Of those that were added and removed some have nothing.
                let last = self.client().map().partitions().last();
                let (at, partitions) = (times.seen_of(at), last.map_or(0, |last| last.0 + 1));
                // Each partition says how many colours came into view there.
                let opened = if opens { tails.iter().map(|it| it.position.0).sum() } else { 0 };
                pending.caller.answer(ColoursCut { id, at, partitions, opened }, cx);
            }
            FuzzyResponse::Scanned(ScanPage { nodes, digest, next }) => {
                let Some(pending) = self.leave(call) else { return };
                let id = pending.caller.id();
                let nodes = nodes.into_iter().map(|it| NodeAt {
                    at: NodePoint { colour: it.colour.0, position: it.position.0 },
                    node: it.node.map(|node| Bytes::from(node.encoded())),
                });
                let (nodes, next) = (nodes.collect(), next.map(shown));
                pending.caller.answer(NodesScanned { id, nodes, digest, next }, cx);
            }
            FuzzyResponse::Restored { tail } => {
                let Some(pending) = self.leave(call) else { return };
                let id = pending.caller.id();
                pending.caller.answer(NodesRestored { id, tail: tail.0 }, cx);
            }
            other => self.fail_by(call, &other, cx),
        }
    }
}
