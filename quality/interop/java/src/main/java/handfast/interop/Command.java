package handfast.interop;

import java.io.PrintStream;

/** One command, which is answered once. */
record Command(PrintStream answers, String id, String verb, String rest) {
    void answer(String text) {
        say("ok", text);
    }

    void fail(Throwable failure) {
        failure.printStackTrace();
        StringBuilder text = new StringBuilder();
        for (Throwable it = failure; it != null; it = it.getCause()) {
            text.append(text.length() == 0 ? "" : "; because ").append(it);
        }
        say("error", text.toString());
    }

    private void say(String kind, String text) {
        answers.println(id + " " + kind + " " + text.replace('\r', ' ').replace('\n', ' '));
    }
}
