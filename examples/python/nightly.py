"""A nightly report that one process at a time writes, wherever cron starts it.

    python nightly.py --day 2026-11-27 --database report.db

The lock keeps others from doing the work in vain. What keeps a late writer out is the fencing
token, which each write checks: a process may be stopped for longer than its lease, and go on.
"""

import argparse
import contextlib
import sqlite3
import sys
import time

from handfast_client import Coordinator, LockBusy

TABLE = """
CREATE TABLE IF NOT EXISTS report (
    day TEXT PRIMARY KEY, lines INTEGER NOT NULL, fence INTEGER NOT NULL)
"""
# Writes nothing where a later holder has written.
WRITE = """
INSERT INTO report (day, lines, fence) VALUES (?1, ?2, ?3)
ON CONFLICT (day) DO UPDATE SET lines = excluded.lines, fence = excluded.fence
WHERE report.fence <= excluded.fence
"""


def write_report(db, lock, given) -> None:
    for line in range(1, given.lines + 1):
        time.sleep(given.seconds)  # the work
        if db.execute(WRITE, (given.day, line, lock.fence)).rowcount == 0:
            sys.exit(f"a later holder has written: token {lock.fence} is too old")
        print(f"line {line} under token {lock.fence}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--coordinator", default="127.0.0.1:7091")
    arguments.add_argument("--day", default="2026-11-27")
    arguments.add_argument("--database", default="report.db")
    arguments.add_argument("--lines", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=0.1, help="the work of one line")
    arguments.add_argument("--lease", type=float, default=30.0, help="in seconds")
    arguments.add_argument("--wait", type=float, default=0.0, help="for the lock, in seconds")
    given = arguments.parse_args()
    coordinator = Coordinator(given.coordinator, application="nightly")
    connection = sqlite3.connect(given.database, isolation_level=None, timeout=5)
    with contextlib.closing(connection) as db:
        db.execute(TABLE)
        try:
            name = f"nightly-report/{given.day}"
            with coordinator.lock(name, given.lease, given.wait, label="nightly.py") as lock:
                write_report(db, lock, given)
        except LockBusy as busy:
            print(busy)
    coordinator.close()


if __name__ == "__main__":
    main()
