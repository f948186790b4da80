-- The tables that a PostgreSQL database needs for events: what goes out, what has come in.

-- One row per event, written in the local transaction that it tells of. `status`: 0 held (its
-- global transaction is not decided), 1 new, 2 published, 3 processed, 4 parked (needs a person), 5
-- skipped.
-- `seq` is the order of events of one key, `key_hash` stands for topic and key, `lane` is its rest.
-- Times are milliseconds since 1970 by the database's clock; to read one:
--   SELECT to_timestamp(created_at_ms / 1000.0) FROM event_outbox
CREATE TABLE IF NOT EXISTS event_outbox (
    seq              BIGINT       NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id         VARCHAR(36)  NOT NULL,
    topic            VARCHAR(128) NOT NULL,
    aggregate_key    VARCHAR(255) NOT NULL,
    key_hash         BIGINT       NOT NULL,
    lane             INT          NOT NULL,
    headers          TEXT         NOT NULL,
    payload          BYTEA        NOT NULL,
    status           SMALLINT     NOT NULL,
    xid              VARCHAR(256),
    branch_id        BIGINT,
    attempts         INT          NOT NULL DEFAULT 0,
    last_error       TEXT,
    next_at_ms       BIGINT       NOT NULL DEFAULT 0,
    claimed_by       VARCHAR(96),
    claimed_until_ms BIGINT,
    created_at_ms    BIGINT       NOT NULL,
    finished_at_ms   BIGINT
);

CREATE UNIQUE INDEX IF NOT EXISTS event_outbox_event ON event_outbox (event_id);

-- Only of rows that a relay still looks at: finished ones leave the indexes.
CREATE INDEX IF NOT EXISTS event_outbox_lane ON event_outbox (lane, seq)
WHERE status IN (0, 1, 4);

CREATE INDEX IF NOT EXISTS event_outbox_key ON event_outbox (key_hash, seq)
WHERE status IN (0, 1, 4);

CREATE INDEX IF NOT EXISTS event_outbox_held ON event_outbox (xid, branch_id)
WHERE status = 0;

CREATE INDEX IF NOT EXISTS event_outbox_finished ON event_outbox (finished_at_ms)
WHERE status IN (2, 3, 5);

-- Which relay sees to which lane, until when.
CREATE TABLE IF NOT EXISTS event_lane (
    lane     INT          NOT NULL PRIMARY KEY,
    owner    VARCHAR(64)  NOT NULL,
    until_ms BIGINT       NOT NULL
);

-- The relays that are alive, so that they share the lanes.
CREATE TABLE IF NOT EXISTS event_relay (
    name     VARCHAR(64)  NOT NULL PRIMARY KEY,
    until_ms BIGINT       NOT NULL
);

-- One row per event and consumer, written in the local transaction of the event's effect.
CREATE TABLE IF NOT EXISTS event_inbox (
    consumer       VARCHAR(128) NOT NULL,
    event_id       VARCHAR(36)  NOT NULL,
    deliveries     INT          NOT NULL,
    received_at_ms BIGINT       NOT NULL,
    PRIMARY KEY (consumer, event_id)
);

CREATE INDEX IF NOT EXISTS event_inbox_received ON event_inbox (received_at_ms);
