-- Tables that a PostgreSQL database needs to take part in global transactions.
-- Apply them by hand or with `handfast.migrate(&pool)`. Statements end with a semicolon at the end
-- of a line.

-- One row per branch, from its local transaction until phase two is done. `rollback_info` is JSON
-- in bytes, so that no server encoding can change it; to read it:
--   SELECT convert_from(rollback_info, 'UTF8') FROM undo_log
-- The primary key is the only index on purpose: every further one costs more than the row itself.
CREATE TABLE IF NOT EXISTS undo_log (
    branch_id     BIGINT       NOT NULL,
    xid           VARCHAR(128) NOT NULL,
    context       VARCHAR(128) NOT NULL,
    rollback_info BYTEA        NOT NULL,
    log_status    INT          NOT NULL,
    log_created   TIMESTAMPTZ  NOT NULL DEFAULT CURRENT_TIMESTAMP,
    log_modified  TIMESTAMPTZ  NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (xid, branch_id)
);

-- The database's own name for itself, drawn once. It goes with the data: a copy that is used beside
-- the original must be given another.
CREATE TABLE IF NOT EXISTS handfast_identity (
    only_row INT         NOT NULL PRIMARY KEY CHECK (only_row = 1),
    identity VARCHAR(36) NOT NULL
);

INSERT INTO handfast_identity (only_row, identity)
VALUES (1, CAST(gen_random_uuid() AS VARCHAR(36)))
ON CONFLICT (only_row) DO NOTHING;
