//! Appends of one burst to one partition go to its head together, as one command of the row.

use super::{FuzzyClient, Operation, Task};
use crate::chain_server::{APPENDS_MAX, append_bytes};
use crate::partition::command::{Append, AppendMany, Command, NamedAppend};
use crate::terms::{ChainEpoch, PartitionId};
use kernel::{Cx, PageBudget};
use std::collections::BTreeMap;

/// What is to be sent when the burst ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    unsent: BTreeMap<PartitionId, Vec<u64>>,
    /// In this epoch all servers of a partition's chain take several appends in one command. A host of an earlier version does not.
    takes_many_in: BTreeMap<PartitionId, ChainEpoch>,
}

impl Batches {
    pub(super) fn add(&mut self, partition: PartitionId, call: u64) {
        self.unsent.entry(partition).or_default().push(call);
    }

    pub(super) fn note_takes_many(&mut self, partition: PartitionId, epoch: ChainEpoch) {
        self.takes_many_in.insert(partition, epoch);
    }
}

impl FuzzyClient {
    /// Sends each partition what has come together for it, in the order of the calls.
    pub(super) fn send_batches(&mut self, cx: &mut Cx<'_, Self>) {
        for (partition, mut calls) in std::mem::take(&mut self.batches.unsent) {
            calls.sort_unstable();
            calls.dedup();
            let epoch = self.projection(partition).epoch;
            let together = self.batches.takes_many_in.get(&partition) == Some(&epoch);
            let most = if together { APPENDS_MAX } else { 1 };
            let mut appends = Vec::new();
            let mut page = PageBudget::new(self.parameters.page_bytes);
            for call in calls {
                let Some(append) = self.appended_by(call).cloned() else { continue };
                if appends.len() >= most || !page.admits(append_bytes(&append)) {
                    self.send_batch(partition, std::mem::take(&mut appends), cx);
                    page = PageBudget::new(self.parameters.page_bytes);
                    page.admits(append_bytes(&append));
                }
                appends.push(NamedAppend { call, append });
            }
            self.send_batch(partition, appends, cx);
        }
    }

    /// What a call appends to one partition, if it is still in flight.
    fn appended_by(&self, call: u64) -> Option<&Append> {
        match self.operations.get(&call) {
            Some(Operation { task: Task::One { command: Command::Append(append), .. }, .. }) => Some(append),
            Some(_) | None => None,
        }
    }

    fn send_batch(&mut self, partition: PartitionId, mut appends: Vec<NamedAppend>, cx: &mut Cx<'_, Self>) {
        let Some(first) = appends.first() else { return };
        let call = first.call;
        let command = match appends.len() {
            1 => appends.remove(0).append.into(),
            _ => {
                cx.mark("client.sent_appends_together");
                AppendMany { appends }.into()
            }
        };
        self.submit(call, partition, command, cx);
    }
}
