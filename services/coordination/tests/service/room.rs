//! Users that ask for more than they take.

use crate::client::{Client, Heard, open_acl};
use crate::driver::{Cluster, Shape};
use coordination::wire::{JuteOutput, op, write_acls};
use parts::ReplyBounds;

const REPLIES: ReplyBounds = ReplyBounds { bytes_max: 64 << 10, free_bytes: 1 << 10 };

fn cluster(seed: u64) -> Cluster {
    let shape = Shape { hosts: 1, groups: 1, shards: 2, seed };
    Cluster::with(shape, |settings| settings.replies = REPLIES)
}

/// What a read of one node asks for.
fn read(path: &str, watch: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(path);
    out.push(u8::from(watch));
    out
}

fn create(cluster: &mut Cluster, user: &mut Client, path: &str, bytes: usize) {
    let mut out = Vec::new();
    out.put_text(path);
    out.put_buffer(Some(&vec![7; bytes]));
    write_acls(&open_acl(), &mut out);
    out.put_i32(0);
    let reply = user.ask(cluster, op::CREATE, &out);
    assert_eq!(reply.error, 0);
}

/// Takes what has come, notifies the gateway, and goes on until nothing comes.
fn take_all(cluster: &mut Cluster, user: &mut Client) -> Vec<Heard> {
    let mut heard = Vec::new();
    loop {
        cluster.settle();
        if cluster.unheard(user.node) == 0 {
            return heard;
        }
        heard.extend(user.hear(cluster));
        let all = cluster.written(user.node);
        cluster.taken(user.node, all);
    }
}

// A user that pipelines reads and takes nothing has the shards copy all of it: 28 kB of requests became 1 GB of answers.
#[test]
fn a_user_that_takes_nothing_is_made_no_more_answers() {
    for seed in 0..20 {
        let mut cluster = cluster(seed);
        let mut polite = Client::connect(&mut cluster, 0);
        create(&mut cluster, &mut polite, "/large", 5_000);
        create(&mut cluster, &mut polite, "/small", 10);
        let mut mute = Client::connect(&mut cluster, 0);
        for _ in 0..500 {
            mute.send(&mut cluster, op::GET_DATA, &read("/large", false));
        }
        cluster.settle();
        let came = cluster.unheard(mute.node);
        assert!((5_000..11_000).contains(&came), "seed {seed}: {came} bytes were written for who takes none");
        assert_eq!(cluster.answers_held(mute.node), (0, 0), "seed {seed}: none is made that waits");
        let reply = polite.ask(&mut cluster, op::GET_DATA, &read("/small", false));
        assert_eq!(reply.data(), [7; 10], "seed {seed}");
        // It was slow, and not gone: it gets all that it asked for, in order.
        let heard = take_all(&mut cluster, &mut mute);
        let xids: Vec<i32> = heard
            .iter()
            .map(|heard| match heard {
                Heard::Reply(reply) => {
                    assert_eq!(reply.data().len(), 5_000, "seed {seed}");
                    reply.xid
                }
                Heard::Event { .. } => panic!("seed {seed}: {heard:?}"),
            })
            .collect();
        assert_eq!(xids, (1..=500).collect::<Vec<i32>>(), "seed {seed}");
        let metrics = cluster.metrics(0);
        assert!(metrics.waits_for_room > 0 && metrics.answers_withheld > 0, "seed {seed}: {metrics:?}");
        assert_eq!(metrics.owed_bytes, 0, "seed {seed}: what was taken is owed no more");
    }
}

// Many users that take nothing leave no room for one who does, or take the host's memory.
#[test]
fn many_users_that_take_nothing_leave_room_for_others() {
    let mut cluster = cluster(3);
    let mut polite = Client::connect(&mut cluster, 0);
    create(&mut cluster, &mut polite, "/large", 6_000);
    let mut mute: Vec<Client> = (0..40).map(|_| Client::connect(&mut cluster, 0)).collect();
    for user in &mut mute {
        for _ in 0..20 {
            user.send(&mut cluster, op::GET_DATA, &read("/large", false));
        }
    }
    cluster.settle();
    let owed: usize = mute.iter().map(|user| cluster.unheard(user.node)).sum();
    assert!(owed <= REPLIES.bytes_max + mute.len() * 2 * REPLIES.free_bytes, "{owed} bytes");
    let reply = polite.ask(&mut cluster, op::EXISTS, &read("/large", false));
    assert_eq!(reply.error, 0, "a small answer never waits");
    // While others wait for room, those who hold it and take nothing are let go.
    let began = cluster.metrics(0).unread;
    cluster.pass(7_000);
    assert!(cluster.metrics(0).unread > began, "{:?}", cluster.metrics(0));
    assert!(cluster.closed.values().any(|reason| reason.contains("reads nothing")), "{:?}", cluster.closed);
}

// A watch that is left by an answer nobody gets is announced too early, or not at all.
#[test]
fn an_answer_that_waited_for_room_leaves_its_watch() {
    for seed in 0..20 {
        let mut cluster = cluster(100 + seed);
        let mut writer = Client::connect(&mut cluster, 0);
        create(&mut cluster, &mut writer, "/large", 5_000);
        let mut user = Client::connect(&mut cluster, 0);
        for _ in 0..3 {
            user.send(&mut cluster, op::GET_DATA, &read("/large", true));
        }
        cluster.settle();
        let mut set = Vec::new();
        set.put_text("/large");
        set.put_buffer(Some(&[8; 4_000]));
        set.put_i32(-1);
        assert_eq!(writer.ask(&mut cluster, op::SET_DATA, &set).error, 0);
        let heard = take_all(&mut cluster, &mut user);
        let replies = heard.iter().filter(|heard| matches!(heard, Heard::Reply(_))).count();
        let events = heard.len() - replies;
        assert_eq!(replies, 3, "seed {seed}: {} heard", heard.len());
        // A reader that saw the old state is notified of the new one; a reader that saw the new one watches that.
        let last = heard.iter().rev().find_map(|heard| match heard {
            Heard::Reply(reply) => Some(reply.data().len()),
            Heard::Event { .. } => None,
        });
        assert_eq!(last, Some(4_000), "seed {seed}");
        assert!(events <= 1, "seed {seed}: {events} events of one change");
        assert_eq!(writer.ask(&mut cluster, op::SET_DATA, &set).error, 0);
        let heard = take_all(&mut cluster, &mut user);
        assert_eq!(heard.len(), 1, "seed {seed}: the watch of the last answer was announced once: {heard:?}");
    }
}

// An answer that can never be sent must not hold up its connection for ever.
#[test]
fn an_answer_beyond_all_bounds_is_refused() {
    let mut cluster = cluster(7);
    let mut user = Client::connect(&mut cluster, 0);
    create(&mut cluster, &mut user, "/large", 60_000);
    create(&mut cluster, &mut user, "/small", 10);
    let refused = user.ask(&mut cluster, op::GET_DATA, &read("/large", false));
    assert_eq!((refused.error, refused.body), (-8, Vec::new()));
    let reply = user.ask(&mut cluster, op::GET_DATA, &read("/small", false));
    assert_eq!(reply.data(), [7; 10]);
    assert_eq!(cluster.metrics(0).answers_refused, 1);
}

// A writer waits for what others have in flight: large writes that a few clients pipeline are a second of everybody's disk.
#[test]
fn large_writes_of_many_are_in_flight_one_at_a_time() {
    let shape = Shape { hosts: 1, groups: 1, shards: 2, seed: 9 };
    let mut cluster = Cluster::with(shape, |_| ());
    let mut writers: Vec<Client> = (0..6).map(|_| Client::connect(&mut cluster, 0)).collect();
    create(&mut cluster, &mut writers[0], "/large", 10);
    let mut set = Vec::new();
    set.put_text("/large");
    set.put_buffer(Some(&[8; 900_000]));
    set.put_i32(-1);
    for writer in &mut writers {
        (0..4).for_each(|_| _ = writer.send(&mut cluster, op::SET_DATA, &set));
    }
    let in_flight = cluster.metrics(0).outstanding;
    assert!((6..=7).contains(&in_flight), "{in_flight} writes of 900 kB are in flight");
    for writer in &mut writers {
        let replies = take_all(&mut cluster, writer);
        assert_eq!(replies.len(), 4, "every write is answered, one after the other");
    }
}

// Of those who wait for a turn always the same went first: others waited for seconds behind readers of large answers.
#[test]
fn readers_of_large_answers_let_others_have_their_turns() {
    let shape = Shape { hosts: 1, groups: 1, shards: 1, seed: 11 };
    let mut cluster = Cluster::with(shape, |_| ());
    let mut users: Vec<Client> = (0..10).map(|_| Client::connect(&mut cluster, 0)).collect();
    create(&mut cluster, &mut users[0], "/large", 900_000);
    create(&mut cluster, &mut users[0], "/small", 10);
    // One polite user came before the readers, and one after them.
    let mut polite = [users.remove(9), users.remove(0)];
    let mut answers = 0;
    for request in 0..40 {
        for user in &mut users {
            (0..10).for_each(|_| _ = user.send(&mut cluster, op::GET_DATA, &read("/large", false)));
        }
        for user in &mut polite {
            user.send(&mut cluster, op::GET_DATA, &read("/small", false));
        }
        let mut turns = 0;
        while polite.iter().any(|user| cluster.unheard(user.node) == 0) {
            turns += 1;
            assert!(turns <= 25, "request {request}: somebody has waited for {turns} turns");
            cluster.now.0 += 250_000;
            for user in &users {
                answers += usize::from(cluster.unheard(user.node) >= 900_000);
                cluster.output(user.node);
                let all = cluster.written(user.node);
                cluster.taken(user.node, all);
            }
            cluster.work(20);
        }
        polite.iter_mut().for_each(|user| _ = user.hear(&mut cluster));
    }
    assert!(answers > 40, "{answers} large answers: the readers were not busy");
}
