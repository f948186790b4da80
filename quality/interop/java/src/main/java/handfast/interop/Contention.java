package handfast.interop;

import handfast.load.Load;
import handfast.load.Operation;
import java.io.PrintStream;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;
import javax.sql.DataSource;

/**
 * Clients that run globals over few rows, in each other's way: the mix of {@code handfast-bench at
 * --contention} by the client of Seata.
 */
public final class Contention implements Operation {
    private static final int BRANCHES = 2;
    private static final String GENERAL =
        "UPDATE item SET cnt = cnt + 1 WHERE id BETWEEN ? AND ?";
    private static final int TIMEOUT_MILLIS = 60_000;

    private final DataSource source;
    private final long rows;

    private Contention(DataSource source, long rows) {
        this.source = source;
        this.rows = rows;
    }

    /** Arguments: the database's URL, user and password, and the number of rows. */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = Load.answers();
        String url = arguments[0];
        Databases databases = Databases.at(url, url, arguments[1], arguments[2]);
        Seata.start("contention");
        Operation mix = new Contention(databases.at(), Long.parseLong(arguments[3]));
        Load.serve(answers, name -> mix);
        // The client's threads would keep the process.
        System.exit(0);
    }

    /** What the application throws for the client to roll back. */
    private static final class RollBack extends Exception {
        private static final long serialVersionUID = 1L;
    }

    /** Runs a global. */
    @Override
    public End run(int client) {
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
            return End.failed("BeginFailure");
        }
        return switch (end) {
            case "Committed" -> End.WELL;
            case "RollbackDone", "Rollbacking" -> End.failed(reason[0]);
            default -> End.failed(end);
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
                Sql.update(connection, Updates.POINT, first);
                Sql.update(connection, GENERAL, second, second);
                return null;
            });
        }
        if (!isKept) {
            throw new RollBack();
        }
    }
}
