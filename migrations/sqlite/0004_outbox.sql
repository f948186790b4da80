-- The tables that a SQLite database needs for events: what goes out, what has come in.

-- One row per event, written in the local transaction that it tells of. `status`: 0 held (its
-- global transaction is not decided), 1 new, 2 published, 3 processed, 4 parked (needs a person), 5
-- skipped.
-- `seq` is the order of events of one key and is never used twice, `key_hash` stands for topic and
-- key, `lane` is its rest. Times are milliseconds since 1970; to read one:
--   SELECT datetime(created_at_ms / 1000, 'unixepoch') FROM event_outbox
CREATE TABLE IF NOT EXISTS event_outbox (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id         TEXT    NOT NULL UNIQUE,
    topic            TEXT    NOT NULL,
    aggregate_key    TEXT    NOT NULL,
    key_hash         INTEGER NOT NULL,
    lane             INTEGER NOT NULL,
    headers          TEXT    NOT NULL,
    payload          BLOB    NOT NULL,
    status           INTEGER NOT NULL,
    xid              TEXT,
    branch_id        INTEGER,
    attempts         INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    next_at_ms       INTEGER NOT NULL DEFAULT 0,
    claimed_by       TEXT,
    claimed_until_ms INTEGER,
    created_at_ms    INTEGER NOT NULL,
    finished_at_ms   INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS event_outbox_lane ON event_outbox (lane, status, seq);

CREATE INDEX IF NOT EXISTS event_outbox_key ON event_outbox (key_hash, status, seq);

CREATE INDEX IF NOT EXISTS event_outbox_held ON event_outbox (xid, branch_id);

CREATE INDEX IF NOT EXISTS event_outbox_finished ON event_outbox (finished_at_ms);

-- Which relay sees to which lane, until when.
CREATE TABLE IF NOT EXISTS event_lane (
    lane     INTEGER NOT NULL PRIMARY KEY,
    owner    TEXT    NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

-- The relays that are alive, so that they share the lanes.
CREATE TABLE IF NOT EXISTS event_relay (
    name     TEXT    NOT NULL PRIMARY KEY,
    until_ms INTEGER NOT NULL
) STRICT;

-- One row per event and consumer, written in the local transaction of the event's effect.
CREATE TABLE IF NOT EXISTS event_inbox (
    consumer       TEXT    NOT NULL,
    event_id       TEXT    NOT NULL,
    deliveries     INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    PRIMARY KEY (consumer, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS event_inbox_received ON event_inbox (received_at_ms);
