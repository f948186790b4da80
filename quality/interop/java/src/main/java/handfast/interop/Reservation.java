package handfast.interop;

import java.sql.SQLException;
import java.util.Map;
import javax.sql.DataSource;

/**
 * A TCC action: a row of {@code reservation} says how it stands. Phase two writes down how often it
 * came, so that a repetition can be seen.
 */
final class Reservation implements Seata.Action {
    private static final String NAME = "reserve";

    private static Reservation registered;
    private final DataSource source;

    private Reservation(DataSource source) {
        this.source = source;
    }

    /** {@code KEY} reserves; {@code register} only makes the action known to the coordinator. */
    static String reserve(DataSource source, String key) throws Exception {
        register(source);
        if (key.equals("register")) {
            return NAME;
        }
        long branch = Seata.registerBranch(NAME, Map.of("key", key));
        Sql.run(source, "insert into reservation (id, state, ends) values (" + key + ", 'tried', 0)");
        return "" + branch;
    }

    private static synchronized void register(DataSource source) throws Exception {
        if (registered == null) {
            registered = new Reservation(source);
            Seata.registerAction(NAME, registered);
        }
    }

    @Override
    public boolean confirm(Map<String, Object> context) {
        return end(context, "confirmed");
    }

    @Override
    public boolean cancel(Map<String, Object> context) {
        return end(context, "cancelled");
    }

    private boolean end(Map<String, Object> context, String state) {
        try {
            String change = "update reservation set state = '" + state + "', ends = ends + 1";
            Sql.run(source, change + " where id = " + context.get("key"));
            return true;
        } catch (SQLException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
