package handfast.interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * A thread of the service. From {@code begin} to {@code commit} or {@code rollback} it is inside the
 * client's transactional template, as a method with {@code @GlobalTransactional} is.
 */
final class Actor implements Runnable {
    private final BlockingQueue<Command> commands = new LinkedBlockingQueue<>();
    private final Databases databases;

    private Actor(Databases databases) {
        this.databases = databases;
    }

    static Actor start(String name, Databases databases) {
        Actor actor = new Actor(databases);
        Thread thread = new Thread(actor, "actor-" + name);
        thread.setDaemon(true);
        thread.start();
        return actor;
    }

    void give(Command command) {
        commands.add(command);
    }

    @Override
    public void run() {
        try {
            while (true) {
                Command command = commands.take();
                if (command.verb().equals("begin")) {
                    runGlobal(command);
                } else {
                    carryOut(command);
                }
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    /** What the application throws for the client to roll back. */
    private static final class RollBack extends Exception {
        private static final long serialVersionUID = 1L;
    }

    private void runGlobal(Command begin) {
        int timeoutMillis = Integer.parseInt(begin.rest());
        Command[] awaiting = {begin};
        try {
            String outcome = Seata.inGlobal(timeoutMillis, () -> {
                begin.answer(Seata.xid());
                awaiting[0] = carryOutUntilEnd();
                if (awaiting[0].verb().equals("rollback")) {
                    throw new RollBack();
                }
            });
            awaiting[0].answer(outcome);
        } catch (Throwable failure) {
            awaiting[0].fail(failure);
        }
    }

    private Command carryOutUntilEnd() throws InterruptedException {
        while (true) {
            Command command = commands.take();
            if (command.verb().equals("commit") || command.verb().equals("rollback")) {
                return command;
            }
            carryOut(command);
        }
    }

    private void carryOut(Command command) {
        try {
            command.answer(result(command.verb(), command.rest()));
        } catch (Throwable failure) {
            command.fail(failure);
        }
    }

    private String result(String verb, String rest) throws Throwable {
        return switch (verb) {
            case "plain" -> Sql.run(databases.plain(), rest);
            case "at" -> Sql.run(databases.at(), rest);
            case "at-local" -> Sql.runInTransaction(databases.at(), rest);
            case "xa" -> Sql.run(databases.xa(), rest);
            case "xa-local" -> Sql.runInTransaction(databases.xa(), rest);
            case "locked" ->
                Seata.underGlobalLock(() -> Sql.runInTransaction(databases.at(), rest));
            case "reserve" -> Reservation.reserve(databases.plain(), rest);
            case "join" -> Seata.join(rest);
            case "leave" -> Seata.leave();
            case "status" -> Seata.status(rest);
            default -> throw new IllegalArgumentException("no verb " + verb);
        };
    }
}
