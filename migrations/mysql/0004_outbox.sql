-- The tables that a MySQL or MariaDB database needs for events: what goes out, what has come in.

-- One row per event, written in the local transaction that it tells of. `status`: 0 held (its
-- global transaction is not decided), 1 new, 2 published, 3 processed, 4 parked (needs a person), 5
-- skipped.
-- `seq` is the order of events of one key, `key_hash` stands for topic and key, `lane` is its rest.
-- Times are milliseconds since 1970 by the database's clock; to read one:
--   SELECT FROM_UNIXTIME(created_at_ms / 1000) FROM event_outbox
CREATE TABLE IF NOT EXISTS event_outbox (
    seq              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id         CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic            VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
    aggregate_key    VARCHAR(255) COLLATE utf8mb4_bin NOT NULL,
    key_hash         BIGINT       NOT NULL,
    lane             INT          NOT NULL,
    headers          MEDIUMTEXT   NOT NULL,
    payload          LONGBLOB     NOT NULL,
    status           SMALLINT     NOT NULL,
    xid              VARCHAR(256) CHARACTER SET ascii COLLATE ascii_bin,
    branch_id        BIGINT,
    attempts         INT          NOT NULL DEFAULT 0,
    last_error       TEXT,
    next_at_ms       BIGINT       NOT NULL DEFAULT 0,
    claimed_by       VARCHAR(96)  CHARACTER SET ascii COLLATE ascii_bin,
    claimed_until_ms BIGINT,
    created_at_ms    BIGINT       NOT NULL,
    finished_at_ms   BIGINT,
    UNIQUE KEY event_outbox_event (event_id),
    KEY event_outbox_lane (lane, status, seq),
    KEY event_outbox_key (key_hash, status, seq),
    KEY event_outbox_held (xid, branch_id),
    KEY event_outbox_finished (finished_at_ms)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Which relay sees to which lane, until when.
CREATE TABLE IF NOT EXISTS event_lane (
    lane     INT         NOT NULL PRIMARY KEY,
    owner    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    until_ms BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- The relays that are alive, so that they share the lanes.
CREATE TABLE IF NOT EXISTS event_relay (
    name     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    until_ms BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- One row per event and consumer, written in the local transaction of the event's effect.
CREATE TABLE IF NOT EXISTS event_inbox (
    consumer       VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
    event_id       CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    deliveries     INT          NOT NULL,
    received_at_ms BIGINT       NOT NULL,
    PRIMARY KEY (consumer, event_id),
    KEY event_inbox_received (received_at_ms)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
