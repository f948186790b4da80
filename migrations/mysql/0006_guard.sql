-- Guarded tables: `handfast guard enable` makes the database refuse writes from outside to rows of
-- an undecided global.

-- One row per guarded table. Its triggers are made along with the row. Times are UTC.
CREATE TABLE IF NOT EXISTS guarded_table (
    table_name     VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    mode           VARCHAR(10)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    enabled_at     DATETIME(6)  NOT NULL,
    effective_from DATETIME(6)  NOT NULL
) ENGINE = InnoDB;

-- One row per row of a guarded table that a branch has written. It holds others off as long as the
-- branch's undo row is there, and is deleted soon after that. The digest is that of table and key.
CREATE TABLE IF NOT EXISTS guarded_row (
    row_digest BINARY(32)   NOT NULL,
    xid        VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    branch_id  BIGINT       NOT NULL,
    table_name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    row_key    VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
    written_at DATETIME(6)  NOT NULL,
    PRIMARY KEY (row_digest, xid, branch_id),
    KEY guarded_row_branch (xid, branch_id)
) ENGINE = InnoDB;

-- Writes from outside that a guard has let pass: 20 per branch at most, deleted along with its
-- guarded rows.
CREATE TABLE IF NOT EXISTS guarded_note (
    xid         VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    branch_id   BIGINT       NOT NULL,
    table_name  VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    row_key     VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
    statement   VARCHAR(10)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    db_user     VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    application VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    address     VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    written_at  DATETIME(6)  NOT NULL,
    KEY guarded_note_branch (xid, branch_id)
) ENGINE = InnoDB;

-- The local transactions of the library that are writing guarded tables, by connection. A row is
-- deleted by the local transaction that has inserted it, so no other one ever sees it.
CREATE TABLE IF NOT EXISTS guarded_writer (
    connection_id BIGINT       NOT NULL PRIMARY KEY,
    xid           VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    branch_id     BIGINT       NOT NULL
) ENGINE = InnoDB;
