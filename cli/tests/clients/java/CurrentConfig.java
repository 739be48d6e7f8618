import java.net.InetSocketAddress;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.server.quorum.flexible.QuorumVerifier;

/**
 * What Curator makes of `/zookeeper/config`: the servers given first are to become those given second, without an error that
 * nobody handles. Prints what Curator knows in the end; fails with the first thing that is wrong.
 */
public final class CurrentConfig {
    private static final int TIMEOUT_MS = 10_000;
    private static final long PATIENCE_S = 30;

    public static void main(String[] arguments) throws Exception {
        Set<String> wanted = new TreeSet<>(Set.of(arguments[1].split(",")));
        ConcurrentLinkedQueue<String> unhandled = new ConcurrentLinkedQueue<>();
        CuratorFramework curator = CuratorFrameworkFactory.builder()
            .connectString(arguments[0]).sessionTimeoutMs(TIMEOUT_MS).connectionTimeoutMs(TIMEOUT_MS)
            .retryPolicy(new RetryOneTime(100)).ensembleTracker(true).build();
        curator.getUnhandledErrorListenable().addListener((message, error) -> unhandled.add(message + ": " + error));
        curator.start();
        if (!curator.blockUntilConnected((int) PATIENCE_S, TimeUnit.SECONDS)) {
            fail("not connected within " + PATIENCE_S + " s", unhandled);
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!wanted.equals(reported(curator.getCurrentConfig()))) {
            if (!unhandled.isEmpty() || System.nanoTime() > deadline) {
                fail("expected " + wanted + ", found " + reported(curator.getCurrentConfig()), unhandled);
            }
            Thread.sleep(20);
        }
        // It is where the next connection goes.
        String next = curator.getZookeeperClient().getCurrentConnectionString();
        if (!wanted.equals(new TreeSet<>(Set.of(next.split(","))))) {
            fail("expected " + wanted + ", it would connect to " + next, unhandled);
        }
        curator.getZookeeperClient().reset();
        curator.create().orSetData().creatingParentsIfNeeded().forPath("/current/config", new byte[0]);
        curator.close();
        if (!unhandled.isEmpty()) {
            fail("errors that nobody handles", unhandled);
        }
        System.out.println("knows " + String.join(",", wanted));
        System.exit(0);
    }

    /** Where clients are reported to connect. */
    private static Set<String> reported(QuorumVerifier config) {
        Set<String> reported = new TreeSet<>();
        if (config != null) {
            config.getAllMembers().values().forEach(member -> {
                InetSocketAddress address = member.clientAddr;
                reported.add(address == null ? "nowhere" : address.getHostString() + ":" + address.getPort());
            });
        }
        return reported;
    }

    private static void fail(String what, Iterable<String> unhandled) {
        System.out.println("FAILED  " + what);
        unhandled.forEach(error -> System.out.println("unhandled  " + error));
        System.exit(1);
    }
}
