-- The tables that a MySQL or MariaDB database needs to keep distributed locks, and to refuse the
-- late writes of holders that have lost theirs.

-- One row per lock, made by its first acquisition and never deleted: `fence` must not go back.
-- `owner` is the token of one acquisition, empty when the lock is free. `barred` is the last token
-- that was let go while a request of it may still have been under way. Names are bytes, so that no
-- collation takes two for one. Times are in UTC.
CREATE TABLE IF NOT EXISTS distributed_lock (
    name       VARBINARY(200) NOT NULL PRIMARY KEY,
    owner      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    fence      BIGINT       NOT NULL,
    expires_at DATETIME(6)  NOT NULL,
    barred     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''
) ENGINE = InnoDB;

-- Who waits, in order of `seq`, as long as he says that he is alive.
CREATE TABLE IF NOT EXISTS distributed_lock_waiter (
    name        VARBINARY(200) NOT NULL,
    token       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq         BIGINT      NOT NULL AUTO_INCREMENT,
    alive_until DATETIME(6) NOT NULL,
    PRIMARY KEY (name, token),
    UNIQUE KEY (seq)
) ENGINE = InnoDB;

-- In the database of what a lock protects: the largest fencing token that has claimed it.
CREATE TABLE IF NOT EXISTS lock_claim (
    name  VARBINARY(200) NOT NULL PRIMARY KEY,
    fence BIGINT         NOT NULL
) ENGINE = InnoDB;
