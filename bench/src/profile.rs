//! Profiles: what steps cost on one kind of machine, published or measured.

use crate::step::PricedStep;
use serde::{Deserialize, Serialize};
use sim::cost::{Cost, Fsync, Handling, Link, MachineSpec, Tariff};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a kind of machine costs. Costs are nanoseconds of one core.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Where its numbers come from.
    pub about: String,
    /// The network.
    pub network: Network,
    /// The driver: everything around the handlers.
    pub driver: Driver,
    /// The handlers, by step; what is not named costs what `other` does.
    pub handle: BTreeMap<String, Handle>,
}

/// A network.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// From card to card, in microseconds.
    pub latency_us: f64,
    /// Of a machine's card in each direction; 0: more than matters.
    pub gigabits_per_second: f64,
    /// On the wire, beside a message's own bytes.
    pub overhead_bytes: u64,
}

/// What surrounds handlers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// A burst.
    pub burst: f64,
    /// Reading from a peer, once a burst.
    pub read: f64,
    /// Writing to a peer, once a burst.
    pub write: f64,
    /// A message received.
    pub receive: f64,
    /// A byte received.
    pub receive_byte: f64,
    /// A message sent.
    pub send: f64,
    /// A byte sent.
    pub send_byte: f64,
    /// A byte put into the journal.
    pub append_byte: f64,
    /// A timer.
    pub timer: f64,
    /// A local application's call.
    #[serde(default)]
    pub request: f64,
    /// Messages that are worked off together at most; 1: none are.
    pub burst_inputs_max: usize,
    /// An fsync, in microseconds; 0: journals are memory.
    pub fsync_us: f64,
    /// The core waits for an fsync.
    pub fsync_blocks: bool,
}

/// What a handler costs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    /// A message.
    pub message: f64,
    /// And each command, read or answer in it.
    #[serde(default)]
    pub item: f64,
}

/// Why a profile cannot be used.
#[derive(Debug)]
pub enum ProfileError {
    /// No profile has this name, and there is no such file.
    Unknown(String),
    /// The file cannot be read.
    Unreadable(std::io::Error),
    /// It is no profile.
    Malformed(String),
    /// It names a step that no role knows.
    NoSuchStep(String),
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(name) => {
                let names: Vec<String> = Profile::named().into_iter().map(|profile| profile.name).collect();
                write!(f, "no profile and no file is called {name}; profiles are {}", names.join(", "))
            }
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::Malformed(what) => write!(f, "{}", what.trim_end()),
            Self::NoSuchStep(step) => write!(f, "no role has a step called {step}"),
        }
    }
}

impl std::error::Error for ProfileError {}

fn handles(rows: &[(PricedStep, f64, f64)]) -> BTreeMap<String, Handle> {
    rows.iter().map(|&(step, message, item)| (step.name().to_owned(), Handle { message, item })).collect()
}

impl Profile {
    /// The profiles that come with the program.
    pub fn named() -> Vec<Profile> {
        vec![Self::m5_xlarge(), Self::d430(), Self::t2_large(), Self::m510(), Self::c4_2xlarge()]
    }

    /// The testbed of the compartmentalization paper: AWS m5.xlarge, Scala, Netty, one thread a role, nothing on disk.
    ///
    /// Section 8 publishes rates, and each gives one equation for the nanoseconds that one machine spends on a command of 16 bytes.
    /// `in` and `out` are a message received and sent without its handler and bytes; `b` are the bytes of the messages named, a
    /// nanosecond each (what copies through a managed heap and a serializer cost: an assumption, on which Figure 29 rests).
    ///
    /// | published | equation | so |
    /// |---|---|---|
    /// | unreplicated, 250,000/s (Figure 28a) | in + out + handle + b = 4000 | in + out < 4000 |
    /// | 2 replicas, 135,000/s (Figure 31a, the plateau) | in + handle + out / 2 + b = 7407 | replica.chosen 5474 |
    /// | more replicas, 150,000/s (Figure 31a, the end) | in + handle + out / 4 + b about 6667 | out large: in 500, out 2500 |
    /// | the leader, the same | in + handle + out + b = 6667 | leader.propose 3401 |
    /// | 2 proxy leaders, 70,000/s (Figure 31a, the second bar) | 3 in + 4 out + handlers + b = 28,571 | proxy_leader.assign 6305, .phase2b 5000 |
    /// | 6 replicas, reads only, 650,000/s (Figure 32a) | in + handle + out + b = 9231 | replica.read 6101 |
    /// | the same in batches of 50, 17.5 million/s (Figure 32b) | in + handle + 50 items + out + b = 17,143 | of that, 80 an item |
    /// | 3 unbatchers, 800,000/s (Figure 28b) | out + item + b = 3750 | unbatcher.results 1140 an item |
    /// | 2 batchers suffice for that | in + handle + b < 2500 | batcher.submit 1500 |
    /// | unreplicated in batches, 1,000,000/s (Figure 28b) | item + b about 1000 | unreplicated.propose 770 an item |
    ///
    /// Acceptors are "never the bottleneck" for writes: 2000 for a vote is below what would make them one, and 1000 to say how far
    /// they have voted. Plain MultiPaxos is no input: what the co-located roles come to is a result. The network is "never a
    /// bottleneck"; its latency is what is usual within an availability zone.
    pub fn m5_xlarge() -> Profile {
        Profile {
            name: "m5.xlarge".to_owned(),
            about: "compartmentalization paper, section 8: AWS m5.xlarge, Scala and Netty, in memory"
                .to_owned(),
            network: Network { latency_us: 60.0, gigabits_per_second: 10.0, overhead_bytes: 66 },
            driver: Driver {
                burst: 0.0,
                read: 0.0,
                write: 0.0,
                receive: 500.0,
                receive_byte: 1.0,
                send: 2_500.0,
                send_byte: 1.0,
                append_byte: 0.0,
                timer: 1_000.0,
                request: 0.0,
                burst_inputs_max: 1,
                fsync_us: 0.0,
                fsync_blocks: false,
            },
            handle: handles(&[
                (PricedStep::Submit, 1_500.0, 0.0),
                (PricedStep::Query, 1_500.0, 0.0),
                (PricedStep::PreReadAck, 1_000.0, 0.0),
                (PricedStep::Done, 500.0, 0.0),
                (PricedStep::Propose, 3_401.0, 0.0),
                (PricedStep::Executed, 1_000.0, 0.0),
                (PricedStep::Assign, 6_305.0, 0.0),
                (PricedStep::Phase2b, 5_000.0, 0.0),
                (PricedStep::Phase2a, 2_000.0, 0.0),
                (PricedStep::PreRead, 1_000.0, 0.0),
                (PricedStep::Chosen, 5_317.0, 157.0),
                (PricedStep::Voted, 500.0, 0.0),
                (PricedStep::Read, 6_021.0, 80.0),
                (PricedStep::Unbatch, 500.0, 1_140.0),
                (PricedStep::Unreplicated, 0.0, 770.0),
                (PricedStep::Other, 1_000.0, 0.0),
            ]),
        }
    }

    /// The testbed of Mason's paper: Emulab d430 (two eight-core Haswells at 2.4 GHz, 10 Gb/s), C++, eRPC over DPDK, eight
    /// threads a machine.
    ///
    /// Section 7 publishes throughputs with their latencies, and so by Little's law how many calls were in flight: 31.5 million
    /// operations a second within 243 us are 60 for each of the 128 leading threads of 48 proxy machines (section 7.4 says that a
    /// machine has 8 leaders or 8 followers, so a third of them lead), in batches of about 8. RSMKeeper does 150,000 a second within
    /// 211 us, so with 32 in flight. A shard's one thread does 1.29 million a second within 192 us, with 15 for each leading thread.
    /// eRPC itself is published at about 5 million small messages a second and core in each direction: 100
    /// nanoseconds a message in or out, and bursts are drained together.
    ///
    /// Our messages are not theirs (numbers come for a batch, the log's entry is a batch, calls of one client that are sent together
    /// share a message), so the handlers are solved for the first two of these rates at those calls in flight: what is paid for an
    /// operation (2200 nanoseconds to arrive and be queued, 5 for each byte of its entry when that is applied) mostly decides the first,
    /// what is paid for an entry mostly the second. 600 nanoseconds to execute one operation of a message give the third.
    ///
    /// CORFU' is bound by network cards at its sequencer (14.5 million requests a second) and, by 7.3 million appends of 64 bytes a
    /// shard, at its storage servers: our messages, with 60 bytes around each on the wire, are as long as that says (86 bytes for a
    /// token, 171 for an entry), so cards are no assumption there. Handlers take less than the cards do.
    pub fn d430() -> Profile {
        Profile {
            name: "d430".to_owned(),
            about: "Mason's paper, section 7: Emulab d430, C++ and eRPC over DPDK".to_owned(),
            network: Network { latency_us: 6.0, gigabits_per_second: 10.0, overhead_bytes: 60 },
            driver: Driver {
                burst: 100.0,
                read: 0.0,
                write: 0.0,
                receive: 100.0,
                receive_byte: 0.1,
                send: 100.0,
                send_byte: 0.1,
                append_byte: 0.0,
                timer: 200.0,
                request: 0.0,
                burst_inputs_max: 32,
                fsync_us: 0.0,
                fsync_blocks: false,
            },
            handle: handles(&[
                (PricedStep::ProxySubmit, 120.0, 2_200.0),
                (PricedStep::Allocated, 240.0, 0.0),
                (PricedStep::Applied, 120.0, 0.0),
                (PricedStep::Allocate, 60.0, 5.0),
                (PricedStep::Propose, 300.0, 0.0),
                (PricedStep::Executed, 60.0, 0.0),
                (PricedStep::Assign, 300.0, 0.0),
                (PricedStep::Phase2a, 480.0, 0.0),
                (PricedStep::Phase2b, 180.0, 0.0),
                (PricedStep::Chosen, 180.0, 0.0),
                (PricedStep::ChosenEntry, 480.0, 5.0),
                (PricedStep::Voted, 60.0, 0.0),
                (PricedStep::Deliver, 100.0, 600.0),
                (PricedStep::ShardRead, 100.0, 600.0),
                (PricedStep::NextPosition, 60.0, 0.0),
                (PricedStep::StorageWrite, 200.0, 0.0),
                (PricedStep::StorageRead, 200.0, 0.0),
                (PricedStep::Submit, 300.0, 300.0),
                (PricedStep::Other, 100.0, 0.0),
            ]),
        }
    }

    /// The testbed of the RSS paper's section 6.1: AWS t2.large, C++ over TAPIR's framework, one thread a shard, in memory.
    ///
    /// The paper publishes no rate for it. All costs are inputs: a datagram of TAPIR's transport takes some 10 microseconds of such a
    /// core in each direction. What the figure shows is decided by the latencies between sites, by the skew of the keys and by the
    /// load, which is a share of the simulated deployment's own most.
    pub fn t2_large() -> Profile {
        Profile {
            name: "t2.large".to_owned(),
            about: "RSS paper, section 6.1: AWS t2.large, C++ over TAPIR's framework, in memory; costs are inputs"
                .to_owned(),
            network: Network { latency_us: 150.0, gigabits_per_second: 0.5, overhead_bytes: 66 },
            driver: Driver {
                burst: 1_000.0,
                read: 0.0,
                write: 0.0,
                receive: 10_000.0,
                receive_byte: 1.0,
                send: 10_000.0,
                send_byte: 1.0,
                append_byte: 0.0,
                timer: 1_000.0,
                request: 0.0,
                burst_inputs_max: 1,
                fsync_us: 0.0,
                fsync_blocks: false,
            },
            handle: Self::transactions(1_000.0),
        }
    }

    /// The testbed of the RSS paper's section 6.2: CloudLab m510 (eight-core Xeon D at 2 GHz, 10 Gb/s), the same program, within one
    /// site. All costs are inputs, as for [`Profile::t2_large`].
    pub fn m510() -> Profile {
        Profile {
            name: "m510".to_owned(),
            about: "RSS paper, section 6.2: CloudLab m510, C++ over TAPIR's framework, in memory; costs are inputs"
                .to_owned(),
            network: Network { latency_us: 50.0, gigabits_per_second: 10.0, overhead_bytes: 66 },
            driver: Driver { receive: 5_000.0, send: 5_000.0, ..Self::t2_large().driver },
            handle: Self::transactions(500.0),
        }
    }

    /// The testbed of the FuzzyLog paper's section 6: AWS c4.2xlarge, Rust, one thread a partition, in memory.
    ///
    /// The paper publishes rates of whole deployments: 3 million appends a second over two partitions (section 6.5), so that a head spends
    /// some 650 nanoseconds on an append, and Tango's sequencer with 600,000 positions a second (section 2.2). What a client's library
    /// spends on an append decides how many clients it takes to load a partition, and is not published: it is taken as 3
    /// microseconds, 330,000 appends a second and client. All of these are inputs.
    pub fn c4_2xlarge() -> Profile {
        Profile {
            name: "c4.2xlarge".to_owned(),
            about: "FuzzyLog's paper, section 6: AWS c4.2xlarge, in memory; costs are inputs".to_owned(),
            network: Network { latency_us: 50.0, gigabits_per_second: 2.5, overhead_bytes: 66 },
            driver: Driver {
                burst: 200.0,
                read: 0.0,
                write: 0.0,
                receive: 150.0,
                receive_byte: 0.2,
                send: 150.0,
                send_byte: 0.2,
                append_byte: 0.0,
                timer: 200.0,
                request: 1_800.0,
                burst_inputs_max: 32,
                fsync_us: 0.0,
                fsync_blocks: false,
            },
            handle: handles(&[
                (PricedStep::SubmitCommand, 300.0, 0.0),
                (PricedStep::ForwardCommands, 100.0, 300.0),
                (PricedStep::ChainWord, 50.0, 0.0),
                (PricedStep::CommandDone, 800.0, 0.0),
                (PricedStep::NodesPage, 300.0, 250.0),
                (PricedStep::Other, 100.0, 0.0),
            ]),
        }
    }

    /// How the same machine hands out positions: one that spends so many nanoseconds on each.
    pub fn sequencer(&self, nanos: f64) -> Tariff {
        let mut profile = self.clone();
        let rest = profile.driver.receive + profile.driver.send;
        profile.set(PricedStep::SubmitCommand, Handle { message: (nanos - rest).max(0.0), item: 0.0 });
        profile.tariff()
    }

    /// Handlers of a shard's role: so many nanoseconds a message, and as many for each key in it.
    fn transactions(nanos: f64) -> BTreeMap<String, Handle> {
        handles(&[
            (PricedStep::ReadLocked, nanos, nanos),
            (PricedStep::PrepareTxn, nanos, nanos),
            (PricedStep::DidPrepare, nanos, 0.0),
            (PricedStep::Decided, nanos, 0.0),
            (PricedStep::ReadAt, nanos, nanos),
            (PricedStep::Other, nanos, 0.0),
        ])
    }

    /// A named profile, or one in a file.
    ///
    /// # Errors
    /// If there is neither, or the file is no profile.
    pub fn find(name: &str) -> Result<Profile, ProfileError> {
        if let Some(profile) = Self::named().into_iter().find(|profile| profile.name == name) {
            return Ok(profile);
        }
        match std::fs::read_to_string(name) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ProfileError::Unknown(name.to_owned()))
            }
            Err(error) => Err(ProfileError::Unreadable(error)),
        }
    }

    /// Reads what [`Profile::to_toml`] writes.
    ///
    /// # Errors
    /// If it is no profile, or names what does not exist.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile =
            toml::from_str(text).map_err(|error| ProfileError::Malformed(error.to_string()))?;
        let known = |name: &String| PricedStep::ALL.iter().any(|step| step.name() == name);
        match profile.handle.keys().find(|name| !known(name)) {
            Some(name) => Err(ProfileError::NoSuchStep(name.clone())),
            None => Ok(profile),
        }
    }

    /// As a file.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("numbers and names are written without fail")
    }

    /// What a step's handler costs.
    pub fn handle(&self, step: PricedStep) -> Handle {
        let handle = self.handle.get(step.name()).or_else(|| self.handle.get(PricedStep::Other.name()));
        handle.copied().unwrap_or_default()
    }

    /// Sets what a step's handler costs.
    pub fn set(&mut self, step: PricedStep, handle: Handle) {
        self.handle.insert(step.name().to_owned(), handle);
    }

    /// The link between machines.
    pub fn link(&self) -> Link {
        let latency = Duration::from_nanos((self.network.latency_us * 1e3) as u64);
        Link { latency, overhead_bytes: self.network.overhead_bytes }
    }

    /// A machine with so many cores in use.
    pub fn machine(&self, cores: usize) -> MachineSpec {
        let rate = self.network.gigabits_per_second;
        let bytes_per_second = (rate > 0.0).then_some((rate * 1e9 / 8.0) as u64);
        MachineSpec { cores, bytes_per_second }
    }

    /// What a host of this machine spends.
    pub fn tariff(&self) -> Tariff {
        let cost = Cost::nanos;
        let driver = self.driver;
        let handling = |&step: &PricedStep| {
            let Handle { message, item } = self.handle(step);
            Handling { message: cost(message), item: cost(item) }
        };
        Tariff {
            burst: cost(driver.burst),
            read: cost(driver.read),
            write: cost(driver.write),
            receive: cost(driver.receive),
            receive_byte: cost(driver.receive_byte),
            send: cost(driver.send),
            send_byte: cost(driver.send_byte),
            append_byte: cost(driver.append_byte),
            timer: cost(driver.timer),
            request: cost(driver.request),
            handle: PricedStep::ALL.iter().map(handling).collect(),
            burst_inputs_max: driver.burst_inputs_max.max(1),
            fsync: (driver.fsync_us > 0.0).then(|| Fsync {
                latency: Duration::from_nanos((driver.fsync_us * 1e3) as u64),
                blocks: driver.fsync_blocks,
            }),
        }
    }

    /// As [`Profile::tariff`], for a role that all threads of its machine serve together, without waiting for each other: it costs
    /// each of them its share.
    pub fn tariff_of_threads(&self, threads: u64) -> Tariff {
        let mut tariff = self.tariff();
        let threads = threads.max(1);
        for cost in [
            &mut tariff.burst,
            &mut tariff.read,
            &mut tariff.write,
            &mut tariff.receive,
            &mut tariff.receive_byte,
            &mut tariff.send,
            &mut tariff.send_byte,
        ] {
            *cost = *cost / threads;
        }
        for handling in &mut tariff.handle {
            (handling.message, handling.item) = (handling.message / threads, handling.item / threads);
        }
        tariff
    }

    /// As [`Profile::tariff`], for the machine whose state is not replicated.
    pub fn tariff_unreplicated(&self) -> Tariff {
        let mut tariff = self.tariff();
        tariff.handle[PricedStep::Propose as usize] = tariff.handle[PricedStep::Unreplicated as usize];
        tariff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A profile that does not read back cannot be saved.
    #[test]
    fn profiles_read_back() {
        for profile in Profile::named() {
            assert_eq!(Profile::parse(&profile.to_toml()).unwrap(), profile);
        }
        let wrong = Profile::m5_xlarge().to_toml().replace("leader.propose", "leader.propse");
        assert!(matches!(Profile::parse(&wrong), Err(ProfileError::NoSuchStep(_))));
    }
}
