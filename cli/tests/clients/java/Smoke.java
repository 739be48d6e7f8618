import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** The official Java client and Curator's recipes against the servers given. Prints a line a check; fails with the first. */
public final class Smoke {
    private static final int TIMEOUT_MS = 10_000;
    private static String servers;
    private static int checks;

    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        check("create, get, set, delete, versions", Smoke::basics);
        check("multi, and its failure", Smoke::multi);
        check("watches: data, child, exist, persistent recursive", Smoke::watches);
        check("ephemeral nodes end with their session", Smoke::ephemerals);
        check("a session survives its connection, and its watches do", Smoke::reconnect);
        check("digest authentication", Smoke::authentication);
        check("calls in flight are answered in order", Smoke::pipeline);
        CuratorFramework curator = CuratorFrameworkFactory.newClient(servers, TIMEOUT_MS, TIMEOUT_MS,
            new ExponentialBackoffRetry(100, 5));
        CuratorFramework other = CuratorFrameworkFactory.newClient(servers, TIMEOUT_MS, TIMEOUT_MS,
            new ExponentialBackoffRetry(100, 5));
        curator.start();
        other.start();
        check("Curator: lock", () -> lock(curator, other));
        check("Curator: read and write lock, semaphore", () -> sharedLocks(curator, other));
        check("Curator: leader latch", () -> latch(curator, other));
        check("Curator: cache", () -> cache(curator, other));
        check("Curator: counters", () -> counters(curator, other));
        check("Curator: barriers", () -> barriers(curator, other));
        check("Curator: persistent node", () -> persistentNode(curator, other));
        check("Curator: TTL node", () -> ttlNode(curator));
        check("Curator: queue", () -> queue(curator, other));
        check("Curator: transaction", () -> transaction(curator));
        curator.close();
        other.close();
        System.out.println(checks + " checks passed");
        System.exit(0);
    }

    private static void check(String name, Check check) throws Exception {
        long began = System.nanoTime();
        try {
            check.run();
        } catch (Throwable failure) {
            System.out.println("FAILED  " + name);
            failure.printStackTrace(System.out);
            System.exit(1);
        }
        checks++;
        System.out.printf("passed  %s  (%d ms)%n", name, (System.nanoTime() - began) / 1_000_000);
    }

    private static void expect(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void same(Object expected, Object found) {
        expect(expected.equals(found), "expected " + expected + ", found " + found);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static <T> T take(BlockingQueue<T> queue) throws InterruptedException {
        T taken = queue.poll(20, TimeUnit.SECONDS);
        expect(taken != null, "nothing within 20 s");
        return taken;
    }

    private static ZooKeeper connect(BlockingQueue<WatchedEvent> events) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(servers, TIMEOUT_MS, event -> {
            if (event.getType() == EventType.None) {
                if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                    connected.countDown();
                }
            } else {
                events.add(event);
            }
        });
        expect(connected.await(20, TimeUnit.SECONDS), "not connected within 20 s");
        return client;
    }

    private static ZooKeeper connect() throws Exception {
        return connect(new LinkedBlockingQueue<>());
    }

    private static void basics() throws Exception {
        try (ZooKeeper client = connect()) {
            Stat stat = new Stat();
            same("/basics", client.create("/basics", bytes("one"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, stat));
            same(0, stat.getVersion());
            same("one", text(client.getData("/basics", false, stat)));
            same(1, client.setData("/basics", bytes("two"), 0).getVersion());
            try {
                client.setData("/basics", bytes("three"), 0);
                expect(false, "a stale version was taken");
            } catch (KeeperException.BadVersionException expected) {
                same("/basics", expected.getPath());
            }
            for (int number = 0; number < 3; number++) {
                String name = client.create("/basics/n-", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
                same(String.format("/basics/n-%010d", number), name);
            }
            same(3, client.getChildren("/basics", false, stat).size());
            same(3, stat.getNumChildren());
            same(3, client.getAllChildrenNumber("/basics"));
            try {
                client.delete("/basics", -1);
                expect(false, "a node with children was deleted");
            } catch (KeeperException.NotEmptyException expected) {
                same("/basics", expected.getPath());
            }
            client.sync("/basics", (code, path, context) -> { }, null);
            expect(client.exists("/nowhere", false) == null, "a node that is not there");
        }
    }

    private static void multi() throws Exception {
        try (ZooKeeper client = connect()) {
            List<OpResult> results = client.multi(List.of(
                Op.create("/multi", bytes("a"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.create("/multi/child", bytes("b"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.setData("/multi", bytes("c"), 0),
                Op.check("/multi", 1),
                Op.delete("/multi/child", 0)));
            same(5, results.size());
            same("/multi", ((OpResult.CreateResult) results.get(0)).getPath());
            same(1, ((OpResult.SetDataResult) results.get(2)).getStat().getVersion());
            try {
                client.multi(List.of(
                    Op.setData("/multi", bytes("d"), -1),
                    Op.check("/multi", 77),
                    Op.delete("/multi", -1)));
                expect(false, "a multi with a wrong version succeeded");
            } catch (KeeperException.BadVersionException expected) {
                List<Integer> codes = new ArrayList<>();
                expected.getResults().forEach(result -> codes.add(((OpResult.ErrorResult) result).getErr()));
                same(List.of(0, -103, -2), codes);
            }
            same("c", text(client.getData("/multi", false, null)));
            List<OpResult> read = client.multi(List.of(Op.getData("/multi"), Op.getChildren("/"), Op.getData("/none")));
            same("c", text(((OpResult.GetDataResult) read.get(0)).getData()));
            same(-101, ((OpResult.ErrorResult) read.get(2)).getErr());
        }
    }

    private static void watches() throws Exception {
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        try (ZooKeeper client = connect(events); ZooKeeper writer = connect()) {
            client.exists("/watched", true);
            writer.create("/watched", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            same(EventType.NodeCreated, take(events).getType());
            client.getData("/watched", true, null);
            client.getChildren("/watched", true);
            writer.setData("/watched", bytes("x"), -1);
            same(EventType.NodeDataChanged, take(events).getType());
            writer.create("/watched/child", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            same(EventType.NodeChildrenChanged, take(events).getType());
            client.addWatch("/watched", AddWatchMode.PERSISTENT_RECURSIVE);
            for (int round = 0; round < 3; round++) {
                writer.setData("/watched/child", bytes("y" + round), -1);
                WatchedEvent event = take(events);
                same(EventType.NodeDataChanged, event.getType());
                same("/watched/child", event.getPath());
            }
            writer.delete("/watched/child", -1);
            same(EventType.NodeDeleted, take(events).getType());
            client.removeAllWatches("/watched", Watcher.WatcherType.Any, false);
            same(EventType.PersistentWatchRemoved, take(events).getType());
        }
    }

    private static void ephemerals() throws Exception {
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        try (ZooKeeper client = connect(events)) {
            ZooKeeper owner = connect();
            owner.create("/mortal", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            Stat stat = client.exists("/mortal", true);
            same(owner.getSessionId(), stat.getEphemeralOwner());
            same(List.of("/mortal"), owner.getEphemerals());
            owner.close();
            same(EventType.NodeDeleted, take(events).getType());
            expect(client.exists("/mortal", false) == null, "it outlives its session");
        }
    }

    private static void reconnect() throws Exception {
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        try (ZooKeeper client = connect(events); ZooKeeper writer = connect()) {
            client.create("/retained", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            client.getData("/retained", true, null);
            long session = client.getSessionId();
            CountDownLatch lost = new CountDownLatch(1);
            CountDownLatch found = new CountDownLatch(1);
            client.register(event -> {
                if (event.getState() == Watcher.Event.KeeperState.Disconnected) {
                    lost.countDown();
                } else if (event.getType() == EventType.None) {
                    found.countDown();
                } else {
                    events.add(event);
                }
            });
            // Somebody else with the same session takes it over: the server closes the first connection.
            ZooKeeper thief = new ZooKeeper(servers, TIMEOUT_MS, event -> { }, session, client.getSessionPasswd());
            expect(lost.await(20, TimeUnit.SECONDS), "the old connection stays");
            abandon(thief);
            expect(found.await(20, TimeUnit.SECONDS), "it does not come back");
            same(session, client.getSessionId());
            expect(client.exists("/retained", false) != null, "the ephemeral node is gone");
            writer.setData("/retained", bytes("x"), -1);
            same(EventType.NodeDataChanged, take(events).getType());
        }
    }

    /** Ends a client without closing its session. */
    private static void abandon(ZooKeeper client) throws Exception {
        java.lang.reflect.Field field = ZooKeeper.class.getDeclaredField("cnxn");
        field.setAccessible(true);
        Object connection = field.get(client);
        java.lang.reflect.Method disconnect = connection.getClass().getDeclaredMethod("disconnect");
        disconnect.setAccessible(true);
        disconnect.invoke(connection);
    }

    private static void authentication() throws Exception {
        try (ZooKeeper client = connect(); ZooKeeper stranger = connect()) {
            client.addAuthInfo("digest", bytes("user:password"));
            client.create("/private", bytes("secret"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            same("secret", text(client.getData("/private", false, null)));
            try {
                stranger.getData("/private", false, null);
                expect(false, "a stranger reads it");
            } catch (KeeperException.NoAuthException expected) {
                same("/private", expected.getPath());
            }
            same(2, client.whoAmI().size());
        }
    }

    private static void pipeline() throws Exception {
        try (ZooKeeper client = connect()) {
            client.create("/pipeline", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            int calls = 2000;
            BlockingQueue<Integer> answers = new LinkedBlockingQueue<>();
            for (int call = 0; call < calls; call++) {
                int number = call;
                if (call % 3 == 0) {
                    client.create("/pipeline/" + call, null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                        (code, path, context, name) -> answers.add(code == 0 ? number : -1), null);
                } else {
                    client.getData("/pipeline/" + (call - call % 3), false,
                        (code, path, context, data, stat) -> answers.add(code == 0 ? number : -1), null);
                }
            }
            for (int call = 0; call < calls; call++) {
                same(call, take(answers));
            }
        }
    }

    private static void lock(CuratorFramework curator, CuratorFramework other) throws Exception {
        InterProcessMutex mine = new InterProcessMutex(curator, "/curator/lock");
        InterProcessMutex theirs = new InterProcessMutex(other, "/curator/lock");
        mine.acquire();
        expect(!theirs.acquire(200, TimeUnit.MILLISECONDS), "two hold the lock");
        BlockingQueue<String> held = new LinkedBlockingQueue<>();
        Thread waiter = new Thread(() -> {
            try {
                theirs.acquire();
                held.add("theirs");
                theirs.release();
            } catch (Exception failure) {
                held.add(failure.toString());
            }
        });
        waiter.start();
        mine.release();
        same("theirs", take(held));
        waiter.join();
    }

    private static void sharedLocks(CuratorFramework curator, CuratorFramework other) throws Exception {
        InterProcessReadWriteLock mine = new InterProcessReadWriteLock(curator, "/curator/shared");
        InterProcessReadWriteLock theirs = new InterProcessReadWriteLock(other, "/curator/shared");
        mine.readLock().acquire();
        expect(theirs.readLock().acquire(5, TimeUnit.SECONDS), "readers exclude each other");
        theirs.readLock().release();
        expect(!theirs.writeLock().acquire(200, TimeUnit.MILLISECONDS), "a writer beside a reader");
        mine.readLock().release();
        expect(theirs.writeLock().acquire(5, TimeUnit.SECONDS), "the writer never gets it");
        theirs.writeLock().release();
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, "/curator/semaphore", 2);
        var leases = semaphore.acquire(2);
        expect(semaphore.acquire(200, TimeUnit.MILLISECONDS) == null, "three leases of two");
        semaphore.returnAll(leases);
    }

    private static void latch(CuratorFramework curator, CuratorFramework other) throws Exception {
        LeaderLatch mine = new LeaderLatch(curator, "/curator/latch", "mine");
        LeaderLatch theirs = new LeaderLatch(other, "/curator/latch", "theirs");
        mine.start();
        expect(mine.await(20, TimeUnit.SECONDS), "nobody leads");
        theirs.start();
        expect(!theirs.await(300, TimeUnit.MILLISECONDS), "two lead");
        same("mine", theirs.getLeader().getId());
        mine.close();
        expect(theirs.await(20, TimeUnit.SECONDS), "nobody follows");
        theirs.close();
    }

    private static void cache(CuratorFramework curator, CuratorFramework other) throws Exception {
        curator.create().creatingParentsIfNeeded().forPath("/curator/cache/a", bytes("1"));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (CuratorCache cache = CuratorCache.build(curator, "/curator/cache")) {
            cache.listenable().addListener((type, old, data) -> {
                var it = data == null ? old : data;
                seen.add(type + " " + it.getPath() + " " + (data == null ? "" : text(it.getData())));
            });
            cache.start();
            List<String> first = List.of(take(seen), take(seen));
            expect(first.contains("NODE_CREATED /curator/cache/a 1"), "the cache starts with " + first);
            other.create().forPath("/curator/cache/b", bytes("2"));
            same("NODE_CREATED /curator/cache/b 2", take(seen));
            other.setData().forPath("/curator/cache/b", bytes("3"));
            same("NODE_CHANGED /curator/cache/b 3", take(seen));
            other.delete().forPath("/curator/cache/b");
            same("NODE_DELETED /curator/cache/b ", take(seen));
        }
    }

    private static void counters(CuratorFramework curator, CuratorFramework other) throws Exception {
        DistributedAtomicLong mine = new DistributedAtomicLong(curator, "/curator/long", new ExponentialBackoffRetry(10, 20));
        DistributedAtomicLong theirs = new DistributedAtomicLong(other, "/curator/long", new ExponentialBackoffRetry(10, 20));
        for (int round = 0; round < 10; round++) {
            expect(mine.increment().succeeded(), "not counted");
            expect(theirs.add(2L).succeeded(), "not counted");
        }
        same(30L, mine.get().postValue());
        SharedCount count = new SharedCount(curator, "/curator/count", 7);
        count.start();
        same(7, count.getCount());
        expect(count.trySetCount(count.getVersionedValue(), 8), "not set");
        same(8, count.getCount());
        count.close();
    }

    private static void barriers(CuratorFramework curator, CuratorFramework other) throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(curator, "/curator/barrier");
        barrier.setBarrier();
        expect(!barrier.waitOnBarrier(200, TimeUnit.MILLISECONDS), "the barrier is open");
        new DistributedBarrier(other, "/curator/barrier").removeBarrier();
        expect(barrier.waitOnBarrier(20, TimeUnit.SECONDS), "the barrier stays shut");
        BlockingQueue<Boolean> entered = new LinkedBlockingQueue<>();
        // Who enters while another one is already leaving may wait in vain: Curator counts who is there.
        CyclicBarrier met = new CyclicBarrier(2);
        for (CuratorFramework one : List.of(curator, other)) {
            new Thread(() -> {
                try {
                    DistributedDoubleBarrier both = new DistributedDoubleBarrier(one, "/curator/double", 2);
                    entered.add(both.enter(20, TimeUnit.SECONDS));
                    met.await(20, TimeUnit.SECONDS);
                    entered.add(both.leave(20, TimeUnit.SECONDS));
                } catch (Exception failure) {
                    entered.add(false);
                }
            }).start();
        }
        for (int step = 0; step < 4; step++) {
            same(true, take(entered));
        }
    }

    private static void persistentNode(CuratorFramework curator, CuratorFramework other) throws Exception {
        PersistentNode node = new PersistentNode(curator, CreateMode.EPHEMERAL, false, "/curator/persistent", bytes("x"));
        node.start();
        expect(node.waitForInitialCreate(20, TimeUnit.SECONDS), "not created");
        BlockingQueue<String> created = new LinkedBlockingQueue<>();
        node.getListenable().addListener(created::add);
        other.delete().forPath("/curator/persistent");
        same("/curator/persistent", take(created));
        node.close();
    }

    private static void ttlNode(CuratorFramework curator) throws Exception {
        PersistentTtlNode node = new PersistentTtlNode(curator, "/curator/ttl", 60_000, bytes("x"));
        node.start();
        expect(node.waitForInitialCreate(20, TimeUnit.SECONDS), "not created");
        same("x", text(curator.getData().forPath("/curator/ttl")));
        node.close();
    }

    private static void queue(CuratorFramework curator, CuratorFramework other) throws Exception {
        SimpleDistributedQueue in = new SimpleDistributedQueue(curator, "/curator/queue");
        SimpleDistributedQueue out = new SimpleDistributedQueue(other, "/curator/queue");
        for (int item = 0; item < 20; item++) {
            in.offer(bytes("item " + item));
        }
        for (int item = 0; item < 20; item++) {
            same("item " + item, text(out.take()));
        }
    }

    private static void transaction(CuratorFramework curator) throws Exception {
        curator.create().orSetData().creatingParentContainersIfNeeded().forPath("/curator/tx/a", bytes("1"));
        var results = curator.transaction().forOperations(
            curator.transactionOp().check().withVersion(0).forPath("/curator/tx/a"),
            curator.transactionOp().create().forPath("/curator/tx/b", bytes("2")),
            curator.transactionOp().delete().forPath("/curator/tx/a"));
        same(3, results.size());
        same(List.of("b"), curator.getChildren().forPath("/curator/tx"));
        curator.delete().deletingChildrenIfNeeded().forPath("/curator/tx");
    }
}
