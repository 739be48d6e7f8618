//! Groups as a whole: their clocks, their layout, and replicas that start from a snapshot.

use super::Cluster;
use coordination::{HomeSessions, SessionSettings};
use mason::{Group, GroupTime, Layout, Shard, Stub, StubOut};

impl Cluster {
    /// A new leader begins to count a group's time.
    pub(crate) fn clock(&mut self, group: usize, new_leader: bool) {
        let (mut out, now) = (StubOut::default(), GroupTime(self.homes[group].now));
        self.homes[group].stub.on_clock(now, new_leader, &mut out);
        assert!(self.carry_out(group, out).is_none());
    }

    pub(crate) fn sessions(&self, group: usize) -> usize {
        self.homes[group].stub.len()
    }

    /// The groups below `serving` serve from here on; what the others' stubs hand over does not arrive before `reshard`.
    pub(crate) fn lay_out(&mut self, serving: u16, spanning: u16) {
        self.layout = Layout { version: self.layout.version + 1, serving, spanning, ..self.layout.clone() };
        for home in &mut self.homes {
            home.stub.arrange(&self.layout, &[Group(9)]);
            self.pages.extend(home.stub.depart(1));
        }
    }

    pub(crate) fn reshard(&mut self) {
        for (to, page) in std::mem::take(&mut self.pages) {
            let home = &mut self.homes[usize::from(to.0)];
            assert_eq!(home.stub.arrive(&page, GroupTime(home.now)), Ok(()));
        }
        self.homes.iter_mut().for_each(|home| home.stub.arrange(&self.layout, &[]));
    }

    /// A group's replica that starts from a snapshot takes over.
    pub(crate) fn reload_group(&mut self, group: usize) {
        let mut saved = Vec::new();
        self.homes[group].stub.save(&mut saved);
        let settings = SessionSettings::new(self.placement, [7; 32]);
        let mut stub = HomeSessions::new(Group(group as u16), settings);
        assert_eq!(stub.load(&saved), Ok(()));
        self.homes[group].stub = stub;
    }

    /// All replicas of every shard have the same state.
    pub(crate) fn agree(&mut self) {
        self.settle();
        for space in 0..self.numbers.len() {
            let digests: Vec<u64> =
                self.hosts.iter().map(|host| host.servers[space].znodes.digest()).collect();
            assert!(
                digests.windows(2).all(|pair| pair[0] == pair[1]),
                "replicas of shard {space}: {digests:?}"
            );
        }
        assert_eq!(self.rejected, Vec::<&str>::new());
    }
}
