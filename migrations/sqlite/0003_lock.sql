-- The tables that a SQLite database needs to keep distributed locks among processes of one machine,
-- and to refuse the late writes of holders that have lost theirs.

-- One row per lock, made by its first acquisition and never deleted: `fence` must not go back.
-- `owner` is the token of one acquisition, empty when the lock is free. `barred` is the last token
-- that was let go while a request of it may still have been under way. Times are seconds since
-- 1970.
CREATE TABLE IF NOT EXISTS distributed_lock (
    name       TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at REAL    NOT NULL,
    barred     TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Who waits, in order of `seq`, as long as he says that he is alive.
CREATE TABLE IF NOT EXISTS distributed_lock_waiter (
    seq         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL,
    token       TEXT    NOT NULL,
    alive_until REAL    NOT NULL,
    UNIQUE (name, token)
) STRICT;

-- In the database of what a lock protects: the largest fencing token that has claimed it.
CREATE TABLE IF NOT EXISTS lock_claim (
    name  TEXT    NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL
) STRICT;
