package handfast.load;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;

/** One of the clients: a thread that repeats an operation and counts its ends. */
final class Client implements Runnable {
    private final int number;
    private final Operation operation;
    private final CyclicBarrier opening;
    private final Window window;

    /** From the first attempt since the last good end until the good end, of each in the window. */
    private final List<Long> latenciesNanos = new ArrayList<>();
    /** Why operations within the window did not end well. */
    private final Map<String, Integer> failures = new TreeMap<>();
    private int ended;

    Client(int number, Operation operation, CyclicBarrier opening, Window window) {
        this.number = number;
        this.operation = operation;
        this.opening = opening;
        this.window = window;
    }

    /** Lines: {@code latency CLIENT NANOS}, {@code failed COUNT REASON}, {@code ended COUNT}. */
    void print(PrintStream answers) {
        latenciesNanos.forEach(nanos -> answers.println("latency " + number + " " + nanos));
        failures.forEach((reason, count) -> answers.println("failed " + count + " " + reason));
        answers.println("ended " + ended);
    }

    @Override
    public void run() {
        runOnce();
        try {
            opening.await();
        } catch (InterruptedException | BrokenBarrierException end) {
            throw new IllegalStateException(end);
        }
        long begun = System.nanoTime();
        while (!window.isOver(System.nanoTime())) {
            Operation.End end = runOnce();
            long now = System.nanoTime();
            boolean counts = window.holds(now);
            if (end.failure() != null) {
                if (counts) {
                    failures.merge(end.failure(), 1, Integer::sum);
                }
                continue;
            }
            if (counts) {
                latenciesNanos.add(end.nanos() < 0 ? now - begun : end.nanos());
            }
            begun = now;
        }
    }

    private Operation.End runOnce() {
        Operation.End end;
        try {
            end = operation.run(number);
        } catch (RuntimeException failure) {
            failure.printStackTrace();
            end = Operation.End.failed(failure.getClass().getSimpleName());
        }
        ended += end.failure() == null ? 1 : 0;
        return end;
    }
}
