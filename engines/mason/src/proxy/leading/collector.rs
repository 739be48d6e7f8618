//! The ring: which intervals of numbers are assigned, so that views need not remember their numbers (the paper's section 4.3).
//!
//! A round starts at the first group and visits each once, in order; its message says how many have counted, so that a repeated
//! message, or a leader that follows another in the middle of a round, cannot count an interval twice.

use super::{Lead, propose};
use crate::order::Placed;
use crate::proxy::entry::{Entry, Question};
use crate::proxy::{Collect, Complete, Frame, Proxy, Viewed, ask_replica};
use crate::view::View;
use kernel::Cx;

/// Where nothing is assigned, rounds are so many periods apart at most.
const PAUSE_MAX: u32 = 16;

impl Lead {
    pub(in crate::proxy) fn on_viewed(&mut self, message: Viewed) {
        self.collecting.view = message.view;
    }

    pub(super) fn begin_round(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let due = cx.now().since(self.collecting.begun_at)
            >= self.collecting.pause * frame.parameters.collect_every;
        if frame.group.0 != 0 || !due {
            return;
        }
        self.collecting.begun_at = cx.now();
        self.collecting.round = self.collecting.round.wrapping_add(1);
        // What is counted is the view of the round before: it can only have grown.
        ask_replica(frame.log.replica, cx.node(), &Question::View, cx);
        let interval = frame.parameters.collect_interval;
        let view = &self.collecting.view;
        let firsts: Vec<Placed> = frame
            .topology
            .spaces()
            .map(|space| Placed { space, number: view.low_watermark(space) })
            .collect();
        let counts = count_intervals(view, &firsts, interval);
        self.collecting.firsts = firsts.clone();
        let round = self.collecting.round;
        self.pass_on(Collect { round, hops: 1, firsts, counts }, frame, cx);
    }

    pub(in crate::proxy) fn on_collect(
        &mut self,
        message: Collect,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        let Collect { round, hops, firsts, mut counts } = message;
        let interval = frame.parameters.collect_interval;
        if !self.begun
            || counts.len() != firsts.len()
            || hops as usize > usize::from(frame.topology.layout.spanning)
        {
            return;
        }
        if hops as usize == usize::from(frame.topology.layout.spanning) {
            if frame.group.0 == 0 && round == self.collecting.round && firsts == self.collecting.firsts {
                self.end_round(firsts, &counts, frame, cx);
            }
            return;
        }
        if u32::from(frame.group.0) != hops {
            return;
        }
        ask_replica(frame.log.replica, cx.node(), &Question::View, cx);
        for (count, mine) in counts.iter_mut().zip(count_intervals(&self.collecting.view, &firsts, interval))
        {
            *count = count.saturating_add(mine);
        }
        self.pass_on(Collect { round, hops: hops + 1, firsts, counts }, frame, cx);
    }

    fn end_round(&mut self, firsts: Vec<Placed>, counts: &[u64], frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let interval = frame.parameters.collect_interval;
        let is_news = counts != self.collecting.counted;
        self.collecting.pause = if is_news { 1 } else { (2 * self.collecting.pause).min(PAUSE_MAX) };
        self.collecting.counted = counts.to_vec();
        let complete = firsts.into_iter().zip(counts).filter(|(_, count)| **count >= interval);
        let low_watermarks: Vec<Placed> = complete
            .map(|(first, _)| Placed { space: first.space, number: first.number.plus(interval) })
            .collect();
        if !low_watermarks.is_empty() {
            cx.mark("proxy.collected_an_interval");
            self.on_complete(Complete { hops: 0, low_watermarks }, frame, cx);
        }
    }

    pub(in crate::proxy) fn on_complete(
        &mut self,
        message: Complete,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        let Complete { hops, low_watermarks } = message;
        if !self.begun || u32::from(frame.group.0) != hops {
            return;
        }
        for low_watermark in &low_watermarks {
            self.collecting.view.collect(low_watermark);
        }
        propose(&Entry::Collected { low_watermarks: low_watermarks.clone() }, frame, cx);
        let next = crate::Group(frame.group.0 + 1);
        if next.0 < frame.topology.layout.spanning {
            let complete = Complete { hops: hops + 1, low_watermarks };
            cx.multicast(frame.topology.proxies(next).iter().copied(), complete);
        }
    }

    fn pass_on(&self, message: Collect, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let next = crate::Group((message.hops as usize % usize::from(frame.topology.layout.spanning)) as u16);
        cx.multicast(frame.topology.proxies(next).iter().copied(), message);
    }
}

/// How many numbers of each interval a view has assigned itself; all of one that lies below its low watermark.
fn count_intervals(view: &View, firsts: &[Placed], interval: u64) -> Vec<u64> {
    let counted = firsts.iter().map(|first| {
        let end = first.number.plus(interval);
        if view.low_watermark(first.space) >= end {
            return interval;
        }
        view.count_between(first.space, first.number, end)
    });
    counted.collect()
}
