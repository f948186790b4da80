-- Tables that a MySQL or MariaDB database needs to take part in global transactions.
-- Apply them by hand or with `handfast.migrate(&pool)`. Statements end with a semicolon at the end
-- of a line.

-- One row per branch, from its local transaction until phase two is done. `rollback_info` is JSON
-- in bytes, so that no character set can change it; to read it:
--   SELECT CONVERT(rollback_info USING utf8mb4) FROM undo_log
-- The primary key is the only index on purpose: every further one costs more than the row itself.
CREATE TABLE IF NOT EXISTS undo_log (
    branch_id     BIGINT       NOT NULL,
    xid           VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    context       VARCHAR(128) NOT NULL,
    rollback_info LONGBLOB     NOT NULL,
    log_status    INT          NOT NULL,
    log_created   DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    log_modified  DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (xid, branch_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- The database's own name for itself, drawn once. It goes with the data: a copy that is used beside
-- the original must be given another.
CREATE TABLE IF NOT EXISTS handfast_identity (
    only_row INT      NOT NULL PRIMARY KEY CHECK (only_row = 1),
    identity CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

INSERT IGNORE INTO handfast_identity (only_row, identity) VALUES (1, UUID());
