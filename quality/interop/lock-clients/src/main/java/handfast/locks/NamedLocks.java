package handfast.locks;

import java.util.function.IntFunction;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The client libraries, with their defaults. All clients share one connection or pool. */
final class NamedLocks {
    /** The pause before the first retry, and the number of retries, as in Curator's examples. */
    private static final ExponentialBackoffRetry RETRY = new ExponentialBackoffRetry(1_000, 3);

    private NamedLocks() {}

    /** Returns the locks of Redisson by their number. Their watchdog renews what is held. */
    static IntFunction<NamedLock> redisson(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        RedissonClient client = Redisson.create(config);
        return number -> {
            RLock lock = client.getLock("bench/" + number);
            return new NamedLock() {
                @Override
                public void take() {
                    lock.lock();
                }

                @Override
                public void release() {
                    lock.unlock();
                }
            };
        };
    }

    /** Returns the locks of Curator by their number. */
    static IntFunction<NamedLock> curator(String cluster) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(cluster, RETRY);
        client.start();
        return number -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/curator/" + number);
            return new NamedLock() {
                @Override
                public void take() throws Exception {
                    mutex.acquire();
                }

                @Override
                public void release() throws Exception {
                    mutex.release();
                }
            };
        };
    }
}
