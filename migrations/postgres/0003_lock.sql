-- The tables that a PostgreSQL database needs to keep distributed locks, and to refuse the late
-- writes of holders that have lost theirs.

-- One row per lock, made by its first acquisition and never deleted: `fence` must not go back.
-- `owner` is the token of one acquisition, empty when the lock is free. `barred` is the last token
-- that was let go while a request of it may still have been under way. No index beside the primary
-- key, and room on the page: an acquisition is an update in place.
CREATE TABLE IF NOT EXISTS distributed_lock (
    name       VARCHAR(200) NOT NULL COLLATE "C" PRIMARY KEY,
    owner      VARCHAR(64)  NOT NULL,
    label      VARCHAR(100) NOT NULL,
    fence      BIGINT       NOT NULL,
    expires_at TIMESTAMPTZ  NOT NULL,
    barred     VARCHAR(64)  NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- Who waits, in order of `seq`, as long as he says that he is alive.
CREATE TABLE IF NOT EXISTS distributed_lock_waiter (
    name        VARCHAR(200) NOT NULL COLLATE "C",
    token       VARCHAR(64)  NOT NULL,
    seq         BIGINT       NOT NULL GENERATED ALWAYS AS IDENTITY,
    alive_until TIMESTAMPTZ  NOT NULL,
    PRIMARY KEY (name, token)
);

-- In the database of what a lock protects: the largest fencing token that has claimed it.
CREATE TABLE IF NOT EXISTS lock_claim (
    name  VARCHAR(200) NOT NULL COLLATE "C" PRIMARY KEY,
    fence BIGINT       NOT NULL
);
