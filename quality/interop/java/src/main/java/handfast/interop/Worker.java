package handfast.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * A service with a Seata client in it that does what it is told: a line of standard input is a
 * command, a line of standard output an answer. It decides nothing and judges nothing.
 *
 * <p>A command is {@code ID ACTOR VERB REST}. Commands of one actor are carried out in order by
 * one thread, so that an actor is what a thread is to the client: it is in one global at a time.
 */
public final class Worker {
    private final Databases databases;
    private final PrintStream answers;
    private final Map<String, Actor> actors = new HashMap<>();

    private Worker(Databases databases, PrintStream answers) {
        this.databases = databases;
        this.answers = answers;
    }

    /** Arguments: the name of the application, the database's URL, its URL for XA, user, password. */
    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Whatever a library prints must not pass for an answer.
        System.setOut(System.err);
        Databases databases = Databases.at(arguments[1], arguments[2], arguments[3], arguments[4]);
        Seata.start(arguments[0]);
        answers.println("ready");
        new Worker(databases, answers).serve();
        // The client's threads would keep the process.
        System.exit(0);
    }

    private void serve() throws IOException {
        InputStreamReader characters = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(characters);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 4);
            Command command = new Command(answers, words[0], words[2], words.length > 3 ? words[3] : "");
            actors.computeIfAbsent(words[1], name -> Actor.start(name, databases)).give(command);
        }
    }
}
