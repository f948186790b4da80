package handfast.interop;

import java.io.PrintStream;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ThreadLocalRandom;
import javax.sql.DataSource;

/** One of the clients: a thread that runs globals, one after the other, and counts their ends. */
final class ContentionClient implements Runnable {
    private static final int BRANCHES = 2;
    private static final String POINT = "UPDATE item SET cnt = cnt + 1 WHERE id = ?";
    private static final String GENERAL =
        "UPDATE item SET cnt = cnt + 1 WHERE id BETWEEN ? AND ?";
    private static final int TIMEOUT_MILLIS = 60_000;
    private static final String COMMITTED = "committed";

    private final DataSource source;
    private final long rows;
    private final CyclicBarrier opening;
    private final Contention.Window window;

    /** From the first attempt since the last commit until the commit, of each in the window. */
    private final List<Long> latenciesNanos = new ArrayList<>();
    /** Why globals within the window did not commit. */
    private final Map<String, Integer> failures = new TreeMap<>();
    private int commits;

    ContentionClient(
            DataSource source, long rows, CyclicBarrier opening, Contention.Window window) {
        this.source = source;
        this.rows = rows;
        this.opening = opening;
        this.window = window;
    }

    /** Lines: {@code latency CLIENT NANOS}, {@code failed COUNT REASON}, {@code commits COUNT}. */
    void print(int number, PrintStream answers) {
        latenciesNanos.forEach(nanos -> answers.println("latency " + number + " " + nanos));
        failures.forEach((reason, count) -> answers.println("failed " + count + " " + reason));
        answers.println("commits " + commits);
    }

    @Override
    public void run() {
        runGlobal();
        try {
            opening.await();
        } catch (InterruptedException | BrokenBarrierException end) {
            throw new IllegalStateException(end);
        }
        long begun = System.nanoTime();
        while (!window.isOver(System.nanoTime())) {
            String end = runGlobal();
            long now = System.nanoTime();
            boolean counts = window.holds(now);
            if (!end.equals(COMMITTED)) {
                if (counts) {
                    failures.merge(end, 1, Integer::sum);
                }
                continue;
            }
            if (counts) {
                latenciesNanos.add(now - begun);
            }
            begun = now;
        }
    }

    /** What the application throws for the client to roll back. */
    private static final class RollBack extends Exception {
        private static final long serialVersionUID = 1L;
    }

    /** Runs a global. What comes back is a word for its end. */
    private String runGlobal() {
        // Unless the work fails, the coordinator is what rolls back.
        String[] reason = {"coordinator"};
        String end;
        try {
            end = Seata.inGlobal(TIMEOUT_MILLIS, () -> {
                try {
                    runBranches();
                } catch (Exception failure) {
                    reason[0] = reason(failure);
                    throw failure;
                }
            });
        } catch (Throwable failure) {
            failure.printStackTrace();
            return "BeginFailure";
        }
        return switch (end) {
            case "Committed" -> {
                commits++;
                yield COMMITTED;
            }
            case "RollbackDone", "Rollbacking" -> reason[0];
            default -> end;
        };
    }

    private static String reason(Exception failure) {
        if (failure instanceof RollBack) {
            return "purpose";
        }
        return Seata.isLockFailure(failure) ? "row-locked" : "database";
    }

    private void runBranches() throws SQLException, RollBack {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        boolean isKept = random.nextBoolean();
        long[] items = random.longs(0, rows).distinct().limit(BRANCHES * 2).toArray();
        for (int at = 0; at < items.length; at += 2) {
            long first = items[at];
            long second = items[at + 1];
            Sql.inTransaction(source, connection -> {
                execute(connection, POINT, first);
                execute(connection, GENERAL, second, second);
                return null;
            });
        }
        if (!isKept) {
            throw new RollBack();
        }
    }

    private static void execute(Connection connection, String statement, long... values)
            throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            for (int at = 0; at < values.length; at++) {
                prepared.setLong(at + 1, values[at]);
            }
            prepared.executeUpdate();
        }
    }
}
