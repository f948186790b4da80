package handfast.load;

/** What clients repeat. */
@FunctionalInterface
public interface Operation {
    /** Runs once for the client of this number, in that client's thread. */
    End run(int client);

    /**
     * How a run of it ended.
     *
     * @param failure why it did not end well, in one word, or {@code null}
     * @param nanos the length of the part that is measured, or a negative number for all of it
     */
    record End(String failure, long nanos) {
        public static final End WELL = new End(null, -1);

        public static End took(long nanos) {
            return new End(null, nanos);
        }

        public static End failed(String reason) {
            return new End(reason, -1);
        }
    }
}
