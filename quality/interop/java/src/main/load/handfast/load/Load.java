package handfast.load;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.function.Function;

/**
 * Clients that repeat an operation, for {@code handfast-bench} to start and to read.
 *
 * <p>A line of standard input is a run, {@code OPERATION CLIENTS WARM_UP_MILLIS MILLIS}. It is
 * answered by {@code open} when each client has run its operation once, with which the warm-up
 * begins, and in the end by the counts of every client and {@code done}.
 */
public final class Load {
    private Load() {}

    /** Returns the stream for answers. What a library prints afterwards is not among them. */
    public static PrintStream answers() {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        return answers;
    }

    /** Says {@code ready}, and runs what is asked for until the input ends. */
    public static void serve(PrintStream answers, Function<String, Operation> operations)
            throws IOException, InterruptedException {
        answers.println("ready");
        InputStreamReader characters = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(characters);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Window window = new Window(Long.parseLong(words[2]), Long.parseLong(words[3]));
            run(operations.apply(words[0]), Integer.parseInt(words[1]), window, answers);
            answers.println("done");
        }
    }

    private static void run(Operation operation, int count, Window window, PrintStream answers)
            throws InterruptedException {
        CyclicBarrier opening = new CyclicBarrier(count, () -> {
            window.open();
            answers.println("open");
        });
        List<Client> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Client client = new Client(number, operation, opening, window);
            Thread thread = new Thread(client, "client-" + number);
            thread.start();
            clients.add(client);
            threads.add(thread);
        }
        for (int number = 0; number < count; number++) {
            threads.get(number).join();
            clients.get(number).print(answers);
        }
    }
}
