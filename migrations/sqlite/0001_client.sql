-- Tables that a SQLite database needs to take part in global transactions.
-- Apply them by hand or with `handfast.migrate(&pool)`. Statements end with a semicolon at the end
-- of a line.

-- One row per branch, from its local transaction until phase two is done. `rollback_info` is JSON
-- in bytes, so that no text encoding can change it; to read it:
--   SELECT CAST(rollback_info AS TEXT) FROM undo_log
-- Without a rowid the primary key is the table itself: one tree to write, not two.
CREATE TABLE IF NOT EXISTS undo_log (
    branch_id     INTEGER NOT NULL,
    xid           TEXT    NOT NULL,
    context       TEXT    NOT NULL,
    rollback_info BLOB    NOT NULL,
    log_status    INTEGER NOT NULL,
    log_created   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    log_modified  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    PRIMARY KEY (xid, branch_id)
) STRICT, WITHOUT ROWID;

-- The database's own name for itself, drawn once: SQLite has none, and a path is no identity. It
-- goes with the data: a copy of the file that is used beside the original must be given another.
CREATE TABLE IF NOT EXISTS handfast_identity (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    identity TEXT    NOT NULL
) STRICT;

INSERT OR IGNORE INTO handfast_identity (only_row, identity)
SELECT 1, substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3)
       || '-8' || substr(h, 18, 3) || '-' || substr(h, 21, 12)
FROM (SELECT lower(hex(randomblob(16))) AS h);
