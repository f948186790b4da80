package handfast.interop;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import handfast.load.Load;
import handfast.load.Operation;
import java.io.PrintStream;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;
import javax.sql.DataSource;

/**
 * Clients that change one row by its key, each time in a local transaction or in a global of its
 * own: what {@code handfast-bench peers} compares with the library's.
 */
public final class Updates {
    static final String POINT = "UPDATE item SET cnt = cnt + 1 WHERE id = ?";
    private static final int TIMEOUT_MILLIS = 60_000;

    private final DataSource source;
    private final long rows;

    private Updates(DataSource source, long rows) {
        this.source = source;
        this.rows = rows;
    }

    /**
     * Arguments: the database's URL, user and password, the number of rows, the number of
     * connections, and {@code local} or {@code global}.
     */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = Load.answers();
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(arguments[0]);
        config.setUsername(arguments[1]);
        config.setPassword(arguments[2]);
        config.setMaximumPoolSize(Integer.parseInt(arguments[4]));
        boolean isGlobal = arguments[5].equals("global");
        DataSource pool = new HikariDataSource(config);
        if (isGlobal) {
            Seata.start("updates");
        }
        DataSource source = isGlobal ? Seata.at(pool) : pool;
        Updates updates = new Updates(source, Long.parseLong(arguments[3]));
        Operation update = client -> isGlobal ? updates.global() : updates.local();
        Load.serve(answers, name -> update);
        // The client's threads would keep the process.
        System.exit(0);
    }

    private Operation.End local() {
        try {
            update();
            return Operation.End.WELL;
        } catch (SQLException failure) {
            return failed(failure);
        }
    }

    private Operation.End global() {
        Exception[] thrown = {null};
        try {
            String end = Seata.inGlobal(TIMEOUT_MILLIS, () -> {
                try {
                    update();
                } catch (SQLException failure) {
                    thrown[0] = failure;
                    throw failure;
                }
            });
            if (thrown[0] != null) {
                return failed(thrown[0]);
            }
            return end.equals("Committed") ? Operation.End.WELL : Operation.End.failed(end);
        } catch (Throwable failure) {
            return failed(failure);
        }
    }

    private static Operation.End failed(Throwable failure) {
        if (Seata.isLockFailure(failure)) {
            return Operation.End.failed("row-locked");
        }
        failure.printStackTrace();
        return Operation.End.failed(failure.getClass().getSimpleName());
    }

    private void update() throws SQLException {
        long item = ThreadLocalRandom.current().nextLong(rows);
        Sql.inTransaction(source, connection -> {
            Sql.update(connection, POINT, item);
            return null;
        });
    }
}
