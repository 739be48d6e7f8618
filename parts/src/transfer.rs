//! Transfers: what is larger than a message goes page by page from a peer to the node that lacks it. The receiver asks for each page, so
//! that what links lose, repeat or delay costs a question and nothing else.
//!
//! ```text
//! receiver                     peer
//!   | Wanted (page 0)            |
//!   |--------------------------->| begins an Offer
//!   |<-------------- its page 0  |
//!   | Wanted (page 1)            |
//!   |--------------------------->|
//!   |<------- its page 1, the last
//!   | Wanted (page 2)            |
//!   |--------------------------->| the receiver has it all
//! ```
//!
//! [`Pull`] says where a receiver stands, and is enough for what has the same bytes at every peer. [`Transfers`] are for what each peer
//! makes anew, as a snapshot: their pages come from one [`Offer`] of one peer.

use kernel::{Bytes, Instant, NodeId};
use std::time::Duration;

/// A question without an answer is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long a transfer may stand still before its receiver gives the peer up, and the peer the receiver.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// A peer that has sent nothing is given up sooner, for it may be gone; the next one is given twice the time.
const FIRST_PAGE_WITHIN: Duration = Duration::from_millis(250);
/// As long as any other page may take.
const DOUBLED_MAX: u32 = 3;

/// Where a receiver stands: which page it has asked for, of whom, and when.
#[derive(Clone, Debug)]
pub struct Pull {
    peer: NodeId,
    next: u64,
    asked_at: Instant,
    progress_at: Instant,
}

impl Pull {
    /// The first page is asked for now.
    pub fn begin(peer: NodeId, now: Instant) -> Self {
        Self { peer, next: 0, asked_at: now, progress_at: now }
    }

    /// The page that is wanted: its number, or where it begins, as the protocol has it.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether this page of this peer is what was asked for.
    pub fn expects(&self, from: NodeId, page: u64) -> bool {
        (self.peer, self.next) == (from, page)
    }

    /// The page came, and the one at `next` is asked for now.
    pub fn advance(&mut self, next: u64, now: Instant) {
        (self.next, self.asked_at, self.progress_at) = (next, now, now);
    }

    /// Whether it is time to ask again.
    pub fn is_late(&self, now: Instant) -> bool {
        now.since(self.asked_at) > ASK_AGAIN_AFTER
    }

    /// The same page is asked for now; of another peer only if it has the same bytes.
    pub fn ask(&mut self, peer: NodeId, now: Instant) {
        (self.peer, self.asked_at) = (peer, now);
    }

    fn stands_still_for(&self, now: Instant) -> Duration {
        now.since(self.progress_at)
    }
}

/// What a receiver asks of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedPage {
    /// The peer.
    pub peer: NodeId,
    /// Names the transfer.
    pub transfer: u64,
    /// Which page.
    pub index: u64,
}

/// A page on its way to a receiver. `V` distinguishes what one offer is made of from what another is.
#[derive(Clone, PartialEq, Debug)]
pub struct Page<V> {
    /// Names the transfer.
    pub transfer: u64,
    /// What the offer is made of.
    pub version: V,
    /// Which page.
    pub index: u64,
    /// Its contents.
    pub bytes: Bytes,
    /// No page follows.
    pub last: bool,
}

/// What became of a page.
#[derive(Clone, PartialEq, Debug)]
pub enum TakenPage {
    /// Nobody waits for it.
    Stale,
    /// It belongs to another offer than the pages before: a repeated first question began that one under the same name.
    OfAnother,
    /// It is taken; the next is to be asked for.
    Next(WantedPage),
    /// It was the last of these; the question for the next one notifies the peer.
    Whole(WantedPage, Vec<Bytes>),
}

/// What a look at the clock says of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// There is none, or it goes well.
    Fine,
    /// The question is to be asked again.
    Ask(WantedPage),
    /// The peer is given up, with all that it sent.
    GivenUp,
}

/// The receiver of transfers, one at a time.
#[derive(Clone, Debug)]
pub struct Transfers<V> {
    in_flight: Option<Transfer<V>>,
    /// Peers in a row that were given up.
    given_up: u32,
}

#[derive(Clone, Debug)]
struct Transfer<V> {
    id: u64,
    pull: Pull,
    version: Option<V>,
    pages: Vec<Bytes>,
}

impl<V> Default for Transfers<V> {
    fn default() -> Self {
        Self { in_flight: None, given_up: 0 }
    }
}

impl<V> Transfer<V> {
    fn wanted(&self) -> WantedPage {
        WantedPage { peer: self.pull.peer, transfer: self.id, index: self.pull.next }
    }
}

impl<V: Copy + PartialEq> Transfers<V> {
    /// True from the first question until all has come or the peer is given up.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The page that is waited for.
    pub fn wanted(&self) -> Option<WantedPage> {
        self.in_flight.as_ref().map(Transfer::wanted)
    }

    /// Begins one from `peer`, instead of one in flight. `transfer` is a name that no other transfer of this peer has.
    pub fn begin(&mut self, peer: NodeId, transfer: u64, now: Instant) -> WantedPage {
        let (pull, pages) = (Pull::begin(peer, now), Vec::new());
        self.in_flight.insert(Transfer { id: transfer, pull, version: None, pages }).wanted()
    }

    /// Ends the one in flight.
    pub fn stop(&mut self) {
        self.in_flight = None;
    }

    /// Called every now and then.
    pub fn look(&mut self, now: Instant) -> Look {
        let Some(transfer) = &mut self.in_flight else { return Look::Fine };
        let given = match transfer.pages[..] {
            [] => FIRST_PAGE_WITHIN * 2u32.pow(self.given_up.min(DOUBLED_MAX)),
            [..] => STALLED_AFTER,
        };
        if transfer.pull.stands_still_for(now) > given {
            self.in_flight = None;
            self.given_up = self.given_up.saturating_add(1);
            return Look::GivenUp;
        }
        if !transfer.pull.is_late(now) {
            return Look::Fine;
        }
        transfer.pull.ask(transfer.pull.peer, now);
        Look::Ask(transfer.wanted())
    }

    /// A page has come.
    pub fn on_page(&mut self, from: NodeId, page: Page<V>, now: Instant) -> TakenPage {
        let expected = |it: &&mut Transfer<V>| it.id == page.transfer && it.pull.expects(from, page.index);
        let Some(transfer) = self.in_flight.as_mut().filter(expected) else { return TakenPage::Stale };
        if *transfer.version.get_or_insert(page.version) != page.version {
            return TakenPage::OfAnother;
        }
        transfer.pages.push(page.bytes);
        transfer.pull.advance(page.index + 1, now);
        self.given_up = 0;
        let wanted = transfer.wanted();
        match self.in_flight.take_if(|_| page.last) {
            Some(transfer) => TakenPage::Whole(wanted, transfer.pages),
            None => TakenPage::Next(wanted),
        }
    }
}

/// A peer's side of one transfer: pages that are made when they are asked for. The latest is retained, for it may be asked for again.
#[derive(Clone, Debug)]
pub struct Offer {
    to: NodeId,
    transfer: u64,
    index: u64,
    bytes: Bytes,
    last: bool,
    asked_at: Instant,
}

/// What a question comes to.
#[derive(Clone, PartialEq, Debug)]
pub enum Offered {
    /// It is of somebody else, of another transfer, or late.
    Stale,
    /// The page.
    Page {
        /// Its contents.
        bytes: Bytes,
        /// No page follows.
        last: bool,
    },
    /// The receiver has everything.
    Done,
}

impl Offer {
    /// Somebody has asked for the first page, which is `first`.
    pub fn begin(to: NodeId, transfer: u64, (bytes, last): (Bytes, bool), now: Instant) -> Self {
        Self { to, transfer, index: 0, bytes, last, asked_at: now }
    }

    /// True when the receiver has asked for nothing for so long that it takes what it lacks from somebody else.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        now.since(self.asked_at) > STALLED_AFTER
    }

    /// A page is asked for. `make` gives the one after the latest, and whether it is the last.
    pub fn on_wanted(
        &mut self,
        from: NodeId,
        transfer: u64,
        index: u64,
        now: Instant,
        make: impl FnOnce() -> (Bytes, bool),
    ) -> Offered {
        if (self.to, self.transfer) != (from, transfer) {
            return Offered::Stale;
        }
        self.asked_at = now;
        if index == self.index + 1 && !self.last {
            self.index = index;
            (self.bytes, self.last) = make();
        }
        match index.cmp(&self.index) {
            std::cmp::Ordering::Less => Offered::Stale,
            std::cmp::Ordering::Equal => Offered::Page { bytes: self.bytes.clone(), last: self.last },
            std::cmp::Ordering::Greater => Offered::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};
    use proptest::prelude::*;

    fn peer(host: u32) -> NodeId {
        NodeId::new(HostId(host), HostSlot(1))
    }

    const ME: u32 = 9;

    fn at(milliseconds: u64) -> Instant {
        Instant(1 << 40) + Duration::from_millis(milliseconds)
    }

    fn page(transfer: u64, index: u64, last: bool) -> Page<u64> {
        Page { transfer, version: 7, index, bytes: Bytes::copy_from_slice(&[index as u8]), last }
    }

    // A page of somebody who was not asked, of another transfer, or out of turn, makes a whole that nobody has.
    #[test]
    fn only_what_was_asked_for_is_taken() {
        let mut transfers = Transfers::default();
        let wanted = |index| WantedPage { peer: peer(1), transfer: 5, index };
        assert_eq!(transfers.on_page(peer(1), page(5, 0, true), at(0)), TakenPage::Stale);
        assert_eq!(transfers.begin(peer(1), 5, at(0)), wanted(0));
        for (from, page) in
            [(peer(2), page(5, 0, false)), (peer(1), page(4, 0, false)), (peer(1), page(5, 1, false))]
        {
            assert_eq!(transfers.on_page(from, page, at(1)), TakenPage::Stale);
        }
        assert_eq!(transfers.on_page(peer(1), page(5, 0, false), at(1)), TakenPage::Next(wanted(1)));
        assert_eq!(transfers.on_page(peer(1), page(5, 0, false), at(1)), TakenPage::Stale, "a late copy");
        let other = Page { version: 8, ..page(5, 1, true) };
        assert_eq!(transfers.on_page(peer(1), other, at(1)), TakenPage::OfAnother);
        let whole = vec![Bytes::from_static(&[0]), Bytes::from_static(&[1])];
        assert_eq!(transfers.on_page(peer(1), page(5, 1, true), at(1)), TakenPage::Whole(wanted(2), whole));
        assert!(!transfers.is_in_flight());
    }

    // Who waits for a dead peer never catches up; who gives a slow one up too soon does not either.
    #[test]
    fn silent_peers_are_asked_again_and_given_up() {
        let mut transfers = Transfers::default();
        let give_up = |transfers: &mut Transfers<u64>, begin: u64| {
            transfers.begin(peer(1), 5, at(begin));
            let looks = (begin..).take_while(|&now| transfers.look(at(now)) != Look::GivenUp);
            looks.last().map_or(0, |now| now - begin)
        };
        let patience: Vec<u64> = (0..5).map(|nth| give_up(&mut transfers, nth * 10_000)).collect();
        assert_eq!(patience, [250, 500, 1_000, 2_000, 2_000]);
        transfers.begin(peer(1), 5, at(0));
        assert_eq!(transfers.look(at(200)), Look::Fine);
        assert_eq!(transfers.look(at(201)), Look::Ask(WantedPage { peer: peer(1), transfer: 5, index: 0 }));
        assert_eq!(transfers.look(at(300)), Look::Fine, "it was asked again just now");
        transfers.on_page(peer(1), page(5, 0, false), at(300));
        assert_eq!(transfers.look(at(501)), Look::Ask(WantedPage { peer: peer(1), transfer: 5, index: 1 }));
        assert_ne!(transfers.look(at(2_300)), Look::GivenUp, "one that has begun has longer");
        assert_eq!(transfers.look(at(2_301)), Look::GivenUp);
        assert_eq!(give_up(&mut transfers, 10_000), 500, "and a page counts for the next");
    }

    // A peer that goes on for any node that asks mixes the pages of two receivers up; one that never stops serves nobody else again.
    #[test]
    fn an_offer_is_for_one_receiver() {
        let make = |byte: u8, last| move || (Bytes::copy_from_slice(&[byte]), last);
        let unmade = || -> (Bytes, bool) { panic!("no page is due") };
        let of = |byte: u8, last| Offered::Page { bytes: Bytes::copy_from_slice(&[byte]), last };
        let mut offer = Offer::begin(peer(ME), 5, make(0, false)(), at(0));
        assert_eq!(offer.on_wanted(peer(2), 5, 1, at(1), unmade), Offered::Stale);
        assert_eq!(offer.on_wanted(peer(ME), 6, 1, at(1), unmade), Offered::Stale);
        assert_eq!(offer.on_wanted(peer(ME), 5, 0, at(1), unmade), of(0, false));
        assert_eq!(offer.on_wanted(peer(ME), 5, 1, at(2), make(1, true)), of(1, true));
        assert_eq!(offer.on_wanted(peer(ME), 5, 1, at(3), unmade), of(1, true), "it was lost");
        assert_eq!(offer.on_wanted(peer(ME), 5, 0, at(3), unmade), Offered::Stale);
        assert!(!offer.is_abandoned(at(2_003)) && offer.is_abandoned(at(2_004)));
        assert_eq!(offer.on_wanted(peer(ME), 5, 2, at(9), unmade), Offered::Done);
    }

    // Bytes that are the same everywhere are fetched from the beginning again for every peer that dies.
    #[test]
    fn another_peer_goes_on_where_one_stopped() {
        let mut pull = Pull::begin(peer(1), at(0));
        assert!(pull.expects(peer(1), 0));
        pull.advance(64, at(100));
        assert!(!pull.is_late(at(300)) && pull.is_late(at(301)));
        pull.ask(peer(2), at(301));
        assert!(pull.expects(peer(2), 64) && !pull.expects(peer(1), 64) && !pull.is_late(at(400)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The oldest question, or the newest, arrives; or a late copy of it does.
        Question {
            newest: bool,
            copy: bool,
        },
        Answer {
            newest: bool,
            copy: bool,
        },
        /// Both ways.
        Lose,
        Pass(u64),
        /// The peer's state changes, and its offer is forgotten.
        Restart,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let any_two = || (any::<bool>(), any::<bool>());
        let step = prop_oneof![
            4 => any_two().prop_map(|(newest, copy)| Step::Question { newest, copy }),
            4 => any_two().prop_map(|(newest, copy)| Step::Answer { newest, copy }),
            1 => Just(Step::Lose),
            1 => (1..400u64).prop_map(Step::Pass),
            1 => Just(Step::Restart),
        ];
        prop::collection::vec(step, 0..120)
    }

    fn arrives<T: Clone>(on_its_way: &mut Vec<T>, newest: bool, copy: bool) -> Option<T> {
        let at = if newest { on_its_way.len().checked_sub(1)? } else { 0 };
        if copy {
            on_its_way.get(at).cloned()
        } else {
            (!on_its_way.is_empty()).then(|| on_its_way.remove(at))
        }
    }

    /// A receiver and a peer whose state is `version` and has `PAGES` pages, each of which says whose it is.
    #[derive(Default)]
    struct Pair {
        transfers: Transfers<u64>,
        offer: Option<(Offer, u64, u8)>,
        version: u64,
        now: u64,
        questions: Vec<WantedPage>,
        answers: Vec<Page<u64>>,
        wholes: Vec<Vec<Bytes>>,
    }

    const PAGES: u8 = 4;

    fn made(version: u64, index: u8) -> (Bytes, bool) {
        (Bytes::copy_from_slice(&[version as u8, index]), index + 1 == PAGES)
    }

    impl Pair {
        fn question(&mut self, WantedPage { transfer, index, .. }: WantedPage) {
            let now = at(self.now);
            if index == 0 && self.offer.is_none() {
                let offer = Offer::begin(peer(ME), transfer, made(self.version, 0), now);
                self.offer = Some((offer, self.version, 0));
            }
            let Some((offer, version, latest)) = &mut self.offer else { return };
            let offered = offer.on_wanted(peer(ME), transfer, index, now, || {
                *latest += 1;
                made(*version, *latest)
            });
            match offered {
                Offered::Stale => {}
                Offered::Page { bytes, last } => {
                    self.answers.push(Page { transfer, version: *version, index, bytes, last });
                }
                Offered::Done => self.offer = None,
            }
        }

        fn answer(&mut self, page: Page<u64>) {
            match self.transfers.on_page(peer(1), page, at(self.now)) {
                TakenPage::Stale | TakenPage::OfAnother => {}
                TakenPage::Next(wanted) => self.questions.push(wanted),
                TakenPage::Whole(wanted, pages) => {
                    self.questions.push(wanted);
                    self.wholes.push(pages);
                }
            }
        }

        fn pass(&mut self, time: u64) {
            self.now += time;
            if self.offer.as_ref().is_some_and(|(offer, ..)| offer.is_abandoned(at(self.now))) {
                self.offer = None;
            }
            if let Look::Ask(wanted) = self.transfers.look(at(self.now)) {
                self.questions.push(wanted);
            }
            if !self.transfers.is_in_flight() && self.wholes.is_empty() {
                let wanted = self.transfers.begin(peer(1), self.now, at(self.now));
                self.questions.push(wanted);
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Question { newest, copy } => {
                    if let Some(wanted) = arrives(&mut self.questions, newest, copy) {
                        self.question(wanted);
                    }
                }
                Step::Answer { newest, copy } => {
                    if let Some(page) = arrives(&mut self.answers, newest, copy) {
                        self.answer(page);
                    }
                }
                Step::Lose => {
                    self.questions.clear();
                    self.answers.clear();
                }
                Step::Pass(time) => self.pass(time),
                Step::Restart => {
                    self.version += 1;
                    self.offer = None;
                }
            }
        }
    }

    proptest! {
        // Pages of two states put together, or one left out, are a state that nobody ever had. Once links are sound it must come to an end.
        #[test]
        fn a_whole_is_what_one_peer_had_at_one_moment(steps in steps()) {
            let mut pair = Pair::default();
            pair.pass(1);
            steps.into_iter().for_each(|step| pair.step(step));
            for _ in 0..400 {
                let sound = Step::Question { newest: false, copy: false };
                let answered = Step::Answer { newest: false, copy: false };
                [sound, answered, Step::Pass(20)].into_iter().for_each(|step| pair.step(step));
            }
            prop_assert!(!pair.wholes.is_empty());
            for whole in pair.wholes {
                let version = u64::from(whole[0][0]);
                let pages: Vec<Bytes> = (0..PAGES).map(|index| made(version, index).0).collect();
                prop_assert_eq!(whole, pages);
            }
        }
    }
}
