"""A service that takes part over HTTP, in TCC and in sagas: it keeps customers' points and the
seats of a flight in a SQLite file of its own.

    python points.py --port 7301 --secret-file points.key --database points.db
"""

import argparse
import contextlib
import hashlib
import hmac
import json
import pathlib
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TABLES = """
CREATE TABLE IF NOT EXISTS points (customer INTEGER PRIMARY KEY, free INTEGER, held INTEGER);
CREATE TABLE IF NOT EXISTS seats (flight TEXT PRIMARY KEY, free INTEGER, held INTEGER);
CREATE TABLE IF NOT EXISTS fence (
    xid TEXT, branch TEXT, state TEXT NOT NULL, answer TEXT NOT NULL, made_at INTEGER NOT NULL,
    PRIMARY KEY (xid, branch));
INSERT OR IGNORE INTO points VALUES (7, 1000, 0);
INSERT OR IGNORE INTO seats VALUES ('HF1', 20, 0);
"""
BODY_BYTES_MAX = 256 * 1024
SIGNATURE_AGE_MS_MAX = 300_000


class Refused(Exception):
    """It must not be done, and asking again would not help."""


class NotNow(Exception):
    """It cannot be said yet; the coordinator asks again."""


# ---- the work: each function changes the rows of one local transaction ---------------------------


def change(db, statement: str, *values) -> None:
    if db.execute(statement, values).rowcount != 1:
        raise Refused("not enough left")


def hold_points(db, it):
    n = it["points"]
    hold = "UPDATE points SET free = free - ?, held = held + ? WHERE customer = ? AND free >= ?"
    change(db, hold, n, n, it["customer"], n)


def spend_held_points(db, it):
    change(db, "UPDATE points SET held = held - ? WHERE customer = ?", it["points"], it["customer"])


def free_held_points(db, it):
    n = it["points"]
    free = "UPDATE points SET free = free + ?, held = held - ? WHERE customer = ?"
    change(db, free, n, n, it["customer"])


def hold_seat(db, it):
    hold = "UPDATE seats SET free = free - 1, held = held + 1 WHERE flight = ? AND free >= 1"
    change(db, hold, it["flight"])


def sell_held_seat(db, it):
    change(db, "UPDATE seats SET held = held - 1 WHERE flight = ?", it["flight"])


def free_held_seat(db, it):
    free = "UPDATE seats SET free = free + 1, held = held - 1 WHERE flight = ?"
    change(db, free, it["flight"])


def take_points(db, call):
    n, customer = call["input"]["points"], call["input"]["customer"]
    take = "UPDATE points SET free = free - ? WHERE customer = ? AND free >= ?"
    change(db, take, n, customer, n)
    return {"taken": n}  # the step's output: for later steps, and for the compensation


def give_points_back(db, call):
    it = call["input"]
    give = "UPDATE points SET free = free + ? WHERE customer = ?"
    change(db, give, it["points"], it["customer"])


def take_seat(db, call):
    change(db, "UPDATE seats SET free = free - 1 WHERE flight = ? AND free >= 1",
           call["input"]["flight"])


def give_seat_back(db, call):
    change(db, "UPDATE seats SET free = free + 1 WHERE flight = ?", call["input"]["flight"])


# What the coordinator posts to. TCC: {resource}/try, confirm, cancel, with the input as the body.
# Sagas: {resource}/{action}/action, compensation, with a body that has the input in it.
WORK = {
    "/handfast/debit/try": hold_points,
    "/handfast/debit/confirm": spend_held_points,
    "/handfast/debit/cancel": free_held_points,
    "/handfast/seat/try": hold_seat,
    "/handfast/seat/confirm": sell_held_seat,
    "/handfast/seat/cancel": free_held_seat,
    "/handfast/trip/debit/action": take_points,
    "/handfast/trip/debit/compensation": give_points_back,
    "/handfast/trip/book/action": take_seat,
    "/handfast/trip/book/compensation": give_seat_back,
}


# ---- the fence: each operation of a branch takes effect once -------------------------------------


def run_once(db, xid: str, branch: str, operation: str, work, body):
    """Runs the work and records its end in one local transaction, or gives the recorded end."""
    db.execute("BEGIN IMMEDIATE")  # one writer at a time: nothing comes between look and write
    try:
        row = db.execute(
            "SELECT state, answer FROM fence WHERE xid = ? AND branch = ?", (xid, branch)
        ).fetchone()
        state, answer = row or ("absent", "null")
        state, answer = fenced(db, operation, state, answer, lambda: work(db, body))
        db.execute(
            "INSERT INTO fence VALUES (?, ?, ?, ?, unixepoch()) ON CONFLICT (xid, branch) "
            "DO UPDATE SET state = excluded.state, answer = excluded.answer",
            (xid, branch, state, answer),
        )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    if state == "refused" and operation in ("try", "action"):
        raise Refused(json.loads(answer))
    return json.loads(answer) if operation == "action" else None


def fenced(db, operation: str, state: str, answer: str, work) -> tuple[str, str]:
    """Returns the state that follows, and the answer to keep."""
    match (operation, state):
        case ("try" | "action", "absent"):
            db.execute("SAVEPOINT work")
            try:
                return "done", json.dumps(work())
            except Refused as refusal:
                db.execute("ROLLBACK TO work")
                return "refused", json.dumps(str(refusal))  # a late attempt is refused alike
        case ("try" | "action", "done" | "confirmed" | "refused"):
            return state, answer
        case ("try" | "action", _):
            raise Refused("it comes after its cancel")
        case ("confirm", "done"):
            work()
            return "confirmed", answer
        case ("confirm", "confirmed"):
            return state, answer
        case ("cancel" | "compensation", "done"):
            work()
            return "undone", answer
        case ("cancel" | "compensation", "absent" | "refused" | "undone"):
            return "undone", answer  # nothing to undo; from here on a try comes too late
    raise NotNow(f"{operation} of a branch that is {state}")


# ---- HTTP ----------------------------------------------------------------------------------------


def is_from_the_coordinator(secret: bytes, path: str, headers, body: bytes) -> bool:
    names = ["handfast-xid", "handfast-branch", "handfast-operation", "handfast-timestamp"]
    values = [headers.get(name, "") for name in names]
    if not values[3].isdecimal() or abs(time.time() * 1000 - int(values[3])) > SIGNATURE_AGE_MS_MAX:
        return False
    signed = "".join(line + "\n" for line in ["POST", path, *values]).encode() + body
    expected = "v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), headers.get("handfast-signature", "").encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # a connection that is silent for longer is closed

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413, {"message": "too long, or of unknown length"})
        body = self.rfile.read(int(length))
        if not is_from_the_coordinator(self.server.secret, self.path, self.headers, body):
            return self.answer(401, {"message": "not signed by the coordinator"})
        work = WORK.get(self.path)
        if work is None:
            return self.answer(404, {"message": "no such operation"})
        operation = self.headers["handfast-operation"]
        if operation != self.path.rsplit("/", 1)[1]:
            return self.answer(400, {"message": "path and operation differ"})
        xid, branch = self.headers["handfast-xid"], self.headers["handfast-branch"]
        try:
            with self.server.database() as db:
                output = run_once(db, xid, branch, operation, work, json.loads(body))
            self.answer(200, output)
        except Refused as refusal:
            self.answer(409, {"code": "refused", "message": str(refusal)})
        except (NotNow, sqlite3.OperationalError) as error:
            self.answer(503, {"message": str(error)})

    def do_GET(self):
        """`/balance`: everything, for people and tests."""
        if self.path != "/balance":
            return self.answer(404, {"message": "no such page"})
        with self.server.database() as db:
            rows = {}
            for table in ("points", "seats"):
                free, held = db.execute(f"SELECT sum(free), sum(held) FROM {table}").fetchone()
                rows[table] = {"free": free, "held": held}
        self.answer(200, rows)

    def answer(self, status: int, value) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, secret: bytes, file: str):
        self.secret, self.file = secret, file
        with self.database() as db:
            db.executescript(TABLES)
        super().__init__(("127.0.0.1", port), Handler)

    def database(self):
        db = sqlite3.connect(self.file, isolation_level=None, timeout=5)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # what is answered is on the disk
        return contextlib.closing(db)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--port", type=int, default=7301)
    arguments.add_argument("--secret-file", default="points.key")
    arguments.add_argument("--database", default="points.db")
    given = arguments.parse_args()
    # The line break at the end of the file is no part of the secret.
    secret = pathlib.Path(given.secret_file).read_text().strip().encode()
    server = Server(given.port, secret, given.database)
    print(f"points at http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
