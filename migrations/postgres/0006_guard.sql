-- Guarded tables: `handfast guard enable` makes the database refuse writes from outside to rows of
-- an undecided global.

-- One row per guarded table. Its triggers are made along with the row.
CREATE TABLE IF NOT EXISTS guarded_table (
    table_name     VARCHAR(200) NOT NULL COLLATE "C" PRIMARY KEY,
    mode           VARCHAR(10)  NOT NULL,
    enabled_at     TIMESTAMPTZ  NOT NULL DEFAULT clock_timestamp(),
    effective_from TIMESTAMPTZ  NOT NULL
);

-- One row per row of a guarded table that a branch has written. It holds others off as long as the
-- branch's undo row is there, and is deleted soon after that. The digest is that of table and key.
CREATE TABLE IF NOT EXISTS guarded_row (
    row_digest BYTEA        NOT NULL,
    xid        VARCHAR(128) NOT NULL,
    branch_id  BIGINT       NOT NULL,
    table_name VARCHAR(200) NOT NULL COLLATE "C",
    row_key    VARCHAR(200) NOT NULL,
    written_at TIMESTAMPTZ  NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (row_digest, xid, branch_id)
);

CREATE INDEX IF NOT EXISTS guarded_row_branch ON guarded_row (xid, branch_id);

-- Writes from outside that a guard has let pass: 20 per branch at most, deleted along with its
-- guarded rows.
CREATE TABLE IF NOT EXISTS guarded_note (
    xid         VARCHAR(128) NOT NULL,
    branch_id   BIGINT       NOT NULL,
    table_name  VARCHAR(200) NOT NULL COLLATE "C",
    row_key     VARCHAR(200) NOT NULL,
    statement   VARCHAR(10)  NOT NULL,
    db_user     VARCHAR(100) NOT NULL,
    application VARCHAR(100) NOT NULL,
    address     VARCHAR(100) NOT NULL,
    written_at  TIMESTAMPTZ  NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX IF NOT EXISTS guarded_note_branch ON guarded_note (xid, branch_id);
