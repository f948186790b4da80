package handfast.locks;

import handfast.load.Load;
import handfast.load.Operation;
import java.io.PrintStream;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;

/**
 * Clients that take and release locks as those of {@code handfast-bench locks} do: each a lock of
 * its own ({@code pairs}), or all the same ({@code hand-over}).
 */
public final class LockClients {
    private final IntFunction<NamedLock> make;
    private final Map<Integer, NamedLock> made = new ConcurrentHashMap<>();

    private LockClients(IntFunction<NamedLock> make) {
        this.make = make;
    }

    /** Arguments: {@code redisson} or {@code curator}, and the server's address. */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = Load.answers();
        LockClients clients = new LockClients(switch (arguments[0]) {
            case "redisson" -> NamedLocks.redisson(arguments[1]);
            case "curator" -> NamedLocks.curator(arguments[1]);
            default -> throw new IllegalArgumentException(arguments[0]);
        });
        Load.serve(answers, name -> switch (name) {
            case "pairs" -> clients::pair;
            case "hand-over" -> clients.handOver();
            default -> throw new IllegalArgumentException(name);
        });
        // The library's threads would keep the process.
        System.exit(0);
    }

    private NamedLock lock(int number) {
        return made.computeIfAbsent(number, make::apply);
    }

    private Operation.End pair(int client) {
        NamedLock lock = lock(client);
        try {
            long begun = System.nanoTime();
            lock.take();
            long took = System.nanoTime() - begun;
            lock.release();
            return Operation.End.took(took);
        } catch (Exception failure) {
            return failed(failure);
        }
    }

    /** Of one run: the time from the start of a release until the next client holds the lock. */
    private Operation handOver() {
        AtomicLong released = new AtomicLong();
        return client -> {
            NamedLock lock = lock(0);
            try {
                lock.take();
                long release = released.get();
                long now = System.nanoTime();
                released.set(System.nanoTime());
                lock.release();
                return release == 0 ? Operation.End.WELL : Operation.End.took(now - release);
            } catch (Exception failure) {
                return failed(failure);
            }
        };
    }

    private static Operation.End failed(Exception failure) {
        failure.printStackTrace();
        return Operation.End.failed(failure.getClass().getSimpleName());
    }
}
