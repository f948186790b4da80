package handfast.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import javax.sql.DataSource;

/**
 * Clients that run globals over few rows, in each other's way: the mix of {@code handfast-bench at
 * --contention} by the client of Seata, for {@code handfast-bench} to start and to read.
 *
 * <p>A line of standard input is a run, {@code CLIENTS WARM_UP_MILLIS MILLIS}. It is answered by
 * {@code open} when each client has run a global, with which the warm-up begins, and in the end by
 * the counts of every client and {@code done}.
 */
public final class Contention {
    private final DataSource source;
    private final long rows;
    private final PrintStream answers;

    private Contention(DataSource source, long rows, PrintStream answers) {
        this.source = source;
        this.rows = rows;
        this.answers = answers;
    }

    /** Arguments: the database's URL, user and password, and the number of rows. */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Whatever a library prints must not pass for an answer.
        System.setOut(System.err);
        String url = arguments[0];
        Databases databases = Databases.at(url, url, arguments[1], arguments[2]);
        Seata.start("contention");
        DataSource source = databases.at();
        answers.println("ready");
        new Contention(source, Long.parseLong(arguments[3]), answers).serve();
        // The client's threads would keep the process.
        System.exit(0);
    }

    private void serve() throws IOException, InterruptedException {
        InputStreamReader characters = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(characters);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long warmUpMillis = Long.parseLong(words[1]);
            run(Integer.parseInt(words[0]), new Window(warmUpMillis, Long.parseLong(words[2])));
            answers.println("done");
        }
    }

    private void run(int count, Window window) throws InterruptedException {
        CyclicBarrier opening = new CyclicBarrier(count, () -> {
            window.open();
            answers.println("open");
        });
        List<ContentionClient> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            ContentionClient client = new ContentionClient(source, rows, opening, window);
            Thread thread = new Thread(client, "client-" + number);
            thread.start();
            clients.add(client);
            threads.add(thread);
        }
        for (int number = 0; number < count; number++) {
            threads.get(number).join();
            clients.get(number).print(number, answers);
        }
    }

    /** The time within which globals count. */
    static final class Window {
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
}
