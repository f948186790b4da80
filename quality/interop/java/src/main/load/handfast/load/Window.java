package handfast.load;

/** The time within which operations count. */
final class Window {
    private final long warmUpMillis;
    private final long millis;
    private long fromNanos;
    private long untilNanos;

    Window(long warmUpMillis, long millis) {
        this.warmUpMillis = warmUpMillis;
        this.millis = millis;
    }

    /** Begins the warm-up. Clients that pass the same barrier see it. */
    void open() {
        fromNanos = System.nanoTime() + warmUpMillis * 1_000_000;
        untilNanos = fromNanos + millis * 1_000_000;
    }

    boolean holds(long nanos) {
        return nanos - fromNanos >= 0 && !isOver(nanos);
    }

    boolean isOver(long nanos) {
        return nanos - untilNanos >= 0;
    }
}
