//! A user that is back before what it said last on the connection before is heard: that comes late, from a connection that its session
//! has left.

use super::{CoordinationScenario, Seat, nanos};
use crate::moments;
use coordination::sessions::home_of;
use coordination::wire::ZkSessionId;
use sim::Control;
use std::time::Duration;

/// How long what was said is on its way.
const LATE_BY: Duration = Duration::from_millis(1_500);
/// When the user is back.
const BACK_AFTER: Duration = Duration::from_millis(20);

impl CoordinationScenario {
    /// Holds back what the user's host sends the leader of its session's home group, and has the user come back, to another host most
    /// often. The host does not know that its user has gone.
    pub(super) fn come_back_before_it_is_heard(
        &mut self,
        number: usize,
        control: &mut Control<'_, Seat>,
    ) -> bool {
        let (now, user) = (control.cluster.now(), &self.users[number]);
        let (Some(link), Some(session)) = (&user.link, &user.session) else { return false };
        let (host, home) = (link.host, home_of(ZkSessionId(session.id)));
        let leading = moments::leaders(&control.cluster);
        let leader = leading.into_iter().find(|(group, _)| Some(*group) == home).map(|(_, leader)| leader);
        if let Some(leader) = leader.filter(|leader| *leader != host) {
            control.mark("scenario.came_back_before_it_was_heard");
            control.clog(host, leader, LATE_BY);
        }
        self.disconnect(number, now, None);
        self.users[number].retry_at = now + nanos(BACK_AFTER);
        true
    }
}
