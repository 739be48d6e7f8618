//! Regions that come later, and regions that go.

use super::regions::{OHIO, PARIS, RED, Region, TOKYO, pair, regions};
use fuzzylog::partition::command::{AddRegion, RemoveRegion};
use fuzzylog::{Colour, Edge, NodePosition, PartitionId, RegionId};

const BLUE: Colour = Colour(1);
const ALL: usize = 1 << 20;

fn copy(all: &mut [Region], one: usize, other: usize) -> bool {
    let (one, other) = pair(all, one, other);
    one.copy(other, ALL)
}

fn add(region: &mut Region, added: RegionId) {
    region.apply(PartitionId(0), AddRegion { region: added, partitions: 1 });
}

fn remove(region: &mut Region, removed: RegionId) {
    region.apply(PartitionId(0), RemoveRegion { region: removed });
}

/// Ohio and Tokyo, of one partition each, and Paris, which has not been heard of.
fn two_and_one() -> Vec<Region> {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1)]);
    all.push(regions(&[(OHIO, 1), (TOKYO, 1), (PARIS, 1)]).pop().expect("three"));
    all
}

fn numbers(region: &Region, colour: Colour, of: RegionId) -> Vec<u64> {
    let nodes = region.nodes(colour);
    let sources = nodes.iter().map(|it| it.source().expect("one of several regions"));
    sources.filter(|it| it.region == of).map(|it| it.number).collect()
}

// A region that comes late lacks what was copied before by all others, or turns a log away that has no beginning any more.
#[test]
fn a_region_that_comes_later_copies_what_is_left() {
    let mut all = two_and_one();
    for _ in 0..3 {
        all[0].append(&[RED], &[0]);
        all[0].append(&[BLUE], &[0]);
    }
    assert!(copy(&mut all, 1, 0));
    assert_eq!((all[0].trim(RED, 2), all[0].trim(BLUE, 3)), (NodePosition(2), NodePosition(3)));
    all[0].restarted();
    add(&mut all[0], PARIS);
    all[0].restarted();
    // Red's last node, and where blue goes on.
    assert_eq!((all[0].partitions[0].outgoing(), all[0].trim(RED, 3)), (2, NodePosition(2)));
    all[0].append(&[BLUE], &[0]);
    while copy(&mut all, 2, 0) {}
    all[2].restarted();
    assert_eq!((numbers(&all[2], RED, OHIO), numbers(&all[2], BLUE, OHIO)), (vec![2], vec![3]));
    assert_eq!(all[2].of(RED).gone_nodes().collect::<Vec<_>>(), [Edge { region: OHIO, count: 5 }]);
    // Its own log begins at its beginning, whatever is not there of others.
    all[2].append(&[RED], &[0]);
    all[2].append(&[BLUE], &[0]);
    add(&mut all[1], PARIS);
    assert!(copy(&mut all, 1, 2));
    assert_eq!((numbers(&all[1], RED, PARIS), numbers(&all[1], BLUE, PARIS)), (vec![0], vec![0]));
    // The trim that has waited for Paris waits for Tokyo alone, which lacks blue's last node, and goes on.
    assert_eq!(all[0].of(RED).first(RED), NodePosition(3));
    assert!(copy(&mut all, 1, 0));
    assert_eq!((all[0].partitions[0].outgoing(), all[0].partitions[0].waiting_trims()), (0, 0));
    assert_eq!(numbers(&all[1], BLUE, OHIO), [0, 1, 2, 3], "who was there before lacks nothing");
}

// A node waits for ever for one that was trimmed everywhere before its region came, and with it all that is behind.
#[test]
fn what_is_gone_is_waited_for_by_nobody() {
    let mut all = two_and_one();
    all[0].append(&[RED], &[0]);
    assert!(copy(&mut all, 1, 0));
    let answer = all[1].append(&[RED], &[1]);
    assert_eq!(all[1].nodes(RED)[answer.0 as usize].edges(), [Edge { region: OHIO, count: 1 }]);
    all[0].trim(RED, 1);
    add(&mut all[0], PARIS);
    add(&mut all[1], PARIS);
    assert!(copy(&mut all, 2, 1));
    assert_eq!((all[2].nodes(RED).len(), all[2].of(RED).waiting_nodes()), (0, 1));
    all[2].restarted();
    assert!(copy(&mut all, 2, 0), "a log that has no node left");
    assert_eq!((all[2].nodes(RED).len(), all[2].of(RED).waiting_nodes()), (1, 0));
}

// The first node that is left is shown before what the nodes before it have named, for it does not name it again.
#[test]
fn the_first_node_that_is_left_follows_what_those_before_it_followed() {
    let mut all = two_and_one();
    all[1].append(&[RED], &[0]);
    assert!(copy(&mut all, 0, 1));
    all[0].append(&[RED], &[1]);
    all[0].append(&[RED], &[1]);
    assert!(copy(&mut all, 1, 0));
    assert_eq!(all[0].trim(RED, 2), NodePosition(2));
    all[0].restarted();
    add(&mut all[0], PARIS);
    add(&mut all[1], PARIS);
    assert!(copy(&mut all, 2, 0));
    assert_eq!(all[2].of(RED).waiting_nodes(), 1, "it comes behind Tokyo's node");
    assert!(copy(&mut all, 2, 1));
    let nodes = all[2].nodes(RED);
    let order: Vec<RegionId> = nodes.iter().map(|it| it.source().expect("three").region).collect();
    assert_eq!(order, [TOKYO, OHIO]);
    all[2].check_causal(RED);
}

// Who knows a region names it to one that does not yet, where nothing would be waited for.
#[test]
fn a_page_that_names_an_unknown_region_is_not_copied_yet() {
    let mut all = two_and_one();
    add(&mut all[0], PARIS);
    all[2].append(&[RED], &[0]);
    assert!(copy(&mut all, 0, 2));
    all[0].append(&[RED], &[1]);
    let here = PartitionId(0);
    let page = all[1].next_page(here, &all[0], here, ALL);
    assert!(!all[1].partitions[0].knows_regions_of(&page));
    add(&mut all[1], PARIS);
    assert!(all[1].partitions[0].knows_regions_of(&page));
}

// Trims wait for ever for a region that is gone, nodes for what only it had, or its name is given to another one whose log is mixed with its.
#[test]
fn nothing_waits_for_a_region_that_was_removed() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1), (PARIS, 1)]);
    all[2].append(&[RED], &[0]);
    assert!(copy(&mut all, 0, 2));
    all[0].append(&[RED], &[1]);
    assert!(copy(&mut all, 1, 0));
    assert_eq!((all[1].nodes(RED).len(), all[1].of(RED).waiting_nodes()), (0, 1), "Paris has not been heard");
    assert_eq!(all[0].trim(RED, 2), NodePosition(1), "Paris' node is no own one");
    let here = PartitionId(0);
    let page = all[1].next_page(here, &all[2], here, ALL);
    for region in &mut all[..2] {
        remove(region, PARIS);
        region.restarted();
    }
    assert_eq!((all[1].nodes(RED).len(), all[1].of(RED).waiting_nodes()), (1, 0));
    assert_eq!((all[0].of(RED).first(RED), all[0].of(RED).waiting_trims()), (NodePosition(2), 0));
    // What was asked for before comes too late.
    all[1].apply(here, page);
    assert_eq!(numbers(&all[1], RED, PARIS), []);
    // It does not come back, and nobody names it any more.
    add(&mut all[0], PARIS);
    assert_eq!(all[0].of(RED).other_regions().len(), 1);
    all[0].append(&[RED], &[2]);
    assert!(all[0].nodes(RED).iter().all(|node| node.edges().is_empty()));
    assert_eq!(all[0].of(RED).counts_below(RED, NodePosition(3)), [Edge { region: OHIO, count: 2 }]);
    assert!(copy(&mut all, 1, 0));
    assert_eq!(numbers(&all[1], RED, OHIO), [0, 1]);
}

// A region that is alone retains everything for nobody, or has dropped what the next one is to copy.
#[test]
fn a_region_that_is_alone_waits_for_nobody() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1)]);
    all[0].append(&[RED], &[0]);
    remove(&mut all[0], TOKYO);
    all[0].append(&[RED], &[0]);
    all[0].restarted();
    let state = |all: &[Region]| (all[0].of(RED).outgoing(), all[0].of(RED).waiting_trims());
    assert_eq!((state(&all), all[0].trim(RED, 1)), ((0, 0), NodePosition(1)));
    all.push(regions(&[(OHIO, 1), (PARIS, 1)]).pop().expect("two"));
    add(&mut all[0], PARIS);
    assert_eq!(all[0].trim(RED, 2), NodePosition(1));
    assert!(copy(&mut all, 2, 0));
    assert_eq!((numbers(&all[2], RED, OHIO), all[0].of(RED).first(RED)), (vec![1], NodePosition(2)));
}
