//! What the feeder asks its host's home, and what comes of the answers.

use super::{HomeQuery, TICK, TreeFeeder};
use crate::feeder::pack::zxid_below;
use crate::home::{HomeWord, LocateQuery, Located, Voids, VoidsQuery};
use kernel::{Cx, Decode as _, Encode as _, Instant};
use mason::client::{GroupNotice, ReadAnswer};
use mason::shard::{ReadShard, ShardQuery};
use mason::{Gsn, MasonMessage};

/// A question that is not answered for so long is asked again.
const ASK_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(500);

/// What a question is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Which items are void, below this position.
    Voids(u64),
    /// From where servers have to be handed nodes.
    Locate,
    /// How far the colour can be trimmed.
    Trim,
    /// What was trimmed has settled.
    Settle,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    tag: u64,
    purpose: Purpose,
    at: Instant,
}

/// Questions in flight, one of each purpose.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    waiting: Vec<Question>,
    last: u64,
}

impl Questions {
    /// True if something is asked for this purpose.
    pub(super) fn asks(&self, purpose: Purpose) -> bool {
        self.waiting
            .iter()
            .any(|question| std::mem::discriminant(&question.purpose) == std::mem::discriminant(&purpose))
    }

    /// What is in flight for this purpose is void.
    pub(super) fn forget(&mut self, purpose: Purpose) {
        self.waiting
            .retain(|question| std::mem::discriminant(&question.purpose) != std::mem::discriminant(&purpose));
    }
}

impl TreeFeeder {
    fn ask_home(&mut self, purpose: Purpose, query: &HomeQuery, at_least: Gsn, cx: &mut Cx<'_, Self>) {
        self.questions.last += 1;
        let tag = self.questions.last;
        self.questions.waiting.push(Question { tag, purpose, at: cx.now() });
        let reads = vec![ShardQuery { tag, body: query.encoded().into() }];
        let read = ReadShard { at_least, reads, shard_map: None, limits: None };
        self.send_to(self.home, read, cx);
    }

    /// Which items of nodes from one position on and below another are void.
    pub(super) fn ask_voids(&mut self, from: u64, to: u64, cx: &mut Cx<'_, Self>) {
        let query = HomeQuery::Voids(VoidsQuery { from, to });
        self.ask_home(Purpose::Voids(to), &query, zxid_below(to), cx);
    }

    /// A place that is not behind what is wanted.
    pub(super) fn ask_where(&mut self, purpose: Purpose, query: LocateQuery, cx: &mut Cx<'_, Self>) {
        self.ask_home(purpose, &HomeQuery::Locate(query), Gsn(0), cx);
    }

    /// What was not answered is asked anew where it is still of use.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        self.questions.waiting.retain(|question| now.since(question.at) < ASK_AGAIN_AFTER);
        if !self.questions.waiting.is_empty() {
            cx.set_timer(super::TreeFeederTimer::Tick, TICK);
        }
    }

    pub(super) fn on_home_answer(&mut self, answer: ReadAnswer, cx: &mut Cx<'_, Self>) {
        let waiting = &mut self.questions.waiting;
        let Some(at) = waiting.iter().position(|question| question.tag == answer.tag) else { return };
        match waiting.remove(at).purpose {
            Purpose::Voids(to) => {
                if let Ok(Voids { voids }) = Voids::decoded(&answer.body) {
                    self.handing.judge(to, voids);
                }
            }
            purpose @ (Purpose::Locate | Purpose::Trim | Purpose::Settle) => {
                let Ok(located) = Located::decoded(&answer.body) else { return };
                match purpose {
                    Purpose::Locate => self.on_located(located, cx),
                    Purpose::Trim => self.on_trim_located(&located, cx),
                    Purpose::Settle | Purpose::Voids(_) => self.on_settled(&located, cx),
                }
            }
        }
    }

    /// The sessions' part has something to say to the gateway.
    pub(super) fn pass_word_on(&mut self, word: &kernel::Bytes, cx: &mut Cx<'_, Self>) {
        if let Ok(HomeWord { gateway, body }) = HomeWord::decoded(word)
            && gateway.host() == cx.node().host()
        {
            let notice = GroupNotice { group: crate::home::GROUP, body };
            cx.send(gateway, MasonMessage::from(notice));
        }
    }
}
