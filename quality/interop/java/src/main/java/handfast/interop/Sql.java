package handfast.interop;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import javax.sql.DataSource;

/** Statements, and their results as text: rows with {@code ;} between, columns with {@code ,}. */
final class Sql {
    private Sql() {}

    /** One statement, committed by itself. */
    static String run(DataSource source, String statement) throws SQLException {
        try (Connection connection = source.getConnection()) {
            return execute(connection, statement);
        }
    }

    /** Statements with {@code ;;} between them, in one local transaction of the application. */
    static String runInTransaction(DataSource source, String statements) throws SQLException {
        return inTransaction(source, connection -> {
            String last = "";
            for (String statement : statements.split(";;")) {
                last = execute(connection, statement);
            }
            return last;
        });
    }

    /** What is done in a local transaction. */
    interface Work<T> {
        T run(Connection connection) throws SQLException;
    }

    /** One local transaction of the application, which rolls back if the work fails. */
    static <T> T inTransaction(DataSource source, Work<T> work) throws SQLException {
        try (Connection connection = source.getConnection()) {
            connection.setAutoCommit(false);
            try {
                T result = work.run(connection);
                connection.commit();
                return result;
            } catch (SQLException | RuntimeException failure) {
                connection.rollback();
                throw failure;
            } finally {
                connection.setAutoCommit(true);
            }
        }
    }

    /** One statement with numbers for its marks, which changes rows. */
    static void update(Connection connection, String statement, long... values)
            throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            for (int at = 0; at < values.length; at++) {
                prepared.setLong(at + 1, values[at]);
            }
            prepared.executeUpdate();
        }
    }

    private static String execute(Connection connection, String statement) throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement.trim())) {
            boolean hasRows = prepared.execute();
            return hasRows ? text(prepared.getResultSet()) : "" + prepared.getUpdateCount();
        }
    }

    private static String text(ResultSet results) throws SQLException {
        List<String> rows = new ArrayList<>();
        int columns = results.getMetaData().getColumnCount();
        while (results.next()) {
            List<String> row = new ArrayList<>();
            for (int column = 1; column <= columns; column++) {
                row.add(results.getString(column));
            }
            rows.add(String.join(",", row));
        }
        return String.join(";", rows);
    }
}
