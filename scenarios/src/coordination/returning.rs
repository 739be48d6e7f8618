//! A user that is back before what it said last on the connection before is heard: that comes late, from a connection that its session
//! has left.

use super::words::Ask;
use super::{CoordinationScenario, Seat, nanos};
use crate::moments;
use coordination::sessions::home_of;
use coordination::wire::ZkSessionId;
use kernel::{HostId, Rng};
use sim::{Cluster, Control};
use std::time::Duration;

/// How long what was said is on its way.
const LATE_BY: Duration = Duration::from_millis(1_500);
/// When the user is back.
const BACK_AFTER: Duration = Duration::from_millis(20);

impl CoordinationScenario {
    /// In every second strike at a connection: a user closes its session, and is back before that is heard. False if there is none whose
    /// words can be held back. From a generator of its own, so that all other strikes draw what they drew without.
    pub(super) fn close_and_come_back(&mut self, rng: &Rng, control: &mut Control<'_, Seat>) -> bool {
        let mut own = Rng::seeded(rng.clone().bits() ^ 0x6261_636b);
        let all = 0..self.users.len();
        let can: Vec<usize> =
            all.filter(|&number| self.leader_elsewhere(number, &control.cluster).is_some()).collect();
        let Some(&number) = own.pick(&can).filter(|_| own.chance(0.5)) else { return false };
        self.say(number, Ask::Close, false, control);
        self.come_back_before_it_is_heard(number, control)
    }

    /// The leader of the home group of a user's session, if that is at another host than the user's.
    fn leader_elsewhere(&self, number: usize, cluster: &Cluster<'_, Seat>) -> Option<HostId> {
        let user = &self.users[number];
        let (link, session) = (user.link.as_ref()?, user.session.as_ref()?);
        let home = home_of(ZkSessionId(session.id))?;
        let leader = moments::leaders(cluster).into_iter().find(|(group, _)| *group == home);
        leader.map(|(_, host)| host).filter(|host| *host != link.host)
    }

    /// Holds back what the user's host sends the leader of its session's home group, and has the user come back, to another host most
    /// often. The host does not know that its user has gone.
    pub(super) fn come_back_before_it_is_heard(
        &mut self,
        number: usize,
        control: &mut Control<'_, Seat>,
    ) -> bool {
        let (now, user) = (control.cluster.now(), &self.users[number]);
        let (Some(link), Some(_)) = (&user.link, &user.session) else { return false };
        let host = link.host;
        if let Some(leader) = self.leader_elsewhere(number, &control.cluster) {
            control.mark("scenario.came_back_before_it_was_heard");
            control.clog(host, leader, LATE_BY);
        }
        self.disconnect(number, now, None);
        self.users[number].retry_at = now + nanos(BACK_AFTER);
        true
    }
}
